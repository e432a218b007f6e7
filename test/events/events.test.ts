import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import { EVENT_TYPES } from "../../src/event-types.ts";
import { eventId } from "../../src/events/events.ts";
import { listName } from "../../src/platform/paging.ts";
import { databaseOf } from "../../src/platform/system.ts";
import { MAX_DAILY_ACCOUNT_EVENTS, MAX_DAILY_USER_EVENTS } from "../../src/rate-limits.ts";
import { sample } from "../audio/samples.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  call,
  dataOf,
  eventsOf,
  fieldsOf,
  idsIn,
  logIn,
  metadataOf,
  newKey,
  newMember,
  newTeam,
  newUser,
  OPERATOR,
  PASSWORD,
  read,
  readPages,
  rejected,
  startWorker,
  type Team,
  upload,
} from "../support/harness.ts";
import { insertMany } from "../support/rows.ts";
import { DAY } from "../support/time.ts";
import { must, World } from "../support/world.ts";

/* The event log: every change of a team, once, in commit order. */

interface Event {
  _id: string;
  type: string;
  teamId: string;
  createdAt: string;
  actor: { kind: string; keyId: string | null; userId: string | null; name: string | null; requestId: string | null };
  subject: { kind: string; id: string; version: number | null; name: string | null };
  data: Record<string, unknown>;
}

const readLog = (team: Pick<Team, "call">, query?: string): Promise<Event[]> => eventsOf(team, query);
const typesOf = (events: Event[]) => events.map(({ type }) => type);
/** Runs `act`, and returns its result and the events that it recorded. */
async function recording<T>(team: Team, act: () => Promise<T>): Promise<{ result: T; events: Event[] }> {
  const last = (await readLog(team)).at(-1)?._id ?? "";
  const result = await act();
  return { result, events: await readLog(team, `after=${last}`) };
}
const only = (events: Event[]): Event => {
  const [event, ...others] = events;
  if (!event || others.length > 0) throw new Error(`Events: ${typesOf(events).join()}.`);
  return event;
};

describe("The account events of a day", () => {
  const [OF_TEAM, OF_USER] = [DAY / MAX_DAILY_ACCOUNT_EVENTS, DAY / MAX_DAILY_USER_EVENTS];
  /** Leaves this number of account events of the day, or of the half that is not only for logins. */
  const leave = (table: "teams" | "users", id: string, events: number, now: number, ofDay = DAY) =>
    DB.prepare(`update ${table} set account_events_until = ? where id = ?`)
      .bind(now + ofDay - events * (table === "teams" ? OF_TEAM : OF_USER), id)
      .run();
  const clocked = () => {
    const clock = { now: Date.now() };
    const worker = startWorker((deps) => ({ ...deps, system: { ...deps.system, now: () => clock.now } }));
    return { clock, worker };
  };
  const newJson = () => ({ json: { email: `${crypto.randomUUID()}@example.com` } });

  test("are limited for a team: a change above the limit is 429 and changes nothing, until time has passed", async () => {
    const team = await newTeam();
    const [{ _id }, key] = [await newUser(team), await newKey(team)];
    const { clock, worker } = clocked();
    const create = () => worker.call("POST", "/auth/v1/users", { token: team.token, ...newJson() });
    await leave("teams", team.teamId, 2, clock.now, DAY / 2);
    for (let i = 0; i < 2; i++) expect((await create()).status).toBe(200);
    const refused = await rejected(team, 429, "rate_limited", create);
    expect(refused.headers.get("Retry-After")).toBe("44");
    for (const [method, path, json] of [
      ["GET", `/auth/v1/apikeys/${key.id}`],
      ["POST", `/auth/v1/apikeys/${key.id}/rotate`, {}],
      ["POST", "/auth/v1/sessions", {}],
      ["PATCH", `/auth/v1/users/${_id}`, { firstName: "Ada" }],
      ["PUT", "/docs/v1/retention", { days: 30 }],
    ] as const) {
      const answer = await worker.call(method, path, { token: team.token, ...(json && { json }) });
      expect(answer.code, path).toBe("rate_limited");
    }
    expect(await upload(team, "a.txt", "a")).toMatch(/^[0-9a-f]{24}$/);
    for (const path of [`/auth/v1/users/${_id}`, `/auth/v1/apikeys/${key.id}`]) {
      expect((await worker.call("DELETE", path, { token: team.token })).status, path).toBe(200);
    }
    const rename = { token: OPERATOR, json: { name: "Radio" } };
    expect((await worker.call("PATCH", `/auth/v1/teams/${team.teamId}`, rename)).status).toBe(200);
    clock.now += OF_TEAM;
    expect((await create()).status).toBe(200);
    expect((await create()).code).toBe("rate_limited");
  });

  test("are limited for a user, who leaves the others of the team theirs", async () => {
    const team = await newTeam();
    const email = "grace@example.com";
    const [{ _id }] = [await newUser(team, { role: "viewer" }), await newUser(team, { email })];
    const { clock, worker } = clocked();
    const enter = (fields = {}) => {
      const json = { teamId: team.teamId, email: "ada@example.com", password: PASSWORD, ...fields };
      return worker.call("POST", "/auth/v1/login", { json });
    };
    await leave("users", _id, 1, clock.now);
    const { key: token } = await dataOf(enter());
    const refused = await rejected(team, 429, "rate_limited", enter);
    expect(refused.headers.get("Retry-After")).toBe("44");
    expect((await enter({ password: "wrong" })).code).toBe("login_failed");
    expect((await enter({ email })).status).toBe(200);
    expect((await worker.call("POST", "/auth/v1/logout", { token })).status).toBe(200);
    clock.now += OF_USER;
    expect((await enter()).status).toBe(200);
  });

  test("of keys leave half of the day to logins, so that no key locks its user or the team out", async () => {
    const team = await newTeam();
    const [user, narrow] = [await newUser(team, { role: "admin" }), await newKey(team, { scopes: ["files:upload"] })];
    const { clock, worker } = clocked();
    const open = () => worker.call("POST", "/auth/v1/sessions", { token: narrow.key, json: {} });
    await leave("teams", team.teamId, 1, clock.now, DAY / 2);
    await leave("users", user._id, 0, clock.now, DAY / 2);
    expect((await open()).status).toBe(200);
    expect((await open()).code).toBe("rate_limited");
    const json = { teamId: team.teamId, email: "ada@example.com", password: PASSWORD };
    expect((await worker.call("POST", "/auth/v1/login", { json })).status).toBe(200);
  });

  const ofAccounts = EVENT_TYPES.filter(({ kind }) => !kind.isCounted);
  test.each(ofAccounts)("count $name, unless it ends something or is the operator's", async ({ name, isDaily }) => {
    const team = await newTeam();
    const now = Date.now();
    await leave("teams", team.teamId, 0, now);
    const insert = DB.prepare(
      `insert into events (team_id, seq, type, created_at, actor, subject_id, data, position)
         values (?1, 9e15, ?2, ?3, '{"kind":"secret"}', ?1, '{}', 1)`,
    ).bind(team.teamId, name, now);
    const isRefused = await insert.run().then(
      () => false,
      (error) => String(error).includes("Too many account events."),
    );
    expect(isRefused).toBe(isDaily === true);
  });
});

describe("The events of links", () => {
  test("name the link and its file, also for webhooks, and an end with the file has none", async () => {
    const team = await newTeam();
    const fileId = await upload(team, "a.txt", "a");
    const { token, id: userId } = await newMember(team, "viewer");
    const create = () => dataOf(call("POST", `/docs/v1/uploads/${fileId}/links`, { token, json: {} }));
    const created = await recording(team, create);
    const { _id: id } = created.result;
    const actor = { kind: "session", userId };
    const link = { subject: { kind: "link", id, version: null }, data: { _id: id, fileId } };
    expect(only(created.events)).toMatchObject({ type: "link.created", actor, ...link });

    const revoke = () => team.call("DELETE", `/docs/v1/links/${id}`);
    const revoked = await recording(team, revoke);
    expect(only(revoked.events)).toMatchObject({ type: "link.revoked", actor: { keyId: team.keyId }, ...link });
    expect((await recording(team, revoke)).events).toEqual([]);

    const { _id: own } = await create();
    const { key: download } = await newKey(team, { scopes: ["files:download"] });
    const refuse = () => call("DELETE", `/docs/v1/links/${own}`, { token: download });
    const refused = await recording(team, refuse);
    expect([refused.result.status, refused.events]).toEqual([403, []]);
    const deleted = await recording(team, () => team.call("DELETE", `/docs/v1/uploads/${fileId}`));
    expect(typesOf(deleted.events)).toEqual(["file.deleted"]);
    const types = ["link.created", "link.revoked"];
    const hook = { url: "https://hooks.canary.example/", types };
    expect((await dataOf(team.call("POST", "/auth/v1/webhooks", { json: hook }))).types).toEqual(types);
  });
});

test("the events of a deleted key lead to its links, which outlive it, so that they can be revoked", async ({
  team,
}) => {
  const fileId = await upload(team, "a.txt", "a");
  const leaked = await newKey(team, { scopes: ["files:download"] });
  const { url } = await dataOf(call("POST", `/docs/v1/uploads/${fileId}/links`, { token: leaked.key, json: {} }));
  const open = async () => (await call("GET", new URL(url).pathname)).status;
  await dataOf(team.call("DELETE", `/auth/v1/apikeys/${leaked._id}`));
  expect(await open()).toBe(200);
  const byLeaked = (await readLog(team)).filter(({ actor }) => actor.keyId === leaked._id);
  expect(typesOf(byLeaked)).toEqual(["link.created"]);
  await dataOf(team.call("DELETE", `/docs/v1/links/${only(byLeaked).subject.id}`));
  expect(await open()).toBe(404);
});

describe("The event log", () => {
  test("starts with the creation of the team and its first key", async () => {
    const team = await newTeam();
    const [founding, event] = await readLog(team);
    expect(founding).toMatchObject({ type: "team.created", subject: { kind: "team", id: team.teamId, version: null } });
    expect(event).toMatchObject({
      teamId: team.teamId,
      type: "apikey.created",
      actor: { kind: "operator", keyId: null, userId: null, requestId: expect.stringMatching(/^[0-9a-f-]{36}$/) },
      subject: { kind: "apikey", id: team.keyId, version: null },
      data: { _id: team.keyId },
    });
    expect(fieldsOf(event ?? {})).toEqual(["_id", "actor", "createdAt", "data", "subject", "teamId", "type"]);
  });

  test("records the creation and revocation of a key, also by the operator", async ({ team }) => {
    const created = await recording(team, () => newKey(team));
    const { id } = created.result;
    const actor = { kind: "secret", keyId: team.keyId };
    expect(only(created.events)).toMatchObject({
      type: "apikey.created",
      subject: { id, version: null },
      data: { _id: id },
      actor,
    });
    const revoke = () => call("DELETE", `/auth/v1/apikeys/${id}`, { token: OPERATOR });
    const revoked = await recording(team, revoke);
    expect(only(revoked.events)).toMatchObject({
      type: "apikey.revoked",
      subject: { id },
      actor: { kind: "operator" },
    });
    expect(await recording(team, revoke)).toMatchObject({ result: { status: 404 }, events: [] });
  });

  test("records the life of a user, and names the user as the actor of their calls", async ({ team }) => {
    const email = `${crypto.randomUUID()}@example.com`;
    const created = await recording(team, () => newUser(team, { email, role: "admin" }));
    const user = created.result._id;
    expect(only(created.events)).toMatchObject({ type: "user.created", subject: { id: user, version: 0 } });

    const json = { firstName: "Ada", email: `new.${email}` };
    const updated = await recording(team, () => team.call("PATCH", `/auth/v1/users/${user}`, { json }));
    expect(only(updated.events)).toMatchObject({
      type: "user.updated",
      subject: { kind: "user", id: user, version: 1 },
      data: { _id: user, fields: ["firstName", "email"] },
    });

    const login = await recording(team, () => dataOf(logIn(team, json.email)));
    const { id: keyId, key: token } = login.result;
    expect(only(login.events)).toMatchObject({
      type: "user.logged_in",
      subject: { kind: "user", id: user },
      actor: { kind: "user", keyId, userId: user },
      data: { _id: user, keyId },
    });
    const byUser = await recording(team, () => call("POST", "/auth/v1/apikeys", { token, json: { name: "theirs" } }));
    expect(only(byUser.events).actor).toMatchObject({ kind: "session", keyId, userId: user });

    const deleted = await recording(team, () => team.call("DELETE", `/auth/v1/users/${user}`));
    expect(only(deleted.events)).toMatchObject({
      type: "user.deleted",
      subject: { id: user, version: 1 },
      data: { _id: user, revokedKeyIds: [byUser.result.body.data.id] },
    });
  });

  test("records no rejected change", async ({ team }) => {
    const user = await newUser(team);
    const options = { json: { firstName: "Ada" }, headers: { "If-Match": '"7"' } };
    const path = `/auth/v1/users/${user._id}`;
    const twin = { email: user.email, password: PASSWORD };
    // This also compares the events.
    await rejected(team, 412, "version_mismatch", () => team.call("PATCH", path, options));
    await rejected(team, 409, "email_taken", () => team.call("POST", "/auth/v1/users", { json: twin }));
    await rejected(team, 401, "login_failed", () => logIn(team, user.email, "not the password"));
    await rejected(team, 404, "not_found", () => team.call("DELETE", `/docs/v1/uploads/${"0".repeat(24)}`));
  });
});

describe("The name of an actor", () => {
  /** The name in a list, which is also that of the single event, and of a filtered list. */
  const nameIn = async (team: Team, type: string) => {
    const { _id, actor } = only(await readLog(team, `type=${type}`));
    expect((await read(team, `/auth/v1/events/${_id}`)).actor).toEqual(actor);
    expect((await readLog(team)).find((event) => event._id === _id)?.actor).toEqual(actor);
    return actor.name;
  };

  test("is that of the user as it is when the event is read, and null once the user is deleted", async ({ team }) => {
    const member = await newMember(team, "admin");
    const user = `/auth/v1/users/${member.id}`;
    await dataOf(team.call("PATCH", user, { json: { firstName: "Ada", lastName: "Lovelace" } }));
    const json = { url: "https://hooks.canary.example/" };
    await dataOf(call("POST", "/auth/v1/webhooks", { token: member.token, json }));
    expect(await nameIn(team, "webhook.created")).toBe("Ada Lovelace");
    await dataOf(team.call("PATCH", user, { json: { lastName: "King" } }));
    expect(await nameIn(team, "webhook.created")).toBe("Ada King");
    expect((await team.call("DELETE", user)).status).toBe(200);
    expect(await nameIn(team, "webhook.created")).toBeNull();
  });

  test("is that of a key without a user, also for its session, and null once it is deleted, or for the operator", async ({
    team,
  }) => {
    const key = await newKey(team, { name: "CI" });
    const create = (token: string, path: string, json: object) => dataOf(call("POST", path, { token, json }));
    await create(key.key, "/auth/v1/webhooks", { url: "https://hooks.canary.example/" });
    expect(await nameIn(team, "webhook.created")).toBe("CI");
    const { key: session } = await create(key.key, "/auth/v1/sessions", {});
    await create(session, "/auth/v1/users", { email: "ada@example.com", password: PASSWORD });
    expect(await nameIn(team, "user.created")).toBe("CI");
    await dataOf(team.call("PATCH", `/auth/v1/apikeys/${key.id}`, { json: { name: "Old CI" } }));
    expect(await nameIn(team, "webhook.created")).toBe("Old CI");
    await dataOf(team.call("DELETE", `/auth/v1/apikeys/${key.id}`));
    for (const type of ["webhook.created", "team.created"]) expect(await nameIn(team, type)).toBeNull();
  });

  test("is null for a user or key of another team", async ({ team }) => {
    const other = await newTeam(undefined, databaseOf(team.teamId));
    await newKey(other);
    await DB.prepare("update events set actor = json_set(actor, '$.keyId', ?) where team_id = ?")
      .bind(team.keyId, other.teamId)
      .run();
    for (const { actor } of await readLog(other)) expect(actor).toMatchObject({ keyId: team.keyId, name: null });
  });
});

describe("The name of a subject", () => {
  /** The names of the subjects of a type, which are also those of the single events. */
  const namesIn = async (team: Pick<Team, "call">, type: string) => {
    const events = await readLog(team, `type=${type}`);
    for (const { _id, subject } of events)
      expect((await read(team, `/auth/v1/events/${_id}`)).subject).toEqual(subject);
    const ids = new Set(idsIn(events));
    expect((await readLog(team)).filter(({ _id }) => ids.has(_id))).toEqual(events);
    return events.map(({ subject }) => subject.name);
  };
  const URL_WITH_SECRET = "https://hooks.canary.example/secret-path?token=secret-query";

  test("is that of the user, key, team, or file as it is when the event is read, and null once the record is deleted", async ({
    team,
  }) => {
    const { _id: user } = await newUser(team, { firstName: "Ada", lastName: "Lovelace" });
    const { id: key } = await newKey(team, { name: "CI" });
    const file = await upload(team, "note.txt", "hello");
    const [ofUser, ofKey, ofFile] = [`/auth/v1/users/${user}`, `/auth/v1/apikeys/${key}`, `/docs/v1/uploads/${file}`];
    const names = async () => [
      await namesIn(team, "user.created"),
      (await namesIn(team, "apikey.created")).slice(1),
      await namesIn(team, "file.uploaded"),
      await namesIn(team, "team.created"),
    ];
    const { name: ofTeam } = await read(team, `/auth/v1/teams/${team.teamId}`);
    expect(await names()).toEqual([["Ada Lovelace"], ["CI"], ["note.txt"], [ofTeam]]);

    await dataOf(team.call("PATCH", ofUser, { json: { lastName: "King" } }));
    await dataOf(team.call("PATCH", ofKey, { json: { name: "Old CI" } }));
    await dataOf(team.call("PATCH", ofFile, { json: { name: "final.txt" } }));
    const rename = { token: OPERATOR, json: { name: "Radio" } };
    expect((await call("PATCH", `/auth/v1/teams/${team.teamId}`, rename)).status).toBe(200);
    expect(await names()).toEqual([["Ada King"], ["Old CI"], ["final.txt"], ["Radio"]]);

    for (const path of [ofUser, ofKey, ofFile]) expect((await team.call("DELETE", path)).status).toBe(200);
    // Only the event of a file states a name.
    expect(await names()).toEqual([[null], [null], ["note.txt"], ["Radio"]]);
    expect(await namesIn(team, "file.deleted")).toEqual(["note.txt"]);
  });

  test("is null for a user without a name, whose email it does not show", async ({ team }) => {
    await newUser(team);
    expect(await namesIn(team, "user.created")).toEqual([null]);
  });

  test("is the description of a webhook, or its host, without the path and the query of its URL", async ({ team }) => {
    const { _id } = await dataOf(team.call("POST", "/auth/v1/webhooks", { json: { url: URL_WITH_SECRET } }));
    const bare = { url: "https://bare.canary.example" };
    await dataOf(team.call("POST", "/auth/v1/webhooks", { json: bare }));
    expect(await namesIn(team, "webhook")).toEqual(["hooks.canary.example", "bare.canary.example"]);
    const { text } = await team.call("GET", "/auth/v1/events");
    expect(text).not.toContain("secret-");
    await dataOf(team.call("PATCH", `/auth/v1/webhooks/${_id}`, { json: { description: "Search index" } }));
    expect(await namesIn(team, "webhook.created")).toEqual(["Search index", "bare.canary.example"]);
    await dataOf(team.call("DELETE", `/auth/v1/webhooks/${_id}`));
    expect(await namesIn(team, "webhook.deleted")).toEqual([null]);
  });

  test("is that of a session's key or user, and of a link its own or its file's", async ({ team }) => {
    const key = await newKey(team, { name: "CI" });
    const session = await dataOf(call("POST", "/auth/v1/sessions", { token: key.key, json: {} }));
    const admin = await newMember(team, "admin");
    await dataOf(team.call("PATCH", `/auth/v1/users/${admin.id}`, { json: { firstName: "Ada" } }));
    const own = await newKey({
      ...team,
      call: (method, path, options) => call(method, path, { ...options, token: admin.token }),
    });
    await dataOf(call("POST", "/auth/v1/sessions", { token: own.key, json: {} }));
    expect(await namesIn(team, "session.created")).toEqual(["CI", "Ada"]);
    expect((await team.call("DELETE", `/auth/v1/sessions/${session.id}`)).status).toBe(200);
    expect(await namesIn(team, "session")).toEqual([null, "Ada", null]);

    const file = await upload(team, "note.txt", "hello");
    const share = (json: object) => dataOf(team.call("POST", `/docs/v1/uploads/${file}/links`, { json }));
    const [{ _id }] = [await share({}), await share({ name: "For the press" })];
    expect(await namesIn(team, "link.created")).toEqual(["note.txt", "For the press"]);
    expect((await team.call("DELETE", `/docs/v1/links/${_id}`)).status).toBe(200);
    expect(await namesIn(team, "link")).toEqual([null, "For the press", null]);
  });

  test("of a file, a link, a team, or a webhook needs the scope that shows it elsewhere, and others need only `events:read`", async ({
    team,
  }) => {
    const file = await upload(team, "note.txt", "hello");
    await dataOf(team.call("PATCH", `/docs/v1/uploads/${file}`, { json: { name: "final.txt" } }));
    await dataOf(team.call("POST", `/docs/v1/uploads/${file}/links`, { json: { name: "For the press" } }));
    await dataOf(team.call("POST", "/auth/v1/webhooks", { json: { url: URL_WITH_SECRET } }));
    await newUser(team, { firstName: "Ada" });
    await dataOf(team.call("POST", "/auth/v1/sessions", { json: {} }));
    const { name: ofTeam } = await read(team, `/auth/v1/teams/${team.teamId}`);
    const types = [
      "team.created",
      "file.uploaded",
      "link.created",
      "webhook.created",
      "user.created",
      "session.created",
    ];
    const namesFor = async (scopes: string[]) => {
      const { key: token } = await newKey(team, { scopes: ["events:read", ...scopes] });
      const caller: Pick<Team, "call"> = { call: (method, path, options) => call(method, path, { ...options, token }) };
      const found = [];
      for (const type of types) found.push(...(await namesIn(caller, type)));
      return found;
    };
    const own = ["Ada", "First key"];
    expect(await namesFor([])).toEqual([null, "note.txt", null, null, ...own]);
    expect(await namesFor(["files:read"])).toEqual([ofTeam, "final.txt", null, null, ...own]);
    expect(await namesFor(["files:download"])).toEqual([null, "note.txt", "For the press", null, ...own]);
    expect(await namesFor(["webhooks:read"])).toEqual([null, "note.txt", null, "hooks.canary.example", ...own]);
    // The operator reads no files of a team.
    const byOperator = await call("GET", `/auth/v1/events?order=asc&teamId=${team.teamId}`, { token: OPERATOR });
    const named = (byOperator.body.data as Event[]).filter(({ type }) => types.includes(type));
    expect(named.map(({ subject }) => subject.name)).toEqual([ofTeam, "note.txt", null, null, ...own]);
  });

  test("is null for a record of another team", async ({ team }) => {
    const other = await newTeam(undefined, databaseOf(team.teamId));
    const ids = {
      file: await upload(team, "note.txt", "hello"),
      user: (await newUser(team, { firstName: "Ada" }))._id,
      apikey: team.keyId,
      session: (await dataOf(team.call("POST", "/auth/v1/sessions", { json: {} }))).id,
      webhook: (await dataOf(team.call("POST", "/auth/v1/webhooks", { json: { url: URL_WITH_SECRET } })))._id,
      link: "",
    };
    ids.link = (await dataOf(team.call("POST", `/docs/v1/uploads/${ids.file}/links`, { json: {} })))._id;
    for (const [i, [kind, id]] of Object.entries(ids).entries()) {
      const type = kind === "file" ? "file.uploaded" : `${kind}.created`;
      const actor = '{"kind":"system","keyId":null,"userId":null,"requestId":null}';
      await DB.prepare("insert into events values (?1, 9e15 + ?2, ?3, 1, ?4, ?5, null, '{}', 1)")
        .bind(other.teamId, i, type, actor, id)
        .run();
    }
    const foreign = (await readLog(other)).slice(-6);
    expect(foreign.map(({ subject }) => subject)).toEqual(
      Object.entries(ids).map(([kind, id]) => ({ kind, id, version: null, name: null })),
    );
  });
});

describe("The events of a file", () => {
  test("contain the file's metadata at each step of its life", async () => {
    const world = new World();
    const team = await world.newTeam();
    const id = await world.store(team, "tone.mp3", sample("tone-cbr.mp3").bytes);
    await world.drain();
    await world.call("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token });
    await world.drain();
    const metadata = await metadataOf(team, id);
    await world.call("DELETE", `/docs/v1/uploads/${id}`, { token: team.token });
    await world.call("DELETE", `/docs/v1/uploads/${id}`, { token: team.token });

    const events = (await readLog(team)).slice(2);
    const steps = ["uploaded", "completed", "reprocessed", "completed", "deleted"];
    expect(typesOf(events)).toEqual(steps.map((step) => `file.${step}`));
    const [uploaded, , , completed, deleted] = events;
    expect(uploaded?.data).toMatchObject({ _id: id, status: "pending", audio: null, size: metadata.size, __v: 1 });
    expect(uploaded?.actor).toMatchObject({ kind: "secret", keyId: team.keyId });
    expect(completed?.actor).toEqual({ kind: "system", keyId: null, userId: null, name: null, requestId: null });
    expect(completed?.subject).toEqual({ kind: "file", id, version: metadata.__v, name: "tone.mp3" });
    const { path: _, hasWaveform: __, transcript: _____, hasTranscript, uploadTokenId, audio, ...all } = metadata;
    // The only property that the team sets and the event contains is the reference.
    const { name, folder, tags, title, artist, peaks, deleteAfter, hold, metadata: ____, uploadedBy, ...known } = all;
    const { name: uploader, ...ids } = uploadedBy;
    const shown = { ...known, uploadedBy: ids };
    expect(uploader).toBe("First key");
    expect([name, folder, tags, title, artist, peaks]).toEqual(["tone.mp3", "", [], null, null, null]);
    expect([deleteAfter, hold, uploadTokenId, hasTranscript]).toEqual([null, null, null, false]);
    const { tags: ___, ...described } = audio;
    expect(completed?.data).toEqual({ ...shown, audio: described });
    expect(deleted?.data).toEqual(completed?.data);
  });

  test("contain the reason of a failure", async () => {
    const world = new World();
    const team = await world.newTeam();
    await world.store(team, "broken.m4a", sample("tone.m4a").bytes.slice(0, 600));
    await world.drain();
    const failed = (await readLog(team)).at(-1);
    expect(failed).toMatchObject({
      type: "file.failed",
      data: { status: "failed", failure: { code: "audio_unreadable", message: expect.any(String) } },
    });
  });

  test("omit an interrupted upload", async ({ team }) => {
    const body = "--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nhalf";
    const headers = { "Content-Type": "multipart/form-data; boundary=b" };
    await rejected(team, 400, "malformed_multipart", () => team.call("POST", "/docs/v1/uploads", { body, headers }));
  });
});

describe("Reading the event log", () => {
  test("returns pages in both orders, linked by `Link`", async ({ team }) => {
    for (let i = 0; i < 7; i++) await newKey(team);
    const all = await readLog(team);
    expect(await read(team, "/auth/v1/events?limit=100")).toEqual(all.toReversed());
    for (const order of ["asc", "desc"]) {
      const pages = await readPages(team, `/auth/v1/events?order=${order}&limit=3`);
      expect(pages.map(({ length }) => length)).toEqual([3, 3, 3]);
      expect(pages.flat()).toEqual(order === "asc" ? all : all.toReversed());
    }
  });

  test("filters by type, by subject, and between two events, in both orders", async ({ team }) => {
    for (let i = 0; i < 4; i++) await newUser(team, { email: `${i}@example.com` });
    await upload(team, "note.txt", "hello");
    const all = await readLog(team);
    const users = all.filter(({ type }) => type === "user.created");
    expect(await readLog(team, "type=user.created")).toEqual(users);
    const between = `after=${users[0]?._id}&before=${users[3]?._id}`;
    expect(await readLog(team, between)).toEqual(users.slice(1, 3));
    expect(await read(team, `/auth/v1/events?${between}`)).toEqual(users.slice(1, 3).toReversed());
    expect(await readLog(team, "type=webhook.disabled")).toEqual([]);
    const [file] = all.filter(({ type }) => type === "file.uploaded");
    expect(await readLog(team, `subject=${users[2]?.subject.id}`)).toEqual([users[2]]);
    expect(await readLog(team, `subject=${file?.subject.id}&type=user.created`)).toEqual([]);
    expect(await readLog(await newTeam(), `subject=${file?.subject.id}`)).toEqual([]);
  });

  test("filters by kind, by actor, and by time", async ({ team }) => {
    const other = await newKey(team);
    const { token, id: userId } = await newMember(team, "admin");
    const own = await newKey({ ...team, call: (method, path, options) => call(method, path, { ...options, token }) });
    await newUser(team);
    const all = await readLog(team);
    const expectSame = async (query: string, isMatch: (event: Event) => boolean) => {
      const expected = all.filter(isMatch);
      expect([query, expected.length > 0, await readLog(team, query)]).toEqual([query, true, expected]);
    };
    await expectSame("type=user", ({ type }) => type.startsWith("user."));
    await expectSame(`actor=${team.keyId}`, ({ actor }) => actor.keyId === team.keyId);
    await expectSame(`actor=${userId}`, ({ actor }) => actor.userId === userId);
    await expectSame(`actor=${userId}&type=apikey`, ({ subject }) => subject.id === own._id);
    expect(await readLog(team, `actor=${other._id}`)).toEqual([]);
    const middle = all.find(({ subject }) => subject.id === own._id)?.createdAt ?? "";
    await expectSame(`createdAfter=${middle}`, ({ createdAt }) => createdAt > middle);
    await expectSame(`createdBefore=${middle}`, ({ createdAt }) => createdAt < middle);
  });

  test("returns every event exactly once to a client that follows by the last id during concurrent writes", async () => {
    const team = await newTeam();
    const seen: Event[] = [];
    let isDone = false;
    const follow = async () => {
      let last = "0".repeat(24);
      for (let wasDone = false; ; ) {
        const page: Event[] = await read(team, `/auth/v1/events?order=asc&limit=7&after=${last}`);
        seen.push(...page);
        last = page.at(-1)?._id ?? last;
        if (page.length === 0 && wasDone) return;
        if (page.length === 0) wasDone = isDone;
      }
    };
    const write = async () => {
      await Promise.all(Array.from({ length: 60 }, () => newKey(team)));
      isDone = true;
    };
    await Promise.all([follow(), write()]);
    const ids = idsIn(seen);
    expect(ids).toHaveLength(62);
    expect(ids).toEqual([...new Set(ids)].sort());
  });

  test("finds rare types behind many other events, in pages that may be short", async ({ team }) => {
    const type = "case when i in (3, 499, 500, 998, 999, 1500) then 'user.deleted' else 'file.uploaded' end";
    const actor = JSON.stringify({ kind: "system", keyId: null, userId: null, requestId: null });
    const insert = `insert into events select ?2, i, ${type}, 1, ?3, ?2, 0, '{}', i from n`;
    await insertMany(1600, insert, team.teamId, actor);
    const all = [3, 499, 500, 998, 999, 1500].map((seq) => eventId(team.teamId, seq));
    for (const order of ["asc", "desc"]) {
      for (const limit of [1, 2, 3, 100]) {
        const pages = await readPages(team, `/auth/v1/events?type=user.deleted&order=${order}&limit=${limit}`);
        expect(Math.max(...pages.map(({ length }) => length))).toBeLessThanOrEqual(limit);
        expect(idsIn(pages.flat()), `${order}, ${limit}`).toEqual(order === "asc" ? all : all.toReversed());
      }
    }
  });

  test("returns one event by its id", async () => {
    const team = await newTeam();
    const [event] = await readLog(team);
    const { body } = await team.call("GET", `/auth/v1/events/${event?._id}`);
    expect(body).toEqual({ message: "Event found.", data: event });
  });

  test("takes a team only from the operator", async () => {
    const team = await newTeam();
    const events = await readLog(team);
    const [event] = events;
    const asked = (query: string) => call("GET", `/auth/v1/events${query}`, { token: OPERATOR });
    expect((await asked(`?order=asc&teamId=${team.teamId}`)).body.data).toEqual(events);
    expect((await asked(`/${event?._id}?teamId=${team.teamId}`)).body.data).toEqual(event);
    expect((await asked(`/${event?._id}`)).code).toBe("not_found");
    const own = await team.call("GET", `/auth/v1/events?teamId=${team.teamId}`);
    expect([own.status, own.code]).toEqual([403, "forbidden"]);
  });

  test.each([
    ["order", "newest"],
    ["type", "user.exploded"],
    ["after", "nonsense"],
    ["before", "0193477BE8A01F9C3AD5E7B2"],
    ["limit", "0"],
    ["cursor", `${listName("events", { order: "asc" })}-0193477be8a01f9c3ad5e7b2`],
    ["teamId", "x"],
  ])("rejects an invalid %s", async (name, value) => {
    const team = await newTeam();
    await rejected(team, 400, "invalid_input", () => team.call("GET", `/auth/v1/events?${name}=${value}`), [name]);
  });
});

describe("The operator's log", () => {
  test("has the creation and deletion of a team with their initiator, also once the team is gone", async () => {
    const world = new World();
    const { teamId } = await world.newTeam();
    const asked = async (query: string) => {
      const path = `/auth/v1/events?subject=${teamId}&order=asc${query}`;
      const { status, body } = await world.call("GET", path, { token: OPERATOR });
      expect(status).toBe(200);
      return body.data as Event[];
    };
    const before = ["team.created"];
    for (const query of ["", `&teamId=${teamId}`]) expect(typesOf(await asked(query))).toEqual(before);
    // Repeating the deletion records nothing more.
    for (let i = 0; i < 2; i++) await world.call("DELETE", `/auth/v1/teams/${teamId}`, { token: OPERATOR });
    const whole = ["team.created", "team.deleted"];
    for (const query of ["", `&teamId=${teamId}`]) expect(typesOf(await asked(query))).toEqual(whole);
    for (const event of await asked("")) {
      expect(event).toMatchObject({ teamId, subject: { kind: "team", id: teamId }, actor: { kind: "operator" } });
      const { body } = await world.call("GET", `/auth/v1/events/${event._id}`, { token: OPERATOR });
      expect(body.data).toEqual(event);
    }
    world.aheadMilliseconds += 60 * 60 * 1000;
    await must(world.recover());
    expect((await world.call("GET", `/auth/v1/teams/${teamId}`, { token: OPERATOR })).status).toBe(404);
    expect(await asked(`&teamId=${teamId}`)).toEqual([]);
    expect(typesOf(await asked(""))).toEqual(whole);
  });
});

describe("A stored event", () => {
  test("contains no personal data, token or hash, also after the user is deleted", async ({ team }) => {
    const email = `${crypto.randomUUID()}@example.com`;
    const user = await newUser(team, { email, firstName: "Augusta Ada", lastName: "King-Noel" });
    const { key } = await dataOf(logIn(team, email));
    const path = `/auth/v1/users/${user._id}`;
    await team.call("PATCH", path, { json: { lastname: "Lovelace", password: `${PASSWORD}!` } });
    await team.call("DELETE", path);
    const { results } = await DB.prepare("select * from events where team_id = ?").bind(team.teamId).all();
    expect(results.length).toBe(6);
    const kept = JSON.stringify(results);
    for (const secret of [email, "Augusta", "King-Noel", "Lovelace", PASSWORD, user.password, key, team.token]) {
      expect(kept).not.toContain(secret);
    }
  });

  test("is purged once it is older than EVENT_DAYS, and not earlier, in every team", async () => {
    const world = new World();
    const teams = await Promise.all([world.newTeam(), world.newTeam(), world.newTeam()]);
    world.aheadMilliseconds += 1000;
    for (const { token } of teams) await world.call("POST", "/auth/v1/apikeys", { token, json: { name: "later" } });
    world.aheadMilliseconds += Number(env.EVENT_DAYS) * 24 * 60 * 60 * 1000 - 1000;
    await must(world.recover());
    for (const team of teams) expect(await readLog(team)).toHaveLength(3);
    world.aheadMilliseconds += 1;
    await must(world.recover());
    for (const team of teams) expect(typesOf(await readLog(team))).toEqual(["apikey.created"]);
    world.aheadMilliseconds += 1000;
    await must(world.recover());
    for (const team of teams) expect(await readLog(team)).toEqual([]);
  });

  test("has a larger id than the one before, even if the clock stops or goes back", async () => {
    const world = new World();
    const team = await world.newTeam();
    const make = () => world.call("POST", "/auth/v1/apikeys", { token: team.token, json: { name: "key" } });
    await make();
    await make();
    world.aheadMilliseconds -= 60_000;
    await make();
    const ids = idsIn(await readLog(team));
    expect(ids).toEqual([...new Set(ids)].sort());
    expect(ids).toHaveLength(5);
  });

  test("has an id of 24 hex digits: its number and the end of its team's id", () => {
    expect(eventId("0193477be89f4d2e6b8a0c13", 1_795_295_034_321_000)).toBe("0660cfb2c9a8682e6b8a0c13");
  });
});
