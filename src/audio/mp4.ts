import { AAC_CHANNELS, AAC_RATES_HZ, AC3_CHANNELS, frameAt } from "./frames.ts";
import type { RangeSource, Reading, Segment } from "./range-source.ts";
import { be32, byte, join, latin1, UnreadableAudio, uint } from "./range-source.ts";
import { copyTexts, type ReadText, readTexts } from "./tags.ts";

/* MP4, M4A, 3GP, and QuickTime (ISO/IEC 14496-12 and -14): boxes with a length, a name, and data or further boxes. */

/** The walk enters these boxes and skips all others. */
const CONTAINERS = new Set("moov trak tref edts mdia minf stbl mvex udta meta moof traf wave sinf".split(" "));
const MAX_BRANDS_BYTES = 256;
/** 8,000 entries. Tables of audio have one or two. */
const MAX_TABLE_BYTES = 64 * 1024;
const MAX_REFERENCES_BYTES = 256;
/** The names of the texts that a movie of QuickTime may have. Files have a dozen. */
const MAX_KEYS = 256;
const KEY_PREFIX = "com.apple.quicktime.";
/** The texts of 3GP (3GPP TS 26.244, 8). */
const ASSETS: Record<string, string> = {
  titl: "TITLE",
  perf: "ARTIST",
  albm: "ALBUM",
  gnre: "GENRE",
  dscp: "COMMENT",
  cprt: "COPYRIGHT",
  yrrc: "YEAR",
};
/** Films have a dozen tracks of sound, pictures, and subtitles. */
const MAX_TRACKS = 64;
/** The boxes in a sample entry. Audio has up to four. */
const MAX_ENTRY_BOXES = 32;
/** Work units for one row of a table. */
const ROW_WORK = 60;
/** The configuration bytes that are parsed: far behind the last field that matters. */
const MAX_CONFIG_BYTES = 64;
/** Work units to parse a decoder configuration bit by bit. */
const CONFIG_WORK = 10_000;

/** Yields the boxes from `position` on, and those inside them if `isFlat`. */
export function boxes(source: RangeSource, position: number, end: number, isFlat = true, max?: number) {
  const parse = (header: Uint8Array, at: number) => {
    const name = latin1(header, 4, 4);
    const stated = uint(header, 0, 4);
    let headerBytes = stated === 1 ? 16 : 8;
    const length = stated === 1 ? uint(header, 8, 8) : stated === 0 ? source.size - at : stated;
    if (header.length < 8 || length < headerBytes) return null;
    // In MP4 this box has a version and flags, in QuickTime it does not.
    if (name === "meta" && latin1(header, 12, 4) !== "hdlr") headerBytes += 4;
    return { name, headerBytes, bodyBytes: length - headerBytes, isEntered: isFlat && CONTAINERS.has(name) };
  };
  return source.segments(position, end, 16, parse, max);
}

class Track {
  id = 0;
  handler = "";
  entry: Awaited<ReturnType<typeof readSampleEntry>> | null = null;
  ticksPerSecond = 0;
  firstChunk = -1;
  /** The ids of the tracks with the titles and the pictures of its chapters. */
  chapters: number[] = [];
  /** From the first table of its kind, like `edits` and `entry`. A file may repeat tables. */
  ticks: number | null = null;
  samples = 0;
  edits: [ticks: number, mediaTime: number][] | null = null;
}

/**
 * Reads MP4 and related formats: the facts of the first audio track. The length is that of the samples in the track's time
 * table and in its fragments that exist, limited by its edit list. The length in the movie header is ignored.
 */
export async function readMp4(source: RangeSource): Promise<Reading | null> {
  const tracks: Track[] = [];
  /** Receives the boxes in front of the first track. */
  const noTrack = new Track();
  const texts: ReadText[] = [];
  const media = { soundBytes: 0, statedBytes: 0 };
  let brands: string[] = [];
  let keys: string[] = [];
  let movieTicksPerSecond = 0;
  let fragment: Segment | null = null;
  const defaultTicks = new Map<number, number>();
  for await (const box of boxes(source, 0, source.size)) {
    const { name, data, end } = box;
    const body = (max: number) => source.read(data, Math.min(max, end - data));
    if (name === "moof") {
      fragment = box;
      break;
    }
    // The second "brand" is a version.
    if (name === "ftyp") brands = latin1(await body(MAX_BRANDS_BYTES)).match(/.{4}/gs) ?? [];
    if (name === "mvhd") movieTicksPerSecond = fieldBehindTimes(await body(32));
    if (name === "trak" && tracks.length < MAX_TRACKS) tracks.push(new Track());
    if (name === "mdat") {
      media.statedBytes += end - data;
      media.soundBytes += Math.max(0, Math.min(end, source.size) - data);
    }
    if (name === "keys") keys = readKeys(source, await body(MAX_TABLE_BYTES));
    if (name === "ilst") {
      const names = keys;
      keys = [];
      texts.push(() => (names.length > 0 ? readKeyedItems(source, box, names) : readItems(source, box)));
    }
    const asset = ASSETS[name];
    if (asset && source.budget.chargeText(end - data)) {
      texts.push(async () => makeNamedItem(asset, readAsset(name, await body(end - data))));
    }
    // QuickTime has its own texts: a length, a language, the text.
    if (name.startsWith("\xa9") && source.budget.chargeText(end - data)) {
      texts.push(async () => makeBox(name, makeBox("data", be32(1), be32(0), (await body(end - data)).subarray(4))));
    }
    if (name === "trex") {
      const defaults = await body(16);
      if (defaultTicks.size < MAX_TRACKS) defaultTicks.set(uint(defaults, 4, 4), uint(defaults, 12, 4));
    }
    await readTrackBox(source, tracks.at(-1) ?? noTrack, box);
  }
  // A cover and pictures of chapters do not make a file a video.
  const chapters = new Set(tracks.flatMap((one) => (one.handler === "soun" ? one.chapters : [])));
  const isCover = ({ entry, samples }: Track) => COVER.test(entry?.format ?? "") && samples <= 1 && !fragment;
  const isPicture = (one: Track) => one.handler === "vide" && !chapters.has(one.id) && !isCover(one);
  if (tracks.some(isPicture)) return null;
  const track = tracks.find(({ handler, entry }) => handler === "soun" && entry);
  if (!track?.entry) throw new UnreadableAudio("The file has no audio track.");
  const { entry } = track;
  // The samples of a movie may continue in fragments.
  const inFragments = fragment
    ? await measureFragments(source, fragment, track.id, defaultTicks.get(track.id) ?? 0)
    : 0;
  const ticks = track.ticks || inFragments !== null ? (track.ticks ?? 0) + (inFragments ?? 0) : null;
  // Only the frames state the version, the layer, and the channels of MPEG audio.
  const frame = entry.isMpeg && !fragment ? frameAt(await source.read(track.firstChunk, 16), 0) : null;
  const names = new Set(brands.map((brand) => brand.replace(/\W/g, "")).filter((brand) => brand !== ""));
  const readTags = async () => {
    const handler = makeBox("hdlr", new Uint8Array(8), "mdirappl", new Uint8Array(9));
    const items = makeBox("ilst", await readTexts(texts));
    return makeBox("moov", makeBox("udta", makeBox("meta", be32(0), handler, items)));
  };
  return {
    container: [...names].join("/"),
    codec: frame?.codec ?? entry.codec,
    sampleRate: entry.sampleRate || track.ticksPerSecond,
    channels: frame?.channels ?? entry.channels,
    lossless: entry.isLossless,
    seconds: ticks === null ? null : editedSeconds(track, ticks, movieTicksPerSecond, fragment !== null),
    ...(fragment ? { soundBytes: media.soundBytes + source.size - fragment.start } : media),
    readTags,
  };
}

/** Reads a box that describes the track it belongs to. */
async function readTrackBox(source: RangeSource, track: Track, { name, data, end }: Segment): Promise<void> {
  const body = (max: number) => source.read(data, Math.min(max, end - data));
  if (name === "tkhd") track.id = fieldBehindTimes(await body(32));
  if (name === "mdhd") track.ticksPerSecond = fieldBehindTimes(await body(32));
  if (name === "hdlr") track.handler ||= latin1(await body(12), 8);
  if (name === "elst" && !track.edits) {
    const table = await body(MAX_TABLE_BYTES);
    track.edits = byte(table, 0) === 1 ? readRows(source, table, 20, 8) : readRows(source, table, 12, 4);
  }
  if (name === "chap") {
    const ids = await body(MAX_REFERENCES_BYTES);
    for (let at = 0; at < ids.length; at += 4) track.chapters.push(uint(ids, at, 4));
  }
  if (name === "stsd" && !track.entry) track.entry = await readSampleEntry(source, data + 8, end);
  if (name === "stco" || name === "co64") track.firstChunk = uint(await body(16), 8, name === "stco" ? 4 : 8);
  if (name === "stts" && end - data <= MAX_TABLE_BYTES && track.ticks === null) {
    const rows = readRows(source, await body(end - data), 8, 4);
    track.ticks = rows.reduce((sum, [count, ticks]) => sum + count * ticks, 0);
    track.samples = rows.reduce((sum, [count]) => sum + count, 0);
  }
}

/** Makes a box for music-metadata. */
function makeBox(name: string, ...contents: (Uint8Array | string)[]): Uint8Array {
  const body = join(...contents);
  return join(be32(body.length + 8), name, body);
}

/** Returns the ticks per second from the header of a movie or its media, or the id from the header of a track. */
export function fieldBehindTimes(header: Uint8Array): number {
  return uint(header, byte(header, 0) === 1 ? 20 : 12, 4);
}

/** Returns the first two numbers of each row of a table, of `width` bytes each. */
function readRows(source: RangeSource, table: Uint8Array, rowBytes: number, width: number): [number, number][] {
  const rows = Math.max(0, Math.min(uint(table, 4, 4), Math.floor((table.length - 8) / rowBytes)));
  source.budget.charge(rows * ROW_WORK);
  return Array.from({ length: rows }, (_, n) => {
    const at = 8 + n * rowBytes;
    return [uint(table, at, width), uint(table, at + width, width)];
  });
}

/**
 * Returns the seconds that the edit list selects. An edit without a media time is a pause; one of length 0 is unlimited, as
 * is any in a file with fragments, which are not counted in its length.
 */
function editedSeconds(
  { edits, ticksPerSecond }: Track,
  ticks: number,
  movieTicksPerSecond: number,
  hasFragments: boolean,
): number {
  const audible = (edits ?? []).filter(([, mediaTime]) => mediaTime < ticks);
  if (audible.length === 0 || movieTicksPerSecond === 0) return ticks / ticksPerSecond;
  return audible.reduce((seconds, [editTicks, mediaTime]) => {
    const rest = (ticks - mediaTime) / ticksPerSecond;
    return seconds + (editTicks === 0 || hasFragments ? rest : Math.min(editTicks / movieTicksPerSecond, rest));
  }, 0);
}

/** Returns the items of an `ilst` box whose values are text or numbers. */
async function readItems(source: RangeSource, { data, end: listEnd }: Segment): Promise<Uint8Array> {
  const items = boxes(source, data, listEnd, false);
  return join(...(await copyTexts(source, items, ({ name, end }) => name !== "covr" && end <= listEnd)));
}

/** Returns the names in a `keys` box of QuickTime. */
function readKeys(source: RangeSource, table: Uint8Array): string[] {
  const keys: string[] = [];
  for (let at = 8; at + 8 <= table.length && keys.length < MAX_KEYS; at += Math.max(8, uint(table, at, 4))) {
    source.budget.charge(ROW_WORK);
    keys.push(latin1(table.subarray(at + 8, at + uint(table, at, 4))).replace(KEY_PREFIX, ""));
  }
  return keys;
}

/** Returns the items of an `ilst` box that are texts, and whose names are numbers of `keys`, from 1 on. */
async function readKeyedItems(source: RangeSource, { data, end: listEnd }: Segment, keys: string[]) {
  const items: Uint8Array[] = [];
  for await (const { start, data: at, end } of boxes(source, data, listEnd, false)) {
    const key = keys[uint(await source.read(start + 4, 4)) - 1];
    if (!key || end > listEnd || !source.budget.chargeText(end - start)) continue;
    const value = await source.read(at, end - at);
    // A length, "data", the type of a text in UTF-8, and a locale are in front.
    if (uint(value, 8, 4) === 1) items.push(makeNamedItem(key, value.subarray(16)));
  }
  return join(...items);
}

/** Returns the text of a box of 3GP in UTF-8: behind a version and a language, up to a zero, or a year. */
function readAsset(name: string, body: Uint8Array): Uint8Array {
  const encode = (text: string) => new TextEncoder().encode(text);
  if (name === "yrrc") return encode(String(uint(body, 4, 2)));
  const text = body.subarray(6);
  const isWide = uint(text, 0, 2) === 0xfeff;
  return encode(new TextDecoder(isWide ? "utf-16be" : "utf-8").decode(text).replace(/\0.*/s, ""));
}

/** Makes an item with its own name for music-metadata. */
function makeNamedItem(name: string, text: Uint8Array): Uint8Array {
  const mean = makeBox("mean", be32(0), "com.apple.iTunes");
  return makeBox("----", mean, makeBox("name", be32(0), name), makeBox("data", be32(1), be32(0), text));
}

/** The samples of a track in a fragment: when they begin, if that is stated, and how long those that exist play. */
type Span = { start: number | null; ticks: number };

/**
 * Returns how long the samples of the track in its fragments play; null if there are none. The first and the last fragment
 * state when they begin. If they don't, or contradict each other, all fragments are added up.
 */
async function measureFragments(source: RangeSource, first: Segment, id: number, ticksEach: number) {
  const readAt = (at: number) => readFragment(source, at, id, ticksEach);
  const from = await readAt(first.start);
  let lastAt = first.start;
  const last = await source.findLast("moof", first.start, (mark) => {
    lastAt = mark - 4;
    return readAt(lastAt);
  });
  if (lastAt === first.start) return from?.ticks ?? null;
  if (from && last && from.start !== null && last.start !== null && last.start >= from.start + from.ticks) {
    return last.start + last.ticks - from.start;
  }
  let ticks: number | null = null;
  let end = first.start;
  for await (const { name, start, end: boxEnd } of boxes(source, first.start, source.size, false)) {
    end = Math.min(boxEnd, source.size);
    const span = name === "moof" ? await readAt(start) : null;
    if (span) ticks = (ticks ?? 0) + span.ticks;
  }
  // Beyond the limits of a walk, the rest is assumed to be like the beginning.
  return ticks && (ticks * (source.size - first.start)) / (end - first.start);
}

/** Returns the samples of the track in the fragment at `start`; null if it has none. */
async function readFragment(source: RangeSource, start: number, trackId: number, defaultTicks: number) {
  let span: Span | null = null;
  let begin: number | null = null;
  let id = 0;
  let ticksEach = defaultTicks;
  for await (const { name, data, end } of boxes(source, start, source.size)) {
    if (name === "mdat" || (name === "moof" && data > start + 16)) break;
    if (!/^(tfhd|tfdt|trun)$/.test(name)) continue;
    const body = await source.read(data, end - data);
    const flags = uint(body, 1, 3);
    if (name === "tfhd") {
      id = uint(body, 4, 4);
      if (flags & 8) ticksEach = uint(body, 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0), 4);
    }
    if (id !== trackId) continue;
    if (name === "tfdt") begin = uint(body, 4, byte(body, 0) === 1 ? 8 : 4);
    if (name !== "trun") continue;
    span ??= { start: begin, ticks: 0 };
    span.ticks += runTicks(source, body, flags, ticksEach, start);
  }
  return span;
}

/** Returns how long the samples of a run play that lie within the file. Its fragment begins at `from`. */
function runTicks(source: RangeSource, run: Uint8Array, flags: number, ticksEach: number, from: number): number {
  const count = uint(run, 4, 4);
  const rowBytes = 4 * [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length;
  if (rowBytes === 0) return count * ticksEach;
  const table = run.subarray(8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0));
  const rows = Math.min(count, Math.floor(table.length / rowBytes));
  source.budget.charge(rows * ROW_WORK);
  let soundAt = from + (flags & 1 ? uint(run, 8, 4) : 0);
  let ticks = 0;
  for (let at = 0; at < rows * rowBytes; at += rowBytes) {
    if (flags & 0x200) soundAt += uint(table, flags & 0x100 ? at + 4 : at, 4);
    if (soundAt > source.size) return ticks;
    ticks += flags & 0x100 ? uint(table, at, 4) : ticksEach;
  }
  // If the table is too long to read, the rest is assumed to be like the beginning.
  return rows === 0 ? 0 : (ticks * count) / rows;
}

/** The formats of a cover. */
const COVER = /^(jpeg|png |mjp[ab])$/;
/** By the names of sample entries (mp4ra.org). */
const CODECS: Record<string, string> = {
  Opus: "Opus",
  fLaC: "FLAC",
  alac: "ALAC",
  ulaw: "uLaw 2:1",
  alaw: "aLaw 2:1",
  ima4: "IMA ADPCM",
  "ac-3": "AC-3",
  "ec-3": "E-AC-3",
  "ac-4": "AC-4",
  mlpa: "TrueHD",
  iamf: "IAMF",
  mha1: "MPEG-H",
  mha2: "MPEG-H",
  mhm1: "MPEG-H",
  mhm2: "MPEG-H",
  dtsc: "DTS",
  dtsh: "DTS",
  dtsl: "DTS",
  dtse: "DTS",
};
/** Codecs with one channel and one rate. Their entries have other numbers in these fields (3GPP TS 26.244, 6.5). */
const SPEECH_CODECS: Record<string, [name: string, sampleRate: number]> = {
  samr: ["AMR", 8000],
  sawb: ["AMR-WB", 16_000],
  sevc: ["EVRC", 8000],
  ssmv: ["SMV", 8000],
  sqcp: ["QCELP", 8000],
};
/** The channels that each bit of an assignment in TrueHD stands for, from the lowest one on. */
const TRUEHD_CHANNELS = [2, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 1, 1];
/** By the object type of a decoder (mp4ra.org). */
const OBJECT_CODECS: Record<number, string> = { 165: "AC-3", 166: "E-AC-3", 169: "DTS", 173: "Opus", 221: "Vorbis" };
/** By the audio object type (ISO/IEC 14496-3, table 1.17). All others are forms of AAC, or unknown. */
const MPEG4_CODECS: Record<number, string> = {
  8: "MPEG-4/CELP",
  9: "MPEG-4/HVXC",
  12: "MPEG-4/TTSI",
  32: "MP1 on MP4",
  33: "MP2 on MP4",
  34: "MP3 on MP4",
  36: "MPEG-4/ALS",
  37: "MPEG-4/SLS",
  38: "MPEG-4/SLS",
  42: "MPEG-D/USAC",
};
const LOSSLESS_AUDIO_TYPES = [36, 37, 38];
/** From here on, the object types have no extensions of AAC. */
const MIN_OTHER_TYPE = 32;
const PCM = /^(sowt|twos|lpcm|in24|in32|fl32|fl64|raw |NONE|ipcm|fpcm)$/;

/** Reads the first entry of a sample description: sound in all versions, or only the format of anything else. */
async function readSampleEntry(source: RangeSource, start: number, end: number) {
  const head = await source.read(start, 72);
  const format = latin1(head, 4, 4);
  let coded = format;
  const version = uint(head, 16, 2);
  let channels = version === 2 ? uint(head, 48, 4) : uint(head, 24, 2);
  let sampleRate = version === 2 && head.length >= 48 ? new DataView(head.buffer).getFloat64(40) : uint(head, 32, 2);
  let objectType = format === ".mp3" || format === "ms\0U" ? 0x6b : 0;
  let audioType = 0;
  const inner = start + 36 + (version === 1 ? 16 : version === 2 ? 36 : 0);
  const entryEnd = Math.min(end, start + uint(head, 0, 4));
  for await (const { name, data } of boxes(source, inner, entryEnd, true, MAX_ENTRY_BOXES)) {
    const body = await source.read(data, 256);
    // The format of encrypted sound.
    if (name === "frma") coded = latin1(body, 0, 4);
    if (name === "dmlp") [channels, sampleRate] = [trueHdChannels(body) || channels, uint(head, 32, 4)];
    if (name === "dac3") channels = (AC3_CHANNELS[(byte(body, 1) >> 3) & 7] ?? 0) + ((byte(body, 1) >> 2) & 1);
    if (name === "dec3") channels = (AC3_CHANNELS[(byte(body, 3) >> 1) & 7] ?? 0) + (byte(body, 3) & 1);
    if (name === "dOps") channels = byte(body, 1);
    if (name === "alac") [channels, sampleRate] = [byte(body, 13), uint(body, 24, 4)];
    if (name === "dfLa") [channels, sampleRate] = [((byte(body, 20) >> 1) & 7) + 1, uint(body, 18, 3) >> 4];
    if (name !== "esds") continue;
    source.budget.charge(CONFIG_WORK);
    const decoder = readDecoderConfig(body.subarray(4));
    objectType = decoder.objectType;
    audioType = decoder.audioType;
    channels = decoder.channels || channels;
    sampleRate = decoder.sampleRate || sampleRate;
  }
  const isPcm = PCM.test(coded);
  const speech = SPEECH_CODECS[coded];
  let codec = isPcm ? "PCM" : (CODECS[coded] ?? null);
  if (speech) [codec, channels, sampleRate] = [speech[0], 1, speech[1]];
  const isMpeg = objectType === 0x69 || objectType === 0x6b;
  if (isMpeg) codec = "MPEG audio";
  if (isAac(objectType) || (coded === "mp4a" && objectType === 0)) codec = MPEG4_CODECS[audioType] ?? "MPEG-4/AAC";
  codec ??= OBJECT_CODECS[objectType] ?? null;
  const isLossless = isPcm || /^(alac|fLaC|mlpa)$/.test(coded) || LOSSLESS_AUDIO_TYPES.includes(audioType);
  return { format, codec, channels, sampleRate, isMpeg, isLossless };
}

/** Returns the channels of the largest presentation that the configuration of TrueHD states: of up to 8, or up to 6. */
function trueHdChannels(config: Uint8Array): number {
  const assignment = uint(config, 2, 2) & 0x1fff || (uint(config, 1, 2) >> 7) & 31;
  return TRUEHD_CHANNELS.reduce((sum, count, bit) => sum + ((assignment >> bit) & 1) * count, 0);
}

function isAac(objectType: number): boolean {
  return objectType === 0x40 || (objectType >= 0x66 && objectType <= 0x68);
}

/**
 * Reads the object type from an ES descriptor (ISO/IEC 14496-1, 7.2.6), and for AAC what its decoder outputs. 0 means
 * not stated here.
 */
function readDecoderConfig(descriptor: Uint8Array) {
  let objectType = 0;
  for (let at = 0; at < descriptor.length; ) {
    const tag = byte(descriptor, at++);
    while (byte(descriptor, at) >= 128) at++;
    const length = byte(descriptor, at++);
    if (tag === 5 && !isAac(objectType)) break;
    if (tag === 5)
      return { objectType, ...readAacOutput(descriptor.subarray(at, at + Math.min(length, MAX_CONFIG_BYTES))) };
    if (tag === 4) objectType = byte(descriptor, at);
    // MP4 omits the optional fields of an ES descriptor (14496-14, 3.1.2).
    at += tag === 3 ? 3 : tag === 4 ? 13 : length;
  }
  return { objectType, audioType: 0, channels: 0, sampleRate: 0 };
}

/**
 * Reads an AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1). Spectral band replication changes the coded rate. Parametric
 * stereo makes two channels out of one.
 */
function readAacOutput(config: Uint8Array) {
  const all = Array.from(config, (b) => b.toString(2).padStart(8, "0")).join("");
  let at = 0;
  const bits = (count: number) => {
    at += count;
    return Number.parseInt(all.slice(at - count, at), 2) || 0;
  };
  const objectType = () => {
    const type = bits(5);
    return type === 31 ? 32 + bits(6) : type;
  };
  const rate = () => {
    const index = bits(4);
    return index === 15 ? bits(24) : (AAC_RATES_HZ[index] ?? 0);
  };
  const type = objectType();
  let sampleRate = rate();
  const layout = bits(4);
  let channels = AAC_CHANNELS[layout] ?? 0;
  if (type >= MIN_OTHER_TYPE) return { audioType: type, ...(readAlsOutput(config) ?? { channels, sampleRate }) };
  let hasParametricStereo = type === 29;
  if (type === 5 || type === 29) {
    sampleRate = rate();
    objectType();
  }
  if (layout === 0) channels = readProgramChannels(bits);
  // Older decoders read a plain stream here, newer ones also the extensions behind it.
  const sync = type === 5 || type === 29 ? -1 : all.indexOf("01010110111", at + 3);
  if (sync >= 0) {
    at = sync + 11;
    if (objectType() === 5 && bits(1) === 1) sampleRate = rate();
    hasParametricStereo = bits(11) === 0x548 && bits(1) === 1;
  }
  return { audioType: type, channels: hasParametricStereo && channels === 1 ? 2 : channels, sampleRate };
}

/**
 * Counts the channels in the program config element of a GASpecificConfig (ISO/IEC 14496-3, 4.4.1), which stands for a
 * layout without a number.
 */
function readProgramChannels(bits: (count: number) => number): number {
  bits(1);
  if (bits(1) === 1) bits(14);
  // The extension flag, a tag, a profile, and the index of a rate.
  bits(1 + 4 + 2 + 4);
  const elements = bits(4) + bits(4) + bits(4);
  let channels = bits(2);
  bits(3 + 4);
  // Three mixdowns may be stated.
  for (const mixdownBits of [4, 4, 3]) if (bits(1) === 1) bits(mixdownBits);
  for (let n = 0; n < elements; n++) {
    channels += 1 + bits(1);
    bits(4);
  }
  return channels;
}

/** Reads the rate and channels of an ALSSpecificConfig (ISO/IEC 14496-3, 11.6.1), which may exceed the one stated before. */
function readAlsOutput(config: Uint8Array) {
  const at = latin1(config).indexOf("ALS\0");
  return at < 0 ? null : { sampleRate: uint(config, at + 4, 4), channels: uint(config, at + 12, 2) + 1 };
}
