import { beforeAll, describe, expect, test } from "vitest";
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
  openSession,
  readPages,
  rejected,
  startWorker,
  type Team,
  withoutJobs,
  withoutLimits,
  withoutRequestId,
} from "../support/harness.ts";
import { startLimited } from "../support/limits.ts";
import { nounOf, pathTo, type Records, requestFor, routes } from "../support/routes.ts";
import { ask, create, head, locationOf, patch, RESUMABLE } from "../support/tus.ts";

/* Callers that see only their own files: users with the role `contributor`, and keys with `ownFilesOnly`. */

const worker = startWorker(compose(withoutLimits, withoutJobs));
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
/** A key that sees only its own files. */
const newOwnKey = (team: Team, fields: object = {}) => newKey(team, { ownFilesOnly: true, ...fields });

describe("uploadedBy", () => {
  test("names the key or session that began the upload, and its user", async () => {
    const team = await newTeam();
    const admin = await newMember(team, "admin");
    const json = { name: "by admin" };
    const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json, token: admin.token }));
    const session = await dataOf(call("POST", "/auth/v1/sessions", { token: key.key }));
    const me = (await dataOf(team.call("GET", "/auth/v1/me", { token: admin.token }))).keyId;
    for (const [token, uploadedBy] of [
      [team.token, { keyId: team.keyId, userId: null }],
      [admin.token, { keyId: me, userId: admin.id }],
      [key.key, { keyId: key.id, userId: admin.id }],
      [session.key, { keyId: session.id, userId: admin.id }],
    ] as const) {
      const id = await put(team, token);
      const tus = await create(team.call, 1, { filename: "b" }, { token });
      await patch(team.call, locationOf(tus), 0, new Uint8Array(1), { token: team.token });
      for (const of of [id, tus.headers.get("Content-Location")?.split("/").at(-1)]) {
        expect((await dataOf(team.call("GET", `${UPLOADS}/${of}/metadata`))).uploadedBy).toEqual(uploadedBy);
      }
    }
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

describe("The usage of a caller with its own files", () => {
  test.each([
    ["usage", () => "/docs/v1/usage"],
    ["team", ({ teamId }: Team) => `/auth/v1/teams/${teamId}`],
  ])("is limited to ten a minute before its files are read, with the %s", async (_, pathOf) => {
    const limited = startLimited({});
    const team = await foundTeam(limited);
    const [one, two] = [await newMember(team, "contributor"), await newMember(team, "contributor")];
    const ask = (token: string) => limited.call("GET", pathOf(team), { token });
    for (let i = 0; i < 10; i++) expect((await ask(one.token)).status).toBe(200);
    expect((await ask(one.token)).code).toBe("rate_limited");
    for (const { token } of [two, team]) expect((await ask(token)).status).toBe(200);
  });
});

/** Everything of another user's file that must not appear. */
const CANARIES = ["hidden-name", "hidden-folder", "hidden-tag", "hidden-reference", "7919"];

describe("A caller with its own files", () => {
  let team: Team;
  /** The records of another contributor, and of the team. */
  let hidden: Partial<Records>[];
  let uploadUrl: string;
  const callers: Record<string, { token: string; ownerId: string }> = {};
  const NAMES = ["a contributor", "a key of a user", "a key without a user", "a session of a key", "a key of a key"];

  beforeAll(async () => {
    team = await newTeam();
    hidden = [];
    for (const token of [(await newMember(team, "contributor")).token, team.token, (await newOwnKey(team)).key]) {
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
    const admin = await newMember(team, "admin");
    const ofUser = await newOwnKey({
      ...team,
      call: (method, path, options) => call(method, path, { ...options, token: admin.token }),
    });
    const alone = await newOwnKey(team);
    callers["a contributor"] = { token: contributor.token, ownerId: contributor.id };
    callers["a key of a user"] = { token: ofUser.key, ownerId: admin.id };
    callers["a key without a user"] = { token: alone.key, ownerId: alone.id };
    callers["a session of a key"] = {
      token: (await dataOf(call("POST", "/auth/v1/sessions", { token: alone.key }))).key,
      ownerId: alone.id,
    };
    const child = await dataOf(call("POST", "/auth/v1/apikeys", { json: { name: "child" }, token: alone.key }));
    callers["a key of a key"] = { token: child.key, ownerId: child.id };
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
        const answer = await call(route.method, pathTo(route, id), { ...requestFor(route), token });
        expect([403, 404], `${name}: ${route.name}`).toContain(answer.status);
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
    const { files, bytes } = before.usage;
    expect(after.usage).toEqual({ files: files - 1, bytes: bytes - 4, trashFiles: 0, trashBytes: 0 });
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
  test("applies to live sessions from the next request, and so does another role", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "member");
    const [others, own] = [await put(team, team.token), await put(team, token)];
    const setRole = (role: string) =>
      dataOf(
        team
          .call("PATCH", `/auth/v1/users/${id}`, { json: { role } })
          .then((answer) => ({ ...answer, body: { data: answer.body } })),
      );
    expect(await listed(team, token)).toEqual([own, others]);
    await setRole("contributor");
    expect(await listed(team, token)).toEqual([own]);
    expect((await team.call("GET", `${UPLOADS}/${others}/metadata`, { token })).status).toBe(404);
    expect(await dataOf(team.call("GET", "/auth/v1/me", { token }))).toMatchObject({
      role: "contributor",
      ownFilesOnly: true,
      scopes: ["files:upload", "files:read", "files:download", "files:write", "files:delete"],
    });
    await setRole("viewer");
    expect(await listed(team, token)).toEqual([own, others]);
  });
});

describe("A key with ownFilesOnly", () => {
  const all = [
    "files:upload",
    "files:read",
    "files:download",
    "files:write",
    "files:delete",
    "keys:read",
    "keys:write",
  ];

  test("has only scopes of files and keys, by default all of them", async () => {
    const team = await newTeam();
    expect(await newOwnKey(team)).toMatchObject({ ownFilesOnly: true, scopes: all });
    expect(await newKey(team)).toMatchObject({ ownFilesOnly: false });
    for (const scope of ["events:read", "users:read", "webhooks:write"]) {
      const json = { name: "a", ownFilesOnly: true, scopes: ["files:read", scope] };
      await rejected(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/apikeys", { json }), ["scopes"]);
    }
  });

  test("creates only keys and sessions that are limited like it", async () => {
    const team = await newTeam();
    const { key: token } = await newOwnKey(team);
    const json = { name: "a", ownFilesOnly: false };
    await rejected(team, 403, "forbidden", () => team.call("POST", "/auth/v1/apikeys", { json, token }));
    for (const json of [{ name: "a" }, { name: "a", ownFilesOnly: true }, { name: "a", isPublic: true }]) {
      const created = await dataOf(team.call("POST", "/auth/v1/apikeys", { json, token }));
      expect(created.ownFilesOnly).toBe(true);
      const rotated = await dataOf(team.call("POST", `/auth/v1/apikeys/${created.id}/rotate`, { token }));
      expect(rotated.ownFilesOnly).toBe(true);
    }
    expect(await openSession(token)).toMatchObject({ ownFilesOnly: true });
  });

  test("sees, rotates and deletes only the limited keys of its user, and those that it created", async () => {
    const team = await newTeam();
    const admin = await newMember(team, "admin");
    const ofAdmin = {
      ...team,
      call: ((method, path, options) => team.call(method, path, { ...options, token: admin.token })) as Team["call"],
    };
    const [full, one, two] = [await newKey(ofAdmin), await newOwnKey(ofAdmin), await newOwnKey(ofAdmin)];
    const [stranger, whole] = [await newOwnKey(team), await newKey(team, { scopes: ["files:read"] })];
    const child = await dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "a" }, token: stranger.key }));
    const keysOf = async (token: string) => idsIn(await dataOf(team.call("GET", "/auth/v1/apikeys", { token }))).sort();
    expect(await keysOf(one.key)).toEqual([one.id, two.id].sort());
    expect(await keysOf(stranger.key)).toEqual([stranger.id, child.id].sort());
    expect(await keysOf(child.key)).toEqual([child.id]);
    for (const { id } of [full, stranger, whole, child]) {
      for (const [method, path, json] of [
        ["GET", `/auth/v1/apikeys/${id}`],
        ["PATCH", `/auth/v1/apikeys/${id}`, { name: "b" }],
        ["POST", `/auth/v1/apikeys/${id}/rotate`],
        ["DELETE", `/auth/v1/apikeys/${id}`],
      ] as const) {
        await rejected(team, 404, "not_found", () =>
          team.call(method, path, { token: one.key, ...(json && { json }) }),
        );
      }
    }
    expect((await dataOf(team.call("GET", `/auth/v1/apikeys/${two.id}`, { token: one.key }))).key).toBe(two.key);
    const [session] = await dataOf(team.call("GET", "/auth/v1/sessions"));
    const created = await openSession(stranger.key);
    expect(idsIn(await dataOf(team.call("GET", "/auth/v1/sessions", { token: stranger.key })))).toEqual([created.id]);
    await rejected(team, 404, "not_found", () =>
      team.call("DELETE", `/auth/v1/sessions/${session._id}`, { token: stranger.key }),
    );
  });

  test("keeps its user, and so its files, when another user rotates it", async () => {
    const team = await newTeam();
    const [a, b] = [await newMember(team, "admin"), await newMember(team, "admin")];
    const json = { name: "a", ownFilesOnly: true };
    const key = await dataOf(team.call("POST", "/auth/v1/apikeys", { json, token: a.token }));
    const id = await put(team, key.key);
    await put(team, b.token);
    const rotated = await dataOf(team.call("POST", `/auth/v1/apikeys/${key.id}/rotate`, { token: b.token }));
    expect(await listed(team, rotated.key)).toEqual([id]);
    const alone = await newOwnKey(team);
    await put(team, alone.key);
    const next = await dataOf(team.call("POST", `/auth/v1/apikeys/${alone.id}/rotate`));
    expect(await listed(team, next.key)).toEqual([]);
  });

  test("a rotated key without a user sees none of the files of the user who rotates it", async () => {
    const team = await newTeam();
    const admin = await newMember(team, "admin");
    await put(team, admin.token);
    const { id } = await newOwnKey(team);
    const rotated = await dataOf(team.call("POST", `/auth/v1/apikeys/${id}/rotate`, { token: admin.token }));
    expect(await listed(team, rotated.key)).toEqual([]);
  });
});
