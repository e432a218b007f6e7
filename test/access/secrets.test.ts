import { env } from "cloudflare:workers";
import { createHmac, hkdfSync, scryptSync } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { HashQueue, MAX_WAITING_HASHES, MAX_WAITING_HASHES_PER_TEAM } from "../../src/platform/hash-queue.ts";
import { DecryptionError, fingerprint, loadSecrets, sameSecret } from "../../src/platform/secrets.ts";
import {
  databaseOf,
  isTokenShaped,
  newId,
  newToken,
  newUuid,
  realSystem,
  type System,
} from "../../src/platform/system.ts";

const master = (fill: string) => btoa(fill.repeat(32));
const load = (...keys: string[]) => loadSecrets(keys.join(","), realSystem);
const [A, B, C] = [master("a"), master("b"), master("c")];
const secrets = load(A);
/** For tests that are not about the cost of a hash, which is 0.1 s of CPU. */
const CHEAP = { ln: 4, r: 1, p: 1 };
const TEXT = "stow_sk_0123456789-a-token-to-encrypt";

/** Returns the encrypted value with its bytes changed. */
function tampered(encrypted: string, change: (bytes: Buffer) => Uint8Array): string {
  const [id, bytes = ""] = encrypted.split(".");
  return `${id}.${Buffer.from(change(Buffer.from(bytes, "base64url"))).toString("base64url")}`;
}

describe("The master key", () => {
  test.each([
    ["empty", ""],
    ["commas only", " , ,"],
    ["too short a key", btoa("a".repeat(31))],
    ["too long a key", btoa("a".repeat(33))],
    ["not base64", "!".repeat(44)],
    ["a valid key and an invalid one", `${A},short`],
    ["a key followed by text", `${A}canary`],
  ])("is rejected without being quoted if it is %s", (_, value) => {
    let message = "accepted";
    try {
      loadSecrets(value, realSystem);
    } catch (error) {
      message = String(error);
    }
    expect(message).toMatch(/^Error: MASTER_KEY/);
    if (value.length > 5) expect(message).not.toContain(value);
  });

  test("can be one of several, separated by commas and white space, and the first encrypts", () => {
    const several = loadSecrets(` ${B} ,\n${A} , ${C}`, realSystem);
    expect(several.currentKeyId).toBe(load(B).currentKeyId);
    expect(several.olderKeyIds).toEqual([load(A).currentKeyId, load(C).currentKeyId]);
  });

  test("has an id that does not reveal it", () => {
    expect(secrets.currentKeyId).toMatch(/^[0-9a-f]{8}$/);
    expect(new Set([A, B, C].map((key) => load(key).currentKeyId)).size).toBe(3);
    expect(Buffer.from(A, "base64").toString("hex")).not.toContain(secrets.currentKeyId);
  });
});

describe("An encrypted value", () => {
  test("is decrypted to the same text, of any length", () => {
    for (const text of ["", "a", TEXT, "Früh 早 🎧\0", "x".repeat(100_000)]) {
      expect(secrets.decrypt(secrets.encrypt(text, "context"), "context")).toBe(text);
    }
  });

  test("differs each time, and reveals neither text nor context", () => {
    const values = Array.from({ length: 100 }, () => secrets.encrypt(TEXT, "context"));
    expect(new Set(values).size).toBe(100);
    const bytes = Buffer.from(values[0]?.split(".")[1] ?? "", "base64url").toString("latin1");
    expect(bytes).not.toContain(TEXT.slice(0, 8));
    expect(bytes).not.toContain("context");
  });

  test("is decrypted only for its own record", () => {
    const encrypted = secrets.encrypt(TEXT, "api-key/1/team");
    for (const context of ["api-key/2/team", "api-key/1/other", "", "api-key/1/team ", "API-KEY/1/TEAM"]) {
      expect(() => secrets.decrypt(encrypted, context)).toThrow(DecryptionError);
    }
  });

  test("is rejected if a bit of any byte was changed", () => {
    const encrypted = secrets.encrypt(TEXT, "context");
    const { length } = Buffer.from(encrypted.split(".")[1] ?? "", "base64url");
    for (let i = 0; i < length; i++) {
      for (const mask of [1, 128]) {
        const changed = tampered(encrypted, (bytes) => bytes.map((byte, at) => (at === i ? byte ^ mask : byte)));
        expect(() => secrets.decrypt(changed, "context"), `byte ${i}`).toThrow(DecryptionError);
      }
    }
  });

  test("is rejected if it is shortened, lengthened or spliced from two", () => {
    const [one, two] = [secrets.encrypt(TEXT, "context"), secrets.encrypt(TEXT, "context")];
    const { length } = Buffer.from(one.split(".")[1] ?? "", "base64url");
    for (let end = 0; end < length; end++) {
      const shortened = tampered(one, (bytes) => bytes.subarray(0, end));
      expect(() => secrets.decrypt(shortened, "context"), `${end} bytes`).toThrow(DecryptionError);
    }
    const other = Buffer.from(two.split(".")[1] ?? "", "base64url");
    for (const change of [
      (bytes: Buffer) => Buffer.concat([bytes, Buffer.from([0])]),
      (bytes: Buffer) => Buffer.concat([bytes.subarray(0, 12), other.subarray(12)]),
      (bytes: Buffer) => Buffer.concat([bytes.subarray(0, -16), other.subarray(-16)]),
    ]) {
      expect(() => secrets.decrypt(tampered(one, change), "context")).toThrow(DecryptionError);
    }
  });

  test.each(["", ".", "..", "x", "00000000.AAAA", "no-such-key.AAAA", `${load(B).currentKeyId}.AAAA`])(
    "is rejected if it is %j",
    (encrypted) => {
      expect(() => secrets.decrypt(encrypted, "context")).toThrow(DecryptionError);
    },
  );
});

describe("A new master key", () => {
  test("decrypts values of older keys, and re-encrypts them", () => {
    const old = load(A).encrypt(TEXT, "c");
    const rotated = load(B, A);
    expect(rotated.decrypt(old, "c")).toBe(TEXT);
    const renewed = rotated.encrypt(rotated.decrypt(old, "c"), "c");
    expect(load(B).decrypt(renewed, "c")).toBe(TEXT);
    expect(() => load(A).decrypt(renewed, "c")).toThrow(DecryptionError);
  });

  test("does not decrypt values of a removed key", () => {
    expect(() => load(B, C).decrypt(load(A).encrypt(TEXT, "c"), "c")).toThrow(DecryptionError);
  });

  test("does not decrypt a value whose key id was changed", () => {
    const rotated = load(B, A);
    const bytes = load(A).encrypt(TEXT, "c").split(".")[1];
    expect(() => rotated.decrypt(`${rotated.currentKeyId}.${bytes}`, "c")).toThrow(DecryptionError);
  });

  test("verifies passwords of older keys, and recognizes them as older", async () => {
    const load = (...keys: string[]) => loadSecrets(keys.join(","), realSystem, CHEAP);
    const hash = await load(A).hashPassword("canary-password");
    const rotated = load(B, A);
    expect(await rotated.verifyPassword("canary-password", hash)).toBe(true);
    expect([rotated.isCurrentHash(hash), load(A).isCurrentHash(hash)]).toEqual([false, true]);
    expect(await load(B).verifyPassword("canary-password", hash)).toBe(false);
  });
});

describe("The hash of a password", () => {
  const cheap = loadSecrets(A, realSystem, CHEAP);
  let hash: string;
  beforeAll(async () => {
    hash = await cheap.hashPassword("canary-password-Ä");
  });

  test("has a new salt each time", async () => {
    expect(await cheap.hashPassword("canary-password-Ä")).not.toBe(hash);
  });

  test("verifies the password in any normal form", async () => {
    expect(await cheap.verifyPassword("canary-password-Ä", hash)).toBe(true);
    expect(await cheap.verifyPassword("canary-password-A\u0308", hash)).toBe(true);
    expect(await cheap.verifyPassword("ｃanary-password-Ä", hash)).toBe(true);
  });

  test.each(["canary-password-ä", "canary-password-A", "canary-password-Ä ", "canary-password", ""])(
    "does not verify %j",
    async (password) => {
      expect(await cheap.verifyPassword(password, hash)).toBe(false);
    },
  );

  test("verifies nothing under another pepper, so the database is not enough to guess passwords", async () => {
    expect(await load(B).verifyPassword("canary-password-Ä", hash)).toBe(false);
    const renamed = hash.replace(cheap.currentKeyId, load(B).currentKeyId);
    expect(await load(B).verifyPassword("canary-password-Ä", renamed)).toBe(false);
  });

  test.each([
    "",
    "plain",
    "$scrypt$ln=1,r=1,p=1,keyid=00000000$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "$2b$10$abcdefghijklmnopqrstuv",
  ])("verifies nothing in another format: %j", async (other) => {
    expect(await cheap.verifyPassword("", other)).toBe(false);
    expect(await cheap.verifyPassword("canary-password", other)).toBe(false);
  });

  test.each([
    { ln: 5, r: 1, p: 1 },
    { ln: 14, r: 8, p: 5 },
    { ln: 15, r: 8, p: 3 },
    { ln: 15, r: 8, p: 4 },
  ])("with the parameters %j verifies whatever the parameters of new hashes are", async (cost) => {
    const other = await loadSecrets(A, realSystem, cost).hashPassword("canary-password-Ä");
    expect(other).toContain(`$ln=${cost.ln},r=${cost.r},p=${cost.p},`);
    expect(await cheap.verifyPassword("canary-password-Ä", other)).toBe(true);
    expect(await cheap.verifyPassword("canary-password-A", other)).toBe(false);
  });

  test("is current only with the parameters of new hashes, so that the next login replaces a cheaper one", async () => {
    expect([cheap.isCurrentHash(hash), secrets.isCurrentHash(hash)]).toEqual([true, false]);
  });

  test.each([
    ["more memory than an isolate can spare", "ln=17,r=8,p=1"],
    ["more work than Cloudflare allows", "ln=14,r=8,p=9"],
    ["N that is 1", "ln=0,r=1,p=1"],
    ["a factor of 0", "ln=4,r=0,p=1"],
    ["a number of three digits", "ln=004,r=1,p=1"],
  ])("that states %s verifies nothing, and is not computed", async (_, parameters) => {
    const other = hash.replace("ln=4,r=1,p=1", parameters);
    expect(other).not.toBe(hash);
    expect(await cheap.verifyPassword("canary-password-Ä", other)).toBe(false);
    expect(cheap.isCurrentHash(other)).toBe(false);
  });

  test("verifies nothing if it is all zeros", async () => {
    const zeros = `$scrypt$ln=14,r=8,p=5,keyid=${cheap.currentKeyId}$${"A".repeat(22)}$${"A".repeat(43)}`;
    expect(await cheap.verifyPassword("canary-password", zeros)).toBe(false);
  });
});

describe("Randomness", () => {
  test("comes from the system, whose errors are not hidden", async () => {
    const failing: System = {
      ...realSystem,
      randomBytes: () => {
        throw new Error("no entropy");
      },
    };
    const without = loadSecrets(A, failing);
    expect(() => without.encrypt(TEXT, "c")).toThrow("no entropy");
    await expect(without.hashPassword("canary-password")).rejects.toThrow("no entropy");
  });
});

describe("Comparing secrets", () => {
  test("compares all bytes at any length", () => {
    const pairs: [string, string][] = [
      ["", ""],
      ["a", "a"],
      ["a", "b"],
      ["a", "ab"],
      ["", "a"],
      ["é", "e\u0301"],
    ];
    for (const [a, b] of pairs) expect(sameSecret(a, b)).toBe(a === b);
  });

  test("uses SHA-256 in hex for fingerprints", () => {
    expect(fingerprint("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  });
});

describe("The cost of a password", () => {
  test("is exactly N=2^14, r=8, p=5, in the stored PHC string and in the computation", async () => {
    const loaded = loadSecrets(env.MASTER_KEY, realSystem);
    const hash = await loaded.hashPassword("canary-password");
    expect(hash).toMatch(/^\$scrypt\$ln=14,r=8,p=5,keyid=[0-9a-f]{8}\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(hash).toContain(`keyid=${loaded.currentKeyId}`);
    // Node's own function reproduces the hash with these numbers.
    const [, , , salt = "", sum] = hash.split("$");
    const pepper = Buffer.from(
      hkdfSync("sha256", Buffer.from(env.MASTER_KEY, "base64"), Buffer.alloc(0), "stowage/password-pepper", 32),
    );
    const cost = { N: 2 ** 14, r: 8, p: 5, maxmem: 2 ** 26 };
    // Cloudflare accepts N·r·p up to 2^20.
    expect(cost.N * cost.r * cost.p).toBeLessThanOrEqual(2 ** 20);
    const key = scryptSync("canary-password", Buffer.from(salt, "base64"), 32, cost);
    expect(createHmac("sha256", pepper).update(key).digest("base64").replace(/=+$/, "")).toBe(sum);
  });
});

/** A system with a fixed time and the given random bytes. */
const fixedSystem = (now: number, bytes = (count: number): Uint8Array => new Uint8Array(count)): System => ({
  now: () => now,
  randomBytes: bytes,
  sleep: async () => {},
});

describe("The hash queue", () => {
  /** A queue whose clock advances only by its sleeps, and the order in which hashes start and end. */
  function newQueue() {
    let now = 0;
    const steps: string[] = [];
    const sleep = async (milliseconds: number) => {
      await realSystem.sleep(0);
      now += milliseconds;
    };
    const queue = new HashQueue({ ...realSystem, now: () => now, sleep });
    const run = (team: string, count = 1) =>
      Promise.allSettled(
        Array.from({ length: count }, () =>
          queue.run(team, async () => {
            steps.push(`${team} starts`);
            await realSystem.sleep(0);
            steps.push(`${team} ends`);
          }),
        ),
      ).then((results) => results.flatMap((result) => (result.status === "rejected" ? [result.reason] : [])));
    const advance = (milliseconds: number) => {
      now += milliseconds;
    };
    return { queue, run, steps, advance };
  }
  const RATE_LIMITED = expect.objectContaining({ code: "rate_limited", retryAfterSeconds: 4 });

  test("runs one hash at a time, and lets teams take turns", async () => {
    const { run, steps } = newQueue();
    await Promise.all([run("a", 4), run("b", 2)]);
    const started = steps.filter((step) => step.endsWith("starts"));
    expect(steps).toEqual(started.flatMap((step) => [step, step.replace("starts", "ends")]));
    expect(started.map(([team]) => team).join("")).toBe("ababaa");
  });

  test("rejects a team's surplus, and continues to serve other teams", async () => {
    const { run } = newQueue();
    const [surplus, other] = await Promise.all([run("a", 20), run("b", MAX_WAITING_HASHES_PER_TEAM)]);
    expect(surplus).toEqual(Array(19 - MAX_WAITING_HASHES_PER_TEAM).fill(RATE_LIMITED));
    expect(other).toEqual([]);
    expect(await run("a", MAX_WAITING_HASHES_PER_TEAM)).toEqual([]);
  });

  test("rejects hashes of any team once it is full", async () => {
    const { run } = newQueue();
    const all = await Promise.all(Array.from({ length: MAX_WAITING_HASHES + 3 }, (_, i) => run(`team ${i}`)));
    expect(all.flat()).toEqual([RATE_LIMITED, RATE_LIMITED]);
  });

  test("continues after a request that was canceled while it hashed", async () => {
    const { queue, run, advance } = newQueue();
    void queue.run("a", () => new Promise(() => undefined));
    const waiting = run("b");
    advance(1000);
    expect(await waiting).toEqual([]);
  });
});

describe("An id", () => {
  test("has 24 lower-case hex characters, now and in the far future", () => {
    for (const now of [0, 1, Date.now(), 2 ** 47, 2 ** 48 - 1])
      expect(newId(fixedSystem(now), 0)).toMatch(/^[0-9a-f]{24}$/);
    expect(newId(realSystem, 999)).toMatch(/^[0-9a-f]{24}$/);
  });

  test("sorts by its creation time", () => {
    const times = [0, 1, 255, 256, 65_535, 65_536, 2 ** 32, Date.now(), Date.now() + 1, 2 ** 47];
    // The later the id, the smaller its random part, which must not affect the order.
    const ids = times.map((now, i) =>
      newId(
        fixedSystem(now, (count) => new Uint8Array(count).fill(255 - i)),
        0,
      ),
    );
    expect([...ids].sort()).toEqual(ids);
  });

  test("is unique among 20,000 of one millisecond", () => {
    const now = Date.now();
    const ids = Array.from({ length: 20_000 }, () => newId({ ...realSystem, now: () => now }, 1));
    expect(new Set(ids).size).toBe(20_000);
  });
});

describe("The number of a database", () => {
  const NUMBERS = [0, 1, 9, 10, 61, 62, 255, 256, 999];

  test("is in each id and token, which name it again", () => {
    for (const number of NUMBERS) {
      expect(databaseOf(newId(realSystem, number))).toBe(number);
      for (const isPublic of [false, true])
        expect(databaseOf(newToken(realSystem, isPublic ? "public" : "secret", number))).toBe(number);
    }
  });

  test("is the last three digits of an id, and two big-endian characters before the checksum of a token", () => {
    expect(newId(realSystem, 999).slice(-3)).toBe("3e7");
    expect(newToken(realSystem, "secret", 999).slice(-8, -6)).toBe("G7");
    expect(newToken(realSystem, "secret", 61).slice(-8, -6)).toBe("0z");
  });
});

describe("A UUID", () => {
  test("has version 4 and variant 1, and is random in every other bit", () => {
    const uuids = Array.from({ length: 2_000 }, () => newUuid(realSystem));
    for (const uuid of uuids)
      expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    const bits = uuids.map((uuid) => BigInt(`0x${uuid.replaceAll("-", "")}`));
    const constant = (bits.reduce((a, b) => a & b) | ~bits.reduce((a, b) => a | b)) & (2n ** 128n - 1n);
    expect(constant.toString(2).replaceAll("0", "")).toHaveLength(6);
  });
});

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

describe("A new token", () => {
  test("consists of its prefix, 32 random characters, 2 for its database, and 6 of checksum", () => {
    expect(newToken(realSystem, "secret", 0)).toMatch(/^stow_sk_[0-9A-Za-z]{40}$/);
    expect(newToken(realSystem, "public", 0)).toMatch(/^stow_pk_[0-9A-Za-z]{40}$/);
    for (let i = 0; i < 500; i++)
      expect(
        isTokenShaped(newToken(realSystem, (["secret", "public", "session"] as const)[i % 3] ?? "secret", 0)),
      ).toBe(true);
  });

  test("ends in the CRC-32 of the preceding characters, in base 62", () => {
    // An independent implementation of CRC-32.
    const zeros = newToken(fixedSystem(0), "secret", 0);
    expect(zeros.slice(0, 42)).toBe(`stow_sk_${"0".repeat(34)}`);
    let crc = 0xffffffff;
    for (const c of zeros.slice(0, 42)) {
      crc ^= c.charCodeAt(0);
      for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
    }
    const value = [...zeros.slice(42)].reduce((sum, c) => sum * 62 + BASE62.indexOf(c), 0);
    expect(value).toBe((crc ^ 0xffffffff) >>> 0);
  });

  test("is invalid with any one character changed", () => {
    for (const isPublic of [false, true]) {
      const token = newToken(realSystem, isPublic ? "public" : "secret", 0);
      for (let i = 0; i < token.length; i++) {
        for (const c of `${BASE62}_-. `) {
          if (c === token[i]) continue;
          const typo = token.slice(0, i) + c + token.slice(i + 1);
          expect(isTokenShaped(typo), typo).toBe(false);
        }
      }
    }
  });

  test("is invalid with two adjacent characters swapped", () => {
    for (let n = 0; n < 50; n++) {
      const token = newToken(realSystem, "secret", 0);
      for (let i = 0; i + 1 < token.length; i++) {
        const [a = "", b = ""] = token.slice(i, i + 2);
        if (a === b) continue;
        expect(isTokenShaped(token.slice(0, i) + b + a + token.slice(i + 2))).toBe(false);
      }
    }
  });

  test("is invalid with a character removed, doubled or added", () => {
    const token = newToken(realSystem, "secret", 0);
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

  test("uses all 62 characters equally, because it discards biased bytes", () => {
    const counts = new Map<string, number>();
    for (let byte = 0; byte < 256; byte++) {
      let calls = 0;
      const system = fixedSystem(0, (count) => new Uint8Array(count).fill(calls++ === 0 ? byte : 0));
      const drawn = newToken(system, "secret", 0).slice(8, 40);
      if (byte < 248) counts.set(drawn, (counts.get(drawn) ?? 0) + 1);
      else expect([drawn, calls]).toEqual(["0".repeat(32), 2]);
    }
    expect(Object.fromEntries(counts)).toEqual(Object.fromEntries([...BASE62].map((c) => [c.repeat(32), 4])));
  });
});
