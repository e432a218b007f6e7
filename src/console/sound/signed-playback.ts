import { effect } from "@preact/signals";
import { signedUrl } from "../files/signed-url.ts";
import { session } from "../framework/session.ts";
import { skipsSilence, startPlayback } from "./playback.ts";
import { close, track } from "./player-state.ts";
import { loadWaveform } from "./waveform-loading.ts";

/** Plays files by signed URLs, until the session ends. */
export function startSignedPlayback(): void {
  startPlayback(signedUrl);
  effect(() => {
    if (!session.value) close();
  });
  effect(() => {
    if (skipsSilence.value && track.value) void loadWaveform(track.value._id);
  });
}
