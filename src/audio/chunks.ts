import { walkFrames } from "./frames.ts";
import type { Pcm, RangeSource, Reading, Segment } from "./range-source.ts";
import { be32, byte, join, latin1, le32, UnreadableAudio, uint, uintLE } from "./range-source.ts";
import { copyTexts, type ReadText, readId3Text, readTexts } from "./tags.ts";

/* Formats of chunks with a name and a length: WAV (RIFF, RF64, BW64), AIFF, DSF, and ASF. */

/** Yields the chunks of an IFF file. `toLength` reads their lengths. */
function chunks(source: RangeSource, start: number, end: number, toLength: typeof uint) {
  return source.segments(start, end, 8, (header) => {
    const [name, bodyBytes] = [latin1(header, 0, 4), toLength(header, 4, 4)];
    return header.length < 8 ? null : { name, headerBytes: 8, bodyBytes, paddingBytes: bodyBytes % 2 };
  });
}

/** Makes a chunk for music-metadata; empty if its body is. */
function chunk(name: string, toBytes: typeof le32, body: Uint8Array): Uint8Array {
  return body.length === 0 ? body : join(name, toBytes(body.length), body, new Uint8Array(body.length % 2));
}

/** Whether a chunk begins at `at` and fits. An empty chunk of sound really is empty if another chunk follows it. */
async function isChunk(source: RangeSource, at: number, toLength: typeof uint): Promise<boolean> {
  const head = await source.read(at, 8);
  return /^[\w ]{4}$/.test(latin1(head, 0, 4)) && at + 8 + toLength(head, 4, 4) <= source.size;
}

const WAVE_EXTENSIBLE = 0xfffe;
/** Names by format code: formats with samples of a fixed size, with blocks of as many samples each, and with frames. */
const WAVE_SAMPLES: Record<number, string> = { 1: "PCM", 3: "IEEE_FLOAT", 6: "ALAW", 7: "MULAW" };
const WAVE_BLOCKS: Record<number, string> = { 2: "ADPCM", 17: "DVI_ADPCM", 49: "GSM610" };
const WAVE_FRAMES: Record<number, string> = { 80: "MPEG", 85: "MPEGLAYER3" };

/**
 * Reads WAV, also beyond 4 GiB (EBU Tech 3306, ITU-R BS.2088). The length is that of the samples that exist. A recorder
 * that crashes leaves a `data` chunk of length 0 or of more than the file contains: it extends to the end of the file.
 */
export async function readWav(source: RangeSource): Promise<Reading> {
  let format: Uint8Array | null = null;
  let sound: { start: number; end: number } | null = null;
  let longDataBytes = 0;
  const texts: ReadText[] = [];
  for await (const segment of chunks(source, 12, source.size, uintLE)) {
    const { name, data, end } = segment;
    if (name === "ds64") longDataBytes = uintLE(await source.read(data, 16), 8, 8);
    if (name === "fmt ") format ??= await source.read(data, Math.min(end - data, 64));
    if (name === "CSET" && source.budget.chargeText(end - data)) {
      texts.push(async () => chunk(name, le32, await source.read(data, end - data)));
    }
    if (name === "LIST") texts.push(() => readInfoTexts(source, segment));
    if (/^id3 $/i.test(name)) texts.push(async () => chunk("id3 ", le32, await readId3Text(source, data)));
    if (name !== "data" || sound) continue;
    let soundEnd = end - data === 0xffffffff && longDataBytes > 0 ? data + longDataBytes : end;
    const isUnfinished = end === data && !(await isChunk(source, data, uintLE));
    if (isUnfinished || soundEnd > source.size) soundEnd = source.size;
    sound = { start: data, end: soundEnd };
    segment.next = soundEnd + (soundEnd % 2);
  }
  if (!format || !sound) throw new UnreadableAudio("The file has no readable audio stream.");
  // The GUID of the sub-format begins with the actual code of an extensible format.
  const codec = uintLE(format, uintLE(format, 0, 2) === WAVE_EXTENSIBLE ? 24 : 0, 2);
  const sampleRate = uintLE(format, 4, 4);
  const bytes = sound.end - sound.start;
  const blocks = Math.floor(bytes / uintLE(format, 12, 2));
  const blockSamples = uintLE(format, 18, 2);
  // The stated bytes per second are used only if nothing can be counted.
  let seconds = bytes / uintLE(format, 8, 4);
  if (WAVE_SAMPLES[codec]) seconds = blocks / sampleRate;
  if (WAVE_BLOCKS[codec] && blockSamples > 0) seconds = (blocks * blockSamples) / sampleRate;
  const name = WAVE_SAMPLES[codec] ?? WAVE_BLOCKS[codec] ?? WAVE_FRAMES[codec] ?? `non-PCM (${codec})`;
  if (WAVE_FRAMES[codec]) ({ seconds } = await walkFrames(source, sound.start, sound.end));
  const readTags = async () => chunk("RIFF", le32, join("WAVE", await readTexts(texts)));
  const channels = uintLE(format, 2, 2);
  const encoding = waveEncoding(codec, uintLE(format, 12, 2) / channels);
  const facts = { container: "WAVE", codec: name, sampleRate, channels };
  return {
    ...facts,
    pcm: encoding && { ...sound, ...encoding, isLittleEndian: true },
    lossless: codec === 1 || codec === 3,
    seconds,
    soundBytes: bytes,
    readTags,
  };
}

const SAMPLE_BYTES = { signed: [2, 3, 4], unsigned: [1], float: [4, 8], alaw: [1], mulaw: [1] };

/** @returns undefined if the samples aren't numbers, or have another size */
function waveEncoding(codec: number, sampleBytes: number): Pick<Pcm, "encoding" | "sampleBytes"> | undefined {
  const integer = sampleBytes === 1 ? ("unsigned" as const) : ("signed" as const);
  const encoding = ({ 1: integer, 3: "float", 6: "alaw", 7: "mulaw" } as const)[codec];
  return encoding && SAMPLE_BYTES[encoding].includes(sampleBytes) ? { encoding, sampleBytes } : undefined;
}

/** Returns the texts of a LIST chunk of type INFO as such a chunk; empty if there are none. */
async function readInfoTexts(source: RangeSource, { data, end }: Segment): Promise<Uint8Array> {
  const type = await source.read(data, 4);
  const segments = chunks(source, data + 4, end, uintLE);
  const isText = (segment: Segment) => /^[\w ]{4}$/.test(segment.name) && segment.end > segment.data;
  const texts = latin1(type) === "INFO" ? await copyTexts(source, segments, isText) : [];
  return texts.length === 0 ? new Uint8Array() : chunk("LIST", le32, join(type, ...texts));
}

const AIFC_PCM = /^(NONE|sowt|twos|in24|in32|raw )$/;
/** Bytes per sample of the codecs for which COMM need not state them. */
const AIFC_SAMPLE_BYTES: Record<string, number> = { ulaw: 1, alaw: 1, fl32: 4, fl64: 8 };

/**
 * Reads AIFF and AIFF-C. The length is that of the samples that exist: fewer than stated in a truncated file, and more if
 * the recorder crashed before it stated any. For codecs without samples of a fixed size it is the stated length.
 */
export async function readAiff(source: RangeSource): Promise<Reading> {
  const type = latin1(await source.read(8, 4));
  let common: Uint8Array | null = null;
  let sound: { start: number; bytes: number; statedBytes: number } | null = null;
  const texts: ReadText[] = [];
  for await (const { name, data, end } of chunks(source, 12, source.size, uint)) {
    if (name === "COMM") common ??= await source.read(data, Math.min(end - data, 22 + 256));
    if (/^(NAME|AUTH|\(c\) |ANNO)$/.test(name) && end > data && source.budget.chargeText(end - data)) {
      texts.push(async () => chunk(name, be32, await source.read(data, end - data)));
    }
    if (name === "ID3 ") texts.push(async () => chunk("ID3 ", be32, await readId3Text(source, data)));
    if (name !== "SSND" || sound) continue;
    const rest = Math.max(0, source.size - data - 8);
    const statedBytes = Math.max(0, end - data - 8);
    const isUnfinished = statedBytes === 0 && !(await isChunk(source, end, uint));
    sound = { start: data + 8, bytes: isUnfinished ? rest : Math.min(statedBytes, rest), statedBytes };
    if (isUnfinished) break;
  }
  if (!common || !sound) throw new UnreadableAudio("The file has no readable audio stream.");
  const channels = uint(common, 0, 2);
  const codec = type === "AIFC" ? latin1(common, 18, 4) : "NONE";
  const isPcm = AIFC_PCM.test(codec);
  const sampleBytes = isPcm ? Math.ceil(uint(common, 6, 2) / 8) : (AIFC_SAMPLE_BYTES[codec.toLowerCase()] ?? 0);
  // The rate is an 80-bit float.
  const sampleRate = uint(common, 10, 4) * 2 ** (uint(common, 8, 2) - 16383 - 31);
  const foundFrames = Math.floor(sound.bytes / (sampleBytes * channels));
  // For IMA ADPCM, the file states packets of 64 frames.
  const stated = uint(common, 2, 4) * (codec === "ima4" ? 64 : 1);
  const isStated = stated > 0 && sound.statedBytes > 0;
  const readTags = async () => chunk("FORM", be32, join("AIFF", await readTexts(texts)));
  const name = isPcm ? "PCM" : latin1(common, 23, byte(common, 22)) || codec;
  const facts = { container: type === "AIFC" ? "AIFF-C" : type, codec: name, sampleRate, channels };
  const pcm = aiffPcm(codec, sampleBytes, sound);
  const reading = { ...facts, lossless: isPcm || /^fl/i.test(codec), soundBytes: sound.bytes, readTags, pcm };
  if (sampleBytes === 0) return { ...reading, seconds: stated / sampleRate, statedBytes: sound.statedBytes };
  return { ...reading, seconds: (isStated ? Math.min(stated, foundFrames) : foundFrames) / sampleRate };
}

const AIFC_ENCODINGS = { ulaw: "mulaw", alaw: "alaw", fl32: "float", fl64: "float", "raw ": "unsigned" } as const;

/** @returns undefined if the samples aren't numbers, or have an impossible size */
function aiffPcm(codec: string, sampleBytes: number, sound: { start: number; bytes: number }): Pcm | undefined {
  const other = AIFC_ENCODINGS[codec.toLowerCase() as keyof typeof AIFC_ENCODINGS];
  // AIFF has signed bytes, WAV has not.
  const isKnown = other ? SAMPLE_BYTES[other].includes(sampleBytes) : sampleBytes >= 1 && sampleBytes <= 4;
  const place = { start: sound.start, end: sound.start + sound.bytes };
  return isKnown ? { ...place, sampleBytes, encoding: other ?? "signed", isLittleEndian: codec === "sowt" } : undefined;
}

/** Reads DSF (Sony's DSF File Format Specification): one bit per sample, the tag behind the sound. */
export async function readDsf(source: RangeSource): Promise<Reading> {
  const head = await source.read(0, 92);
  if (latin1(head, 28, 4) !== "fmt " || latin1(head, 80, 4) !== "data") {
    throw new UnreadableAudio("The file has no readable audio stream.");
  }
  const tagAt = uintLE(head, 20, 8);
  const [channels, sampleRate, sampleBits] = [uintLE(head, 52, 4), uintLE(head, 56, 4), uintLE(head, 60, 4) || 1];
  const end = Math.min(tagAt > 0 ? tagAt : source.size, 80 + uintLE(head, 84, 8), source.size);
  const soundBytes = Math.max(0, end - 92);
  const samples = Math.min(uintLE(head, 64, 8), (soundBytes * 8) / channels / sampleBits);
  const readTags = async () => (tagAt > 0 ? readId3Text(source, tagAt) : new Uint8Array());
  const facts = { container: "DSF", codec: "DSD", sampleRate, channels, lossless: true };
  return { ...facts, seconds: samples / sampleRate, soundBytes, readTags };
}

/** The ASF objects that are read, by the first four bytes of their GUIDs. */
const ASF = { file: "8cabdca1", stream: "b7dc0791", codecs: "86d15240", content: "75b22633", extended: "d2d0a440" };
const ASF_STREAM = { video: 0xbc19efc0, audio: 0xf8699e40 };
const MAX_ASF_CODECS_BYTES = 8 * 1024;
const MAX_ASF_NAME_BYTES = 512;

/**
 * Reads ASF, the container of Windows Media Audio. Packets have a fixed size and state their send time and duration. The
 * length follows from the first and the last packet. The stated length counts if it is close and no packet is missing.
 */
export async function readAsf(source: RangeSource): Promise<Reading | null> {
  const head = await source.read(0, 30);
  const headerEnd = uintLE(head, 16, 8);
  const texts: ReadText[] = [];
  let wave: Uint8Array | null = null;
  let codec: string | null = null;
  let properties: Uint8Array = new Uint8Array();
  const objects = source.segments(30, headerEnd, 24, (header) => {
    const length = uintLE(header, 16, 8);
    return length < 24 ? null : { name: uintLE(header, 0, 4).toString(16), headerBytes: 24, bodyBytes: length - 24 };
  });
  for await (const object of objects) {
    const { name, start: at, data, end } = object;
    if (name === ASF.file) properties = await source.read(data, 80);
    if (name === ASF.stream) {
      const stream = await source.read(data, 70);
      const type = uintLE(stream, 0, 4);
      if (type === ASF_STREAM.video) return null;
      if (type === ASF_STREAM.audio) wave ??= stream.subarray(54);
    }
    if (name === ASF.codecs) codec ??= asfAudioCodec(await source.read(data, MAX_ASF_CODECS_BYTES));
    if (name === ASF.content && source.budget.chargeText(end - at)) texts.push(() => source.read(at, end - at));
    if (name === ASF.extended) texts.push(() => readAsfTexts(source, object));
  }
  if (!wave) throw new UnreadableAudio("The file has no audio stream.");
  const [channels, sampleRate] = [uintLE(wave, 2, 2), uintLE(wave, 4, 4)];
  const soundAt = headerEnd + 50;
  const packetBytes = uintLE(properties, 68, 4);
  const packets = Math.floor((source.size - soundAt) / packetBytes);
  const statedPackets = uintLE(properties, 32, 8);
  const stated = uintLE(properties, 40, 8) / 1e7 - uintLE(properties, 56, 8) / 1e3;
  const first = await asfPacketTime(source, soundAt);
  const last = await asfPacketTime(source, soundAt + (Math.min(packets, statedPackets || packets) - 1) * packetBytes);
  const measured = packets > 0 ? (last.ms + last.durationMs - first.ms) / 1000 : 0;
  const isNear = packets >= statedPackets && Math.abs(measured - stated) < 1 + stated / 10;
  const readTags = async () => {
    const body = await readTexts(texts);
    return join(head.subarray(0, 16), le32(30 + body.length), le32(0), le32(texts.length), head.subarray(28), body);
  };
  const facts = { container: "ASF/audio", codec, sampleRate, channels, lossless: null };
  const soundBytes = Math.max(0, source.size - soundAt);
  return { ...facts, seconds: isNear ? stated : measured, soundBytes, readTags };
}

/** Returns the name of the first audio codec in a list of entries with a type, a name, a description, and data. */
function asfAudioCodec(list: Uint8Array): string | null {
  let at = 20;
  for (let left = uintLE(list, 16, 4); left > 0 && at < list.length; left--) {
    const [type, nameAt, nameEnd] = [uintLE(list, at, 2), at + 4, at + 4 + 2 * uintLE(list, at + 2, 2)];
    if (type === 2) return new TextDecoder("utf-16le").decode(list.subarray(nameAt, nameEnd)).replace(/\0.*/s, "");
    const dataAt = nameEnd + 2 + 2 * uintLE(list, nameEnd, 2);
    at = dataAt + 2 + uintLE(list, dataAt, 2);
  }
  return null;
}

/** Reads the send time and the duration of a data packet, in milliseconds (ASF specification, 5.2.2). */
async function asfPacketTime(source: RangeSource, start: number): Promise<{ ms: number; durationMs: number }> {
  const packet = await source.read(start, 40);
  const correction = byte(packet, 0);
  const at = correction >= 0x80 ? 1 + (correction & 15) : 0;
  // Three fields of 0, 1, 2, or 4 bytes: the lengths of the packet, the sequence, and the padding.
  const bytes = [5, 1, 3].map((shift) => [0, 1, 2, 4][(byte(packet, at) >> shift) & 3] ?? 0);
  const time = at + 2 + bytes.reduce((sum, b) => sum + b);
  return { ms: uintLE(packet, time, 4), durationMs: uintLE(packet, time + 4, 2) };
}

/** Returns an Extended Content Description Object without pictures and other binary values. */
async function readAsfTexts(source: RangeSource, { start, data, end }: Segment): Promise<Uint8Array> {
  const items = source.segments(data + 2, end, MAX_ASF_NAME_BYTES, (header) => {
    const nameBytes = uintLE(header, 0, 2);
    const isBytes = uintLE(header, 2 + nameBytes, 2) === 1;
    if (header.length < 6 + nameBytes) return null;
    return { name: isBytes ? "" : "text", headerBytes: 6 + nameBytes, bodyBytes: uintLE(header, 4 + nameBytes, 2) };
  });
  const texts = await copyTexts(source, items, ({ name }) => name === "text");
  const body = join(...texts);
  const count = Uint8Array.of(texts.length & 255, texts.length >> 8);
  return join(await source.read(start, 16), le32(26 + body.length), le32(0), count, body);
}
