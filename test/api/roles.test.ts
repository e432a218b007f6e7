import { beforeAll, describe, expect, test } from "vitest";
import {
  call,
  newSession,
  newTeam,
  newUser,
  OPERATOR,
  PASSWORD,
  rejected,
  startWorker,
  type Team,
  withoutHashing,
} from "../support/harness.ts";

/* Roles of users: who may give and take them, and what they mean to a session. What each scope allows is tested in authorization.test.ts. */

const quick = startWorker(withoutHashing);
const quickTeam = () => newTeam(quick);

/** Creates a user with a role. @returns the user's id and the token of a session */
async function member(team: Team, role: string, email = `${crypto.randomUUID()}@example.com`) {
  const { _id } = await newUser(team, { role, email });
  return { id: _id as string, token: await newSession(team, _id) };
}
const newKey = async (team: Team, scopes: string[]) => {
  const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "key", scopes } });
  return body.data.key as string;
};
const roleOf = async (team: Team, id: string) => (await team.call("GET", `/auth/v1/users/${id}`)).body.data.role;

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
    const token = await newKey(team, scopes);
    const json = { email: "a@b.de", password: PASSWORD };
    expect((await team.call("POST", "/auth/v1/users", { json, token })).body.data.role).toBe(role);
    const wider = { ...json, email: "b@b.de", role: "admin" };
    await rejected(team, 403, "insufficient_scope", () => team.call("POST", "/auth/v1/users", { json: wider, token }));
  });

  test("must be covered by the caller", async () => {
    const team = await quickTeam();
    const token = await newKey(team, ["users:write"]);
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
    token = await newKey(team, ["users:read", "users:write", "files:read", "files:download", "events:read"]);
    admin = (await member(team, "admin")).id;
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
    const { id } = await member(team, "viewer");
    const act = () => team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "member" }, token });
    await rejected(team, 403, "insufficient_scope", act);
    const renamed = await team.call("PATCH", `/auth/v1/users/${id}`, { json: { firstName: "Ada" }, token });
    expect(renamed.body).toMatchObject({ firstName: "Ada", role: "viewer" });
  });

  test("gets 404 for a user who does not exist", async () => {
    const { code } = await team.call("DELETE", "/auth/v1/users/0193477be8a01f9c3ad5e7b2", { token });
    expect(code).toBe("not_found");
  });
});

describe("A change of a role", () => {
  test("applies to the user's sessions from the next request, and is recorded as a changed field", async () => {
    const team = await quickTeam();
    const { id, token } = await member(team, "admin");
    expect((await team.call("GET", "/auth/v1/users", { token })).status).toBe(200);
    await team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "viewer" } });
    expect((await team.call("GET", "/auth/v1/users", { token })).code).toBe("insufficient_scope");
    expect((await team.call("GET", "/docs/v1/uploads", { token })).status).toBe(200);
    const events = (await team.call("GET", "/auth/v1/events?type=user.updated")).body.data;
    expect(events[0].data).toEqual({ _id: id, fields: ["role"] });
  });
});

describe("The last admin of a team", () => {
  test("can be demoted or deleted only by a secret key", async () => {
    const team = await quickTeam();
    const { id, token } = await member(team, "admin");
    const path = `/auth/v1/users/${id}`;
    await rejected(team, 409, "last_admin", () => team.call("PATCH", path, { json: { role: "member" }, token }));
    await rejected(team, 409, "last_admin", () => team.call("DELETE", path, { token }));
    expect((await team.call("PATCH", path, { json: { role: "admin", lastName: "King" }, token })).status).toBe(200);
    expect((await team.call("PATCH", path, { json: { role: "member" } })).status).toBe(200);
    expect((await team.call("DELETE", path)).status).toBe(200);
  });

  test("stays if two admins demote each other at the same time", async () => {
    const team = await quickTeam();
    const [a, b] = [await member(team, "admin"), await member(team, "admin")];
    const demote = (id: string, token: string) =>
      team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "viewer" }, token });
    const answers = await Promise.all([demote(a.id, b.token), demote(b.id, a.token)]);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect([await roleOf(team, a.id), await roleOf(team, b.id)].sort()).toEqual(["admin", "viewer"]);
  });
});

describe("Deleting a user", () => {
  test("with keepKeys ends only the sessions, and the keys can still create keys", async () => {
    const team = await quickTeam();
    const { id, token } = await member(team, "admin");
    const key = (await team.call("POST", "/auth/v1/apikeys", { json: { name: "kept" }, token })).body.data.key;
    expect((await team.call("DELETE", `/auth/v1/users/${id}?keepKeys=true`)).status).toBe(200);
    expect((await team.call("GET", "/auth/v1/users", { token })).code).toBe("token_invalid");
    expect((await team.call("POST", "/auth/v1/apikeys", { json: { name: "next" }, token: key })).status).toBe(200);
    const [event] = (await team.call("GET", "/auth/v1/events?type=user.deleted")).body.data;
    expect(event.data).toEqual({ _id: id, revokedKeyIds: [] });
  });
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
    const page = (await team.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } })).body.data;
    expect(await me(page.key)).toEqual({ ...secret, kind: "public", keyId: page.id, scopes: ["files:upload"] });
    const { id, token } = await member(team, "viewer");
    expect(await me(token)).toEqual({
      ...{
        kind: "session",
        teamId,
        keyId: expect.any(String),
        userId: id,
        role: "viewer",
        expiresAt: expect.any(String),
      },
      scopes: ["files:read", "files:download", "events:read"],
    });
    expect(await me(OPERATOR)).toEqual({ ...nothing, kind: "operator" });
  });
});

describe("POST /auth/v1/me/password", () => {
  const NEW_PASSWORD = "staple horse battery";
  const change = (token: string, currentPassword: string, newPassword = NEW_PASSWORD) =>
    call("POST", "/auth/v1/me/password", { token, json: { currentPassword, newPassword } });

  test("changes the password, keeps the calling session and ends the user's others", async () => {
    const team = await newTeam();
    const email = "ada@example.com";
    const { id, token } = await member(team, "viewer", email);
    const other = await newSession(team, id);
    const { body } = await change(token, "a wrong password");
    expect(body).toMatchObject({ code: "invalid_input", errors: [{ path: "currentPassword" }] });
    expect((await change(token, PASSWORD)).status).toBe(200);
    expect((await call("GET", "/auth/v1/me", { token })).status).toBe(200);
    expect((await call("GET", "/auth/v1/me", { token: other })).code).toBe("token_invalid");
    const logIn = (password: string) =>
      call("POST", "/auth/v1/login", { json: { teamId: team.teamId, email, password } });
    expect((await logIn(PASSWORD)).code).toBe("login_failed");
    expect((await logIn(NEW_PASSWORD)).status).toBe(200);
    const [event] = (await team.call("GET", "/auth/v1/events?type=user.updated")).body.data;
    expect(event).toMatchObject({ actor: { kind: "session", userId: id }, data: { fields: ["password"] } });
  });

  test("is rejected for a key, which has no user of its own", async () => {
    const team = await newTeam();
    expect((await change(team.token, PASSWORD)).code).toBe("forbidden");
    expect((await change(OPERATOR, PASSWORD)).code).toBe("forbidden");
  });

  test("counts attempts for the user, so that a stolen session can't guess the password", async () => {
    const limited = startWorker((deps) => ({ ...deps, limiter: { ...deps.limiter, login: async () => false } }));
    const team = await newTeam();
    const { token } = await member(team, "viewer");
    const json = { currentPassword: PASSWORD, newPassword: NEW_PASSWORD };
    expect((await limited.call("POST", "/auth/v1/me/password", { token, json })).code).toBe("rate_limited");
  });
});
