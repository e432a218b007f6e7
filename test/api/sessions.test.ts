import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { MAX_KEY_SESSIONS } from "../../src/domain/accounts/sessions.ts";
import { Lru } from "../../src/platform/lru.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { withBindings } from "../support/deps.ts";
import {
  atOnce,
  call,
  dataOf,
  eventsOf,
  idsIn,
  isAccepted,
  logIn,
  newKey,
  newTeam,
  newUser,
  OPERATOR,
  openSession,
  read,
  rejected,
  startWorker,
  type Team,
  tally,
} from "../support/harness.ts";
import { create as createUpload, idOf, RESUMABLE } from "../support/tus.ts";

const SESSIONS = "/auth/v1/sessions";
const KEYS = "/auth/v1/apikeys";
const HOUR = 60 * 60 * 1000;

const create = (token: string) => call("POST", SESSIONS, { token });

/** Begins an upload. @returns its id */
async function reserve(token: string): Promise<string> {
  const answer = await createUpload(call, 9, {}, { token });
  expect(answer.status).toBe(201);
  return idOf(answer);
}
const unfinished = async (team: Team) => idsIn(await read(team, RESUMABLE));
const historyOf = async (team: Team, id: string) =>
  (await eventsOf(team, `subject=${id}`)).map(({ type, subject }: { type: string; subject: { kind: string } }) => [
    type,
    subject.kind,
  ]);

describe("A session of a secret key", () => {
  test("has the key's name, team and scopes for 12 hours, and is listed among sessions but not among keys", async () => {
    const team = await newTeam();
    const key = await newKey(team, { name: "desk" });
    const session = await openSession(key.key);
    expect(session).toMatchObject({ name: "desk", teamId: team.teamId, isPublic: false });
    expect(Date.parse(session.expiresAt) - Date.parse(session.createdAt)).toBe(12 * HOUR);
    const { id: _id, createdAt, expiresAt } = session;
    const createdBy = { keyId: key.id, userId: null };
    expect(await read(team, SESSIONS)).toEqual([
      { _id, userId: null, createdBy, createdAt, expiresAt, lastUsedAt: null },
    ]);
    expect(idsIn(await dataOf(call("GET", KEYS, { token: session.key }))).sort()).toEqual([team.keyId, key.id].sort());
    for (const [method, token] of [
      ["GET", session.key],
      ["DELETE", team.token],
      ["DELETE", OPERATOR],
    ] as const) {
      expect((await call(method, `${KEYS}/${session.id}`, { token })).code).toBe("not_found");
    }
    expect(await isAccepted(session.key)).toBe(true);
    expect(await historyOf(team, session.id)).toEqual([["session.created", "session"]]);
  });

  test("ends with its key: it expires no later, and is revoked with it, with the unfinished uploads of both", async () => {
    const team = await newTeam();
    const expiresAt = new Date(Date.now() + HOUR).toISOString();
    const key = await newKey(team, { expiresAt });
    const [one, two] = [await openSession(key.key), await openSession(key.key)];
    const other = await openSession(team.token);
    expect(one.expiresAt).toBe(expiresAt);
    for (const token of [key.key, one.key]) await reserve(token);
    const kept = await reserve(other.key);
    await team.call("DELETE", `${KEYS}/${key.id}`);
    const valid = await Promise.all([one, two, other].map(({ key: token }) => isAccepted(token)));
    expect(valid).toEqual([false, false, true]);
    expect(await unfinished(team)).toEqual([kept]);
    expect(idsIn(await read(team, SESSIONS))).toEqual([other.id]);
  });

  test("has only the key's scopes, and belongs to the key's user", async () => {
    const team = await newTeam();
    const { _id: userId, email } = await newUser(team);
    const login = await dataOf(logIn(team, email));
    const key = await dataOf(call("POST", KEYS, { token: login.key, json: { name: "narrow" } }));
    await env.DB.prepare("update api_keys set scopes = 2 where id = ?").bind(key.id).run();
    const { key: token, id } = await openSession(key.key);
    expect((await call("GET", "/auth/v1/users", { token })).code).toBe("insufficient_scope");
    expect(await isAccepted(token)).toBe(true);
    expect((await read(team, SESSIONS))[0]).toMatchObject({ _id: id, userId, createdBy: { keyId: key.id, userId } });
    await team.call("DELETE", `/auth/v1/users/${userId}`);
    expect(await isAccepted(token)).toBe(false);
  });

  test("can be created by nothing else", async () => {
    const team = await newTeam();
    const page = await newKey(team, { isPublic: true });
    const session = await openSession(team.token);
    for (const token of [page.key, session.key, OPERATOR]) {
      await rejected(team, 403, "forbidden", () => create(token));
    }
  });

  test(`is one of at most ${MAX_KEY_SESSIONS} of its key, also with parallel requests`, async () => {
    const team = await newTeam();
    await env.DB.prepare(
      `with recursive rows(n) as (select 1 union all select n + 1 from rows where n < ?3)
       insert into api_keys (id, team_id, uuid, name, kind, scopes, token_hash, created_by_key_id, lifetime, created_at,
         expires_at) select ?1 || n, ?1, '', '', 'session', 0, ?1 || n, ?2, 1, 1, 4e12 from rows`,
    )
      .bind(team.teamId, team.keyId, MAX_KEY_SESSIONS - 2)
      .run();
    expect(tally(await atOnce(5, () => create(team.token)))).toEqual({ 200: 2, quota_exceeded: 3 });
    const key = await newKey(team);
    expect((await create(key.key)).status).toBe(200);
  });
});

describe("Ending a session", () => {
  test("takes effect with the next request, cancels its unfinished uploads, and is recorded", async () => {
    const team = await newTeam();
    const [revoked, loggedOut, other] = await Promise.all([1, 2, 3].map(() => openSession(team.token)));
    const uploads = [await reserve(revoked.key), await reserve(loggedOut.key), await reserve(other.key)];
    expect((await team.call("DELETE", `${SESSIONS}/${revoked.id}`)).status).toBe(200);
    expect((await call("POST", "/auth/v1/logout", { token: loggedOut.key })).status).toBe(200);
    const valid = await Promise.all([revoked, loggedOut, other].map(({ key }) => isAccepted(key)));
    expect(valid).toEqual([false, false, true]);
    expect(await unfinished(team)).toEqual([uploads[2]]);
    expect((await call("POST", "/auth/v1/logout", { token: loggedOut.key })).code).toBe("token_invalid");
    for (const { id } of [revoked, loggedOut]) {
      expect(await historyOf(team, id)).toEqual([
        ["session.created", "session"],
        ["session.revoked", "session"],
      ]);
    }
  });

  test("finds no key, and no session of another team, and cancels no upload of either", async () => {
    const [team, other] = [await newTeam(), await newTeam()];
    const foreign = await openSession(other.token);
    const uploads = [await reserve(team.token), await reserve(foreign.key)];
    for (const id of [team.keyId, foreign.id]) {
      await rejected(team, 404, "not_found", () => team.call("DELETE", `${SESSIONS}/${id}`));
    }
    expect([...(await unfinished(team)), ...(await unfinished(other))]).toEqual(uploads);
  });

  test("needs every scope of the session", async () => {
    const team = await newTeam();
    const narrow = await newKey(team);
    await env.DB.prepare("update api_keys set scopes = 256 where id = ?").bind(narrow.id).run();
    const [wide, own] = [await openSession(team.token), await openSession(narrow.key)];
    const revoke = (id: string) => call("DELETE", `${SESSIONS}/${id}`, { token: narrow.key });
    await reserve(wide.key);
    await rejected(team, 403, "insufficient_scope", () => revoke(wide.id));
    expect([(await revoke(own.id)).status, (await unfinished(team)).length]).toEqual([200, 1]);
  });

  test("that is gone, or revoking such a key, is a 404 and cancels no upload", async () => {
    const team = await newTeam();
    for (const [path, { id, key }] of [
      [SESSIONS, await openSession(team.token)],
      [KEYS, await newKey(team)],
    ] as const) {
      const kept = await reserve(key);
      await env.DB.prepare("delete from api_keys where id = ?").bind(id).run();
      await rejected(team, 404, "not_found", () => team.call("DELETE", `${path}/${id}`));
      expect(await unfinished(team)).toContain(kept);
    }
  });

  test("by logging out is rejected for API keys and the operator", async () => {
    const team = await newTeam();
    for (const token of [team.token, OPERATOR]) {
      await rejected(team, 403, "forbidden", () => call("POST", "/auth/v1/logout", { token }));
    }
  });
});

describe("The last use of a session or key", () => {
  const lastUses = async (team: Team) => {
    const { results } = await env.DB.prepare(
      "select kind, last_used_at as at from api_keys where team_id = ? order by id",
    )
      .bind(team.teamId)
      .all<{ kind: string; at: number | null }>();
    return Object.fromEntries(results.map(({ kind, at }) => [kind, at]));
  };
  /** Starts a Worker with a separate clock, and counts its calls to D1. */
  function workerAt(now: () => number) {
    const bindings = new ProxiedBindings();
    const { DB, BUCKET, JOBS } = env;
    const wrapped = bindings.wrap({ DB, BUCKET, JOBS });
    const { call } = startWorker((deps) =>
      withBindings({ ...deps, system: { ...deps.system, now }, notedUses }, wrapped),
    );
    const notedUses = new Lru<number>(2);
    return { bindings, call };
  }

  test("is stored once an hour, by one statement after the response, and not for rejected requests", async () => {
    const team = await newTeam();
    const start = Date.now();
    let now = start;
    const { call, bindings } = workerAt(() => now);
    const { key: token } = await openSession(team.token);
    const used = await lastUses(team);
    expect(used.secret).toBeGreaterThanOrEqual(start);
    expect(used.session).toBeNull();

    expect((await call("GET", "/docs/v1/uploads/none", { token })).status).toBe(404);
    expect((await lastUses(team)).session).toBeNull();
    const use = async (at: number) => {
      now = at;
      const before = bindings.effects.rowsWritten;
      expect((await call("GET", "/docs/v1/usage", { token })).status).toBe(200);
      return bindings.effects.rowsWritten - before;
    };
    expect([await use(start), await use(start + HOUR - 1), await use(start + HOUR)]).toEqual([1, 0, 1]);
    expect((await lastUses(team)).session).toBe(start + HOUR);
    expect((await read(team, SESSIONS))[0].lastUsedAt).toBe(new Date(start + HOUR).toISOString());
  });

  test("neither fails nor changes a request if it can't be stored", async () => {
    const team = await newTeam();
    const { key: token } = await openSession(team.token);
    const failing = new ProxiedBindings({ binding: "D1", call: 2, moment: "before", failure: "outage" });
    const { DB, BUCKET, JOBS } = env;
    const wrapped = failing.wrap({ DB, BUCKET, JOBS });
    const { call } = startWorker((deps) => withBindings({ ...deps, notedUses: new Lru<number>(2) }, wrapped));
    expect((await call("GET", "/docs/v1/usage", { token })).status).toBe(200);
    expect(failing.isBroken).toBe(true);
    expect((await lastUses(team)).session).toBeNull();
  });
});
