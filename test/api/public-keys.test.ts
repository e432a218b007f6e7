import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import {
  type Answer,
  atOnce,
  call,
  form,
  newKey,
  newTeam,
  pausedStream,
  processed,
  queueing,
  read,
  startWorker,
  streamOf,
  type Team,
  tally,
  upload,
  usageOf,
  withSettings,
} from "../support/harness.ts";
import { BOUNDARY, END } from "../support/raw-form.ts";
import { ask, create, idOf, locationOf, patch } from "../support/tus.ts";

/* The limits of public keys, for form uploads and for resumable uploads. */

const DAY = 24 * 60 * 60 * 1000;
const UPLOADS = "/docs/v1/uploads";
const bytesOf = (text: string) => new TextEncoder().encode(text);
/** The first bytes of a video container, which could also hold audio only. */
const MP4 = `\0\0\0\x18ftypisom\0\0\0\0isomavc1${"x".repeat(100)}`;

interface Key {
  id: string;
  token: string;
}

async function newPageKey(team: Team, limits?: object): Promise<Key> {
  const key = await newKey(team, { isPublic: true, ...(limits && { limits }) });
  expect(key.limits).toEqual(limits ?? null);
  return { id: key.id, token: key.key };
}

/** One way to upload. */
interface Transport {
  send(key: Key, text: string, worker?: { call: typeof call }): Promise<Answer>;
  /** Sends an upload that fails. */
  fail(key: Key): Promise<unknown>;
  /** Sends an upload, and runs `meanwhile` after its first bytes. */
  pause(key: Key, meanwhile: () => Promise<unknown>): Promise<Answer>;
}

const header = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n`;
const formOptions = { headers: { "Content-Type": `multipart/form-data; boundary=${BOUNDARY}` } };

const formUpload: Transport = {
  send: ({ token }, text, worker = { call }) => worker.call("POST", UPLOADS, { token, body: form("a.txt", text) }),
  fail: ({ token }) => call("POST", UPLOADS, { token, body: `${header}text without an end`, ...formOptions }),
  pause({ token }, meanwhile) {
    const body = pausedStream([`${header}first`, `second\r\n${END}`], meanwhile);
    return call("POST", UPLOADS, { token, body, ...formOptions });
  },
};

const resumableUpload: Transport = {
  async send({ token }, text, worker = { call }) {
    const bytes = bytesOf(text);
    const created = await create(worker.call, bytes.length, undefined, { token });
    if (created.status !== 201) return created;
    const answer = await patch(worker.call, locationOf(created), 0, bytes, { token });
    return { ...answer, id: idOf(answer) };
  },
  async fail({ token }) {
    await ask(call, "DELETE", locationOf(await create(call, 3, undefined, { token })), {}, { token });
  },
  async pause({ token }, meanwhile) {
    const path = locationOf(await create(call, 11, undefined, { token }));
    await patch(call, path, 0, bytesOf("first"), { token });
    await meanwhile();
    return patch(call, path, 5, bytesOf("second"), { token });
  },
};

describe.each([
  ["a form", formUpload],
  ["a resumable upload", resumableUpload],
])("A public key with limits, over %s", (_, transport) => {
  const rowsOf = async (team: Team) =>
    (await env.DB.prepare("select status from files where team_id = ?").bind(team.teamId).all()).results;
  const succeeded = expect.toBeOneOf([200, 204]);

  test("stores exactly maxFiles of 50 files that are sent at once", async () => {
    const team = await newTeam();
    const key = await newPageKey(team, { maxFiles: 5 });
    const answers = await atOnce(50, () => transport.send(key, "text"));
    const counts = tally(answers);
    expect([counts["200"] ?? counts["204"], counts.upload_limit_reached]).toEqual([5, 45]);
    expect(await rowsOf(team)).toHaveLength(5);
    const refused = answers.find(({ code }) => code === "upload_limit_reached");
    expect([refused?.status, refused?.body.message]).toEqual([403, "This key can upload at most 5 files."]);
  });

  test("gives a failed upload back once, and a deleted file never", async () => {
    const team = await newTeam();
    const key = await newPageKey(team, { maxFiles: 1 });
    for (let i = 0; i < 2; i++) await transport.fail(key);
    const { id, status } = await transport.send(key, "text");
    expect(status).toEqual(succeeded);
    await team.call("DELETE", `${UPLOADS}/${id}`);
    expect((await transport.send(key, "text")).code).toBe("upload_limit_reached");
  });

  test("rejects a file above maxFileBytes, and stores nothing of it", async () => {
    const team = await newTeam();
    const key = await newPageKey(team, { maxFiles: 1, maxFileBytes: 10 });
    const refused = await transport.send(key, "eleven byte");
    expect([refused.status, refused.code]).toEqual([413, "file_too_large"]);
    expect(refused.body.message).toBe("The file can have at most 10 bytes.");
    expect(await rowsOf(team)).toEqual([]);
    expect((await transport.send(key, "ten  bytes")).status).toEqual(succeeded);
  });

  test("rejects a type that the first bytes exclude, and fails and counts one that only processing excludes", async () => {
    const team = await newTeam(queueing);
    const key = await newPageKey(team, { maxFiles: 1, fileTypes: ["audio file"] });
    const refused = await transport.send(key, "plain text");
    expect([refused.status, refused.code]).toEqual([415, "type_not_allowed"]);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
    const { id } = await transport.send(key, MP4, queueing);
    expect(await processed(team, id)).toMatchObject({ status: "failed", failure: { code: "type_not_allowed" } });
    expect((await transport.send(key, MP4)).code).toBe("upload_limit_reached");
    expect((await call("GET", `${UPLOADS}/${id}`, { token: key.token })).code).toBe("insufficient_scope");
  });

  test("reads the status of the files that it uploaded, and of no others", async () => {
    const team = await newTeam();
    const [key, other] = [await newPageKey(team), await newPageKey(team)];
    const { id } = await transport.send(key, "text");
    const read = ({ token }: { token: string }) => call("GET", `${UPLOADS}/${id}/status`, { token });
    const expected = { _id: id, status: "pending", failure: null };
    expect((await read(key)).body.data).toEqual(expected);
    expect((await read(team)).body.data).toEqual(expected);
    expect((await read(other)).status).toBe(404);
    const own = await upload(team, "own.txt", "not its own");
    expect((await call("GET", `${UPLOADS}/${own}/status`, { token: key.token })).status).toBe(404);
  });

  test("finishes an upload after its expiry, and begins no other", async () => {
    const team = await newTeam();
    const key = await newPageKey(team);
    const expiry = Date.now() - 5 * DAY;
    const expire = () => env.DB.prepare("update api_keys set expires_at = ? where id = ?").bind(expiry, key.id).run();
    expect((await transport.pause(key, expire)).status).toEqual(succeeded);
    expect((await transport.send(key, "text")).code).toBe("token_invalid");
  });

  test("stores nothing that it was sending when it was revoked", async () => {
    const team = await newTeam();
    const key = await newPageKey(team, { maxFiles: 1 });
    const answer = await transport.pause(key, () => team.call("DELETE", `/auth/v1/apikeys/${key.id}`));
    expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
    expect(await read(team, UPLOADS)).toEqual([]);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });
});

test("a secret key has no limits", async () => {
  const team = await newTeam();
  const json = { name: "server", limits: { maxFiles: 1 } };
  const { status, body } = await team.call("POST", "/auth/v1/apikeys", { json });
  expect([status, body.errors[0].path]).toEqual([400, "limits"]);
});

test("a public key counts the bytes of a form without Content-Length against maxFileBytes", async () => {
  const team = await newTeam();
  const { token } = await newPageKey(team, { maxFileBytes: 100_000 });
  const body = streamOf(bytesOf(`${header}${"x".repeat(100_001)}\r\n${END}`));
  const answer = await call("POST", UPLOADS, { token, body, ...formOptions });
  expect([answer.status, answer.code]).toEqual([413, "file_too_large"]);
});

test("form uploads of public keys share a fifth of the quota with their resumable uploads", async () => {
  const small = startWorker(withSettings({ maxTeamBytes: 1_000_000_000 }));
  const team = await newTeam(small);
  const [page, other] = [await newPageKey(team), await newPageKey(team)];
  const created = await create(small.call, 150_000_000, undefined, { token: page.token });
  const refused = await formUpload.send(other, "text", small);
  expect([refused.status, refused.code]).toEqual([413, "quota_exceeded"]);
  expect(refused.body.message).toContain("at most 200 MB");
  expect((await small.call("POST", UPLOADS, { token: team.token, body: form("a.txt", "text") })).status).toBe(200);
  await team.call("DELETE", `${UPLOADS}/${idOf(created)}`);
  expect((await formUpload.send(other, "text", small)).status).toBe(200);
});
