/* Builds test files in memory, and damages the samples. */

export type Bytes = Uint8Array;

/** Concatenates bytes and strings, which are encoded as UTF-8. */
export function join(...parts: (Bytes | string)[]): Bytes {
  return concat(parts);
}

/** Like `join`, for more parts than a call takes arguments. */
export function concat(parts: (Bytes | string)[]): Bytes {
  const chunks = parts.map((part) => (typeof part === "string" ? new TextEncoder().encode(part) : part));
  const all = new Uint8Array(chunks.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

export function repeat(bytes: Bytes, times: number): Bytes {
  return concat(Array<Bytes>(times).fill(bytes));
}

/** Returns the same noise in every run (xorshift). */
export function noise(length: number, seed = 1): Bytes {
  const bytes = new Uint8Array(length);
  let state = seed;
  for (let at = 0; at < length; at++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[at] = state;
  }
  return bytes;
}

export function be32(value: number): Bytes {
  return Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
}

export function le32(value: number): Bytes {
  return be32(value).reverse();
}

/** Returns a copy with other bytes from `at` on. */
export function patched(bytes: Bytes, at: number, other: Bytes): Bytes {
  const copy = bytes.slice();
  copy.set(other, at);
  return copy;
}

/** Each character of `text` is one byte. @returns -1 if it is not found */
export function indexOf(bytes: Bytes, text: string, from = 0): number {
  const wanted = Uint8Array.from(text, (c) => c.charCodeAt(0));
  for (let at = bytes.indexOf(wanted[0]!, from); at >= 0; at = bytes.indexOf(wanted[0]!, at + 1)) {
    if (wanted.every((b, n) => bytes[at + n] === b)) return at;
  }
  return -1;
}

/** Makes an ID3v2.3 tag of the given frames. */
export function id3(...frames: [id: string, body: Bytes][]): Bytes {
  const body = concat(frames.flatMap(([id, data]) => [id, be32(data.length), new Uint8Array(2), data]));
  const size = [21, 14, 7, 0].map((shift) => (body.length >> shift) & 127);
  return join("ID3", Uint8Array.of(3, 0, 0, ...size), body);
}

/** Makes the body of a text frame. */
export function text(value: string): Bytes {
  return join(Uint8Array.of(3), value);
}

/** A picture frame with this many bytes of noise. */
export function picture(bytes: number): [id: string, body: Bytes] {
  return ["APIC", join("\0image/png\0\x03\0", noise(bytes))];
}

/** Makes an MP4 box. */
export function box(name: string, ...parts: (Bytes | string)[]): Bytes {
  const body = join(...parts);
  return join(
    be32(body.length + 8),
    Uint8Array.from(name, (c) => c.charCodeAt(0)),
    body,
  );
}

/** Inserts `extra` at the start of the box at `path`, and corrects the lengths of the boxes around it. */
export function insertIntoBox(file: Bytes, path: string[], skip: number, extra: Bytes): Bytes {
  const copy = file.slice();
  const view = new DataView(copy.buffer);
  let at = 0;
  for (const name of path) {
    at = indexOf(copy, name, at);
    view.setUint32(at - 4, view.getUint32(at - 4) + extra.length);
    at += 4;
  }
  return join(copy.subarray(0, at + skip), extra, copy.subarray(at + skip));
}

/** Makes a RIFF chunk. */
export function riffChunk(name: string, body: Bytes): Bytes {
  return join(name, le32(body.length), body, new Uint8Array(body.length % 2));
}

/** Makes a WAV of these chunks. */
export function wav(...chunks: Bytes[]): Bytes {
  const body = join("WAVE", ...chunks);
  return join("RIFF", le32(body.length), body);
}

/** Makes an Ogg page without a checksum. */
export function oggPage(serial: number, flags: number, granule: number, packets: Bytes[]): Bytes {
  const lacing = packets.flatMap(({ length }) => [...Array<number>(Math.floor(length / 255)).fill(255), length % 255]);
  const head = new DataView(new ArrayBuffer(27));
  head.setUint32(0, 0x4f676753);
  head.setUint8(5, flags);
  head.setBigUint64(6, BigInt(granule), true);
  head.setUint32(14, serial, true);
  head.setUint8(26, lacing.length);
  return join(new Uint8Array(head.buffer), Uint8Array.from(lacing), ...packets);
}

/** Splits an Ogg into its pages, as views. */
export function oggPages(file: Bytes): Bytes[] {
  const pages: Bytes[] = [];
  for (let at = 0; at < file.length; at += pages.at(-1)!.length) {
    const segments = file[at + 26]!;
    const lacing = file.subarray(at + 27, at + 27 + segments);
    pages.push(file.subarray(at, at + 27 + segments + lacing.reduce((sum, b) => sum + b, 0)));
  }
  return pages;
}

/** Returns the page with its granule position moved by `ahead`, or with another serial number. */
export function changePage(page: Bytes, { ahead = 0, serial }: { ahead?: number; serial?: number }): Bytes {
  const copy = page.slice();
  const view = new DataView(copy.buffer);
  view.setBigUint64(6, view.getBigUint64(6, true) + BigInt(ahead), true);
  if (serial !== undefined) view.setUint32(14, serial, true);
  return copy;
}

/** Reads from memory and records the lengths requested. */
export function reader(bytes: Bytes) {
  const lengths: number[] = [];
  const read = async (offset: number, length: number) => {
    if (offset + length > bytes.length) throw new Error("a read past the end");
    lengths.push(length);
    return bytes.slice(offset, offset + length);
  };
  return { read, lengths, total: () => lengths.reduce((a, b) => a + b, 0) };
}
