import type { AudioMetadata } from "./api.ts";
import { isMeasured, isUnmeasured } from "./measured.ts";

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

/** The size of a file whose duration is unknown: AAC of speech has at least this many bytes in a second. */
const MIN_BYTES_PER_SECOND = 8000;
/** More than AAC needs for the longest sound that is decoded. */
const MAX_UNKNOWN_BYTES = 25_000_000;

/** Whether a browser may measure a file: the service measures most formats itself. */
export const isForBrowser = (audio: Omit<AudioMetadata, "tags">, sizeBytes: number): boolean =>
  !isMeasured(audio) &&
  sizeBytes <= MAX_BYTES &&
  audio.durationSeconds !== null &&
  fits(audio.durationSeconds, audio.sampleRate, audio.channels);

const fits = (seconds: number, sampleRate: number | null, channels: number | null) =>
  seconds * (sampleRate ?? 48_000) * (channels ?? MAX_CHANNELS) <= MAX_SAMPLES;

/** Whether a browser may measure a file that it knows nothing else about, on a page with the token of a visitor. */
export async function isUnknownForBrowser(file: Blob): Promise<boolean> {
  return file.size <= MAX_UNKNOWN_BYTES && (await isUnmeasured(file)) && fits(await durationOf(file), null, null);
}

/** The duration of a file in seconds. If it states none, like a recording that was not ended, the longest possible one. */
async function durationOf(file: Blob): Promise<number> {
  const audio = new Audio();
  const known = new Promise((resolve) => {
    audio.onloadedmetadata = resolve;
    audio.onerror = resolve;
  });
  audio.preload = "metadata";
  audio.src = URL.createObjectURL(file);
  await known;
  URL.revokeObjectURL(audio.src);
  return Number.isFinite(audio.duration) ? audio.duration : file.size / MIN_BYTES_PER_SECOND;
}

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
