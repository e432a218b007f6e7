import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import type { Deps } from "../support/deps.ts";
import {
  type Call,
  call,
  fieldsOf,
  newTeam,
  newUser,
  OPERATOR,
  PASSWORD,
  randomAddress,
  rejected,
  startWorker,
  type Team,
  withinOneMinute,
} from "../support/harness.ts";

const EMAIL = "ada@example.com";
const HOUR_MILLISECONDS = 60 * 60 * 1000;

/** scrypt is slow on purpose: here each hash and each check is computed once. */
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
const withoutRequestId = (text: string) => text.replace(/"requestId":"[^"]+"/, "");

/** A Worker whose password check is watched, and may be made cheap. */
function watching(verify: (real: Deps["secrets"]["verifyPassword"]) => Deps["secrets"]["verifyPassword"]) {
  return startWorker((deps) => {
    const verifyPassword = verify((password, hash) => deps.secrets.verifyPassword(password, hash));
    return { ...deps, secrets: { ...deps.secrets, verifyPassword } };
  });
}

async function isAlive(token: string): Promise<boolean> {
  const { status } = await call("GET", "/auth/v1/users", { token });
  expect([200, 401]).toContain(status);
  return status === 200;
}

describe("Logging in", () => {
  test("A login gives a secret key of the team, named after the user, for 12 hours.", async () => {
    const team = await newTeam();
    await newUser(team, { firstName: "Ada", lastName: "Lovelace" });
    const { status, body } = await logIn(right(team), { call });
    expect(status).toBe(200);
    expect(fieldsOf(body)).toEqual(["data", "message"]);
    const fields = ["_id", "createdAt", "expiresAt", "id", "isPublic", "key", "name", "teamId", "uuid"];
    expect(fieldsOf(body.data)).toEqual(fields);
    expect(body.data).toMatchObject({ name: "Ada Lovelace", teamId: team.teamId, isPublic: false });
    expect(Date.parse(body.data.expiresAt) - Date.parse(body.data.createdAt)).toBe(12 * HOUR_MILLISECONDS);
    expect(await isAlive(body.data.key)).toBe(true);
  });

  test("The key of a login is refused after those 12 hours.", async () => {
    const team = await quickTeam();
    await newUser(team);
    const { key: token, expiresAt } = (await logIn(right(team))).body.data;
    const at = (now: number) => startWorker((deps) => ({ ...deps, system: { ...deps.system, now: () => now } }));
    expect((await at(Date.parse(expiresAt) - 1).call("GET", "/auth/v1/users", { token })).status).toBe(200);
    expect((await at(Date.parse(expiresAt)).call("GET", "/auth/v1/users", { token })).status).toBe(401);
  });

  test("A login takes the email in any case and the password in any normal form, and names a nameless user by email.", async () => {
    const team = await quickTeam();
    await newUser(team, { email: "Ada@Example.com", password: "Ångström-ﬁle" });
    const { status, body } = await logIn({ teamId: team.teamId, email: EMAIL, password: "A\u030angstro\u0308m-file" });
    expect([status, body.data?.name]).toEqual([200, "Ada@Example.com"]);
  });

  test.each(["teamId", "email", "password"])("A login without %s is refused.", async (field) => {
    const team = await quickTeam();
    const json = { ...right(team), [field]: undefined };
    await rejected(team, 400, "invalid_input", () => logIn(json), [field]);
  });
});

describe("A wrong password, an unknown email and an unknown team", () => {
  const wrongs = (team: Team) => [
    { ...right(team), password: "wrong" },
    { ...right(team), email: "grace@example.com" },
    { ...right(team), teamId: "0193477be89f4d2e6b8a0c13" },
    { ...right(team), teamId: "nonsense" },
    { ...right(team), teamId: "' or 1=1 --" },
  ];

  test("A failed login gets the same answer, byte for byte, and no key.", async () => {
    const team = await quickTeam();
    await newUser(team);
    const texts = new Set<string>();
    const headers = new Set<string>();
    for (const wrong of wrongs(team)) {
      const answer = await rejected(team, 401, "login_failed", () => logIn(wrong));
      texts.add(withoutRequestId(answer.text));
      answer.headers.delete("X-Request-Id");
      headers.add(JSON.stringify([...answer.headers]));
    }
    expect([texts.size, headers.size]).toEqual([1, 1]);
  });

  test("A failed login costs one password check, with or without a user.", async () => {
    const team = await quickTeam();
    await newUser(team);
    const hashes: (string | null)[] = [];
    const worker = watching((real) => (password, hash) => {
      hashes.push(hash);
      return real(password, hash);
    });
    for (const wrong of wrongs(team)) await logIn(wrong, worker);
    expect(hashes).toEqual([expect.stringMatching(/^\$scrypt\$/), null, null, null, null]);
  });
});

describe("The hash of a password", () => {
  test("A login is not to be had with the hash that the interface shows.", async () => {
    const team = await newTeam();
    const user = await newUser(team);
    expect((await logIn({ teamId: team.teamId, email: user.email, password: user.password })).body.code).toBe(
      "login_failed",
    );
  });
});

describe("The key of a login", () => {
  test("The key of a login dies with a change of password, and the team's other keys do not.", async () => {
    const team = await quickTeam();
    const [{ _id }] = [await newUser(team), await newUser(team, { email: "grace@example.com" })];
    const mine = (await logIn(right(team))).body.data.key;
    const hers = (await logIn({ ...right(team), email: "grace@example.com" })).body.data.key;
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { firstname: "Augusta" } });
    expect(await isAlive(mine)).toBe(true);
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { password: "a new password" } });
    expect([await isAlive(mine), await isAlive(hers), await isAlive(team.token)]).toEqual([false, true, true]);
    expect((await logIn(right(team))).status).toBe(401);
    expect((await logIn({ ...right(team), password: "a new password" })).status).toBe(200);
  });

  test("The key of a login outlives a change of password that If-Match refused.", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const { key } = (await logIn(right(team))).body.data;
    const stale = { json: { password: "a new password" }, headers: { "If-Match": '"7"' } };
    await rejected(team, 412, "version_mismatch", () => team.call("PATCH", `/auth/v1/users/${_id}`, stale));
    expect(await isAlive(key)).toBe(true);
  });

  test("The key of a login dies with the user.", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const { key } = (await logIn(right(team))).body.data;
    await team.call("DELETE", `/auth/v1/users/${_id}`);
    expect(await isAlive(key)).toBe(false);
    expect((await logIn(right(team))).body.code).toBe("login_failed");
  });

  test("The key of a login is logged out by deleting itself.", async () => {
    const team = await quickTeam();
    await newUser(team);
    const { key: token, id } = (await logIn(right(team))).body.data;
    expect((await call("DELETE", `/auth/v1/apikeys/${id}`, { token })).status).toBe(200);
    expect(await isAlive(token)).toBe(false);
  });

  test.each([
    ["password is changed", "PATCH", { json: { password: "a new password" } }],
    ["user is deleted", "DELETE", {}],
  ])("The key of a login is never made where the %s while the old password is checked.", async (_, method, options) => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const changes: number[] = [];
    const worker = watching((real) => async (password, hash) => {
      const isRight = await real(password, hash);
      if (changes.length === 0) changes.push((await team.call(method, `/auth/v1/users/${_id}`, options)).status);
      return isRight;
    });
    const { status, body } = await logIn(right(team), worker);
    expect([status, body.code]).toEqual([401, "login_failed"]);
    expect(changes).toEqual([200]);
    const keys = await team.call("GET", "/auth/v1/apikeys");
    expect(keys.body.data.map(({ id }: { id: string }) => id)).toEqual([team.keyId]);
  });
});

describe("A login key", () => {
  /** A team with a user who has logged in. */
  async function loggedIn() {
    const team = await quickTeam();
    const { _id: userId } = await newUser(team);
    const { key: token, id } = (await logIn(right(team))).body.data;
    return { team, userId, token: token as string, id: id as string };
  }

  test("is not listed, and its token is never shown again, not even to itself", async () => {
    const { team, id, token } = await loggedIn();
    const path = `/auth/v1/apikeys/${id}`;
    for (const caller of [token, team.token, OPERATOR]) {
      expect((await call("GET", `/auth/v1/apikeys`, { token: caller })).text).not.toContain(id);
      expect((await call("GET", path, { token: caller })).body.data).toMatchObject({ id, key: "" });
    }
    const { status, body } = await team.call("DELETE", path);
    expect([status, body.data.id, body.data.key]).toEqual([200, id, ""]);
    expect(await isAlive(token)).toBe(false);
  });

  test("creates keys that outlive a new password and are deleted with the user, as are the keys that they create", async () => {
    const { team, userId, token } = await loggedIn();
    const create = async (by: string) =>
      (await call("POST", "/auth/v1/apikeys", { token: by, json: { name: "made" } })).body.data.key as string;
    const child = await create(token);
    const grandchild = await create(child);
    await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { password: "a new password" } });
    expect([await isAlive(token), await isAlive(child), await isAlive(grandchild)]).toEqual([false, true, true]);
    await team.call("DELETE", `/auth/v1/users/${userId}`);
    expect([await isAlive(child), await isAlive(grandchild), await isAlive(team.token)]).toEqual([false, false, true]);
  });

  test("creates no key if its user is deleted at the same moment", async () => {
    const { team, userId, token } = await loggedIn();
    const body = new ReadableStream<Uint8Array>(
      {
        // The body is read after the caller is authorized.
        async pull(controller) {
          expect((await team.call("DELETE", `/auth/v1/users/${userId}`)).status).toBe(200);
          controller.enqueue(new TextEncoder().encode('{"name":"late"}'));
          controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    const headers = { "Content-Type": "application/json" };
    const { status, code } = await call("POST", "/auth/v1/apikeys", { token, body, headers });
    expect([status, code]).toEqual([401, "token_invalid"]);
    const { body: list } = await team.call("GET", "/auth/v1/apikeys");
    expect(list.data.map(({ id }: { id: string }) => id)).toEqual([team.keyId]);
  });
});

describe("After a change of the master key", () => {
  const newMaster = btoa("fedcba9876543210fedcba9876543210");
  const under = (keys: string) => startWorker((deps) => ({ ...deps, secrets: loadSecrets(keys, deps.system) }));
  const [rotated, bare] = [under(`${newMaster},${env.MASTER_KEY}`), under(newMaster)];

  test("A login moves the password to the new master key, after which the old one can go.", async () => {
    const team = await quickTeam();
    await newUser(team);
    expect((await logIn(right(team), bare)).body.code).toBe("login_failed");
    const { key } = (await logIn(right(team))).body.data;
    expect((await logIn(right(team), rotated)).status).toBe(200);
    expect((await logIn(right(team), bare)).status).toBe(200);
    expect(await isAlive(key)).toBe(true);
  });

  test("The first logins under a new master key may come at once.", async () => {
    const team = await quickTeam();
    await newUser(team);
    const answers = await Promise.all([1, 2, 3].map(() => logIn(right(team), rotated)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});

const always = (value: string) => () => value;

describe("The limit of ten logins a minute", () => {
  test.each([
    ["address", (n: number) => `${n}@example.com`],
    // Look-alikes are one account.
    ["account", (n: number) => ["nobody@example.com", "NOBODY@example.com", "ｎobody@example.com"][n % 3]],
  ])("An %s may try ten logins a minute, before the password is looked at.", async (by, emailOf) => {
    const counts = await withinOneMinute(async () => {
      const team = await quickTeam();
      const addressOf = by === "address" ? always(randomAddress()) : randomAddress;
      let checks = 0;
      const { call: callCheaply } = watching(() => async () => {
        checks += 1;
        return false;
      });
      const attempt = (n: number) =>
        callCheaply("POST", "/auth/v1/login", { json: { ...right(team), email: emailOf(n) }, address: addressOf() });
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
