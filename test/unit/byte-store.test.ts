import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { openByteStore } from "../../src/platform/byte-store.ts";
import { realSystem } from "../../src/platform/system.ts";

const MEBIBYTE = 1024 * 1024;
const describe = async () => ({ contentType: "application/octet-stream" });

/** A stream that gives so many bytes, and ends when it is told to. */
function held(size: number) {
  const end = Promise.withResolvers<void>();
  const given = Promise.withResolvers<void>();
  async function* bytes() {
    for (let left = size; left > 0; left -= MEBIBYTE) yield new Uint8Array(Math.min(left, MEBIBYTE));
    given.resolve();
    await end.promise;
  }
  return { bytes: bytes(), given: given.promise, end: end.resolve };
}

test("One upload too many is refused, unless it is small, and no other suffers.", async () => {
  const store = openByteStore(env.BUCKET, realSystem);
  const key = () => `byte-store/${crypto.randomUUID()}`;
  const put = (stream: ReturnType<typeof held>) => store.put(key(), stream.bytes, 8 * MEBIBYTE, describe);
  const streams = Array.from({ length: 10 }, () => held(8 * MEBIBYTE));
  const stored = streams.map(put);
  await Promise.all(streams.map(({ given }) => given));

  const refusal = { code: "unavailable", retryAfterSeconds: expect.any(Number) };
  await expect(put(held(8 * MEBIBYTE))).rejects.toMatchObject(refusal);
  const small = held(MEBIBYTE);
  small.end();
  expect(await put(small)).toMatchObject({ sizeBytes: MEBIBYTE });

  for (const { end } of streams) end();
  for (const { sizeBytes } of await Promise.all(stored)) expect(sizeBytes).toBe(8 * MEBIBYTE);
  const another = held(8 * MEBIBYTE);
  another.end();
  expect(await put(another)).toMatchObject({ sizeBytes: 8 * MEBIBYTE });
});

test("A stream that fails gives its memory back.", async () => {
  const store = openByteStore(env.BUCKET, realSystem);
  async function* broken() {
    yield new Uint8Array(8 * MEBIBYTE);
    throw new Error("broke off");
  }
  for (let i = 0; i < 20; i++) {
    await expect(store.put("byte-store/broken", broken(), 8 * MEBIBYTE, describe)).rejects.toThrow("broke off");
  }
});
