import { type Bytes, be32, box, concat, join, le32, noise, oggPage, repeat, riffChunk, wav } from "./build.ts";

/*
 * Valid and nearly valid files that cost a decoder as much as possible for their size, for the samples that they have, or for a
 * single packet. Each is of one format, and names what makes it expensive.
 */

export interface WorstFile {
  name: string;
  bytes: Bytes;
  facts: { container: string; codec: string; sampleRate: number; channels: number };
  /** Whether its waveform is refused at once. */
  isRefused?: boolean;
}

/** Writes numbers of any width, the lowest bit first (Vorbis) or last (FLAC, MPEG). */
class Bits {
  readonly #bytes: number[] = [];
  readonly #isLowFirst: boolean;
  #length = 0;

  constructor(order: "low first" | "high first") {
    this.#isLowFirst = order === "low first";
  }

  put(value: number, width: number): this {
    for (let i = 0; i < width; i++, this.#length++) {
      const bit = Math.floor(value / 2 ** (this.#isLowFirst ? i : width - 1 - i)) & 1;
      const place = this.#length & 7;
      if (place === 0) this.#bytes.push(0);
      this.#bytes[this.#bytes.length - 1]! |= bit << (this.#isLowFirst ? place : 7 - place);
    }
    return this;
  }

  text(value: string): this {
    for (const letter of value) this.put(letter.charCodeAt(0), 8);
    return this;
  }

  get bytes(): Bytes {
    return Uint8Array.from(this.#bytes);
  }
}

/** Puts packets into pages, as many as fit. */
function ogg(headers: Bytes[], packets: Bytes[], packetSamples: number): Bytes {
  const pages = headers.map((header, index) => oggPage(7, index === 0 ? 2 : 0, 0, [header]));
  let [open, segments, granule] = [[] as Bytes[], 0, 0];
  const close = () => {
    granule += open.length * packetSamples;
    if (open.length > 0) pages.push(oggPage(7, 0, granule, open));
    [open, segments] = [[], 0];
  };
  for (const packet of packets) {
    const own = Math.floor(packet.length / 255) + 1;
    if (segments + own > 255) close();
    open.push(packet);
    segments += own;
  }
  close();
  return concat(pages);
}

/* Opus. */

const OPUS = { codec: "Opus", sampleRate: 48_000 };

export function opusHead(channels: number, mapping: number[] = []): Bytes {
  const family = mapping.length > 0 ? 1 : 0;
  return join("OpusHead", Uint8Array.of(1, channels, 0, 0), le32(48_000), Uint8Array.of(0, 0, family, ...mapping));
}

/** A packet of frames of random bytes, of these lengths (RFC 6716, 3.2.5). `isDelimited`: another packet follows in it. */
function opusPacket(configuration: number, isStereo: boolean, lengths: number[], seed = 1, isDelimited = false): Bytes {
  const stated = isDelimited ? lengths : lengths.slice(0, -1);
  const sizes = stated.flatMap((length) => {
    const low = 252 + (length & 3);
    return length < 252 ? [length] : [low, (length - low) / 4];
  });
  const toc = (configuration << 3) | (isStereo ? 4 : 0) | 3;
  const body = noise(
    lengths.reduce((sum, length) => sum + length, 0),
    seed,
  );
  return join(Uint8Array.of(toc, lengths.length | 0x80, ...sizes), body);
}

const opusOgg = (channels: number, packets: Bytes[], head = opusHead(channels)): Bytes =>
  ogg([head, join("OpusTags", new Uint8Array(8))], packets, 960);

function opusFile(name: string, channels: number, packets: Bytes[], head?: Bytes): WorstFile {
  return {
    name: `Opus, ${name}`,
    bytes: opusOgg(channels, packets, head),
    facts: { ...OPUS, container: "Ogg", channels },
  };
}

const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));

const CELT_SHORTEST = 24;
const CELT_LONG = 31;
const SILK_SHORT = 8;
const SILK_LONG = 11;
const HYBRID = 14;

const opusFiles = (): WorstFile[] => [
  opusFile(
    "where every other of 48 frames is lost",
    2,
    times(80, (seed) =>
      opusPacket(
        CELT_SHORTEST,
        true,
        times(48, (i) => (i % 2 ? 0 : 60)),
        seed + 1,
      ),
    ),
  ),
  opusFile(
    "where every other frame of speech is lost",
    2,
    times(100, (seed) =>
      opusPacket(
        SILK_SHORT,
        true,
        times(12, (i) => (i % 2 ? 0 : 60)),
        seed + 1,
      ),
    ),
  ),
  opusFile(
    "that changes between speech and music with each packet",
    2,
    times(1500, (i) => opusPacket(i % 2 ? SILK_SHORT : 28, i % 4 < 2, [60], i + 1)),
  ),
  opusFile(
    "that changes between bandwidths with each packet",
    2,
    times(1500, (i) => opusPacket(i % 2 ? 0 : HYBRID, i % 4 < 2, [60], i + 1)),
  ),
  opusFile(
    "of the shortest frames",
    2,
    times(150, (i) =>
      opusPacket(
        28,
        true,
        times(48, () => 40),
        i + 1,
      ),
    ),
  ),
  opusFile(
    "of the largest frames",
    2,
    times(150, (i) =>
      opusPacket(
        CELT_LONG,
        true,
        times(6, () => 1275),
        i + 1,
      ),
    ),
  ),
  opusFile(
    "of the largest frames of speech",
    2,
    times(150, (i) => opusPacket(SILK_LONG, true, [1275, 1275], i + 1)),
  ),
  opusFile(
    "of one channel whose packets have two",
    1,
    times(150, (i) =>
      opusPacket(
        CELT_LONG,
        true,
        times(6, () => 300),
        i + 1,
      ),
    ),
  ),
  opusFile(
    "of eight channels",
    8,
    times(60, (i) =>
      concat(
        times(5, (stream) =>
          opusPacket(
            CELT_SHORTEST,
            true,
            times(48, (n) => (n % 2 ? 0 : 20)),
            i + 1,
            stream < 4,
          ),
        ),
      ),
    ),
    opusHead(8, [5, 3, 0, 6, 1, 2, 3, 4, 5, 7]),
  ),
  {
    ...opusFile(
      "of one channel in 255 streams",
      1,
      times(20, (i) => concat(times(255, (stream) => opusPacket(CELT_LONG, false, [2], i + 1, stream < 254)))),
      opusHead(1, [255, 0, 0]),
    ),
    isRefused: true,
  },
  {
    ...opusFile(
      "of two coupled streams in one channel",
      1,
      [opusPacket(CELT_LONG, true, [60])],
      opusHead(1, [1, 1, 0]),
    ),
    isRefused: true,
  },
  {
    ...opusFile(
      "without a known mapping",
      2,
      [opusPacket(CELT_LONG, true, [60])],
      join(opusHead(2).subarray(0, 18), Uint8Array.of(255, 1, 1, 0, 1)),
    ),
    isRefused: true,
  },
  opusFile(
    "of packets with nothing but padding",
    2,
    times(4000, () => join(Uint8Array.of(0xfb, 0x41, 200, 0), new Uint8Array(200))),
  ),
  opusFile(
    "of empty packets",
    2,
    times(100_000, () => new Uint8Array()),
  ),
];

/* Vorbis. */

const VORBIS = { container: "Ogg", codec: "Vorbis I", sampleRate: 48_000 };

/** A number as a codebook states it: a mantissa, an exponent, a sign. */
function vorbisFloat(value: number): [mantissa: number, exponent: number, sign: number] {
  const exponent = value === 0 ? 0 : Math.floor(Math.log2(Math.abs(value))) - 20;
  return [Math.round(Math.abs(value) / 2 ** exponent), exponent + 788, value < 0 ? 1 : 0];
}

interface Book {
  dimensions: number;
  /** The bits of each code word. */
  lengths: number[];
  /** Two values, from which all vectors are made. */
  values?: [low: number, step: number];
}

interface Setup {
  books: Book[];
  floorType?: 0 | 1;
  /** A codebook for each stage. */
  stages?: number[];
  partition?: number;
  classBook?: number;
  residueType?: number;
  couplings?: number;
  channels?: number;
}

const vorbisHead = (channels: number, short: number, long: number): Bytes =>
  new Bits("low first")
    .put(1, 8)
    .text("vorbis")
    .put(0, 32)
    .put(channels, 8)
    .put(48_000, 32)
    .put(0, 32)
    .put(0, 32)
    .put(0, 32)
    .put(short, 4)
    .put(long, 4)
    .put(1, 8).bytes;
const vorbisComments = new Bits("low first").put(3, 8).text("vorbis").put(0, 32).put(0, 32).put(1, 8).bytes;

function vorbisSetup({
  books,
  floorType = 1,
  stages = [],
  partition = 4096,
  classBook = 0,
  residueType = 1,
  couplings = 0,
  channels = 2,
}: Setup): Bytes {
  const bits = new Bits("low first")
    .put(5, 8)
    .text("vorbis")
    .put(books.length - 1, 8);
  for (const { dimensions, lengths, values } of books) {
    bits.put(0x564342, 24).put(dimensions, 16).put(lengths.length, 24).put(0, 2);
    for (const length of lengths) bits.put(length - 1, 5);
    bits.put(values ? 1 : 0, 4);
    if (!values) continue;
    for (const value of values) {
      const [mantissa, exponent, sign] = vorbisFloat(value);
      bits.put(mantissa, 21).put(exponent, 10).put(sign, 1);
    }
    const perDimension = Math.floor(lengths.length ** (1 / dimensions) + 1e-9);
    bits.put(0, 4).put(0, 1);
    for (let i = 0; i < perDimension; i++) bits.put(i, 1);
  }
  bits.put(0, 6).put(0, 16).put(0, 6).put(floorType, 16);
  if (floorType === 0) bits.put(255, 8).put(48_000, 16).put(65_535, 16).put(1, 6).put(40, 8).put(0, 4).put(0, 8);
  // One partition of eight points, without a codebook.
  else bits.put(1, 5).put(0, 4).put(7, 3).put(0, 2).put(0, 8).put(0, 2).put(12, 4);
  if (floorType === 1) for (let point = 1; point <= 8; point++) bits.put(point * 400, 12);
  bits
    .put(0, 6)
    .put(residueType, 16)
    .put(0, 24)
    .put(65_536, 24)
    .put(partition - 1, 24)
    .put(0, 6)
    .put(classBook, 8);
  const cascade = 2 ** stages.length - 1;
  bits.put(cascade & 7, 3).put(cascade > 7 ? 1 : 0, 1);
  if (cascade > 7) bits.put(cascade >> 3, 5);
  for (const book of stages) bits.put(book, 8);
  bits
    .put(0, 6)
    .put(0, 16)
    .put(0, 1)
    .put(couplings > 0 ? 1 : 0, 1);
  const channelBits = 32 - Math.clz32(channels - 1);
  if (couplings > 0) bits.put(couplings - 1, 8);
  for (let i = 0; i < couplings; i++) bits.put(i % 2, channelBits).put((i + 1) % 2, channelBits);
  bits.put(0, 2).put(0, 24);
  return bits.put(0, 6).put(1, 1).put(0, 32).put(0, 8).put(1, 1).bytes;
}

/** @param payload the bits of a packet behind those of its floors */
function vorbisFile(
  name: string,
  setup: Setup,
  packets: number,
  payload: Bytes = new Uint8Array(),
  block = 13,
): WorstFile {
  const channels = setup.channels ?? 2;
  const headers = [vorbisHead(channels, 6, block), vorbisComments, vorbisSetup({ ...setup, channels })];
  const bits = new Bits("low first").put(0, 1).put(3, 2);
  // Each channel has a floor of full height.
  for (let channel = 0; channel < channels; channel++) {
    bits.put(1, 1);
    if (setup.floorType !== 0) bits.put(255, 8).put(255, 8);
    else bits.put(1, 1).put(0, 1).put(0, 1);
  }
  for (const byte of payload) bits.put(byte, 8);
  const bytes = ogg(headers, Array<Bytes>(packets).fill(bits.bytes), 2 ** block / 2);
  return { name: `Vorbis, ${name}`, bytes, facts: { ...VORBIS, channels } };
}

/** A codebook whose only class is chosen by every bit. */
const CLASSES: Book = { dimensions: 1, lengths: [1, 1] };
const SINGLE: Book = { dimensions: 1, lengths: [1, 1], values: [-1, 2] };
const WIDE: Book = { dimensions: 4096, lengths: [1, 1], values: [-1, 2] };
const LONG: Book = { dimensions: 1, lengths: times(4096, () => 12), values: [-1, 0.001] };
const ALL_STAGES = Array<number>(8).fill(1);

const vorbisFiles = (): WorstFile[] => [
  vorbisFile("of silence in eight channels", { books: [CLASSES], channels: 8 }, 60),
  vorbisFile("with 256 couplings", { books: [CLASSES, WIDE], stages: [1], couplings: 256 }, 60, new Uint8Array(64)),
  vorbisFile(
    "with eight tables for each value",
    { books: [CLASSES, WIDE], stages: ALL_STAGES, channels: 8 },
    60,
    new Uint8Array(64),
  ),
  vorbisFile(
    "with eight code words for each value",
    { books: [CLASSES, SINGLE], stages: ALL_STAGES, partition: 1 },
    40,
    noise(12_000),
  ),
  vorbisFile(
    "with eight long code words for each value",
    { books: [CLASSES, LONG], stages: ALL_STAGES, partition: 1 },
    30,
    noise(60_000),
  ),
  vorbisFile(
    "with interleaved code words",
    { books: [CLASSES, SINGLE], stages: ALL_STAGES, partition: 2, residueType: 2 },
    40,
    noise(12_000),
  ),
  vorbisFile(
    "of the shortest blocks",
    { books: [CLASSES, SINGLE], stages: ALL_STAGES, partition: 1 },
    20_000,
    noise(64),
    6,
  ),
  {
    ...vorbisFile(
      "with values near zero",
      { books: [CLASSES, { ...WIDE, values: [-1e-34, 2e-34] }], stages: [1] },
      40,
      new Uint8Array(64),
    ),
    isRefused: true,
  },
  {
    ...vorbisFile(
      "with a floor of type 0",
      { books: [{ dimensions: 255, lengths: [1, 1], values: [3.14, 0.0001] }], floorType: 0, channels: 8 },
      20,
    ),
    isRefused: true,
  },
  {
    ...vorbisFile(
      "with a codebook of many values",
      { books: [CLASSES, { ...WIDE, lengths: times(200, () => 8) }], stages: [1] },
      2,
    ),
    isRefused: true,
  },
  { ...vorbisFile("with many codebooks", { books: [CLASSES, ...times(200, () => LONG)] }, 2), isRefused: true },
];

/* FLAC. */

function crc(bytes: Bytes, width: 8 | 16, polynomial: number): number {
  let sum = 0;
  for (const b of bytes) {
    sum ^= b << (width - 8);
    for (let bit = 0; bit < 8; bit++) sum = (sum << 1) ^ (sum >> (width - 1) === 0 ? 0 : polynomial | (1 << width));
  }
  return sum;
}

const WIDTH_CODES: Record<number, number> = { 8: 1, 12: 2, 16: 4, 20: 5, 24: 6, 32: 7 };

interface FlacShape {
  channels: number;
  samples: number;
  width: number;
}

/** Makes a frame whose number has one byte or more, like characters of UTF-8. @param write writes the subframe of a channel */
function flacFrame(number: number, { channels, samples, width }: FlacShape, write: (bits: Bits) => void): Bytes {
  const head = new Bits("high first")
    .put(0xfff8, 16)
    .put(7, 4)
    .put(0, 4)
    .put(channels - 1, 4)
    .put(WIDTH_CODES[width] ?? 0, 3)
    .put(0, 1);
  for (const byte of new TextEncoder().encode(String.fromCodePoint(number))) head.put(byte, 8);
  const header = head.put(samples - 1, 16).bytes;
  const bits = new Bits("high first");
  for (const byte of join(header, Uint8Array.of(crc(header, 8, 0x07)))) bits.put(byte, 8);
  for (let channel = 0; channel < channels; channel++) write(bits);
  const frame = bits.bytes;
  const sum = crc(frame, 16, 0x8005);
  return join(frame, Uint8Array.of(sum >> 8, sum & 255));
}

/** The start of a stream: "fLaC" and STREAMINFO. */
function flacStart({ channels, samples, width }: FlacShape): Bytes {
  const bits = new Bits("high first")
    .text("fLaC")
    .put(0x80, 8)
    .put(34, 24)
    .put(samples, 16)
    .put(samples, 16)
    .put(0, 24)
    .put(0, 24);
  bits
    .put(44_100, 20)
    .put(channels - 1, 3)
    .put(width - 1, 5)
    .put(0, 36);
  return join(bits.bytes, new Uint8Array(16));
}

/** A file of frames. The facts are those of `stated`, which the frames need not keep. */
export function flacFile(name: string, shape: FlacShape, frames: Bytes[], stated: FlacShape = shape): WorstFile {
  const facts = { container: "FLAC", codec: "FLAC", sampleRate: 44_100, channels: stated.channels };
  return { name: `FLAC, ${name}`, bytes: join(flacStart(stated), ...frames), facts };
}

/** A subframe of one value. */
const constant = (width: number) => (bits: Bits) => void bits.put(0, 8).put(0, width);
/** A subframe of 32 predictors, and residuals in Rice codes without a bit behind their unary part. */
const predicted =
  ({ samples, width }: FlacShape) =>
  (bits: Bits) => {
    bits.put(0x20 | 31, 7).put(0, 1);
    for (let i = 0; i < 32; i++) bits.put(i % 2, width);
    bits.put(14, 4).put(14, 5);
    for (let i = 0; i < 32; i++) bits.put(i % 2 ? 3 : 5, 15);
    bits.put(0, 2).put(0, 4).put(0, 4);
    for (let i = 32; i < samples; i++) bits.put(1, 1);
  };
/** A subframe of samples as they are. */
const verbatim =
  ({ samples, width }: FlacShape, value: (index: number) => number) =>
  (bits: Bits) => {
    bits.put(1, 7).put(0, 1);
    for (let i = 0; i < samples; i++) bits.put(value(i) + (value(i) < 0 ? 2 ** width : 0), width);
  };

/** FLAC in which every sample is a value of a ramp over all frames, from 0 to half of full scale. */
export function flacRamp(width: number): WorstFile {
  const shape = { channels: 1, samples: 1000, width };
  const frames = times(20, (number) =>
    flacFrame(
      number,
      shape,
      verbatim(shape, (i) => Math.round(((number * 1000 + i) / 20_000) * 2 ** (width - 2))),
    ),
  );
  return flacFile(`of ${width} bits`, shape, frames);
}

function flacFiles(): WorstFile[] {
  const silent = { channels: 8, samples: 65_535, width: 16 };
  const frame = flacFrame(1, { ...silent, width: 16 }, constant(16));
  const predictedShape = { channels: 8, samples: 4096, width: 24 };
  const frameOfMany = flacFrame(0, predictedShape, predicted(predictedShape));
  const renumbered = (number: number) => {
    const header = frameOfMany.slice();
    header[4] = number;
    header[7] = crc(header.subarray(0, 7), 8, 0x07);
    const sum = crc(header.subarray(0, -2), 16, 0x8005);
    header.set([sum >> 8, sum & 255], header.length - 2);
    return header;
  };
  return [
    flacFile(
      "of silence in eight channels",
      silent,
      times(40, (number) => flacFrame(number, silent, constant(16))),
    ),
    flacFile(
      "of silence in eight channels, that states one",
      silent,
      times(40, (number) => flacFrame(number, silent, constant(16))),
      { ...silent, channels: 1 },
    ),
    flacFile("of 32 predictors", predictedShape, times(40, renumbered)),
    flacFile("of bytes that look like frames", silent, [
      flacFrame(0, { channels: 1, samples: 16, width: 16 }, constant(16)),
      repeat(Uint8Array.of(0xff, 0xf8), 500_000),
    ]),
    flacFile("of frames within frames", silent, [
      flacFrame(0, { channels: 1, samples: 16, width: 16 }, constant(16)),
      repeat(frame, 200),
    ]),
    flacFile(
      "of frames with a wrong checksum",
      silent,
      times(40, (number) =>
        flacFrame(number, silent, constant(16)).map((b, i, all) => (i === all.length - 1 ? b ^ 1 : b)),
      ),
    ),
  ];
}

/* MPEG audio. */

/** Frames of one header, filled with noise. */
function mpegFile(
  name: string,
  header: number[],
  frameBytes: number,
  layer: string,
  {
    start = new Uint8Array(),
    bytes = 100_000,
    random = true,
  }: { start?: Bytes; bytes?: number; random?: boolean } = {},
): WorstFile {
  const body = random ? noise(bytes).map((b) => (b === 0xff ? 0 : b)) : new Uint8Array(bytes);
  for (let at = 0; at + frameBytes <= bytes; at += frameBytes) body.set(header, at);
  const facts = {
    container: "MPEG",
    codec: `MPEG ${layer}`,
    sampleRate: 44_100,
    channels: header[3]! >> 6 === 3 ? 1 : 2,
  };
  return { name: `MPEG audio, ${name}`, bytes: join(start, body), facts };
}

/** A frame that says that the sound has one frame, and how many samples to drop (LAME's tag). */
function gaplessFrame(header: number[], frameBytes: number): Bytes {
  const frame = new Uint8Array(frameBytes);
  frame.set(header);
  frame.set(
    join(
      "Info",
      be32(15),
      be32(1),
      be32(frameBytes),
      new Uint8Array(100),
      be32(0),
      "LAME3.100",
      new Uint8Array(12),
      Uint8Array.of(0xff, 0xff, 0xff),
    ),
    36,
  );
  return frame;
}

const mpegFiles = (): WorstFile[] => [
  mpegFile("of the shortest frames of layer 3", [0xff, 0xfb, 0x14, 0x00], 96, "1 Layer 3"),
  mpegFile("of the shortest frames of layer 3, version 2", [0xff, 0xf3, 0x14, 0x00], 24, "2 Layer 3"),
  mpegFile("of the shortest frames of layer 1", [0xff, 0xff, 0x14, 0x00], 32, "1 Layer 1"),
  mpegFile("of the shortest frames of layer 2, version 2", [0xff, 0xf5, 0x14, 0x00], 48, "2 Layer 2"),
  mpegFile("of the largest frames", [0xff, 0xfb, 0xe8, 0x00], 1440, "1 Layer 3"),
  mpegFile("without a bit rate", [0xff, 0xfb, 0x00, 0x00], 200, "1 Layer 3"),
  mpegFile("of short frames without a bit rate", [0xff, 0xfb, 0x00, 0x00], 48, "1 Layer 3"),
  mpegFile("of zeros", [0xff, 0xfb, 0x14, 0x00], 96, "1 Layer 3", { random: false }),
  mpegFile("of two channels behind a frame of one", [0xff, 0xfb, 0x14, 0x00], 96, "1 Layer 3", {
    start: (() => {
      const first = new Uint8Array(96);
      first.set([0xff, 0xfb, 0x14, 0xc0]);
      return first;
    })(),
  }),
  mpegFile("behind the end that it states", [0xff, 0xfb, 0x14, 0x00], 96, "1 Layer 3", {
    start: gaplessFrame([0xff, 0xfb, 0x90, 0x00], 417),
  }),
  mpegFile("without a frame", [0xff, 0xff, 0xff, 0xff], 4, "1 Layer 3"),
];

/* Numbers. */

const wave = (code: number, sampleBytes: number, channels: number, data: Bytes): Bytes => {
  const format = new DataView(new ArrayBuffer(16));
  for (const [at, value] of [
    [0, code],
    [2, channels],
    [12, channels * sampleBytes],
    [14, sampleBytes * 8],
  ] as const)
    format.setUint16(at, value, true);
  format.setUint32(4, 44_100, true);
  return wav(riffChunk("fmt ", new Uint8Array(format.buffer)), riffChunk("data", data));
};

const pcmFiles = (): WorstFile[] => [
  {
    name: "WAV, of bytes in eight channels",
    bytes: wave(1, 1, 8, noise(2_000_000)),
    facts: { container: "WAVE", codec: "PCM", sampleRate: 44_100, channels: 8 },
  },
  {
    name: "WAV, of the smallest floats",
    bytes: wave(3, 8, 1, repeat(Uint8Array.of(1, 2, 3, 0, 0, 0, 0, 0x37), 250_000)),
    facts: { container: "WAVE", codec: "IEEE_FLOAT", sampleRate: 44_100, channels: 1 },
  },
  {
    name: "WAV, of A-law",
    bytes: wave(6, 1, 2, noise(2_000_000)),
    facts: { container: "WAVE", codec: "ALAW", sampleRate: 44_100, channels: 2 },
  },
  {
    name: "AIFF, of 24 bits",
    bytes: (() => {
      const chunk = (name: string, body: Bytes) => join(name, be32(body.length), body);
      const common = Uint8Array.of(0, 2, 0, 5, 0, 0, 0, 24, 0x40, 0x0e, 0xac, 0x44, 0, 0, 0, 0, 0, 0);
      const body = join("AIFF", chunk("COMM", common), chunk("SSND", join(new Uint8Array(8), noise(2_000_000))));
      return join("FORM", be32(body.length), body);
    })(),
    facts: { container: "AIFF", codec: "PCM", sampleRate: 44_100, channels: 2 },
  },
];

/* Containers. */

const vint = (value: number): Bytes => join(Uint8Array.of(0x10 | (value >>> 24)), be32(value).subarray(1));
const element = (id: number[], ...parts: (Bytes | string)[]): Bytes => {
  const body = join(...parts);
  return join(Uint8Array.from(id), vint(body.length), body);
};

export const MATROSKA = {
  segment: [0x18, 0x53, 0x80, 0x67],
  tracks: [0x16, 0x54, 0xae, 0x6b],
  entry: [0xae],
  cluster: [0x1f, 0x43, 0xb6, 0x75],
};

/** A track of Matroska. @param type 2 is sound */
export const matroskaTrack = (number: number, type: number, head: Bytes): Bytes =>
  element(
    MATROSKA.entry,
    element([0xd7], Uint8Array.of(number)),
    element([0x83], Uint8Array.of(type)),
    element([0x86], type === 2 ? "A_OPUS" : "S_TEXT/UTF8"),
    element([0x63, 0xa2], head),
    element([0xe1], element([0x9f], Uint8Array.of(2)), element([0xb5], Uint8Array.of(0x47, 0x3b, 0x80, 0))),
  );

/** @param blocks the contents of simple blocks: track, time, flags, packets */
export const matroska = (tracks: Bytes[], blocks: Bytes[], others: Bytes = new Uint8Array()): Bytes =>
  join(
    element([0x1a, 0x45, 0xdf, 0xa3], element([0x42, 0x82], "webm")),
    element(
      MATROSKA.segment,
      element(MATROSKA.tracks, ...tracks),
      element(
        MATROSKA.cluster,
        element([0xe7], Uint8Array.of(0)),
        ...blocks.map((block) => element([0xa3], block)),
        others,
      ),
    ),
  );

const webmFile = (name: string, tracks: Bytes[], blocks: Bytes[], others?: Bytes): WorstFile => ({
  name: `WebM, ${name}`,
  bytes: matroska(tracks, blocks, others),
  facts: { ...OPUS, container: "EBML/webm", channels: 2 },
});

const matroskaFiles = (): WorstFile[] => {
  const track = [matroskaTrack(1, 2, opusHead(2))];
  const lost = opusPacket(
    CELT_SHORTEST,
    true,
    times(48, (i) => (i % 2 ? 0 : 2)),
  );
  return [
    webmFile(
      "of 256 packets in each block",
      track,
      times(3, () => join(Uint8Array.of(0x81, 0, 0, 4, 255), repeat(lost, 256))),
    ),
    webmFile(
      "of empty packets",
      track,
      times(2000, () => Uint8Array.of(0x81, 0, 0, 4, 255)),
    ),
    webmFile("of the smallest elements", track, [], repeat(Uint8Array.of(0xec, 0x80), 100_000)),
    webmFile(
      "of other tracks",
      track,
      times(50_000, () => Uint8Array.of(0x85, 0, 0, 0)),
    ),
    webmFile(
      "whose track has eight channels",
      [matroskaTrack(1, 2, opusHead(8, [5, 3, 0, 6, 1, 2, 3, 4, 5, 7]))],
      times(100, (i) =>
        join(
          Uint8Array.of(0x81, 0, 0, 0),
          concat(
            times(5, (stream) =>
              opusPacket(
                CELT_LONG,
                true,
                times(6, () => 200),
                i + 1,
                stream < 4,
              ),
            ),
          ),
        ),
      ),
    ),
  ];
};

/** Opus in MP4. @param sizes a table of packets, or one size for a count that need not be there */
export function opusMp4(
  packets: Bytes[],
  {
    sizes,
    fragments = [] as Bytes[],
    channels = 2,
    gain = 0,
    chunkCount = 1,
    chunkSamples = 0xffffffff,
  }: {
    sizes?: Bytes;
    fragments?: Bytes[];
    channels?: number;
    gain?: number;
    chunkCount?: number;
    chunkSamples?: number;
  } = {},
): Bytes {
  const specific = box("dOps", Uint8Array.of(0, channels, 0, 0), be32(48_000), Uint8Array.of(gain >> 8, gain & 255, 0));
  const entry = box(
    "Opus",
    new Uint8Array(16),
    Uint8Array.of(0, channels, 0, 16, 0, 0, 0, 0, 0xbb, 0x80, 0, 0),
    specific,
  );
  const table = sizes ?? join(be32(0), be32(packets.length), ...packets.map(({ length }) => be32(length)));
  const file = (soundAt: number) => {
    const tables = [
      box("stsd", be32(0), be32(1), entry),
      box("stts", be32(0), be32(1), be32(packets.length), be32(960)),
      box("stsz", be32(0), table),
      box("stsc", be32(0), be32(1), be32(1), be32(chunkSamples), be32(1)),
      box("stco", be32(0), be32(chunkCount), be32(soundAt)),
    ];
    const media = box(
      "mdia",
      box("mdhd", be32(0), be32(0), be32(0), be32(48_000), be32(packets.length * 960)),
      box("hdlr", be32(0), be32(0), "soun", new Uint8Array(12)),
      box("minf", box("stbl", ...tables)),
    );
    const movie = box(
      "moov",
      box("trak", box("tkhd", be32(0), be32(0), be32(0), be32(1)), media),
      box("mvex", box("trex", be32(0), be32(1), be32(1), be32(960), be32(0), be32(0))),
    );
    return join(box("ftyp", "isom", be32(0), "mp41"), movie, box("mdat", ...packets), ...fragments);
  };
  return file(indexOfSound(file(0)));
}

const indexOfSound = (file: Bytes): number => {
  const view = new DataView(file.buffer);
  let at = 0;
  while (String.fromCharCode(...file.subarray(at + 4, at + 8)) !== "mdat") at += view.getUint32(at);
  return at + 8;
};

/** A fragment of packets: their sizes in a table, and their bytes behind it. */
export function mp4Fragment(packets: Bytes[]): Bytes {
  const make = (offset: number) =>
    box(
      "moof",
      box(
        "traf",
        box("tfhd", be32(0x020000), be32(1)),
        box("tfdt", be32(0), be32(0)),
        box(
          "trun",
          be32(0x000301),
          be32(packets.length),
          be32(offset),
          ...packets.flatMap(({ length }) => [be32(960), be32(length)]),
        ),
      ),
    );
  return join(make(make(0).length + 8), box("mdat", ...packets));
}

const mp4Files = (): WorstFile[] => {
  const lost = opusPacket(
    CELT_SHORTEST,
    true,
    times(48, (i) => (i % 2 ? 0 : 2)),
  );
  const facts = { ...OPUS, container: "isom/mp41", channels: 2 };
  return [
    {
      name: "MP4, of four billion chunks without packets",
      bytes: opusMp4([new Uint8Array(1000)], { chunkCount: 0xffffffff, chunkSamples: 0 }),
      facts,
    },
    {
      name: "MP4, of four billion packets of a byte",
      bytes: opusMp4([new Uint8Array(1000)], { sizes: join(be32(1), be32(0xffffffff)) }),
      facts,
    },
    {
      name: "MP4, of four billion packets beyond the end",
      bytes: opusMp4([new Uint8Array(1000)], { sizes: join(be32(1_000_000), be32(0xffffffff)) }),
      facts,
    },
    {
      name: "MP4, of lost frames in fragments",
      bytes: opusMp4([], { fragments: times(4, () => mp4Fragment(times(30, () => lost))) }),
      facts,
    },
  ];
};

/** Ogg whose pages have no packet, a packet of nothing each, or bytes between them. */
const oggFiles = (): WorstFile[] => {
  const facts = { ...OPUS, container: "Ogg", channels: 2 };
  const start = [oggPage(7, 2, 0, [opusHead(2)]), oggPage(7, 0, 0, [join("OpusTags", new Uint8Array(8))])];
  const empty = oggPage(7, 0, 0, []);
  return [
    { name: "Ogg, of pages without a packet", bytes: concat([...start, repeat(empty, 30_000)]), facts },
    {
      name: "Ogg, of 255 empty packets in each page",
      bytes: concat([...start, repeat(oggPage(7, 0, 960, Array<Bytes>(255).fill(new Uint8Array())), 1000)]),
      facts,
    },
    { name: "Ogg, of a byte between pages", bytes: concat([...start, repeat(join(empty, "x"), 3000)]), facts },
    {
      name: "Ogg, of one packet that never ends",
      bytes: concat([
        ...start,
        repeat(
          oggPage(7, 1, -1 >>> 0, [new Uint8Array(255 * 255)])
            .map((b, i) => (i === 26 ? 255 : b))
            .slice(0, 27 + 255 + 255 * 255),
          60,
        ),
      ]),
      facts,
    },
    {
      name: "Ogg, of other streams",
      bytes: concat([...start, repeat(oggPage(8, 0, 0, [new Uint8Array(10)]), 20_000)]),
      facts,
    },
  ];
};

export const worstFiles = (): WorstFile[] => [
  ...opusFiles(),
  ...vorbisFiles(),
  ...flacFiles(),
  ...mpegFiles(),
  ...pcmFiles(),
  ...matroskaFiles(),
  ...mp4Files(),
  ...oggFiles(),
];
