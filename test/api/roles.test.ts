import { beforeAll, describe, expect, test } from "vitest";
import {
  call,
  dataOf,
  EMAIL,
  eventsOf,
  isAccepted,
  logIn,
  newKey,
  newMember,
  newSession,
  newTeam,
  newUser,
  OPERATOR,
  PASSWORD,
  read,
  rejected,
  startWorker,
  type Team,
  withoutHashing,
} from "../support/harness.ts";

/* Roles of users: who may give and take them, and what they mean to a session. What each scope allows is tested in authorization.test.ts. */

const quickTeam = () => newTeam(startWorker(withoutHashing));
const roleOf = async (team: Team, id: string) => (await read(team, `/auth/v1/users/${id}`)).role;

describe("The role of a new user", () => {
  test("is admin by default for a caller with all scopes", async () => {
    expect(await newUser(await quickTeam())).toMatchObject({ role: "admin" });
  });

  test.each([
    [
      "member",
      ["users:write", "files:upload", "files:read", "files:download", "files:write", "files:delete", "events:read"],
    ],
    ["viewer", ["users:write", "files:read", "files:download", "events:read"]],
  ])("is %s by default if that is the highest role that the caller covers", async (role, scopes) => {
    const team = await quickTeam();
    const { key: token } = await newKey(team, { scopes });
    const json = { email: "a@b.de", password: PASSWORD };
    expect((await team.call("POST", "/auth/v1/users", { json, token })).body.data.role).toBe(role);
    const wider = { ...json, email: "b@b.de", role: "admin" };
    await rejected(team, 403, "insufficient_scope", () => team.call("POST", "/auth/v1/users", { json: wider, token }));
  });

  test("must be covered by the caller", async () => {
    const team = await quickTeam();
    const { key: token } = await newKey(team, { scopes: ["users:write"] });
    const json = { email: "a@b.de", password: PASSWORD };
    const { headers } = await rejected(team, 403, "insufficient_scope", () =>
      team.call("POST", "/auth/v1/users", { json, token }),
    );
    expect(headers.get("WWW-Authenticate")).toBe('Bearer error="insufficient_scope", scope="files:read"');
  });
});

describe("A caller that doesn't cover a user's role", () => {
  let team: Team;
  let token: string;
  let admin: string;
  beforeAll(async () => {
    team = await newTeam();
    const scopes = ["users:read", "users:write", "files:read", "files:download", "events:read"];
    token = (await newKey(team, { scopes })).key;
    admin = (await newMember(team, "admin")).id;
  });

  test.each<[string, string, object]>([
    ["rename", "PATCH", { firstName: "Ada" }],
    ["demote", "PATCH", { role: "viewer" }],
    ["set the password of", "PATCH", { password: "staple horse battery" }],
    ["delete", "DELETE", {}],
  ])("can't %s the user", async (_, method, json) => {
    const path = `/auth/v1/users/${admin}`;
    const options = method === "PATCH" ? { json, token } : { token };
    await rejected(team, 403, "insufficient_scope", () => team.call(method, path, options));
  });

  test("can't promote a user whose role it covers", async () => {
    const { id } = await newMember(team, "viewer");
    const act = () => team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "member" }, token });
    await rejected(team, 403, "insufficient_scope", act);
    const renamed = await team.call("PATCH", `/auth/v1/users/${id}`, { json: { firstName: "Ada" }, token });
    expect(renamed.body).toMatchObject({ firstName: "Ada", role: "viewer" });
  });
});

describe("A change of a role", () => {
  test("applies to the user's sessions from the next request, and is recorded as a changed field", async () => {
    const team = await quickTeam();
    const { id, token } = await newMember(team, "admin");
    expect((await team.call("GET", "/auth/v1/users", { token })).status).toBe(200);
    await team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "viewer" } });
    expect((await team.call("GET", "/auth/v1/users", { token })).code).toBe("insufficient_scope");
    expect((await team.call("GET", "/docs/v1/uploads", { token })).status).toBe(200);
    expect((await eventsOf(team, "type=user.updated"))[0].data).toEqual({ _id: id, fields: ["role"] });
  });
});

describe("The last admin of a team", () => {
  test("can be demoted or deleted only by a secret key", async () => {
    const team = await quickTeam();
    const { id, token } = await newMember(team, "admin");
    const path = `/auth/v1/users/${id}`;
    await rejected(team, 409, "last_admin", () => team.call("PATCH", path, { json: { role: "member" }, token }));
    await rejected(team, 409, "last_admin", () => team.call("DELETE", path, { token }));
    expect((await team.call("PATCH", path, { json: { role: "admin", lastName: "King" }, token })).status).toBe(200);
    expect((await team.call("PATCH", path, { json: { role: "member" } })).status).toBe(200);
    expect((await team.call("DELETE", path)).status).toBe(200);
  });

  test("stays if two admins demote each other at the same time", async () => {
    const team = await quickTeam();
    const [a, b] = [await newMember(team, "admin"), await newMember(team, "admin")];
    const demote = (id: string, token: string) =>
      team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "viewer" }, token });
    const answers = await Promise.all([demote(a.id, b.token), demote(b.id, a.token)]);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect([await roleOf(team, a.id), await roleOf(team, b.id)].sort()).toEqual(["admin", "viewer"]);
  });
});

test("a user deleted with keepKeys loses only their sessions, and their keys can still create keys", async () => {
  const team = await quickTeam();
  const { id, token } = await newMember(team, "admin");
  const json = { name: "kept" };
  const { key } = await dataOf(team.call("POST", "/auth/v1/apikeys", { json, token }));
  expect((await team.call("DELETE", `/auth/v1/users/${id}?keepKeys=true`)).status).toBe(200);
  expect(await isAccepted(token)).toBe(false);
  expect((await team.call("POST", "/auth/v1/apikeys", { json, token: key })).status).toBe(200);
  expect((await eventsOf(team, "type=user.deleted"))[0].data).toEqual({ _id: id, revokedKeyIds: [] });
});

describe("GET /auth/v1/me", () => {
  const me = async (token: string) => (await call("GET", "/auth/v1/me", { token })).body.data;
  const nothing = { teamId: null, keyId: null, userId: null, role: null, scopes: null, expiresAt: null };

  test("describes a secret key, a public key, the session of a user and the operator", async () => {
    const team = await quickTeam();
    const { teamId, keyId } = team;
    const expiresAt = expect.stringMatching(/^20.*Z$/);
    const secret = { ...nothing, kind: "secret", teamId, keyId, scopes: expect.any(Array), expiresAt };
    expect(await me(team.token)).toEqual(secret);
    const page = await newKey(team, { isPublic: true });
    expect(await me(page.key)).toEqual({ ...secret, kind: "public", keyId: page.id, scopes: ["files:upload"] });
    const { id: userId, token } = await newMember(team, "viewer");
    const scopes = ["files:read", "files:download", "events:read"];
    const session = { kind: "session", teamId, keyId: expect.any(String), userId, role: "viewer", scopes };
    expect(await me(token)).toEqual({ ...session, expiresAt: expect.any(String) });
    expect(await me(OPERATOR)).toEqual({ ...nothing, kind: "operator" });
  });
});

describe("POST /auth/v1/me/password", () => {
  const NEW_PASSWORD = "staple horse battery";
  const change = (token: string, currentPassword: string, newPassword = NEW_PASSWORD) =>
    call("POST", "/auth/v1/me/password", { token, json: { currentPassword, newPassword } });

  test("changes the password, keeps the calling session and ends the user's others", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "viewer", EMAIL);
    const other = await newSession(team, id);
    const { body } = await change(token, "a wrong password");
    expect(body).toMatchObject({ code: "invalid_input", errors: [{ path: "currentPassword" }] });
    expect((await change(token, PASSWORD)).status).toBe(200);
    expect([await isAccepted(token), await isAccepted(other)]).toEqual([true, false]);
    expect((await logIn(team)).code).toBe("login_failed");
    expect((await logIn(team, EMAIL, NEW_PASSWORD)).status).toBe(200);
    const [event] = await eventsOf(team, "type=user.updated");
    expect(event).toMatchObject({ actor: { kind: "session", userId: id }, data: { fields: ["password"] } });
  });

  test("is rejected for a key, which has no user of its own", async () => {
    for (const token of [(await newTeam()).token, OPERATOR]) {
      expect((await change(token, PASSWORD)).code).toBe("forbidden");
    }
  });

  test("counts attempts for the user, so that a stolen session can't guess the password", async () => {
    const limited = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, login: async () => false } }));
    const team = await newTeam();
    const { token } = await newMember(team, "viewer");
    const json = { currentPassword: PASSWORD, newPassword: NEW_PASSWORD };
    expect((await limited.call("POST", "/auth/v1/me/password", { token, json })).code).toBe("rate_limited");
  });
});
