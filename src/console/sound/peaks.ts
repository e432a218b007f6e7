const PEAKS = 1000;
const MIN_PEAKS = 16;
const MAX_CHANNELS = 2;
/** The lowest that browsers know: what is drawn needs no more. */
const HERTZ = 8000;
/** All of a file is decoded at its own rate before that is lowered: Chromium takes 8 bytes a sample, so 400 MB here. */
const MAX_SAMPLES = 50_000_000;
const MAX_BYTES = 200_000_000;

export interface Sound {
  durationSeconds: number | null;
  sampleRate: number | null;
  channels: number | null;
}

let last: Promise<unknown> = Promise.resolve();

/**
 * The peaks of one or two channels from -1 to 1, as wavesurfer's `exportPeaks` gives them. One file is decoded at a time.
 * @returns null where it is too long, and where the browser can't decode it
 */
export function peaksOf(file: Blob, { durationSeconds, sampleRate, channels }: Sound): Promise<number[][] | null> {
  const samples = (durationSeconds ?? Number.NaN) * (sampleRate ?? 48_000) * (channels ?? MAX_CHANNELS);
  if (!(samples <= MAX_SAMPLES && file.size <= MAX_BYTES)) return Promise.resolve(null);
  const peaks = last.then(() => decode(file)).catch(() => null);
  last = peaks;
  return peaks;
}

async function decode(file: Blob): Promise<number[][]> {
  const sound = await new OfflineAudioContext(1, 1, HERTZ).decodeAudioData(await file.arrayBuffer());
  const count = Math.max(MIN_PEAKS, Math.min(PEAKS, sound.length));
  return Array.from({ length: Math.min(MAX_CHANNELS, sound.numberOfChannels) }, (_, channel) =>
    highest(sound.getChannelData(channel), count),
  );
}

/** Of each of so many equal pieces, what is furthest from zero. */
function highest(samples: Float32Array, count: number): number[] {
  const place = (peak: number) => Math.ceil((peak * samples.length) / count);
  return Array.from({ length: count }, (_, peak) => {
    let furthest = 0;
    for (let at = place(peak); at < place(peak + 1); at++) {
      const sample = samples[at] ?? 0;
      if (Math.abs(sample) > Math.abs(furthest)) furthest = sample;
    }
    return Math.round(Math.max(-1, Math.min(1, furthest)) * 1000) / 1000;
  });
}
