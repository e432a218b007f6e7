import type { AudioMetadata } from "../../client/api.ts";
import { isMeasured } from "../../client/measured.ts";

/** Peaks per channel: enough for one bar every pixel or two. */
const PEAKS = 1000;
const MIN_PEAKS = 16;
const MAX_CHANNELS = 2;
/** The lowest rate that browsers decode to. Peaks need no higher rate. */
const DECODING_HERTZ = 8000;
/** Browsers first decode at the file's own rate. Chromium then needs 8 bytes per sample, 400 MB for this limit. */
const MAX_SAMPLES = 50_000_000;
const MAX_BYTES = 200_000_000;

let last: Promise<unknown> = Promise.resolve();

/** Whether a browser may measure a file: the service measures most formats itself. */
export const isForBrowser = (audio: Omit<AudioMetadata, "tags">, sizeBytes: number): boolean =>
  !isMeasured(audio) &&
  sizeBytes <= MAX_BYTES &&
  audio.durationSeconds !== null &&
  audio.durationSeconds * (audio.sampleRate ?? 48_000) * (audio.channels ?? MAX_CHANNELS) <= MAX_SAMPLES;

/**
 * Measures the peaks of up to two channels, from -1 to 1. Decodes one file at a time to bound memory.
 * @returns null if the browser can't decode the file
 */
export function measurePeaks(file: Blob): Promise<number[][] | null> {
  const peaks = last.then(() => decode(file)).catch(() => null);
  last = peaks;
  return peaks;
}

async function decode(file: Blob): Promise<number[][]> {
  const context = new OfflineAudioContext(1, 1, DECODING_HERTZ);
  const sound = await context.decodeAudioData(await file.arrayBuffer());
  const count = Math.max(MIN_PEAKS, Math.min(PEAKS, sound.length));
  return Array.from({ length: Math.min(MAX_CHANNELS, sound.numberOfChannels) }, (_, channel) =>
    findPeaks(sound.getChannelData(channel), count),
  );
}

/** The sample furthest from zero in each of `count` equal sections. */
export function findPeaks(samples: ArrayLike<number>, count: number): number[] {
  const start = (section: number) => Math.ceil((section * samples.length) / count);
  return Array.from({ length: count }, (_, section) => {
    let peak = 0;
    for (let at = start(section); at < start(section + 1); at++) {
      const sample = samples[at] ?? 0;
      if (Math.abs(sample) > Math.abs(peak)) peak = sample;
    }
    return Math.round(Math.max(-1, Math.min(1, peak)) * 1000) / 1000;
  });
}
