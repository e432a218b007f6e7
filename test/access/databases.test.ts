import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { outageOf, ProxiedBindings } from "../support/bindings.ts";
import { randomAddress } from "../support/client.ts";
import { ALL_DATABASES, DATABASES } from "../support/databases.ts";
import { sink, withBatch, withBindings, withDatabases } from "../support/deps.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  call,
  dataOf,
  eventsOf,
  form,
  idsIn,
  logIn,
  newKey,
  newTeam,
  newUser,
  nextOf,
  OPERATOR,
  PASSWORD,
  pagesOf,
  read,
  type Settings,
  startWorker,
  type TestWorker,
  upload,
  withoutHashing,
  withoutJobs,
} from "../support/harness.ts";
import { create, head, locationOf } from "../support/tus.ts";

/* Teams in several databases: which one a request uses, and what happens if one fails or is full. */

const TEAMS = "/auth/v1/teams";
const GIGABYTE = 1e9;
const MAX = 9 * GIGABYTE;

const asOperator = (worker: { call: TestWorker["call"] }) => ({
  call: (method: string, path: string, options = {}) => worker.call(method, path, { token: OPERATOR, ...options }),
});
const operator = asOperator({ call });

type Batch = (statements: D1PreparedStatement[], number: number) => Promise<D1Result[]>;

/** Starts a Worker whose batches go through `batch`. */
function workerWith(batch: Batch, settings: Partial<Settings> = {}): TestWorker {
  const through = (database: D1Database, number: number) =>
    withBatch(database, (statements) => batch(statements, number));
  return startWorker((given) => {
    const deps = withoutJobs(withoutHashing(given));
    return { ...withDatabases(deps, through), settings: { ...deps.settings, maxDatabaseBytes: MAX, ...settings } };
  });
}

const send: Batch = (statements, number) => (ALL_DATABASES[number] as D1Database).batch(statements);

/** A Worker whose databases have these sizes. One without a size fails. */
const workerWithSizes = (...gigabytes: (number | null)[]) =>
  workerWith(async (statements, number) => {
    const size = gigabytes[number];
    if (typeof size !== "number") throw new Error("D1_ERROR: internal error; reference = 1");
    const results = await send(statements, number);
    return results.map((result) => ({ ...result, meta: { ...result.meta, size_after: size * GIGABYTE } }));
  });

/** Starts a Worker, and counts its calls to D1. */
function countingWorker() {
  const bindings = new ProxiedBindings();
  const wrapped = bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink });
  return { bindings, ...startWorker((deps) => withBindings(withoutHashing(deps), wrapped)) };
}

/** An id or token of the same form, with the number of another database. */
const inOther = (id: string, number: number) => id.slice(0, 21) + number.toString(16).padStart(3, "0");
const UNBOUND = 999;

describe("A new team", () => {
  const created = async (worker: TestWorker, json: object = {}) => {
    const { status, body } = await asOperator(worker).call("POST", TEAMS, { json: { name: "new", ...json } });
    return status === 200 ? body.data.database : body.code;
  };

  test.each([
    ["the one with the most room", [3, 2, 1], {}, 2],
    ["the one that the operator names", [3, 2, 1], { database: 0 }, 0],
    ["one that responds", [3, null, null], {}, 0],
    ["none that is full, if it is named", [1, 9, 1], { database: 1 }, "storage_full"],
    ["none if all are full", [9, 10, 9.5], {}, "storage_full"],
    ["none if those with room may be failing", [9, null, 9], {}, "unavailable"],
    ["none that isn't bound", [1, 1, 1], { database: 3 }, "invalid_input"],
  ])("goes to %s", async (_, sizes, json, expected) => {
    expect(await created(workerWithSizes(...sizes), json)).toBe(expected);
  });

  test("has the number of its database in all of its ids and tokens", async () => {
    for (const database of ALL_DATABASES.keys()) {
      const { data, apiKey } = (await operator.call("POST", TEAMS, { json: { name: "new", database } })).body;
      const team = {
        call: (method: string, path: string, options = {}) => call(method, path, { token: apiKey.key, ...options }),
      };
      const fileId = await upload({ ...team, teamId: data._id, token: apiKey.key, keyId: apiKey.id }, "a.txt", "a");
      const key = await newKey(team);
      const user = await newUser(team);
      const [event] = await eventsOf(team);
      const link = await dataOf(team.call("POST", `/docs/v1/uploads/${fileId}/links`, { json: {} }));
      const ids = [data._id, apiKey.id, fileId, key.id, user._id, event._id, link._id];
      expect(ids.map((id) => id.slice(-3))).toEqual(ids.map(() => `00${database}`));
      for (const token of [apiKey.key, key.key]) expect(token.slice(-8, -6)).toBe(`0${database}`);
    }
  });
});

describe("The number of a database that isn't bound", () => {
  test("a token with an unbound number gets 401, and an id 404, without any query", async ({ team }) => {
    const { bindings, call } = countingWorker();
    const token = newToken(realSystem, "secret", UNBOUND);
    expect((await call("GET", "/docs/v1/usage", { token })).code).toBe("token_invalid");
    const teamId = inOther(team.teamId, UNBOUND);
    for (const path of [
      `${TEAMS}/${teamId}`,
      `/auth/v1/apikeys?teamId=${teamId}`,
      `/auth/v1/events?teamId=${teamId}`,
    ]) {
      expect((await call("GET", path, { token: OPERATOR })).code, path).toBe("not_found");
    }
    const json = { name: "x", teamId };
    expect((await call("POST", "/auth/v1/apikeys", { token: OPERATOR, json })).code).toBe("not_found");
    expect((await logIn({ call, teamId })).code).toBe("login_failed");
    const link = `/docs/v1/links/${teamId}.${"0".repeat(32)}/a.txt`;
    expect((await call("GET", link)).code).toBe("not_found");
    expect(bindings.calls).toEqual([]);
  });
});

describe("The number of another database", () => {
  test("finds nothing in a token, id, cursor, link and upload URL", async ({ team }) => {
    const number = Number.parseInt(team.teamId.slice(-3), 16);
    const other = (number + 1) % ALL_DATABASES.length;
    const moved = (id: string) => inOther(id, other);
    const ids = [await upload(team, "a.txt", "a"), await upload(team, "b.txt", "b")];
    const file = ids[0] as string;

    const made = newToken(realSystem, "secret", other);
    expect((await call("GET", "/docs/v1/usage", { token: made })).code).toBe("token_invalid");
    const paths = [`/docs/v1/uploads/${moved(file)}/metadata`, `/auth/v1/apikeys/${moved(team.keyId)}`];
    for (const path of [...paths, `${TEAMS}/${moved(team.teamId)}`]) {
      expect((await team.call("GET", path)).code, path).toBe("not_found");
    }
    for (const id of [team.teamId, team.keyId]) {
      const path = id === team.teamId ? TEAMS : "/auth/v1/apikeys";
      expect((await operator.call("GET", `${path}/${id}`)).status).toBe(200);
      expect((await operator.call("GET", `${path}/${moved(id)}`)).code).toBe("not_found");
    }
    await newUser(team);
    expect((await logIn({ call, teamId: moved(team.teamId) })).code).toBe("login_failed");

    // A cursor only says where a page begins. The rows are those of the token's team.
    const next = nextOf(await team.call("GET", "/docs/v1/uploads?limit=1")) ?? "";
    const cursor = new URL(next, "https://stowage.test").searchParams.get("cursor") ?? "";
    const page = await team.call(
      "GET",
      `/docs/v1/uploads?limit=1&cursor=${moved(cursor.slice(-24)).padStart(cursor.length, cursor)}`,
    );
    expect([page.status, idsIn(page.body.data).every((id) => ids.includes(id))]).toEqual([200, true]);

    const link = await dataOf(team.call("POST", `/docs/v1/uploads/${file}/links`, { json: {} }));
    const openable = new URL(link.url).pathname;
    expect((await call("GET", openable)).status).toBe(200);
    expect((await call("GET", openable.replace(link._id, moved(link._id)))).code).toBe("not_found");

    const location = locationOf(await create(team.call, 9));
    const id = /resumable\/([0-9a-f]{24})/.exec(location)?.[1] ?? "";
    expect((await head(team.call, location)).status).toBe(200);
    expect((await head(team.call, location.replace(id, moved(id)))).status).toBe(404);
  });
});

describe("The operator", () => {
  test("lists the teams of all databases in one order, with one cursor", async () => {
    const prefix = crypto.randomUUID();
    const ids: string[] = [];
    for (let i = 0; i < 7; i++) {
      const json = { name: `${prefix} ${"bdaécüf"[i]}`, database: i % ALL_DATABASES.length };
      ids.push((await operator.call("POST", TEAMS, { json })).body.data._id);
    }
    const list = async (query: string) => {
      const pages: { _id: string; name: string }[][] = [];
      for await (const { body } of pagesOf(operator as never, `${TEAMS}?${query}`)) {
        pages.push(body.data);
        if (pages.flat().length >= ids.length) break;
      }
      return pages;
    };
    const byName = await list(`name=${prefix}&limit=2`);
    expect(byName.map((page) => page.length)).toEqual([2, 2, 2, 1]);
    expect(byName.flat().map(({ name }) => name.at(-1))).toEqual([..."abcdféü"]);
    const newest = (await list("limit=3")).flat().slice(0, ids.length);
    expect(idsIn(newest)).toEqual(ids.toReversed());
    const second = await operator.call("GET", `${TEAMS}?limit=3&page=2`);
    expect(idsIn(second.body.data)).toEqual(ids.toReversed().slice(3, 6));
  });

  test("lists when teams of all databases were created, in one order and in both directions", async () => {
    const before = (await operator.call("GET", "/auth/v1/events?limit=1")).body.data[0];
    const ids: string[] = [];
    for (let i = 0; i < 7; i++) {
      const json = { name: "new", database: i % ALL_DATABASES.length };
      ids.push((await operator.call("POST", TEAMS, { json })).body.data._id);
    }
    const list = async (query: string) => {
      const found: { _id: string; subject: { id: string } }[] = [];
      for await (const { body } of pagesOf(operator as never, `/auth/v1/events?limit=2&${query}`)) {
        found.push(...body.data);
        if (found.length >= ids.length) break;
      }
      return found.slice(0, ids.length);
    };
    for (const filter of ["", "&type=team.created"]) {
      const after = before ? `&after=${before._id}` : "";
      const oldest = await list(`order=asc${after}${filter}`);
      expect(oldest.map(({ subject }) => subject.id).sort()).toEqual([...ids].sort());
      expect(idsIn(oldest)).toEqual(idsIn(oldest).sort());
      expect(idsIn(await list(`order=desc${filter}`))).toEqual(idsIn(oldest).reverse());
    }
    const [event] = await list("order=desc");
    const { body } = await operator.call("GET", `/auth/v1/events/${event?._id}`);
    expect(body.data).toMatchObject({ teamId: event?.subject.id, type: "team.created" });
  });

  test("is the only caller that gets the number, size and limit of each database from /health", async ({ team }) => {
    const worker = workerWithSizes(1, 9, 3);
    const { databases } = (await worker.call("GET", "/health", { token: OPERATOR })).body;
    const recoveredAt = expect.toBeOneOf([null, expect.any(String)]);
    expect(databases).toMatchObject([
      { number: 0, bytes: GIGABYTE, maxBytes: MAX, status: "ok", recoveredAt },
      { number: 1, bytes: MAX, maxBytes: MAX, status: "full", recoveredAt },
      { number: 2, bytes: 3 * GIGABYTE, maxBytes: MAX, status: "ok", recoveredAt },
    ]);
    for (const token of [undefined, team.token]) {
      expect((await worker.call("GET", "/health", { token })).body).toEqual({
        status: true,
        message: expect.any(String),
      });
    }
    const wrong = await worker.call("GET", "/health", { token: `${OPERATOR}x` });
    expect([wrong.status, wrong.code]).toEqual([401, "token_invalid"]);
  });
});

describe("While one database fails", () => {
  test("its teams get 503 and all others work, and /health says which", async () => {
    const teams = [];
    for (const number of ALL_DATABASES.keys()) teams.push(await newTeam(undefined, number));
    const worker = workerWithSizes(1, null, 1);
    const statusOf = async (token: string, path = "/docs/v1/usage") =>
      (await worker.call("GET", path, { token })).status;
    expect(await Promise.all(teams.map(({ token }) => statusOf(token)))).toEqual([200, 503, 200]);
    const uploaded = teams.map(async ({ token }) =>
      worker.call("POST", "/docs/v1/uploads", { token, body: form("a.txt", "a"), address: randomAddress() }),
    );
    expect((await Promise.all(uploaded)).map(({ status }) => status)).toEqual([200, 503, 200]);

    const health = await worker.call("GET", "/health", { token: OPERATOR });
    expect([health.status, health.body.message]).toEqual([503, "Not responding: database 1."]);
    expect(health.body.databases[1]).toMatchObject({
      number: 1,
      bytes: null,
      maxBytes: MAX,
      status: "unavailable",
      recoveredAt: null,
    });
    expect((await worker.call("GET", "/health")).body.databases).toBeUndefined();

    // Never silently short.
    const ofAll = [TEAMS, "/auth/v1/events"].map((path) => statusOf(OPERATOR, path));
    expect(await Promise.all(ofAll)).toEqual([503, 503]);
    expect(await statusOf(OPERATOR, `${TEAMS}/${teams[0]?.teamId}`)).toBe(200);
    const { body } = await worker.call("POST", TEAMS, { token: OPERATOR, json: { name: "new" } });
    expect(body.data.database).not.toBe(1);
  });

  test("a login, a link and an upload of another team take no notice", async () => {
    const [down, up] = [await newTeam(undefined, 1), await newTeam(undefined, 2)];
    await newUser(up);
    await newUser(down);
    const bindings = new ProxiedBindings(outageOf("D1"));
    const worker = startWorker((deps) =>
      withDatabases(deps, (database, number) => (number === 1 ? bindings.database(database) : database)),
    );
    expect((await logIn({ ...worker, teamId: up.teamId })).status).toBe(200);
    expect((await logIn({ ...worker, teamId: down.teamId })).status).toBe(503);
  });
});

describe("A full database", () => {
  /** D1 refuses each batch that would insert a row. */
  const full = (settings: Partial<Settings> = {}) =>
    workerWith(async (statements, number) => {
      const texts = statements.map((statement) => (statement as unknown as { statement: string }).statement);
      if (texts.some((text) => /^\s*insert/i.test(text))) throw new Error("D1_ERROR: Exceeded maximum DB size");
      return send(statements, number);
    }, settings);

  test("refuses what needs room with 507, and stores nothing of it", async ({ team }) => {
    const worker = full();
    const { token } = team;
    const kept = await upload(team, "kept.txt", "kept");
    const writes = [
      ["POST", "/docs/v1/uploads", { body: form("a.txt", "a") }],
      ["POST", "/auth/v1/apikeys", { json: { name: "key" } }],
      ["POST", "/auth/v1/users", { json: { email: "a@example.com", password: PASSWORD } }],
      ["PATCH", `/docs/v1/uploads/${kept}`, { json: { folder: "a" } }],
    ] as const;
    for (const [method, path, options] of writes) {
      const { status, code } = await worker.call(method, path, { token, ...options });
      expect([status, code], path).toEqual([507, "storage_full"]);
    }
    expect(idsIn((await read(team, "/docs/v1/uploads")) as { _id: string }[])).toEqual([kept]);
    const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/` });
    expect(objects).toHaveLength(1);
  });

  test("is read as before, except that no token is revealed without its record", async ({ team }) => {
    const worker = full();
    const { token } = team;
    const id = await upload(team, "a.txt", "a");
    const key = await newKey(team);
    for (const path of ["/docs/v1/usage", "/docs/v1/uploads", `/docs/v1/uploads/${id}`, "/auth/v1/apikeys"]) {
      expect((await worker.call("GET", path, { token })).status, path).toBe(200);
    }
    const revealed = await worker.call("GET", `/auth/v1/apikeys/${key.id}`, { token });
    expect([revealed.status, revealed.body.data.key]).toEqual([200, `${key.key.slice(0, 12)}…${key.key.slice(-4)}`]);
  });

  test("accepts every deletion, without its event", async ({ team }) => {
    const worker = full();
    const { token } = team;
    const files = [
      await upload(team, "a.txt", "a"),
      await upload(team, "b.txt", "b"),
      await upload(team, "c.txt", "c"),
    ];
    const link = await dataOf(team.call("POST", `/docs/v1/uploads/${files[2]}/links`, { json: {} }));
    const key = await newKey(team);
    const user = await newUser(team);
    const hook = await dataOf(team.call("POST", "/auth/v1/webhooks", { json: { url: "https://example.com/" } }));
    // The log adds the names of what still exists when it is read.
    const logOf = async () =>
      (await eventsOf(team)).map(({ subject: { name, ...subject }, ...event }: { subject: { name: unknown } }) => ({
        ...event,
        subject,
      }));
    const before = await logOf();
    const paths = [
      `/docs/v1/uploads/${files[0]}`,
      `/docs/v1/links/${link._id}`,
      `/auth/v1/apikeys/${key.id}`,
      `/auth/v1/users/${user._id}`,
      `/auth/v1/webhooks/${hook._id}`,
    ];
    for (const path of paths) expect((await worker.call("DELETE", path, { token })).status, path).toBe(200);
    const json = { action: "delete", ids: [files[1]] };
    const { body } = await worker.call("POST", "/docs/v1/uploads/batch", { token, json });
    expect(body.data).toEqual([{ _id: files[1], ok: true }]);
    expect(await logOf()).toEqual(before);
    expect(idsIn((await read(team, "/docs/v1/uploads")) as { _id: string }[])).toEqual([files[2]]);
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toHaveLength(1);
    expect(await read(team, "/docs/v1/usage")).toMatchObject({ files: 1, bytes: 1 });
    expect((await team.call("GET", "/auth/v1/users")).body).toEqual([]);
    expect((await asOperator(worker).call("DELETE", `${TEAMS}/${team.teamId}`)).body.data.status).toBe("deleting");
  });

  test("moves no file to the trash, but erases one, except a held one", async ({ team }) => {
    const { token } = team;
    const [id, held] = [await upload(team, "a.txt", "a"), await upload(team, "b.txt", "b")];
    await dataOf(team.call("PUT", `/docs/v1/uploads/${held}/hold`, { json: { reason: "r" } }));
    const worker = full({ trashDays: 30 });
    const remove = async (path: string) => (await worker.call("DELETE", `/docs/v1/uploads/${path}`, { token })).status;
    const json = { action: "delete", ids: [id] };
    expect(await remove(id)).toBe(507);
    expect((await worker.call("POST", "/docs/v1/uploads/batch", { token, json })).status).toBe(507);
    expect(idsIn((await read(team, "/docs/v1/uploads")) as { _id: string }[])).toEqual([held, id]);
    expect([await remove(`${id}?permanent=true`), await remove(`${held}?permanent=true`)]).toEqual([200, 409]);
    expect(idsIn((await read(team, "/docs/v1/uploads")) as { _id: string }[])).toEqual([held]);
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toHaveLength(1);
  });

  test("deletes no folder, and keeps its files", async ({ team }) => {
    const { token } = team;
    const id = await upload(team, "a.txt", "a");
    await dataOf(team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { folder: "old" } }));
    const request = { token, json: { folder: "old" } };
    const { status, code } = await full().call("POST", "/docs/v1/folders/delete", request);
    expect([status, code]).toEqual([507, "storage_full"]);
    expect(idsIn((await read(team, "/docs/v1/uploads")) as { _id: string }[])).toEqual([id]);
    expect(await read(team, "/docs/v1/folders")).toEqual(["old"]);
  });

  test("cancels an upload, which needs no room", async ({ team }) => {
    const { token } = team;
    const url = locationOf(await create(team.call, 10));
    const headers = { "Tus-Resumable": "1.0.0" };
    expect((await full().call("DELETE", url, { token, headers })).status).toBe(204);
    expect(await read(team, "/docs/v1/usage")).toMatchObject({ files: 0, bytes: 0 });
  });
});
