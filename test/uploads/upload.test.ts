import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { describe, expect } from "vitest";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { MemoryBudget } from "../../src/platform/part.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { patternOf, sha256 } from "../support/bytes.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  atOnce,
  brokenStream,
  type CallOptions,
  type Change,
  call,
  expectNoFiles,
  fieldsOf,
  form,
  newKey,
  newTeam,
  OPERATOR,
  openSession,
  pausedStream,
  processed,
  queueing,
  read,
  rejected,
  type Settings,
  startWorker,
  streamOf,
  type Team,
  tally,
  upload,
  usageOf,
  withSettings,
} from "../support/harness.ts";
import { expectSettled } from "../support/invariants.ts";
import { fileForm, sendForm } from "../support/raw-form.ts";
import { create, locationOf, patch } from "../support/tus.ts";
import { encodeForm, must, World } from "../support/world.ts";

/* Form uploads: the form, its limits, and the storage quota. */

const USERS = "/auth/v1/users";
const UPLOADS = "/docs/v1/uploads";

const list = (team: Team) => read(team, UPLOADS);
const objectOf = (team: Team, { filename }: { filename: string }) => env.BUCKET.get(`${team.teamId}/${filename}`);

const bytes = (text: string) => new TextEncoder().encode(text);

/** One part of a form that is built by hand. */
const part = (headers: string, body = "x") => `--b\r\n${headers}\r\n\r\n${body}\r\n`;
const filePart = (body = "hello", name = "a.txt") =>
  part(`Content-Disposition: form-data; name="file"; filename="${name}"`, body);
const textPart = part('Content-Disposition: form-data; name="note"');
const formOf = (body: string | ReadableStream<Uint8Array>, type = "multipart/form-data; boundary=b"): CallOptions => ({
  body,
  headers: { "Content-Type": type },
});
const END = "--b--\r\n";
const textParts = (count: number, text = "x") =>
  Array.from({ length: count }, (_, i) => part(`Content-Disposition: form-data; name="t${i}"`, text));

const workerWith = (settings: Partial<Settings>) => startWorker(withSettings(settings));
const teamWith = (settings: Partial<Settings>) => newTeam(workerWith(settings));

describe("Uploading a file", () => {
  test("responds with the file as lists show it, and names it in Location", async ({ team }) => {
    const { status, headers, body } = await team.call("POST", UPLOADS, { body: form("tone.mp3", "hello") });
    expect([status, fieldsOf(body)]).toEqual([200, ["data", "message"]]);
    expect(body.message).toMatch(/processed shortly/);
    expect(headers.get("Location")).toMatch(/^\/docs\/v1\/uploads\/[0-9a-f]{24}$/);
    expect(await list(team)).toEqual([body.data]);
    expect(body.data).toMatchObject({ _id: headers.get("Location")?.slice(-24), size: 5, status: "pending" });
  });

  test.each(["limit=5", "limit=nonsense"])("accepts and ignores %s in the query", async (query) => {
    const team = await newTeam();
    const { status } = await team.call("POST", `${UPLOADS}?${query}`, { body: form("a.txt", "hello") });
    expect(status).toBe(200);
  });

  test("is allowed with a public key, which cannot read the file", async ({ team }) => {
    const { key: token } = await newKey(team, { isPublic: true });
    const { headers } = await call("POST", UPLOADS, { token, body: form("a.txt", "hello") });
    const path = `${headers.get("Location")}/metadata`;
    expect((await call("GET", path, { token })).status).toBe(403);
    expect((await team.call("GET", path)).status).toBe(200);
  });

  test("stores a large file in parts, without losing a byte", async () => {
    const team = await newTeam(queueing);
    const bytes = patternOf(17 * 1024 * 1024 + 1);
    const id = await upload(team, "large.bin", bytes);
    const found = await processed(team, id);
    expect(found).toMatchObject({ status: "completed", size: bytes.length, sha256: sha256(bytes) });
    const object = await objectOf(team, found);
    expect(object?.etag).toMatch(/-4$/);
    expect(sha256(new Uint8Array(await object!.arrayBuffer()))).toBe(sha256(bytes));
  });

  describe("with digest fields", () => {
    const content = "hello".repeat(100_000);
    const body = filePart(content) + END;
    const digest = (text: string, algorithm = "sha-256") =>
      `${algorithm}=:${createHash("sha256").update(text).digest("base64")}:`;
    const send = (team: Team, headers: Record<string, string>) =>
      team.call("POST", UPLOADS, { body, headers: { ...formOf(body).headers, ...headers } });

    test("stores the file if the last SHA-256 of each matches, and ignores other algorithms", async ({ team }) => {
      const headers = { "Content-Digest": digest(body), "Repr-Digest": digest(content) };
      expect((await send(team, headers)).status).toBe(200);
      const other = { "Content-Digest": digest("other", "sha-512"), "Repr-Digest": `md5=:AA==:, ${digest(content)}` };
      expect((await send(team, other)).status).toBe(200);
      const repeated = { "Repr-Digest": `${digest("other")}, ${digest(content)}` };
      expect((await send(team, repeated)).status).toBe(200);
      expect((await send(team, { "Content-Digest": digest("other", "sha-512") })).status).toBe(200);
    });

    test.each([
      ["digest_mismatch", { "Content-Digest": digest(content) }],
      ["digest_mismatch", { "Repr-Digest": digest(body) }],
      ["digest_mismatch", { "Repr-Digest": `${digest(content)}, ${digest("other")}` }],
      ["digest_mismatch", { "Content-Digest": digest(body), "Repr-Digest": digest("other"), "Idempotency-Key": "a" }],
      ["invalid_input", { "Repr-Digest": "sha-256=:AAAA:" }],
      ["invalid_input", { "Content-Digest": "sha-256=abc" }],
      ["invalid_input", { "Repr-Digest": digest("other", "sha256") }],
      ["invalid_input", { "Content-Digest": digest("other", "SHA-256") }],
      ["invalid_input", { "Repr-Digest": "0".repeat(64) }],
    ])("rejects it with %s and stores nothing: %j", async (code, headers) => {
      const team = await newTeam();
      const paths = code === "invalid_input" ? Object.keys(headers) : undefined;
      await rejected(team, 400, code, () => send(team, headers as unknown as Record<string, string>), paths);
    });
  });

  test("ignores up to ten text parts of 1 KiB, and rejects more", async ({ team }) => {
    const more = textParts(10, "x".repeat(1024)).join("");
    const options = formOf(filePart() + more + END);
    expect((await team.call("POST", UPLOADS, options)).status).toBe(200);
    for (const tooMuch of [textParts(11), textParts(1, "x".repeat(1025))]) {
      const invalid = formOf(filePart() + tooMuch.join("") + END);
      expect((await team.call("POST", UPLOADS, invalid)).body.code).toBe("malformed_multipart");
    }
    expect(await list(team)).toHaveLength(1);
  });
});

describe("An upload in progress", () => {
  type Send = (team: Team, token: string, whilePaused: () => Promise<unknown>) => Promise<Answer>;
  const [start = "", rest = ""] = (filePart("first|second") + END).split("|");
  const sendInForm: Send = (_, token, whilePaused) =>
    call("POST", UPLOADS, { ...formOf(pausedStream([start, rest], whilePaused)), token });
  /** The team's own key creates the upload, so that the end of another token does not cancel it. */
  const sendResumable: Send = async (team, token, whilePaused) => {
    const path = locationOf(await create(team.call, 11));
    return patch(call, path, 0, pausedStream(["first", "second"], whilePaused), { token });
  };
  const sends = { "a form": sendInForm, "a resumable upload": sendResumable };

  const endings: Record<string, (team: Team) => Promise<{ token: string; end: () => Promise<unknown> }>> = {
    "its secret key is revoked": async (team) => {
      const { key: token, id } = await newKey(team);
      return { token, end: () => team.call("DELETE", `/auth/v1/apikeys/${id}`) };
    },
    "its session ends": async (team) => {
      const { key: token } = await openSession(team.token);
      return { token, end: () => call("POST", "/auth/v1/logout", { token }) };
    },
    "its team is deleted": async ({ token, teamId }) => ({
      token,
      end: () => call("DELETE", `/auth/v1/teams/${teamId}`, { token: OPERATOR }),
    }),
  };
  const stored = "select count(*) as count from files where team_id = ?";

  test.each(Object.entries(endings))("inserts nothing if %s before the first byte of the file", async (_, begin) => {
    const team = await newTeam();
    const { token, end } = await begin(team);
    const parts = [start.slice(0, 4), start.slice(4) + rest];
    const answer = await call("POST", UPLOADS, { ...formOf(pausedStream(parts, end)), token });
    expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
    const { count } = (await DB.prepare("select count(*) as count from uploads where team_id = ?")
      .bind(team.teamId)
      .first<{ count: number }>()) ?? { count: 0 };
    expect(count).toBe(0);
  });

  describe.each(Object.entries(sends))("as %s", (_, send) => {
    test.each(Object.entries(endings))("gets 401 and is not committed if %s", async (_, begin) => {
      const team = await newTeam();
      const { token, end } = await begin(team);
      const answer = await send(team, token, end);
      expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
      expect(await DB.prepare(stored).bind(team.teamId).first("count")).toBe(0);
    });

    test("finishes if its session expires, also after the recovery job", async ({ team }) => {
      const { key: token, id } = await openSession(team.token);
      const expire = async () => {
        await DB.prepare("update api_keys set expires_at = ? where id = ?")
          .bind(Date.now() - 1000, id)
          .run();
        await must(new World().recover());
      };
      expect((await send(team, token, expire)).status).toBeOneOf([200, 204]);
      expect(await DB.prepare(stored).bind(team.teamId).first("count")).toBe(1);
    });

    test("finishes if its team is suspended", async ({ team }) => {
      const json = { status: "suspended" };
      const suspend = () => call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json });
      expect((await send(team, team.token, suspend)).status).toBeOneOf([200, 204]);
      expect(await DB.prepare(stored).bind(team.teamId).first("count")).toBe(1);
    });
  });

  test.each([
    ["its only part", 100_000, 1],
    ["the last of its parts", 10 * 1024 * 1024 + 100_000, 3],
  ])("leaves no object once the recovery job has run, if its Worker dies while R2 holds %s", async (_, size, call) => {
    const world = new World();
    const team = await world.newTeam();
    const bindings = new ProxiedBindings({ binding: "R2", method: "put", call, moment: "after", failure: "death" });
    const withoutMemory: Change = (deps) => ({
      ...deps,
      bytes: createByteStore(bindings.bucket(env.BUCKET), deps.system, new MemoryBudget(0)),
    });
    const sent = await encodeForm("a.bin", patternOf(size));
    expect(await world.upload(team, sent, {}, { bindings, change: withoutMemory })).toBe("dead");
    const keys = async () => (await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects.map(({ key }) => key);
    expect(await keys()).toEqual([expect.stringMatching(new RegExp(`\\.${call}$`))]);
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId, { world })).toEqual([]);
    expect(await keys()).toEqual([]);
  });

  test("sends nothing to the database after its token was rejected", async () => {
    const world = new World();
    const team = await world.newTeam();
    await world.store(team, "a.txt", "a");
    await DB.prepare("delete from api_keys where team_id = ?").bind(team.teamId).run();
    const bindings = new ProxiedBindings();
    const answer = await must(world.upload(team, await encodeForm("b.txt", "b"), {}, { bindings }));
    expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
    expect(bindings.calls).toHaveLength(1);
    expect(world.lines.filter(({ event }) => event === "upload_cleanup_failed")).toEqual([]);
  });
});

// The parser has its tests in http/multipart. These show that a rejected form leaves nothing.
describe("The form of an upload", () => {
  const NO_FORM = "unsupported_media_type";
  test.each<[string, string, string, string?]>([
    ["without a boundary", "malformed_multipart", filePart() + END, "multipart/form-data"],
    ["with another boundary", "malformed_multipart", filePart() + END, "multipart/form-data; boundary=c"],
    ["with two boundaries", "malformed_multipart", filePart() + END, "multipart/form-data; boundary=b; boundary=c"],
    ["cut off in the file", "malformed_multipart", filePart().slice(0, -4)],
    ["without a file", "file_missing", textPart + END],
    ["with an empty file", "file_empty", filePart("") + END],
    ["with two files", "too_many_files", filePart() + filePart() + END],
    ["sent as JSON", NO_FORM, "{}", "application/json"],
    ["sent as bytes", NO_FORM, "hello", "audio/mpeg"],
    ["sent as nearly multipart/form-data", NO_FORM, filePart() + END, "multipart/form-data-evil; boundary=b"],
    ["sent as multipart/mixed", NO_FORM, filePart() + END, "multipart/mixed; boundary=b"],
    ["with an empty Content-Type", NO_FORM, filePart() + END, ""],
  ])("is rejected without a trace %s", async (_, code, body, type) => {
    const own = await newTeam();
    await rejected(own, code === NO_FORM ? 415 : 400, code, () => own.call("POST", UPLOADS, formOf(body, type)));
    await expectNoFiles(own);
  });

  // Like CVE-2022-24434 and later findings in other parsers.
  test.each([
    ["a broken percent sign in filename*", "filename*=UTF-8''%E0%A4%A%zz%", "\ufffd%A%zz%"],
    ["a file name that never closes its quote", `filename="${"a".repeat(5000)}`, `"${"a".repeat(199)}`],
    ["backslashes in a file name without end", `filename="${"\\".repeat(5001)}"`, "unnamed"],
    ["quotes in a file name without end", `filename=${'"\\"'.repeat(2000)}`, '"'],
    ["a charset that does not exist", "filename*=utf-99''%41", "A"],
    ["spaces between parameters without end", `${" ;".repeat(3000)}filename="a"${" ".repeat(3000)}`, "a"],
  ])("is stored under a clean name if it has %s", async (_, parameters, name) => {
    const { status, body } = await sendForm(await newTeam(), fileForm("x", parameters));
    expect([status, body.data.originalName]).toEqual([200, name]);
  });

  test("is rejected if it has 5,000 parameters and no file name", async () => {
    const own = await newTeam();
    const body = fileForm("x", `${"a=b;".repeat(2500)} x=y`);
    await rejected(own, 400, "file_missing", () => sendForm(own, body));
  });

  test("is rejected if its body ends with an error", async () => {
    const own = await newTeam();
    const send = () => own.call("POST", UPLOADS, formOf(brokenStream(filePart())));
    await rejected(own, 400, "malformed_multipart", send);
    await expectNoFiles(own);
  });
});

describe("A file over the limit of 1,000 bytes", () => {
  const tooLarge = filePart("x".repeat(1001)) + END;

  test("is rejected by its Content-Length before a byte is read", async () => {
    const own = await teamWith({ maxUploadBytes: 1000 });
    let reads = 0;
    const pull = () => {
      reads += 1;
    };
    const body = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const options = formOf(body);
    const headers = { ...options.headers, "Content-Length": "1000000" };
    const { body: answer } = await rejected(own, 413, "file_too_large", () =>
      own.call("POST", UPLOADS, { ...options, headers }),
    );
    expect(answer.message).toMatch(/\b1000 bytes/);
    expect(reads).toBe(0);
  });

  test("is rejected by counting its bytes, with or without a Content-Length, and a file of 1,000 bytes is not", async () => {
    const own = await teamWith({ maxUploadBytes: 1000 });
    const headers = { ...formOf("").headers, "Content-Length": "1100" };
    for (const options of [formOf(streamOf(bytes(tooLarge))), { ...formOf(tooLarge), headers }]) {
      const answer = await rejected(own, 413, "file_too_large", () => own.call("POST", UPLOADS, options));
      expect(answer.body.message).toMatch(/\b1000 bytes/);
    }
    await expectNoFiles(own);
    expect((await own.call("POST", UPLOADS, formOf(filePart("x".repeat(1000)) + END))).status).toBe(200);
  });
});

test.each<[string, string, string, (body: ReadableStream<Uint8Array>) => CallOptions]>([
  ["an upload that stalls before the file", UPLOADS, "", formOf],
  ["an upload that stalls within the file", UPLOADS, filePart().slice(0, -4), formOf],
  ["a JSON body that stalls", USERS, '{"email":', (body) => formOf(body, "application/json")],
])("%s times out with 408", async (_, path, start, send) => {
  const own = await teamWith({ uploadIdleMilliseconds: 20 });
  const idle = () => new ReadableStream<Uint8Array>({ start: (controller) => controller.enqueue(bytes(start)) });
  await rejected(own, 408, "upload_timeout", () => own.call("POST", path, send(idle())));
});

/** A form with a Content-Length, as HTTP clients send it. The quota reserves that many bytes. */
function sized(content: string, { missingBytes = 0 } = {}) {
  const text = filePart(content) + END;
  const headers = { ...formOf("").headers, "Content-Length": String(text.length) };
  return { body: text.slice(0, text.length - missingBytes), headers, bytes: text.length };
}

/** Starts a Worker that records its team's peak reservation, whenever it begins to store a file. */
function withPeak(settings: Partial<Settings>) {
  const peak = { files: 0, bytes: 0 };
  const worker = startWorker((deps) => {
    const { bytes, ...rest } = withSettings(settings)(deps);
    const put: typeof bytes.put = async (key, ...more) => {
      const sums = "select files, bytes from teams where id = ?";
      const row = await DB.prepare(sums).bind(key.split("/")[0]).first<typeof peak>();
      peak.files = Math.max(peak.files, row?.files ?? 0);
      peak.bytes = Math.max(peak.bytes, row?.bytes ?? 0);
      return bytes.put(key, ...more);
    };
    return { ...rest, bytes: { ...bytes, put } };
  });
  return { worker, peak };
}

describe("The quota of a team", () => {
  const limits = { maxTeamFiles: 5, maxTeamBytes: 1_000_000, maxUploadBytes: 100_000 };

  test("is not exceeded in files by thirty parallel uploads", async () => {
    const { worker, peak } = withPeak(limits);
    const team = await newTeam(worker);
    const uploads = await atOnce(30, (i) => team.call("POST", UPLOADS, sized(`file ${i}`)));
    expect(tally(uploads)).toEqual({ 200: 5, file_limit_reached: 25 });
    const excess = uploads.find(({ status }) => status === 409);
    expect(excess?.body.message).toBe("A team can have at most 5 files. Delete files and retry.");
    expect(peak.files).toBeGreaterThan(0);
    expect(peak.files).toBeLessThanOrEqual(5);
    expect((await usageOf(team)).files).toBe(5);
    expect((await env.BUCKET.list({ prefix: team.teamId })).objects).toHaveLength(5);
  });

  test("is not exceeded in bytes by thirty parallel uploads", async () => {
    const one = sized("x".repeat(1000));
    const maxTeamBytes = 3 * one.bytes + 10;
    const { worker, peak } = withPeak({ ...limits, maxTeamFiles: 100, maxTeamBytes });
    const team = await newTeam(worker);
    const counts = tally(await atOnce(30, () => team.call("POST", UPLOADS, one)));
    expect(counts["200"]).toBeGreaterThanOrEqual(3);
    expect(counts.quota_exceeded).toBe(30 - (counts["200"] ?? 0));
    expect(peak.bytes).toBeGreaterThanOrEqual(one.bytes);
    expect(peak.bytes).toBeLessThanOrEqual(maxTeamBytes);
    expect((await usageOf(team)).bytes).toBe(1000 * (counts["200"] ?? 0));
    expect((await usageOf(team)).bytes).toBeLessThanOrEqual(maxTeamBytes);
  });

  test("counts an upload of unknown length with the largest possible size", async () => {
    const team = await newTeam(workerWith({ ...limits, maxTeamBytes: limits.maxUploadBytes - 1 }));
    const answer = await team.call("POST", UPLOADS, { body: form("a.txt", "small") });
    expect([answer.status, answer.body.code]).toEqual([413, "quota_exceeded"]);
    expect(answer.body.message).toBe("Storage quota (100 kB) exceeded. Delete files and retry.");
  });

  test.each([
    ...["-1000000", "NaN", "1e3", "0x10", ""].map((stated) => [stated, undefined, limits.maxUploadBytes] as const),
    ["9".repeat(30), "file_too_large", 0] as const,
  ])(
    "is not bypassed by a Content-Length of %j: if it is invalid, the largest is reserved",
    async (stated, code, bytes) => {
      const { worker, peak } = withPeak(limits);
      const team = await newTeam(worker);
      const { body, headers } = sized("x".repeat(2000));
      const answer = await team.call("POST", UPLOADS, { body, headers: { ...headers, "Content-Length": stated } });
      expect([answer.code, peak.bytes]).toEqual([code, bytes]);
    },
  );

  test.each<[string, string, Pick<ReturnType<typeof sized>, "body" | "headers">]>([
    ["end early", "malformed_multipart", sized("x".repeat(500), { missingBytes: 20 })],
    ["are empty", "file_empty", sized("")],
    ["are too large", "file_too_large", sized("x".repeat(100_001))],
    ["have no file", "file_missing", { ...sized("x"), body: END }],
  ])("is released by uploads that %s", async (_, code, broken) => {
    const team = await newTeam(workerWith(limits));
    for (let i = 0; i <= limits.maxTeamFiles; i++) expect((await team.call("POST", UPLOADS, broken)).code).toBe(code);
    await expectNoFiles(team);
    expect((await team.call("POST", UPLOADS, sized("fits again"))).status).toBe(200);
  });

  test("is released after storing fails, once no write is possible", async () => {
    const team = await newTeam(workerWith(limits));
    const put = () => Promise.reject(new Error("no storage"));
    const broken = startWorker((deps) => ({ ...withSettings(limits)(deps), bytes: { ...deps.bytes, put } }));
    const { token } = team;
    const answers = [];
    for (let i = 0; i < 6; i++) answers.push(await broken.call("POST", UPLOADS, { token, ...sized("x") }));
    expect(tally(answers)).toEqual({ internal: 5, file_limit_reached: 1 });
    const world = new World();
    world.aheadMilliseconds += 15 * 60_000 + 1;
    await world.recover();
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });

  test("is not bypassed by a Content-Length that is too small", async () => {
    const team = await newTeam(workerWith({ ...limits, maxTeamBytes: 1000 }));
    const options = formOf(filePart("x".repeat(2000)) + END);
    const headers = { ...options.headers, "Content-Length": "10" };
    await rejected(team, 413, "file_too_large", () => team.call("POST", UPLOADS, { ...options, headers }));
  });

  test("is released once per deleted file, even if the deletion is repeated", async () => {
    const team = await newTeam(workerWith(limits));
    const uploads = await atOnce(5, (i) => team.call("POST", UPLOADS, sized(`file ${i}`)));
    expect((await team.call("POST", UPLOADS, sized("one more"))).body.code).toBe("file_limit_reached");
    const [path = ""] = uploads.map(({ headers }) => headers.get("Location") ?? "");
    await atOnce(5, () => team.call("DELETE", path));
    expect((await usageOf(team)).files).toBe(4);
    const later = await atOnce(5, () => team.call("POST", UPLOADS, sized("again")));
    expect(tally(later)).toEqual({ 200: 1, file_limit_reached: 4 });
  });

  test("does not affect another team", async () => {
    const worker = workerWith(limits);
    const [full, empty] = await Promise.all([newTeam(worker), newTeam(worker)]);
    await atOnce(5, () => full.call("POST", UPLOADS, sized("x")));
    expect((await full.call("POST", UPLOADS, sized("x"))).code).toBe("file_limit_reached");
    expect((await empty.call("POST", UPLOADS, sized("x"))).status).toBe(200);
  });
});
