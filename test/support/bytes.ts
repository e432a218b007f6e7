import { createHash } from "node:crypto";

/* The bytes of the files that tests upload. They are the same in each run. */

const KIBIBYTE = 1024;
export const MEBIBYTE = 1024 * KIBIBYTE;

/** In hex. */
export const sha256 = (bytes: string | ArrayBuffer | Uint8Array): string =>
  createHash("sha256")
    .update(bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes)
    .digest("hex");

/** Joins text, as UTF-8, and bytes. */
export const joinBytes = (...pieces: (string | Uint8Array)[]): Uint8Array<ArrayBuffer> =>
  new Uint8Array(Buffer.concat(pieces.map((piece) => Buffer.from(piece))));

/** A generator of numbers from 0 to 2³² - 1 (xorshift32). The same seed gives the same numbers. */
export function randomFrom(seed: number): () => number {
  let state = Math.imul(seed + 1, 0x9e3779b1) || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

let sources = 0;
/**
 * Noise, other in each call and the same in each run. It begins with a zero: without it, noise could begin like an MP3
 * and fail as one.
 */
export function noise(size: number, seed = sources++): Buffer<ArrayBuffer> {
  const words = new Uint32Array(Math.ceil(size / 4));
  const random = randomFrom(seed);
  for (let i = 0; i < words.length; i++) words[i] = random();
  const bytes = Buffer.from(words.buffer, 0, size);
  bytes[0] = 0;
  return bytes;
}

/** Bytes that vary, and have no known type. */
export function patternOf(size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < 251; i++) bytes[i] = i;
  for (let done = 251; done < size; done *= 2) bytes.copyWithin(done, 0, done);
  return bytes;
}

/** The shortest transcript with this text, which the service stores as it is. */
export const vttOf = (text: string): string => `WEBVTT\n\n00:00.000 --> 00:01.000\n${text}\n`;
