import { effect } from "@preact/signals";
import { signedUrl } from "../files/signed-url.ts";
import { session } from "../framework/session.ts";
import { startPlayback } from "./playback.ts";
import { close } from "./player-state.ts";

/** Plays files by signed URLs, until the session ends. */
export function startSignedPlayback(): void {
  startPlayback(signedUrl);
  effect(() => {
    if (!session.value) close();
  });
}
