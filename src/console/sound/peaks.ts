/** Peaks per channel: enough for one bar every pixel or two. */
const PEAKS = 1000;
const MIN_PEAKS = 16;
const MAX_CHANNELS = 2;
/** The lowest rate that browsers decode to. Peaks need no higher rate. */
const DECODING_HERTZ = 8000;
/** Browsers first decode at the file's own rate. Chromium then needs 8 bytes per sample, 400 MB for this limit. */
const MAX_SAMPLES = 50_000_000;
const MAX_BYTES = 200_000_000;
/** MP3 is decoded in slices of this size, about four minutes at 128 kbit/s, so its length does not matter. */
const SLICE_BYTES = 4_000_000;
/** Without asking, a page downloads at most this much to draw a waveform. */
const MAX_UNASKED_BYTES = 20_000_000;

export interface AudioFacts {
  mimeType: string;
  durationSeconds: number | null;
  sampleRate: number | null;
  channels: number | null;
}

const isSliceable = ({ mimeType }: AudioFacts) => mimeType === "audio/mpeg";

const fitsMemory = ({ durationSeconds, sampleRate, channels }: AudioFacts) =>
  durationSeconds !== null && durationSeconds * (sampleRate ?? 48_000) * (channels ?? MAX_CHANNELS) <= MAX_SAMPLES;

/** Whether a browser can measure a file: at once, only if the user agrees to the download, or not at all. */
export function measurability(audio: AudioFacts, sizeBytes: number): "unasked" | "asked" | "too long" {
  if (sizeBytes > MAX_BYTES || !(isSliceable(audio) || fitsMemory(audio))) return "too long";
  return sizeBytes <= MAX_UNASKED_BYTES ? "unasked" : "asked";
}

let last: Promise<unknown> = Promise.resolve();

/**
 * Measures the peaks of up to two channels, from -1 to 1. Decodes one file at a time to bound memory.
 * @returns null if the file is too long, or if the browser can't decode it
 */
export function measurePeaks(file: Blob, audio: AudioFacts): Promise<number[][] | null> {
  if (measurability(audio, file.size) === "too long") return Promise.resolve(null);
  const slices = isSliceable(audio) ? sliceUp(file) : [file];
  const peaks = last.then(() => decodeAll(slices)).catch(() => null);
  last = peaks;
  return peaks;
}

const sliceUp = (file: Blob): Blob[] =>
  Array.from({ length: Math.ceil(file.size / SLICE_BYTES) }, (_, slice) =>
    file.slice(slice * SLICE_BYTES, (slice + 1) * SLICE_BYTES),
  );

async function decodeAll(slices: Blob[]): Promise<number[][]> {
  const decoded: { length: number; channels: number[][] }[] = [];
  for (const [place, slice] of slices.entries()) {
    const context = new OfflineAudioContext(1, 1, DECODING_HERTZ);
    const sound = await context.decodeAudioData(await slice.arrayBuffer()).catch((error) => {
      // The first slice may be all cover, and the last one all tags.
      const isOuter = place === 0 || place === slices.length - 1;
      if (slices.length === 1 || !isOuter) throw error;
      return null;
    });
    if (!sound) continue;
    const count = Math.max(MIN_PEAKS, Math.min(PEAKS, sound.length));
    const channels = Array.from({ length: Math.min(MAX_CHANNELS, sound.numberOfChannels) }, (_, channel) =>
      findPeaks(sound.getChannelData(channel), count),
    );
    decoded.push({ length: sound.length, channels });
  }
  if (decoded.length === 0) throw new Error("No slice has audio.");
  return joinPeaks(decoded, PEAKS);
}

/** Joins the peaks of consecutive slices, each in proportion to its length. */
export function joinPeaks(slices: { length: number; channels: number[][] }[], count: number): number[][] {
  const [first] = slices;
  if (slices.length <= 1) return first?.channels ?? [];
  const total = slices.reduce((sum, { length }) => sum + length, 0);
  return (first?.channels ?? []).map((_, channel) =>
    slices.flatMap(({ length, channels }) =>
      findPeaks(channels[channel] ?? channels[0] ?? [], Math.max(1, Math.round((length * count) / total))),
    ),
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
