import type { IAudioMetadata } from "music-metadata";

export const FILE_TYPES = [
  "audio file",
  "video file",
  "image file",
  "document file",
  "text file",
  "archive file",
  "other file",
] as const;
export type FileType = (typeof FILE_TYPES)[number];

/** What the bytes are: a MIME type without parameters, and its class. */
export interface Kind {
  mimeType: string;
  fileType: FileType;
}

/** What is known of a recording. `bitrate` is in bits a second, `sampleRate` in Hz; null is "not stated". */
export interface Audio {
  container: string | null;
  codec: string | null;
  durationSeconds: number | null;
  sampleRate: number | null;
  channels: number | null;
  bitrate: number | null;
  lossless: boolean | null;
  /** At most 15 entries, under 16 KiB of JSON together, well-formed Unicode without control characters. */
  tags: Record<string, string | number>;
}

/** Reads exactly `length` bytes from `offset`; never asked for bytes past the end. */
export type ReadRange = (offset: number, length: number) => Promise<Uint8Array>;

/** The bytes call themselves audio and can't be read as such. The message is short and fit for a user's eyes. */
export class UnreadableAudio extends Error {
  override readonly name = "UnreadableAudio";
}

const SNIFF_BYTES = 4096;
const FIRST_WINDOW_BYTES = 64 * 1024;
const MAX_WINDOW_BYTES = 1024 * 1024;
/** Above every picture block a FLAC can hold; an isolate has 128 MB and the parser copies a tag more than once. */
const MAX_BLOCK_BYTES = 16 * 1024 * 1024;
/** Far above what an honest file takes; one to two seconds of CPU. */
const MAX_STEPS = 500_000;
const MAX_TAG_CHARACTERS = 256;

const COMMON_NAMES: Record<string, string> = {
  "audio/x-m4a": "audio/mp4",
  "audio/x-ms-asf": "audio/x-ms-wma",
  "audio/vnd.dolby.dd-raw": "audio/ac3",
  "video/x-m4v": "video/mp4",
  "video/matroska": "video/x-matroska",
  "video/vnd.avi": "video/x-msvideo",
  "application/vnd.ms-asf": "video/x-ms-asf",
  "application/mxf": "video/mxf",
  "application/vnd.rn-realmedia": "video/vnd.rn-realmedia",
  "application/x-rar-compressed": "application/vnd.rar",
};
const DOCUMENT =
  /pdf|rtf|epub|officedocument|opendocument|ms-(excel|word|powerpoint|outlook|htmlhelp)|x-cfb|postscript|eps$|mobipocket|visio|apple\.(keynote|numbers|pages)|indesign/;
const ARCHIVE =
  /zip|tar$|rar$|7z|x-xz|zstd|x-compress$|cab-|lzh|arj|cpio|ace-|lz4|unix-archive|x-deb|x-rpm|diskimage|iso9660|java-archive|android\.package/;

const UNKNOWN: Kind = { mimeType: "application/octet-stream", fileType: "other file" };
const TEXT: Kind = { mimeType: "text/plain", fileType: "text file" };

/** Types that a browser plays, shows or saves and never runs as a page of ours. */
const SERVED = new Set(
  `audio/mpeg audio/wav audio/flac audio/ogg audio/mp4 audio/aac audio/aiff audio/webm audio/x-matroska audio/x-ms-wma
  audio/amr audio/midi audio/x-caf audio/ape audio/wavpack video/mp4 video/webm video/ogg video/quicktime video/mpeg
  video/x-matroska video/x-msvideo video/3gpp image/png image/jpeg image/gif image/webp image/avif image/tiff image/bmp
  image/heic application/pdf application/rtf application/zip application/gzip application/epub+zip
  application/x-7z-compressed application/vnd.rar application/x-tar application/x-bzip2 application/x-xz
  application/zstd`.split(/\s+/),
);

/**
 * What the first bytes of a file say it is; no more than 4 KiB of them are looked at, and what the client said counts
 * for nothing. Text of every sort, HTML and SVG included, is `text/plain`.
 */
export async function sniff(head: Uint8Array): Promise<Kind> {
  const start = head.subarray(0, SNIFF_BYTES);
  const { fileTypeFromBuffer } = await import("file-type");
  // Padding behind an ID3 tag hides the frames from file-type; the tag alone is a claim to be audio.
  const fallback = id3Length(start) > 0 ? "audio/mpeg" : UNKNOWN.mimeType;
  const found = (await fileTypeFromBuffer(start))?.mime.split(";")[0] ?? fallback;
  const kind = classify(COMMON_NAMES[found] ?? found);
  // Text may begin with another format's magic word ("solid", "BM"): only documents written as text come first.
  if (kind.fileType !== "document file" && isText(start)) return TEXT;
  if (kind.mimeType === "application/xml" || kind.mimeType.startsWith("text/")) return TEXT;
  return /^video\/(webm|x-matroska)$/.test(kind.mimeType) && hasOnlyAudioCodecs(start) ? asAudio(kind) : kind;
}

/** The Content-Type to store and serve for a sniffed type: one of a list of harmless ones, or opaque bytes. */
export function servedContentType(mimeType: string): string {
  // The charset is stated so that no browser guesses one in which the text means something else.
  if (mimeType === TEXT.mimeType) return "text/plain; charset=utf-8";
  return SERVED.has(mimeType) ? mimeType : UNKNOWN.mimeType;
}

/** The types that the parser can read, and its own name for each. */
const PARSED_AS: Record<string, string> = {
  "audio/mpeg": "audio/mpeg",
  "audio/aac": "audio/aacp",
  "audio/wav": "audio/wav",
  "audio/flac": "audio/flac",
  "audio/ogg": "audio/ogg",
  "audio/mp4": "audio/mp4",
  "audio/aiff": "audio/aiff",
  "audio/webm": "audio/webm",
  "audio/x-matroska": "audio/matroska",
  "audio/x-ms-wma": "audio/ms-wma",
  "audio/ape": "audio/ape",
  "audio/wavpack": "audio/wavpack",
  "audio/x-musepack": "audio/musepack",
  "audio/x-dsf": "audio/dsf",
  "video/mp4": "video/mp4",
  "video/quicktime": "video/quicktime",
  "video/3gpp": "video/mp4",
  "video/3gpp2": "video/mp4",
  "video/webm": "video/webm",
  "video/x-matroska": "video/matroska",
};

/**
 * Reads what a recording says of itself, in constant memory and, where the format allows, a few range reads.
 *
 * `kind` is what `sniff` said; the answer's is refined where only the whole file can tell (a video container without
 * a picture track is audio, and the reverse). A video stays a video and has `audio: null`, readable or not. Audio in a
 * format that the parser doesn't know (MIDI, AMR, …) has an `Audio` of nulls.
 *
 * Throws `UnreadableAudio`, and whatever `read` throws, unchanged.
 */
export async function readAudio(
  read: ReadRange,
  sizeBytes: number,
  kind: Kind,
): Promise<{ kind: Kind; audio: Audio | null }> {
  const source = new Source(read, sizeBytes);
  try {
    return await describe(source, kind);
  } catch (error) {
    if (source.failure) throw source.failure.error;
    if (kind.fileType === "video file") return { kind, audio: null };
    if (error instanceof UnreadableAudio) throw error;
    throw new UnreadableAudio("The file is damaged or incomplete.", { cause: error });
  }
}

async function describe(source: Source, sniffed: Kind): Promise<{ kind: Kind; audio: Audio | null }> {
  let kind = sniffed;
  let from = 0;
  if (kind.fileType === "audio file") from = id3Length(await source.upTo(0, 10));
  if (from > 0) {
    // A tag longer than the head hid what follows it.
    const inner = await sniff(await source.upTo(from, SNIFF_BYTES));
    if (inner.fileType === "audio file") kind = inner;
  }
  const parser = PARSED_AS[kind.mimeType];
  if (parser === undefined) return { kind, audio: kind.fileType === "audio file" ? NOTHING_KNOWN : null };

  const frames = /mpeg|aac/.test(kind.mimeType) ? await countFrames(source, from) : null;
  const matroska = /webm|matroska/.test(kind.mimeType) ? await readMatroska(source) : null;
  if (kind.mimeType === "audio/flac") await checkFlac(source, from);

  const view = new RangeBlob(source, from > MAX_BLOCK_BYTES ? from : 0, matroska?.firstCluster ?? source.size, parser);
  const { parseBlob } = await import("music-metadata");
  const { format, common } = await parseBlob(view, { skipCovers: true, duration: false });
  if (source.failure) throw source.failure.error; // the parser may have swallowed it

  if (kind.fileType === "video file" || matroska) {
    if (format.hasVideo || !format.hasAudio) {
      if (kind.fileType === "audio file" && !format.hasVideo) throw new UnreadableAudio("The file has no audio track.");
      return { kind: asVideo(kind), audio: null };
    }
    kind = asAudio(kind);
  }

  const sampleRate = positive(format.sampleRate);
  if (sampleRate === null) throw new UnreadableAudio("The file has no readable audio stream.");
  let seconds: number | null = frames?.seconds ?? format.duration ?? null;
  if (kind.mimeType === "audio/ogg") seconds = (await oggSeconds(source, format.codec, sampleRate)) ?? seconds;
  if (matroska) seconds ??= await matroska.lastSeconds();
  // A fragmented MP4 and a stream that was never finished may state none, or 0; other headers must come to something.
  const durationSeconds = positive(seconds);
  const mayLackDuration = /mp4|webm|matroska|flac/.test(kind.mimeType);
  if (durationSeconds === null && !mayLackDuration) throw new UnreadableAudio("The file has no audio in it.");

  const average = durationSeconds === null ? null : Math.round(((source.size - from) * 8) / durationSeconds);
  return {
    kind,
    audio: {
      container: cleanText(format.container),
      codec: cleanText(format.codec),
      durationSeconds,
      sampleRate,
      channels: positive(format.numberOfChannels),
      bitrate: frames ? average : (round(positive(format.bitrate)) ?? average),
      lossless: format.lossless ?? (/^(opus|vorbis)$/i.test(format.codec ?? "") ? false : null),
      tags: pickTags(common),
    },
  };
}

const NOTHING_KNOWN: Audio = {
  container: null,
  codec: null,
  durationSeconds: null,
  sampleRate: null,
  channels: null,
  bitrate: null,
  lossless: null,
  tags: {},
};

/** The stored bytes through two cached windows: the head, to which parsers come back, and one that moves. */
class Source {
  /** Set once `read` has thrown: parsers swallow errors, and this one must come through. */
  failure: { error: unknown } | undefined;
  readonly size: number;
  readonly #read: ReadRange;
  #head: Window = { offset: 0, bytes: new Uint8Array() };
  #window: Window = this.#head;
  #windowBytes = FIRST_WINDOW_BYTES;
  #bytesLeft: number;
  #stepsLeft = MAX_STEPS;

  constructor(read: ReadRange, size: number) {
    this.#read = read;
    this.size = size;
    this.#bytesLeft = 4 * size + MAX_WINDOW_BYTES;
  }

  /** The bytes [start, start + length), or fewer at the end of the file. A view of the cache: read, don't keep. */
  async upTo(start: number, length: number): Promise<Uint8Array> {
    const end = Math.min(start + length, this.size);
    if (end <= start) return new Uint8Array();
    if (end - start > MAX_BLOCK_BYTES) throw new UnreadableAudio("A block in the file is too large.");
    if (--this.#stepsLeft < 0) throw new UnreadableAudio("The file is too fragmented.");
    for (const { offset, bytes } of [this.#window, this.#head]) {
      if (start >= offset && end <= offset + bytes.length) return bytes.subarray(start - offset, end - offset);
    }
    const { offset, bytes } = this.#window;
    const isSequential = bytes.length > 0 && start >= offset && start <= offset + bytes.length;
    this.#windowBytes = isSequential ? Math.min(this.#windowBytes * 2, MAX_WINDOW_BYTES) : FIRST_WINDOW_BYTES;
    const wanted = Math.min(Math.max(end - start, this.#windowBytes), this.size - start);
    this.#bytesLeft -= wanted;
    if (this.#bytesLeft < 0) throw new UnreadableAudio("The file is too fragmented.");
    this.#window = { offset: start, bytes: await this.#fetch(start, wanted) };
    if (start === 0 && this.#head.bytes.length === 0) this.#head = this.#window;
    return this.#window.bytes.subarray(0, end - start);
  }

  async #fetch(offset: number, length: number): Promise<Uint8Array> {
    try {
      const bytes = await this.#read(offset, length);
      if (bytes.length !== length) throw new Error(`short read: ${bytes.length} of ${length} bytes at ${offset}`);
      return bytes;
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }
}

interface Window {
  offset: number;
  bytes: Uint8Array;
}

/** The parser's way in: it takes a Blob, and of a Blob it uses the size, the type and slices. */
class RangeBlob extends Blob {
  readonly #source: Source;
  readonly #start: number;
  readonly #end: number;
  readonly #type: string;

  constructor(source: Source, start: number, end: number, type: string) {
    super();
    this.#source = source;
    this.#start = start;
    this.#end = end;
    this.#type = type;
  }

  override get size(): number {
    return this.#end - this.#start;
  }

  override get type(): string {
    return this.#type;
  }

  override slice(start = 0, end = this.size): RangeBlob {
    return new RangeBlob(this.#source, this.#start + start, this.#start + end, this.#type);
  }

  override async arrayBuffer(): Promise<ArrayBuffer> {
    return new Uint8Array(await this.#source.upTo(this.#start, this.size)).buffer;
  }
}

/** The length of the ID3v2 tag that the bytes begin with, its header included; 0 without one. */
function id3Length(head: Uint8Array): number {
  const size = head.subarray(6, 10);
  if (latin1(head.subarray(0, 3)) !== "ID3" || size.length < 4 || size.some((b) => b > 127)) return 0;
  const hasFooter = (byte(head, 5) & 0x10) !== 0;
  return 10 + size.reduce((sum, b) => sum * 128 + b, 0) + (hasFooter ? 10 : 0);
}

/** A FLAC is its STREAMINFO, more blocks, and then a frame; the parser looks no further than the blocks. */
async function checkFlac(source: Source, from: number): Promise<void> {
  let at = from + 4;
  for (let isLast = false, isFirst = true; !isLast; isFirst = false) {
    const block = await source.upTo(at, 4);
    if (block.length < 4 || (isFirst && (byte(block, 0) & 127) !== 0)) break;
    isLast = byte(block, 0) >= 128;
    at += 4 + uint(block.subarray(1));
  }
  const sync = await source.upTo(at, 2);
  if (byte(sync, 0) !== 0xff || (byte(sync, 1) & 0xfe) !== 0xf8)
    throw new UnreadableAudio("The file has no FLAC frames.");
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
async function countFrames(source: Source, from: number): Promise<{ seconds: number }> {
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
async function oggSeconds(source: Source, codec: string | undefined, sampleRate: number): Promise<number | null> {
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
const EBML_CONTAINERS = new Set([EBML.segment, EBML.info, EBML.cluster, EBML.blockGroup]);

/**
 * Where the clusters of a Matroska or WebM file begin, and the time of its last block.
 *
 * What MediaRecorder writes has no duration and clusters of unknown size, on which the parser fails. So the parser is
 * shown the file up to its first cluster, and the end is read here.
 */
async function readMatroska(source: Source): Promise<{ firstCluster: number; lastSeconds(): Promise<number | null> }> {
  let firstCluster = source.size;
  let nanosecondsPerTick = 1_000_000;
  for await (const element of elements(source, 0)) {
    if (element.id === EBML.timestampScale) nanosecondsPerTick = uint(await source.upTo(element.data, element.length));
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
      for (let at = tail.lastIndexOf(mark); at >= 0; at = at === 0 ? -1 : tail.lastIndexOf(mark, at - 1)) {
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

function pickTags(common: IAudioMetadata["common"]): Record<string, string | number> {
  const wanted = {
    title: common.title,
    artist: common.artist,
    album: common.album,
    albumartist: common.albumartist,
    composer: common.composer,
    genre: common.genre,
    year: common.year,
    date: common.date,
    track: common.track?.no,
    tracks: common.track?.of,
    disk: common.disk?.no,
    comment: common.comment?.map(({ text }) => text ?? ""),
    bpm: common.bpm,
    isrc: common.isrc,
    copyright: common.copyright,
  };
  const tags: Record<string, string | number> = {};
  for (const [name, value] of Object.entries(wanted)) {
    const clean = typeof value === "number" ? (Number.isFinite(value) ? value : null) : cleanText(value);
    if (clean !== null) tags[name] = clean;
  }
  return tags;
}

/** Text fit to be stored: one line, well-formed, bounded. A parser's "string" may be anything. */
function cleanText(value: unknown): string | null {
  const text = (Array.isArray(value) ? value : [value]).filter((part) => typeof part === "string").join("; ");
  const kept = [...text.slice(0, 4 * MAX_TAG_CHARACTERS).toWellFormed()]
    .map((c) => (/\p{Cc}/u.test(c) ? " " : c))
    .join("");
  return (
    kept
      .trim()
      .slice(0, MAX_TAG_CHARACTERS)
      .replace(/[\ud800-\udbff]$/, "") || null
  );
}

function classify(mimeType: string): Kind {
  const top = /^(audio|video|image)\//.exec(mimeType)?.[1];
  if (top) return { mimeType, fileType: `${top} file` as FileType };
  if (DOCUMENT.test(mimeType)) return { mimeType, fileType: "document file" };
  if (ARCHIVE.test(mimeType)) return { mimeType, fileType: "archive file" };
  return { mimeType, fileType: "other file" };
}

function isText(head: Uint8Array): boolean {
  if (head.length === 0) return false;
  if (head.some((b) => b === 0x7f || (b < 0x20 && b !== 0x09 && b !== 0x0a && b !== 0x0c && b !== 0x0d))) return false;
  try {
    // As a stream: the last character may be cut.
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(head, { stream: true });
    return true;
  } catch {
    return false;
  }
}

function hasOnlyAudioCodecs(head: Uint8Array): boolean {
  const text = latin1(head);
  return /A_(OPUS|VORBIS|AAC|MPEG|FLAC|PCM|AC3|EAC3|DTS|ALAC)/.test(text) && !/V_[A-Z]/.test(text);
}

function asAudio({ mimeType }: Kind): Kind {
  const name = mimeType === "video/webm" || mimeType === "video/x-matroska" ? mimeType.slice(6) : "mp4";
  return { mimeType: mimeType.startsWith("video/") ? `audio/${name}` : mimeType, fileType: "audio file" };
}

function asVideo({ mimeType }: Kind): Kind {
  return { mimeType: mimeType.replace(/^audio/, "video"), fileType: "video file" };
}

function positive(value: number | null | undefined): number | null {
  return value !== undefined && value !== null && Number.isFinite(value) && value > 0 ? value : null;
}

function round(value: number | null): number | null {
  return value === null ? null : Math.round(value);
}

function byte(bytes: Uint8Array, at: number): number {
  return bytes[at] ?? 0;
}

/** Big-endian; exact up to 2^53. */
function uint(bytes: Uint8Array): number {
  return bytes.reduce((sum, b) => sum * 256 + b, 0);
}

function latin1(bytes: Uint8Array): string {
  return new TextDecoder("latin1").decode(bytes);
}
