import { AAC_CHANNELS, AAC_RATES_HZ, frameAt } from "./frames.ts";
import type { RangeSource, Reading, Segment } from "./range-source.ts";
import { be32, byte, join, latin1, UnreadableAudio, uint } from "./range-source.ts";
import { copyTexts, type ReadText, readTexts } from "./tags.ts";

/* MP4, M4A, 3GP, and QuickTime (ISO/IEC 14496-12 and -14): boxes with a length, a name, and data or further boxes. */

/** The walk enters these boxes and skips all others. */
const CONTAINERS = new Set("moov trak edts mdia minf stbl mvex udta meta moof traf wave".split(" "));
const MAX_BRANDS_BYTES = 256;
/** 8,000 entries. Tables of audio have one or two. */
const MAX_TABLE_BYTES = 64 * 1024;
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
  defaultTicks = 0;
  /** From the first table of its kind, like `edits` and `entry`. A file may repeat tables. */
  ticks: number | null = null;
  edits: [ticks: number, mediaTime: number][] | null = null;
}

/**
 * Reads MP4 and related formats: the facts of the first audio track. The length is that of the samples in the track's time
 * table, limited by its edit list. In a fragmented file, it runs from the start of the first fragment to the end of the
 * last sample that exists. The length in the movie header is ignored.
 */
export async function readMp4(source: RangeSource): Promise<Reading | null> {
  const tracks: Track[] = [];
  /** Receives the boxes in front of the first track. */
  const noTrack = new Track();
  const texts: ReadText[] = [];
  const media = { soundBytes: 0, statedBytes: 0 };
  let brands: string[] = [];
  let movieTicksPerSecond = 0;
  let fragment: Segment | null = null;
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
    if (name === "ilst") texts.push(() => readItems(source, box));
    // QuickTime has its own texts: a length, a language, the text.
    if (name.startsWith("\xa9") && source.budget.chargeText(end - data)) {
      texts.push(async () => makeBox(name, makeBox("data", be32(1), be32(0), (await body(end - data)).subarray(4))));
    }
    if (name === "trex") {
      const defaults = await body(16);
      for (const one of tracks) if (one.id === uint(defaults, 4, 4)) one.defaultTicks = uint(defaults, 12, 4);
    }
    await readTrackBox(source, tracks.at(-1) ?? noTrack, box);
  }
  // Pictures of chapters do not make a file a video.
  const isStill = ({ entry }: Track) => /^(jpeg|png |mjp[ab])$/.test(entry?.format ?? "");
  if (tracks.some((track) => track.handler === "vide" && !isStill(track))) return null;
  const track = tracks.find(({ handler, entry }) => handler === "soun" && entry);
  if (!track?.entry) throw new UnreadableAudio("The file has no audio track.");
  const { entry } = track;
  const ticks = fragment ? await measureFragments(source, fragment, track) : (track.ticks ?? 0);
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
    seconds: ticks === null ? null : editedSeconds(track, ticks, movieTicksPerSecond),
    ...(fragment ? { soundBytes: source.size - fragment.start } : media),
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
  if (name === "stsd" && !track.entry) track.entry = await readSampleEntry(source, data + 8, end);
  if (name === "stco" || name === "co64") track.firstChunk = uint(await body(16), 8, name === "stco" ? 4 : 8);
  if (name === "stts" && end - data <= MAX_TABLE_BYTES && track.ticks === null) {
    const rows = readRows(source, await body(end - data), 8, 4);
    track.ticks = rows.reduce((sum, [count, ticks]) => sum + count * ticks, 0);
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

/** Returns the seconds that the edit list selects. An edit without a media time is a pause; one of length 0 is unlimited. */
function editedSeconds({ edits, ticksPerSecond }: Track, ticks: number, movieTicksPerSecond: number): number {
  const audible = (edits ?? []).filter(([, mediaTime]) => mediaTime < ticks);
  if (audible.length === 0 || movieTicksPerSecond === 0) return ticks / ticksPerSecond;
  return audible.reduce((seconds, [editTicks, mediaTime]) => {
    const rest = (ticks - mediaTime) / ticksPerSecond;
    return seconds + (editTicks === 0 ? rest : Math.min(editTicks / movieTicksPerSecond, rest));
  }, 0);
}

/** Returns the items of an `ilst` box whose values are text or numbers. */
async function readItems(source: RangeSource, { data, end: listEnd }: Segment): Promise<Uint8Array> {
  const items = boxes(source, data, listEnd, false);
  return join(...(await copyTexts(source, items, ({ name, end }) => name !== "covr" && end <= listEnd)));
}

/** Returns the ticks of the track from the first fragment to the end of the last sample that exists. */
async function measureFragments(source: RangeSource, first: Segment, track: Track): Promise<number | null> {
  const from = await readFragment(source, first.start, track);
  const last = await source.findLast("moof", first.start, (mark) => readFragment(source, mark - 4, track));
  return from && last && last.end - from.start;
}

/** Returns when the track's samples in the fragment at `start` begin and end, without missing ones; null if it has none. */
async function readFragment(source: RangeSource, start: number, track: Track) {
  let times: { start: number; end: number } | null = null;
  let id = 0;
  let ticksEach = track.defaultTicks;
  for await (const { name, data, end } of boxes(source, start, source.size)) {
    if (name === "mdat") break;
    if (!/^(tfhd|tfdt|trun)$/.test(name)) continue;
    const body = await source.read(data, end - data);
    const flags = uint(body, 1, 3);
    if (name === "tfhd") {
      id = uint(body, 4, 4);
      if (flags & 8) ticksEach = uint(body, 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0), 4);
    }
    if (id !== track.id) continue;
    const time = uint(body, 4, byte(body, 0) === 1 ? 8 : 4);
    if (name === "tfdt") times = { start: time, end: time };
    if (name === "trun" && times) times.end += runTicks(source, body, flags, ticksEach, start);
  }
  return times;
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

/** The names of these codecs in other formats. */
const CODECS: Record<string, string> = { Opus: "Opus", fLaC: "FLAC", alac: "ALAC", "ac-3": "AC-3", "ec-3": "E-AC-3" };
const SPEECH_CODECS: Record<string, string> = { samr: "AMR", sawb: "AMR-WB", ulaw: "uLaw 2:1", alaw: "aLaw 2:1" };
/** Indexed by "acmod", without the channel for low frequencies. */
const AC3_CHANNELS = [2, 1, 2, 3, 3, 4, 4, 5];
const PCM = /^(sowt|twos|lpcm|in24|in32|fl32|fl64|raw |NONE|ipcm|fpcm)$/;

/** Reads the first entry of a sample description: sound in all versions, or only the format of anything else. */
async function readSampleEntry(source: RangeSource, start: number, end: number) {
  const head = await source.read(start, 72);
  const format = latin1(head, 4, 4);
  const version = uint(head, 16, 2);
  const isPcm = PCM.test(format);
  let codec = isPcm ? "PCM" : (CODECS[format] ?? SPEECH_CODECS[format] ?? null);
  let channels = version === 2 ? uint(head, 48, 4) : uint(head, 24, 2);
  let sampleRate = version === 2 && head.length >= 48 ? new DataView(head.buffer).getFloat64(40) : uint(head, 32, 2);
  let objectType = format === ".mp3" || format === "ms\0U" ? 0x6b : 0;
  const inner = start + 36 + (version === 1 ? 16 : version === 2 ? 36 : 0);
  const entryEnd = Math.min(end, start + uint(head, 0, 4));
  for await (const { name, data } of boxes(source, inner, entryEnd, true, MAX_ENTRY_BOXES)) {
    const body = await source.read(data, 256);
    if (name === "dac3") channels = (AC3_CHANNELS[(byte(body, 1) >> 3) & 7] ?? 0) + ((byte(body, 1) >> 2) & 1);
    if (name === "dOps") channels = byte(body, 1);
    if (name === "alac") [channels, sampleRate] = [byte(body, 13), uint(body, 24, 4)];
    if (name === "dfLa") [channels, sampleRate] = [((byte(body, 20) >> 1) & 7) + 1, uint(body, 18, 3) >> 4];
    if (name !== "esds") continue;
    source.budget.charge(CONFIG_WORK);
    const decoder = readDecoderConfig(body.subarray(4));
    objectType = decoder.objectType;
    channels = decoder.channels || channels;
    sampleRate = decoder.sampleRate || sampleRate;
  }
  const isMpeg = objectType === 0x69 || objectType === 0x6b;
  if (isMpeg) codec = "MPEG audio";
  if (isAac(objectType) || (format === "mp4a" && objectType === 0)) codec = "MPEG-4/AAC";
  const isLossless = isPcm || format === "alac" || format === "fLaC";
  return { format, codec, channels, sampleRate, isMpeg, isLossless };
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
  return { objectType, channels: 0, sampleRate: 0 };
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
  const channels = AAC_CHANNELS[bits(4)] ?? 0;
  let hasParametricStereo = type === 29;
  // Older decoders read a plain stream here, newer ones also the extensions behind it.
  const sync = all.indexOf("01010110111", at + 3);
  if (type === 5 || type === 29) sampleRate = rate();
  else if (sync >= 0) {
    at = sync + 11;
    if (objectType() === 5 && bits(1) === 1) sampleRate = rate();
    hasParametricStereo = bits(11) === 0x548 && bits(1) === 1;
  }
  return { channels: hasParametricStereo && channels === 1 ? 2 : channels, sampleRate };
}
