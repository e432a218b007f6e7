import { env } from "cloudflare:workers";
import { createCipheriv, createHmac, hkdfSync, scryptSync } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { HashQueue, MAX_WAITING_HASHES, MAX_WAITING_HASHES_PER_TEAM } from "../../src/platform/hash-queue.ts";
import { DecryptionError, fingerprint, loadSecrets, sameSecret } from "../../src/platform/secrets.ts";
import { isTokenShaped, newId, newToken, newUuid, realSystem, type System } from "../../src/platform/system.ts";

const master = (fill: string) => btoa(fill.repeat(32));
const load = (...keys: string[]) => loadSecrets(keys.join(","), realSystem);
const [A, B, C] = [master("a"), master("b"), master("c")];
const secrets = load(A);
const TEXT = "stow_sk_0123456789-a-token-that-is-sealed";

/** The sealed value with its box changed. */
function tampered(sealed: string, change: (box: Buffer) => Uint8Array): string {
  const [id, box = ""] = sealed.split(".");
  return `${id}.${Buffer.from(change(Buffer.from(box, "base64url"))).toString("base64url")}`;
}

describe("The master key", () => {
  test.each([
    ["nothing", ""],
    ["commas only", " , ,"],
    ["too short a key", btoa("a".repeat(31))],
    ["too long a key", btoa("a".repeat(33))],
    ["what is no base64", "!".repeat(44)],
    ["a good key and a bad one", `${A},short`],
    ["a key with something behind its end", `${A}canary`],
  ])("A master key that is %s is refused, without being quoted.", (_, value) => {
    let message = "accepted";
    try {
      loadSecrets(value, realSystem);
    } catch (error) {
      message = String(error);
    }
    expect(message).toMatch(/^Error: MASTER_KEY/);
    if (value.length > 5) expect(message).not.toContain(value);
  });

  test("The variable may hold several master keys, with white space between; the first makes new values.", () => {
    const several = loadSecrets(` ${B} ,\n${A} , ${C}`, realSystem);
    expect(several.currentKeyId).toBe(load(B).currentKeyId);
    expect(several.olderKeyIds).toEqual([load(A).currentKeyId, load(C).currentKeyId]);
  });

  test("A master key is named by an id that does not give it away.", () => {
    expect(secrets.currentKeyId).toMatch(/^[0-9a-f]{8}$/);
    expect(new Set([A, B, C].map((key) => load(key).currentKeyId)).size).toBe(3);
    expect(Buffer.from(A, "base64").toString("hex")).not.toContain(secrets.currentKeyId);
  });
});

describe("An encrypted value", () => {
  test("An encrypted value is decrypted to the same text, of any length.", () => {
    for (const text of ["", "a", TEXT, "Früh 早 🎧\0", "x".repeat(100_000)]) {
      expect(secrets.decrypt(secrets.encrypt(text, "context"), "context")).toBe(text);
    }
  });

  test("An encrypted value looks different each time, and shows neither text nor context.", () => {
    const sealed = Array.from({ length: 100 }, () => secrets.encrypt(TEXT, "context"));
    expect(new Set(sealed).size).toBe(100);
    const bytes = Buffer.from(sealed[0]?.split(".")[1] ?? "", "base64url").toString("latin1");
    expect(bytes).not.toContain(TEXT.slice(0, 8));
    expect(bytes).not.toContain("context");
  });

  test("An encrypted value never uses a nonce twice.", () => {
    const nonces = Array.from({ length: 2_000 }, () =>
      Buffer.from(secrets.encrypt("", "c").split(".")[1] ?? "", "base64url")
        .subarray(0, 12)
        .toString("hex"),
    );
    expect(new Set(nonces).size).toBe(2_000);
  });

  test("An encrypted value is decrypted for its own record only.", () => {
    const sealed = secrets.encrypt(TEXT, "api-key/1/team");
    for (const context of ["api-key/2/team", "api-key/1/other", "", "api-key/1/team ", "API-KEY/1/TEAM"]) {
      expect(() => secrets.decrypt(sealed, context)).toThrow(DecryptionError);
    }
  });

  test("An encrypted value with any one bit changed is not decrypted.", () => {
    const sealed = secrets.encrypt(TEXT, "context");
    const { length } = Buffer.from(sealed.split(".")[1] ?? "", "base64url");
    for (let i = 0; i < length; i++) {
      for (const mask of [1, 128]) {
        const changed = tampered(sealed, (box) => box.map((byte, at) => (at === i ? byte ^ mask : byte)));
        expect(() => secrets.decrypt(changed, "context"), `byte ${i}`).toThrow(DecryptionError);
      }
    }
  });

  test("An encrypted value that is cut, lengthened or put together from two is not decrypted.", () => {
    const [one, two] = [secrets.encrypt(TEXT, "context"), secrets.encrypt(TEXT, "context")];
    const { length } = Buffer.from(one.split(".")[1] ?? "", "base64url");
    for (let end = 0; end < length; end++) {
      expect(
        () =>
          secrets.decrypt(
            tampered(one, (box) => box.subarray(0, end)),
            "context",
          ),
        `${end} bytes`,
      ).toThrow(DecryptionError);
    }
    const other = Buffer.from(two.split(".")[1] ?? "", "base64url");
    for (const change of [
      (box: Buffer) => Buffer.concat([box, Buffer.from([0])]),
      (box: Buffer) => Buffer.concat([box.subarray(0, 12), other.subarray(12)]),
      (box: Buffer) => Buffer.concat([box.subarray(0, -16), other.subarray(-16)]),
    ]) {
      expect(() => secrets.decrypt(tampered(one, change), "context")).toThrow(DecryptionError);
    }
  });

  test("An encrypted value with a shortened tag is not decrypted, since fewer bytes to guess are no tag.", () => {
    // A box so short that its "tag" would be under 16 bytes, right as far as it goes.
    const key = Buffer.alloc(32);
    const cipher = createCipheriv("aes-256-gcm", key, Buffer.alloc(12));
    cipher.final();
    expect(cipher.getAuthTag()).toHaveLength(16);
    for (let bytes = 0; bytes < 28; bytes++) {
      const sealed = `${secrets.currentKeyId}.${Buffer.alloc(bytes).toString("base64url")}`;
      expect(() => secrets.decrypt(sealed, "context")).toThrow(DecryptionError);
    }
  });

  test.each(["", ".", "..", "x", "00000000.AAAA", "no-such-key.AAAA", `${load(B).currentKeyId}.AAAA`])(
    "The value %j is not decrypted, and crashes nothing.",
    (sealed) => {
      expect(() => secrets.decrypt(sealed, "context")).toThrow(DecryptionError);
    },
  );
});

describe("Rotation of the master key", () => {
  test("A new master key decrypts what older ones encrypted, and encrypts anew.", () => {
    const old = load(A).encrypt(TEXT, "c");
    const rotated = load(B, A);
    expect(rotated.decrypt(old, "c")).toBe(TEXT);
    const renewed = rotated.encrypt(rotated.decrypt(old, "c"), "c");
    expect(load(B).decrypt(renewed, "c")).toBe(TEXT);
    expect(() => load(A).decrypt(renewed, "c")).toThrow(DecryptionError);
  });

  test("A value of a master key that is gone says so, and is not decrypted.", () => {
    expect(() => load(B, C).decrypt(load(A).encrypt(TEXT, "c"), "c")).toThrow(DecryptionError);
  });

  test("A value under the name of another master key is not decrypted.", () => {
    const rotated = load(B, A);
    const box = load(A).encrypt(TEXT, "c").split(".")[1];
    expect(() => rotated.decrypt(`${rotated.currentKeyId}.${box}`, "c")).toThrow(DecryptionError);
  });

  test("Passwords and signatures of older master keys are verified, and known as such.", async () => {
    const hash = await load(A).hashPassword("canary-password");
    const rotated = load(B, A);
    expect(await rotated.verifyPassword("canary-password", hash)).toBe(true);
    expect([rotated.isCurrentHash(hash), load(A).isCurrentHash(hash)]).toEqual([false, true]);
    expect(await load(B).verifyPassword("canary-password", hash)).toBe(false);
  });
});

describe("The hash of a password", () => {
  let hash: string;
  beforeAll(async () => {
    hash = await secrets.hashPassword("canary-password-Ä");
  });

  test("The hash is one PHC string with its cost, its key and a salt of 16 bytes.", () => {
    expect(hash).toMatch(/^\$scrypt\$ln=14,r=8,p=5,keyid=[0-9a-f]{8}\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(hash).toContain(`keyid=${secrets.currentKeyId}`);
    expect(hash).not.toContain("canary-password");
  });

  test("The hash is made with a new salt each time.", async () => {
    expect(await secrets.hashPassword("canary-password-Ä")).not.toBe(hash);
  });

  test("The hash verifies the password, however its characters are composed.", async () => {
    expect(await secrets.verifyPassword("canary-password-Ä", hash)).toBe(true);
    expect(await secrets.verifyPassword("canary-password-A\u0308", hash)).toBe(true);
    expect(await secrets.verifyPassword("ｃanary-password-Ä", hash)).toBe(true);
  });

  test.each(["canary-password-ä", "canary-password-A", "canary-password-Ä ", "canary-password", ""])(
    "The hash does not verify %j.",
    async (password) => {
      expect(await secrets.verifyPassword(password, hash)).toBe(false);
    },
  );

  test("The hash is worthless under another pepper: the database alone allows no guessing.", async () => {
    expect(await load(B).verifyPassword("canary-password-Ä", hash)).toBe(false);
    const renamed = hash.replace(secrets.currentKeyId, load(B).currentKeyId);
    expect(await load(B).verifyPassword("canary-password-Ä", renamed)).toBe(false);
  });

  test.each([
    "",
    "plain",
    "$scrypt$ln=1,r=1,p=1,keyid=00000000$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "$2b$10$abcdefghijklmnopqrstuv",
  ])("A hash that is none of ours verifies nothing, and crashes nothing: %j", async (other) => {
    expect(await secrets.verifyPassword("", other)).toBe(false);
    expect(await secrets.verifyPassword("canary-password", other)).toBe(false);
  });

  test("A hash of zeros is not the hash of nobody.", async () => {
    const zeros = `$scrypt$ln=14,r=8,p=5,keyid=${secrets.currentKeyId}$${"A".repeat(22)}$${"A".repeat(43)}`;
    expect(await secrets.verifyPassword("canary-password", zeros)).toBe(false);
  });
});

describe("Randomness", () => {
  test("Randomness comes from the system, and its failure is a failure.", async () => {
    const dry: System = {
      ...realSystem,
      randomBytes: () => {
        throw new Error("no entropy");
      },
    };
    const without = loadSecrets(A, dry);
    expect(() => without.encrypt(TEXT, "c")).toThrow("no entropy");
    await expect(without.hashPassword("canary-password")).rejects.toThrow("no entropy");
  });
});

describe("Comparing secrets", () => {
  test("Two secrets are compared whole, of whatever length.", () => {
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

  test("A fingerprint is SHA-256 in hex.", () => {
    expect(fingerprint("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  });
});

describe("The cost of a password", () => {
  test("The cost of a hash is exactly N=2^14, r=8, p=5, in the stored string and in what is computed.", async () => {
    const hash = await loadSecrets(env.MASTER_KEY, realSystem).hashPassword("canary-password");
    const [, ln, r, p] = /^\$scrypt\$ln=(\d+),r=(\d+),p=(\d+),/.exec(hash) ?? [];
    expect([ln, r, p]).toEqual(["14", "8", "5"]);
    // Cloudflare takes N·r·p up to 2^20.
    expect(2 ** Number(ln) * Number(r) * Number(p)).toBeLessThanOrEqual(2 ** 20);
    // Made anew by node's own function with these numbers, and by no other.
    const [, , , salt = "", sum] = hash.split("$");
    const pepper = Buffer.from(
      hkdfSync("sha256", Buffer.from(env.MASTER_KEY, "base64"), Buffer.alloc(0), "stowage/password-pepper", 32),
    );
    const key = scryptSync("canary-password", Buffer.from(salt, "base64"), 32, {
      N: 2 ** 14,
      r: 8,
      p: 5,
      maxmem: 2 ** 26,
    });
    expect(createHmac("sha256", pepper).update(key).digest("base64").replace(/=+$/, "")).toBe(sum);
  });
});

/** A clock that stands still, and bytes that are given. */
const still = (now: number, bytes = (count: number): Uint8Array => new Uint8Array(count)): System => ({
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

  test("rejects a team's surplus, and goes on serving other teams", async () => {
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

describe("A new token", () => {
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
