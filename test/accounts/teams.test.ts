import { describe, expect, test } from "vitest";
import {
  type CallOptions,
  call,
  compose,
  dataOf,
  EMAIL,
  eventsOf,
  fieldsOf,
  form,
  logIn,
  newKey,
  newTeam,
  newUser,
  nextOf,
  OPERATOR,
  PASSWORD,
  pausedStream,
  rejected,
  snapshot,
  startWorker,
  type Team,
  upload,
  usageOf,
  withoutJobs,
  withoutLimits,
} from "../support/harness.ts";
import { create } from "../support/tus.ts";

const TEAMS = "/auth/v1/teams";
const KEYS = "/auth/v1/apikeys";
const USAGE = "/docs/v1/usage";

const worker = startWorker(compose(withoutJobs, withoutLimits));
const quickTeam = () => newTeam(worker);
const asOperator = (method: string, path: string, json?: object) =>
  worker.call(method, path, { token: OPERATOR, ...(json && { json }) });
const pathOf = ({ teamId }: Team) => `${TEAMS}/${teamId}`;
const update = (team: Team, json: object) => asOperator("PATCH", pathOf(team), json);
const put = (team: Team, bytes: string, token = team.token) =>
  team.call("POST", "/docs/v1/uploads", { body: form("a.txt", bytes), token });

/** A name that no other team has, before which others are sorted. */
const newName = () => `team ${crypto.randomUUID()}`;
const namesOf = ({ body }: { body: { data: { name: string }[] } }) => body.data.map(({ name }) => name);

describe("A new team", () => {
  test("has the given name and quota, no usage, and a first secret key that works", async () => {
    const name = newName();
    const { status, body } = await asOperator("POST", TEAMS, { name, maxBytes: 1000 });
    expect([status, fieldsOf(body)]).toEqual([200, ["apiKey", "data", "message"]]);
    expect(body.data).toEqual({
      _id: body.apiKey.teamId,
      name,
      status: "active",
      maxBytes: 1000,
      maxFiles: null,
      notificationEmail: null,
      retentionDays: null,
      trashDays: 0,
      sendsEmail: true,
      database: expect.any(Number),
      usage: { files: 0, bytes: 0, trashFiles: 0, trashBytes: 0 },
      createdAt: body.data.updatedAt,
      updatedAt: expect.stringMatching(/Z$/),
      __v: 0,
    });
    const own = await worker.call("GET", `${TEAMS}/${body.data._id}`, { token: body.apiKey.key });
    expect([own.status, own.body.data]).toEqual([200, body.data]);
    expect(body.apiKey.name).toBe("First key");
  });

  test("is created by a key without a team, and has the key's name", async () => {
    const name = newName();
    const { body } = await asOperator("POST", KEYS, { name });
    expect((await asOperator("GET", `${TEAMS}/${body.data.teamId}`)).body.data).toMatchObject({ name, __v: 0 });
    expect((await asOperator("POST", KEYS, { name, teamId: "0193477be8a01f9c3ad5e7b2" })).code).toBe("not_found");
  });
});

describe("The list of teams", () => {
  test("is newest first, or by name with a prefix, and combines with a status", async () => {
    const prefix = newName();
    const ids: string[] = [];
    for (const name of [`${prefix} b`, `${prefix} c`, `${prefix} a`]) {
      ids.push((await asOperator("POST", TEAMS, { name })).body.data._id);
    }
    await asOperator("PATCH", `${TEAMS}/${ids[1]}`, { status: "suspended" });
    const list = async (query: string) => namesOf(await asOperator("GET", `${TEAMS}?${query}`));
    const filter = `name=${encodeURIComponent(prefix)}`;
    expect(await list(filter)).toEqual(["a", "b", "c"].map((end) => `${prefix} ${end}`));
    expect(await list(`${filter}&status=suspended`)).toEqual([`${prefix} c`]);
    expect((await list("status=suspended"))[0]).toBe(`${prefix} c`);
    expect((await list("limit=3")).map((name) => name.slice(-1)).sort()).toEqual(["a", "b", "c"]);
    const first = await asOperator("GET", `${TEAMS}?${filter}&limit=2`);
    expect(namesOf(await asOperator("GET", nextOf(first) ?? ""))).toEqual([`${prefix} c`]);
  });
});

describe("The quota of a team", () => {
  test("replaces the settings, also for usage and the share of public keys, until it is null again", async () => {
    const [team, other] = [await quickTeam(), await quickTeam()];
    const page = await newKey(team, { isPublic: true });
    const { body } = await update(team, { maxFiles: 2, maxBytes: 50 });
    expect(body.data).toMatchObject({ maxFiles: 2, maxBytes: 50, __v: 1 });
    expect(await usageOf(team)).toMatchObject({ maxFiles: 2, maxBytes: 50 });
    const { message } = (await rejected(team, 413, "quota_exceeded", () => put(team, "x".repeat(51)))).body;
    expect(message).toBe("Storage quota (50 bytes) exceeded. Delete files and retry.");
    const ofPage = await rejected(team, 413, "quota_exceeded", () => create(team.call, 11, {}, { token: page.key }));
    expect(ofPage.body.message).toContain("at most 10 bytes");
    expect((await create(team.call, 11)).status).toBe(201);

    await update(team, { maxFiles: 0, maxBytes: 0 });
    expect(await usageOf(team)).toMatchObject({ maxFiles: 0, maxBytes: 0 });
    await update(team, { maxFiles: 2, maxBytes: null });
    expect((await put(team, "one")).status).toBe(200);
    expect((await rejected(team, 409, "file_limit_reached", () => put(team, "two"))).body.message).toContain("2 files");
    expect((await put(other, "x".repeat(51))).status).toBe(200);
  });

  test.each([{ maxBytes: -1 }, { maxFiles: 1.5 }, { maxFiles: "1" }, { name: "" }, { status: "deleting" }])(
    "the fields of a team reject %j",
    async (json) => {
      const team = await quickTeam();
      await rejected(team, 400, "invalid_input", () => update(team, json), Object.keys(json));
    },
  );
});

/** Every kind of token of a team, by name. */
async function tokensOf(team: Team): Promise<Record<string, string>> {
  await newUser(team);
  const [page, login] = [await newKey(team, { isPublic: true }), await dataOf(logIn(team))];
  return { "secret key": team.token, "public key": page.key, login: login.key };
}

describe("A suspended team", () => {
  test("has every token rejected with 403 from the next request, its links with 404, and works again once resumed", async () => {
    const [team, other] = [await quickTeam(), await quickTeam()];
    const tokens = await tokensOf(team);
    const id = await upload(team, "a.txt", "shared");
    const { url } = (await team.call("POST", `/docs/v1/uploads/${id}/links`, { json: {} })).body.data;
    const open = () => worker.call("GET", new URL(url).pathname);
    const requests: [string, string, CallOptions?][] = [
      ["GET", USAGE],
      ["GET", pathOf(team)],
      ["GET", "/auth/v1/users/0193477be8a01f9c3ad5e7b2"],
      ["POST", "/auth/v1/users", { json: { email: "" } }],
      ["POST", "/docs/v1/uploads", { body: form("b.txt", "b") }],
    ];
    expect((await open()).status).toBe(200);
    expect((await update(team, { status: "suspended" })).body.data).toMatchObject({ status: "suspended", __v: 1 });
    for (const [kind, token] of Object.entries(tokens)) {
      for (const [method, path, options] of requests) {
        const { code } = await worker.call(method, path, { ...options, token });
        expect(code, `${kind}: ${method} ${path}`).toBe("team_suspended");
      }
    }
    await rejected(team, 403, "team_suspended", () => put(team, "late"));
    expect([(await open()).code, (await logIn(team)).code]).toEqual(["not_found", "team_suspended"]);
    expect((await logIn(team, EMAIL, "wrong")).code).toBe("login_failed");
    expect((await other.call("GET", USAGE)).status).toBe(200);

    await update(team, { status: "active" });
    for (const answer of [await open(), await logIn(team), await put(team, "again")]) expect(answer.status).toBe(200);
    const subject = { kind: "team", id: team.teamId };
    const change = { actor: { kind: "operator" }, data: { fields: ["status"] } };
    expect(await eventsOf(team, `subject=${team.teamId}`)).toMatchObject([
      { type: "team.created", subject },
      { ...change, type: "team.suspended", subject: { ...subject, version: 1 } },
      { ...change, type: "team.updated", subject: { ...subject, version: 2 } },
    ]);
  });
});

describe("A deleted team", () => {
  test("has every token rejected with 401 and its links with 404 from the next request, and is visible to the operator as deleting", async () => {
    const [team, other] = [await quickTeam(), await quickTeam()];
    const tokens = await tokensOf(team);
    const id = await upload(team, "a.txt", "shared");
    const { url } = await dataOf(team.call("POST", `/docs/v1/uploads/${id}/links`, { json: {} }));
    const { status, body } = await asOperator("DELETE", pathOf(team));
    expect([status, body.data.status]).toEqual([200, "deleting"]);
    expect((await call("GET", new URL(url).pathname)).code).toBe("not_found");
    for (const [kind, token] of Object.entries(tokens)) {
      expect((await call("GET", USAGE, { token })).code, kind).toBe("token_invalid");
      expect((await call("POST", "/auth/v1/users", { token, json: {} })).code, kind).toBe("token_invalid");
    }
    expect((await logIn(team)).code).toBe("login_failed");
    expect((await asOperator("DELETE", pathOf(team))).body.data).toEqual(body.data);
    expect((await asOperator("GET", pathOf(team))).body.data).toEqual(body.data);
    expect((await update(team, { status: "active" })).code).toBe("conflict");
    expect((await asOperator("POST", KEYS, { name: "late", teamId: team.teamId })).code).toBe("not_found");
    expect((await other.call("GET", USAGE)).status).toBe(200);
  });

  test.each([
    ["a user", "/auth/v1/users", { email: "late@example.com", password: PASSWORD }],
    ["a key", KEYS, { name: "late" }],
    ["a webhook", "/auth/v1/webhooks", { url: "https://hooks.canary.example/" }],
    ["a file", "/docs/v1/uploads", null],
  ])("gets no row from a request that was authorized before and creates %s", async (_, path, json) => {
    const team = await quickTeam();
    const encoded = new Response(json ? JSON.stringify(json) : form("late.txt", "late"));
    const bytes = new Uint8Array(await encoded.arrayBuffer());
    let before: unknown;
    // The body is read after the caller is authorized.
    const body = pausedStream([bytes], async () => {
      await asOperator("DELETE", pathOf(team));
      before = await snapshot(team.teamId);
    });
    const contentType = json ? "application/json" : (encoded.headers.get("Content-Type") ?? "");
    const { status } = await team.call("POST", path, { body, headers: { "Content-Type": contentType } });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(await snapshot(team.teamId)).toEqual(before);
  });
});
