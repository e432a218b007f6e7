import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  call,
  dataOf,
  eventsOf,
  form,
  idsIn,
  newKey,
  newMember,
  newTeam,
  OPERATOR,
  processed,
  queueing,
  read,
  rejected,
  snapshot,
  startWorker,
  streamOf,
  type Team,
  tally,
  upload,
  usageOf,
  withoutJobs,
  withSettings,
} from "../support/harness.ts";
import { END } from "../support/raw-form.ts";
import { DAY } from "../support/time.ts";
import { ask, create as createUpload, head, idOf, locationOf, patch, RESUMABLE, tusHeaders } from "../support/tus.ts";
import {
  bytesOf,
  formOptions,
  formUpload,
  header,
  issueToken,
  newPageKey,
  newUploadToken,
  resumableUpload,
  UPLOADS,
} from "../support/visitors.ts";
import { must, World } from "../support/world.ts";

/* The operations that visitors of a web page can do: with a public key, and with an upload token. */

/** The first bytes of a video container, which could also hold audio only. */
const MP4 = `\0\0\0\x18ftypisom\0\0\0\0isomavc1${"x".repeat(100)}`;
const setColumns = (id: string, columns: string) =>
  DB.prepare(`update api_keys set ${columns} where id = ?`).bind(id).run();

const TRANSPORTS = [
  ["a form", formUpload],
  ["a resumable upload", resumableUpload],
] as const;
const VISITORS = { "A public key": newPageKey, "An upload token": newUploadToken };
const CASES = TRANSPORTS.flatMap(([name, transport]) =>
  Object.entries(VISITORS).map(([visitor, newVisitor]) => ({ visitor, name, transport, newVisitor })),
);

describe.each(CASES)("$visitor, over $name", ({ transport, newVisitor }) => {
  const rowsOf = async (team: Team) =>
    (
      await DB.prepare(
        "select status from files where team_id = ?1 union all select status from uploads where team_id = ?1 and status <> 'committed'",
      )
        .bind(team.teamId)
        .all()
    ).results;
  const succeeded = expect.toBeOneOf([200, 204]);

  test("rejects a file above maxFileBytes, and stores nothing of it", async ({ team }) => {
    const key = await newVisitor(team, { maxFileBytes: 10 });
    const refused = await transport.send(key, "eleven byte");
    expect([refused.status, refused.code]).toEqual([413, "file_too_large"]);
    expect(refused.body.message).toBe("The file can have at most 10 bytes.");
    expect(await rowsOf(team)).toEqual([]);
    expect((await transport.send(key, "ten  bytes")).status).toEqual(succeeded);
  });

  test("rejects a type that the first bytes exclude, and fails one that only processing excludes", async () => {
    const team = await newTeam(queueing);
    const key = await newVisitor(team, { fileTypes: ["audio file"] });
    const refused = await transport.send(key, "plain text");
    expect([refused.status, refused.code]).toEqual([415, "type_not_allowed"]);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
    const { id } = await transport.send(key, MP4, queueing);
    expect(await processed(team, id)).toMatchObject({ status: "failed", failure: { code: "type_not_allowed" } });
    expect((await call("GET", `${UPLOADS}/${id}`, { token: key.token })).code).toBe("insufficient_scope");
  });

  test("reads the status of the files that it uploaded, and of no others", async ({ team }) => {
    const [key, other] = [await newVisitor(team), await newVisitor(team)];
    const { id } = await transport.send(key, "text");
    const read = ({ token }: { token: string }) => call("GET", `${UPLOADS}/${id}/status`, { token });
    const expected = { _id: id, status: "pending", failure: null };
    expect((await read(key)).body.data).toEqual(expected);
    expect((await read(team)).body.data).toEqual(expected);
    expect((await read(other)).status).toBe(404);
    const own = await upload(team, "own.txt", "not its own");
    expect((await call("GET", `${UPLOADS}/${own}/status`, { token: key.token })).status).toBe(404);
  });

  test("sets the first waveform of the files that it uploaded, and of no others", async ({ team }) => {
    const [key, other] = [await newVisitor(team), await newVisitor(team)];
    const { id } = await transport.send(key, "text");
    const set = ({ token }: { token: string }, peak: number, file = id) =>
      call("PUT", `${UPLOADS}/${file}/waveform`, { token, json: { channels: [Array(16).fill(peak)] } });
    const stored = async () => (await read(team, `${UPLOADS}/${id}/waveform`)).channels[0][0];
    expect((await set(other, 1)).code).toBe("not_found");
    expect((await set(key, 1, await upload(team, "own.txt", "not its own"))).code).toBe("not_found");
    expect((await call("GET", `${UPLOADS}/${id}/waveform`, { token: team.token })).status).toBe(404);
    expect((await set(key, 1)).status).toBe(200);
    expect((await set(key, -1)).body).toMatchObject({ code: "forbidden", message: expect.stringMatching("waveform") });
    expect(await stored()).toBe(1);
    expect((await set(team, 0)).status).toBe(200);
    expect((await set(key, 1)).code).toBe("forbidden");
    expect((await call("GET", `${UPLOADS}/${id}/waveform`, { token: key.token })).code).toBe("insufficient_scope");
    expect(await stored()).toBe(0);
    const events = await eventsOf(team, "type=file.updated");
    expect(events).toHaveLength(2);
  });

  test("stores nothing that it was sending when it was revoked", async ({ team }) => {
    const key = await newVisitor(team);
    const answer = await transport.pause(key, () => team.call("DELETE", `/auth/v1/apikeys/${key.id}`));
    expect([answer.status, answer.code]).toEqual([401, "token_invalid"]);
    expect(await read(team, UPLOADS)).toEqual([]);
    // The recovery job deletes the bytes of a resumable upload, and then gives its quota back.
    await must(new World().recover());
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });
});

describe.each(TRANSPORTS)("A public key, over %s", (_, transport) => {
  const succeeded = expect.toBeOneOf([200, 204]);

  test("finishes an upload after its expiry, and begins no other", async ({ team }) => {
    const key = await newPageKey(team);
    const expiry = Date.now() - 5 * DAY;
    const expire = () => DB.prepare("update api_keys set expires_at = ? where id = ?").bind(expiry, key.id).run();
    expect((await transport.pause(key, expire)).status).toEqual(succeeded);
    expect((await transport.send(key, "text")).code).toBe("token_invalid");
  });
});

describe.each(TRANSPORTS)("The files of an upload token, over %s", (_, transport) => {
  const succeeded = expect.toBeOneOf([200, 204]);

  test("stores exactly maxFiles of 50 files that are sent at once", async ({ team }) => {
    const key = await newUploadToken(team, { maxFiles: 3 });
    const answers = await atOnce(50, () => transport.send(key, "text"));
    const counts = tally(answers);
    expect([counts["200"] ?? counts["204"], counts.upload_limit_reached]).toEqual([3, 47]);
    expect(await read(team, UPLOADS)).toHaveLength(3);
    const refused = answers.find(({ code }) => code === "upload_limit_reached");
    expect([refused?.status, refused?.body.message]).toEqual([403, "This token can upload at most 3 files."]);
  });

  test("are those that exist: a failed upload and a deleted file give their place back", async ({ team }) => {
    const key = await newUploadToken(team, { maxFiles: 1 });
    for (let i = 0; i < 2; i++) await transport.fail(key);
    const { id, status } = await transport.send(key, "text");
    expect(status).toEqual(succeeded);
    expect((await transport.send(key, "text")).code).toBe("upload_limit_reached");
    await team.call("DELETE", `${UPLOADS}/${id}`);
    expect((await transport.send(key, "text")).status).toEqual(succeeded);
  });
});

test("an expired public key can finish an upload for six days, and not longer", async ({ team }) => {
  const key = await newPageKey(team);
  const path = locationOf(await createUpload(call, 10, undefined, key));
  const now = Date.now();
  const frozen = startWorker((deps) => ({ ...withoutJobs(deps), system: { ...deps.system, now: () => now } }));
  const offsetAfter = async (milliseconds: number) => {
    await setColumns(key.id, `expires_at = ${now - milliseconds}`);
    return (await patch(frozen.call, path, 0, new Uint8Array(), key)).status;
  };
  expect(await offsetAfter(6 * DAY - 1)).toBe(204);
  expect(await offsetAfter(6 * DAY)).toBe(401);
});

test("a secret key has no limits", async ({ team }) => {
  const json = { name: "server", limits: { maxFileBytes: 1 } };
  const { status, body } = await team.call("POST", "/auth/v1/apikeys", { json });
  expect([status, body.errors[0].path]).toEqual([400, "limits"]);
});

test("a public key counts the bytes of a form without Content-Length against maxFileBytes", async ({ team }) => {
  const { token } = await newPageKey(team, { maxFileBytes: 100_000 });
  const body = streamOf(bytesOf(`${header}${"x".repeat(100_001)}\r\n${END}`));
  const answer = await call("POST", UPLOADS, { token, body, ...formOptions });
  expect([answer.status, answer.code]).toEqual([413, "file_too_large"]);
});

test("form uploads of public keys share a fifth of the quota with their resumable uploads", async () => {
  const small = startWorker(withSettings({ maxTeamBytes: 1_000_000_000 }));
  const team = await newTeam(small);
  const [page, other] = [await newPageKey(team), await newPageKey(team)];
  const created = await createUpload(small.call, 199_999_999, undefined, { token: page.token });
  await patch(small.call, locationOf(created), 0, new Uint8Array(1), page);
  const refused = await formUpload.send(other, "text", small);
  expect([refused.status, refused.code]).toEqual([409, "too_many_unfinished_uploads"]);
  expect(refused.body.message).toContain("at most 200 MB");
  expect((await small.call("POST", UPLOADS, { token: team.token, body: form("a.txt", "text") })).status).toBe(200);
  await team.call("DELETE", `${UPLOADS}/${idOf(created)}`);
  expect((await formUpload.send(other, "text", small)).status).toBe(200);
});

describe("Creating an upload token", () => {
  const TOKENS = "/docs/v1/uploadtokens";

  test("stores nothing, and returns the token with its expiry", async ({ team }) => {
    await issueToken(team);
    const before = await snapshot(team.teamId);
    const started = Date.now();
    const answer = await team.call("POST", TOKENS, { json: { expiresIn: 60, maxFiles: 3 } });
    expect(answer.body.data).toEqual({
      _id: expect.stringMatching(/^[0-9a-f]{24}$/),
      token: expect.stringMatching(/^stow_ut_[\w-]+$/),
      expiresAt: expect.any(String),
      maxFiles: 3,
    });
    const expiresAt = Date.parse(answer.body.data.expiresAt);
    expect(expiresAt).toBeGreaterThanOrEqual(started + 60_000);
    expect(expiresAt).toBeLessThanOrEqual(Date.now() + 60_000);
    expect((await team.call("POST", TOKENS)).body.data).toMatchObject({ maxFiles: 1 });
    expect(await snapshot(team.teamId)).toEqual(before);
  });

  test("is refused to a public key and to an upload token", async ({ team }) => {
    for (const { token } of [await newPageKey(team), await newUploadToken(team)]) {
      await rejected(team, 403, "forbidden", () => team.call("POST", TOKENS, { token }));
    }
  });

  test.each([
    ["expiresIn", { expiresIn: 0 }],
    ["expiresIn", { expiresIn: 86_401 }],
    ["maxFiles", { maxFiles: 0 }],
    ["maxFiles", { maxFiles: 101 }],
    ["fileTypes", { fileTypes: [] }],
    ["maxFileBytes", { maxFileBytes: 0 }],
    ["properties.folder", { properties: { folder: "/" } }],
    ["properties.path", { properties: { path: "a" } }],
    ["properties", { properties: { metadata: { a: "x".repeat(4096) } } }],
  ])("rejects an invalid %s: %j", async (path, json) => {
    const team = await newTeam();
    await rejected(team, 400, "invalid_input", () => team.call("POST", TOKENS, { json }), [path]);
  });

  test("makes a token that fits in a header, also with the largest properties", async ({ team }) => {
    const properties = { metadata: { a: "x".repeat(4070) } };
    const { token } = await issueToken(team, { properties });
    expect(token.length).toBeLessThan(6000);
    const { id } = await formUpload.send({ id: "", token }, "text");
    expect((await read(team, `${UPLOADS}/${id}/metadata`)).metadata).toEqual(properties.metadata);
  });
});

/** A Worker whose clock is ahead. */
const ahead = (milliseconds: number) =>
  startWorker((deps) => ({
    ...withoutJobs(deps),
    system: { ...deps.system, now: () => deps.system.now() + milliseconds },
  }));

describe("An upload token", () => {
  const codeOf = async (token: string, worker: Pick<Team, "call"> = { call }) => {
    const { status, code } = await formUpload.send({ id: "", token }, "text", worker);
    return code ?? status;
  };

  test("is rejected if it was changed in any way", async ({ team }) => {
    const { token } = await newUploadToken(team);
    const other = startWorker((deps) => ({ ...deps, secrets: loadSecrets(btoa("z".repeat(32)), deps.system) }));
    const last = token.at(-1) ?? "";
    const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const forged = [
      ...Array.from({ length: 40 }, (_, i) => {
        const at = 8 + Math.floor((i * (token.length - 8)) / 40);
        const changed = token[at] === "a" ? "b" : "a";
        return token.slice(0, at) + changed + token.slice(at + 1);
      }),
      // The last character has unused bits.
      ...[...alphabet].filter((letter) => letter !== last).map((letter) => token.slice(0, -1) + letter),
      ...[
        token.slice(0, -1),
        `${token}A`,
        `${token}=`,
        token.slice(0, 40),
        "stow_ut_",
        "stow_ut_00000000",
        `${token}.`,
      ],
      ...[
        token.replace("stow_ut_", "stow_sk_"),
        token.toUpperCase(),
        token.replace("stow_ut_", ""),
        `${token}${token}`,
      ],
      `stow_ut_${"A".repeat(100_000)}`,
      loadSecrets(env.MASTER_KEY, realSystem)
        .encrypt(token, "")
        .replace(/^(.{8})\./, "stow_ut_$1"),
    ];
    for (const one of forged) expect(await codeOf(one), one.slice(0, 100)).toBe("token_invalid");
    expect(await codeOf(token, other)).toBe("token_invalid");
    expect(await read(team, UPLOADS)).toEqual([]);
    expect(await codeOf(token)).toBe(200);
  });

  test("works until it expires", async ({ team }) => {
    const { token } = await issueToken(team, { expiresIn: 60, maxFiles: 9 });
    expect(await codeOf(token, ahead(50_000))).toBe(200);
    expect(await codeOf(token, ahead(60_000))).toBe("token_invalid");
  });

  test("works under a new master key while the old one is kept next to it", async ({ team }) => {
    const { token } = await newUploadToken(team);
    const by = (keys: string) =>
      startWorker((deps) => ({ ...withoutJobs(deps), secrets: loadSecrets(keys, deps.system) }));
    const next = btoa("n".repeat(32));
    expect(await codeOf(token, by(`${next},${env.MASTER_KEY}`))).toBe(200);
    expect(await codeOf(token, by(next))).toBe("token_invalid");
  });

  test.each<[string, (team: Team, issuerId: string) => Promise<unknown>, string]>([
    ["is revoked", (team, id) => team.call("DELETE", `/auth/v1/apikeys/${id}`), "token_invalid"],
    ["expires", (_, id) => setColumns(id, "expires_at = 1"), "token_invalid"],
    ["loses files:upload", (_, id) => setColumns(id, "scopes = 2"), "insufficient_scope"],
    [
      "belongs to a suspended team",
      (team) => call("PATCH", `/auth/v1/teams/${team.teamId}`, { json: { status: "suspended" }, token: OPERATOR }),
      "team_suspended",
    ],
  ])("stops working, and so do its upload URLs, when its issuer %s", async (_, end, code) => {
    const team = await newTeam();
    const { id, token } = await newUploadToken(team);
    const path = locationOf(await createUpload(call, 10, undefined, { token }));
    expect((await head(call, path, { token })).status).toBe(200);
    await end(team, id);
    expect(await codeOf(token)).toBe(code);
    expect((await patch(call, path, 0, new Uint8Array(10), { token })).code).toBe(code);
  });

  test("ends with the logout of the session that issued it, and what it uploads belongs to the session's user", async ({
    team,
  }) => {
    const { id: userId, token } = await newMember(team, "contributor");
    const visitor = await issueToken({ ...team, token });
    const { id } = await formUpload.send({ id: "", token: visitor.token }, "text");
    expect(idsIn(await dataOf(call("GET", UPLOADS, { token })))).toEqual([id]);
    expect((await read(team, `${UPLOADS}/${id}/metadata`)).uploadedBy).toMatchObject({ userId });
    await call("POST", "/auth/v1/logout", { token });
    expect(await codeOf(visitor.token)).toBe("token_invalid");
  });

  test("can't describe its caller, log out, change a password or list anything", async ({ team }) => {
    const { token } = await newUploadToken(team);
    const json = { currentPassword: "correct horse battery", newPassword: "staple horse battery" };
    for (const [method, path, options] of [
      ["GET", "/auth/v1/me", {}],
      ["POST", "/auth/v1/logout", {}],
      ["POST", "/auth/v1/me/password", { json }],
    ] as const) {
      expect((await call(method, path, { token, ...options })).code, path).toBe("forbidden");
    }
    for (const path of [UPLOADS, `${UPLOADS}/resumable`, "/docs/v1/usage", "/docs/v1/folders"]) {
      expect((await call("GET", path, { token })).code, path).toBe("insufficient_scope");
    }
  });

  const properties = { name: "n.txt", folder: "f", reference: "r", tags: ["t"], metadata: { m: 1 } };

  test("sets properties, which the visitor neither sends nor sees", async ({ team }) => {
    const { token } = await newUploadToken(team, { properties });
    const body = new FormData();
    body.append("properties", JSON.stringify({ folder: "mine" }));
    body.append("file", new File(["text"], "a.txt"));
    const send = [
      () => call("POST", UPLOADS, { token, body }),
      () => createUpload(call, 1, { filename: "a.txt", properties: "{}" }, { token }),
    ];
    for (const act of send) await rejected(team, 400, "invalid_input", act, ["properties"]);
    const first = await call("POST", UPLOADS, {
      token,
      body: form("a.txt", "text"),
      headers: { "Idempotency-Key": "k" },
    });
    const again = await call("POST", UPLOADS, {
      token,
      body: form("a.txt", "text"),
      headers: { "Idempotency-Key": "k" },
    });
    const seen = { name: "a.txt", folder: "", reference: null, tags: [] };
    for (const { body } of [first, again]) expect(body.data).toMatchObject(seen);
    const { id } = await resumableUpload.send({ id: "", token }, "text");
    for (const one of [first.id, id]) {
      expect(await read(team, `${UPLOADS}/${one}/metadata`)).toMatchObject(properties);
    }
  });

  test("has its own idempotency keys, whose repetition takes no second place", async ({ team }) => {
    const [one, two] = [await newUploadToken(team, { maxFiles: 1 }), await newUploadToken(team, { maxFiles: 1 })];
    const headers = { "Idempotency-Key": "same" };
    const send = (token: string) => call("POST", UPLOADS, { token, headers, body: form("a.txt", "text") });
    const [first, again, other] = [await send(one.token), await send(one.token), await send(two.token)];
    expect([first.status, again.status, other.status]).toEqual([200, 200, 200]);
    expect(again.id).toBe(first.id);
    expect(other.id).not.toBe(first.id);
    const [three, four] = [await newUploadToken(team, { maxFiles: 1 }), await newUploadToken(team, { maxFiles: 1 })];
    const begin = (token: string) => ask(call, "POST", RESUMABLE, { ...headers, "Upload-Length": "5" }, { token });
    for (const { token } of [three, three, four]) expect((await begin(token)).status).toBe(201);
    expect((await createUpload(call, 5, {}, { token: three.token })).code).toBe("upload_limit_reached");
    expect(await read(team, `${UPLOADS}/resumable`)).toHaveLength(2);
  });

  test("resumes an upload of another token of the same issuer, and both tokens read its status", async ({ team }) => {
    const key = await newKey(team, { scopes: ["files:upload"] });
    const issue = () => issueToken({ ...team, token: key.key });
    const [one, two, three] = [await issue(), await issue(), await issue()];
    const stranger = await newUploadToken(team);
    const created = await createUpload(call, 10, undefined, { token: one.token });
    const path = locationOf(created);
    await patch(call, path, 0, new Uint8Array(4), { token: one.token });
    for (const token of [stranger.token, (await newUploadToken(await newTeam())).token]) {
      expect((await head(call, path, { token })).status).toBe(404);
      expect((await patch(call, path, 4, new Uint8Array(6), { token })).status).toBe(404);
      expect((await call("DELETE", path, { token, headers: tusHeaders() })).status).toBe(404);
    }
    expect((await head(call, path, { token: two.token })).headers.get("Upload-Offset")).toBe("4");
    const finished = await patch(call, path, 4, new Uint8Array(6), { token: two.token });
    expect(finished.status).toBe(204);
    const statusBy = async ({ token }: { token: string }) =>
      (await call("GET", `${UPLOADS}/${idOf(finished)}/status`, { token })).status;
    expect(await statusBy(one)).toBe(200);
    expect(await statusBy(two)).toBe(200);
    for (const other of [three, stranger, await newPageKey(team)]) expect(await statusBy(other)).toBe(404);
  });

  test("finishes after its expiry what it began, for six days", async ({ team }) => {
    const { token } = await issueToken(team, { expiresIn: 60 });
    const path = locationOf(await createUpload(call, 10, undefined, { token }));
    const sendAt = async (milliseconds: number) =>
      (await patch(ahead(milliseconds).call, path, 0, new Uint8Array(), { token })).status;
    expect(await sendAt(61_000)).toBe(204);
    expect(await sendAt(60_000 + 6 * DAY)).toBe(401);
    expect((await createUpload(ahead(61_000).call, 10, undefined, { token })).code).toBe("token_invalid");
  });

  test("is named by the event of its upload, whose actor is of the kind upload", async ({ team }) => {
    const { id: keyId, token, tokenId } = await newUploadToken(team);
    const { id } = await formUpload.send({ id: "", token }, "text");
    const events = await eventsOf(team, "type=file.uploaded");
    const actor = { kind: "upload", keyId, userId: null, requestId: expect.any(String) };
    const data = { _id: id, uploadTokenId: tokenId, uploadedBy: { keyId, userId: null } };
    expect(events).toMatchObject([{ actor, data }]);
  });

  test("has at most 20 unfinished uploads, and leaves most of the quota to the team", async () => {
    const small = startWorker(withSettings({ maxTeamBytes: 1_000_000_000 }));
    const team = await newTeam(small);
    const { token } = await newUploadToken(team);
    expect((await createUpload(small.call, 201_000_000, undefined, { token })).code).toBe("quota_exceeded");
    for (let i = 0; i < 20; i++) expect((await createUpload(small.call, 1, undefined, { token })).status).toBe(201);
    expect((await createUpload(small.call, 1, undefined, { token })).code).toBe("too_many_unfinished_uploads");
    expect((await createUpload(small.call, 1, undefined, { token: team.token })).status).toBe(201);
  });
});
