import { describe, expect } from "vitest";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  call,
  form,
  metadataOf,
  newKey,
  newTeam,
  rejected,
  startWorker,
  type Team,
  withoutJobs,
} from "../support/harness.ts";
import { DAY, HOUR } from "../support/time.ts";
import { ask, create, idOf, locationOf, patch, RESUMABLE } from "../support/tus.ts";
import { formUpload, issueToken, newUploadToken, resumableUpload, UPLOADS } from "../support/visitors.ts";

/* Upload tokens that belong together: those of a subject are counted together, and those of an owner have the same rights. */

const SUBJECT = "client 192.0.2.7";
const OWNER = "q8Vn2m5XcT0sL7rJ4yKp9w";

/** A Worker whose clock is ahead. */
const ahead = (milliseconds: number) =>
  startWorker((deps) => {
    const now = () => deps.system.now() + milliseconds;
    return { ...withoutJobs(deps), system: { ...deps.system, now } };
  });
const codeOf = async (token: string, worker = { call }) => {
  const { status, code } = await formUpload.send({ id: "", token }, "text", worker);
  return code ?? status;
};
const tokenOf = async (team: Pick<Team, "call" | "token">, fields: object): Promise<string> =>
  (await issueToken(team, fields)).token;
const statusBy = async (token: string, id: string, worker: { call: typeof call } = { call }) =>
  (await worker.call("GET", `${UPLOADS}/${id}/status`, { token })).status;

const begunBy = async ({ teamId }: Team) =>
  (
    await DB.prepare("select sum(begun_uploads) as begun from visitors where team_id = ?")
      .bind(teamId)
      .first<{ begun: number }>()
  )?.begun;

describe("The tokens of a subject", () => {
  test("share maxFiles, each with its own, over both ways to upload", async ({ team }) => {
    const [one, two] = [
      await tokenOf(team, { subject: SUBJECT, maxFiles: 1 }),
      await tokenOf(team, { subject: SUBJECT, maxFiles: 3 }),
    ];
    expect(await codeOf(two)).toBe(200);
    expect(await codeOf(one)).toBe("upload_limit_reached");
    expect((await resumableUpload.send({ id: "", token: two }, "text")).status).toBe(204);
    expect(await codeOf(two)).toBe(200);
    expect(await codeOf(two)).toBe("upload_limit_reached");
    expect(await codeOf(await tokenOf(team, { subject: "another", maxFiles: 1 }))).toBe(200);
    expect(await codeOf(await tokenOf(team, { maxFiles: 1 }))).toBe(200);
  });

  test("share maxBytes, which also limits a form whose size is not known before", async ({ team }) => {
    const fields = { subject: SUBJECT, maxFiles: 9, maxBytes: 10 };
    expect((await formUpload.send({ id: "", token: await tokenOf(team, fields) }, "six by")).status).toBe(200);
    const token = await tokenOf(team, fields);
    const tooMuch = await create(call, 5, undefined, { token });
    expect([tooMuch.status, tooMuch.code, tooMuch.body.message]).toEqual([
      403,
      "upload_limit_reached",
      "This token can upload at most 10 bytes.",
    ]);
    expect((await formUpload.send({ id: "", token }, "fives")).code).toBe("file_too_large");
    expect(await codeOf(token)).toBe(200);
    expect(await codeOf(token)).toBe("upload_limit_reached");
  });

  test("have at most 20 unfinished uploads together", async ({ team }) => {
    const fields = { subject: SUBJECT, maxFiles: 100 };
    const [one, two] = [await tokenOf(team, fields), await tokenOf(team, fields)];
    for (let i = 0; i < 20; i++)
      expect((await create(call, 9, undefined, { token: i % 2 ? one : two })).status).toBe(201);
    expect((await create(call, 9, undefined, { token: two })).code).toBe("too_many_unfinished_uploads");
  });

  test("are counted by UTC day, and apart for each key that issues them", async ({ team }) => {
    const fields = { subject: SUBJECT, maxFiles: 1, expiresIn: 86_400 };
    expect(await codeOf(await tokenOf(team, fields))).toBe(200);
    expect(await codeOf(await tokenOf(team, fields))).toBe("upload_limit_reached");
    const { key: token } = await newKey(team, { scopes: ["files:upload"] });
    expect(await codeOf(await tokenOf({ ...team, token }, fields))).toBe(200);
    const tomorrow = ahead(DAY);
    expect(await codeOf(await tokenOf(tomorrowOf(team, tomorrow), fields), tomorrow)).toBe(200);
  });

  test("begin at most five times maxFiles in all", async ({ team }) => {
    const token = await tokenOf(team, { subject: SUBJECT, maxFiles: 1 });
    for (let i = 0; i < 5; i++) {
      const path = locationOf(await create(call, 9, undefined, { token }));
      expect((await ask(call, "DELETE", path, {}, { token })).status).toBe(204);
    }
    const refused = await create(call, 9, undefined, { token: await tokenOf(team, { subject: SUBJECT, maxFiles: 1 }) });
    expect([refused.code, refused.body.message]).toEqual([
      "upload_limit_reached",
      "This token can begin at most 5 uploads.",
    ]);
  });

  test("begin an upload once, however often its creation is repeated with its idempotency key", async ({ team }) => {
    const fields = { subject: SUBJECT, owner: OWNER, maxFiles: 2 };
    const [one, two] = [await tokenOf(team, fields), await tokenOf(team, fields)];
    const begin = (key: string, token = one) =>
      ask(call, "POST", RESUMABLE, { "Upload-Length": "9", "Idempotency-Key": key }, { token });
    const cancel = async (created: Promise<Answer>) =>
      ask(call, "DELETE", locationOf(await created), {}, { token: one });
    const headers = { "Idempotency-Key": "form" };
    const send = () => call("POST", UPLOADS, { body: form("a.txt", "text"), token: two, headers });
    for (let i = 0; i < 3; i++) expect((await send()).status).toBe(200);
    for (let i = 0; i < 8; i++) await cancel(begin(`${i}`));
    for (let i = 0; i < 12; i++) expect((await begin("last", i % 2 ? one : two)).status).toBe(201);
    expect(await begunBy(team)).toBe(10);
    expect((await cancel(begin("last"))).status).toBe(204);
    expect((await begin("last")).code).toBe("upload_limit_reached");
    expect((await send()).status).toBe(200);
  });

  test("of strangers see nothing of each other", async ({ team }) => {
    const fields = { subject: SUBJECT, maxFiles: 9 };
    const [one, two] = [await tokenOf(team, fields), await tokenOf(team, fields)];
    const { id } = await formUpload.send({ id: "", token: one }, "text");
    expect([await statusBy(one, id), await statusBy(two, id)]).toEqual([200, 404]);
    const json = { channels: [Array(16).fill(1)] };
    expect((await call("PUT", `${UPLOADS}/${id}/waveform`, { token: two, json })).status).toBe(404);
    expect((await call("DELETE", `${UPLOADS}/${id}`, { token: two })).status).toBe(403);
  });

  test("store neither the subject nor the owner, and the token has neither in it", async ({ team }) => {
    const answer = await issueToken(team, { subject: SUBJECT, owner: OWNER, maxFiles: 2 });
    await formUpload.send({ id: "", token: answer.token }, "text");
    await create(call, 9, undefined, { token: answer.token });
    const tables = ["uploads", "files", "visitors", "events"];
    const rows = await Promise.all(
      tables.map((table) => DB.prepare(`select * from ${table} where team_id = ?`).bind(team.teamId).all()),
    );
    const stored = JSON.stringify(rows.map(({ results }) => results));
    for (const text of [SUBJECT, OWNER]) expect(stored + JSON.stringify(answer)).not.toContain(text);
  });
});

/** The team with its calls to this Worker. */
const tomorrowOf = (team: Team, worker: { call: typeof call }) => ({
  token: team.token,
  call: worker.call,
});

describe("The tokens of an owner", () => {
  test("have the same rights to its files, which name them by one id", async ({ team }) => {
    const one = await issueToken(team, { owner: OWNER });
    const { key: token } = await newKey(team, { scopes: ["files:upload"] });
    const two = await issueToken({ ...team, token }, { owner: OWNER });
    const stranger = await issueToken(team, { owner: `${OWNER}x` });
    expect([two._id === one._id, stranger._id === one._id]).toEqual([true, false]);
    const { id } = await formUpload.send({ id: "", token: one.token }, "text");
    expect([await statusBy(two.token, id), await statusBy(stranger.token, id)]).toEqual([200, 404]);
    expect(await metadataOf(team, id)).toMatchObject({ uploadTokenId: one._id });
    const json = { channels: [Array(16).fill(1)] };
    expect((await call("PUT", `${UPLOADS}/${id}/waveform`, { token: two.token, json })).status).toBe(200);
  });

  test("are counted apart without a subject", async ({ team }) => {
    for (let i = 0; i < 2; i++) expect(await codeOf(await tokenOf(team, { owner: OWNER }))).toBe(200);
  });

  test.each([
    ["subject", { subject: "" }],
    ["subject", { subject: "x".repeat(201) }],
    ["owner", { owner: "x".repeat(21) }],
    ["owner", { owner: "x".repeat(201) }],
    ["owner", { owner: `${OWNER} ` }],
    ["maxBytes", { maxBytes: 0 }],
  ])("rejects an invalid %s: %j", async (path, json) => {
    const team = await newTeam();
    await rejected(team, 400, "invalid_input", () => team.call("POST", "/docs/v1/uploadtokens", { json }), [path]);
  });
});

test("a file without an upload token has no uploadTokenId, and one with it names the token", async ({ team }) => {
  const { token, tokenId } = await newUploadToken(team);
  const { id } = await resumableUpload.send({ id: "", token }, "text");
  expect(await metadataOf(team, id)).toMatchObject({ uploadTokenId: tokenId });
  const own = await formUpload.send({ id: "", token: team.token }, "text");
  expect(await metadataOf(team, own.id)).toMatchObject({ uploadTokenId: null });
});

/** An upload without bytes expires after an hour. */
const HALF_AN_HOUR = HOUR / 2;

describe("A token that expires during its upload", () => {
  test("asks for the status, sets the first waveform and cancels for a day, and begins nothing", async ({ team }) => {
    const { id: keyId, token } = await newUploadToken(team, { expiresIn: HALF_AN_HOUR / 1000 });
    const path = locationOf(await create(call, 4, undefined, { token }));
    const other = locationOf(await create(call, 4, undefined, { token }));
    const expired = ahead(HALF_AN_HOUR);
    const finished = await patch(expired.call, path, 0, new Uint8Array(4), { token });
    const id = idOf(finished);
    const almost = ahead(DAY + HALF_AN_HOUR / 2);
    expect(await statusBy(token, id, almost)).toBe(200);
    const setWaveform = (worker: { call: typeof call }) =>
      worker.call("PUT", `${UPLOADS}/${id}/waveform`, { token, json: { channels: [Array(16).fill(1)] } });
    expect((await setWaveform(almost)).status).toBe(200);
    expect((await ask(expired.call, "DELETE", other, {}, { token })).status).toBe(204);
    expect(await codeOf(token, expired)).toBe("token_invalid");
    const later = ahead(DAY + HALF_AN_HOUR);
    expect([await statusBy(token, id, later), (await setWaveform(later)).status]).toEqual([401, 401]);
    await team.call("DELETE", `/auth/v1/apikeys/${keyId}`);
    expect([await statusBy(token, id, almost), (await setWaveform(almost)).status]).toEqual([401, 401]);
  });
});
