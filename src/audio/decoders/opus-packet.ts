import { byte } from "../range-source.ts";

/* The frames of Opus packets (RFC 6716, 3.2), which decide what a packet costs. */

/** The samples of a frame at 48 kHz, by its configuration: SILK, hybrid, CELT. */
const FRAME_SAMPLES = [
  ...[0, 1, 2].flatMap(() => [480, 960, 1920, 2880]),
  ...[0, 1].flatMap(() => [480, 960]),
  ...[0, 1, 2, 3].flatMap(() => [120, 240, 480, 960]),
];
/** The longest sound of a packet: 120 ms. */
export const MAX_OPUS_SAMPLES = 5760;

/** The frames of one packet of one stream. */
export interface OpusFrames {
  configuration: number;
  isStereo: boolean;
  frameSamples: number;
  /** The bytes of each frame. A frame of 0 or 1 is lost. */
  lengths: number[];
}

/** Reads the packets of all streams in a packet. @returns null if the decoder would reject it */
export function readOpusPacket(packet: Uint8Array, streams: number): OpusFrames[] | null {
  const all: OpusFrames[] = [];
  for (let at = 0; all.length < streams; ) {
    const read = readStreamPacket(packet, at, all.length < streams - 1);
    if (!read) return null;
    all.push(read.frames);
    at = read.end;
  }
  return all;
}

/** @param isDelimited whether it states its length, because another packet follows (RFC 6716, appendix B) */
function readStreamPacket(packet: Uint8Array, start: number, isDelimited: boolean) {
  let at = start;
  const next = () => byte(packet, at++);
  const nextLength = () => {
    const first = next();
    return first < 252 ? first : first + 4 * next();
  };
  const toc = next();
  const [configuration, code] = [toc >> 3, toc & 3];
  const frameSamples = FRAME_SAMPLES[configuration] ?? 0;
  const flags = code === 3 ? next() : 0;
  const count = code === 3 ? flags & 63 : code === 0 ? 1 : 2;
  if (count === 0 || count * frameSamples > MAX_OPUS_SAMPLES) return null;
  let padding = 0;
  if (flags & 0x40) {
    let more = 255;
    while (more === 255 && at < packet.length) {
      more = next();
      padding += Math.min(more, 254);
    }
  }
  const isVariable = code === 2 || (flags & 0x80) !== 0;
  const lengths = isVariable ? Array.from({ length: count - 1 }, nextLength) : [];
  const rest = () => packet.length - padding - at - lengths.reduce((sum, length) => sum + length, 0);
  const last = isDelimited ? nextLength() : isVariable ? rest() : rest() / count;
  lengths.push(...Array<number>(count - lengths.length).fill(last));
  const end = at + padding + lengths.reduce((sum, length) => sum + length, 0);
  const isValid = start < packet.length && end <= packet.length && Number.isInteger(last) && last >= 0;
  return isValid ? { frames: { configuration, isStereo: (toc & 4) !== 0, frameSamples, lengths }, end } : null;
}
