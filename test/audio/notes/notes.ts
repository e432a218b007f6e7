import { patched, riffChunk, wav } from "../build.ts";
import peaks from "./peaks.json" with { type: "json" };

/** Six seconds of notes, words and drums in stereo, in every format that the service decodes. */
const urls = import.meta.glob<string>("./notes.*", { query: "?url&inline", import: "default", eager: true });

export function notes(file: string): Uint8Array<ArrayBuffer> {
  const base64 = urls[`./${file}`]?.split(",")[1];
  if (base64 === undefined) throw new Error(`no such file: ${file}`);
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/** By file, the peaks of the louder channel in 40 parts, of the samples that ffmpeg 7.0.2 decodes. */
export const referencePeaks: Record<string, number[]> = peaks;

const HEADER_BYTES = 44;

/** The samples of `notes.wav`, from -1 to 1, of both channels in turn. */
const samples = (): number[] => Array.from(new Int16Array(notes("notes.wav").buffer, HEADER_BYTES), (s) => s / 32_768);

type Write = (view: DataView, at: number, sample: number) => void;
const int = (bits: number, le: boolean): Write => {
  const value = (sample: number) => Math.round(sample * (2 ** (bits - 1) - 1));
  if (bits === 8) return (view, at, sample) => view.setInt8(at, value(sample));
  if (bits === 16) return (view, at, sample) => view.setInt16(at, value(sample), le);
  if (bits === 32) return (view, at, sample) => view.setInt32(at, value(sample), le);
  return (view, at, sample) => {
    const bytes = [value(sample) & 255, (value(sample) >> 8) & 255, (value(sample) >> 16) & 255];
    for (const [i, b] of (le ? bytes : bytes.reverse()).entries()) view.setUint8(at + i, b);
  };
};
/** The code whose value is nearest: there are 256. */
const companded = (expand: (code: number) => number): Write => {
  const values = Array.from({ length: 256 }, (_, code) => expand(code));
  return (view, at, sample) => {
    const errors = values.map((value) => Math.abs(value - sample));
    view.setUint8(at, errors.indexOf(Math.min(...errors)));
  };
};
/** ITU-T G.711, by its tables of segments. */
const mulaw = (code: number): number => {
  const segment = 7 - ((code >> 4) & 7);
  return (((code & 128) === 0 ? -1 : 1) * (33 * 2 ** segment - 33 + (15 - (code & 15)) * 2 ** (segment + 1))) / 8159;
};
const alaw = (code: number): number => {
  const plain = code ^ 0x55;
  const segment = (plain >> 4) & 7;
  const step = 2 ** Math.max(1, segment);
  const value = (segment === 0 ? 0 : 32 * 2 ** (segment - 1)) + (plain & 15) * step + step / 2;
  return ((plain & 128) === 0 ? -value : value) / 4096;
};

function encode(sampleBytes: number, write: Write, count = Number.POSITIVE_INFINITY): Uint8Array<ArrayBuffer> {
  const all = samples().slice(0, count);
  const view = new DataView(new ArrayBuffer(all.length * sampleBytes));
  for (const [i, sample] of all.entries()) write(view, i * sampleBytes, sample);
  return new Uint8Array(view.buffer);
}

function waveOf(code: number, sampleBytes: number, write: Write) {
  const format = new DataView(new ArrayBuffer(16));
  format.setUint16(0, code, true);
  format.setUint16(2, 2, true);
  format.setUint32(4, 8000, true);
  format.setUint32(8, 8000 * 2 * sampleBytes, true);
  format.setUint16(12, 2 * sampleBytes, true);
  format.setUint16(14, 8 * sampleBytes, true);
  return wav(riffChunk("fmt ", new Uint8Array(format.buffer)), riffChunk("data", encode(sampleBytes, write)));
}

const be32 = (value: number) => Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
const bytesOf = (text: string) => Uint8Array.from(text, (c) => c.charCodeAt(0));
const concat = (...parts: Uint8Array[]) => Uint8Array.from(parts.flatMap((part) => Array.from(part)));
const chunk = (name: string, body: Uint8Array) =>
  concat(bytesOf(name), be32(body.length), body, new Uint8Array(body.length % 2));

/** @param codec empty for AIFF, which has none */
function aiffOf(codec: string, sampleBytes: number, write: Write) {
  const data = encode(sampleBytes, write);
  // 8,000 Hz as an 80-bit float.
  const rate = Uint8Array.of(0x40, 0x0b, 0xfa, 0, 0, 0, 0, 0, 0, 0);
  const frames = data.length / sampleBytes / 2;
  const common = concat(Uint8Array.of(0, 2), be32(frames), Uint8Array.of(0, 8 * sampleBytes), rate);
  const type = codec === "" ? "AIFF" : "AIFC";
  const comm = codec === "" ? common : concat(common, bytesOf(codec), Uint8Array.of(0, 0));
  const body = concat(bytesOf(type), chunk("COMM", comm), chunk("SSND", concat(new Uint8Array(8), data)));
  return concat(bytesOf("FORM"), be32(body.length), body);
}

/** The same sound as numbers of other sizes. */
export const NUMBERS: [name: string, make: () => Uint8Array][] = [
  ["WAV of 8 bits", () => waveOf(1, 1, (view, at, sample) => view.setUint8(at, Math.round(sample * 127) + 128))],
  ["WAV of 24 bits", () => waveOf(1, 3, int(24, true))],
  ["WAV of 32 bits", () => waveOf(1, 4, int(32, true))],
  ["WAV of 32-bit floats", () => waveOf(3, 4, (view, at, sample) => view.setFloat32(at, sample, true))],
  ["WAV of 64-bit floats", () => waveOf(3, 8, (view, at, sample) => view.setFloat64(at, sample, true))],
  ["WAV of A-law", () => waveOf(6, 1, companded(alaw))],
  ["WAV of µ-law", () => waveOf(7, 1, companded(mulaw))],
  ["AIFF of 8 bits", () => aiffOf("", 1, int(8, false))],
  ["AIFF of 16 bits", () => aiffOf("", 2, int(16, false))],
  ["AIFF of 24 bits", () => aiffOf("", 3, int(24, false))],
  ["AIFF-C of little-endian numbers", () => aiffOf("sowt", 2, int(16, true))],
  ["AIFF-C of 32-bit floats", () => aiffOf("fl32", 4, (view, at, sample) => view.setFloat32(at, sample))],
];

/** `notes.wav` without its sound, which states this many bytes of it. */
export const emptyWave = (bytes: number): Uint8Array<ArrayBuffer> =>
  patched(notes("notes.wav").slice(0, HEADER_BYTES), 40, be32(bytes).reverse()) as Uint8Array<ArrayBuffer>;
