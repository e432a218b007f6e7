import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import { MAX_KEY_SESSIONS, MAX_USER_SESSIONS } from "../../src/accounts/sessions.ts";
import { AppError } from "../../src/errors.ts";
import { Lru } from "../../src/platform/lru.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { DATABASES, DB } from "../support/databases.ts";
import { type Deps, withBindings } from "../support/deps.ts";
import { apiTest } from "../support/fixtures.ts";
import {
  atOnce,
  type Call,
  type Change,
  call,
  compose,
  dataOf,
  EMAIL,
  eventsOf,
  fieldsOf,
  idsIn,
  isAccepted,
  newKey,
  newSession,
  newTeam,
  newUser,
  OPERATOR,
  openSession,
  PASSWORD,
  pausedStream,
  randomAddress,
  read,
  rejected,
  startWorker,
  type Team,
  tally,
  withoutRequestId,
} from "../support/harness.ts";
import { startLimited } from "../support/limits.ts";
import { insertMany } from "../support/rows.ts";
import { HOUR } from "../support/time.ts";
import { create as createUpload, idOf, RESUMABLE } from "../support/tus.ts";

const KEYS = "/auth/v1/apikeys";

const quick = startWorker();
const quickTeam = () => newTeam(quick);
const test = apiTest.extend("team", () => quickTeam());

const right = ({ teamId }: Team) => ({ teamId, email: EMAIL, password: PASSWORD });
const logIn = (json: object, worker: { call: Call } = quick) => worker.call("POST", "/auth/v1/login", { json });
const newToken = async (team: Team, email = EMAIL): Promise<string> =>
  (await dataOf(logIn({ ...right(team), email }))).key;
const keyIds = async (team: Team) => idsIn(await read(team, KEYS));

type Verify = Deps["secrets"]["verifyPassword"];
/** Observes or replaces the check of a password. */
const checkingBy =
  (verify: (real: Verify) => Verify): Change =>
  (deps) => {
    const verifyPassword = verify((password, hash) => deps.secrets.verifyPassword(password, hash));
    return { ...deps, secrets: { ...deps.secrets, verifyPassword } };
  };
const withPasswordCheck = (verify: (real: Verify) => Verify) => startWorker(checkingBy(verify));

describe("Logging in", () => {
  test("returns a session of the team for 12 hours, in the shape of a secret key, named after the user", async () => {
    const team = await newTeam();
    await newUser(team, { firstName: "Ada", lastName: "Lovelace", role: "admin" });
    const { status, body } = await logIn(right(team), { call });
    expect([status, fieldsOf(body)]).toEqual([200, ["data", "message"]]);
    expect(fieldsOf(body.data)).toEqual(fieldsOf(await newKey(team)));
    expect(body.data).toMatchObject({ name: "Ada Lovelace", teamId: team.teamId, isPublic: false });
    const { key: token, createdAt, expiresAt } = body.data;
    expect(Date.parse(expiresAt) - Date.parse(createdAt)).toBe(12 * 60 * 60 * 1000);
    const at = (now: number) => startWorker((deps) => ({ ...deps, system: { ...deps.system, now: () => now } }));
    expect((await at(Date.parse(expiresAt) - 1).call("GET", "/auth/v1/users", { token })).status).toBe(200);
    expect((await at(Date.parse(expiresAt)).call("GET", "/auth/v1/users", { token })).code).toBe("token_invalid");
  });

  test("accepts any case of the email and any normal form of the password, and names a user without a name by email", async () => {
    const team = await quickTeam();
    await newUser(team, { email: "Ada@Example.com", password: "Ångström-ﬁle" });
    const { status, body } = await logIn({ teamId: team.teamId, email: EMAIL, password: "A\u030angstro\u0308m-file" });
    expect([status, body.data?.name]).toEqual([200, "Ada@Example.com"]);
  });

  test("rejects the stored hash of the password", async () => {
    const team = await newTeam();
    const { password } = await newUser(team);
    expect((await logIn({ ...right(team), password })).code).toBe("login_failed");
  });
});

describe("The sessions of a user", () => {
  const insertSessions = (team: Team, userId: string, count: number, expiresAt = 4e12) =>
    insertMany(
      count,
      `insert into api_keys (id, team_id, uuid, name, kind, token_hash, user_id, lifetime_milliseconds, created_at, expires_at)
         select ?2 || printf('%03d', i), ?2, '', '', 'session', ?2 || ?3 || i, ?3, 1, 1, ?4 from n`,
      team.teamId,
      userId,
      expiresAt,
    );
  const sessionsOf = async (userId: string) =>
    (await DB.prepare("select id from api_keys where user_id = ? order by id").bind(userId).all<{ id: string }>())
      .results;

  test(`are at most ${MAX_USER_SESSIONS}: a login ends the oldest, with its unfinished uploads, also of several at once`, async () => {
    const team = await newTeam();
    const { _id } = await newUser(team, { role: "member" });
    const first = await newToken(team);
    const upload = await createUpload(call, 10, undefined, { token: first });
    expect(upload.status).toBe(201);
    const [{ id: oldest } = { id: "" }] = await sessionsOf(_id);
    await insertSessions(team, _id, MAX_USER_SESSIONS - 1);
    await DB.prepare("update api_keys set id = '0' || substr(id, 2) where id = ?").bind(oldest).run();
    await DB.prepare("update api_keys set id = 'f' || substr(id, 2) where user_id = ? and id <> ?")
      .bind(_id, oldest)
      .run();
    expect(await isAccepted(first)).toBe(true);
    const answers = await atOnce(3, () => logIn(right(team)));
    expect(tally(answers)).toEqual({ 200: 3 });
    expect(await sessionsOf(_id)).toHaveLength(MAX_USER_SESSIONS);
    expect(await isAccepted(first)).toBe(false);
  });

  test("do not count if they have expired, belong to a key of the user, or to another user", async () => {
    const team = await newTeam();
    const { _id } = await newUser(team, { role: "admin" });
    const first = await newToken(team);
    const key = await dataOf(call("POST", KEYS, { token: first, json: { name: "script" } }));
    const ofKey = await openSession(key.key);
    await insertSessions(team, _id, MAX_USER_SESSIONS - 2, 1);
    await newUser(team, { email: "grace@example.com" });
    for (let i = 0; i < 3; i++) await newToken(team);
    await newToken(team, "grace@example.com");
    expect(await Promise.all([first, ofKey.key].map(isAccepted))).toEqual([true, true]);
  });

  test("name the client that created them, at most 200 characters, in no event", async ({ team }) => {
    await newUser(team);
    const agent = `canary-agent/1 ${"x".repeat(300)}`;
    const begin = (headers: Record<string, string>) =>
      quick.call("POST", "/auth/v1/login", { json: right(team), headers });
    for (const headers of [{ "User-Agent": agent }, {}]) expect((await begin(headers)).status).toBe(200);
    await dataOf(
      quick.call("POST", SESSIONS, { token: team.token, json: {}, headers: { "User-Agent": "stowage-cli" } }),
    );
    const agents = (await read(team, SESSIONS)).map(({ userAgent }: { userAgent: string | null }) => userAgent);
    expect(agents).toEqual(["stowage-cli", null, agent.slice(0, 200)]);
    expect(JSON.stringify(await eventsOf(team))).not.toContain("canary-agent");
  });
});

describe("A failed login", () => {
  const wrongLogins = (team: Team) => [
    { ...right(team), password: "wrong" },
    { ...right(team), email: "grace@example.com" },
    { ...right(team), teamId: "0193477be89f4d2e6b8a0c13" },
    { ...right(team), teamId: "nonsense" },
    { ...right(team), teamId: "' or 1=1 --" },
  ];

  test("gets the same bytes for a wrong password, an unknown email and an unknown team", async ({ team }) => {
    await newUser(team);
    const texts = new Set<string>();
    const headers = new Set<string>();
    for (const wrong of wrongLogins(team)) {
      const answer = await rejected(team, 401, "login_failed", () => logIn(wrong));
      texts.add(withoutRequestId(answer.text));
      answer.headers.delete("X-Request-Id");
      headers.add(JSON.stringify([...answer.headers]));
    }
    expect([texts.size, headers.size]).toEqual([1, 1]);
  });

  test("costs one password check, with or without a user", async ({ team }) => {
    await newUser(team);
    const hashes: (string | null)[] = [];
    const worker = withPasswordCheck((real) => (password, hash) => {
      hashes.push(hash);
      return real(password, hash);
    });
    for (const wrong of wrongLogins(team)) await logIn(wrong, worker);
    expect(hashes).toEqual([expect.stringMatching(/^\$scrypt\$/), null, null, null, null]);
  });

  test("waits in one of 16 turns, which its team shares with others whether they exist or not", async ({ team }) => {
    await newUser(team);
    const turns: string[] = [];
    const worker = startWorker((deps) => {
      const run = <T>(turn: string, hash: () => Promise<T>) => {
        turns.push(turn);
        return hash();
      };
      return { ...deps, hashQueue: { run } as Deps["hashQueue"] };
    });
    const known = async (teamId: string) => {
      turns.length = 0;
      await logIn({ ...right(team), teamId, password: "wrong" }, worker);
      return turns.join();
    };
    const own = await known(team.teamId);
    expect(own).toMatch(/^login\/[0-9a-f]$/);
    const others: string[] = [];
    for (let i = 0; i < 200; i++) others.push(await known(i.toString(16).padStart(24, "0")));
    expect(new Set(others).size).toBe(16);
    expect(others).toContain(own);
    expect(await known("no id of a team")).toMatch(/^login\/[0-9a-f]$/);
  });
});

describe("The session that a login returns", () => {
  test("is ended by a new password with its unfinished uploads, and the team's other keys are not", async () => {
    const team = await quickTeam();
    const role = "member";
    const [{ _id }] = [await newUser(team, { role }), await newUser(team, { email: "grace@example.com", role })];
    const [mine, hers] = [await newToken(team), await newToken(team, "grace@example.com")];
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { firstname: "Augusta" } });
    expect(await isAccepted(mine)).toBe(true);
    const uploads = [
      await createUpload(team.call, 9, {}, { token: mine }),
      await createUpload(team.call, 9, {}, { token: hers }),
    ];
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { password: "a new password" } });
    expect(await unfinished(team)).toEqual(uploads.slice(1).map(idOf));
    expect(await Promise.all([mine, hers, team.token].map(isAccepted))).toEqual([false, true, true]);
    expect((await logIn(right(team))).status).toBe(401);
    expect((await logIn({ ...right(team), password: "a new password" })).status).toBe(200);
  });

  test("outlives a new password that If-Match rejects", async ({ team }) => {
    const { _id } = await newUser(team);
    const key = await newToken(team);
    const stale = { json: { password: "a new password" }, headers: { "If-Match": '"7"' } };
    await rejected(team, 412, "version_mismatch", () => team.call("PATCH", `/auth/v1/users/${_id}`, stale));
    expect(await isAccepted(key)).toBe(true);
  });

  test("is revoked when the user is deleted", async ({ team }) => {
    const { _id } = await newUser(team);
    const key = await newToken(team);
    await team.call("DELETE", `/auth/v1/users/${_id}`);
    expect(await isAccepted(key)).toBe(false);
    expect((await logIn(right(team))).body.code).toBe("login_failed");
  });

  test.each([
    ["password is changed", "PATCH", { json: { password: "a new password" } }],
    ["user is deleted", "DELETE", {}],
  ])("is not created if the %s while the old password is checked", async (_, method, options) => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const changes: number[] = [];
    const worker = withPasswordCheck((real) => async (password, hash) => {
      const isRight = await real(password, hash);
      if (changes.length === 0) changes.push((await team.call(method, `/auth/v1/users/${_id}`, options)).status);
      return isRight;
    });
    const { status, body } = await logIn(right(team), worker);
    expect([status, body.code]).toEqual([401, "login_failed"]);
    expect(changes).toEqual([200]);
    expect(await keyIds(team)).toEqual([team.keyId]);
  });
});

describe("The session of a login", () => {
  /** Creates a team with a user who has logged in. */
  async function loggedIn() {
    const team = await quickTeam();
    const { _id: userId } = await newUser(team, { role: "admin" });
    return { team, userId, token: await newToken(team) };
  }

  test("creates keys that outlive a new password and are deleted with the user, as are the keys that they create", async () => {
    const { team, userId, token } = await loggedIn();
    const createKey = async (by: string): Promise<string> =>
      (await dataOf(call("POST", "/auth/v1/apikeys", { token: by, json: { name: "created" } }))).key;
    const child = await createKey(token);
    const grandchild = await createKey(child);
    await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { password: "a new password" } });
    expect(await Promise.all([token, child, grandchild].map(isAccepted))).toEqual([false, true, true]);
    await team.call("DELETE", `/auth/v1/users/${userId}`);
    expect(await Promise.all([child, grandchild, team.token].map(isAccepted))).toEqual([false, false, true]);
  });

  test("creates no key if its user is deleted at the same moment", async () => {
    const { team, userId, token } = await loggedIn();
    // The body is read after the caller is authorized.
    const body = pausedStream(['{"name":"late"}'], () => team.call("DELETE", `/auth/v1/users/${userId}`));
    const { code } = await call("POST", "/auth/v1/apikeys", {
      token,
      body,
      headers: { "Content-Type": "application/json" },
    });
    expect(code).toBe("token_invalid");
    expect((await team.call("GET", `/auth/v1/users/${userId}`)).code).toBe("not_found");
    expect(await keyIds(team)).toEqual([team.keyId]);
  });
});

describe("Logging in under a new master key", () => {
  const newMaster = btoa("fedcba9876543210fedcba9876543210");
  const under = (keys: string) => startWorker((deps) => ({ ...deps, secrets: loadSecrets(keys, deps.system) }));
  const [rotated, bare] = [under(`${newMaster},${env.MASTER_KEY}`), under(newMaster)];

  test("rehashes the password, after which the old master key can be removed", async ({ team }) => {
    await newUser(team);
    expect((await logIn(right(team), bare)).body.code).toBe("login_failed");
    const key = await newToken(team);
    expect((await logIn(right(team), rotated)).status).toBe(200);
    expect((await logIn(right(team), bare)).status).toBe(200);
    expect(await isAccepted(key)).toBe(true);
  });

  test("accepts several first logins in parallel", async ({ team }) => {
    await newUser(team);
    const answers = await Promise.all([1, 2, 3].map(() => logIn(right(team), rotated)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});

describe("The limit of ten failed logins a minute", () => {
  test.each([
    // It counts after the check, so that people behind one client IP don't wait for one another.
    ["IP address", (n: number) => `${n}@example.com`, 11],
    // These spellings are one account.
    ["account", (n: number) => ["unknown@example.com", "UNKNOWN@example.com", "ｕnknown@example.com"][n % 3], 10],
  ])("rejects the eleventh of an %s, and stops checking passwords", async (by, emailOf, checked) => {
    const team = await quickTeam();
    const shared = randomAddress();
    const clientIpOf = () => (by === "IP address" ? shared : randomAddress());
    let checks = 0;
    const verify = async () => {
      checks += 1;
      return false;
    };
    const { call: limited } = startLimited(
      {},
      checkingBy(() => verify),
    );
    const attempt = (n: number) =>
      limited("POST", "/auth/v1/login", { json: { ...right(team), email: emailOf(n) }, address: clientIpOf() });
    for (let n = 0; n < 10; n++) expect((await attempt(n)).code).toBe("login_failed");
    const answer = await attempt(10);
    expect([answer.status, answer.code]).toEqual([429, "rate_limited"]);
    expect(Number(answer.headers.get("Retry-After"))).toBeGreaterThan(0);
    expect((await attempt(11)).status).toBe(429);
    expect(checks).toBe(checked);
  });

  test("counts no login that succeeds: twelve of one account and client IP", async ({ team }) => {
    const { call: limited } = startLimited({});
    await newUser(team);
    const address = randomAddress();
    for (let i = 0; i < 12; i++) {
      expect((await limited("POST", "/auth/v1/login", { json: right(team), address })).status).toBe(200);
    }
  });

  test("counts no login of a suspended team, and none that the queue for hashing rejects", async () => {
    const given: string[] = [];
    const permit = { giveBack: () => given.push("back") };
    const counting = (change: Change) =>
      startWorker(
        compose(change, (deps) => ({ ...deps, limiter: { ...deps.limiter, takeLogin: async () => permit } })),
      );
    const team = await quickTeam();
    await newUser(team);
    const run = () => Promise.reject(new AppError("rate_limited"));
    const full = counting((deps) => ({ ...deps, hashQueue: { run } as unknown as Deps["hashQueue"] }));
    expect((await logIn(right(team), full)).code).toBe("rate_limited");
    await call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json: { status: "suspended" } });
    expect(
      (
        await logIn(
          right(team),
          counting((deps) => deps),
        )
      ).code,
    ).toBe("team_suspended");
    expect(given).toEqual(["back", "back"]);
    expect(
      (
        await logIn(
          { ...right(team), password: "wrong" },
          counting((deps) => deps),
        )
      ).code,
    ).toBe("login_failed");
    expect(given).toHaveLength(2);
  });

  test("locks the account for every client IP and its backend, also with the right password", async ({ team }) => {
    const { call: limited } = startLimited({});
    await newUser(team);
    const wrong = { ...right(team), password: "wrong" };
    for (let i = 0; i < 10; i++) {
      expect((await limited("POST", "/auth/v1/login", { json: wrong })).code).toBe("login_failed");
    }
    for (const token of [undefined, team.token]) {
      const answer = await limited("POST", "/auth/v1/login", { json: right(team), token });
      expect([answer.status, answer.code]).toEqual([429, "rate_limited"]);
    }
  });

  test("counts those that a backend sends with a secret key only for the account", async ({ team }) => {
    const { call: limited } = startLimited({});
    const address = randomAddress();
    const { key: token } = await newKey(team, { scopes: ["users:write"] });
    for (let i = 0; i < 12; i++) {
      const json = { ...right(team), email: `${i}@example.com` };
      const answer = await limited("POST", "/auth/v1/login", { json, token, address });
      expect([answer.status, answer.code]).toEqual([401, "login_failed"]);
    }
    await newUser(team);
    expect((await limited("POST", "/auth/v1/login", { json: right(team), address })).status).toBe(200);
  });

  test("counts those with any other token for the client IP too", async () => {
    const [team, other] = [await quickTeam(), await quickTeam()];
    const { _id } = await newUser(team, { role: "admin" });
    const counted: string[] = [];
    const counting = startWorker((deps) => {
      const failedLogin = async (clientIp: string) => counted.push(clientIp) > 0;
      return { ...deps, limiter: { ...deps.limiter, countFailedLogin: failedLogin } };
    });
    const tokens = [
      other.token,
      (await newKey(team, { scopes: ["users:read"] })).key,
      (await newKey(team, { isPublic: true })).key,
      await newSession(team, _id),
      OPERATOR,
      "not a token",
    ];
    for (const token of tokens) {
      const address = randomAddress();
      const json = { ...right(team), email: "unknown@example.com" };
      const answer = await counting.call("POST", "/auth/v1/login", { json, token, address });
      expect([answer.status, answer.code]).toEqual([401, "login_failed"]);
      expect(counted.at(-1)).toBe(address);
    }
    expect(counted).toHaveLength(tokens.length);
  });

  test("is one of 300 logins a minute of a client IP, whether they succeed or fail", async () => {
    const limited = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, countLogin: async () => false } }));
    const team = await quickTeam();
    await newUser(team);
    const answer = await logIn(right(team), limited);
    expect([answer.code, answer.headers.get("RateLimit-Policy")]).toEqual(["rate_limited", '"client-ip";q=300;w=60']);
    const asBackend = await limited.call("POST", "/auth/v1/login", { json: right(team), token: team.token });
    expect(asBackend.status).toBe(200);
  });
});

describe("A login that a backend sends", () => {
  test("is rejected above the light requests of its team, and not taken for one without a backend", async ({
    team,
  }) => {
    const { call: limited } = startLimited({ LIGHT_LIMIT: 1 });
    await newUser(team);
    const asBackend = () => limited("POST", "/auth/v1/login", { json: right(team), token: team.token });
    expect((await asBackend()).status).toBe(200);
    // The first one above the limit is authorized before it is rejected. From then on, the isolate knows.
    for (const knows of [false, true]) {
      const answer = await asBackend();
      expect([answer.status, answer.code], `knows: ${knows}`).toEqual([429, "rate_limited"]);
      expect(answer.headers.get("RateLimit-Policy")).toMatch(/^"light";/);
    }
    expect((await logIn(right(team), { call: limited })).status).toBe(200);
  });

  test("is tried once, also if its rejection is one that an invalid token can have", async ({ team }) => {
    const [other, accounts] = [await quickTeam(), [] as string[]];
    await newUser(team);
    await call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json: { status: "suspended" } });
    const counting = startWorker((deps) => {
      const takeLogin = (account: string) => deps.limiter.takeLogin(accounts[accounts.push(account) - 1] ?? "");
      return { ...deps, limiter: { ...deps.limiter, takeLogin } };
    });
    const answer = await counting.call("POST", "/auth/v1/login", { json: right(team), token: other.token });
    expect(answer.code).toBe("team_suspended");
    expect(accounts).toHaveLength(1);
  });
});

const SESSIONS = "/auth/v1/sessions";

const create = (token: string) => call("POST", SESSIONS, { token });

/** Begins an upload. @returns its id */
async function reserve(token: string): Promise<string> {
  const answer = await createUpload(call, 9, {}, { token });
  expect(answer.status).toBe(201);
  return idOf(answer);
}
/** A canceled one is listed, too, until its bytes are deleted. */
const unfinished = async (team: Team) =>
  idsIn((await read(team, RESUMABLE)).filter(({ status }: { status: string }) => status !== "canceled"));
const historyOf = async (team: Team, id: string) =>
  (await eventsOf(team, `subject=${id}`)).map(({ type, subject }: { type: string; subject: { kind: string } }) => [
    type,
    subject.kind,
  ]);

describe("A session of a secret key", () => {
  test("expires after `expiresIn`, as does the session of a login, and its token has its own prefix", async ({
    team,
  }) => {
    await newUser(team, { email: "long@example.com", password: PASSWORD });
    const account = { ...right(team), email: "long@example.com" };
    const begin = {
      session: (json: object) => team.call("POST", "/auth/v1/sessions", { json }),
      login: (json: object) => logIn({ ...account, ...json }),
    };
    for (const start of Object.values(begin)) {
      for (const [json, seconds] of [
        [{}, 43_200],
        [{ expiresIn: 300 }, 300],
        [{ expiresIn: 2_592_000 }, 2_592_000],
      ] as const) {
        const { key, createdAt, expiresAt } = await dataOf(start(json));
        expect(Date.parse(expiresAt) - Date.parse(createdAt)).toBe(seconds * 1000);
        expect(key).toMatch(/^stow_ss_[0-9A-Za-z]{40}$/);
        expect((await team.call("GET", "/auth/v1/me", { token: key })).body.data.kind).toBe("session");
      }
      for (const expiresIn of [299, 2_592_001, 300.5, "300", null]) {
        await rejected(team, 400, "invalid_input", () => start({ expiresIn }), ["expiresIn"]);
      }
    }
  });

  test("has the key's name, team and scopes for 12 hours, and is listed among sessions but not among keys", async () => {
    const team = await newTeam();
    const key = await newKey(team, { name: "desk" });
    const session = await openSession(key.key);
    expect(session).toMatchObject({ name: "desk", teamId: team.teamId, isPublic: false });
    expect(Date.parse(session.expiresAt) - Date.parse(session.createdAt)).toBe(12 * HOUR);
    const { id: _id, createdAt, expiresAt } = session;
    const createdBy = { keyId: key.id, userId: null };
    expect(await read(team, SESSIONS)).toEqual([
      { _id, userId: null, createdBy, createdAt, expiresAt, lastUsedAt: null, userAgent: null },
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
    const { _id: userId, email } = await newUser(team, { role: "admin" });
    const key = await dataOf(call("POST", KEYS, { token: await newToken(team, email), json: { name: "narrow" } }));
    await DB.prepare("update api_keys set scopes = 2 where id = ?").bind(key.id).run();
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
    await insertMany(
      MAX_KEY_SESSIONS - 2,
      `insert into api_keys (id, team_id, uuid, name, kind, scopes, token_hash, created_by_key_id, lifetime_milliseconds, created_at,
         expires_at) select ?2 || i, ?2, '', '', 'session', 0, ?2 || i, ?3, 1, 1, 4e12 from n`,
      team.teamId,
      team.keyId,
    );
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
    await DB.prepare("update api_keys set scopes = 256 where id = ?").bind(narrow.id).run();
    const [wide, own] = [await openSession(team.token), await openSession(narrow.key)];
    const revoke = (id: string) => call("DELETE", `${SESSIONS}/${id}`, { token: narrow.key });
    await reserve(wide.key);
    await rejected(team, 403, "insufficient_scope", () => revoke(wide.id));
    expect([(await revoke(own.id)).status, (await unfinished(team)).length]).toEqual([200, 1]);
  });

  test("revoking a session or key that is gone responds 404 and cancels no upload", async () => {
    const team = await newTeam();
    for (const [path, { id, key }] of [
      [SESSIONS, await openSession(team.token)],
      [KEYS, await newKey(team)],
    ] as const) {
      const kept = await reserve(key);
      await DB.prepare("delete from api_keys where id = ?").bind(id).run();
      await rejected(team, 404, "not_found", () => team.call("DELETE", `${path}/${id}`));
      expect(await unfinished(team)).toContain(kept);
    }
  });

  test("logging out is rejected for API keys and the operator", async () => {
    const team = await newTeam();
    for (const token of [team.token, OPERATOR]) {
      await rejected(team, 403, "forbidden", () => call("POST", "/auth/v1/logout", { token }));
    }
  });
});

describe("The last use of a session or key", () => {
  const lastUses = async (team: Team) => {
    const { results } = await DB.prepare("select kind, last_used_at as at from api_keys where team_id = ? order by id")
      .bind(team.teamId)
      .all<{ kind: string; at: number | null }>();
    return Object.fromEntries(results.map(({ kind, at }) => [kind, at]));
  };
  /** Starts a Worker with a separate clock, and counts its calls to D1. */
  function workerAt(now: () => number) {
    const bindings = new ProxiedBindings();
    const { BUCKET, JOBS } = env;
    const wrapped = bindings.wrap({ ...DATABASES, BUCKET, JOBS });
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
    // The isolate authorizes the session, reads, and then notes the use.
    const failing = new ProxiedBindings({ binding: "D1", call: 3, moment: "before", failure: "outage" });
    const { BUCKET, JOBS } = env;
    const wrapped = failing.wrap({ ...DATABASES, BUCKET, JOBS });
    const { call } = startWorker((deps) => withBindings({ ...deps, notedUses: new Lru<number>(2) }, wrapped));
    expect((await call("GET", "/docs/v1/uploads", { token })).status).toBe(200);
    expect(failing.isBroken).toBe(true);
    expect((await lastUses(team)).session).toBeNull();
  });
});
