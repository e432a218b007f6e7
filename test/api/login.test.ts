import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import type { Deps } from "../support/deps.ts";
import {
  type Call,
  call,
  dataOf,
  EMAIL,
  fieldsOf,
  idsIn,
  isAccepted,
  newKey,
  newTeam,
  newUser,
  PASSWORD,
  pausedStream,
  randomAddress,
  read,
  rejected,
  startWorker,
  type Team,
  withinOneMinute,
  withoutRequestId,
} from "../support/harness.ts";
import { create, idOf, RESUMABLE } from "../support/tus.ts";

/** Computes each hash and each check once, because scrypt is slow on purpose. */
const computed = new Map<string, Promise<unknown>>();
function once<A extends unknown[], R>(work: (...values: A) => Promise<R>): (...values: A) => Promise<R> {
  return (...values) => {
    const name = JSON.stringify(values);
    const result = computed.get(name) ?? work(...values);
    computed.set(name, result);
    return result as Promise<R>;
  };
}
const quick = startWorker((deps) => {
  const { hashPassword, verifyPassword } = deps.secrets;
  const secrets = { ...deps.secrets, hashPassword: once(hashPassword), verifyPassword: once(verifyPassword) };
  return { ...deps, secrets };
});
const quickTeam = () => newTeam(quick);

const right = ({ teamId }: Team) => ({ teamId, email: EMAIL, password: PASSWORD });
const logIn = (json: object, worker: { call: Call } = quick) => worker.call("POST", "/auth/v1/login", { json });
const newToken = async (team: Team, email = EMAIL): Promise<string> =>
  (await dataOf(logIn({ ...right(team), email }))).key;
const keyIds = async (team: Team) => idsIn(await read(team, "/auth/v1/apikeys"));

/** Starts a Worker whose password check a test observes or replaces. */
function withPasswordCheck(verify: (real: Deps["secrets"]["verifyPassword"]) => Deps["secrets"]["verifyPassword"]) {
  return startWorker((deps) => {
    const verifyPassword = verify((password, hash) => deps.secrets.verifyPassword(password, hash));
    return { ...deps, secrets: { ...deps.secrets, verifyPassword } };
  });
}

describe("Logging in", () => {
  test("returns a session of the team for 12 hours, in the shape of a secret key, named after the user", async () => {
    const team = await newTeam();
    await newUser(team, { firstName: "Ada", lastName: "Lovelace" });
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

describe("A failed login", () => {
  const wrongLogins = (team: Team) => [
    { ...right(team), password: "wrong" },
    { ...right(team), email: "grace@example.com" },
    { ...right(team), teamId: "0193477be89f4d2e6b8a0c13" },
    { ...right(team), teamId: "nonsense" },
    { ...right(team), teamId: "' or 1=1 --" },
  ];

  test("gets the same bytes for a wrong password, an unknown email and an unknown team", async () => {
    const team = await quickTeam();
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

  test("costs one password check, with or without a user", async () => {
    const team = await quickTeam();
    await newUser(team);
    const hashes: (string | null)[] = [];
    const worker = withPasswordCheck((real) => (password, hash) => {
      hashes.push(hash);
      return real(password, hash);
    });
    for (const wrong of wrongLogins(team)) await logIn(wrong, worker);
    expect(hashes).toEqual([expect.stringMatching(/^\$scrypt\$/), null, null, null, null]);
  });
});

describe("The session that a login returns", () => {
  test("is ended by a new password with its unfinished uploads, and the team's other keys are not", async () => {
    const team = await quickTeam();
    const [{ _id }] = [await newUser(team), await newUser(team, { email: "grace@example.com" })];
    const [mine, hers] = [await newToken(team), await newToken(team, "grace@example.com")];
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { firstname: "Augusta" } });
    expect(await isAccepted(mine)).toBe(true);
    const uploads = [await create(team.call, 9, {}, { token: mine }), await create(team.call, 9, {}, { token: hers })];
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { password: "a new password" } });
    expect(idsIn(await read(team, RESUMABLE))).toEqual(uploads.slice(1).map(idOf));
    expect(await Promise.all([mine, hers, team.token].map(isAccepted))).toEqual([false, true, true]);
    expect((await logIn(right(team))).status).toBe(401);
    expect((await logIn({ ...right(team), password: "a new password" })).status).toBe(200);
  });

  test("outlives a new password that If-Match rejects", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const key = await newToken(team);
    const stale = { json: { password: "a new password" }, headers: { "If-Match": '"7"' } };
    await rejected(team, 412, "version_mismatch", () => team.call("PATCH", `/auth/v1/users/${_id}`, stale));
    expect(await isAccepted(key)).toBe(true);
  });

  test("is revoked when the user is deleted", async () => {
    const team = await quickTeam();
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

describe("A login's session", () => {
  /** Creates a team with a user who has logged in. */
  async function loggedIn() {
    const team = await quickTeam();
    const { _id: userId } = await newUser(team);
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

  test("rehashes the password, after which the old master key can be removed", async () => {
    const team = await quickTeam();
    await newUser(team);
    expect((await logIn(right(team), bare)).body.code).toBe("login_failed");
    const key = await newToken(team);
    expect((await logIn(right(team), rotated)).status).toBe(200);
    expect((await logIn(right(team), bare)).status).toBe(200);
    expect(await isAccepted(key)).toBe(true);
  });

  test("accepts several first logins in parallel", async () => {
    const team = await quickTeam();
    await newUser(team);
    const answers = await Promise.all([1, 2, 3].map(() => logIn(right(team), rotated)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});

describe("The limit of ten logins a minute", () => {
  test.each([
    ["IP address", (n: number) => `${n}@example.com`],
    // These spellings are one account.
    ["account", (n: number) => ["unknown@example.com", "UNKNOWN@example.com", "ｕnknown@example.com"][n % 3]],
  ])("rejects the eleventh attempt of an %s before checking the password", async (by, emailOf) => {
    const counts = await withinOneMinute(async () => {
      const team = await quickTeam();
      const clientIpOf =
        by === "IP address"
          ? (
              (address) => () =>
                address
            )(randomAddress())
          : randomAddress;
      let checks = 0;
      const { call: callCheaply } = withPasswordCheck(() => async () => {
        checks += 1;
        return false;
      });
      const attempt = (n: number) =>
        callCheaply("POST", "/auth/v1/login", { json: { ...right(team), email: emailOf(n) }, address: clientIpOf() });
      let passed = 0;
      let answer = await attempt(passed);
      for (; answer.status === 401; answer = await attempt(passed)) passed += 1;
      expect([answer.status, answer.body.code]).toEqual([429, "rate_limited"]);
      expect(Number(answer.headers.get("Retry-After"))).toBeGreaterThan(0);
      return { passed, checks };
    });
    expect(counts).toEqual({ passed: 10, checks: 10 });
  });
});
