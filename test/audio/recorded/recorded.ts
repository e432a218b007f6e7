import { readFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { type Bytes, be32, box, concat, join, le32, oggPage, patched, repeat } from "../build.ts";

/* Recordings as browsers stream them: those of Chrome and Firefox, and longer ones and those of Safari, made by hand. */

export const recorded = (name: string): Bytes => new Uint8Array(readFileSync(joinPath(import.meta.dirname, name)));

export const be64 = (value: number) => join(be32(Math.floor(value / 2 ** 32)), be32(value % 2 ** 32));
const id = (hex: string) => Uint8Array.from(hex.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));

/** Makes an EBML element with a size of eight bytes, or of an unknown size. */
export const element = (hex: string, body: Bytes, isUnknown = false): Bytes =>
  join(id(hex), isUnknown ? id("01ffffffffffffff") : join(Uint8Array.of(1, 0, 0, 0), be32(body.length)), body);

/** The header of the file and that of the segment of Chrome's recording, up to the first cluster. */
const CHROME_HEAD_BYTES = 146;
/** Chrome's packets are of 60 ms. In its recording, a header of three bytes precedes each, and then a track and a time. */
export const PACKET_MILLISECONDS = 60;

/** The packets in Chrome's recording, without the first ones, which are empty. */
export function opusPackets(): Bytes[] {
  const bytes = recorded("chrome.webm");
  const packets: Bytes[] = [];
  for (let at = bytes.indexOf(0xa3, CHROME_HEAD_BYTES); at < bytes.length; ) {
    const isShort = bytes[at + 1]! >= 0x80;
    const size = isShort ? bytes[at + 1]! & 0x7f : ((bytes[at + 1]! & 0x3f) << 8) | bytes[at + 2]!;
    const start = at + (isShort ? 2 : 3);
    if (size > 100) packets.push(bytes.slice(start + 4, start + size));
    at = bytes.indexOf(0xa3, start + size);
    // The next cluster has a header of 12 bytes, and a time.
    if (at < 0) break;
  }
  return packets;
}

export interface WebmOptions {
  seconds: number;
  clusterSeconds?: number;
  /** Whether clusters state their size, as those of Firefox. */
  isSized?: boolean;
  /** Whether blocks are in groups. */
  hasGroups?: boolean;
  /** Bytes of each packet. By default, they are Chrome's. */
  packetBytes?: number;
  /** The time of the first block. */
  startMilliseconds?: number;
}

/** Yields the head, and then each cluster. */
export function* webmClusters(options: WebmOptions): Generator<Bytes> {
  const { seconds, clusterSeconds = 10, isSized = false, hasGroups = false, packetBytes } = options;
  const { startMilliseconds = 0 } = options;
  const packets = packetBytes === undefined ? opusPackets() : [new Uint8Array(packetBytes).fill(1)];
  const count = Math.round((seconds * 1000) / PACKET_MILLISECONDS);
  const each = Math.round((clusterSeconds * 1000) / PACKET_MILLISECONDS);
  yield recorded("chrome.webm").slice(0, CHROME_HEAD_BYTES);
  for (let first = 0; first < count; first += each) {
    const blocks: Bytes[] = [element("e7", be32(startMilliseconds + first * PACKET_MILLISECONDS))];
    for (let at = first; at < Math.min(count, first + each); at++) {
      const ticks = (at - first) * PACKET_MILLISECONDS;
      const block = join(Uint8Array.of(0x81, ticks >> 8, ticks, 0x80), packets[at % packets.length]!);
      blocks.push(hasGroups ? element("a0", element("a1", block)) : element("a3", block));
    }
    yield element("1f43b675", concat(blocks), !isSized);
  }
}

export const webm = (options: WebmOptions) => concat([...webmClusters(options)]);

export interface Mp4Options {
  seconds: number;
  fragmentSeconds?: number;
  /** Where the duration of a sample is stated. */
  durations?: "trex" | "tfhd" | "trun";
  /** The samples that an edit list skips. */
  skipped?: number;
  /** The boxes before each fragment. */
  before?: Bytes;
  /** The flags of `tfhd` besides: 1 states where the samples are in the file. */
  headerFlags?: number;
  /** Whether the fragments state when they begin. */
  hasTimes?: boolean;
  sampleBytes?: number;
  /** The version of the boxes with durations. */
  version?: 0 | 1;
}

const SAMPLE_RATE = 48_000;
const FRAME_SAMPLES = 1024;
/** An AAC-LC decoder of one channel at 48,000 Hz. */
const ESDS = "00000000038080802200010004808080144015000000000000000000000000000580808002118806808080010200";

/** Yields the head of a fragmented MP4 as Safari streams it, and then each fragment. The samples are no AAC. */
export function* mp4Fragments(options: Mp4Options): Generator<Bytes> {
  const {
    seconds,
    fragmentSeconds = 10,
    durations = "trex",
    skipped,
    before = new Uint8Array(),
    version = 0,
  } = options;
  const { headerFlags = 0x20000, hasTimes = true, sampleBytes = 100 } = options;
  const wide = (value: number) => (version === 1 ? be64(value) : be32(value));
  const flags = Uint8Array.of(version, 0, 0, 0);
  const zeros = (length: number) => new Uint8Array(length);
  const mvhd = box("mvhd", flags, wide(0), wide(0), be32(600), wide(0), zeros(80));
  const tkhd = box("tkhd", flags, wide(0), wide(0), be32(7), be32(0), wide(0), zeros(60));
  const mdhd = box("mdhd", flags, wide(0), wide(0), be32(SAMPLE_RATE), wide(0), zeros(4));
  const hdlr = box("hdlr", zeros(8), "soun", zeros(13));
  const entry = join(zeros(6), Uint8Array.of(0, 1), zeros(8), Uint8Array.of(0, 1, 0, 16), zeros(4));
  const mp4a = box("mp4a", entry, be32(SAMPLE_RATE * 65536), box("esds", id(ESDS)));
  const stsd = box("stsd", zeros(4), be32(1), mp4a);
  const empty = ["stts", "stsc", "stco"].map((name) => box(name, zeros(8)));
  const stbl = box("stbl", stsd, ...empty, box("stsz", zeros(12)));
  const elst =
    skipped === undefined ? [] : [box("edts", box("elst", zeros(4), be32(1), be32(0), be32(skipped), be32(65536)))];
  const trak = box("trak", tkhd, ...elst, box("mdia", mdhd, hdlr, box("minf", stbl)));
  const trex = box("trex", zeros(4), be32(7), be32(1), be32(durations === "trex" ? FRAME_SAMPLES : 1), zeros(8));
  yield join(box("ftyp", "iso5", be32(0), "iso5"), box("moov", mvhd, trak, box("mvex", trex)));
  const count = Math.round((seconds * SAMPLE_RATE) / FRAME_SAMPLES);
  const each = Math.round((fragmentSeconds * SAMPLE_RATE) / FRAME_SAMPLES);
  for (let first = 0; first < count; first += each) {
    const samples = Math.min(each, count - first);
    const hasDefault = durations === "tfhd";
    const row = join(durations === "trun" ? be32(FRAME_SAMPLES) : zeros(0), be32(sampleBytes));
    const tfhd = box(
      "tfhd",
      be32(headerFlags | (hasDefault ? 8 : 0)),
      be32(7),
      headerFlags & 1 ? be64(0) : zeros(0),
      hasDefault ? be32(FRAME_SAMPLES) : zeros(0),
    );
    const tfdt = hasTimes ? [box("tfdt", be32(0x01000000), be64(first * FRAME_SAMPLES))] : [];
    const rows = (offset: number) =>
      box("trun", be32(0x201 | (durations === "trun" ? 0x100 : 0)), be32(samples), be32(offset), repeat(row, samples));
    const moof = (offset: number) =>
      box("moof", box("mfhd", zeros(4), be32(first + 1)), box("traf", tfhd, ...tfdt, rows(offset)));
    yield join(before, moof(moof(0).length + 8), box("mdat", new Uint8Array(samples * sampleBytes).fill(1)));
  }
}

export const mp4 = (options: Mp4Options) => concat([...mp4Fragments(options)]);

/** Where Chrome's MP4 has its first fragment, and a later one of 1.02 s, and in that the place of its time. */
const [FRAGMENTS_AT, FRAGMENT_AT, FRAGMENT_END, TIME_AT] = [641, 5584, 13_963, 64];
const FRAGMENT_SAMPLES = 17 * 2880;

/** Makes an MP4 as Chrome streams it. */
export function opusMp4(seconds: number): Bytes {
  const bytes = recorded("chrome.m4a");
  const fragment = bytes.slice(FRAGMENT_AT, FRAGMENT_END);
  const count = Math.round((seconds * SAMPLE_RATE) / FRAGMENT_SAMPLES);
  const fragments = Array.from({ length: count }, (_, at) => patched(fragment, TIME_AT, be64(at * FRAGMENT_SAMPLES)));
  return concat([bytes.slice(0, FRAGMENTS_AT), ...fragments]);
}

const CRC_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let sum = byte << 24;
  for (let bit = 0; bit < 8; bit++) sum = sum & 0x80000000 ? (sum << 1) ^ 0x04c11db7 : sum << 1;
  return sum;
});
const crc = (bytes: Bytes) => bytes.reduce((sum, byte) => (sum << 8) ^ CRC_TABLE[(sum >>> 24) ^ byte]!, 0) >>> 0;

/** Makes an Ogg as Firefox streams it: pages of about a second, each with its time. */
export function ogg(seconds: number): Bytes {
  const packets = opusPackets();
  const head = join("OpusHead", Uint8Array.of(1, 1, 0, 0), le32(SAMPLE_RATE), new Uint8Array(3));
  const pages = [oggPage(1, 2, 0, [head]), oggPage(1, 0, 0, [join("OpusTags", le32(0), le32(0))])];
  const count = Math.round((seconds * 1000) / PACKET_MILLISECONDS);
  const each = 16;
  for (let first = 0; first < count; first += each) {
    const until = Math.min(count, first + each);
    const sound = Array.from({ length: until - first }, (_, at) => packets[(first + at) % packets.length]!);
    pages.push(oggPage(1, until === count ? 4 : 0, until * PACKET_MILLISECONDS * (SAMPLE_RATE / 1000), sound));
  }
  return concat(
    pages.map((page, number) => {
      const numbered = patched(page, 18, le32(number));
      return patched(numbered, 22, le32(crc(numbered)));
    }),
  );
}
