import { beforeAll, describe, expect, test } from "vitest";
import { vttOf } from "../support/bytes.ts";
import {
  compose,
  dataOf,
  form,
  newTeam as foundTeam,
  idsIn,
  newKey,
  newMember,
  newSession,
  nextOf,
  OPERATOR,
  openSession,
  read,
  readPages,
  rejected,
  snapshot,
  startWorker,
  type Team,
  withoutJobs,
  withoutLimits,
  withoutRequestId,
  withSettings,
} from "../support/harness.ts";
import { nounOf, pathTo, type Records, requestFor, routes } from "../support/routes.ts";
import { ask, create, head, locationOf, patch, RESUMABLE } from "../support/tus.ts";

/* Callers that see only their own files: users with the role `contributor`, with their sessions and keys. */

// Without a trash, a contributor deletes nothing: trash/trash.
const worker = startWorker(compose(withoutLimits, withoutJobs, withSettings({ trashDays: 1 })));
const { call } = worker;
const newTeam = () => foundTeam(worker);
const UPLOADS = "/docs/v1/uploads";

async function put(team: Team, token: string, name = "a.txt", bytes = "a", properties?: object): Promise<string> {
  const body = new FormData();
  if (properties) body.append("properties", JSON.stringify(properties));
  for (const [part, file] of form(name, bytes)) body.append(part, file);
  return (await dataOf(team.call("POST", UPLOADS, { body, token })))._id;
}
const listed = async (team: Team, token: string, query = "") =>
  idsIn(
    (await readPages({ call: (method, path) => team.call(method, path, { token }) }, `${UPLOADS}?${query}`)).flat(),
  );
const setRole = async (team: Team, id: string, role: string) => {
  const answer = await team.call("PATCH", `/auth/v1/users/${id}`, { json: { role } });
  expect(answer.status, answer.text).toBe(200);
};
/** A key of a user who was an admin when it was created, and is a contributor now. */
async function newKeyOfContributor(team: Team, fields: object = {}) {
  const admin = await newMember(team, "admin");
  const json = { name: "of a contributor", ...fields };
  const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json, token: admin.token }));
  await setRole(team, admin.id, "contributor");
  return { ...key, userId: admin.id };
}

describe("uploadedBy", () => {
  test("names the key or session that began the upload, and its user, and in the metadata also their name", async () => {
    const team = await newTeam();
    const admin = await newMember(team, "admin");
    const names = { firstName: "Ada", lastName: "Lovelace" };
    await dataOf(team.call("PATCH", `/auth/v1/users/${admin.id}`, { json: names }));
    const json = { name: "by admin" };
    const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json, token: admin.token }));
    const session = await dataOf(call("POST", "/auth/v1/sessions", { token: key.key }));
    const me = (await dataOf(team.call("GET", "/auth/v1/me", { token: admin.token }))).keyId;
    for (const [token, uploadedBy] of [
      [team.token, { keyId: team.keyId, userId: null, name: "First key" }],
      [admin.token, { keyId: me, userId: admin.id, name: "Ada Lovelace" }],
      [key.key, { keyId: key.id, userId: admin.id, name: "Ada Lovelace" }],
      [session.key, { keyId: session.id, userId: admin.id, name: "Ada Lovelace" }],
    ] as const) {
      const { name: _, ...listed } = uploadedBy;
      const id = await put(team, token);
      const tus = await create(team.call, 1, { filename: "b" }, { token });
      await patch(team.call, locationOf(tus), 0, new Uint8Array(1), { token: team.token });
      for (const of of [id, tus.headers.get("Content-Location")?.split("/").at(-1)]) {
        expect((await dataOf(team.call("GET", `${UPLOADS}/${of}/metadata`))).uploadedBy).toEqual(uploadedBy);
        const files: { _id: string; uploadedBy: object }[] = await read(team, UPLOADS);
        expect(files.find(({ _id }) => _id === of)?.uploadedBy).toEqual(listed);
      }
    }
  });

  test("has a name in the metadata that follows the user, and is null once the user is deleted", async () => {
    const team = await newTeam();
    const member = await newMember(team, "member");
    const id = await put(team, member.token);
    const nameOf = async () => (await dataOf(team.call("GET", `${UPLOADS}/${id}/metadata`))).uploadedBy.name;
    const user = `/auth/v1/users/${member.id}`;
    await dataOf(team.call("PATCH", user, { json: { firstName: "Grace", lastName: "Hopper" } }));
    expect(await nameOf()).toBe("Grace Hopper");
    expect((await team.call("DELETE", user)).status).toBe(200);
    expect(await nameOf()).toBeNull();
  });

  test("can't be sent or changed", async () => {
    const team = await newTeam();
    const id = await put(team, team.token);
    const json = { name: "b.txt", uploadedBy: { keyId: team.keyId, userId: null } };
    await rejected(team, 400, "invalid_input", () => team.call("PATCH", `${UPLOADS}/${id}`, { json }), ["uploadedBy"]);
  });

  test("filters a list, also together with other filters", async () => {
    const team = await newTeam();
    const [a, b] = [await newMember(team, "member"), await newMember(team, "member")];
    const [one, two] = [await put(team, a.token, "1.txt"), await put(team, a.token, "2.txt", "2", { folder: "f" })];
    const other = await put(team, b.token, "1.txt", "3", { folder: "f", tags: ["t"] });
    await put(team, team.token);
    const list = (query: string) => listed(team, team.token, query);
    expect(await list(`uploadedBy=${a.id}`)).toEqual([two, one]);
    expect(await list(`uploadedBy=${a.id}&sort=name`)).toEqual([one, two]);
    expect(await list(`uploadedBy=${a.id}&folder=f`)).toEqual([two]);
    expect(await list(`uploadedBy=${a.id}&search=1`)).toEqual([one]);
    expect(await list(`uploadedBy=${b.id}&tag=t&status=pending`)).toEqual([other]);
    expect(await list(`uploadedBy=${team.teamId}`)).toEqual([]);
    await rejected(team, 400, "invalid_input", () => team.call("GET", `${UPLOADS}?uploadedBy=a`), ["uploadedBy"]);
  });
});

/** Everything of another user's file that must not appear. */
// With the colon of JSON: an id is hex, and may contain the digits of the size.
const CANARIES = ["hidden-name", "hidden-folder", "hidden-tag", "hidden-reference", ":7919"];

describe("A contributor's token", () => {
  let team: Team;
  /** The records of another contributor, and of the team. */
  let hidden: Partial<Records>[];
  let uploadUrl: string;
  const callers: Record<string, { token: string; ownerId: string }> = {};
  const NAMES = ["a contributor", "a key of a contributor", "a session of a key of a contributor"];

  beforeAll(async () => {
    team = await newTeam();
    hidden = [];
    for (const token of [(await newMember(team, "contributor")).token, team.token]) {
      const properties = { folder: "hidden-folder", tags: ["hidden-tag"], reference: "hidden-reference" };
      const uploads = await put(team, token, "hidden-name.txt", "x".repeat(7919), properties);
      const link = await dataOf(team.call("POST", `${UPLOADS}/${uploads}/links`, { json: {}, token }));
      hidden.push({ uploads, links: link._id });
    }
    const { id: apikeys } = await newKey(team, { scopes: ["files:upload"] });
    const { id: sessions } = await dataOf(call("POST", "/auth/v1/sessions", { token: team.token }));
    const users = (await newMember(team, "viewer")).id;
    hidden.push({ apikeys, sessions, users, teams: (await newTeam()).teamId, events: "0".repeat(24) });
    uploadUrl = locationOf(await create(team.call, 10, { filename: "hidden-name" }));

    const contributor = await newMember(team, "contributor");
    const key = await newKeyOfContributor(team);
    const session = await openSession(key.key);
    callers["a contributor"] = { token: contributor.token, ownerId: contributor.id };
    callers["a key of a contributor"] = { token: key.key, ownerId: key.userId };
    callers["a session of a key of a contributor"] = { token: session.key, ownerId: key.userId };
  });

  test.each(NAMES)("finds no file, name, count or size of another in any response: %s", async (name) => {
    const { token } = callers[name]!;
    const own = await put(team, token, "own.txt", "own", { folder: "own", tags: ["own"] });
    const check = (text: string, where: string) => {
      for (const canary of [...CANARIES, ...hidden.flatMap((records) => Object.values(records).slice(0, 2))]) {
        expect(withoutRequestId(text), `${where} shows ${canary}`).not.toContain(canary);
      }
    };
    for (const route of routes.filter(({ path }) => path.includes("{id}"))) {
      for (const records of hidden) {
        const id = records[nounOf(route)];
        if (id === undefined) continue;
        const before = await snapshot(team.teamId);
        const answer = await call(route.method, pathTo(route, id), { ...requestFor(route), token });
        expect([403, 404], `${name}: ${route.name}`).toContain(answer.status);
        expect(await snapshot(team.teamId), `${name}: ${route.name}`).toEqual(before);
        if (answer.status === 404) expect(answer.code).toBe("not_found");
        check(answer.text, route.name);
      }
    }
    const filters = [
      ...[
        "",
        "sort=name",
        "name=hidden",
        "search=hidden",
        "folder=hidden-folder",
        "under=hidden-folder",
        "tag=hidden-tag",
      ],
      ...["reference=hidden-reference", "status=pending", "fileType=text+file", "tag=hidden-tag&folder=hidden-folder"],
      ...hidden.slice(0, 1).map(() => `uploadedBy=${callers["a contributor"]?.ownerId ?? ""}`),
      ...["limit=1", "limit=1&sort=name", "search=n", "status=failed", "page=2&limit=1", "tag=own&sort=name"],
    ];
    const paths = [
      ...filters.map((filter) => `${UPLOADS}?${filter}`),
      ...["", "?under=hidden-folder", "?limit=1"].map((query) => `/docs/v1/folders${query}`),
      ...["", "?prefix=hidden", "?limit=1"].map((query) => `/docs/v1/tags${query}`),
      ...["/docs/v1/usage", `/auth/v1/teams/${team.teamId}`, "/docs/v1/uploads/resumable", "/auth/v1/me"],
      ...["/auth/v1/apikeys", "/auth/v1/sessions", "/auth/v1/users", "/auth/v1/events", "/auth/v1/webhooks"],
    ];
    for (const path of paths) {
      for (let next: string | undefined = path; next; ) {
        const answer = await call("GET", next, { token });
        expect([200, 403], path).toContain(answer.status);
        check(answer.text, path);
        // A cursor contains the name and the id of a file.
        const cursor = nextOf(answer)?.match(/cursor=[^&]*\.([\w-]+)-/)?.[1] ?? "";
        check(Buffer.from(cursor, "base64url").toString(), `the cursor of ${path}`);
        check(nextOf(answer) ?? "", `the Link of ${path}`);
        next = nextOf(answer);
      }
    }
    const ids = hidden.flatMap(({ uploads }) => uploads ?? []);
    for (const action of [
      { action: "delete" },
      { action: "move", folder: "stolen" },
      { action: "tag", tags: ["stolen"] },
      { action: "reprocess" },
    ]) {
      const results = await dataOf(call("POST", `${UPLOADS}/batch`, { json: { ...action, ids }, token }));
      expect(results).toEqual(ids.map((_id) => ({ _id, ok: false, code: "not_found" })));
    }
    const usage = await dataOf(call("GET", "/docs/v1/usage", { token }));
    expect(usage).toMatchObject({ files: (await listed(team, token)).length, events: 0 });
    expect(await listed(team, token)).toContain(own);
  });

  test.each(NAMES)("can do everything with its own files: %s", async (name) => {
    const { token } = callers[name]!;
    const id = await put(team, token, "mine.txt", "mine", { folder: "mine", tags: ["mine"], reference: "mine" });
    const path = `${UPLOADS}/${id}`;
    const send = (method: string, suffix = "", json?: object) =>
      dataOf(call(method, `${path}${suffix}`, { token, ...(json && { json }) }));
    expect((await call("GET", path, { token })).body.signedUrl).toContain("mine");
    expect(await send("GET", "/metadata")).toMatchObject({ _id: id, folder: "mine" });
    expect(await send("GET", "/status")).toMatchObject({ _id: id });
    expect(await send("PATCH", "", { name: "renamed.txt" })).toMatchObject({ name: "renamed.txt" });
    const waveform = Array.from({ length: 16 }, () => 0);
    await send("PUT", "/waveform", { channels: [waveform] });
    expect(await send("GET", "/waveform")).toEqual({ channels: [waveform] });
    const vtt = { token, body: vttOf("a"), headers: { "Content-Type": "text/vtt" } };
    expect(await dataOf(call("PUT", `${path}/transcript`, vtt))).toMatchObject({ size: vttOf("a").length });
    expect((await call("GET", `${path}/transcript`, { token })).text).toBe(vttOf("a"));
    expect((await call("DELETE", `${path}/transcript`, { token })).status).toBe(200);
    const link = await send("POST", "/links", {});
    expect(idsIn(await send("GET", "/links"))).toEqual([link._id]);
    expect((await call("DELETE", `/docs/v1/links/${link._id}`, { token })).status).toBe(200);
    for (const query of ["folder=mine", "tag=mine", "reference=mine", "search=renamed", "under=mine&sort=name"]) {
      expect(await listed(team, token, query), query).toEqual([id]);
    }
    expect(await dataOf(call("GET", "/docs/v1/folders", { token }))).toContain("mine");
    const json = { action: "tag", ids: [id], tags: ["b"] };
    expect(await dataOf(call("POST", `${UPLOADS}/batch`, { json, token }))).toEqual([{ _id: id, ok: true }]);
    const before = await dataOf(call("GET", `/auth/v1/teams/${team.teamId}`, { token }));
    expect((await call("DELETE", path, { token })).status).toBe(200);
    const after = await dataOf(call("GET", `/auth/v1/teams/${team.teamId}`, { token }));
    const { trashFiles, trashBytes } = before.usage;
    expect(after.usage).toEqual({ ...before.usage, trashFiles: trashFiles + 1, trashBytes: trashBytes + 4 });
  });

  test.each(NAMES)("can't use the upload URL of another, and can resume its own: %s", async (name) => {
    const { token } = callers[name]!;
    const answers = [
      await head(call, uploadUrl, { token }),
      await patch(call, uploadUrl, 0, new Uint8Array(10), { token }),
      await call("DELETE", uploadUrl, { token, headers: { "Tus-Resumable": "1.0.0" } }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404]);
    const own = locationOf(await create(call, 2, { filename: "own" }, { token }));
    expect(idsIn(await dataOf(call("GET", "/docs/v1/uploads/resumable", { token })))).toHaveLength(1);
    expect((await patch(call, own, 0, new Uint8Array(2), { token })).status).toBe(204);
  });

  test("sees in another session what its user uploaded in an earlier one, and resumes it", async () => {
    const { id: userId, token } = await newMember(team, "contributor");
    const [id, url] = [await put(team, token), locationOf(await create(call, 2, {}, { token }))];
    const later = await newSession(team, userId);
    expect(await listed(team, later)).toEqual([id]);
    expect((await patch(call, url, 0, new Uint8Array(2), { token: later })).status).toBe(204);
  });

  test("has separate idempotency keys", async () => {
    const [a, b] = [await newMember(team, "contributor"), await newMember(team, "contributor")];
    const send = (token: string) =>
      call("POST", UPLOADS, { body: form("a.txt", "same"), token, headers: { "Idempotency-Key": "same" } });
    const [ofTeam, first, second, again] = [
      await send(team.token),
      await send(a.token),
      await send(b.token),
      await send(a.token),
    ];
    expect(new Set([ofTeam.id, first.id, second.id]).size).toBe(3);
    expect(again.id).toBe(first.id);
    const begin = (token: string) =>
      ask(call, "POST", RESUMABLE, { "Upload-Length": "5", "Idempotency-Key": "same" }, { token });
    const [one, two] = [await begin(a.token), await begin(b.token)];
    expect((await head(call, locationOf(one), { token: a.token })).status).toBe(200);
    expect((await head(call, locationOf(two), { token: b.token })).status).toBe(200);
  });
});

describe("The role contributor", () => {
  test("finds the files of a tag, and none with a similar one", async () => {
    const team = await newTeam();
    const { token } = await newMember(team, "contributor");
    const tags = ["x,", "y", '"'];
    const id = await put(team, token, "a.txt", "a", { tags });
    const comma = await put(team, token, "b.txt", "b", { tags: ["x", ","] });
    for (const tag of tags) expect(await listed(team, token, `tag=${encodeURIComponent(tag)}`), tag).toEqual([id]);
    expect(await listed(team, token, "tag=%2C")).toEqual([comma]);
  });

  test("applies to live sessions from the next request, and so does another role", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "member");
    const [others, own] = [await put(team, team.token), await put(team, token)];
    expect(await listed(team, token)).toEqual([own, others]);
    await setRole(team, id, "contributor");
    expect(await listed(team, token)).toEqual([own]);
    expect((await team.call("GET", `${UPLOADS}/${others}/metadata`, { token })).status).toBe(404);
    expect(await dataOf(team.call("GET", "/auth/v1/me", { token }))).toMatchObject({
      role: "contributor",
      scopes: ["files:upload", "files:read", "files:download", "files:write", "files:delete"],
    });
    await setRole(team, id, "viewer");
    expect(await listed(team, token)).toEqual([own, others]);
  });
});

describe("A key of a contributor", () => {
  const scopes = ["files:upload", "files:read", "files:download", "files:write", "files:delete"];

  const shown = async (token: string) => (await dataOf(call("GET", "/auth/v1/me", { token }))).scopes;

  test("has at most the scopes of the role from the next request, also after another role", async () => {
    const team = await newTeam();
    const { key: token, userId } = await newKeyOfContributor(team);
    expect(await shown(token)).toEqual(scopes);
    for (const [method, path, json] of [
      ["GET", "/auth/v1/events"],
      ["GET", "/auth/v1/apikeys"],
      ["GET", "/auth/v1/webhooks"],
      ["POST", "/auth/v1/apikeys", { name: "wider" }],
      ["PATCH", `/auth/v1/users/${userId}`, { role: "admin" }],
    ] as const) {
      const ask = () => team.call(method, path, { token, ...(json && { json }) });
      await rejected(team, 403, "insufficient_scope", ask);
    }
    await setRole(team, userId, "admin");
    expect(await shown(token)).toEqual(scopes);
  });

  test("gains no scope that the caller lacks, by another role or by a deletion with keepKeys, and nor does its session", async () => {
    const team = await newTeam();
    const { key: caller } = await newKey(team, { scopes: ["users:write", ...scopes, "files:erase", "events:read"] });
    const ends = [
      (id: string) => call("PATCH", `/auth/v1/users/${id}`, { token: caller, json: { role: "member" } }),
      (id: string) => call("DELETE", `/auth/v1/users/${id}?keepKeys=true`, { token: caller }),
    ];
    for (const end of ends) {
      const { id, token } = await newMember(team, "admin");
      const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "a" }, token }));
      const { key: session } = await openSession(key.key);
      await setRole(team, id, "contributor");
      expect((await end(id)).status).toBe(200);
      expect(await shown(key.key)).toEqual(scopes);
      if (end === ends[0]) expect(await shown(session)).toEqual(scopes);
    }
  });

  test("keeps its scopes if the change of the role is refused", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "admin");
    const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "a" }, token }));
    const before = await shown(key.key);
    const json = { role: "contributor" };
    const stale = { json, headers: { "If-Match": '"9"' } };
    await rejected(team, 412, "version_mismatch", () => team.call("PATCH", `/auth/v1/users/${id}`, stale));
    expect(await shown(key.key)).toEqual(before);
  });

  test("sees the files of its user in every session, and its successor does after a rotation", async () => {
    const team = await newTeam();
    const { id: userId, token } = await newMember(team, "admin");
    const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "a" }, token }));
    const others = await put(team, team.token);
    const own = [await put(team, token), await put(team, key.key)];
    await setRole(team, userId, "contributor");
    // Whoever rotates it: a key without a user, the key of another admin, the admin's session, a session of a key, the operator.
    const admin = await newMember(team, "admin");
    const ofAdmin = await dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "b" }, token: admin.token }));
    const { key: session } = await openSession(team.token);
    const rotated = [];
    for (const by of [team.token, ofAdmin.key, admin.token, session, OPERATOR]) {
      const successor = await dataOf(team.call("POST", `/auth/v1/apikeys/${key.id}/rotate`, { token: by }));
      const again = await dataOf(team.call("POST", `/auth/v1/apikeys/${successor.id}/rotate`, { token: by }));
      rotated.push(successor.key, again.key, (await openSession(again.key)).key);
    }
    for (const caller of [token, key.key, ...rotated]) {
      expect((await listed(team, caller)).sort()).toEqual([...own].sort());
      expect((await team.call("GET", `${UPLOADS}/${others}/metadata`, { token: caller })).status).toBe(404);
    }
    await team.call("DELETE", `/auth/v1/users/${userId}`);
    for (const caller of rotated) expect((await call("GET", UPLOADS, { token: caller })).status).toBe(401);
  });
});

describe("The field ownFilesOnly", () => {
  test("is unknown in a new key, and in no response", async () => {
    const team = await newTeam();
    const json = { name: "a", ownFilesOnly: true };
    await rejected(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/apikeys", { json }), ["ownFilesOnly"]);
    expect(await newKey(team)).not.toHaveProperty("ownFilesOnly");
    expect(await dataOf(team.call("GET", "/auth/v1/me"))).not.toHaveProperty("ownFilesOnly");
  });
});

describe("The deletion of an API key", () => {
  test("that the caller doesn't find ends no session, and cancels no upload", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const { key: session } = await openSession(team.token);
    await create(team.call, 5, {}, { token: session });
    const { token } = await newMember(team, "contributor");
    const remove = (caller: string) => call("DELETE", `/auth/v1/apikeys/${team.keyId}`, { token: caller });
    await rejected(team, 403, "insufficient_scope", () => remove(token));
    await rejected(team, 404, "not_found", () => remove(other.token));
    const { key: narrow } = await newKey(team, { scopes: ["keys:write"] });
    await rejected(team, 403, "insufficient_scope", () => remove(narrow));
    expect((await call("GET", "/auth/v1/me", { token: session })).status).toBe(200);
  });
});
