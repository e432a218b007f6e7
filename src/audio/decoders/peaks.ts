const MAX_BUCKETS = 65_536;
/** Enough that a short sound fills the buckets of a waveform. */
const FIRST_BUCKET_SAMPLES = 16;
/** A picture with more channels would be illegible. */
const MAX_CHANNELS = 2;

/** The one further from zero. */
const louder = (one: number, other: number): number => (Math.abs(other) > Math.abs(one) ? other : one);

/**
 * The peaks of a sound whose length is unknown. When its buckets are full, pairs of them are merged. More than two channels
 * become one.
 */
export class PeakMeter {
  /** The count for each channel. */
  samples = 0;
  readonly #channels: Float32Array[];
  readonly #open: number[];
  #bucketSamples = FIRST_BUCKET_SAMPLES;
  #openSamples = 0;
  #buckets = 0;

  constructor(channels: number) {
    const kept = channels > MAX_CHANNELS ? 1 : channels;
    this.#channels = Array.from({ length: kept }, () => new Float32Array(MAX_BUCKETS));
    this.#open = Array<number>(kept).fill(0);
  }

  /** Adds the samples of each channel. */
  add(sound: Float32Array[]): void {
    const length = sound[0]?.length ?? 0;
    for (let at = 0; at < length; ) {
      const end = Math.min(length, at + this.#bucketSamples - this.#openSamples);
      for (const [channel, samples] of sound.entries()) {
        let [high, low] = [0, 0];
        for (let i = at; i < end; i++) {
          const sample = samples[i] as number;
          if (sample > high) high = sample;
          else if (sample < low) low = sample;
        }
        const kept = channel % this.#channels.length;
        this.#open[kept] = louder(this.#open[kept] ?? 0, louder(high, low));
      }
      this.#openSamples += end - at;
      this.samples += end - at;
      at = end;
      if (this.#openSamples === this.#bucketSamples) this.#close();
    }
  }

  #close(): void {
    for (const [channel, buckets] of this.#channels.entries()) buckets[this.#buckets] = this.#open[channel] ?? 0;
    this.#open.fill(0);
    this.#openSamples = 0;
    if (++this.#buckets < MAX_BUCKETS) return;
    for (const buckets of this.#channels) {
      for (let i = 0; i < MAX_BUCKETS / 2; i++) {
        buckets[i] = louder(buckets[2 * i] as number, buckets[2 * i + 1] as number);
      }
    }
    this.#buckets = MAX_BUCKETS / 2;
    this.#bucketSamples *= 2;
  }

  /**
   * The peak of each of `count` equal parts, from -1 to 1, for each channel. Call it once, at the end.
   * @param gain multiplies the peaks
   */
  finish(count: number, gain = 1): number[][] {
    // The last bucket may be a part of one.
    const length = this.samples / this.#bucketSamples;
    if (this.#openSamples > 0) this.#close();
    const startOf = (part: number) => Math.floor((part * length) / count);
    return this.#channels.map((buckets) =>
      Array.from({ length: count }, (_, part) => {
        const start = startOf(part);
        const peak = buckets.subarray(start, Math.max(start + 1, startOf(part + 1))).reduce(louder, 0);
        return Math.max(-1, Math.min(1, peak * gain));
      }),
    );
  }
}
