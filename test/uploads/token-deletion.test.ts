import { describe, expect } from "vitest";
import { vttOf } from "../support/bytes.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  call,
  dataOf,
  eventsOf,
  expectNoFiles,
  newKey,
  newMember,
  newTeam,
  processed,
  queueing,
  read,
  rejected,
  startWorker,
  type Team,
  usageOf,
  withoutJobs,
  withSettings,
} from "../support/harness.ts";
import { DAY, HOUR } from "../support/time.ts";
import { create, idOf, patch } from "../support/tus.ts";
import { formUpload, issueToken, newPageKey, resumableUpload, UPLOADS } from "../support/visitors.ts";

/* What upload tokens with `canDelete` delete. */

const OWNER = "q8Vn2m5XcT0sL7rJ4yKp9w";
const trashing = startWorker(withSettings({ trashDays: 7 }));
/** A Worker whose clock is ahead. */
const ahead = (milliseconds: number) =>
  startWorker((deps) => ({
    ...withoutJobs(deps),
    system: { ...deps.system, now: () => deps.system.now() + milliseconds },
  }));

const newDeleter = async (team: Pick<Team, "call" | "token">, fields: object = {}): Promise<string> =>
  (await issueToken(team, { canDelete: true, ...fields })).token;
const put = async (token: string, transport = formUpload): Promise<string> => {
  const { id, text } = await transport.send({ id: "", token }, "text");
  expect(id, text).not.toBe("");
  return id;
};
const remove = (id: string, token: string, worker: { call: typeof call } = { call }, query = "") =>
  worker.call("DELETE", `${UPLOADS}/${id}${query}`, { token });
const outcomeOf = ({ code, status }: Answer) => code ?? status;
const sent = async (token: string) => outcomeOf(await formUpload.send({ id: "", token }, "text"));
const waveform = { json: { channels: [Array(16).fill(1)] } };

describe("An upload token with canDelete", () => {
  test.each([
    ["a form", formUpload],
    ["a resumable upload", resumableUpload],
  ])("deletes what it uploaded by %s, which then counts no more", async (_, transport) => {
    const team = await newTeam();
    const token = await newDeleter(team, { maxFiles: 1, maxBytes: 4 });
    const id = await put(token, transport);
    expect(await sent(token)).toBe("upload_limit_reached");
    expect((await remove(id, token)).body).toEqual({ status: true, message: "File deleted." });
    expect((await team.call("GET", `${UPLOADS}/${id}/metadata`)).status).toBe(404);
    await expectNoFiles(team);
    const [event] = await eventsOf(team, "type=file.deleted");
    expect(event).toMatchObject({ actor: { kind: "upload", keyId: team.keyId }, subject: { id } });
    expect(await sent(token)).toBe(200);
  });

  test("begins at most five times maxFiles, so that a loop ends, with and without a subject", async ({ team }) => {
    for (const fields of [{}, { subject: "ticket 7" }]) {
      const token = await newDeleter(team, fields);
      for (let i = 0; i < 5; i++) expect((await remove(await put(token), token)).status).toBe(200);
      expect(await sent(token)).toBe("upload_limit_reached");
    }
  });

  test("moves the file to the trash if there is one", async () => {
    const team = await newTeam(trashing);
    const token = await newDeleter(team);
    const id = await put(token);
    expect((await remove(id, token, trashing)).status).toBe(200);
    expect(await read(team, "/docs/v1/trash")).toMatchObject([{ _id: id }]);
    expect(await usageOf(team)).toMatchObject({ files: 1, trashFiles: 1 });
    expect((await remove(id, token, trashing)).code).toBe("not_found");
    expect(await sent(token)).toBe(200);
  });

  test("deletes what the service has processed, and what it gave the first waveform", async () => {
    const team = await newTeam(queueing);
    const token = await newDeleter(team, { maxFiles: 2 });
    const { id } = await formUpload.send({ id: "", token }, "text", queueing);
    await processed(team, id);
    expect((await call("PUT", `${UPLOADS}/${id}/waveform`, { token, ...waveform })).status).toBe(200);
    expect((await remove(id, token)).status).toBe(200);
    await expectNoFiles(team);
  });

  const path = (id: string, rest = "") => `${UPLOADS}/${id}${rest}`;
  const hold = (team: Team, id: string) => team.call("PUT", path(id, "/hold"), { json: { reason: "evidence" } });
  const transcribe = (team: Team, id: string) =>
    team.call("PUT", path(id, "/transcript"), { body: vttOf("a"), headers: { "Content-Type": "text/vtt" } });
  const inBatch = (fields: object) => (team: Team, id: string) =>
    team.call("POST", `${UPLOADS}/batch`, { json: { ids: [id], ...fields } });
  test.each<[string, ...((team: Team, id: string) => Promise<Answer>)[]]>([
    ["changed", (team, id) => team.call("PATCH", path(id), { json: { name: "b.txt" } })],
    [
      "changed and changed back",
      (team, id) => team.call("PATCH", path(id), { json: { reference: "r" } }),
      (team, id) => team.call("PATCH", path(id), { json: { reference: null } }),
    ],
    ["tagged", inBatch({ action: "tag", tags: ["a"] })],
    ["moved", inBatch({ action: "move", folder: "f" })],
    ["linked", (team, id) => team.call("POST", path(id, "/links"))],
    ["held", hold],
    ["held and released", hold, (team, id) => team.call("DELETE", path(id, "/hold"))],
    ["transcribed", transcribe],
    ["transcribed, and its transcript deleted", transcribe, (team, id) => team.call("DELETE", path(id, "/transcript"))],
    ["given a waveform", (team, id) => team.call("PUT", path(id, "/waveform"), waveform)],
    [
      "deleted and restored",
      (team, id) => trashing.call("DELETE", path(id), { token: team.token }),
      (team, id) => team.call("POST", `/docs/v1/trash/${id}/restore`),
    ],
  ])("deletes nothing that the team has %s", async (_, ...acts) => {
    const team = await newTeam();
    const token = await newDeleter(team);
    const id = await put(token);
    for (const act of acts) expect((await act(team, id)).status).toBe(200);
    const refused = await rejected(team, 403, "forbidden", () => remove(id, token));
    expect(refused.body.message).toBe("The team has used the file. Only the team can delete it.");
  });

  test("deletes nothing that the team has processed again", async () => {
    const team = await newTeam(queueing);
    const token = await newDeleter(team);
    const { id } = await formUpload.send({ id: "", token }, "text", queueing);
    await processed(team, id);
    await team.call("POST", path(id, "/reprocess"));
    expect((await remove(id, token)).code).toBe("forbidden");
    await processed(team, id);
    expect((await remove(id, token)).code).toBe("forbidden");
  });

  test("deletes a file whose only link was revoked", async ({ team }) => {
    const token = await newDeleter(team);
    const id = await put(token);
    const { _id: link } = await dataOf(team.call("POST", path(id, "/links")));
    expect((await remove(id, token)).code).toBe("forbidden");
    await team.call("DELETE", `/docs/v1/links/${link}`);
    expect((await remove(id, token)).status).toBe(200);
  });

  test("finds no file of others: of the team, of a subject, of another owner or team", async ({ team }) => {
    const fields = { maxFiles: 9, subject: "ticket 7", owner: OWNER };
    const [one, other] = [await newDeleter(team, fields), await newDeleter(team, { ...fields, owner: `${OWNER}x` })];
    const page = await newPageKey(team);
    const foreign = await newTeam();
    const created = await create(call, 9, undefined, { token: one });
    const ids = [
      ...[await put(team.token), await put(other), await put(page.token), await put(await newDeleter(foreign))],
      ...[idOf(created), "0193477be8a01f9c3ad5e000"],
    ];
    for (const id of ids) await rejected(team, 404, "not_found", () => remove(id, one));
    const deleted = ids[1] as string;
    await remove(deleted, other);
    expect((await remove(deleted, one)).code).toBe("not_found");
    expect(
      (await patch(call, created.headers.get("Location") ?? "", 0, new Uint8Array(9), { token: one })).status,
    ).toBe(204);
    expect((await remove(await put(one), await newDeleter(team, fields))).status).toBe(200);
  });

  test("erases nothing that the trash keeps, and cancels by the upload URL only", async () => {
    const team = await newTeam(trashing);
    const token = await newDeleter(team);
    const id = await put(token);
    for (const query of ["?permanent=true", "?unfinished=true"]) {
      await rejected(team, 403, "forbidden", () => remove(id, token, trashing, query));
    }
  });

  test("deletes for a day after its expiry, and not once its issuer has ended", async ({ team }) => {
    const issuer = await newKey(team, { scopes: ["files:upload", "files:delete", "files:erase"] });
    const token = await newDeleter({ ...team, token: issuer.key }, { expiresIn: HOUR / 1000, maxFiles: 3 });
    const ids = [await put(token), await put(token), await put(token)] as const;
    expect((await remove(ids[0], token, ahead(DAY + HOUR / 2))).status).toBe(200);
    expect((await remove(ids[1], token, ahead(DAY + HOUR))).code).toBe("token_invalid");
    await team.call("DELETE", `/auth/v1/apikeys/${issuer.id}`);
    expect((await remove(ids[2], token)).code).toBe("token_invalid");
  });

  test("is refused what it may not do, and deletes all the same", async ({ team }) => {
    const token = await newDeleter(team);
    const id = await put(token);
    for (const [method, route, code] of [
      ["GET", "/docs/v1/trash", "insufficient_scope"],
      ["DELETE", `/docs/v1/trash/${id}`, "insufficient_scope"],
      ["DELETE", path(id, "/hold"), "insufficient_scope"],
      ["GET", path(id, "/metadata"), "insufficient_scope"],
    ] as const) {
      expect((await call(method, route, { token })).code, route).toBe(code);
    }
    const json = { action: "delete", ids: [id] };
    expect((await call("POST", `${UPLOADS}/batch`, { token, json })).code).toBe("insufficient_scope");
    expect((await remove(id, token)).status).toBe(200);
  });
});

test("an upload token without canDelete, or a public key, deletes nothing", async ({ team }) => {
  const fields = { owner: OWNER, maxFiles: 9 };
  const [token] = [await newDeleter(team, fields)];
  const page = await newPageKey(team);
  const [own, ofPage] = [await put(token), await put(page.token)];
  const without = await issueToken(team, fields);
  await rejected(team, 403, "insufficient_scope", () => remove(own, without.token));
  await rejected(team, 403, "insufficient_scope", () => remove(ofPage, page.token));
});

describe("Creating an upload token with canDelete", () => {
  const json = { canDelete: true };
  const issue = (token: string, worker: { call: typeof call } = { call }) =>
    worker.call("POST", "/docs/v1/uploadtokens", { token, json });

  test("needs files:delete, and files:erase if there is no trash", async ({ team }) => {
    const [upload, deleting] = [
      await newKey(team, { scopes: ["files:upload"] }),
      await newKey(team, { scopes: ["files:upload", "files:delete"] }),
    ];
    const scopeOf = async (answer: Promise<Answer>) => (await answer).body.message ?? "";
    expect(await scopeOf(issue(upload.key))).toContain("files:delete");
    expect(await scopeOf(issue(upload.key, trashing))).toContain("files:delete");
    expect(await scopeOf(issue(deleting.key))).toContain("files:erase");
    expect((await issue(deleting.key, trashing)).status).toBe(200);
    const contributor = await newMember(team, "contributor");
    expect(await scopeOf(issue(contributor.token))).toContain("files:erase");
    expect((await issue(contributor.token, trashing)).status).toBe(200);
  });

  test("gives no right that its issuer loses, or that a missing trash needs", async ({ team }) => {
    const issuer = await newKey(team, { scopes: ["files:upload", "files:delete"] });
    const { token } = await dataOf(issue(issuer.key, trashing));
    const id = await put(token);
    expect((await remove(id, token)).code).toBe("insufficient_scope");
    await DB.prepare("update api_keys set scopes = 1 where id = ?").bind(issuer.id).run();
    expect((await remove(id, token, trashing)).code).toBe("insufficient_scope");
  });
});
