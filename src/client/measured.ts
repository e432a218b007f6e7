import type { AudioMetadata } from "./api.ts";

/** By container and codec, as `audio` has them. */
const MEASURED =
  /^(MPEG MPEG [\d.]+ Layer [123]|(FLAC|Ogg) FLAC|Ogg Vorbis I|.* Opus|WAVE (PCM|IEEE_FLOAT|ALAW|MULAW)|AIFF PCM|AIFF-C .*)$/i;

/**
 * Whether the service measures the waveform of such a file itself, soon after it is completed. Of other formats, such as AAC,
 * a client that can decode them may set it.
 */
export const isMeasured = ({ container, codec }: Pick<AudioMetadata, "container" | "codec">): boolean =>
  MEASURED.test(`${container} ${codec}`);
