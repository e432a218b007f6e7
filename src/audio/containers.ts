import { byte, latin1, MAX_WINDOW_BYTES, type RangeSource, uint, uintLE } from "./range-source.ts";

/*
 * Containers whose sound is not read: MPEG transport and program streams (ISO/IEC 13818-1), Flash Video, AVI, and RealMedia.
 * They may contain only sound.
 */

/** Whether a file has sound, and whether it has pictures. */
interface Contents {
  hasSound: boolean;
  hasPictures: boolean;
}

/** Streams begin within this many tags of Flash Video, and its header may claim what the file does not have. */
const MAX_FLASH_TAGS = 1000;
/** Work units to check whether a packet of a transport stream starts a stream. */
const PACKET_WORK = 30;

/** The kind of stream with this id, in a transport or a program stream. Some cinema codecs share 0xFD with sound. */
const isSoundId = (id: number) => id === 0xbd || (id >= 0xc0 && id <= 0xdf);
const isPictureId = (id: number) => id === 0xfd || (id >= 0xe0 && id <= 0xef);

/** Reads the ids of the streams that start in the first MiB. Packets have 188 bytes, behind 4 bytes of time on a disc. */
export async function readTransportStream(source: RangeSource): Promise<Contents> {
  const bytes = await source.read(0, MAX_WINDOW_BYTES);
  const [first, length] = byte(bytes, 0) === 0x47 && byte(bytes, 188) === 0x47 ? [0, 188] : [4, 192];
  const ids = new Set<number>();
  source.budget.charge((bytes.length / length) * PACKET_WORK);
  for (let at = first; at + 188 <= bytes.length; at += length) {
    const [b1, b3] = [byte(bytes, at + 1), byte(bytes, at + 3)];
    const payload = at + 4 + ((b3 & 0x20) === 0 ? 0 : 1 + byte(bytes, at + 4));
    const isStart = byte(bytes, at) === 0x47 && (b1 & 0x40) !== 0 && (b3 & 0x10) !== 0;
    if (isStart && payload + 4 <= at + 188 && uint(bytes, payload, 3) === 1) ids.add(byte(bytes, payload + 3));
  }
  return { hasSound: [...ids].some(isSoundId), hasPictures: [...ids].some(isPictureId) };
}

/** Reads the ids of the packets of a program stream in the first MiB. */
export async function readProgramStream(source: RangeSource): Promise<Contents> {
  const bytes = await source.read(0, MAX_WINDOW_BYTES);
  const ids = new Set<number>();
  source.budget.charge(bytes.length);
  for (let at = bytes.indexOf(1, 2); at >= 0; at = bytes.indexOf(1, at + 1)) {
    if (uint(bytes, at - 2, 3) === 1) ids.add(byte(bytes, at + 1));
  }
  // A stream of pictures without packets has separate codes.
  const isRaw = uint(bytes, 0, 4) === 0x1b3;
  return { hasSound: [...ids].some(isSoundId), hasPictures: isRaw || [...ids].some(isPictureId) };
}

export async function readFlashVideo(source: RangeSource): Promise<Contents> {
  const contents = { hasSound: false, hasPictures: false };
  const start = uint(await source.read(5, 4)) + 4;
  const tags = source.segments(
    start,
    source.size,
    11,
    (header) => {
      const name = String(byte(header, 0) & 31);
      return header.length < 11 ? null : { name, headerBytes: 11, bodyBytes: uint(header, 1, 3), paddingBytes: 4 };
    },
    MAX_FLASH_TAGS,
  );
  for await (const { name } of tags) {
    contents.hasSound ||= name === "8";
    contents.hasPictures ||= name === "9";
    if (contents.hasPictures) break;
  }
  return contents;
}

export async function readAvi(source: RangeSource): Promise<Contents> {
  const contents = { hasSound: false, hasPictures: false };
  const chunks = source.segments(12, source.size, 12, (header) => {
    const [name, bodyBytes] = [latin1(header, 0, 4), uintLE(header, 4, 4)];
    // The sound and the pictures are behind the headers.
    if (header.length < 12 || latin1(header, 8, 4) === "movi") return null;
    if (name === "LIST") return { name, headerBytes: 12, bodyBytes: bodyBytes - 4, isEntered: true };
    return { name, headerBytes: 8, bodyBytes, paddingBytes: bodyBytes % 2 };
  });
  for await (const { name, data } of chunks) {
    const type = name === "strh" ? latin1(await source.read(data, 4)) : "";
    contents.hasSound ||= type === "auds";
    contents.hasPictures ||= type === "vids" || type === "iavs";
  }
  return contents;
}

export async function readRealMedia(source: RangeSource): Promise<Contents> {
  const contents = { hasSound: false, hasPictures: false };
  const chunks = source.segments(0, source.size, 8, (header) => {
    const [name, length] = [latin1(header, 0, 4), uint(header, 4, 4)];
    return header.length < 8 || length < 8 || name === "DATA" ? null : { name, headerBytes: 8, bodyBytes: length - 8 };
  });
  for await (const { name, data } of chunks) {
    if (name !== "MDPR") continue;
    // A name and a media type, each behind its length, follow 32 bytes of numbers.
    const typeAt = data + 33 + byte(await source.read(data + 32, 1), 0);
    const type = latin1(await source.read(typeAt + 1, byte(await source.read(typeAt, 1), 0)));
    contents.hasSound ||= type.startsWith("audio/");
    contents.hasPictures ||= /^(video|image)\//.test(type);
  }
  return contents;
}
