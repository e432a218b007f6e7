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

/** The beginning of an MP4 file, and that of AAC. The service measures neither. */
const UNMEASURED = /^(.{4}ftyp|\xff[\xf0\xf1\xf8\xf9])/s;

/** Whether a file of which nothing else is known may be one that the service does not measure. */
export async function isUnmeasured(file: Blob): Promise<boolean> {
  const start = new Uint8Array(await file.slice(0, 8).arrayBuffer());
  return UNMEASURED.test(String.fromCharCode(...start));
}
