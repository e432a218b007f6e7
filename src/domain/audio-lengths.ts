import { byte, FIRST_WINDOW_BYTES, latin1, MAX_WINDOW_BYTES, type Source, UnreadableAudio, uint } from "./bytes.ts";

/*
 * How long a recording plays, and whether there is any, for the formats of which music-metadata tells that wrongly or
 * not at all: MPEG and ADTS frames, FLAC, Ogg, and the WebM that browsers record.
 */

/** A FLAC is its STREAMINFO, more blocks, and then a frame; the parser looks no further than the blocks. */
export async function checkFlac(source: Source, from: number): Promise<void> {
  let at = from + 4;
  for (let isLast = false, isFirst = true; !isLast; isFirst = false) {
    const block = await source.upTo(at, 4);
    if (block.length < 4 || (isFirst && (byte(block, 0) & 127) !== 0)) break;
    isLast = byte(block, 0) >= 128;
    if ((byte(block, 0) & 127) === 4) await checkComments(source, at + 4);
    at += 4 + uint(block.subarray(1));
  }
  const sync = await source.upTo(at, 2);
  if (byte(sync, 0) !== 0xff || (byte(sync, 1) & 0xfe) !== 0xf8)
    throw new UnreadableAudio("The file has no FLAC frames.");
}

/** The parser makes room for as many comments as the file says there are, and compares each with all before it. */
const MAX_COMMENTS = 1000;

/** Vorbis comments, in FLAC and Ogg: the vendor's name, a count, the comments. */
async function checkComments(source: Source, at: number): Promise<void> {
  const vendorBytes = uint((await source.upTo(at, 4)).toReversed());
  const count = uint((await source.upTo(at + 4 + vendorBytes, 4)).toReversed());
  if (count > MAX_COMMENTS) throw new UnreadableAudio("The file has too many comments.");
}

/** The comments of an Ogg stream begin its second packet, at the start of a page. */
export async function checkOgg(source: Source): Promise<void> {
  const head = latin1(await source.upTo(0, FIRST_WINDOW_BYTES));
  for (const magic of ["OpusTags", "\x03vorbis"]) {
    for (let at = head.indexOf(magic); at >= 0; at = head.indexOf(magic, at + 1)) {
      await checkComments(source, at + magic.length);
    }
  }
}

/** What an ID3v2 tag may hold beside its pictures. Of values in their tens of thousands the parser takes minutes. */
const MAX_ID3_TEXT_BYTES = 64 * 1024;
const MAX_ID3_FRAMES = 1000;

/** Whether the ID3v2 tag at the start, `length` bytes long, is one that the parser had better not see. */
export async function isOverfull(source: Source, length: number): Promise<boolean> {
  const isOld = byte(await source.upTo(3, 1), 0) === 2; // ID3v2.2 has shorter frame headers
  const isSynchsafe = byte(await source.upTo(3, 1), 0) === 4;
  let textBytes = 0;
  let frames = 0;
  for (let at = 10; at + 10 < length; frames++) {
    const header = await source.upTo(at, 10);
    const name = latin1(header.subarray(0, isOld ? 3 : 4));
    if (!/^[A-Z0-9]+$/.test(name)) break;
    const size = isOld ? uint(header.subarray(3, 6)) : uint(header.subarray(4, 8), isSynchsafe ? 128 : 256);
    at += size + (isOld ? 6 : 10);
    if (name !== "APIC" && name !== "PIC") textBytes += size;
    if (textBytes > MAX_ID3_TEXT_BYTES || frames > MAX_ID3_FRAMES) return true;
  }
  return false;
}

interface Frame {
  bytes: number;
  seconds: number;
  /** Equal in all frames of one stream. */
  family: number;
}

const BITRATES_KBPS = {
  v1l1: [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
  v1l2: [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
  v1l3: [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  v2l1: [32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
  v2l23: [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
};
const MPEG_RATES_HZ = [44100, 48000, 32000];
const ADTS_RATES_HZ = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];
const FRAME_HEADER_BYTES = 7;
/** An ADTS frame's length has 13 bits; MPEG's frames are smaller. */
const MAX_FRAME_BYTES = 8191;
/** How far behind the tag the first frame may be: players skip padding and junk, but not for ever. */
const MAX_JUNK_BYTES = 256 * 1024;

/** The frame whose header is at `at`, MPEG audio (layers 1 to 3) or ADTS; null where there is none. */
function frameAt(bytes: Uint8Array, at: number): Frame | null {
  if (byte(bytes, at) !== 0xff || at + FRAME_HEADER_BYTES > bytes.length) return null;
  const b1 = byte(bytes, at + 1);
  const b2 = byte(bytes, at + 2);
  if (b1 < 0xe0) return null;
  const version = (b1 >> 3) & 3;
  const layer = 4 - ((b1 >> 1) & 3);
  if (layer === 4) {
    const rate = ADTS_RATES_HZ[(b2 >> 2) & 15];
    const length = ((byte(bytes, at + 3) & 3) << 11) | (byte(bytes, at + 4) << 3) | (byte(bytes, at + 5) >> 5);
    if ((b1 & 0xf6) !== 0xf0 || rate === undefined || length < FRAME_HEADER_BYTES) return null;
    return { bytes: length, seconds: (1024 * ((byte(bytes, at + 6) & 3) + 1)) / rate, family: rate };
  }
  const table = version === 3 ? (`v1l${layer}` as "v1l1" | "v1l2" | "v1l3") : layer === 1 ? "v2l1" : "v2l23";
  const bitsPerSecond = (BITRATES_KBPS[table][(b2 >> 4) - 1] ?? 0) * 1000;
  const rate = (MPEG_RATES_HZ[(b2 >> 2) & 3] ?? 0) / (version === 3 ? 1 : version === 2 ? 2 : 4);
  if (version === 1 || bitsPerSecond === 0 || rate === 0) return null;
  const samples = layer === 1 ? 384 : layer === 3 && version !== 3 ? 576 : 1152;
  const slotBytes = layer === 1 ? 4 : 1;
  const slots = Math.floor(((samples / 8 / slotBytes) * bitsPerSecond) / rate) + ((b2 >> 1) & 1);
  return { bytes: slots * slotBytes, seconds: samples / rate, family: rate * 8 + layer };
}

/** Whether `links` frames of one family follow one another from `at`, or fewer that fill the bytes to their end. */
function isChain(bytes: Uint8Array, at: number, family: number, links: number): boolean {
  if (links === 0 || at === bytes.length) return true;
  const frame = frameAt(bytes, at);
  return frame?.family === family && isChain(bytes, at + frame.bytes, family, links - 1);
}

/**
 * How long a run of MPEG or ADTS frames plays: from the Xing header when there is one, else by walking every frame.
 * The parser takes four frames of one bit rate for a constant one and rounds; over an hour that is seconds off.
 */
export async function countFrames(source: Source, from: number): Promise<{ seconds: number }> {
  let seconds = 0;
  let family: number | undefined;
  let inStep = false;
  for (let position = from; position + FRAME_HEADER_BYTES <= source.size; ) {
    const bytes = await source.upTo(position, family === undefined ? FIRST_WINDOW_BYTES : MAX_WINDOW_BYTES);
    const isLast = position + bytes.length === source.size;
    const stop = isLast ? bytes.length - FRAME_HEADER_BYTES + 1 : bytes.length - 4 * MAX_FRAME_BYTES;
    let at = 0;
    while (at < stop) {
      const frame = frameAt(bytes, at);
      const fits = frame && (family === undefined || family === frame.family);
      if (!fits || !(inStep || isChain(bytes, at, frame.family, 3))) {
        inStep = false;
        const next = bytes.indexOf(0xff, at + 1);
        at = next < 0 ? stop : next;
        continue;
      }
      if (family === undefined) {
        const stated = xingFrames(bytes.subarray(at, at + frame.bytes));
        if (stated > 0 && stated < source.size) return { seconds: stated * frame.seconds };
      }
      family = frame.family;
      inStep = true;
      seconds += frame.seconds;
      at += frame.bytes;
    }
    position += at;
    if (family === undefined && position - from > MAX_JUNK_BYTES) break;
  }
  if (family === undefined) throw new UnreadableAudio("The file has no audio frames.");
  return { seconds };
}

/** The number of frames that a Xing or Info header in the first frame states; 0 when it states none. */
function xingFrames(frame: Uint8Array): number {
  const at = latin1(frame.subarray(0, 48)).search(/Xing|Info/);
  return at > 0 && (byte(frame, at + 7) & 1) === 1 ? uint(frame.subarray(at + 8, at + 12)) : 0;
}

/** Two pages of Ogg at their longest, so that one is whole. */
const OGG_TAIL_BYTES = 2 * 65_307;

/** The last granule position is the length in samples, so that the tail of the file tells it. */
export async function oggSeconds(
  source: Source,
  codec: string | undefined,
  sampleRate: number,
): Promise<number | null> {
  const serial = latin1(await source.upTo(14, 4));
  const head = await source.upTo(0, 64);
  const isOpus = codec === "Opus";
  const preSkip = isOpus ? byte(head, 38) + byte(head, 39) * 256 : 0;
  const start = Math.max(0, source.size - OGG_TAIL_BYTES);
  const tail = await source.upTo(start, OGG_TAIL_BYTES);
  const text = latin1(tail);
  for (let at = text.lastIndexOf("OggS"); at >= 0; at = at === 0 ? -1 : text.lastIndexOf("OggS", at - 1)) {
    if (text.slice(at + 14, at + 18) !== serial) continue;
    const granule = uint(tail.slice(at + 6, at + 14).reverse());
    // All ones: no packet ends on this page.
    if (Number.isSafeInteger(granule)) return Math.max(0, granule - preSkip) / (isOpus ? 48_000 : sampleRate);
  }
  return null;
}

const EBML = {
  segment: 0x18538067,
  info: 0x1549a966,
  timestampScale: 0x2ad7b1,
  cluster: 0x1f43b675,
  timestamp: 0xe7,
  blockGroup: 0xa0,
  block: 0xa1,
  simpleBlock: 0xa3,
};
/** How many places that look like the last cluster are tried: the mark may stand in a recording by chance. */
const MAX_CLUSTER_MARKS = 64;
const EBML_CONTAINERS = new Set([EBML.segment, EBML.info, EBML.cluster, EBML.blockGroup]);

/**
 * Where the clusters of a Matroska or WebM file begin, and the time of its last block.
 *
 * What MediaRecorder writes has no duration and clusters of unknown size, on which the parser fails. So the parser is
 * shown the file up to its first cluster, and the end is read here.
 */
export async function readMatroska(
  source: Source,
): Promise<{ firstCluster: number; lastSeconds(): Promise<number | null> }> {
  let firstCluster = source.size;
  let nanosecondsPerTick = 1_000_000;
  for await (const element of elements(source, 0)) {
    if (element.id === EBML.timestampScale && element.length <= 8)
      nanosecondsPerTick = uint(await source.upTo(element.data, element.length));
    if (element.id === EBML.cluster) {
      firstCluster = element.start;
      break;
    }
  }
  return {
    firstCluster,
    async lastSeconds() {
      const tailStart = Math.max(firstCluster, source.size - MAX_WINDOW_BYTES);
      const tail = latin1(await source.upTo(tailStart, MAX_WINDOW_BYTES));
      const mark = "\x1f\x43\xb6\x75";
      let tries = 0;
      for (let at = tail.lastIndexOf(mark); at >= 0; at = at === 0 ? -1 : tail.lastIndexOf(mark, at - 1)) {
        if (++tries > MAX_CLUSTER_MARKS) return null;
        const ticks = await endOfCluster(source, tailStart + at);
        if (ticks !== null) return (ticks * nanosecondsPerTick) / 1e9;
      }
      return null;
    },
  };
}

/** The time in ticks at which the cluster's last block ends, taking it to be as long as the one before it. */
async function endOfCluster(source: Source, start: number): Promise<number | null> {
  let clusterTicks: number | null = null;
  const times: number[] = [];
  for await (const { id, data, length } of elements(source, start)) {
    // No integer of EBML is longer than 8 bytes.
    if (id === EBML.timestamp && length > 8) return null;
    if (id === EBML.timestamp) clusterTicks = uint(await source.upTo(data, length));
    if ((id === EBML.block || id === EBML.simpleBlock) && clusterTicks !== null) {
      // Track number (one byte below 127 tracks), then a signed 16-bit time relative to the cluster's.
      const relative = uint(await source.upTo(data + 1, 2));
      times.push(clusterTicks + (relative >= 0x8000 ? relative - 0x10000 : relative));
    }
  }
  const [last, before] = times.sort((a, b) => b - a);
  return last === undefined ? null : last + (before === undefined ? 0 : last - before);
}

/** The elements from `position` on, in order and flat: what is inside a container comes after it. */
async function* elements(source: Source, position: number) {
  for (let at = position; at < source.size; ) {
    const head = await source.upTo(at, 12);
    const idBytes = Math.clz32(byte(head, 0)) - 23;
    const sizeBytes = Math.clz32(byte(head, idBytes)) - 23;
    if (idBytes > 4 || sizeBytes > 8 || idBytes + sizeBytes > head.length) return;
    const id = uint(head.subarray(0, idBytes));
    const size = head.slice(idBytes, idBytes + sizeBytes);
    size[0] = byte(size, 0) & (0xff >> sizeBytes);
    const length = uint(size);
    const data = at + idBytes + sizeBytes;
    // A length of all ones is "unknown", which only a container may have; it is a huge number and ends the walk.
    yield { id, start: at, data, length };
    at = EBML_CONTAINERS.has(id) ? data : data + length;
  }
}
