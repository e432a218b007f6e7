import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { inDatabaseOf } from "../../src/access/databases.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { recover } from "../../src/upkeep/recovery.ts";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { joinBytes, vttOf } from "../support/bytes.ts";
import { DATABASES, DB } from "../support/databases.ts";
import { readDeps, sink, withBindings } from "../support/deps.ts";
import { form, newKey, newTeam, PASSWORD, startWorker, type Team } from "../support/harness.ts";
import { deletionsLast, newRecords, nounOf, pathTo } from "../support/routes.ts";
import { must, World } from "../support/world.ts";

/*
 * Limits that Cloudflare enforces in production, and the local runtime may not. Every operation gets its largest input,
 * and the recovery job gets more than one batch of everything. The calls to the bindings must stay within the limits.
 */

const MAX_PARAMETERS = 100;
const MAX_QUERY_BYTES = 100_000;
const MAX_VALUE_BYTES = 2_000_000;
const MAX_BATCH_MESSAGES = 100;
const MAX_DELETED_KEYS = 1000;

const bindings = new ProxiedBindings();
const { queries, messages, deletedKeys } = bindings;
const bound = bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink, WAVEFORMS: sink });
const worker = startWorker((deps) => withBindings(deps, bound));
let recovered: Record<string, number>;

beforeAll(async () => {
  const team = await newTeam(worker);
  await sendLargestRequests(team);
  recovered = await recoverBacklog(team);
});

/** Sends the longest names, the longest password, and as many versions as a header can contain. */
async function sendLargestRequests(team: Team): Promise<void> {
  const name = "早".repeat(100);
  const many = Array.from({ length: 300 }, (_, i) => `"${i}"`).join();
  const email = `${"a".repeat(64)}@${"b".repeat(60)}.example`;
  const password = "早".repeat(256);
  const user = await team.call("POST", "/auth/v1/users", {
    json: { email, password, firstName: name, lastName: name },
  });
  await team.call("POST", "/auth/v1/login", { json: { teamId: team.teamId, email, password } });
  const key = await team.call("POST", "/auth/v1/apikeys", { json: { name } });
  const headers = { "Idempotency-Key": "k".repeat(255) };
  const file = await team.call("POST", "/docs/v1/uploads", { body: form(`${"早".repeat(300)}.mp3`, "x"), headers });
  await team.call("POST", "/docs/v1/uploads", { body: form(`${"早".repeat(300)}.mp3`, "x"), headers });
  const records = {
    ...(await newRecords(team)),
    apikeys: key.body.data.id,
    users: user.body.data._id,
    uploads: file.id,
  };
  for (const answer of [user, key, file]) expect(answer.status).toBe(200);

  for (const route of deletionsLast) {
    const { method, path } = route;
    if (["POST", "PUT"].includes(method) && !path.includes("{id}")) continue;
    if (path.endsWith("/hold")) {
      // A held file could not be deleted afterwards.
      if (method === "PUT") await team.call(method, pathTo(route, file.id), { json: { reason: name } });
      await team.call("DELETE", pathTo(route, file.id));
      continue;
    }
    if (method === "PUT" && path.endsWith("/transcript")) {
      const body = `${vttOf("a")}\nNOTE `.padEnd(2 * 1024 * 1024, "x");
      const target = `${pathTo(route, file.id)}?language=en${"-abcdefgh".repeat(3)}`;
      expect((await team.call(method, target, { body, headers: { "Content-Type": "text/vtt" } })).status).toBe(200);
      continue;
    }
    if (method === "PUT") {
      const channels = Array(2).fill(Array(2000).fill(-1));
      expect((await team.call(method, pathTo(route, file.id), { json: { channels } })).status).toBe(200);
      continue;
    }
    const body = method === "PATCH" ? { json: { firstName: name, lastName: name, email, password: PASSWORD } } : {};
    const target = pathTo(route, records[nounOf(route)]);
    for (const query of ["", "?limit=100&page=1000", "?limit=100&cursor=x.y"]) {
      await team.call(method, target + query, { ...body, headers: { "If-Match": method === "PATCH" ? "*" : many } });
    }
    // The query must stay within the limits with every response.
    if (method === "PATCH") await team.call(method, target, { ...body, headers: { "If-Match": many } });
  }
}

/** Runs the recovery job on many rows: overdue, half deleted, expired, and encrypted with an old key. */
async function recoverBacklog(team: Team): Promise<Record<string, number>> {
  const COUNT = 700;
  const numbers = JSON.stringify(Array.from({ length: COUNT }, (_, i) => i));
  const insertFiles = DB.prepare(
    `insert into files (id, team_id, key_id, original_name, status, reserved_bytes, size_bytes, etag, mime_type, file_type, due_at,
       lease_ends_at, created_at, updated_at)
     select printf('%012x%012x', ?3, value), ?1, ?1, 'a.mp3', ?2, 1, 1, 'x', 'audio/mpeg', 'audio file', 1, 1, 1, 1 from json_each(?4)`,
  );
  await DB.batch(["pending", "processing"].map((status, i) => insertFiles.bind(team.teamId, status, i + 1, numbers)));
  const inserts = [
    `insert into removed (id, team_id, original_name, reserved_bytes, size_bytes, due_at)
     select printf('%012x%012x', 0, value), ?1, 'a.mp3', 1, 1, 1 from json_each(?2)`,
    `insert into uploads (file_id, team_id, key_id, is_public, original_name, size_bytes, due_at, created_at, updated_at)
     select printf('%012x%012x', 3, value), ?1, ?1, 0, 'a.mp3', 1, 1, 1, 1 from json_each(?2)`,
  ];
  await DB.batch(inserts.map((insert) => DB.prepare(insert).bind(team.teamId, numbers)));

  const oldKey = btoa("z".repeat(32));
  const old = loadSecrets(oldKey, realSystem);
  const keys = Array.from({ length: COUNT }, (_, i) => {
    const id = (i + 1).toString(16).padStart(24, "0");
    return {
      id,
      encrypted: old.encrypt(newToken(realSystem, "secret", 0), `api-key/${id}/${team.teamId}`),
      session: i % 2,
    };
  });
  await DB.prepare(
    `insert into api_keys (id, team_id, uuid, name, kind, token_hash, encrypted_token, encrypted_with, user_id, lifetime_milliseconds, created_at, expires_at)
     select value->>'id', ?1, ?1, 'old', iif(value->>'session', 'session', 'secret'), value->>'id',
       iif(value->>'session', null, value->>'encrypted'), iif(value->>'session', null, ?2),
       iif(value->>'session', 'gone', null), 1, 1, iif(value->>'session', 2, 4e12)
     from json_each(?3)`,
  )
    .bind(team.teamId, old.currentKeyId, JSON.stringify(keys))
    .run();
  const secrets = loadSecrets(`${env.MASTER_KEY},${oldKey}`, realSystem);
  const deps = inDatabaseOf(withBindings(readDeps(env, { waitUntil: () => {} }), bound), team.teamId);
  return { ...(await recover({ ...deps, secrets })) };
}

describe("The calls to the bindings", () => {
  test("include many queries, messages and deletions", () => {
    expect(new Set(queries.map(({ sql }) => sql)).size).toBeGreaterThan(25);
    expect(messages.flat().length).toBeGreaterThanOrEqual(1400);
    expect(deletedKeys.flat().length).toBeGreaterThanOrEqual(1400);
    expect(recovered).toMatchObject({ sent: 1400, filesDeleted: 700, uploadsRemoved: 700, sessionsRemoved: 350 });
    expect(recovered.reencrypted).toBeGreaterThan(100);
  });

  test("bind at most 100 parameters per query", () => {
    const widest = queries.reduce((a, b) => (b.parameters.length > a.parameters.length ? b : a));
    expect(widest.parameters.length, widest.sql).toBeLessThanOrEqual(MAX_PARAMETERS);
  });

  test("send queries far shorter than 100 KB, without text of a caller", () => {
    for (const { sql } of queries) {
      expect(Buffer.byteLength(sql)).toBeLessThan(MAX_QUERY_BYTES / 10);
      expect(sql).not.toMatch(/早|aaaa|bbbb|kkkk/);
    }
  });

  test("bind parameters far shorter than the 2 MB of D1", () => {
    for (const { sql, parameters } of queries) {
      for (const parameter of parameters) {
        expect(Buffer.byteLength(String(parameter)), sql).toBeLessThan(MAX_VALUE_BYTES / 20);
      }
    }
  });

  test("send messages that contain only the ids of a team and of a file, at most 100 per call", () => {
    for (const batch of messages) {
      expect(batch.length).toBeLessThanOrEqual(MAX_BATCH_MESSAGES);
      for (const message of batch) {
        expect(Object.keys(message as object)).toEqual(["teamId", "fileId"]);
        expect(JSON.stringify(message).length).toBeLessThan(100);
      }
    }
  });

  test("delete at most 1,000 keys per call to R2", () => {
    for (const keys of deletedKeys) expect(keys.length).toBeLessThanOrEqual(MAX_DELETED_KEYS);
  });
});

describe("The row of a file", () => {
  /** An ID3 2.4 tag with these text frames. */
  function id3Of(frames: Record<string, string>): Uint8Array {
    const sizeOf = (bytes: number) => [21, 14, 7, 0].map((shift) => (bytes >> shift) & 0x7f);
    const all = Object.entries(frames).map(([id, value]) => {
      const content = Buffer.from(`\x03${value}`);
      return joinBytes(id, Uint8Array.from([...sizeOf(content.length), 0, 0]), content);
    });
    const content = joinBytes(...all);
    return joinBytes("ID3", Uint8Array.from([4, 0, 0, ...sizeOf(content.length)]), content);
  }

  const NUMBERS = 9;
  const bytesOf = (value: unknown): number =>
    value === null
      ? 0
      : typeof value === "number"
        ? NUMBERS
        : typeof value === "string"
          ? Buffer.byteLength(value)
          : (value as number[]).length;

  test.each(["tags", "metadata", "folder"])(
    "takes at most 8 KiB of D1 if a visitor sends the longest names, tags of the audio, and properties, most of them as %s",
    async (property) => {
      const world = new World();
      const team = await world.newTeam();
      const { key: token } = await newKey(team, { isPublic: true });
      const text = (characters: number, end = "") => `${"早".repeat(characters)}${end}`;
      const properties = {
        tags: { tags: Array.from({ length: 5 }, (_, i) => text(63 - (i === 4 ? 3 : 0), `${i}`)) },
        metadata: { metadata: { a: text(330) } },
        folder: { folder: text(160), name: text(66), reference: text(84) },
      }[property];
      const body = new FormData();
      const json = JSON.stringify(properties);
      expect(Buffer.byteLength(json)).toBeGreaterThan(900);
      body.append("properties", json);
      const frames = ["TIT2", "TPE1", "TALB", "TCON", "TPE2", "TCOM", "TPUB", "TCOP", "TENC", "TSRC"];
      const bytes = joinBytes(
        id3Of(Object.fromEntries(frames.map((id) => [id, text(256)]))),
        sample("tone-cbr.mp3").bytes,
      );
      body.append("file", new File([bytes], `${text(300)}.mp3`));
      const headers = { "Idempotency-Key": "k".repeat(255) };
      const { id } = await must(world.ask("POST", "/docs/v1/uploads", { token, body, headers }));
      await world.drain();
      await team.call("PUT", `/docs/v1/uploads/${id}/waveform`, { json: { channels: [Array(2000).fill(-1)] } });
      const row = await DB.prepare("select * from files where id = ?").bind(id).first<Record<string, unknown>>();
      expect(row).toMatchObject({ status: "completed" });
      const columns = await DB.prepare("select name from pragma_table_xinfo('files') where hidden = 0 and ?1 = ?1")
        .bind(id)
        .all<{ name: string }>();
      const sizes = columns.results.map(({ name }) => bytesOf(row?.[name]));
      expect(bytesOf(row?.audio)).toBeGreaterThan(1500);
      // A row has two bytes before each value, at most.
      expect(sizes.reduce((sum, bytes) => sum + bytes + 2, 0)).toBeLessThanOrEqual(8 * 1024);
    },
  );
});
