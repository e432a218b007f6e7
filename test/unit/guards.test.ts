import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { api } from "../../src/app.ts";
import { readDeps } from "../../src/deps.ts";
import { inspectFile } from "../../src/domain/audio/inspect.ts";
import { cleanName } from "../../src/domain/intake.ts";
import { recover } from "../../src/domain/recovery.ts";
import { splitRoute } from "../../src/http/operation.ts";
import { openByteStore } from "../../src/platform/byte-store.ts";
import { openDb } from "../../src/platform/db.ts";
import { type Job, openJobs } from "../../src/platform/jobs.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { sample } from "../audio/samples.ts";
import { form, newTeam, PASSWORD, startWorker, type Team } from "../support/harness.ts";

/* What Cloudflare refuses in production, and the local runtime or a passing test would not tell. */

const sources = Object.entries(
  import.meta.glob<string>(["../../src/**/*.ts", "!../../src/**/*.d.ts"], {
    query: "?raw",
    import: "default",
    eager: true,
  }),
).map(([path, text]) => ({
  path: path.replace("../../", ""),
  code: text.replace(/\/\*[\s\S]*?\*\/|(?<!:)\/\/.*$/gm, ""),
}));

/** The files in whose code the pattern is found. */
const filesWith = (pattern: RegExp) => sources.filter(({ code }) => pattern.test(code)).map(({ path }) => path);

describe("the source", () => {
  test("is all looked at", () => {
    expect(sources.length).toBeGreaterThan(25);
    expect(filesWith(/timingSafeEqual/)).toContain("src/platform/secrets.ts");
  });

  test.each<[string, RegExp]>([
    ["PBKDF2: Cloudflare throws above 100,000 iterations", /pbkdf2/i],
    ["randomness that can be guessed", /Math\.random/],
    ["code made at run time", /\beval\s*\(|new Function\s*\(|WebAssembly\./],
    ["a whole body in memory", /\.formData\(\)|\.parseBody\(|\.blob\(\)|\bbodyLimit\b/],
    ["weak hashes", /createHash\(["'](md5|sha1)/i],
    ["weak ciphers", /createCipher\(|aes-\d+-(cbc|ecb|ctr)/i],
    ["SQL put together from text", /\.raw\(|sql\.raw|\.exec\(\s*[`"'](select|insert|update|delete)/i],
    ["HTML", /c\.html\(|text\/html/],
  ])("has none of: %s", (_, pattern) => {
    expect(filesWith(pattern)).toEqual([]);
  });

  test("prints in log.ts only, and on the command line", () => {
    const printing = filesWith(/\bconsole\s*(\.|\[)/).filter((path) => !path.startsWith("src/cli/"));
    expect(printing).toEqual(["src/platform/log.ts"]);
  });

  test("compares secrets in constant time, wherever one is compared", () => {
    expect(filesWith(/operatorToken\s*[!=]==(?!\s*null)|[!=]==\s*operatorToken/)).toEqual([]);
    expect(
      filesWith(/(signature|expected|actual|mac|digest)\s*[!=]==\s*(signature|actual|hmac|digest|secrets)/i),
    ).toEqual([]);
    const secrets = sources.find(({ path }) => path.endsWith("platform/secrets.ts"))?.code ?? "";
    for (const [name, guard] of [
      ["export function sameSecret", "timingSafeEqual("],
      ["async verifyPassword", "timingSafeEqual("],
      ["isSigned(text, signature) {", "sameSecret("],
    ] as const) {
      const from = secrets.indexOf(name);
      expect(from, name).toBeGreaterThan(0);
      expect(secrets.slice(from, from + 700), name).toContain(guard);
    }
    expect(filesWith(/sameSecret\(token, operatorToken\)/)).toEqual(["src/domain/proof.ts"]);
  });

  test("reads the environment in one place", () => {
    expect(filesWith(/process\.env|from "cloudflare:workers"/).filter((path) => !path.startsWith("src/cli/"))).toEqual(
      [],
    );
  });
});

describe("the cost of a password", () => {
  test("is exactly N=2^14, r=8, p=5, in the stored string and in what is computed", async () => {
    const hash = await loadSecrets(env.MASTER_KEY, realSystem).hashPassword("canary-password");
    const [, ln, r, p] = /^\$scrypt\$ln=(\d+),r=(\d+),p=(\d+),/.exec(hash) ?? [];
    expect([ln, r, p]).toEqual(["14", "8", "5"]);
    // Cloudflare takes N·r·p up to 2^20.
    expect(2 ** Number(ln) * Number(r) * Number(p)).toBeLessThanOrEqual(2 ** 20);
    // Made anew by node's own function with these numbers, and by no other.
    const { createHmac, hkdfSync, scryptSync } = await import("node:crypto");
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

const MOST_PARAMETERS = 100;
const MOST_STATEMENT_BYTES = 100_000;
const MOST_VALUE_BYTES = 2_000_000;

interface Sent {
  sql: string;
  values: unknown[];
}

/** The database, with every statement written down as it is bound. */
function recorded(database: D1Database, sent: Sent[]): D1Database {
  return new Proxy(database, {
    get(_, name) {
      if (name !== "prepare") {
        const value = Reflect.get(database, name);
        return typeof value === "function" ? value.bind(database) : value;
      }
      return (sql: string) => {
        sent.push({ sql, values: [] });
        const statement = database.prepare(sql);
        return new Proxy(statement, {
          get(_, method) {
            const value = Reflect.get(statement, method);
            if (method !== "bind") return typeof value === "function" ? value.bind(statement) : value;
            return (...values: unknown[]) => {
              sent.push({ sql, values });
              return statement.bind(...values);
            };
          },
        });
      };
    },
  });
}

describe("what the service sends", () => {
  const sent: Sent[] = [];
  const messages: unknown[][] = [];
  const removed: string[][] = [];
  const queue = {
    send: async (body: unknown) => void messages.push([body]),
    sendBatch: async (batch: Iterable<{ body: unknown }>) => void messages.push([...batch].map(({ body }) => body)),
  } as unknown as Queue<Job>;
  const bucket = new Proxy(env.BUCKET, {
    get(_, name) {
      if (name === "delete") {
        return async (keys: string[]) => {
          removed.push(keys);
          return env.BUCKET.delete(keys);
        };
      }
      const value = Reflect.get(env.BUCKET, name);
      return typeof value === "function" ? value.bind(env.BUCKET) : value;
    },
  });
  const deps = {
    ...readDeps(env, { waitUntil: () => {} }),
    db: openDb(recorded(env.DB, sent)),
    jobs: openJobs(queue),
    bytes: openByteStore(bucket, realSystem),
  };
  const worker = startWorker((real) => ({ ...real, db: deps.db, jobs: deps.jobs, bytes: deps.bytes }));
  let team: Team;
  let recovered: Record<string, number>;

  beforeAll(async () => {
    team = await newTeam(worker);
    // Every route, with as much as it takes: the longest name, the longest password, as many versions as a header holds.
    const name = "早".repeat(100);
    const many = Array.from({ length: 300 }, (_, i) => `"${i}"`).join();
    const email = `${"a".repeat(64)}@${"b".repeat(60)}.example`;
    const user = await team.call("POST", "/auth/v1/users", {
      json: { email, password: "早".repeat(256), firstName: name, lastName: name },
    });
    const json = { teamId: team.teamId, email, password: "早".repeat(256) };
    await team.call("POST", "/auth/v1/login", { json });
    const key = await team.call("POST", "/auth/v1/apikeys", { json: { name } });
    const headers = { "Idempotency-Key": "k".repeat(255) };
    const file = await team.call("POST", "/docs/v1/uploads", { body: form(`${"早".repeat(300)}.mp3`, "x"), headers });
    await team.call("POST", "/docs/v1/uploads", { body: form(`${"早".repeat(300)}.mp3`, "x"), headers });
    const ids: Record<string, string> = {
      apikeys: key.body.data.id,
      users: user.body.data._id,
      uploads: file.headers.get("Location")?.split("/").at(-1) ?? "",
    };
    for (const route of Object.keys(api).sort(
      (a, b) => Number(a.startsWith("DELETE")) - Number(b.startsWith("DELETE")),
    )) {
      const { method, path } = splitRoute(route);
      if (method === "POST" && !path.includes("{id}")) continue;
      const body = method === "PATCH" ? { json: { firstName: name, lastName: name, email, password: PASSWORD } } : {};
      const target = path.replace("{id}", ids[path.split("/")[3] ?? ""] ?? "");
      for (const query of ["", "?limit=100&page=1000", "?limit=100&cursor=x.y"]) {
        await team.call(method, target + query, { ...body, headers: { "If-Match": method === "PATCH" ? "*" : many } });
      }
      // Refused or not, what is sent must be sendable.
      if (method === "PATCH") await team.call(method, target, { ...body, headers: { "If-Match": many } });
    }

    // Recovery, with more than one batch of everything: overdue, broken, half deleted, expired, sealed with an old key.
    const old = loadSecrets(btoa("z".repeat(32)), realSystem);
    const rows = (states: string[]) =>
      states.map((status) =>
        env.DB.prepare(
          `insert into files (id, team_id, original_name, status, reserved_bytes, due_at, created_at, updated_at)
           select printf('%012x%012x', ?3, value), ?1, 'a.mp3', ?2, 1, 1, 1, 1 from json_each(?4)`,
        ).bind(
          team.teamId,
          status,
          states.indexOf(status) + 1,
          JSON.stringify(Array.from({ length: 700 }, (_, i) => i)),
        ),
      );
    await env.DB.batch(rows(["receiving", "pending", "processing", "deleting"]));
    const keys = Array.from({ length: 700 }, (_, i) => {
      const id = (i + 1).toString(16).padStart(24, "0");
      return { id, sealed: old.seal(newToken(realSystem, false), `api-key/${id}/${team.teamId}`), login: i % 2 };
    });
    await env.DB.prepare(
      `insert into api_keys (id, team_id, uuid, name, is_public, token_hash, sealed_token, sealed_with, user_id, created_at, expires_at)
       select value->>'id', ?1, ?1, 'old', 0, value->>'id', value->>'sealed', ?2, iif(value->>'login', 'gone', null), 1, 2
       from json_each(?3)`,
    )
      .bind(team.teamId, old.currentKeyId, JSON.stringify(keys))
      .run();
    const secrets = loadSecrets(`${env.MASTER_KEY},${btoa("z".repeat(32))}`, realSystem);
    recovered = await recover({ ...deps, secrets });
  });

  test("is looked at: many statements, messages and deletions", () => {
    expect(new Set(sent.map(({ sql }) => sql)).size).toBeGreaterThan(25);
    expect(messages.flat().length).toBeGreaterThanOrEqual(1400);
    expect(removed.flat().length).toBeGreaterThanOrEqual(1400);
    expect(recovered).toMatchObject({ sent: 1400, erased: 1400, loginsRemoved: 350 });
    expect(recovered.resealed).toBeGreaterThan(100);
  });

  test("has 100 bound parameters in a statement at most", () => {
    const widest = sent.reduce((a, b) => (b.values.length > a.values.length ? b : a));
    expect(widest.values.length, widest.sql).toBeLessThanOrEqual(MOST_PARAMETERS);
  });

  test("has statements far under 100 KB, and none with a caller's text in it", () => {
    for (const { sql } of sent) {
      expect(Buffer.byteLength(sql)).toBeLessThan(MOST_STATEMENT_BYTES / 10);
      expect(sql).not.toMatch(/早|aaaa|bbbb|kkkk/);
    }
  });

  test("has values far under D1's 2 MB", () => {
    for (const { sql, values } of sent) {
      for (const value of values) {
        expect(Buffer.byteLength(String(value)), sql).toBeLessThan(MOST_VALUE_BYTES / 20);
      }
    }
  });

  test("has messages that name a file and nothing else, 100 in a batch at most", () => {
    for (const batch of messages) {
      expect(batch.length).toBeLessThanOrEqual(100);
      for (const message of batch) {
        expect(Object.keys(message as object)).toEqual(["fileId"]);
        expect(JSON.stringify(message).length).toBeLessThan(100);
      }
    }
  });

  test("deletes 1,000 keys of R2 in a call at most", () => {
    for (const keys of removed) expect(keys.length).toBeLessThanOrEqual(1000);
  });
});

describe("the largest that is stored", () => {
  test("of an R2 key is far under 1,024 bytes, whatever the name", () => {
    for (const name of [
      "早".repeat(5000),
      "👨‍👩‍👧‍👦".repeat(1000),
      `${"x".repeat(5000)}.${"y".repeat(31)}`,
      `a${"\u0301".repeat(5000)}.mp3`,
    ]) {
      const clean = cleanName(name);
      expect(Buffer.byteLength(clean)).toBeLessThanOrEqual(200);
      expect(Buffer.byteLength(`${"0".repeat(24)}/${"0".repeat(24)}-${clean}`)).toBeLessThanOrEqual(250);
    }
  });

  test("of what a recording says of itself is under 16 KiB: tags of any number and length", async () => {
    // An ID3v2.3 tag of 13 frames of 4,000 bytes each, before a real recording.
    const frame = (id: string) => {
      const text = new TextEncoder().encode(`\0${"\u00e9".repeat(2_000)}`);
      const head = new Uint8Array(10);
      head.set(new TextEncoder().encode(id));
      new DataView(head.buffer).setUint32(4, text.length);
      return Buffer.concat([head, text]);
    };
    const ids = "TIT2 TPE1 TALB TPE2 TCOM TCON TYER TRCK TPOS TBPM TSRC TCOP TXXX".split(" ");
    const frames = Buffer.concat(Array.from({ length: 13 }, (_, i) => frame(ids[i % ids.length] ?? "TXXX")));
    const size = [21, 14, 7, 0].map((shift) => (frames.length >> shift) & 0x7f);
    const bytes = Buffer.concat([
      Buffer.from([0x49, 0x44, 0x33, 3, 0, 0, ...size]),
      frames,
      sample("tone-cbr.mp3").bytes,
    ]);
    const read = async (offset: number, length: number) => new Uint8Array(bytes.subarray(offset, offset + length));
    const { audio } = await inspectFile(read, bytes.length);
    expect(audio).not.toBeNull();
    expect(Object.keys(audio?.tags ?? {}).length).toBeGreaterThan(3);
    expect(Buffer.byteLength(JSON.stringify(audio))).toBeLessThan(16 * 1024);
  });
});
