import { walkFrames } from "./frames.ts";
import type { Pcm, RangeSource, Reading, Segment } from "./range-source.ts";
import { be32, byte, join, latin1, le32, MIN_WINDOW_BYTES, UnreadableAudio, uint, uintLE } from "./range-source.ts";
import { copyTexts, isUtf8, makeNamedTag, makeUtf8Tag, type ReadText, readId3Text, readTexts } from "./tags.ts";

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

/** The code page 65001, without a country, a language, and a dialect. */
const UTF8_CHARSET = Uint8Array.of(0xe9, 0xfd, 0, 0, 0, 0, 0, 0);
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
  let statedBytes = 0;
  let statedSamples = 0;
  let longDataBytes = 0;
  let hasCharset = false;
  const values: Uint8Array[] = [];
  const texts: ReadText[] = [];
  for await (const segment of chunks(source, 12, source.size, uintLE)) {
    const { name, data, end } = segment;
    if (name === "ds64") longDataBytes = uintLE(await source.read(data, 16), 8, 8);
    if (name === "fmt ") format ??= await source.read(data, Math.min(end - data, 64));
    if (name === "fact") statedSamples ||= uintLE(await source.read(data, 4));
    hasCharset ||= name === "CSET";
    if (name === "CSET" && source.budget.chargeText(end - data)) {
      texts.push(async () => chunk(name, le32, await source.read(data, end - data)));
    }
    if (name === "LIST") texts.push(() => readInfoTexts(source, segment, values));
    if (/^id3 $/i.test(name)) texts.push(async () => chunk("id3 ", le32, await readId3Text(source, data)));
    if (name !== "data" || sound) continue;
    let soundEnd = end - data === 0xffffffff && longDataBytes > 0 ? data + longDataBytes : end;
    statedBytes = soundEnd - data;
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
  // A stated length is used only if nothing can be counted: samples, which are those of all stated bytes, or a rate.
  const hasSamples = statedSamples > 0 && statedBytes > 0;
  const stated = (statedSamples / sampleRate) * Math.min(1, bytes / statedBytes);
  let seconds = hasSamples ? stated : bytes / uintLE(format, 8, 4);
  if (WAVE_SAMPLES[codec]) seconds = blocks / sampleRate;
  if (WAVE_BLOCKS[codec] && blockSamples > 0) seconds = (blocks * blockSamples) / sampleRate;
  const name = WAVE_SAMPLES[codec] ?? WAVE_BLOCKS[codec] ?? WAVE_FRAMES[codec] ?? `non-PCM (${codec})`;
  if (WAVE_FRAMES[codec]) ({ seconds } = await walkFrames(source, sound.start, sound.end));
  const readTags = async () => {
    const all = await readTexts(texts);
    // Without a stated character set, texts are Latin-1.
    const charset = hasCharset || !isUtf8(join(...values)) ? "" : chunk("CSET", le32, UTF8_CHARSET);
    return chunk("RIFF", le32, join("WAVE", charset, all));
  };
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

/** Returns the texts of a LIST chunk of type INFO as such a chunk; empty if there are none. Adds them to `values`. */
async function readInfoTexts(source: RangeSource, { data, end }: Segment, values: Uint8Array[]): Promise<Uint8Array> {
  const type = await source.read(data, 4);
  const segments = chunks(source, data + 4, end, uintLE);
  const isText = (segment: Segment) => /^[\w ]{4}$/.test(segment.name) && segment.end > segment.data;
  const texts = latin1(type) === "INFO" ? await copyTexts(source, segments, isText) : [];
  values.push(...texts.map((text) => text.subarray(8)));
  return texts.length === 0 ? new Uint8Array() : chunk("LIST", le32, join(type, ...texts));
}

/** The names of texts in ID3v2.2. */
const AIFF_TEXTS: Record<string, string> = { NAME: "TT2", AUTH: "TP1", "(c) ": "TCR", ANNO: "COM" };
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
      texts.push(async () => {
        const text = await source.read(data, end - data);
        return isUtf8(text)
          ? chunk("ID3 ", be32, makeUtf8Tag([[AIFF_TEXTS[name] ?? "", text]]))
          : chunk(name, be32, text);
      });
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

/** By the names in the description chunk (Apple Core Audio Format Specification). */
const CAF_CODECS: Record<string, string> = {
  lpcm: "PCM",
  "aac ": "MPEG-4/AAC",
  aach: "MPEG-4/AAC",
  aacp: "MPEG-4/AAC",
  alac: "ALAC",
  flac: "FLAC",
  opus: "Opus",
  ulaw: "uLaw 2:1",
  alaw: "aLaw 2:1",
  ima4: "IMA ADPCM",
  ".mp3": "MPEG audio",
  "ac-3": "AC-3",
  "ec-3": "E-AC-3",
};

/** Reads CAF. The length is that of the packets that exist: of a fixed size, or as many as the packet table states. */
export async function readCaf(source: RangeSource): Promise<Reading> {
  let description: Uint8Array | null = null;
  let tableFrames: number | null = null;
  let sound: { bytes: number; statedBytes: number } | null = null;
  let readTags: Reading["readTags"] = async () => new Uint8Array();
  const segments = source.segments(8, source.size, 12, (header, at) => {
    const length = uint(header, 4, 8);
    // Sound of a length of -1 extends to the end of the file.
    const bodyBytes = length >= 2 ** 63 ? source.size - at - 12 : length;
    return header.length < 12 ? null : { name: latin1(header, 0, 4), headerBytes: 12, bodyBytes };
  });
  for await (const { name, data, end } of segments) {
    if (name === "desc") description ??= await source.read(data, 32);
    if (name === "info") readTags = async () => makeNamedTag(await readPairs(source, data, end));
    if (name === "pakt") tableFrames ??= uint(await source.read(data, 16), 8, 8);
    // An edit count of four bytes is in front of the sound.
    if (name === "data") {
      const statedBytes = Math.max(0, end - data - 4);
      sound ??= { bytes: Math.max(0, Math.min(statedBytes, source.size - data - 4)), statedBytes };
    }
  }
  if (!description || !sound) throw new UnreadableAudio("The file has no readable audio stream.");
  const view = new DataView(description.buffer, description.byteOffset);
  const [sampleRate, format] = [description.length < 32 ? 0 : view.getFloat64(0), latin1(description, 8, 4)];
  const [packetBytes, packetFrames, channels] = [16, 20, 24].map((at) => uint(description, at, 4)) as [
    number,
    number,
    number,
  ];
  const facts = { container: "CAF", codec: CAF_CODECS[format] ?? format, sampleRate, channels };
  const lossless = /^(lpcm|alac|flac)$/.test(format);
  const reading = { ...facts, lossless, soundBytes: sound.bytes, readTags };
  if (packetBytes > 0) {
    return { ...reading, seconds: (Math.floor(sound.bytes / packetBytes) * packetFrames) / sampleRate };
  }
  const seconds = tableFrames === null ? null : tableFrames / sampleRate;
  return { ...reading, seconds, statedBytes: sound.statedBytes };
}

/** Returns the names and the texts of the information chunk of CAF, with the zeros between them. */
async function readPairs(source: RangeSource, start: number, chunkEnd: number): Promise<Uint8Array[]> {
  const info = await source.read(start, Math.min(chunkEnd - start, MIN_WINDOW_BYTES));
  const pairs: Uint8Array[] = [];
  for (let at = 4; at < info.length; ) {
    const nameEnd = info.indexOf(0, at);
    const end = info.indexOf(0, nameEnd + 1);
    if (nameEnd < 0 || end < 0 || !source.budget.chargeText(end - at)) break;
    pairs.push(info.subarray(at, end));
    at = end + 1;
  }
  return pairs;
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
/** Work units to read one payload of a packet. */
const PAYLOAD_WORK = 200;
const MAX_ASF_CODECS_BYTES = 8 * 1024;
const MAX_ASF_NAME_BYTES = 512;

/** Far longer than a packet of sound. A stated length that differs by more is wrong. */
const ASF_TOLERANCE_SECONDS = 1;
/** The sound in front of the end that is searched for the last time: streams alternate. */
const MAX_ASF_LAST_PACKETS = 32;

/**
 * Reads ASF, the container of Windows Media Audio. Packets have a fixed size and state the time at which their sound is played;
 * they may be sent long before. The length runs from the first packet to the last one. The stated length counts if it is
 * close and no packet is missing.
 */
export async function readAsf(source: RangeSource): Promise<Reading | null> {
  const head = await source.read(0, 30);
  const headerEnd = uintLE(head, 16, 8);
  const texts: ReadText[] = [];
  let wave: Uint8Array | null = null;
  let streamNumber = 0;
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
      if (type === ASF_STREAM.audio && !wave) [wave, streamNumber] = [stream.subarray(54), byte(stream, 48) & 127];
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
  const timesAt = (n: number) => asfTimes(source, soundAt + n * packetBytes, packetBytes, streamNumber);
  const count = Math.min(packets, statedPackets || packets);
  let [first, last, beforeLast] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let n = 0; n < Math.min(count, MAX_ASF_LAST_PACKETS) && first === Number.POSITIVE_INFINITY; n++) {
    first = Math.min(...(await timesAt(n)));
  }
  for (let n = 1; n <= Math.min(count, MAX_ASF_LAST_PACKETS) && beforeLast <= first; n++) {
    for (const time of await timesAt(count - n)) {
      if (time > last) [beforeLast, last] = [last, time];
      else if (time < last) beforeLast = Math.max(beforeLast, time);
    }
  }
  // The last sound is assumed to be as long as the one before it.
  const measured =
    last < first ? (count > 0 ? stated : 0) : (last - first + Math.max(0, last - Math.max(first, beforeLast))) / 1000;
  const isNear = packets >= statedPackets && Math.abs(measured - stated) < ASF_TOLERANCE_SECONDS + stated / 100;
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

/**
 * Reads when the sound in a data packet begins to play, in milliseconds: the times of its payloads of this stream (ASF
 * specification, 5.2).
 */
async function asfTimes(source: RangeSource, start: number, packetBytes: number, stream: number): Promise<number[]> {
  const packet = await source.read(start, Math.min(packetBytes, MIN_WINDOW_BYTES));
  let at = byte(packet, 0) >= 0x80 ? 1 + (byte(packet, 0) & 15) : 0;
  const [lengths, properties] = [byte(packet, at), byte(packet, at + 1)];
  at += 2;
  /** Reads a field of 0, 1, 2, or 4 bytes, whose length is in two bits of `flags`. */
  const field = (flags: number, shift: number) => {
    const bytes = [0, 1, 2, 4][(flags >> shift) & 3] ?? 0;
    at += bytes;
    return uintLE(packet, at - bytes, bytes);
  };
  // The length of the packet and its sequence, then the padding, the send time, and the duration.
  for (const shift of [5, 1]) field(lengths, shift);
  const end = packet.length - field(lengths, 3);
  at += 6;
  const isSingle = (lengths & 1) === 0;
  const flags = isSingle ? 1 : byte(packet, at++);
  const times: number[] = [];
  for (let left = flags & 63; left > 0 && at < end; left--) {
    source.budget.charge(PAYLOAD_WORK);
    const isOurs = (byte(packet, at++) & 127) === stream;
    field(properties, 4);
    const offset = field(properties, 2);
    const replicatedBytes = field(properties, 0);
    // If it has one byte, it belongs to several small objects, and the offset is their time.
    const time = replicatedBytes === 1 ? offset : uintLE(packet, at + 4, 4);
    if (isOurs && (replicatedBytes === 1 || replicatedBytes >= 8)) times.push(time);
    at += replicatedBytes;
    at += isSingle ? 0 : field(flags, 6);
  }
  return times;
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
