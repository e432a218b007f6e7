import { describe, expect, test } from "vitest";
import { isTokenShaped, newId, newToken, newUuid, realSystem, type System } from "../../src/platform/system.ts";

/** A clock that stands still, and bytes that are given. */
const still = (now: number, bytes = (count: number): Uint8Array => new Uint8Array(count)): System => ({
  now: () => now,
  randomBytes: bytes,
  sleep: async () => {},
});

describe("An id", () => {
  test("An id is 24 lower-case hex characters, now and in the far future.", () => {
    for (const now of [0, 1, Date.now(), 2 ** 47, 2 ** 48 - 1]) expect(newId(still(now))).toMatch(/^[0-9a-f]{24}$/);
    expect(newId(realSystem)).toMatch(/^[0-9a-f]{24}$/);
  });

  test("An id sorts by the time it was made.", () => {
    const times = [0, 1, 255, 256, 65_535, 65_536, 2 ** 32, Date.now(), Date.now() + 1, 2 ** 47];
    // The later, the smaller the random rest: it must not count.
    const ids = times.map((now, i) => newId(still(now, (count) => new Uint8Array(count).fill(255 - i))));
    expect([...ids].sort()).toEqual(ids);
  });

  test("An id is unique among 20,000 of one millisecond.", () => {
    const now = Date.now();
    const ids = Array.from({ length: 20_000 }, () => newId({ ...realSystem, now: () => now }));
    expect(new Set(ids).size).toBe(20_000);
  });
});

describe("A UUID", () => {
  test("A UUID is of version 4 and variant 1, whatever the bytes.", () => {
    for (const byte of [0, 1, 127, 128, 255]) {
      const uuid = newUuid(still(0, (count) => new Uint8Array(count).fill(byte)));
      expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    }
  });

  test("A UUID is unique, and random in every bit that is free.", () => {
    const uuids = Array.from({ length: 2_000 }, () => newUuid(realSystem));
    expect(new Set(uuids).size).toBe(2_000);
    const bits = uuids.map((uuid) => BigInt(`0x${uuid.replaceAll("-", "")}`));
    const constant = (bits.reduce((a, b) => a & b) | ~bits.reduce((a, b) => a | b)) & (2n ** 128n - 1n);
    expect(constant.toString(2).replaceAll("0", "")).toHaveLength(6);
  });
});

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

describe("A token", () => {
  test("A token is its prefix, 32 random characters, and 6 of checksum.", () => {
    expect(newToken(realSystem, false)).toMatch(/^stow_sk_[0-9A-Za-z]{38}$/);
    expect(newToken(realSystem, true)).toMatch(/^stow_pk_[0-9A-Za-z]{38}$/);
    for (let i = 0; i < 500; i++) expect(isTokenShaped(newToken(realSystem, i % 2 === 0))).toBe(true);
  });

  test("A token is known by its checksum, CRC-32 over what precedes in base 62.", () => {
    // Of Python's zlib.crc32, by hand: not of our code.
    const zeros = newToken(still(0), false);
    expect(zeros.slice(0, 40)).toBe(`stow_sk_${"0".repeat(32)}`);
    let crc = 0xffffffff;
    for (const c of zeros.slice(0, 40)) {
      crc ^= c.charCodeAt(0);
      for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
    }
    const value = [...zeros.slice(40)].reduce((sum, c) => sum * 62 + BASE62.indexOf(c), 0);
    expect(value).toBe((crc ^ 0xffffffff) >>> 0);
  });

  test("A token with any one character wrong is refused.", () => {
    for (const isPublic of [false, true]) {
      const token = newToken(realSystem, isPublic);
      for (let i = 0; i < token.length; i++) {
        for (const c of `${BASE62}_-. `) {
          if (c === token[i]) continue;
          const typo = token.slice(0, i) + c + token.slice(i + 1);
          expect(isTokenShaped(typo), typo).toBe(false);
        }
      }
    }
  });

  test("A token with two neighbours swapped is refused.", () => {
    for (let n = 0; n < 50; n++) {
      const token = newToken(realSystem, false);
      for (let i = 0; i + 1 < token.length; i++) {
        const [a = "", b = ""] = token.slice(i, i + 2);
        if (a === b) continue;
        expect(isTokenShaped(token.slice(0, i) + b + a + token.slice(i + 2))).toBe(false);
      }
    }
  });

  test("A token with a character lost, doubled or around it is refused.", () => {
    const token = newToken(realSystem, false);
    for (let i = 0; i < token.length; i++) {
      expect(isTokenShaped(token.slice(0, i) + token.slice(i + 1))).toBe(false);
      expect(isTokenShaped(token.slice(0, i) + token[i] + token.slice(i))).toBe(false);
    }
    for (const text of [
      "",
      " ",
      `${token}\n`,
      ` ${token}`,
      `${token}\0`,
      token.toLowerCase(),
      token.replace("sk", "pk"),
    ]) {
      expect(isTokenShaped(text)).toBe(false);
    }
  });

  test("A token uses all 62 characters alike: bytes that would favour some are thrown away.", () => {
    const counts = new Map<string, number>();
    for (let byte = 0; byte < 256; byte++) {
      let calls = 0;
      const system = still(0, (count) => new Uint8Array(count).fill(calls++ === 0 ? byte : 0));
      const drawn = newToken(system, false).slice(8, 40);
      if (byte < 248) counts.set(drawn, (counts.get(drawn) ?? 0) + 1);
      else expect([drawn, calls]).toEqual(["0".repeat(32), 2]);
    }
    expect(Object.fromEntries(counts)).toEqual(Object.fromEntries([...BASE62].map((c) => [c.repeat(32), 4])));
  });

  test("A token is drawn evenly from real randomness (chi-squared, once in a million by chance).", () => {
    const counts = new Map<string, number>();
    const tokens = 2_000;
    for (let i = 0; i < tokens; i++) {
      for (const c of newToken(realSystem, false).slice(8, 40)) counts.set(c, (counts.get(c) ?? 0) + 1);
    }
    const expected = (tokens * 32) / 62;
    const chi = [...BASE62].reduce((sum, c) => sum + ((counts.get(c) ?? 0) - expected) ** 2 / expected, 0);
    expect(chi).toBeLessThan(125); // 61 degrees of freedom
  });
});
