import { describe, expect, test } from "vitest";
import { isMeasurable, measurePeaks } from "../../src/audio/decoders/measure.ts";
import { PeakMeter } from "../../src/audio/decoders/peaks.ts";
import { type Audio, inspectFile } from "../../src/audio/inspect.ts";
import { noise, reader } from "../audio/build.ts";
import { NUMBERS, notes, referencePeaks } from "../audio/notes/notes.ts";
import { sample, samples } from "../audio/samples.ts";
import { MEBIBYTE } from "../support/bytes.ts";

const PARTS = 40;

async function measure(bytes: Uint8Array, facts?: Partial<Audio>) {
  const { read } = reader(bytes);
  const { audio } = await inspectFile(read, bytes.length);
  return measurePeaks(read, bytes.length, { ...audio!, ...facts });
}

/** The loudest of the peaks in each part, in any channel. */
const barsOf = (channels: number[][]): number[] =>
  Array.from({ length: PARTS }, (_, part) => {
    const [start, end] = [part, part + 1].map((at) => Math.floor((at * channels[0]!.length) / PARTS));
    return Math.max(...channels.flatMap((peaks) => peaks.slice(start, end).map(Math.abs)));
  });

/** Compares with the samples of another decoder. */
function compare(channels: number[][] | null, reference: number[]) {
  const errors = barsOf(channels!).map((bar, part) => Math.abs(bar - reference[part]!));
  return { max: Math.max(...errors), mean: errors.reduce((sum, error) => sum + error) / PARTS };
}

describe("The waveform", () => {
  test.each([
    ["notes.wav", 0.001],
    ["notes.flac", 0.002],
    ["notes.oga", 0.006],
    ["notes.mp3", 0.001],
    ["notes.mp2", 0.001],
    // The end of the last packet, and sound decoded before the start, move the sound by a few milliseconds.
    ["notes.ogg", 0.08],
    ["notes.opus", 0.08],
    ["notes.webm", 0.08],
  ])("of %s is that of ffmpeg within %d of full scale", async (file, maxError) => {
    const channels = await measure(notes(file));
    expect(channels!.map(({ length }) => length)).toEqual([1000, 1000]);
    const { max, mean } = compare(channels, referencePeaks[file]!);
    expect(max).toBeLessThan(maxError);
    expect(mean).toBeLessThan(Math.max(maxError / 8, 0.0005));
  });

  test.each(NUMBERS)("of a %s is that of 16 bits", async (name, make) => {
    const rounding = /8 bits|law/.test(name) ? 0.02 : 0.001;
    expect(compare(await measure(make()), referencePeaks["notes.wav"]!).max).toBeLessThan(rounding);
  });

  test.each(samples.filter(({ audio }) => audio !== null))(
    "is measured of $file if it can be",
    async ({ file, bytes, audio }) => {
      const isDecoded = /MPEG 1 Layer|FLAC|PCM|Vorbis|Opus/i.test(audio!.codec) && !/\.(mp4|wv)$/.test(file);
      const channels = await measure(bytes);
      expect(channels !== null).toBe(isDecoded);
      if (channels) expect(Math.max(...channels.flat().map(Math.abs))).toBeGreaterThan(0.2);
    },
  );

  test("is found behind a tag, and of a mono file has one channel", async () => {
    expect(await measure(sample("tone-vbr.mp3").bytes)).toHaveLength(1);
  });

  test("of more than two channels is one, the loudest", () => {
    const meter = new PeakMeter(6);
    meter.add([0, 0, 0.25, -0.5, 0, 0].map((peak) => new Float32Array(16_000).fill(peak)));
    expect(meter.finish(16)).toEqual([Array(16).fill(-0.5)]);
  });

  test("of any length has a peak for each part", () => {
    for (const length of [1, 15, 16, 17, 1000, 65_536 * 16 + 5, 10_000_000]) {
      const meter = new PeakMeter(1);
      for (let at = 0; at < length; at += 100_000) {
        const part = Float32Array.from({ length: Math.min(100_000, length - at) }, (_, i) => (at + i) / length);
        meter.add([part]);
      }
      const [peaks] = meter.finish(100);
      expect(peaks).toHaveLength(100);
      if (length < 1000) continue;
      for (const [part, peak] of peaks!.entries())
        expect(Math.abs(peak - (part + 1) / 100), `${length}`).toBeLessThan(0.02);
    }
  });
});

describe("A hostile file", () => {
  const files = [
    "notes.wav",
    "notes.flac",
    "notes.oga",
    "notes.mp3",
    "notes.mp2",
    "notes.ogg",
    "notes.opus",
    "notes.webm",
  ];
  /** The facts of the undamaged file. */
  const factsOf = async (file: string) => {
    const bytes = notes(file);
    return (await inspectFile(reader(bytes).read, bytes.length)).audio!;
  };
  const flipped = (bytes: Uint8Array) => {
    const copy = bytes.slice();
    for (const [i, at] of [...new Uint16Array(noise(200).buffer)].entries()) {
      copy[100 + ((at * 7) % (copy.length - 100))]! ^= 1 << (i % 8);
    }
    return copy;
  };

  test.each(
    files.flatMap((file): [string, string, (bytes: Uint8Array) => Uint8Array][] => [
      [file, "with a random tail", (bytes) => Uint8Array.from([...bytes.subarray(0, 4500), ...noise(400_000)])],
      [
        file,
        "with a tail of ones",
        (bytes) => Uint8Array.from([...bytes.subarray(0, 4500), ...Array(400_000).fill(255)]),
      ],
      [file, "with flipped bits", flipped],
      [file, "that is cut", (bytes) => bytes.slice(0, bytes.length * 0.6)],
      [file, "without its end", (bytes) => bytes.slice(0, -100)],
      [file, "of zeros", (bytes) => new Uint8Array(bytes.length)],
    ]),
  )("such as %s %s has no waveform, or a valid one", async (file, _, damage) => {
    const bytes = damage(notes(file));
    const channels = await measurePeaks(reader(bytes).read, bytes.length, await factsOf(file));
    for (const peak of channels?.flat() ?? []) expect(Math.abs(peak)).toBeLessThanOrEqual(1);
  });

  test.each(files)("such as the first half of %s has no waveform, which would be stretched", async (file) => {
    const bytes = notes(file);
    const half = bytes.slice(0, bytes.length / 2);
    expect(await measurePeaks(reader(half).read, half.length, await factsOf(file))).toBeNull();
  });
});

describe("The work", () => {
  const hours = (count: number, facts: Partial<Audio> = {}) => ({
    ...{ container: "MPEG", codec: "MPEG 1 Layer 3", durationSeconds: count * 3600, sampleRate: 44_100, channels: 2 },
    ...facts,
  });

  test.each([
    ["seven hours of MP3", hours(6.9), true],
    ["eight hours of MP3", hours(8), false],
    ["twelve hours of mono", hours(12, { channels: 1 }), true],
    ["nine channels", hours(1, { channels: 9 }), false],
    [
      "four hours of Opus, whatever rate it states",
      hours(3.8, { container: "Ogg", codec: "Opus", sampleRate: 8000 }),
      true,
    ],
    ["five hours of Opus", hours(5, { container: "Ogg", codec: "Opus", sampleRate: 8000 }), false],
    ["AAC", hours(1, { container: "M4A/isom", codec: "MPEG-4/AAC" }), false],
  ])("of %s is %#", (_, audio, isWithin) => {
    expect(isMeasurable(audio, 1e8)).toBe(isWithin);
    expect(isMeasurable(audio, 2e9 + 1)).toBe(false);
  });

  test("of silence is charged by its samples, of which a few bytes are seconds", async () => {
    const facts = { container: "FLAC", codec: "FLAC", durationSeconds: null, sampleRate: 44_100, channels: 8 };
    const bytes = silence(40);
    // Two hours of it would have 165 KB.
    expect(bytes.length).toBeLessThan(1500);
    const { read } = reader(bytes);
    const work = 40 * SILENT_FRAME_SAMPLES * 8 * 60;
    expect(await measurePeaks(read, bytes.length, facts, 0.9 * work)).toBeNull();
    expect(await measurePeaks(read, bytes.length, facts, 1.1 * work)).toEqual([Array(1000).fill(0)]);
  });

  test("of bytes without sound is charged by the byte", async () => {
    const facts = {
      container: "MPEG",
      codec: "MPEG 1 Layer 3",
      durationSeconds: null,
      sampleRate: 44_100,
      channels: 2,
    };
    let total = 0;
    const read = async (_: number, length: number) => {
      total += length;
      return new Uint8Array(length);
    };
    expect(await measurePeaks(read, 2e9, facts, 1e9)).toBeNull();
    expect(total).toBeGreaterThan(1e6);
    expect(total).toBeLessThan(1e9 / 250 + 2 * MEBIBYTE);
  });

  test("that can't be read fails with the error of the reader", async () => {
    const bytes = notes("notes.mp3");
    const { audio } = await inspectFile(reader(bytes).read, bytes.length);
    const error = new Error("R2 is down");
    const failing = async () => {
      throw error;
    };
    await expect(measurePeaks(failing, bytes.length, audio!)).rejects.toBe(error);
  });
});

const SILENT_FRAME_SAMPLES = 65_535;

function crc(bytes: number[], width: 8 | 16, polynomial: number): number {
  let sum = 0;
  for (const b of bytes) {
    sum ^= b << (width - 8);
    for (let bit = 0; bit < 8; bit++) sum = (sum << 1) ^ (sum >> (width - 1) === 0 ? 0 : polynomial | (1 << width));
  }
  return sum;
}

/** A FLAC of frames of eight silent channels (RFC 9639). A frame of 36 bytes is a second and a half. */
function silence(frames: number): Uint8Array {
  const info = [0x80, 0, 0, 34, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0x0a, 0xc4, 0x4e, 0xf0, ...Array(20).fill(0)];
  const all = Array.from({ length: frames }, (_, number) => {
    const header = [0xff, 0xf8, 0x79, 0x78, number, 0xff, 0xfe];
    const frame = [...header, crc(header, 8, 0x07), ...Array<number>(8 * 3).fill(0)];
    const sum = crc(frame, 16, 0x8005);
    return [...frame, sum >> 8, sum & 255];
  });
  return Uint8Array.from([0x66, 0x4c, 0x61, 0x43, ...info, ...all.flat()]);
}
