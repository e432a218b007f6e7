import { addBytes, compose, createIndex } from "../../../src/client/seekable.ts";
import { concat, le32, riffChunk, wav } from "../../audio/build.ts";

/* Recordings that are longer than those in test/audio. */

/** A WAV with one channel. */
function recording(samples: Uint8Array, rate: number, bits: 8 | 16): BlobPart {
  const bytes = bits / 8;
  const format = [...le32(0x0001_0001), ...le32(rate), ...le32(rate * bytes), bytes, 0, bits, 0];
  return wav(riffChunk("fmt ", Uint8Array.from(format)), riffChunk("data", samples)) as Uint8Array<ArrayBuffer>;
}

/** A tone in 8 bits. */
export const tone = (seconds: number, rate = 8000): BlobPart =>
  recording(
    Uint8Array.from({ length: seconds * rate }, (_, at) => 128 + 60 * Math.sin(at / 3)),
    rate,
    8,
  );

/** Silence of 32 kB a second. */
export const silence = (seconds: number): BlobPart => recording(new Uint8Array(seconds * 32_000), 16_000, 16);

/** Returns the file that the recorder makes of a stream. */
export function seekable(stream: Uint8Array): Uint8Array {
  const index = createIndex();
  addBytes(index, stream);
  const pieces = compose(index) ?? [[0, stream.length] as [number, number]];
  return concat(pieces.map((piece) => (Array.isArray(piece) ? stream.subarray(...piece) : piece)));
}
