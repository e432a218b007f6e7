import { AAC_CHANNELS, AAC_RATES_HZ, frameAt } from "./frames.ts";
import type { Part, RangeSource, Reading } from "./range-source.ts";
import { be32, byte, join, latin1, UnreadableAudio, uint } from "./range-source.ts";
import { copyTexts, type ReadText, readTexts, type TextBudget } from "./tags.ts";

/* MP4, M4A, 3GP and QuickTime (ISO/IEC 14496-12 and -14): boxes of a length, a name and data or further boxes. */

/** Boxes that are entered; others are passed by as a whole. */
const CONTAINERS = new Set("moov trak edts mdia minf stbl mvex udta meta moof traf wave".split(" "));
const MAX_BRANDS_BYTES = 256;
/** Of a table: 8,000 entries, where audio has one or two. */
const MAX_TABLE_BYTES = 64 * 1024;
/** Films have a dozen, of sound, pictures and subtitles. */
const MAX_TRACKS = 64;

/** The boxes from `position` on; without `isFlat`, none of those inside them. */
function boxes(source: RangeSource, position: number, end: number, isFlat = true) {
  return source.parts(position, end, 16, (header, at) => {
    const name = latin1(header, 4, 4);
    const stated = uint(header, 0, 4);
    let headerBytes = stated === 1 ? 16 : 8;
    const length = stated === 1 ? uint(header, 8, 8) : stated === 0 ? source.size - at : stated;
    if (header.length < 8 || length < headerBytes) return null;
    // In MP4 this one has a version and flags, in QuickTime it hasn't.
    if (name === "meta" && latin1(header, 12, 4) !== "hdlr") headerBytes += 4;
    return { name, headerBytes, bodyBytes: length - headerBytes, isEntered: isFlat && CONTAINERS.has(name) };
  });
}

class Track {
  id = 0;
  handler = "";
  entry: Awaited<ReturnType<typeof readSampleEntry>> | null = null;
  ticksPerSecond = 0;
  ticks = 0;
  firstChunk = -1;
  defaultTicks = 0;
  edits: [ticks: number, mediaTime: number][] = [];
}

/**
 * MP4 and its kin, with the first audio track's facts. The length is that of the samples in the track's time table, cut
 * by its edit list; in a fragmented file it is from the start of the first fragment to the end of the last sample that
 * is there. The movie header's length counts for nothing.
 */
export async function readMp4(source: RangeSource, start: number, budget: TextBudget): Promise<Reading | null> {
  const tracks: Track[] = [];
  const texts: ReadText[] = [];
  const media = { soundBytes: 0, statedBytes: 0 };
  let brands: string[] = [];
  let movieTicksPerSecond = 0;
  let fragment: Part | null = null;
  for await (const box of boxes(source, start, source.size)) {
    const { name, data, end } = box;
    const body = (max: number) => source.copy(data, Math.min(max, end - data));
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
    if (name === "ilst") texts.push(() => readItems(source, box, budget));
    // QuickTime's own texts: a length, a language, the text.
    if (name.startsWith("\xa9") && budget.admits(end - data)) {
      texts.push(async () => makeBox(name, makeBox("data", be32(1), be32(0), (await body(end - data)).subarray(4))));
    }
    if (name === "trex") {
      const defaults = await body(16);
      for (const one of tracks) if (one.id === uint(defaults, 4, 4)) one.defaultTicks = uint(defaults, 12, 4);
    }
    await readTrackBox(source, tracks.at(-1) ?? new Track(), box);
  }
  // Chapters may have pictures, which don't make a video.
  const isStill = ({ entry }: Track) => /^(jpeg|png |mjp[ab])$/.test(entry?.format ?? "");
  if (tracks.some((track) => track.handler === "vide" && !isStill(track))) return null;
  const track = tracks.find(({ handler, entry }) => handler === "soun" && entry);
  if (!track?.entry) throw new UnreadableAudio("The file has no audio track.");
  const { entry } = track;
  const ticks = fragment ? await measureFragments(source, fragment, track) : track.ticks;
  // Only the frames tell which version and layer of MPEG audio it is, and of how many channels.
  const frame = entry.isMpeg && !fragment ? frameAt(await source.upTo(track.firstChunk, 16), 0) : null;
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

/** What a box says of the track in which it is. */
async function readTrackBox(source: RangeSource, track: Track, { name, data, end }: Part): Promise<void> {
  const body = (max: number) => source.copy(data, Math.min(max, end - data));
  if (name === "tkhd") track.id = fieldBehindTimes(await body(32));
  if (name === "mdhd") track.ticksPerSecond = fieldBehindTimes(await body(32));
  if (name === "hdlr") track.handler ||= latin1(await body(12), 8);
  if (name === "elst" && track.edits.length === 0) {
    const table = await body(MAX_TABLE_BYTES);
    track.edits = byte(table, 0) === 1 ? readRows(table, 20, 8) : readRows(table, 12, 4);
  }
  if (name === "stsd") track.entry = await readSampleEntry(source, data + 8, end);
  if (name === "stco" || name === "co64") track.firstChunk = uint(await body(16), 8, name === "stco" ? 4 : 8);
  if (name === "stts" && track.ticks === 0 && end - data <= MAX_TABLE_BYTES) {
    track.ticks = readRows(await body(end - data), 8, 4).reduce((sum, [count, ticks]) => sum + count * ticks, 0);
  }
}

/** A box for the parser. */
function makeBox(name: string, ...parts: (Uint8Array | string)[]): Uint8Array {
  const body = join(...parts);
  return join(be32(body.length + 8), name, body);
}

/** In the header of a movie or its media the ticks a second, in that of a track its id. */
function fieldBehindTimes(header: Uint8Array): number {
  return uint(header, byte(header, 0) === 1 ? 20 : 12, 4);
}

/** The numbers in the rows of a table, with `width` bytes for each of the first two, the only ones that are read. */
function readRows(table: Uint8Array, rowBytes: number, width: number): [number, number][] {
  const rows = Math.min(uint(table, 4, 4), Math.floor((table.length - 8) / rowBytes));
  return Array.from({ length: Math.max(0, rows) }, (_, n) => {
    const at = 8 + n * rowBytes;
    return [uint(table, at, width), uint(table, at + width, width)];
  });
}

/** What the edit list lets be heard; an edit without a media time is a pause, and one of length 0 has no end. */
function editedSeconds({ edits, ticksPerSecond }: Track, ticks: number, movieTicksPerSecond: number): number {
  const heard = edits.filter(([, mediaTime]) => mediaTime < ticks);
  if (heard.length === 0 || movieTicksPerSecond === 0) return ticks / ticksPerSecond;
  return heard.reduce((seconds, [editTicks, mediaTime]) => {
    const rest = (ticks - mediaTime) / ticksPerSecond;
    return seconds + (editTicks === 0 ? rest : Math.min(editTicks / movieTicksPerSecond, rest));
  }, 0);
}

/** The items of an `ilst` box whose values are text or numbers. */
async function readItems(source: RangeSource, { data, end: listEnd }: Part, budget: TextBudget): Promise<Uint8Array> {
  const items = boxes(source, data, listEnd, false);
  return join(...(await copyTexts(source, items, budget, ({ name, end }) => name !== "covr" && end <= listEnd)));
}

/** From the first fragment's time to the end of the last sample that is there, in ticks of the track. */
async function measureFragments(source: RangeSource, first: Part, track: Track): Promise<number | null> {
  const from = await readFragment(source, first.start, track);
  const last = await source.findLast("moof", first.start, (mark) => readFragment(source, mark - 4, track));
  return from && last && last.end - from.start;
}

/** When the track's samples in the fragment at `start` begin and, of those that are there, end; null without any. */
async function readFragment(source: RangeSource, start: number, track: Track) {
  let times: { start: number; end: number } | null = null;
  let id = 0;
  let ticksEach = track.defaultTicks;
  for await (const { name, data, end } of boxes(source, start, source.size)) {
    if (name === "mdat") break;
    if (!/^(tfhd|tfdt|trun)$/.test(name)) continue;
    const body = await source.copy(data, end - data);
    const flags = uint(body, 1, 3);
    if (name === "tfhd") {
      id = uint(body, 4, 4);
      if (flags & 8) ticksEach = uint(body, 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0), 4);
    }
    if (id !== track.id) continue;
    const time = uint(body, 4, byte(body, 0) === 1 ? 8 : 4);
    if (name === "tfdt") times = { start: time, end: time };
    if (name === "trun" && times) times.end += runTicks(body, flags, ticksEach, start, source.size);
  }
  return times;
}

/** How long the samples of a run play that lie within the file; `from` is where its fragment begins. */
function runTicks(run: Uint8Array, flags: number, ticksEach: number, from: number, sizeBytes: number): number {
  const count = uint(run, 4, 4);
  const rowBytes = 4 * [0x100, 0x200, 0x400, 0x800].filter((flag) => flags & flag).length;
  if (rowBytes === 0) return count * ticksEach;
  const table = run.subarray(8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0));
  const rows = Math.min(count, Math.floor(table.length / rowBytes));
  let soundAt = from + (flags & 1 ? uint(run, 8, 4) : 0);
  let ticks = 0;
  for (let at = 0; at < rows * rowBytes; at += rowBytes) {
    if (flags & 0x200) soundAt += uint(table, flags & 0x100 ? at + 4 : at, 4);
    if (soundAt > sizeBytes) return ticks;
    ticks += flags & 0x100 ? uint(table, at, 4) : ticksEach;
  }
  // Of a table that is too long to be read, the rest is taken to be like the beginning.
  return rows === 0 ? 0 : (ticks * count) / rows;
}

/** Names as the parser gives them to other files of these codecs. */
const CODECS: Record<string, string> = { Opus: "Opus", fLaC: "FLAC", alac: "ALAC", "ac-3": "AC-3", "ec-3": "E-AC-3" };
const SPEECH_CODECS: Record<string, string> = { samr: "AMR", sawb: "AMR-WB", ulaw: "uLaw 2:1", alaw: "aLaw 2:1" };
/** By "acmod", without the channel for low frequencies. */
const AC3_CHANNELS = [2, 1, 2, 3, 3, 4, 4, 5];
const PCM = /^(sowt|twos|lpcm|in24|in32|fl32|fl64|raw |NONE|ipcm|fpcm)$/;

/** The first entry of a sample description: of sound in all its versions, of anything else the format alone. */
async function readSampleEntry(source: RangeSource, start: number, end: number) {
  const head = await source.copy(start, 72);
  const format = latin1(head, 4, 4);
  const version = uint(head, 16, 2);
  const isPcm = PCM.test(format);
  let codec = isPcm ? "PCM" : (CODECS[format] ?? SPEECH_CODECS[format] ?? null);
  let channels = version === 2 ? uint(head, 48, 4) : uint(head, 24, 2);
  let sampleRate = version === 2 ? new DataView(head.buffer).getFloat64(40) : uint(head, 32, 2);
  let objectType = format === ".mp3" || format === "ms\0U" ? 0x6b : 0;
  const inner = start + 36 + (version === 1 ? 16 : version === 2 ? 36 : 0);
  for await (const { name, data } of boxes(source, inner, Math.min(end, start + uint(head, 0, 4)))) {
    const body = await source.copy(data, 256);
    if (name === "dac3") channels = (AC3_CHANNELS[(byte(body, 1) >> 3) & 7] ?? 0) + ((byte(body, 1) >> 2) & 1);
    if (name === "dOps") channels = byte(body, 1);
    if (name === "alac") [channels, sampleRate] = [byte(body, 13), uint(body, 24, 4)];
    if (name === "dfLa") [channels, sampleRate] = [((byte(body, 20) >> 1) & 7) + 1, uint(body, 18, 3) >> 4];
    if (name !== "esds") continue;
    const config = readDecoderConfig(body.subarray(4));
    objectType = config.objectType;
    if (!isAac(objectType)) continue;
    const decoded = readAudioSpecificConfig(config.specific);
    channels = decoded.channels || channels;
    sampleRate = decoded.sampleRate || sampleRate;
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

/** The object type and the decoder's own set-up out of an ES descriptor (ISO/IEC 14496-1, 7.2.6). */
function readDecoderConfig(descriptor: Uint8Array) {
  let objectType = 0;
  for (let at = 0; at < descriptor.length; ) {
    const tag = byte(descriptor, at++);
    while (byte(descriptor, at) >= 128) at++;
    const length = byte(descriptor, at++);
    if (tag === 5) return { objectType, specific: descriptor.subarray(at, at + length) };
    if (tag === 4) objectType = byte(descriptor, at);
    // MP4 leaves out the optional fields of an ES descriptor (14496-14, 3.1.2).
    at += tag === 3 ? 3 : tag === 4 ? 13 : length;
  }
  return { objectType, specific: new Uint8Array() };
}

/**
 * What comes out of an AAC decoder (ISO/IEC 14496-3, 1.6.2.1): with spectral band replication at another rate than the
 * one coded, with parametric stereo in two channels where one is coded. 0 is "not told here".
 */
function readAudioSpecificConfig(config: Uint8Array): { channels: number; sampleRate: number } {
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
  // Older decoders are told of a plain stream, and newer ones of the extensions behind it.
  const sync = all.indexOf("01010110111", at + 3);
  if (type === 5 || type === 29) sampleRate = rate();
  else if (sync >= 0) {
    at = sync + 11;
    if (objectType() === 5 && bits(1) === 1) sampleRate = rate();
    hasParametricStereo = bits(11) === 0x548 && bits(1) === 1;
  }
  return { channels: hasParametricStereo && channels === 1 ? 2 : channels, sampleRate };
}
