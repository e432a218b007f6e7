import { Buffer } from "node:buffer";
import { deflateSync } from "node:zlib";

/* A waveform as a PNG, for the previews of links, which show no SVG. */

/** The size that previews ask for. */
export const PICTURE_PIXELS = { width: 1200, height: 630 };
const { width, height } = PICTURE_PIXELS;
const MARGIN = 60;
/** The width of a bar with the space behind it. */
const BAR_SHARE = 0.6;
const MIN_BAR_PIXELS = 6;
/** Red, green and blue of the background and the bars. */
const PALETTE = [0x2f, 0x5d, 0x50, 0xff, 0xff, 0xff];

/** The checksum of a chunk (PNG, annex D). */
function crc32(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}

const uint32 = (...numbers: number[]) =>
  Buffer.concat(
    numbers.map((number) => {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32BE(number);
      return bytes;
    }),
  );

function chunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  return Buffer.concat([uint32(data.length), body, uint32(crc32(body))]);
}

/** Draws the levels, each from 0 to `max`, as bars around the middle. */
export function drawWaveform(levels: Uint8Array, max: number): Uint8Array<ArrayBuffer> {
  // One bit for each pixel. Each row begins with its filter, which is none.
  const rowBytes = 1 + width / 8;
  const rows = Buffer.alloc(rowBytes * height);
  const space = (width - 2 * MARGIN) / levels.length;
  for (const [place, level] of levels.entries()) {
    const bar = Math.max(MIN_BAR_PIXELS, Math.round((level / max) * (height - 2 * MARGIN)));
    const left = Math.round(MARGIN + place * space);
    const right = Math.round(MARGIN + (place + BAR_SHARE) * space);
    const top = Math.round((height - bar) / 2);
    for (let y = top; y < top + bar; y++) {
      for (let x = left; x < right; x++) {
        const at = y * rowBytes + 1 + (x >> 3);
        rows[at] = (rows[at] ?? 0) | (0x80 >> (x & 7));
      }
    }
  }
  return Uint8Array.from(
    Buffer.concat([
      Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
      // One bit of a palette.
      chunk("IHDR", Buffer.concat([uint32(width, height), Buffer.from([1, 3, 0, 0, 0])])),
      chunk("PLTE", Buffer.from(PALETTE)),
      chunk("IDAT", deflateSync(rows)),
      chunk("IEND", Buffer.alloc(0)),
    ]),
  );
}
