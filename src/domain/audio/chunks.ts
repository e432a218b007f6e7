import { walkFrames } from "./mpeg.ts";
import {
  be32,
  byte,
  join,
  latin1,
  le32,
  type RangeSource,
  type Reading,
  UnreadableAudio,
  uint,
  uintLE,
} from "./range-source.ts";
import { MAX_ITEMS, type ReadText, readId3Text, readTexts, type TextBudget } from "./tags.ts";

/* Formats made of chunks with a name and a length: WAV (RIFF, RF64, BW64), AIFF, DSF and ASF. */

/** The chunks between `start` and `end`, at most `MAX_ITEMS`, as IFF lays them out: each begins at an even place. */
async function* chunks(source: RangeSource, start: number, end: number, isBig: boolean) {
  for (let at = start, n = 0; at + 8 <= end && n < MAX_ITEMS; n++) {
    const head = await source.upTo(at, 8);
    if (head.length < 8) return;
    const length = isBig ? uint(head, 4, 4) : uintLE(head, 4, 4);
    yield { name: latin1(head.subarray(0, 4)), data: at + 8, length };
    at += 8 + length + (length % 2);
  }
}

const WAVE_EXTENSIBLE = 0xfffe;
/** Names as the parser gives them, by format code. Samples are all of one size. */
const WAVE_SAMPLES: Record<number, string> = { 1: "PCM", 3: "IEEE_FLOAT", 6: "ALAW", 7: "MULAW" };
/** Blocks all hold as many samples as the format chunk says. */
const WAVE_BLOCKS: Record<number, string> = { 2: "ADPCM", 17: "DVI_ADPCM", 49: "GSM610" };
const WAVE_FRAMES: Record<number, string> = { 80: "MPEG", 85: "MPEGLAYER3" };

/**
 * WAV, also beyond 4 GiB (EBU Tech 3306, ITU-R BS.2088). The length is that of the samples that are there: a `data`
 * chunk of length 0 or of more than there is, as a recorder leaves it that died, goes to the end of the file. Of codecs
 * other than PCM, ADPCM, GSM and MPEG it is by the stated bytes per second.
 */
export async function readWav(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  let format: Uint8Array | null = null;
  let sound: { start: number; end: number } | null = null;
  let longDataBytes = 0;
  const texts: ReadText[] = [];
  let at = start + 12;
  // A long `data` chunk is known by its place alone, so that the walk goes on behind it.
  for (let isDone = false; !isDone; ) {
    isDone = true;
    for await (const { name, data, length } of chunks(source, at, source.size, false)) {
      if (name === "ds64") longDataBytes = uintLE(await source.upTo(data + 8, 8), 0, 8);
      if (name === "fmt " && length >= 16) format ??= await source.copy(data, Math.min(length, 64));
      if (name === "CSET" && length <= 64) texts.push(async () => riffChunk("CSET", await source.copy(data, length)));
      if (name === "LIST") texts.push(() => readInfoTexts(source, data, data + length, budget));
      if (/^id3 $/i.test(name)) texts.push(async () => riffChunk("id3 ", await readId3Text(source, data, budget)));
      if (name !== "data" || sound) continue;
      const isLong = length === 0xffffffff && longDataBytes > 0;
      let end = data + (isLong ? longDataBytes : length);
      if (end > source.size || (length === 0 && !(await isChunk(source, data)))) end = source.size;
      sound = { start: data, end };
      if (end === data + length) continue;
      isDone = false;
      at = end + (end % 2);
      break;
    }
  }
  if (!format || !sound) throw new UnreadableAudio("The file has no readable audio stream.");
  let codec = uintLE(format, 0, 2);
  // The true code begins the sub-format's GUID.
  if (codec === WAVE_EXTENSIBLE && format.length >= 26) codec = uintLE(format, 24, 2);
  const channels = uintLE(format, 2, 2);
  const rate = uintLE(format, 4, 4);
  const blockBytes = uintLE(format, 12, 2);
  const bytes = sound.end - sound.start;
  let seconds = bytes / uintLE(format, 8, 4);
  if (WAVE_SAMPLES[codec]) seconds = Math.floor(bytes / blockBytes) / rate;
  const blockSamples = uintLE(format, 18, 2);
  if (WAVE_BLOCKS[codec] && blockSamples > 0) seconds = (Math.floor(bytes / blockBytes) * blockSamples) / rate;
  if (WAVE_FRAMES[codec]) ({ seconds } = await walkFrames(source, sound.start, sound.end));
  return {
    container: "WAVE",
    codec: WAVE_SAMPLES[codec] ?? WAVE_BLOCKS[codec] ?? WAVE_FRAMES[codec] ?? `non-PCM (${codec})`,
    sampleRate: rate,
    channels,
    lossless: codec === 1 || codec === 3,
    seconds,
    soundBytes: bytes,
    readTags: async () => riffChunk("RIFF", join("WAVE", ...(await readTexts(texts)))),
  };
}

/** A chunk of IFF: a name, a length, the body, and one byte more where that is odd. Empty where the body is. */
function iffChunk(name: string, body: Uint8Array, length = be32(body.length)): Uint8Array {
  return body.length === 0 ? body : join(name, length, body, body.length % 2 === 1 ? "\0" : "");
}

function riffChunk(name: string, body: Uint8Array): Uint8Array {
  return iffChunk(name, body, le32(body.length));
}

/** Whether a chunk begins at `at` and fits: an empty `data` chunk followed by others is truly empty. */
async function isChunk(source: RangeSource, at: number): Promise<boolean> {
  const head = await source.upTo(at, 8);
  return /^[\w ]{4}$/.test(latin1(head.subarray(0, 4))) && at + 8 + uintLE(head, 4, 4) <= source.size;
}

/** The texts of a LIST chunk of the type INFO, as such a chunk; empty without any. */
async function readInfoTexts(source: RangeSource, start: number, end: number, budget: TextBudget) {
  if (latin1(await source.copy(start, 4)) !== "INFO") return new Uint8Array();
  const texts: Uint8Array[] = [];
  for await (const { name, data, length } of chunks(source, start + 4, end, false)) {
    if (!/^[\w ]{4}$/.test(name) || data + length > source.size) break;
    if (length > 0 && budget.admits(length)) texts.push(riffChunk(name, await source.copy(data, length)));
  }
  return texts.length === 0 ? new Uint8Array() : riffChunk("LIST", join("INFO", ...texts));
}

/** Bytes a sample of the types of AIFF-C in which a frame is a sample of each channel, where the size isn't stated. */
const AIFC_SAMPLE_BYTES: Record<string, number> = { ulaw: 1, ULAW: 1, alaw: 1, ALAW: 1, fl32: 4, FL32: 4, fl64: 8 };
const AIFC_PCM = ["NONE", "sowt", "twos", "in24", "in32", "raw "];

/**
 * AIFF and AIFF-C. The length is that of the samples that are there, of which there may be fewer than stated, and more
 * where the recorder died before it stated any. Of codecs with frames of other sizes it is the stated one, in
 * proportion to the part of the sound that is there.
 */
export async function readAiff(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const type = latin1(await source.copy(start + 8, 4));
  let common: Uint8Array | null = null;
  let sound: { bytes: number; statedBytes: number } | null = null;
  const texts: ReadText[] = [];
  for await (const { name, data, length } of chunks(source, start + 12, source.size, true)) {
    if (name === "COMM" && length >= 18) common ??= await source.copy(data, Math.min(length, 22 + 256));
    if (/^(NAME|AUTH|\(c\) |ANNO)$/.test(name) && length > 0 && budget.admits(length)) {
      texts.push(async () => iffChunk(name, await source.copy(data, length)));
    }
    if (name === "ID3 ") texts.push(async () => iffChunk("ID3 ", await readId3Text(source, data, budget)));
    if (name !== "SSND" || sound) continue;
    const rest = Math.max(0, source.size - data - 8);
    const isUnfinished = length <= 8 && !(await isChunk(source, data + length));
    sound = { bytes: isUnfinished ? rest : Math.min(length - 8, rest), statedBytes: length - 8 };
    if (isUnfinished) break;
  }
  if (!common || !sound) throw new UnreadableAudio("The file has no readable audio stream.");
  const channels = uint(common, 0, 2);
  let frames = uint(common, 2, 4);
  const exponent = uint(common, 8, 2) - 16383;
  const sampleRate = uint(common, 10, 4) * 2 ** (exponent - 31);
  const codec = type === "AIFC" ? latin1(common.subarray(18, 22)) : "NONE";
  if (codec === "ima4") frames *= 64; // packets are stated
  const sampleBytes = AIFC_PCM.includes(codec) ? Math.ceil(uint(common, 6, 2) / 8) : (AIFC_SAMPLE_BYTES[codec] ?? 0);
  let framesThere = (frames * sound.bytes) / Math.max(sound.statedBytes, 1);
  if (sampleBytes > 0) framesThere = Math.floor(sound.bytes / (sampleBytes * channels));
  const isStated = frames > 0 && sound.statedBytes > 0;
  const isPcm = AIFC_PCM.includes(codec);
  const name = latin1(common.subarray(23, 23 + byte(common, 22)));
  return {
    container: type === "AIFC" ? "AIFF-C" : type,
    codec: isPcm ? "PCM" : name || codec,
    sampleRate,
    channels,
    lossless: isPcm || /^fl(32|64)$/i.test(codec),
    seconds: (isStated ? Math.min(frames, framesThere) : framesThere) / sampleRate,
    soundBytes: sound.bytes,
    readTags: async () => iffChunk("FORM", join("AIFF", ...(await readTexts(texts)))),
  };
}

/** DSF (Sony's DSF File Format Specification): one bit a sample, the tag behind the sound. */
export async function readDsf(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const head = await source.copy(start, 92);
  if (latin1(head.subarray(28, 32)) !== "fmt " || latin1(head.subarray(80, 84)) !== "data") {
    throw new UnreadableAudio("The file has no readable audio stream.");
  }
  const tagAt = uintLE(head, 20, 8);
  const channels = uintLE(head, 52, 4);
  const end = Math.min(tagAt > 0 ? start + tagAt : source.size, start + 80 + uintLE(head, 84, 8), source.size);
  const soundBytes = Math.max(0, end - start - 92);
  const samples = Math.min(uintLE(head, 64, 8), (soundBytes * 8) / channels / (uintLE(head, 60, 4) || 1));
  const sampleRate = uintLE(head, 56, 4);
  return {
    container: "DSF",
    codec: "DSD",
    sampleRate,
    channels,
    lossless: true,
    seconds: samples / sampleRate,
    soundBytes,
    readTags: async () => (tagAt > 0 ? readId3Text(source, start + tagAt, budget) : new Uint8Array()),
  };
}

/** The objects of ASF that matter, by the first four bytes of their GUIDs. */
const ASF = {
  fileProperties: 0x8cabdca1,
  streamProperties: 0xb7dc0791,
  codecs: 0x86d15240,
  content: 0x75b22633,
  extendedContent: 0xd2d0a440,
};
const ASF_VIDEO = 0xbc19efc0;
const ASF_AUDIO = 0xf8699e40;
/** What a header object other than the texts is long at most. */
const MAX_ASF_OBJECT_BYTES = 8 * 1024;

/**
 * ASF, which holds Windows Media Audio. Packets are all of one size and say when they are sent and how long they last:
 * the length is by the first and the last one, unless all stated packets are there and the stated length is near it.
 */
export async function readAsf(source: RangeSource, start: number, budget: TextBudget): Promise<Reading> {
  const head = await source.copy(start, 30);
  const headerBytes = uintLE(head, 16, 8);
  const texts: ReadText[] = [];
  let hasVideo = false;
  let wave: Uint8Array | null = null;
  let codec: string | null = null;
  let properties: Uint8Array = new Uint8Array();
  let at = start + 30;
  for (let n = 0; n < MAX_ITEMS && at + 24 <= start + headerBytes; n++) {
    const object = await source.copy(at, MAX_ASF_OBJECT_BYTES);
    const id = uintLE(object, 0, 4);
    const [from, length] = [at, uintLE(object, 16, 8)];
    if (length < 24) break;
    if (id === ASF.fileProperties) properties = object;
    if (id === ASF.streamProperties) hasVideo ||= uintLE(object, 24, 4) === ASF_VIDEO;
    if (id === ASF.streamProperties && uintLE(object, 24, 4) === ASF_AUDIO) wave ??= object.subarray(78);
    if (id === ASF.codecs) codec = asfAudioCodec(object);
    if (id === ASF.content && budget.admits(length)) texts.push(() => source.copy(from, length));
    if (id === ASF.extendedContent) texts.push(() => readAsfTexts(source, from, length, budget));
    at += length;
  }
  const soundAt = start + headerBytes + 50;
  const packetBytes = uintLE(properties, 92, 4);
  const packets = Math.floor((source.size - soundAt) / packetBytes);
  const statedPackets = uintLE(properties, 56, 8);
  const stated = uintLE(properties, 64, 8) / 1e7 - uintLE(properties, 80, 8) / 1e3;
  const first = await asfPacketTime(source, soundAt);
  const last = await asfPacketTime(source, soundAt + (Math.min(packets, statedPackets || packets) - 1) * packetBytes);
  const measured = packets > 0 ? (last.ms + last.durationMs - first.ms) / 1000 : 0;
  const isNear = packets >= statedPackets && Math.abs(measured - stated) < 1 + stated / 10;
  if (!wave && !hasVideo) throw new UnreadableAudio("The file has no audio stream.");
  return {
    container: "ASF/audio",
    codec,
    sampleRate: uintLE(wave ?? head, 4, 4),
    channels: uintLE(wave ?? head, 2, 2),
    lossless: null,
    seconds: isNear ? stated : measured,
    soundBytes: Math.max(0, source.size - soundAt),
    hasVideo,
    readTags: async () => {
      const objects = await readTexts(texts);
      const body = join(...objects);
      const size = join(le32(30 + body.length), le32(0), le32(objects.length));
      return join(head.subarray(0, 16), size, head.subarray(28), body);
    },
  };
}

/** The name of the first audio codec in a Codec List Object: entries of a type, a name, a description and data. */
function asfAudioCodec(object: Uint8Array): string | null {
  let at = 44;
  for (let n = uintLE(object, 40, 4); n > 0 && at < object.length; n--) {
    const [type, nameAt] = [uintLE(object, at, 2), at + 4];
    at = nameAt + 2 * uintLE(object, at + 2, 2);
    if (type === 2) return new TextDecoder("utf-16le").decode(object.subarray(nameAt, at)).replace(/\0.*/s, "");
    at += 2 + 2 * uintLE(object, at, 2);
    at += 2 + uintLE(object, at, 2);
  }
  return null;
}

/** When a data packet is sent and for how long it plays, in milliseconds (ASF specification, 5.2.2). */
async function asfPacketTime(source: RangeSource, start: number): Promise<{ ms: number; durationMs: number }> {
  const packet = await source.copy(start, 40);
  const correction = byte(packet, 0);
  const at = correction >= 0x80 ? 1 + (correction & 15) : 0;
  // Three fields of 0, 1, 2 or 4 bytes: the lengths of the packet, the sequence and the padding.
  const bytes = [5, 1, 3].map((shift) => [0, 1, 2, 4][(byte(packet, at) >> shift) & 3] ?? 0);
  const time = at + 2 + bytes.reduce((sum, b) => sum + b);
  return { ms: uintLE(packet, time, 4), durationMs: uintLE(packet, time + 4, 2) };
}

/** An Extended Content Description Object without its pictures and other bytes. */
async function readAsfTexts(source: RangeSource, start: number, length: number, budget: TextBudget) {
  const head = await source.copy(start, 26);
  const items: Uint8Array[] = [];
  let at = start + 26;
  for (let n = 0; n < Math.min(uintLE(head, 24, 2), MAX_ITEMS) && at < start + length; n++) {
    const nameBytes = uintLE(await source.copy(at, 2), 0, 2);
    const type = await source.copy(at + 2 + nameBytes, 4);
    const itemBytes = 6 + nameBytes + uintLE(type, 2, 2);
    const isBytes = uintLE(type, 0, 2) === 1;
    if (type.length === 4 && !isBytes && budget.admits(itemBytes)) items.push(await source.copy(at, itemBytes));
    at += itemBytes;
  }
  const body = join(...items);
  const count = Uint8Array.of(items.length & 255, items.length >> 8);
  return items.length === 0 ? body : join(head.subarray(0, 16), le32(26 + body.length), le32(0), count, body);
}
