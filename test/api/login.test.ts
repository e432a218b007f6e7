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
  PASSWORD,
  randomAddress,
  rejected,
  startWorker,
  type Team,
  withinOneMinute,
} from "../support/harness.ts";

const EMAIL = "ada@example.com";
const HOUR_MILLISECONDS = 60 * 60 * 1000;

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
const withoutRequestId = (text: string) => text.replace(/"requestId":"[^"]+"/, "");

/** Starts a Worker whose password check a test observes or replaces. */
function withPasswordCheck(verify: (real: Deps["secrets"]["verifyPassword"]) => Deps["secrets"]["verifyPassword"]) {
  return startWorker((deps) => {
    const verifyPassword = verify((password, hash) => deps.secrets.verifyPassword(password, hash));
    return { ...deps, secrets: { ...deps.secrets, verifyPassword } };
  });
}

async function isValid(token: string): Promise<boolean> {
  const { status } = await call("GET", "/auth/v1/users", { token });
  expect([200, 401]).toContain(status);
  return status === 200;
}

describe("Logging in", () => {
  test("returns a session of the team for 12 hours, in the shape of a secret key, named after the user", async () => {
    const team = await newTeam();
    await newUser(team, { firstName: "Ada", lastName: "Lovelace" });
    const { status, body } = await logIn(right(team), { call });
    expect(status).toBe(200);
    expect(fieldsOf(body)).toEqual(["data", "message"]);
    const fields = [
      ...["_id", "createdAt", "createdBy", "expiresAt", "id", "isPublic", "key", "lastUsedAt", "limits", "name"],
      ...["scopes", "teamId", "uuid"],
    ];
    expect(fieldsOf(body.data)).toEqual(fields);
    expect(body.data).toMatchObject({ name: "Ada Lovelace", teamId: team.teamId, isPublic: false });
    expect(Date.parse(body.data.expiresAt) - Date.parse(body.data.createdAt)).toBe(12 * HOUR_MILLISECONDS);
    expect(await isValid(body.data.key)).toBe(true);
  });

  test("returns a session that is rejected after those 12 hours", async () => {
    const team = await quickTeam();
    await newUser(team);
    const { key: token, expiresAt } = (await logIn(right(team))).body.data;
    const at = (now: number) => startWorker((deps) => ({ ...deps, system: { ...deps.system, now: () => now } }));
    expect((await at(Date.parse(expiresAt) - 1).call("GET", "/auth/v1/users", { token })).status).toBe(200);
    expect((await at(Date.parse(expiresAt)).call("GET", "/auth/v1/users", { token })).status).toBe(401);
  });

  test("accepts any case of the email and any normal form of the password, and names a user without a name by email", async () => {
    const team = await quickTeam();
    await newUser(team, { email: "Ada@Example.com", password: "Ångström-ﬁle" });
    const { status, body } = await logIn({ teamId: team.teamId, email: EMAIL, password: "A\u030angstro\u0308m-file" });
    expect([status, body.data?.name]).toEqual([200, "Ada@Example.com"]);
  });

  test.each(["teamId", "email", "password"])("rejects a body without %s", async (field) => {
    const team = await quickTeam();
    const json = { ...right(team), [field]: undefined };
    await rejected(team, 400, "invalid_input", () => logIn(json), [field]);
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

describe("The stored hash of a password", () => {
  test("is rejected as a password", async () => {
    const team = await newTeam();
    const user = await newUser(team);
    expect((await logIn({ teamId: team.teamId, email: user.email, password: user.password })).body.code).toBe(
      "login_failed",
    );
  });
});

describe("The session that a login returns", () => {
  test("is ended by a new password with its unfinished uploads, and the team's other keys are not", async () => {
    const team = await quickTeam();
    const [{ _id }] = [await newUser(team), await newUser(team, { email: "grace@example.com" })];
    const mine = (await logIn(right(team))).body.data.key;
    const hers = (await logIn({ ...right(team), email: "grace@example.com" })).body.data.key;
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { firstname: "Augusta" } });
    expect(await isValid(mine)).toBe(true);
    const reserve = (token: string) =>
      team.call("POST", "/docs/v1/uploads/resumable", {
        token,
        headers: { "Tus-Resumable": "1.0.0", "Upload-Length": "9" },
      });
    const [own, others] = [await reserve(mine), await reserve(hers)];
    await team.call("PATCH", `/auth/v1/users/${_id}`, { json: { password: "a new password" } });
    const unfinished = await team.call("GET", "/docs/v1/uploads/resumable");
    expect([own.status, unfinished.body.data.map((upload: { _id: string }) => upload._id)]).toEqual([
      201,
      [others.headers.get("Content-Location")?.split("/").at(-1)],
    ]);
    expect([await isValid(mine), await isValid(hers), await isValid(team.token)]).toEqual([false, true, true]);
    expect((await logIn(right(team))).status).toBe(401);
    expect((await logIn({ ...right(team), password: "a new password" })).status).toBe(200);
  });

  test("outlives a new password that If-Match rejects", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const { key } = (await logIn(right(team))).body.data;
    const stale = { json: { password: "a new password" }, headers: { "If-Match": '"7"' } };
    await rejected(team, 412, "version_mismatch", () => team.call("PATCH", `/auth/v1/users/${_id}`, stale));
    expect(await isValid(key)).toBe(true);
  });

  test("is revoked when the user is deleted", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const { key } = (await logIn(right(team))).body.data;
    await team.call("DELETE", `/auth/v1/users/${_id}`);
    expect(await isValid(key)).toBe(false);
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
    const keys = await team.call("GET", "/auth/v1/apikeys");
    expect(keys.body.data.map(({ id }: { id: string }) => id)).toEqual([team.keyId]);
  });
});

describe("A login's session", () => {
  /** Creates a team with a user who has logged in. */
  async function loggedIn() {
    const team = await quickTeam();
    const { _id: userId } = await newUser(team);
    const { key: token, id } = (await logIn(right(team))).body.data;
    return { team, userId, token: token as string, id: id as string };
  }

  test("creates keys that outlive a new password and are deleted with the user, as are the keys that they create", async () => {
    const { team, userId, token } = await loggedIn();
    const createKey = async (by: string) =>
      (await call("POST", "/auth/v1/apikeys", { token: by, json: { name: "created" } })).body.data.key as string;
    const child = await createKey(token);
    const grandchild = await createKey(child);
    await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { password: "a new password" } });
    expect([await isValid(token), await isValid(child), await isValid(grandchild)]).toEqual([false, true, true]);
    await team.call("DELETE", `/auth/v1/users/${userId}`);
    expect([await isValid(child), await isValid(grandchild), await isValid(team.token)]).toEqual([false, false, true]);
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

describe("Logging in under a new master key", () => {
  const newMaster = btoa("fedcba9876543210fedcba9876543210");
  const under = (keys: string) => startWorker((deps) => ({ ...deps, secrets: loadSecrets(keys, deps.system) }));
  const [rotated, bare] = [under(`${newMaster},${env.MASTER_KEY}`), under(newMaster)];

  test("rehashes the password, after which the old master key can be removed", async () => {
    const team = await quickTeam();
    await newUser(team);
    expect((await logIn(right(team), bare)).body.code).toBe("login_failed");
    const { key } = (await logIn(right(team))).body.data;
    expect((await logIn(right(team), rotated)).status).toBe(200);
    expect((await logIn(right(team), bare)).status).toBe(200);
    expect(await isValid(key)).toBe(true);
  });

  test("accepts several first logins in parallel", async () => {
    const team = await quickTeam();
    await newUser(team);
    const answers = await Promise.all([1, 2, 3].map(() => logIn(right(team), rotated)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});

const always = (value: string) => () => value;

describe("The limit of ten logins a minute", () => {
  test.each([
    ["IP address", (n: number) => `${n}@example.com`],
    // These spellings are one account.
    ["account", (n: number) => ["unknown@example.com", "UNKNOWN@example.com", "ｕnknown@example.com"][n % 3]],
  ])("rejects the eleventh attempt of an %s before checking the password", async (by, emailOf) => {
    const counts = await withinOneMinute(async () => {
      const team = await quickTeam();
      const clientIpOf = by === "IP address" ? always(randomAddress()) : randomAddress;
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
