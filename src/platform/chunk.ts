import { createHash } from "node:crypto";
import { AppError } from "../errors.ts";
import { once } from "./retry.ts";

/** The checksum that R2 computes of an object and of a part. We compare it with that of the bytes we sent. */
export const R2_CHECKSUM = "md5";
const READ_BYTES = 64 * 1024;

/** Bytes of a part that R2 holds in an object until the part is full. */
export interface Chunk {
  key: string;
  sizeBytes: number;
  /** MD5 of the received bytes, hex. */
  md5: string;
}

/**
 * Reads a chunk. Each yielded buffer is valid until the next one is requested.
 * @throws `unavailable` unless the bytes are the received ones
 */
export async function* readChunk(bucket: R2Bucket, { key, sizeBytes, md5 }: Chunk): AsyncGenerator<Uint8Array> {
  const stored = await once(() => bucket.get(key, { range: { offset: 0, length: sizeBytes } }));
  if (!stored) throw new AppError("unavailable", { cause: new Error("A chunk is missing.") });
  const hash = createHash(R2_CHECKSUM);
  // By default workerd allocates 4 KiB for each read, which the garbage collector is slow to free.
  const reader = stored.body.getReader({ mode: "byob" });
  const next = (buffer: ArrayBufferLike) =>
    reader.read(new Uint8Array(buffer)).catch((cause: unknown) => {
      throw new AppError("unavailable", { cause });
    });
  try {
    let { value } = await next(new ArrayBuffer(READ_BYTES));
    while (value?.length) {
      hash.update(value);
      yield value;
      ({ value } = await next(value.buffer));
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
  if (hash.digest("hex") !== md5) throw new AppError("unavailable", { cause: new Error("A chunk is incomplete.") });
}
