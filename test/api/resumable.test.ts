import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { createByteStore } from "../../src/platform/byte-store.ts";
import type { Part } from "../../src/platform/part.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { outageOf, ProxiedBindings } from "../support/bindings.ts";
import type { Answer } from "../support/client.ts";
import { document } from "../support/contract.ts";
import { sink, withBindings } from "../support/deps.ts";
import {
  call,
  compose,
  form,
  newTeam,
  newUser,
  OPERATOR,
  PASSWORD,
  processed,
  queueing,
  startWorker,
  streamOf,
  type Team,
  upload,
  withoutJobs,
} from "../support/harness.ts";
import { ask, create, head, idOf, locationOf, metadataOf, offsetOf, patch, RESUMABLE } from "../support/tus.ts";

const MEBIBYTE = 1024 * 1024;
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const digestOf = (bytes: Uint8Array) => `sha-256=:${createHash("sha256").update(bytes).digest("base64")}:`;
const patternOf = (size: number) => Uint8Array.from({ length: size }, (_, i) => (i * i) % 251);
const NOT_FOUND = '{"status":false,"message":"Not found.","code":"not_found","requestId":"-"}';
const withoutRequestId = (text: string) => text.replace(/"requestId":"[^"]+"/, '"requestId":"-"');
const usageOf = async (team: Team) => (await team.call("GET", "/docs/v1/usage")).body.data;

/** Everything that a team has: rows and objects. */
async function stored(team: Team): Promise<unknown> {
  const of = (sql: string) => env.DB.prepare(sql).bind(team.teamId);
  const answers = await env.DB.batch([
    of("select * from files where team_id = ? order by id"),
    of("select * from uploads where team_id = ? order by file_id"),
    of("select * from upload_parts where file_id in (select file_id from uploads where team_id = ?) order by number"),
  ]);
  const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/` });
  return [answers.map(({ results }) => results), objects.map(({ key, etag }) => [key, etag])];
}

async function expectRejected(team: Team, status: number, code: string, act: () => Promise<Answer>): Promise<Answer> {
  const before = await stored(team);
  const answer = await act();
  expect([answer.status, answer.code], answer.text).toEqual([status, code]);
  expect(answer.headers.get("Tus-Resumable")).toBe("1.0.0");
  expect(await stored(team)).toEqual(before);
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
    expect(Math.abs(expires - Date.now() - 60 * 60 * 1000)).toBeLessThan(5 * 60 * 1000);
    expect([created.text, offsetOf(created), created.headers.get("Tus-Resumable")]).toEqual(["", 0, "1.0.0"]);
  });

  test("can be created with its first bytes, or all of them", async () => {
    const headers = { "Upload-Length": "4", "Content-Type": "application/offset+octet-stream" };
    const body = (text: string) => ({ body: text });
    const some = await ask(team.call, "POST", RESUMABLE, headers, body("ab"));
    expect([some.status, offsetOf(some)]).toEqual([201, 2]);
    expect((await patch(team.call, locationOf(some), 2, new TextEncoder().encode("cd"))).status).toBe(204);
    const all = await ask(team.call, "POST", RESUMABLE, headers, body("abcd"));
    expect([all.status, offsetOf(all), all.headers.has("Upload-Expires")]).toEqual([201, 4, false]);
    for (const id of [idOf(some), idOf(all)]) {
      const { data } = (await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).body;
      expect(data).toMatchObject({ status: "pending", size: 4, sha256: null, originalName: "unnamed" });
    }
  });

  test("is listed once its last byte is stored, and counts its full size from its creation", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 100));
    const listed = async () => (await team.call("GET", "/docs/v1/uploads")).body.data.length;
    await patch(team.call, path, 0, new Uint8Array(99));
    expect([await listed(), (await usageOf(team)).bytes]).toEqual([0, 100]);
    const last = await patch(team.call, path, 99, new Uint8Array(1));
    expect([last.status, last.headers.get("Content-Location")]).toEqual([
      204,
      `/docs/v1/uploads/${path.slice(RESUMABLE.length + 1).split(".")[0]}`,
    ]);
    expect([await listed(), (await usageOf(team)).bytes]).toEqual([1, 100]);
  });

  test("that is complete stays readable, accepts an empty PATCH, and can only be deleted as a file", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 3));
    await patch(team.call, path, 0, new Uint8Array(3));
    const progress = await head(team.call, path);
    expect([progress.status, offsetOf(progress), progress.headers.get("Upload-Length"), progress.text]).toEqual([
      200,
      3,
      "3",
      "",
    ]);
    expect((await patch(team.call, path, 3, new Uint8Array())).status).toBe(204);
    await expectRejected(team, 413, "body_too_large", () => patch(team.call, path, 3, new Uint8Array(1)));
    await expectRejected(team, 409, "offset_mismatch", () => patch(team.call, path, 0, new Uint8Array(3)));
    await expectRejected(team, 403, "forbidden", () => ask(team.call, "DELETE", path));
    const file = path.split("/").at(-1)?.split(".")[0];
    expect((await team.call("DELETE", `/docs/v1/uploads/${file}`)).status).toBe(200);
    expect((await head(team.call, path)).status).toBe(404);
    expect(await stored(team)).toEqual([[[], [], []], []]);
  });

  test("is canceled by DELETE and leaves no orphan", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 12 * MEBIBYTE));
    await patch(team.call, path, 0, patternOf(7 * MEBIBYTE));
    expect((await ask(team.call, "DELETE", path)).status).toBe(204);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
    expect(await stored(team)).toEqual([[[], [], []], []]);
    for (const method of ["PATCH", "DELETE", "HEAD"]) {
      const again = await ask(team.call, method, path, {
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
      });
      expect(again.status, method).toBe(404);
    }
  });

  test.each(["", "?unfinished=true"])("is canceled when its file is deleted%s", async (query) => {
    const team = await newTeam();
    const created = await create(team.call, 100);
    await patch(team.call, locationOf(created), 0, new Uint8Array(50));
    expect((await team.call("DELETE", `/docs/v1/uploads/${idOf(created)}${query}`)).status).toBe(200);
    expect(await stored(team)).toEqual([[[], [], []], []]);
  });

  test("is kept once complete, if it is canceled by its id", async () => {
    const created = await create(team.call, 1);
    await patch(team.call, locationOf(created), 0, new Uint8Array(1));
    const path = `/docs/v1/uploads/${idOf(created)}`;
    expect((await team.call("DELETE", `${path}?unfinished=true`)).code).toBe("forbidden");
    expect((await team.call("GET", path)).status).toBe(200);
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
  test("needs the secret and any key of the team, and otherwise gets the same 404", async () => {
    const team = await newTeam();
    const stranger = await newTeam();
    const json = { name: "page", isPublic: true };
    const token = (await team.call("POST", "/auth/v1/apikeys", { json })).body.data.key;
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
        const { status, text } = await expectRejected(team, 404, "not_found", act);
        expect([status, withoutRequestId(text)], at).toEqual([404, NOT_FOUND]);
      }
    }
    expect((await ask(team.call, "DELETE", path, {}, { token })).status).toBe(204);
  });

  test("without a token of a team is rejected before all other checks", async () => {
    const path = locationOf(await create(team.call, 10));
    const acts = [
      (options: object) => create(call, 10, {}, options),
      (options: object) => patch(call, path, 0, new Uint8Array(1), options),
      (options: object) => ask(call, "DELETE", path, {}, options),
      (options: object) => ask(call, "POST", path, { "X-HTTP-Method-Override": "DELETE" }, options),
    ];
    for (const act of acts) {
      await expectRejected(team, 401, "token_missing", () => act({}));
      await expectRejected(team, 401, "token_invalid", () => act({ token: "nonsense" }));
      await expectRejected(team, 403, "forbidden", () => act({ token: OPERATOR }));
    }
    expect((await head(call, path)).status).toBe(401);
    for (const [at, version] of [
      [path, "0.2.2"],
      [`${RESUMABLE}/nonsense`, "1.0.0"],
    ] as const) {
      const token = newToken(realSystem, false);
      const answer = await ask(call, "HEAD", at, { "Tus-Resumable": version }, { token });
      expect(answer.status, "a caller who is not known learns nothing else").toBe(401);
    }
    expect((await head(call, path, { token: OPERATOR })).status).toBe(403);
  });

  test("above the rate limit gets 423 and Retry-After from HEAD", async () => {
    const path = locationOf(await create(team.call, 10));
    const counting = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, token: async () => false } }));
    const refusing = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, isBlocked: () => true } }));
    for (const { call: limited } of [counting, refusing]) {
      const answer = await head(limited, path, { token: team.token });
      expect([answer.status, answer.headers.get("Retry-After")]).toEqual([423, "60"]);
      expect((await patch(limited, path, 0, new Uint8Array(1), { token: team.token })).status).toBe(429);
    }
  });

  test("gets 423 from HEAD while the database is unavailable, and 500 for a bug, so that it does not poll forever", async () => {
    const path = locationOf(await create(team.call, 10));
    for (const [failure, status] of [
      ["outage", 423],
      ["permanent", 500],
    ] as const) {
      const bindings = new ProxiedBindings({ ...outageOf("D1"), failure });
      const broken = startWorker((deps) =>
        withBindings(deps, bindings.wrap({ DB: env.DB, BUCKET: env.BUCKET, JOBS: sink })),
      );
      expect((await head(broken.call, path, { token: team.token })).status).toBe(status);
    }
  });
});

describe("The unfinished uploads of a team", () => {
  const newKey = async (team: Team, isPublic: boolean) => {
    const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "key", isPublic } });
    return { id: body.data.id as string, token: body.data.key as string };
  };
  const countOf = (answers: Answer[], outcome: number | string) =>
    answers.filter(({ status, code }) => status === outcome || code === outcome).length;
  const many = (count: number, send: () => Promise<Answer>) => Promise.all(Array.from({ length: count }, send));

  test("are listed newest first, in pages, for secret keys, and are canceled by id", async () => {
    const team = await newTeam();
    const page = await newKey(team, true);
    const first = await create(team.call, 300, { filename: "one.wav" });
    await patch(team.call, locationOf(first), 0, new Uint8Array(100));
    const second = await create(team.call, 200, { filename: "two.wav" }, { token: page.token });
    const finished = await create(team.call, 1);
    await patch(team.call, locationOf(finished), 0, new Uint8Array(1));

    const newest = await team.call("GET", `${RESUMABLE}?limit=1`);
    const next = /<https?:\/\/[^/]+(.+)>; rel="next"/.exec(newest.headers.get("Link") ?? "")?.[1] ?? "";
    const oldest = await team.call("GET", next);
    const day = (answer: Answer) =>
      Date.parse(answer.body.data[0].expiresAt) - Date.parse(answer.body.data[0].createdAt);
    expect([newest.body.data.length, oldest.body.data.length, oldest.headers.get("Link")]).toEqual([1, 1, null]);
    expect(newest.body.data[0]).toMatchObject({
      _id: idOf(second),
      name: "two.wav",
      size: 200,
      offset: 0,
      keyId: page.id,
    });
    expect(oldest.body.data[0]).toMatchObject({ _id: idOf(first), name: "one.wav", size: 300, offset: 100 });
    expect([day(newest), day(oldest) > 23 * 60 * 60 * 1000]).toEqual([60 * 60 * 1000, true]);
    expect((await call("GET", RESUMABLE, { token: page.token })).code).toBe("insufficient_scope");
    expect((await (await newTeam()).call("GET", RESUMABLE)).body.data).toEqual([]);

    for (const created of [first, second]) await team.call("DELETE", `/docs/v1/uploads/${idOf(created)}`);
    expect((await team.call("GET", RESUMABLE)).body.data).toEqual([]);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 1 });
    expect((await head(team.call, locationOf(first))).status).toBe(404);
  });

  test("are at most 50 of public keys and 100 in total, even if they are created at once", async () => {
    const team = await newTeam();
    const pages = [await newKey(team, true), await newKey(team, true)];
    const ofPages = (
      await Promise.all(pages.map(({ token }) => many(26, () => create(call, 1, {}, { token }))))
    ).flat();
    expect([countOf(ofPages, 201), countOf(ofPages, "too_many_unfinished_uploads")]).toEqual([50, 2]);
    const own = await many(52, () => create(team.call, 1));
    expect([countOf(own, 201), countOf(own, "too_many_unfinished_uploads")]).toEqual([50, 2]);
    const path = locationOf(ofPages.find(({ status }) => status === 201)!);
    await patch(team.call, path, 0, new Uint8Array(1));
    const again = [await create(call, 1, {}, pages[0]), await create(call, 1, {}, pages[1])];
    expect(again.map(({ status }) => status)).toEqual([201, 409]);
    expect(again[1]?.body.message).toMatch(/at most 100 unfinished uploads/);
    await upload(team, "form.txt", "forms are not counted");
  });

  test("reserve at most a fifth of the quota with public keys, even if they are created at once", async () => {
    const team = await newTeam();
    const small = startWorker(
      compose(withoutJobs, (deps) => ({ ...deps, settings: { ...deps.settings, maxTeamBytes: 100 } })),
    );
    const pages = [await newKey(team, true), await newKey(team, true)];
    const created = (
      await Promise.all(pages.map(({ token }) => many(5, () => create(small.call, 5, {}, { token }))))
    ).flat();
    expect([countOf(created, 201), countOf(created, "quota_exceeded")]).toEqual([4, 6]);
    expect(created.find(({ status }) => status === 413)?.body.message).toMatch(/ 20 bytes\./);
    expect((await create(small.call, 80, {}, { token: team.token })).status).toBe(201);
  });

  const revocations: [string, (team: Team) => Promise<{ key: { token: string }; path: string }>][] = [
    [
      "the key that created them is revoked",
      async (team) => {
        const key = await newKey(team, false);
        return { key, path: `/auth/v1/apikeys/${key.id}` };
      },
    ],
    [
      "the user whose login created that key is deleted",
      async (team) => {
        const user = await newUser(team);
        const json = { teamId: team.teamId, email: user.email, password: PASSWORD };
        const { key: token } = (await call("POST", "/auth/v1/login", { json })).body.data;
        const { body } = await call("POST", "/auth/v1/apikeys", { token, json: { name: "theirs" } });
        return { key: { token: body.data.key }, path: `/auth/v1/users/${user._id}` };
      },
    ],
  ];
  test.each(revocations)("end when %s, and release their quota immediately", async (_, prepare) => {
    const team = await newTeam();
    const { key, path: revoked } = await prepare(team);
    const path = locationOf(await create(call, 12 * MEBIBYTE, {}, key));
    await patch(call, path, 0, patternOf(6 * MEBIBYTE), key);
    const kept = await create(call, 7, {}, await newKey(team, false));
    expect((await team.call("DELETE", revoked)).status).toBe(200);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 7 });
    expect((await team.call("GET", RESUMABLE)).body.data).toMatchObject([{ _id: idOf(kept) }]);
    expect((await head(team.call, path)).status).toBe(404);
    expect((await patch(team.call, path, 6 * MEBIBYTE, new Uint8Array(1))).status).toBe(404);
  });

  test("are replaced by a creation with the same Idempotency-Key, but not once complete", async () => {
    const team = await newTeam();
    const page = await newKey(team, true);
    const begin = async ({ token }: { token: string }) => {
      const headers = { "Upload-Length": "5", "Idempotency-Key": "k" };
      return locationOf(await ask(call, "POST", RESUMABLE, headers, { token }));
    };
    const [lost, others] = [await begin(team), await begin(page)];
    await patch(team.call, lost, 0, new Uint8Array(2));
    const path = await begin(team);
    const statuses = await Promise.all([lost, others, path].map(async (url) => (await head(team.call, url)).status));
    expect(statuses).toEqual([404, 200, 200]);
    expect(await usageOf(team)).toMatchObject({ files: 2, bytes: 10 });
    await patch(team.call, path, 0, new Uint8Array(5));
    await begin(team);
    expect((await team.call("GET", "/docs/v1/uploads")).body.data).toHaveLength(1);
    expect(await usageOf(team)).toMatchObject({ files: 3, bytes: 15 });
  });

  test("keep their expiry if requests bring no bytes", async () => {
    const created = await create(team.call, 2);
    const [path, fileId] = [locationOf(created), idOf(created)];
    const expiry = async () => (await head(team.call, path)).headers.get("Upload-Expires") ?? "";
    const before = await expiry();
    expect((await patch(team.call, path, 0, new Uint8Array())).status).toBe(204);
    expect(await expiry()).toBe(before);
    await patch(team.call, path, 0, new Uint8Array(1));
    expect(Date.parse(await expiry()) - Date.parse(before)).toBeGreaterThan(22 * 60 * 60 * 1000);
    await env.DB.prepare("update uploads set due_at = due_at - 60000 where file_id = ?").bind(fileId).run();
    const later = await expiry();
    expect((await patch(team.call, path, 1, new Uint8Array())).status).toBe(204);
    expect(await expiry()).toBe(later);
  });
});

describe("The resumable upload API", () => {
  const bytes = { "Content-Type": "application/offset+octet-stream" };
  const length = { "Upload-Length": "10" };
  test.each<[string, number, string, Record<string, string | undefined>]>([
    ["without Upload-Length", 400, "invalid_input", {}],
    ["of length 0", 400, "invalid_input", { "Upload-Length": "0" }],
    ["of a negative length", 400, "invalid_input", { "Upload-Length": "-1" }],
    ["of a length in hex", 400, "invalid_input", { "Upload-Length": "0x10" }],
    ["of two lengths", 400, "invalid_input", { "Upload-Length": "10, 10" }],
    ["of a length above the maximum", 413, "file_too_large", { "Upload-Length": "5000000001" }],
    ["of a length with too many digits", 400, "invalid_input", { "Upload-Length": "9".repeat(30) }],
    ["of a deferred length", 400, "invalid_input", { "Upload-Defer-Length": "1" }],
    ["of a length that is also deferred", 400, "invalid_input", { ...length, "Upload-Defer-Length": "1" }],
    ["for a later concatenation", 400, "invalid_input", { ...length, "Upload-Concat": "partial" }],
    ["without a version", 400, "invalid_input", { ...length, "Tus-Resumable": undefined }],
    ["of another version", 412, "unsupported_version", { ...length, "Tus-Resumable": "0.2.2" }],
    ["with metadata that is not base64", 400, "invalid_input", { ...length, "Upload-Metadata": "filename ?" }],
    ["with metadata in broken base64", 400, "invalid_input", { ...length, "Upload-Metadata": "filename YQ" }],
    ["with metadata without a key", 400, "invalid_input", { ...length, "Upload-Metadata": "filename YQ==,,a YQ==" }],
    ["with a key twice", 400, "invalid_input", { ...length, "Upload-Metadata": "filename YQ==,filename Yg==" }],
    ["with a filename that is not UTF-8", 400, "invalid_input", { ...length, "Upload-Metadata": "filename /w==" }],
    [
      "with 13,000 characters of metadata",
      400,
      "invalid_input",
      { ...length, "Upload-Metadata": `a ${"YWFh".repeat(3250)}` },
    ],
    ["with Content-Digest", 400, "invalid_input", { ...length, "Content-Digest": digestOf(new Uint8Array(3)) }],
    [
      "with two digests of the file",
      400,
      "invalid_input",
      {
        ...length,
        "Upload-Metadata": metadataOf({ sha256: sha256(new Uint8Array(3)) }),
        "Repr-Digest": digestOf(new Uint8Array(4)),
      },
    ],
    ["with a malformed sha256", 400, "invalid_input", { ...length, "Upload-Metadata": metadataOf({ sha256: "abc" }) }],
  ])("rejects a creation %s with %i, and stores nothing", async (_, status, code, headers) => {
    const answer = await expectRejected(team, status, code, () => ask(team.call, "POST", RESUMABLE, headers));
    const isOfVersion = answer.headers.get("Tus-Version") === "1.0.0";
    expect(isOfVersion).toBe(headers["Tus-Resumable"] !== "1.0.0" && "Tus-Resumable" in headers);
  });

  test("rejects a creation whose body has another type or is longer than the upload", async () => {
    const text = { body: "text" };
    await expectRejected(team, 415, "unsupported_media_type", () =>
      ask(team.call, "POST", RESUMABLE, { ...length, "Content-Type": "text/plain" }, text),
    );
    const tooLong = { ...bytes, "Upload-Length": "3", "Content-Length": "4" };
    await expectRejected(team, 413, "body_too_large", () => ask(team.call, "POST", RESUMABLE, tooLong, text));
  });

  test("rejects a creation whose body is longer than the upload without Content-Length, and frees its quota", async () => {
    const team = await newTeam();
    const body = streamOf(new Uint8Array(4));
    const answer = await ask(team.call, "POST", RESUMABLE, { ...bytes, "Upload-Length": "3" }, { body });
    expect([answer.status, answer.code]).toEqual([413, "body_too_large"]);
    expect((await usageOf(team)).bytes).toBe(0);
  });

  test("rejects a creation above the storage quota", async () => {
    const small = startWorker(
      compose(withoutJobs, (deps) => ({ ...deps, settings: { ...deps.settings, maxTeamBytes: 100 } })),
    );
    await expectRejected(team, 413, "quota_exceeded", () => create(small.call, 101, {}, { token: team.token }));
  });

  test.each<[string, number, string, Record<string, string | undefined>]>([
    ["without Upload-Offset", 400, "invalid_input", { ...bytes }],
    ["at an offset that is not a number", 400, "invalid_input", { ...bytes, "Upload-Offset": "5.0" }],
    ["at a lower offset", 409, "offset_mismatch", { ...bytes, "Upload-Offset": "4" }],
    ["at a higher offset", 409, "offset_mismatch", { ...bytes, "Upload-Offset": "6" }],
    ["beyond the length", 413, "body_too_large", { ...bytes, "Upload-Offset": "5", "Content-Length": "6" }],
    ["of another type", 415, "unsupported_media_type", { "Content-Type": "text/plain", "Upload-Offset": "5" }],
    ["without a type", 415, "unsupported_media_type", { "Upload-Offset": "5" }],
    ["of another version", 412, "unsupported_version", { ...bytes, "Upload-Offset": "5", "Tus-Resumable": "2.0.0" }],
  ])("rejects a PATCH %s with %i, and loses nothing", async (_, status, code, headers) => {
    const path = locationOf(await create(team.call, 10));
    await patch(team.call, path, 0, new Uint8Array(5));
    const body = { body: new Uint8Array(6) };
    await expectRejected(team, status, code, () => ask(team.call, "PATCH", path, headers, body));
    expect((await patch(team.call, path, 5, new Uint8Array(5))).status).toBe(204);
  });

  test("returns 410 for an expired upload, and stores no bytes", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 10));
    await env.DB.prepare("update uploads set due_at = 1 where team_id = ?").bind(team.teamId).run();
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
    const sent = await by("PATCH", { ...bytes, "Upload-Offset": "0" }, { body: new Uint8Array(4) });
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
    const preflight = await call("OPTIONS", path, { headers });
    const listed = (answer: Answer, name: string) => answer.headers.get(name)?.split(/,\s*/);
    expect([preflight.status, preflight.headers.get("Access-Control-Allow-Origin")]).toEqual([204, "*"]);
    expect(listed(preflight, "Access-Control-Allow-Methods")).toEqual(
      expect.arrayContaining(["POST", "PATCH", "DELETE"]),
    );
    expect(listed(preflight, "Access-Control-Allow-Headers")).toEqual(
      expect.arrayContaining([
        "Authorization",
        "Content-Type",
        "Tus-Resumable",
        "Upload-Length",
        "Upload-Offset",
        "Upload-Metadata",
        "X-HTTP-Method-Override",
      ]),
    );
    const progress = await head(team.call, path);
    expect(progress.headers.get("Access-Control-Allow-Origin")).toBe("*");
    const exposed =
      "Location, Content-Location, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Expires, Tus-Resumable, Tus-Version, Tus-Extension, Tus-Max-Size";
    expect(listed(progress, "Access-Control-Expose-Headers")).toEqual(expect.arrayContaining(exposed.split(", ")));
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
    const body = new ReadableStream<Uint8Array>({
      async start(controller) {
        const encoded = new Uint8Array(await new Response(form("a.bin", new Uint8Array(7 * MEBIBYTE))).arrayBuffer());
        controller.enqueue(encoded.slice(0, 6 * MEBIBYTE));
        controller.error(new Error("gone"));
      },
    });
    const type = new Response(form("a.bin", "x")).headers.get("Content-Type") ?? "";
    await worker.call("POST", "/docs/v1/uploads", { token: team.token, body, headers: { "Content-Type": type } });
    expect(await stored(team)).toEqual([[[], [], []], []]);
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
  const broken = (bytes: Uint8Array) => {
    let hasSent = false;
    return new ReadableStream<Uint8Array>({
      pull(controller) {
        if (hasSent) controller.error(new Error("Network connection lost."));
        else controller.enqueue(bytes);
        hasSent = true;
      },
    });
  };
  const headers = { "Upload-Length": "3000", "Content-Type": "application/offset+octet-stream" };

  test("leaves nothing if its creation is interrupted, because the client has no URL", async () => {
    const team = await newTeam();
    const answer = await ask(team.call, "POST", RESUMABLE, headers, { body: broken(patternOf(1000)) });
    expect([answer.status, answer.code]).toEqual([408, "upload_timeout"]);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
    expect(await stored(team)).toEqual([[[], [], []], []]);
  });

  test("does not count as unfinished if it was deleted while a request died", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 3000));
    await env.DB.prepare("update uploads set is_writing = 1 where team_id = ?").bind(team.teamId).run();
    expect((await ask(team.call, "DELETE", path)).status).toBe(204);
    expect((await usageOf(team)).bytes).toBe(0);
    const rows = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 99)";
    const columns = "team_id, key_id, is_public, secret_hash, size_bytes, part_bytes, metadata, created_at, due_at";
    await env.DB.prepare(
      `${rows} insert into uploads (file_id, ${columns}) select printf('%024x', i) || ?1, ?1, '', 0, '', 1, 1, '', 1, 4e15 from n`,
    )
      .bind(team.teamId)
      .run();
    expect((await create(team.call, 10)).status).toBe(201);
    expect((await create(team.call, 10)).code).toBe("too_many_unfinished_uploads");
  });

  test("does not change after a request without Content-Length that is too long, and HEAD does not wait for it", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 1000));
    const answer = await patch(team.call, path, 0, streamOf(patternOf(1001)));
    expect([answer.status, answer.code]).toEqual([413, "body_too_large"]);
    const { results } = await env.DB.prepare("select offset_bytes, is_writing from uploads where team_id = ?")
      .bind(team.teamId)
      .all();
    expect(results).toEqual([{ offset_bytes: 0, is_writing: 0 }]);
  });

  test("returns 204 or 404 to concurrent deletions, never 403", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 1000));
    const answers = await Promise.all([1, 2, 3].map(() => ask(team.call, "DELETE", path)));
    expect(answers.map(({ status }) => status)).toContain(204);
    for (const { status } of answers) expect([204, 404]).toContain(status);
  });

  test("does not read its chunks for a request without bytes", async () => {
    const team = await newTeam();
    const path = locationOf(await create(team.call, 3000));
    await patch(team.call, path, 0, patternOf(1000));
    const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/` });
    await patch(team.call, path, 1000, new Uint8Array());
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toEqual(objects);
    expect(offsetOf(await head(team.call, path))).toBe(1000);
  });
});

test("The OpenAPI document describes the headers and statuses of each tus operation", () => {
  const described = document.paths as unknown as Record<
    string,
    Record<string, { parameters: { name: string }[]; responses: object }>
  >;
  const statuses = (path: string, method: string) => Object.keys(described[path]?.[method]?.responses ?? {});
  const at = `${RESUMABLE}/{upload}`;
  expect(statuses(RESUMABLE, "post")).toEqual(
    expect.arrayContaining(["201", "400", "401", "403", "412", "413", "415"]),
  );
  expect(statuses(at, "head")).toEqual(expect.arrayContaining(["200", "404", "410", "423"]));
  for (const never of ["429", "503"]) expect(statuses(at, "head")).not.toContain(never);
  expect(statuses(at, "post")).toEqual(expect.arrayContaining(["200", "204", "405"]));
  expect(statuses(at, "patch")).toEqual(expect.arrayContaining(["204", "404", "409", "410", "413", "415"]));
  expect(statuses(at, "delete")).toEqual(expect.arrayContaining(["204", "403", "404"]));
  expect(statuses(RESUMABLE, "options")).toContain("204");
  const named = described[at]?.patch?.parameters.map(({ name }) => name);
  expect(named).toEqual(["upload", "Tus-Resumable", "Upload-Offset"]);
});
