import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { beforeAll, describe, expect } from "vitest";
import { createByteStore } from "../../src/platform/byte-store.ts";
import type { Part } from "../../src/platform/part.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { MEBIBYTE, patternOf, sha256 } from "../support/bytes.ts";
import type { Answer } from "../support/client.ts";
import { document } from "../support/contract.ts";
import { DATABASES, DB } from "../support/databases.ts";
import { sink, withBindings, withDatabases } from "../support/deps.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  brokenStream,
  call,
  dataOf,
  expectNoFiles,
  metadataOf as fileOf,
  form,
  idsIn,
  newKey,
  newMember,
  newTeam,
  processed,
  queueing,
  read,
  readPages,
  rejected,
  startWorker,
  streamOf,
  type Team,
  tally,
  upload,
  usageOf,
  withSettings,
} from "../support/harness.ts";
import { insertMany } from "../support/rows.ts";
import { HOUR } from "../support/time.ts";
import { ask, create, head, idOf, locationOf, metadataOf, offsetOf, patch, RESUMABLE } from "../support/tus.ts";
import { newUploadToken } from "../support/visitors.ts";
import { encodeForm, must, World } from "../support/world.ts";

const digestOf = (bytes: Uint8Array) => `sha-256=:${createHash("sha256").update(bytes).digest("base64")}:`;
const BYTES = { "Content-Type": "application/offset+octet-stream" };

/** Asserts that a call is rejected like any other, and names the version of tus. */
async function expectRejected(team: Team, status: number, code: string, act: () => Promise<Answer>): Promise<Answer> {
  const answer = await rejected(team, status, code, act);
  expect(answer.headers.get("Tus-Resumable")).toBe("1.0.0");
  return answer;
}

let team: Team;
beforeAll(async () => {
  team = await newTeam();
});

describe("An upload", () => {
  test.each([1, 100_000, 5 * MEBIBYTE, 5 * MEBIBYTE + 1, 12 * MEBIBYTE])(
    "of %i bytes is stored from chunks of any size",
    async (size) => {
      const team = await newTeam(queueing);
      const bytes = patternOf(size);
      const created = await create(team.call, size);
      expect(created.status, created.text).toBe(201);
      const path = locationOf(created);
      for (let offset = 0; offset < size; ) {
        const chunk = bytes.slice(offset, offset + Math.min(3 * MEBIBYTE, Math.ceil(size / 3)));
        const sent = await patch(team.call, path, offset, chunk);
        expect([sent.status, offsetOf(sent)], sent.text).toEqual([204, offset + chunk.length]);
        offset += chunk.length;
        expect(offsetOf(await head(team.call, path))).toBe(offset);
      }
      const found = await processed(team, idOf(created));
      expect(found).toMatchObject({ status: "completed", failure: null, size, sha256: sha256(bytes) });
      const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/` });
      expect(objects.map(({ key }) => key)).toEqual([`${team.teamId}/${idOf(created)}-a.bin`]);
    },
  );

  test("reports its URL, file and expiry when it is created", async () => {
    const created = await create(team.call, 10);
    expect(locationOf(created)).toMatch(/^\/docs\/v1\/uploads\/resumable\/[0-9a-f]{24}\.[0-9a-f]{32}$/);
    expect(created.headers.get("Content-Location")).toBe(`/docs/v1/uploads/${idOf(created)}`);
    const expires = Date.parse(created.headers.get("Upload-Expires") ?? "");
    expect(Math.abs(expires - Date.now() - HOUR)).toBeLessThan(5 * 60 * 1000);
    expect([created.text, offsetOf(created), created.headers.get("Tus-Resumable")]).toEqual(["", 0, "1.0.0"]);
  });

  test("can be created with its first bytes, or all of them", async () => {
    const headers = { "Upload-Length": "4", ...BYTES };
    const some = await ask(team.call, "POST", RESUMABLE, headers, { body: "ab" });
    expect([some.status, offsetOf(some)]).toEqual([201, 2]);
    expect((await patch(team.call, locationOf(some), 2, new TextEncoder().encode("cd"))).status).toBe(204);
    const all = await ask(team.call, "POST", RESUMABLE, headers, { body: "abcd" });
    expect([all.status, offsetOf(all), all.headers.has("Upload-Expires")]).toEqual([201, 4, false]);
    for (const id of [idOf(some), idOf(all)]) {
      const file = { status: "pending", size: 4, sha256: null, originalName: "unnamed" };
      expect(await fileOf(team, id)).toMatchObject(file);
    }
  });

  test("is listed once its last byte is stored, and counts its full size from its creation", async ({ team }) => {
    const created = await create(team.call, 100);
    const state = async () => [(await read(team, "/docs/v1/uploads")).length, (await usageOf(team)).bytes];
    await patch(team.call, locationOf(created), 0, new Uint8Array(99));
    expect(await state()).toEqual([0, 100]);
    const last = await patch(team.call, locationOf(created), 99, new Uint8Array(1));
    expect([last.status, idOf(last)]).toEqual([204, idOf(created)]);
    expect(await state()).toEqual([1, 100]);
  });

  test("stays readable once complete, accepts an empty PATCH, and can only be deleted as a file", async ({ team }) => {
    const created = await create(team.call, 3);
    const path = locationOf(created);
    await patch(team.call, path, 0, new Uint8Array(3));
    const { status, headers, text } = await head(team.call, path);
    expect([status, headers.get("Upload-Offset"), headers.get("Upload-Length"), text]).toEqual([200, "3", "3", ""]);
    expect((await patch(team.call, path, 3, new Uint8Array())).status).toBe(204);
    await expectRejected(team, 413, "body_too_large", () => patch(team.call, path, 3, new Uint8Array(1)));
    await expectRejected(team, 409, "offset_mismatch", () => patch(team.call, path, 0, new Uint8Array(3)));
    await expectRejected(team, 403, "forbidden", () => ask(team.call, "DELETE", path));
    const file = `/docs/v1/uploads/${idOf(created)}`;
    await rejected(team, 403, "forbidden", () => team.call("DELETE", `${file}?unfinished=true`));
    expect((await team.call("DELETE", file)).status).toBe(200);
    expect((await head(team.call, path)).status).toBe(404);
    await expectNoFiles(team);
  });

  test("is canceled by DELETE and leaves no orphan", async ({ team }) => {
    const path = locationOf(await create(team.call, 12 * MEBIBYTE));
    await patch(team.call, path, 0, patternOf(7 * MEBIBYTE));
    expect((await ask(team.call, "DELETE", path)).status).toBe(204);
    await expectNoFiles(team);
    for (const method of ["PATCH", "DELETE", "HEAD"]) {
      const again = await ask(team.call, method, path, { "Upload-Offset": "0", ...BYTES });
      expect(again.status, method).toBe(404);
    }
  });

  test.each(["", "?unfinished=true"])("is canceled when its file is deleted%s", async (query) => {
    const team = await newTeam();
    const created = await create(team.call, 100);
    await patch(team.call, locationOf(created), 0, new Uint8Array(50));
    expect((await team.call("DELETE", `/docs/v1/uploads/${idOf(created)}${query}`)).status).toBe(200);
    await expectNoFiles(team);
  });

  test("fails on each processing if its stated SHA-256 differs from that of the stored bytes", async () => {
    const team = await newTeam(queueing);
    const right = await create(team.call, 3, { filename: "a", sha256: sha256(new Uint8Array(3)).toUpperCase() });
    const wrong = await create(team.call, 3, { filename: "a", sha256: sha256(new Uint8Array(4)) });
    const header = { "Upload-Length": "3", "Repr-Digest": digestOf(new Uint8Array(4)) };
    const wrongHeader = await ask(team.call, "POST", RESUMABLE, header);
    for (const { headers } of [right, wrong, wrongHeader])
      await patch(team.call, headers.get("Location") ?? "", 0, new Uint8Array(3));
    expect(await processed(team, idOf(right))).toMatchObject({ status: "completed" });
    const altered = { status: "failed", failure: { code: "bytes_altered" }, sha256: null };
    expect(await processed(team, idOf(wrong))).toMatchObject(altered);
    expect(await processed(team, idOf(wrongHeader))).toMatchObject(altered);
    await team.call("POST", `/docs/v1/uploads/${idOf(wrong)}/reprocess`);
    expect(await processed(team, idOf(wrong))).toMatchObject(altered);
  });

  test("accepts a body without Content-Length up to its size, and rejects a longer one", async () => {
    const streamed = (size: number) => new Response(new Uint8Array(size)).body!.pipeThrough(new TransformStream());
    const path = locationOf(await create(team.call, 10));
    expect(offsetOf(await patch(team.call, path, 0, streamed(6)))).toBe(6);
    expect((await patch(team.call, path, 6, streamed(5))).code).toBe("body_too_large");
    expect(offsetOf(await head(team.call, path))).toBe(6);
    expect(offsetOf(await patch(team.call, path, 6, streamed(4)))).toBe(10);
  });
});

describe("A caller", () => {
  test("needs the secret and any key of the team, and otherwise gets the same 404", async ({ team }) => {
    const stranger = await newTeam();
    const { key: token } = await newKey(team, { isPublic: true });
    const created = await create(team.call, 10, { filename: "a" }, { token });
    const path = locationOf(created);
    expect((await patch(team.call, path, 0, new Uint8Array(5), { token })).status).toBe(204);
    expect(offsetOf(await head(team.call, path, { token }))).toBe(5);

    const other = await create(team.call, 10);
    const secret = path.split(".").at(-1);
    const wrong = [
      `${path.slice(0, -1)}${path.endsWith("0") ? 1 : 0}`,
      `${RESUMABLE}/${idOf(other)}.${secret}`,
      `${RESUMABLE}/${idOf(created)}`,
      `${RESUMABLE}/nonsense`,
      path.toUpperCase().replace(RESUMABLE.toUpperCase(), RESUMABLE),
      `${path}%00`,
    ];
    for (const [at, caller] of [...wrong.map((at) => [at, team] as const), [path, stranger] as const]) {
      expect((await head(caller.call, at)).status, at).toBe(404);
      for (const act of [() => patch(caller.call, at, 5, new Uint8Array(5)), () => ask(caller.call, "DELETE", at)]) {
        const { body } = await expectRejected(team, 404, "not_found", act);
        expect(body.message, at).toBe("Not found.");
      }
    }
    expect((await ask(team.call, "DELETE", path, {}, { token })).status).toBe(204);
  });

  // all/authorization has each kind of token, on each route.
  test("a caller without a valid token is rejected before all other checks", async () => {
    const path = locationOf(await create(team.call, 10));
    for (const [at, version] of [
      [path, "0.2.2"],
      [`${RESUMABLE}/nonsense`, "1.0.0"],
    ] as const) {
      const token = newToken(realSystem, "secret", 0);
      expect((await ask(call, "HEAD", at, { "Tus-Resumable": version }, { token })).status, at).toBe(401);
    }
  });

  test("a caller above the rate limit gets 423 and Retry-After from HEAD", async () => {
    const path = locationOf(await create(team.call, 10));
    const counting = startWorker((deps) => ({
      ...deps,
      limiter: { ...deps.limiter, countRequest: async () => false },
    }));
    const refusing = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, isBlocked: () => true } }));
    for (const { call: limited } of [counting, refusing]) {
      const answer = await head(limited, path, { token: team.token });
      expect([answer.status, answer.headers.get("Retry-After")]).toEqual([423, "60"]);
      expect((await patch(limited, path, 0, new Uint8Array(1), { token: team.token })).status).toBe(429);
    }
  });

  test("gets 423 from HEAD while the database is unavailable, and 500 for a bug, so that it does not poll forever", async () => {
    const path = locationOf(await create(team.call, 10));
    for (const [message, status] of [
      ["D1_ERROR: Network connection lost.", 423],
      ["D1_ERROR: The database has been deleted.", 423],
      ["D1_ERROR: no such table: uploads: SQLITE_ERROR", 500],
    ] as const) {
      const batch = () => Promise.reject(new Error(message));
      const broken = startWorker((deps) =>
        withDatabases(
          deps,
          (real) => ({ prepare: (sql: string) => real.prepare(sql), batch }) as unknown as D1Database,
        ),
      );
      expect((await head(broken.call, path, { token: team.token })).status).toBe(status);
    }
  });
});

/** Inserts unfinished uploads without a byte, each of another visitor, or of the team. */
function insertUnfinished(count: number, { teamId }: Team, { isPublic = false, progressAt = 4e15 } = {}) {
  const columns =
    "file_id, team_id, key_id, is_public, visitor_id, original_name, secret_hash, size_bytes, progress_at, created_at, updated_at, due_at";
  const id = `printf('%023x%d', i, ${Number(isPublic)})`;
  const values = `${id}, ?2, '', ${Number(isPublic)}, ${isPublic ? id : "null"}, '', '', 1, ${progressAt}, 1, 1, 4e15`;
  return insertMany(count, `insert into uploads (${columns}) select ${values} from n`, teamId);
}

describe("The unfinished uploads of a team", () => {
  const newToken = async (team: Team, isPublic = false) => {
    const { id, key: token } = await newKey(team, { isPublic });
    return { id, token } as { id: string; token: string };
  };
  /** Creates `count` uploads of this size with each token at once. */
  const createAtOnce = async (tokens: { token: string }[], count: number, size: number, worker = { call }) =>
    (await Promise.all(tokens.map((key) => atOnce(count, () => create(worker.call, size, {}, key))))).flat();

  test("are listed newest first, in pages, for secret keys, and are canceled by id", async ({ team }) => {
    const page = await newToken(team, true);
    const first = await create(team.call, 300, { filename: "one.wav" });
    await patch(team.call, locationOf(first), 0, new Uint8Array(100));
    const second = await create(team.call, 200, { filename: "two.wav" }, { token: page.token });
    await patch(call, locationOf(second), 0, new Uint8Array(1), { token: page.token });
    const finished = await create(team.call, 1);
    await patch(team.call, locationOf(finished), 0, new Uint8Array(1));

    const pages = await readPages(team, `${RESUMABLE}?limit=1`);
    expect(pages).toMatchObject([
      [{ _id: idOf(second), name: "two.wav", size: 200, offset: 1, kind: "resumable", keyId: page.id }],
      [{ _id: idOf(first), name: "one.wav", size: 300, offset: 100, status: "receiving" }],
    ]);
    const lifetimes = pages.map(([upload]) => Date.parse(upload.expiresAt) - Date.parse(upload.createdAt));
    expect(lifetimes.map((milliseconds) => Math.floor(milliseconds / HOUR))).toEqual([24, 24]);

    for (const created of [first, second]) await team.call("DELETE", `/docs/v1/uploads/${idOf(created)}`);
    expect(await read(team, RESUMABLE)).toEqual([]);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 1 });
    expect((await head(team.call, locationOf(first))).status).toBe(404);
  });

  test("are at most 25 of a contributor, with upload tokens, and leave the others to the team", async () => {
    const team = await newTeam();
    const { token } = await newMember(team, "contributor");
    const visitor = await dataOf(call("POST", "/docs/v1/uploadtokens", { json: { maxFiles: 10 }, token }));
    expect(tally(await createAtOnce([{ token }], 20, 1))).toEqual({ 201: 20 });
    expect(tally(await createAtOnce([visitor], 6, 1))).toEqual({ 201: 5, too_many_unfinished_uploads: 1 });
    const [refused, another] = [await create(call, 1, {}, { token }), await newMember(team, "contributor")];
    expect([refused.status, refused.code]).toEqual([409, "too_many_unfinished_uploads"]);
    expect(refused.body.message).toMatch(/contributor can have at most 25/);
    for (const { token } of [another, team]) expect((await create(call, 1, {}, { token })).status).toBe(201);
  });

  test("are at most 20 of a visitor, 2,000 of all visitors and 3,000 in total, even if they are created at once", async () => {
    const team = await newTeam();
    const pages = [await newToken(team, true), await newToken(team, true)];
    const ofFirst = await createAtOnce(pages.slice(0, 1), 22, 1);
    expect(tally(ofFirst)).toEqual({ 201: 20, too_many_unfinished_uploads: 2 });
    const refused = ofFirst.find(({ status }) => status === 409);
    expect(refused?.body.message).toMatch(/at most 20 unfinished uploads/);
    expect(refused?.headers.get("Retry-After")).toBe("60");
    await insertUnfinished(1979, team, { isPublic: true });
    const ofOthers = await createAtOnce([...pages.slice(1), await newToken(team, true)], 2, 1);
    expect(tally(ofOthers)).toEqual({ 201: 1, too_many_unfinished_uploads: 3 });
    expect(ofOthers.find(({ status }) => status === 409)?.body.message).toMatch(
      /upload tokens of a team can have at most 2,000/,
    );
    await insertUnfinished(998, team);
    const ofTeam = await createAtOnce([team], 4, 1);
    expect(tally(ofTeam)).toEqual({ 201: 2, too_many_unfinished_uploads: 2 });
    expect(ofTeam.find(({ status }) => status === 409)?.body.message).toMatch(/A team can have at most 3,000/);
    await patch(team.call, locationOf(ofFirst.find(({ status }) => status === 201)!), 0, new Uint8Array(1));
    const again = [await create(call, 1, {}, pages[0]), await create(call, 1, {}, pages[1])];
    expect(again.map(({ status }) => status)).toEqual([201, 409]);
    await upload(team, "form.txt", "forms are not counted");
  });

  test("reserve at most a fifth of the quota with public keys, even if they are created at once", async ({ team }) => {
    const small = startWorker(withSettings({ maxTeamBytes: 100 }));
    const created = await createAtOnce([await newToken(team, true), await newToken(team, true)], 5, 5, small);
    expect(tally(created)).toEqual({ 201: 4, too_many_unfinished_uploads: 6 });
    expect(created.find(({ status }) => status === 409)?.body.message).toMatch(/ 20 bytes\./);
    await expectRejected(team, 413, "quota_exceeded", () => create(small.call, 81, {}, { token: team.token }));
    expect((await create(small.call, 80, {}, { token: team.token })).status).toBe(201);
  });

  const revocations: [string, (team: Team) => Promise<{ key: { token: string }; path: string }>][] = [
    [
      "the key that created them is revoked",
      async (team) => {
        const key = await newToken(team);
        return { key, path: `/auth/v1/apikeys/${key.id}` };
      },
    ],
    [
      "the user whose session created that key is deleted",
      async (team) => {
        const { id, token } = await newMember(team, "admin");
        const { key } = await dataOf(call("POST", "/auth/v1/apikeys", { token, json: { name: "theirs" } }));
        return { key: { token: key }, path: `/auth/v1/users/${id}` };
      },
    ],
  ];
  test.each(revocations)("end when %s, and release their quota once their bytes are deleted", async (_, prepare) => {
    const team = await newTeam();
    const { key, path: revoked } = await prepare(team);
    const path = locationOf(await create(call, 12 * MEBIBYTE, {}, key));
    await patch(call, path, 0, patternOf(6 * MEBIBYTE), key);
    const kept = await create(call, 7, {}, await newToken(team));
    expect((await team.call("DELETE", revoked)).status).toBe(200);
    expect(await usageOf(team)).toMatchObject({ files: 2, bytes: 12 * MEBIBYTE + 7 });
    const listed = await read(team, RESUMABLE);
    expect(idsIn(listed)).toContain(idOf(kept));
    expect(listed.map(({ status, size }: { status: string; size: number }) => [status, size]).sort()).toEqual([
      ["canceled", 12 * MEBIBYTE],
      ["receiving", 7],
    ]);
    await must(new World().recover());
    expect(idsIn(await read(team, RESUMABLE))).toEqual([idOf(kept)]);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 7 });
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toEqual([]);
    expect((await head(team.call, path)).status).toBe(404);
    expect((await patch(team.call, path, 6 * MEBIBYTE, new Uint8Array(1))).status).toBe(404);
  });

  test("are replaced by a creation with the same Idempotency-Key and token, but not once complete", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const keys = [await newToken(team, true), await newToken(team)];
    const begin = async ({ token }: { token: string }) => {
      const headers = { "Upload-Length": "5", "Idempotency-Key": "k" };
      return locationOf(await ask(call, "POST", RESUMABLE, headers, { token }));
    };
    const [lost, ...kept] = [await begin(team), ...(await Promise.all(keys.map(begin)))];
    const ofOther = await begin(other);
    await patch(team.call, lost, 0, new Uint8Array(2));
    const path = await begin(team);
    const paths = [lost, ...kept, path];
    const statuses = await Promise.all(paths.map(async (url) => (await head(team.call, url)).status));
    expect([...statuses, (await head(other.call, ofOther)).status]).toEqual([404, 200, 200, 200, 200]);
    expect(await usageOf(team)).toMatchObject({ files: 3, bytes: 15 });
    await patch(team.call, path, 0, new Uint8Array(5));
    await begin(team);
    expect(await read(team, "/docs/v1/uploads")).toHaveLength(1);
    expect(await usageOf(team)).toMatchObject({ files: 4, bytes: 20 });
  });

  test("keep their expiry if requests bring no bytes", async () => {
    const created = await create(team.call, 2);
    const [path, fileId] = [locationOf(created), idOf(created)];
    const expiry = async () => (await head(team.call, path)).headers.get("Upload-Expires") ?? "";
    const before = await expiry();
    expect((await patch(team.call, path, 0, new Uint8Array())).status).toBe(204);
    expect(await expiry()).toBe(before);
    await patch(team.call, path, 0, new Uint8Array(1));
    expect(Date.parse(await expiry()) - Date.parse(before)).toBeGreaterThan(22 * HOUR);
    await DB.prepare("update uploads set due_at = due_at - 60000 where file_id = ?").bind(fileId).run();
    const later = await expiry();
    expect((await patch(team.call, path, 1, new Uint8Array())).status).toBe(204);
    expect(await expiry()).toBe(later);
  });
});

describe("The resumable upload API", () => {
  const length = { "Upload-Length": "10" };
  type Rows = [string, number, string, Record<string, string | undefined>][];
  const invalid = (title: string, headers: Record<string, string | undefined>) => [
    title,
    400,
    "invalid_input",
    headers,
  ];
  const withMetadata = (title: string, metadata: string) => invalid(title, { ...length, "Upload-Metadata": metadata });
  const sha256Of3 = metadataOf({ sha256: sha256(new Uint8Array(3)) });
  test.each([
    invalid("without Upload-Length", {}),
    invalid("of length 0", { "Upload-Length": "0" }),
    invalid("of a negative length", { "Upload-Length": "-1" }),
    invalid("of a length in hex", { "Upload-Length": "0x10" }),
    invalid("of two lengths", { "Upload-Length": "10, 10" }),
    ["of a length above the maximum", 413, "file_too_large", { "Upload-Length": "5000000001" }],
    invalid("of a length with too many digits", { "Upload-Length": "9".repeat(30) }),
    invalid("of a deferred length", { "Upload-Defer-Length": "1" }),
    invalid("of a length that is also deferred", { ...length, "Upload-Defer-Length": "1" }),
    invalid("for a later concatenation", { ...length, "Upload-Concat": "partial" }),
    invalid("without a version", { ...length, "Tus-Resumable": undefined }),
    ["of another version", 412, "unsupported_version", { ...length, "Tus-Resumable": "0.2.2" }],
    withMetadata("with metadata that is not base64", "filename ?"),
    withMetadata("with metadata in broken base64", "filename YQ"),
    withMetadata("with metadata without a key", "filename YQ==,,a YQ=="),
    withMetadata("with a key twice", "filename YQ==,filename Yg=="),
    withMetadata("with a filename that is not UTF-8", "filename /w=="),
    withMetadata("with 13,000 characters of metadata", `a ${"YWFh".repeat(3250)}`),
    withMetadata("with a malformed sha256", metadataOf({ sha256: "abc" })),
    invalid("with Content-Digest", { ...length, "Content-Digest": digestOf(new Uint8Array(3)) }),
    invalid("in a content coding", { ...length, "Content-Encoding": "gzip" }),
    invalid("with two digests of the file", {
      ...length,
      "Upload-Metadata": sha256Of3,
      "Repr-Digest": digestOf(new Uint8Array(4)),
    }),
  ] as Rows)("rejects a creation %s with %i, and stores nothing", async (_, status, code, headers) => {
    const answer = await expectRejected(team, status, code, () => ask(team.call, "POST", RESUMABLE, headers));
    const isOfVersion = answer.headers.get("Tus-Version") === "1.0.0";
    expect(isOfVersion).toBe(headers["Tus-Resumable"] !== "1.0.0" && "Tus-Resumable" in headers);
  });

  test("rejects a creation whose body has another type or is longer than the upload", async () => {
    const text = { body: "text" };
    await expectRejected(team, 415, "unsupported_media_type", () =>
      ask(team.call, "POST", RESUMABLE, { ...length, "Content-Type": "text/plain" }, text),
    );
    const tooLong = { ...BYTES, "Upload-Length": "3", "Content-Length": "4" };
    await expectRejected(team, 413, "body_too_large", () => ask(team.call, "POST", RESUMABLE, tooLong, text));
  });

  test("rejects a creation whose body is longer than the upload without Content-Length, and frees its quota", async () => {
    const team = await newTeam();
    const body = streamOf(new Uint8Array(4));
    const answer = await ask(team.call, "POST", RESUMABLE, { ...BYTES, "Upload-Length": "3" }, { body });
    expect([answer.status, answer.code]).toEqual([413, "body_too_large"]);
    expect((await usageOf(team)).bytes).toBe(0);
  });

  test.each([
    invalid("without Upload-Offset", BYTES),
    invalid("at an offset that is not a number", { ...BYTES, "Upload-Offset": "5.0" }),
    ["at a lower offset", 409, "offset_mismatch", { ...BYTES, "Upload-Offset": "4" }],
    ["at a higher offset", 409, "offset_mismatch", { ...BYTES, "Upload-Offset": "6" }],
    ["beyond the length", 413, "body_too_large", { ...BYTES, "Upload-Offset": "5", "Content-Length": "6" }],
    ["of another type", 415, "unsupported_media_type", { "Content-Type": "text/plain", "Upload-Offset": "5" }],
    ["without a type", 415, "unsupported_media_type", { "Upload-Offset": "5" }],
    ["of another version", 412, "unsupported_version", { ...BYTES, "Upload-Offset": "5", "Tus-Resumable": "2.0.0" }],
    invalid("in a content coding", { ...BYTES, "Upload-Offset": "5", "Content-Encoding": "gzip" }),
  ] as Rows)("rejects a PATCH %s with %i, and loses nothing", async (_, status, code, headers) => {
    const path = locationOf(await create(team.call, 10));
    await patch(team.call, path, 0, new Uint8Array(5));
    const body = { body: new Uint8Array(6) };
    await expectRejected(team, status, code, () => ask(team.call, "PATCH", path, headers, body));
    expect((await patch(team.call, path, 5, new Uint8Array(5))).status).toBe(204);
  });

  test("returns 410 once an upload has used the 10,000 parts that R2 allows", async ({ team }) => {
    const path = locationOf(await create(team.call, 10));
    const setNextPart = (number: number) =>
      DB.prepare("update uploads set next_part = ? where team_id = ?").bind(number, team.teamId).run();
    await setNextPart(9999);
    expect((await patch(team.call, path, 0, new Uint8Array(5))).status).toBe(204);
    await setNextPart(10_000);
    await expectRejected(team, 410, "upload_expired", () => patch(team.call, path, 5, new Uint8Array(5)));
  });

  test("returns 410 for an expired upload, and stores no bytes", async ({ team }) => {
    const path = locationOf(await create(team.call, 10));
    await DB.prepare("update uploads set due_at = 1 where team_id = ?").bind(team.teamId).run();
    await expectRejected(team, 410, "upload_expired", () => patch(team.call, path, 0, new Uint8Array(5)));
    expect((await head(team.call, path)).status).toBe(410);
  });

  test("returns 405 for other methods, and runs HEAD, PATCH or DELETE for POST with X-HTTP-Method-Override", async () => {
    const path = locationOf(await create(team.call, 10));
    const by = (method: string, headers = {}, options = {}) =>
      ask(team.call, "POST", path, { "X-HTTP-Method-Override": method, ...headers }, options);
    for (const answer of [await by("PUT"), await ask(team.call, "POST", path), await ask(team.call, "GET", path)]) {
      expect([answer.status, answer.code, answer.headers.has("Allow")]).toEqual([405, "method_not_allowed", true]);
    }
    const sent = await by("PATCH", { ...BYTES, "Upload-Offset": "0" }, { body: new Uint8Array(4) });
    expect([sent.status, offsetOf(sent)]).toEqual([204, 4]);
    const progress = await by("HEAD");
    expect([progress.status, offsetOf(progress), progress.text]).toEqual([200, 4, ""]);
    expect((await by("DELETE")).status).toBe(204);
  });
});

describe("A web page of another origin", () => {
  test("can send and read every tus header", async () => {
    const path = locationOf(await create(team.call, 10));
    const headers = { Origin: "https://page.example", "Access-Control-Request-Method": "PATCH" };
    const listed = ({ headers }: Answer, name: string) => headers.get(`Access-Control-${name}`)?.split(/,\s*/);
    const sent = ["Tus-Resumable", "Upload-Length", "Upload-Offset", "Upload-Metadata", "X-HTTP-Method-Override"];
    const preflight = await call("OPTIONS", path, { headers });
    expect(listed(preflight, "Allow-Headers")).toEqual(expect.arrayContaining(sent));
    const read = "Location, Content-Location, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Expires".split(
      ", ",
    );
    const ofTus = ["Tus-Resumable", "Tus-Version", "Tus-Extension", "Tus-Max-Size"];
    const progress = await head(team.call, path);
    expect(listed(progress, "Expose-Headers")).toEqual(expect.arrayContaining([...read, ...ofTus]));
  });

  test("gets the server's capabilities from OPTIONS without a token", async () => {
    const { status, headers, text } = await call("OPTIONS", RESUMABLE);
    expect([status, text]).toEqual([204, ""]);
    expect(["Tus-Resumable", "Tus-Version", "Tus-Extension", "Tus-Max-Size"].map((name) => headers.get(name))).toEqual([
      "1.0.0",
      "1.0.0",
      "creation,creation-with-upload,expiration,termination",
      "5000000000",
    ]);
  });
});

describe("An isolate without memory for parts", () => {
  /** A Worker whose isolate has no memory left for parts. */
  async function exhaustMemory() {
    const bytes = createByteStore(env.BUCKET, realSystem);
    const held: Part[] = [];
    for (let i = 0; i < 48; i++) {
      const part = bytes.newPart({ bytes: MEBIBYTE, maxBytes: MEBIBYTE, newKey: () => `held/${i}` });
      await part.take(new Uint8Array(MEBIBYTE));
      held.push(part);
    }
    return { worker: startWorker((deps) => ({ ...deps, bytes })), held };
  }
  const spills = async ({ teamId }: Team) =>
    (await env.BUCKET.list({ prefix: `${teamId}/` })).objects.filter(({ key }) => !key.includes("-"));

  test("stores a form upload of any size through R2, without orphans", async () => {
    const { worker } = await exhaustMemory();
    const team = await newTeam(queueing);
    for (const size of [10, 70_000, 3 * MEBIBYTE, 17 * MEBIBYTE + 1]) {
      const bytes = patternOf(size);
      const { status, id, text } = await worker.call("POST", "/docs/v1/uploads", {
        token: team.token,
        body: form("a.bin", bytes),
      });
      expect(status, text).toBe(200);
      expect(await processed(team, id)).toMatchObject({ status: "completed", size, sha256: sha256(bytes) });
    }
    expect(await spills(team)).toEqual([]);
  });

  test("leaves no orphan after an interrupted form upload", async () => {
    const { worker } = await exhaustMemory();
    const team = await newTeam();
    const { body, contentType } = await encodeForm("a.bin", new Uint8Array(7 * MEBIBYTE));
    const options = { token: team.token, headers: { "Content-Type": contentType } };
    await worker.call("POST", "/docs/v1/uploads", { ...options, body: brokenStream(body.slice(0, 6 * MEBIBYTE)) });
    await expectNoFiles(team);
  });

  test("stores a resumable upload through R2 in chunks of any size, and loses no byte of an interrupted request", async () => {
    const { worker, held } = await exhaustMemory();
    const team = await newTeam(queueing);
    const bytes = patternOf(12 * MEBIBYTE);
    const created = await create(team.call, bytes.length);
    const path = locationOf(created);
    const options = { token: team.token };
    await patch(worker.call, path, 0, bytes.slice(0, MEBIBYTE), options);
    const broken = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(bytes.slice(MEBIBYTE, 8 * MEBIBYTE));
        // The enqueued bytes are read before the stream fails.
        setTimeout(() => controller.error(new Error("gone")), 0);
      },
      pull: () => new Promise(() => undefined),
    });
    await patch(worker.call, path, MEBIBYTE, broken, options);
    const offset = offsetOf(await head(team.call, path));
    expect(offset).toBeGreaterThanOrEqual(MEBIBYTE);
    for (const part of held) part.free();
    await patch(worker.call, path, offset, bytes.slice(offset), options);
    expect(await processed(team, idOf(created))).toMatchObject({ status: "completed", sha256: sha256(bytes) });
    expect(await spills(team)).toEqual([]);
  });
});

describe("An interrupted upload", () => {
  const headers = { "Upload-Length": "3000", ...BYTES };

  test("leaves nothing if its creation is interrupted, because the client has no URL", async ({ team }) => {
    const answer = await ask(team.call, "POST", RESUMABLE, headers, { body: brokenStream(patternOf(1000)) });
    expect([answer.status, answer.code]).toEqual([408, "upload_timeout"]);
    await expectNoFiles(team);
  });

  test("counts until its bytes are deleted, also if it was canceled while a request died", async ({ team }) => {
    const path = locationOf(await create(team.call, 3000));
    await DB.prepare("update uploads set is_writing = 1 where team_id = ?").bind(team.teamId).run();
    expect((await ask(team.call, "DELETE", path)).status).toBe(204);
    expect((await usageOf(team)).bytes).toBe(3000);
    await insertUnfinished(2998, team);
    expect((await create(team.call, 10)).status).toBe(201);
    expect((await create(team.call, 10)).code).toBe("too_many_unfinished_uploads");
    const world = new World();
    world.aheadMilliseconds = 16 * 60 * 1000;
    await must(world.recover());
    expect((await usageOf(team)).bytes).toBe(10);
    expect((await create(team.call, 10)).status).toBe(201);
  });

  test("does not change after a request without Content-Length that is too long, and HEAD does not wait for it", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 1000));
    const answer = await patch(team.call, path, 0, streamOf(patternOf(1001)));
    expect([answer.status, answer.code]).toEqual([413, "body_too_large"]);
    const { results } = await DB.prepare("select offset_bytes, is_writing from uploads where team_id = ?")
      .bind(team.teamId)
      .all();
    expect(results).toEqual([{ offset_bytes: 0, is_writing: 0 }]);
  });

  test("rejects a PATCH only after it has read up to 1 MiB of the body, so that its client sees the response", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 10 * MEBIBYTE));
    const remainder = async (size: number) => {
      const left = [...Array(size / MEBIBYTE)].map(() => new Uint8Array(MEBIBYTE));
      const pull = (controller: ReadableStreamDefaultController) => {
        const chunk = left.shift();
        if (chunk) controller.enqueue(chunk);
        else controller.close();
      };
      const body = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
      expect((await patch(team.call, path, 5, body)).code).toBe("offset_mismatch");
      return left.length;
    };
    expect(await remainder(MEBIBYTE)).toBe(0);
    expect(await remainder(9 * MEBIBYTE)).toBeGreaterThanOrEqual(7);
  });

  test("returns 204 or 404 to concurrent deletions, never 403", async ({ team }) => {
    const path = locationOf(await create(team.call, 1000));
    const answers = await Promise.all([1, 2, 3].map(() => ask(team.call, "DELETE", path)));
    expect(answers.map(({ status }) => status)).toContain(204);
    for (const { status } of answers) expect([204, 404]).toContain(status);
  });

  test("does not read its chunks for a request without bytes", async ({ team }) => {
    const path = locationOf(await create(team.call, 3000));
    await patch(team.call, path, 0, patternOf(1000));
    const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/` });
    await patch(team.call, path, 1000, new Uint8Array());
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toEqual(objects);
    expect(offsetOf(await head(team.call, path))).toBe(1000);
  });
});

describe("A creation with the Idempotency-Key of an unfinished upload", () => {
  const begin = (token: string, size: number, bytes: number) =>
    ask(
      call,
      "POST",
      RESUMABLE,
      {
        ...BYTES,
        "Upload-Length": `${size}`,
        "Idempotency-Key": "again",
        "Upload-Metadata": metadataOf({ filename: "a.wav" }),
      },
      { token, body: patternOf(bytes) },
    );

  test("leaves R2, rows and what lists read as they were, however often a token repeats it", async () => {
    const team = await newTeam();
    const { token } = await newUploadToken(team, {
      maxFiles: 10,
      maxFileBytes: 100_000,
      properties: { folder: "takes", tags: ["t"], reference: "r" },
    });
    const state = async () => {
      const objects = (await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects.map(({ size }) => size);
      const counts = await DB.prepare(
        `select (select count(*) from files where team_id = ?1) as files,
           (select count(*) from uploads where team_id = ?1) as uploads,
           (select count(*) from file_tags where team_id = ?1) as tags`,
      )
        .bind(team.teamId)
        .first();
      const rowsRead: number[] = [];
      for (const query of ["", "?sort=name", "?folder=takes", "?tag=t", "?reference=r"]) {
        const bindings = new ProxiedBindings();
        const counting = startWorker((deps) =>
          withBindings(deps, bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink })),
        );
        expect((await counting.call("GET", `/docs/v1/uploads${query}`, { token: team.token })).status).toBe(200);
        rowsRead.push(bindings.effects.rowsRead);
      }
      return { objects, counts, rowsRead, usage: await usageOf(team) };
    };
    expect((await begin(token, 100_000, 1000)).status).toBe(201);
    const before = await state();
    for (let i = 0; i < 25; i++) expect((await begin(token, 100_000, 1000)).status).toBe(201);
    expect(await state()).toEqual(before);
    expect(before).toMatchObject({ objects: [1000], counts: { files: 0, uploads: 1, tags: 0 }, usage: { files: 1 } });
  });

  test("does not end that upload if it is refused itself", async () => {
    const team = await newTeam();
    const { key: token } = await newKey(team, { isPublic: true, limits: { maxFileBytes: 1000 } });
    const path = locationOf(await begin(token, 1000, 10));
    expect((await begin(token, 1001, 10)).code).toBe("file_too_large");
    expect(offsetOf(await head(call, path, { token }))).toBe(10);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 1000 });
  });

  test("cannot exceed the limit of its token by more than the upload whose bytes are not deleted yet", async () => {
    const team = await newTeam();
    const { token } = await newUploadToken(team, { maxFiles: 1 });
    const markWriting = () => DB.prepare("update uploads set is_writing = 1 where team_id = ?").bind(team.teamId).run();
    expect((await begin(token, 1000, 10)).status).toBe(201);
    await markWriting();
    expect((await begin(token, 1000, 10)).status).toBe(201);
    expect(await usageOf(team)).toMatchObject({ files: 2, bytes: 2000 });
    expect((await begin(token, 1000, 10)).code).toBe("upload_limit_reached");
    const world = new World();
    world.aheadMilliseconds = 16 * 60 * 1000;
    await must(world.recover());
    expect((await begin(token, 1000, 10)).status).toBe(201);
  });
});

test("A finished upload keeps no metadata, which may be larger than all else that it leaves", async () => {
  const team = await newTeam();
  const created = await create(team.call, 1, { filename: "a.txt", pad: "x".repeat(8000) });
  const metadata = async () => (await head(team.call, locationOf(created))).headers.get("Upload-Metadata");
  expect(await metadata()).toContain("pad ");
  await patch(team.call, locationOf(created), 0, new Uint8Array(1));
  expect(await metadata()).toBeNull();
  const row = await DB.prepare("select status, metadata, properties from uploads where team_id = ?")
    .bind(team.teamId)
    .first();
  expect(row).toEqual({ status: "committed", metadata: "", properties: null });
});

describe("The properties of an upload with a public key", () => {
  const properties = (bytes: number) => JSON.stringify({ metadata: { a: "x".repeat(bytes - 21) } });

  test("have at most 1 KiB, because anyone may have the key", async () => {
    const team = await newTeam();
    const { key: token } = await newKey(team, { isPublic: true });
    const inForm = (bytes: number, by: string) => {
      const body = new FormData();
      body.append("properties", properties(bytes));
      body.append("file", new File(["a"], "a.txt"));
      return call("POST", "/docs/v1/uploads", { token: by, body });
    };
    const resumable = (bytes: number, by: string) => create(call, 1, { properties: properties(bytes) }, { token: by });
    expect(properties(1024)).toHaveLength(1024);
    for (const send of [inForm, resumable]) {
      expect((await send(1024, token)).status).toBeOneOf([200, 201]);
      expect(await send(1025, token)).toMatchObject({ status: 400, code: "invalid_input" });
      expect((await send(1025, team.token)).status).toBeOneOf([200, 201]);
    }
    const padded = await create(call, 1, { filename: "a.txt", pad: "x".repeat(3000) }, { token });
    expect(padded).toMatchObject({ status: 400, code: "invalid_input" });
  });

  test("bound the text of a row to about 8 KiB, also if normalization makes names longer", async () => {
    const team = await newTeam();
    const long = "\ufdfa".repeat(60);
    const body = new FormData();
    const sent = { name: long, folder: "f".repeat(512), reference: "r".repeat(128), tags: ["t"] };
    body.append("properties", JSON.stringify({ ...sent, metadata: { a: "x".repeat(4000) } }));
    body.append("file", new File(["a"], `${long}.txt`));
    const { id } = await call("POST", "/docs/v1/uploads", { token: team.token, body });
    const row = await DB.prepare("select * from files where id = ?").bind(id).first<Record<string, unknown>>();
    expect(Buffer.byteLength(String(row?.name_key))).toBeLessThanOrEqual(200);
    const texts = Object.values(row ?? {}).filter((value) => typeof value === "string");
    expect(Buffer.byteLength(texts.join(""))).toBeLessThan(8 * 1024);
    const found = await read(team, `/docs/v1/uploads?name=${encodeURIComponent(long.slice(0, 2))}`);
    expect(idsIn(found)).toEqual([id]);
    const tags = Array.from({ length: 20 }, (_, i) => String.fromCharCode(97 + i) + "\u{1f3b5}".repeat(63));
    const answer = await team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { tags } });
    expect(answer).toMatchObject({ status: 400, code: "invalid_input" });
  });
});

test("The OpenAPI document describes the headers and statuses of each tus operation", () => {
  type Described = { parameters: { name: string }[]; responses: object };
  const described = document.paths as unknown as Record<string, Record<string, Described>>;
  const at = `${RESUMABLE}/{upload}`;
  for (const [path, method, statuses] of [
    [RESUMABLE, "options", "204"],
    [RESUMABLE, "post", "201 400 401 403 412 413 415"],
    [at, "head", "200 404 410 423"],
    [at, "post", "200 204 405"],
    [at, "patch", "204 404 409 410 413 415"],
    [at, "delete", "204 403 404"],
  ] as const) {
    const documented = Object.keys(described[path]?.[method]?.responses ?? {});
    expect(documented, `${method} ${path}`).toEqual(expect.arrayContaining(statuses.split(" ")));
    if (method === "head") for (const never of ["429", "503"]) expect(documented).not.toContain(never);
  }
  const named = described[at]?.patch?.parameters.map(({ name }) => name);
  expect(named).toEqual(["upload", "Tus-Resumable", "Upload-Offset"]);
});
