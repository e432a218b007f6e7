import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import { SCOPES } from "../../src/access/scopes.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { DATABASES, DB } from "../support/databases.ts";
import { beforeWrite, losingResponses, withBindings } from "../support/deps.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  call,
  compose,
  dataOf,
  eventsOf,
  fieldsOf,
  fill,
  isAccepted,
  logIn,
  newKey,
  newMember,
  newTeam,
  newUser,
  nextOf,
  OPERATOR,
  openSession,
  read,
  rejected,
  startWorker,
  type Team,
  tally,
  withoutJobs,
} from "../support/harness.ts";
import { DAY, HOUR } from "../support/time.ts";
import { create as createUpload } from "../support/tus.ts";

const FIELDS = [
  ...["_id", "createdAt", "createdBy", "expiresAt", "id", "isPublic", "key", "lastUsedAt", "limits", "name"],
  ...["scopes", "teamId", "uuid"],
];

const KEYS = "/auth/v1/apikeys";

const create = (team: Team, json: object) => team.call("POST", KEYS, { json });
const fetchKey = (team: Team, id: string) => read(team, `${KEYS}/${id}`);
const setColumns = (id: string, columns: string) =>
  DB.prepare(`update api_keys set ${columns} where id = ?`).bind(id).run();
const asOperator = (method: string, path: string, json?: object) =>
  call(method, path, { token: OPERATOR, ...(json && { json }) });
/** The key as lists show it. */
const masked = <K extends { key: string }>(key: K): K => ({
  ...key,
  key: `${key.key.slice(0, 12)}…${key.key.slice(-4)}`,
});
const namesOf = ({ body }: { body: { data: { name: string }[] } }) => body.data.map(({ name }) => name);

describe("Creating a key", () => {
  test("returns the documented fields, with the identifier as both id and _id", async ({ team }) => {
    const { status, body } = await create(team, { name: "Web player" });
    expect(status).toBe(200);
    expect(fieldsOf(body)).toEqual(["data", "message"]);
    expect(fieldsOf(body.data)).toEqual(FIELDS);
    expect(body.data).toMatchObject({ _id: body.data.id, name: "Web player", teamId: team.teamId, isPublic: false });
    expect(body.data.id).toMatch(/^[0-9a-f]{24}$/);
    expect(body.data.uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(body.data.createdAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });

  test("returns a key of the caller's team that works immediately", async ({ team }) => {
    const { key: token } = await newKey(team);
    const { body } = await call("GET", `${KEYS}/${team.keyId}`, { token });
    expect(body.data.teamId).toBe(team.teamId);
  });

  test("sets the expiry to 365 days by default", async () => {
    const { createdAt, expiresAt } = await newKey(await newTeam());
    expect(Date.parse(expiresAt) - Date.parse(createdAt)).toBe(365 * DAY);
  });

  test("accepts an expiry up to ten years away with any offset, and returns it in UTC", async () => {
    const last = new Date(Date.now() + 3650 * DAY - 60_000).toISOString();
    expect((await newKey(await newTeam(), { expiresAt: last })).expiresAt).toBe(last);
    const soon = new Date(Date.now() + DAY).toISOString();
    const offset = new Date(Date.parse(soon) + 2 * 60 * 60 * 1000).toISOString().replace("Z", "+02:00");
    expect((await newKey(await newTeam(), { expiresAt: offset })).expiresAt).toBe(soon);
  });

  test.each([
    ["in the past", new Date(Date.now() - 1000).toISOString()],
    ["more than ten years away", new Date(Date.now() + 3651 * DAY).toISOString()],
    ["without a time", "2027-01-01"],
    ["without an offset", "2027-01-01T00:00:00"],
    ["that does not exist", "2027-13-01T00:00:00Z"],
    ["that is a number", 1_900_000_000],
    ["that is null", null],
  ])("rejects an expiry %s", async (_, expiresAt) => {
    const team = await newTeam();
    await rejected(team, 400, "invalid_input", () => create(team, { name: "x", expiresAt }), ["expiresAt"]);
  });

  test("trims the name, and accepts 100 characters of any script", async () => {
    const name = "🎧".repeat(100);
    expect((await newKey(await newTeam(), { name: ` ${name}\t` })).name).toBe(name);
  });

  test.each([
    ["no", undefined],
    ["an empty", "  "],
    ["a too long", "x".repeat(101)],
    ["a two-line", "a\nb"],
    ["a numeric", 7],
  ])("rejects %s name", async (_, name) => {
    const team = await newTeam();
    await rejected(team, 400, "invalid_input", () => create(team, { name }), ["name"]);
  });

  test("lets only the operator choose the team", async ({ team }) => {
    await rejected(team, 403, "forbidden", () => create(team, { name: "x", teamId: team.teamId }));
    for (const query of [`teamId=${team.teamId}`, `teamId=${team.teamId}&cursor=keys-${team.keyId}`]) {
      await rejected(team, 403, "forbidden", () => team.call("GET", `${KEYS}?${query}`));
    }
  });
});

describe("The number of a team's keys", () => {
  test("is at most 1,000, also with parallel requests, and sessions don't count", async ({ team }) => {
    await newUser(team);
    expect((await logIn(team)).status).toBe(200);
    await fill(team, "api_keys", 997);
    const answers = await atOnce(6, () => create(team, { name: "parallel" }));
    expect(tally(answers)).toEqual({ 200: 2, too_many_keys: 4 });

    const { body } = await rejected(team, 409, "too_many_keys", () => create(team, { name: "one more" }));
    expect(body.message).toBe("A team can have at most 1,000 API keys. Delete one and retry.");
    await team.call("DELETE", `${KEYS}/${answers.find(({ status }) => status === 200)?.body.data.id}`);
    await newKey(team);
    expect((await logIn(team)).status).toBe(200);
  });

  test("counts only live keys: the key that expired first is deleted, unless an upload that it began is unfinished", async () => {
    const team = await newTeam();
    await fill(team, "api_keys", 997);
    const [uploading, other] = [await newKey(team, { isPublic: true }), await newKey(team)];
    await createUpload(call, 9, {}, { token: uploading.key });
    const expired = DB.prepare("update api_keys set expires_at = 1 where id in (?, ?)");
    await expired.bind(uploading.id, other.id).run();
    const answers = await atOnce(4, () => create(team, { name: "new" }));
    expect(tally(answers)).toEqual({ 200: 1, too_many_keys: 3 });
    expect((await team.call("GET", `${KEYS}/${other.id}`)).code).toBe("not_found");
    expect((await fetchKey(team, uploading.id)).expiresAt).toBe(new Date(1).toISOString());
    await rejected(team, 409, "too_many_keys", () => create(team, { name: "one more" }));
  });

  test("keeps expired keys below the limit", async () => {
    const team = await newTeam();
    const { id } = await newKey(team);
    await setColumns(id, "expires_at = 1");
    await newKey(team);
    expect(await fetchKey(team, id)).toMatchObject({ id });
  });
});

describe("The operator", () => {
  test("creates, lists, fetches and deletes the keys of any team, and sees their tokens only at creation", async ({
    team,
  }) => {
    const made = await dataOf(asOperator("POST", KEYS, { name: "second", teamId: team.teamId }));
    expect(made.teamId).toBe(team.teamId);
    expect(namesOf(await asOperator("GET", `${KEYS}?teamId=${team.teamId}`)).sort()).toEqual(["First key", "second"]);
    expect(made.key).toMatch(/^stow_sk_[0-9A-Za-z]{40}$/);
    for (const query of ["", `?teamId=${team.teamId}`]) {
      expect((await asOperator("GET", KEYS + query)).text).not.toMatch(/stow_(?:sk|pk|ss)_[0-9A-Za-z]{40}/);
    }
    expect(await dataOf(asOperator("GET", `${KEYS}/${made.id}`))).toEqual(masked(made));
    const renamed = { ...masked(made), name: "third" };
    expect(await dataOf(asOperator("PATCH", `${KEYS}/${made.id}`, { name: "third" }))).toEqual(renamed);
    expect(await dataOf(asOperator("DELETE", `${KEYS}/${made.id}`))).toEqual(renamed);
    expect(namesOf(await team.call("GET", KEYS))).toEqual(["First key"]);
    expect(await eventsOf(team, "type=apikey.revealed")).toEqual([]);
  });

  test("lists the keys of the team that it names, with a Link that stays in it", async ({ team }) => {
    await newKey(team, { name: "second" });
    await newTeam();
    const { status, body } = await asOperator("GET", `${KEYS}?limit=3`);
    expect([status, body.errors?.[0].path]).toEqual([400, "teamId"]);
    const first = await asOperator("GET", `${KEYS}?limit=1&teamId=${team.teamId}`);
    const second = await asOperator("GET", nextOf(first) ?? "");
    expect([...namesOf(first), ...namesOf(second)].sort()).toEqual(["First key", "second"]);
    expect(nextOf(second)).toBeUndefined();
  });

  test.each(["nonsense", "", "0193477BE89F4D2E6B8A0C13"])("gets an error for the malformed team %j", async (teamId) => {
    const list = await asOperator("GET", `${KEYS}?teamId=${teamId}`);
    const made = await asOperator("POST", KEYS, { name: "x", teamId });
    for (const { status, body } of [list, made]) expect([status, body.errors?.[0].path]).toEqual([400, "teamId"]);
  });
});

describe("A key", () => {
  test("is fetched as it was created, and listed with a masked token, newest first", async ({ team }) => {
    const keys = [await newKey(team, { name: "a" }), await newKey(team, { name: "b", isPublic: true })];
    const { body } = await team.call("GET", `${KEYS}/${keys[0].id}`);
    expect(body).toEqual({ message: expect.any(String), data: keys[0] });
    const listed = await read(team, KEYS);
    const own = listed.find(({ id }: { id: string }) => id === team.keyId);
    expect(own.key).toBe(masked({ key: team.token }).key);
    expect(listed).toEqual([own, ...keys.map(masked)].sort((a, b) => (a.id < b.id ? 1 : -1)));
  });

  test("is neither shown nor recorded by HEAD", async ({ team }) => {
    const { id } = await newKey(team);
    const answer = await team.call("HEAD", `${KEYS}/${id}`);
    expect([answer.status, answer.text]).toEqual([200, ""]);
    expect(await eventsOf(team, "type=apikey.revealed")).toEqual([]);
  });

  test("is shown whole only once that is recorded, once an hour for each caller, also if they alternate", async () => {
    const team = await newTeam();
    const { id, key } = await newKey(team);
    const another = await newKey(team);
    const revealing = async (token: string, at: number) => {
      const { call } = startWorker((deps) => ({ ...deps, system: { ...deps.system, now: () => at } }));
      expect((await dataOf(call("GET", `${KEYS}/${id}`, { token }))).key).toBe(key);
      return (await eventsOf(team, "type=apikey.revealed")).map(
        (event: { actor: { keyId: string } }) => event.actor.keyId,
      );
    };
    const now = Date.now();
    await revealing(team.token, now);
    const [event] = await eventsOf(team, "type=apikey.revealed");
    const actor = { kind: "secret", keyId: team.keyId };
    expect(event).toMatchObject({ actor, subject: { kind: "apikey", id, version: null }, data: { _id: id } });
    const readers = [team.keyId, another.id];
    for (const token of [another.key, team.token, another.key]) expect(await revealing(token, now)).toEqual(readers);
    expect(await revealing(team.token, now + HOUR)).toEqual([...readers, team.keyId]);
    await setColumns(id, "revealed = '{}'");
    const unrecorded = startWorker((deps) => {
      const bindings = new ProxiedBindings({ binding: "D1", call: 2, moment: "before", failure: "outage" });
      return withBindings(deps, bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: env.JOBS }));
    });
    const { status, text } = await unrecorded.call("GET", `${KEYS}/${id}`, { token: team.token });
    expect([status, text.includes(key)]).toEqual([503, false]);
  });

  test("is returned in full by its deletion, and rejected from the next request", async ({ team }) => {
    const key = await newKey(team);
    const path = `${KEYS}/${key.id}`;
    expect((await team.call("DELETE", path)).body).toEqual({ message: expect.any(String), data: key });
    expect((await call("GET", KEYS, { token: key.key })).code).toBe("token_invalid");
    for (const method of ["GET", "DELETE"]) expect((await team.call(method, path)).code).toBe("not_found");
  });

  test("can delete itself", async ({ team }) => {
    const path = `${KEYS}/${team.keyId}`;
    expect((await team.call("DELETE", path)).status).toBe(200);
    for (const method of ["GET", "DELETE"]) expect((await team.call(method, path)).code).toBe("token_invalid");
  });

  test("is deleted by one of twenty parallel requests", async ({ team }) => {
    const { id } = await newKey(team);
    const answers = await atOnce(20, () => team.call("DELETE", `${KEYS}/${id}`));
    expect(tally(answers)).toEqual({ 200: 1, not_found: 19 });
  });

  test("is deleted by one of twenty parallel requests with the key itself", async ({ team }) => {
    const { id, key: token } = await newKey(team);
    const { 200: deleted, ...others } = tally(await atOnce(20, () => team.call("DELETE", `${KEYS}/${id}`, { token })));
    expect(deleted).toBe(1);
    for (const code of Object.keys(others)) expect(["not_found", "token_invalid"]).toContain(code);
    expect(await isAccepted(token)).toBe(false);
  });
});

describe("Rotating a key", () => {
  const rotate = (team: Team, id: string, json: object = {}, token = team.token) =>
    call("POST", `${KEYS}/${id}/rotate`, { token, json });
  const rowOf = (id: string) =>
    DB.prepare("select kind, scopes, limits, lifetime_milliseconds, user_id from api_keys where id = ?")
      .bind(id)
      .first();

  test("creates a key like it that lives as long from now, and ends the old one after a day", async ({ team }) => {
    const created = Date.now();
    const old = await newKey(team, { name: "partner", isPublic: true, limits: { maxFileBytes: 5 } });
    await setColumns(old.id, "created_at = 1");
    const { status, body } = await rotate(team, old.id, undefined);
    expect([status, fieldsOf(body)]).toEqual([200, ["data", "message"]]);
    expect(body.data).toMatchObject({
      name: "partner",
      isPublic: true,
      limits: { maxFileBytes: 5 },
      teamId: team.teamId,
    });
    expect(body.data.key).toMatch(/^stow_pk_/);
    expect(await rowOf(body.data.id)).toEqual(await rowOf(old.id));
    const lifetime = Date.parse(body.data.expiresAt) - Date.parse(body.data.createdAt);
    expect(lifetime).toBe(365 * DAY);
    const { expiresAt } = await fetchKey(team, old.id);
    expect(Date.parse(expiresAt)).toBeGreaterThanOrEqual(created + DAY);
    expect(Date.parse(expiresAt)).toBeLessThanOrEqual(Date.now() + DAY);
    expect(await eventsOf(team, "type=apikey.rotated")).toMatchObject([
      {
        type: "apikey.rotated",
        subject: { kind: "apikey", id: old.id },
        data: { newKeyId: body.data.id },
      },
    ]);
  });

  test("ends the old key and its sessions with the next request if there is no overlap", async ({ team }) => {
    const old = await newKey(team);
    const { key: session } = await openSession(old.key);
    const { body } = await rotate(team, old.id, { overlapSeconds: 0 });
    expect(await Promise.all([old.key, session, body.data.key].map(isAccepted))).toEqual([false, false, true]);
    expect((await rotate(team, old.id, {}, body.data.key)).code).toBe("conflict");
  });

  test.each<[string, number, (team: Team, own: string) => [token: string, of: "own" | "other"]]>([
    ["another key", 3600, (team) => [team.token, "other"]],
    ["another key, without an overlap", 0, (team) => [team.token, "other"]],
    ["the operator, without an overlap", 0, () => [OPERATOR, "other"]],
    ["the key itself, without an overlap", 0, (_, own) => [own, "own"]],
    ["a session of the key, without an overlap", 0, (_, own) => [own, "own"]],
  ])("returns the same key again if the response was lost, to %s", async (name, overlapSeconds, callerOf) => {
    const team = await newTeam();
    const old = await newKey(team);
    const own = name.startsWith("a session") ? (await openSession(old.key)).key : old.key;
    const [token, of] = callerOf(team, own);
    const path = `${KEYS}/${old.id}/rotate`;
    const lost = await startWorker(compose(withoutJobs, losingResponses)).call("POST", path, {
      token,
      json: { overlapSeconds },
    });
    expect(lost.code).toBe("unavailable");
    expect(await isAccepted(old.key)).toBe(of === "own" || overlapSeconds > 0);
    const repeated = await dataOf(rotate(team, old.id, { overlapSeconds }, token));
    expect(repeated.id).not.toBe(old.id);
    expect(await dataOf(rotate(team, old.id, { overlapSeconds }, token))).toEqual(repeated);
    expect((await read(team, KEYS)).map(({ id }: { id: string }) => id).sort()).toEqual(
      [team.keyId, old.id, repeated.id].sort(),
    );
    expect(await eventsOf(team, "type=apikey.rotated")).toHaveLength(1);
    expect(await isAccepted(repeated.key)).toBe(true);
  });

  test("shows no repeated key that the caller no longer covers", async () => {
    const team = await newTeam();
    const [old, caller] = [await newKey(team), await newKey(team)];
    await dataOf(rotate(team, old.id, {}, caller.key));
    const narrowed = { json: { scopes: ["keys:read", "keys:write"] } };
    for (const { id } of [old, caller]) await dataOf(team.call("PATCH", `${KEYS}/${id}`, narrowed));
    expect((await rotate(team, old.id, {}, caller.key)).code).toBe("insufficient_scope");
  });

  test("returns another key once the new one is used, to another caller, and after an hour", async () => {
    const team = await newTeam();
    const [old, other] = [await newKey(team), await newKey(team)];
    const seen = [(await dataOf(rotate(team, old.id))).id];
    seen.push((await dataOf(rotate(team, old.id, {}, other.key))).id);
    const { id, key } = await dataOf(rotate(team, old.id));
    seen.push(id);
    await isAccepted(key);
    await expect.poll(async () => (await fetchKey(team, id)).lastUsedAt).not.toBe(null);
    seen.push((await dataOf(rotate(team, old.id))).id);
    const later = startWorker((deps) => ({
      ...deps,
      system: { ...deps.system, now: () => Date.now() + HOUR + 1 },
    }));
    seen.push((await dataOf(later.call("POST", `${KEYS}/${old.id}/rotate`, { token: team.token, json: {} }))).id);
    expect(new Set(seen).size).toBe(5);
  });

  test("ends the old key at once if a repetition asks for no overlap", async ({ team }) => {
    const old = await newKey(team);
    const { id } = await dataOf(rotate(team, old.id));
    expect((await dataOf(rotate(team, old.id, { overlapSeconds: 0 }))).id).toBe(id);
    expect(await isAccepted(old.key)).toBe(false);
  });

  test("ends a key that rotates itself without an overlap after a minute", async () => {
    const team = await newTeam();
    await rotate(team, team.keyId, { overlapSeconds: 0 });
    const at = (seconds: number) =>
      startWorker((deps) => ({ ...deps, system: { ...deps.system, now: () => Date.now() + seconds * 1000 } }));
    expect((await at(0).call("GET", KEYS, { token: team.token })).status).toBe(200);
    expect((await at(61).call("GET", KEYS, { token: team.token })).code).toBe("token_invalid");
  });

  test("never prolongs the old key or its sessions", async ({ team }) => {
    const expiresAt = new Date(Date.now() + 60_000).toISOString();
    const old = await newKey(team, { expiresAt });
    const session = await openSession(old.key);
    expect((await rotate(team, old.id, { overlapSeconds: 2_592_000 })).status).toBe(200);
    expect((await fetchKey(team, old.id)).expiresAt).toBe(expiresAt);
    expect(await read(team, "/auth/v1/sessions")).toMatchObject([{ _id: session.id, expiresAt }]);
  });

  test("needs every scope of the key, and passes on only those", async ({ team }) => {
    const [wide, narrow] = [await newKey(team), await newKey(team)];
    const keysWrite = 1 << 8;
    await setColumns(narrow.id, `scopes = ${keysWrite}`);
    const answer = await rejected(team, 403, "insufficient_scope", () => rotate(team, wide.id, {}, narrow.key));
    expect(answer.headers.get("WWW-Authenticate")).toContain('scope="files:upload"');
    const { body } = await rotate(team, narrow.id, {}, narrow.key);
    expect(await isAccepted(body.data.key)).toBe(false);
    expect((await rowOf(body.data.id))?.scopes).toBe(keysWrite);
  });

  test("finds no session, and a key of another team only for the operator", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const session = await openSession(team.token);
    for (const token of [team.token, OPERATOR]) {
      await rejected(team, 404, "not_found", () => rotate(team, session.id, {}, token));
    }
    const rotated = await dataOf(rotate(team, other.keyId, {}, OPERATOR));
    expect(rotated.teamId).toBe(other.teamId);
  });

  test("respects the number of keys, also if a key is rotated many times at once", async ({ team }) => {
    await fill(team, "api_keys", 997);
    const answers = await atOnce(5, () => rotate(team, team.keyId));
    expect(tally(answers)).toEqual({ 200: 5 });
    expect(new Set(answers.map(({ body }) => body.data.id)).size).toBe(1);
    const { key } = await newKey(team);
    expect((await rotate(team, team.keyId, {}, key)).code).toBe("too_many_keys");
  });

  test.each<[string, number, string, number, (team: Team, id: string) => Promise<unknown>]>([
    ["is deleted", 404, "not_found", 1, (team, id) => team.call("DELETE", `${KEYS}/${id}`)],
    ["expires", 409, "conflict", 2, (_, id) => setColumns(id, "expires_at = 1, version = version + 1")],
    ["'s caller is revoked", 401, "token_invalid", 1, (team) => team.call("DELETE", `${KEYS}/${team.keyId}`)],
    ["'s team is deleted", 401, "token_invalid", 2, (team) => asOperator("DELETE", `/auth/v1/teams/${team.teamId}`)],
  ])("changes nothing if, during the request, the key %s", async (_, status, code, kept, end) => {
    const team = await newTeam();
    const { id } = await newKey(team);
    const { call } = startWorker(
      compose(
        withoutJobs,
        beforeWrite(() => end(team, id)),
      ),
    );
    const answer = await call("POST", `${KEYS}/${id}/rotate`, { token: team.token, json: {} });
    expect([answer.status, answer.code]).toEqual([status, code]);
    const rows = await DB.prepare("select count(*) n from api_keys where team_id = ?").bind(team.teamId).first("n");
    expect(rows).toBe(kept);
  });

  /** Rotates a key that is updated before each of so many writes. */
  const rotateWhile = async (team: Team, id: string, change: object, times: number) => {
    const update = () => team.call("PATCH", `${KEYS}/${id}`, { json: change });
    const { call } = startWorker(compose(withoutJobs, beforeWrite(update, times)));
    return call("POST", `${KEYS}/${id}/rotate`, { token: team.token, json: {} });
  };

  test("copies the key as it is if that changes during the request", async ({ team }) => {
    const { id } = await newKey(team);
    const change = { name: "narrowed", scopes: ["files:read"] };
    expect(await dataOf(rotateWhile(team, id, change, 2))).toMatchObject(change);
  });

  test("is refused if the key changes in each of three attempts", async ({ team }) => {
    const { id } = await newKey(team);
    expect((await rotateWhile(team, id, { name: "new" }, 3)).code).toBe("conflict");
    expect(await read(team, KEYS)).toHaveLength(2);
  });

  test.each([-1, 1.5, 2_592_001, "60"])("rejects an overlap of %j seconds", async (overlapSeconds) => {
    const team = await newTeam();
    const reject = () => rotate(team, team.keyId, { overlapSeconds });
    await rejected(team, 400, "invalid_input", reject, ["overlapSeconds"]);
  });
});

describe("The scopes of a key", () => {
  const ALL = Object.keys(SCOPES);
  const READING = ["files:read", "keys:read", "keys:write"];

  test("are those of its creator by default, and files:upload for a public key", async ({ team }) => {
    expect((await newKey(team)).scopes).toEqual(ALL);
    const narrow = await newKey(team, { scopes: READING });
    expect(narrow).toMatchObject({ scopes: READING, createdBy: { keyId: team.keyId, userId: null } });
    const child = await dataOf(call("POST", KEYS, { token: narrow.key, json: { name: "child" } }));
    expect(child).toMatchObject({ scopes: READING, createdBy: { keyId: narrow.id, userId: null } });
    expect((await newKey(team, { isPublic: true })).scopes).toEqual(["files:upload"]);
  });

  test.each<[string, unknown]>([
    ["empty", []],
    ["unknown", ["files:everything"]],
    ["repeated", ["files:read", "files:read"]],
    ["not a list", "files:read"],
  ])("are rejected if they are %s", async (_, scopes) => {
    const team = await newTeam();
    const { status, body } = await create(team, { name: "a", scopes });
    expect([status, body.code]).toEqual([400, "invalid_input"]);
    expect(body.errors[0].path).toMatch(/^scopes/);
  });

  test("a public key can't have any scope except files:upload", async ({ team }) => {
    const wide = { name: "page", isPublic: true, scopes: ["files:upload", "files:read"] };
    await rejected(team, 400, "invalid_input", () => create(team, wide), ["scopes"]);
    expect((await newKey(team, { isPublic: true, scopes: ["files:upload"] })).scopes).toEqual(["files:upload"]);
  });

  test("must be covered by the caller, who otherwise can't create, update or delete the key, and sees it masked", async () => {
    const team = await newTeam();
    const wide = await newKey(team, { scopes: ["files:delete"] });
    const { key: token } = await newKey(team, { scopes: READING });
    const path = `${KEYS}/${wide.id}`;
    for (const [method, at, json] of [
      ["POST", KEYS, { name: "a", scopes: ["files:read", "files:delete"] }],
      ["PATCH", path, { name: "renamed" }],
      ["DELETE", path, undefined],
    ] as const) {
      const act = () => team.call(method, at, { token, ...(json && { json }) });
      const { headers } = await rejected(team, 403, "insufficient_scope", act);
      expect(headers.get("WWW-Authenticate")).toBe('Bearer error="insufficient_scope", scope="files:delete"');
    }
    const page = { token, json: { name: "page", isPublic: true } };
    await rejected(team, 403, "insufficient_scope", () => team.call("POST", KEYS, page));
    expect((await team.call("GET", path, { token })).body.data).toEqual(masked(wide));
    expect(await eventsOf(team, "type=apikey.revealed")).toEqual([]);
  });
});

describe("Updating a key", () => {
  const update = (team: Team, id: string, json: object) => team.call("PATCH", `${KEYS}/${id}`, { json });

  test("renames it, removes scopes and shortens its lifetime, from the next request on", async ({ team }) => {
    const key = await newKey(team, { scopes: ["files:read", "users:read"] });
    const expiresAt = new Date(Date.now() + DAY).toISOString();
    const changes = { name: "new", scopes: ["files:read"], expiresAt };
    expect((await call("GET", "/auth/v1/users?limit=1", { token: key.key })).status).toBe(200);
    const { status, body } = await update(team, key.id, changes);
    expect([status, body.data]).toEqual([200, { ...masked(key), ...changes, lastUsedAt: expect.any(String) }]);
    expect((await call("GET", "/auth/v1/users", { token: key.key })).code).toBe("insufficient_scope");
    const [event] = await eventsOf(team, "type=apikey.updated");
    expect(event.data).toEqual({ _id: key.id, fields: ["name", "scopes", "expiresAt"] });
  });

  test("narrows the sessions that the key created, too", async ({ team }) => {
    const key = await newKey(team);
    const { key: token } = await openSession(key.key);
    const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
    await update(team, key.id, { scopes: ["files:read"], expiresAt });
    expect(await dataOf(call("GET", "/auth/v1/me", { token }))).toMatchObject({
      kind: "session",
      scopes: ["files:read"],
      expiresAt,
    });
  });

  test.each<[string, object, string]>([
    ["add a scope", { scopes: ["files:read", "files:write"] }, "scopes"],
    ["prolong it", { expiresAt: "2036-01-01T00:00:00.000Z" }, "expiresAt"],
    ["end it in the past", { expiresAt: "2020-01-01T00:00:00.000Z" }, "expiresAt"],
    ["remove all scopes", { scopes: [] }, "scopes"],
    ["change nothing", {}, ""],
  ])("can't %s", async (_, changes, path) => {
    const team = await newTeam();
    const key = await newKey(team, { scopes: ["files:read"] });
    await rejected(team, 400, "invalid_input", () => update(team, key.id, changes), [path]);
  });

  test("finds no session, and a key of another team only for the operator", async ({ team }) => {
    expect((await update(team, (await openSession(team.token)).id, { name: "mine" })).code).toBe("not_found");
    const { body } = await asOperator("PATCH", `${KEYS}/${team.keyId}`, { scopes: ["files:read"] });
    expect(body.data).toMatchObject({ scopes: ["files:read"], _id: team.keyId });
  });
});

describe("A kept key of a deleted user", () => {
  test("can still create keys, also if it is rotated, or creates one, while the user is deleted", async () => {
    const team = await newTeam();
    const { id: userId, token: session } = await newMember(team, "admin");
    const kept = await dataOf(call("POST", KEYS, { token: session, json: { name: "kept" } }));
    const remove = () => team.call("DELETE", `/auth/v1/users/${userId}?keepKeys=true`);
    const { call: rotating } = startWorker(compose(withoutJobs, beforeWrite(remove)));
    const rotated = await dataOf(rotating("POST", `${KEYS}/${kept.id}/rotate`, { token: kept.key, json: {} }));
    expect((await team.call("GET", `/auth/v1/users/${userId}`)).code).toBe("not_found");
    const owners = DB.prepare("select count(user_id) n from api_keys where team_id = ?").bind(team.teamId);
    expect(await owners.first("n")).toBe(0);
    for (const token of [kept.key, rotated.key]) {
      const made = await dataOf(call("POST", KEYS, { token, json: { name: "made" } }));
      expect(await isAccepted((await dataOf(call("POST", `${KEYS}/${made.id}/rotate`, { token, json: {} }))).key)).toBe(
        true,
      );
    }
  });

  test("has no owner, and neither does a key that it creates while the user is deleted", async () => {
    const team = await newTeam();
    const { id: userId, token: session } = await newMember(team, "admin");
    const kept = await dataOf(call("POST", KEYS, { token: session, json: { name: "kept" } }));
    const end = () => team.call("DELETE", `/auth/v1/users/${userId}?keepKeys=true`);
    const creating = startWorker(compose(withoutJobs, beforeWrite(end)));
    const made = await dataOf(creating.call("POST", KEYS, { token: kept.key, json: { name: "made" } }));
    expect(made.createdBy).toEqual({ keyId: kept.id, userId: null });
    expect(await isAccepted(made.key)).toBe(true);
  });
});

describe("A token at rest", () => {
  test.each([
    ["is garbage", "nonsense"],
    ["is empty", ""],
    ["belongs to another key", "other"],
  ])("is an empty key that can be listed, fetched and deleted if its encrypted form %s", async (_, encrypted) => {
    const team = await newTeam();
    const { id } = await newKey(team);
    const other = DB.prepare("select encrypted_token from api_keys where id = ?").bind(team.keyId);
    const value = encrypted === "other" ? await other.first<string>("encrypted_token") : encrypted;
    await setColumns(id, `encrypted_token = '${value}'`);

    expect(await fetchKey(team, id)).toMatchObject({ id, key: "" });
    const listed = await read(team, KEYS);
    expect(listed.map(({ key }: { key: string }) => key).sort()).toEqual(["", masked({ key: team.token }).key]);
    expect(await dataOf(team.call("DELETE", `${KEYS}/${id}`))).toMatchObject({ id, key: "" });
    expect((await team.call("GET", `${KEYS}/${id}`)).status).toBe(404);
  });

  test("is decrypted under a new master key while the old one is kept next to it", async ({ team }) => {
    const newMaster = btoa("fedcba9876543210fedcba9876543210");
    const [rotated, bare] = [`${newMaster},${env.MASTER_KEY}`, newMaster].map((keys) =>
      startWorker((deps) => ({ ...deps, secrets: loadSecrets(keys, deps.system) })),
    );
    const { token } = team;
    const keyBy = (worker: typeof rotated, id: string) => dataOf(worker!.call("GET", `${KEYS}/${id}`, { token }));
    expect((await keyBy(rotated, team.keyId)).key).toBe(token);
    expect((await keyBy(bare, team.keyId)).key).toBe("");
    const made = await dataOf(rotated!.call("POST", KEYS, { token, json: { name: "encrypted again" } }));
    expect(await keyBy(bare, made.id)).toEqual(made);
  });
});
