import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { newToken, realSystem } from "../../src/platform/system.ts";
import {
  newTeam as foundTeam,
  newUser,
  OPERATOR,
  PASSWORD,
  startWorker,
  type Team,
  upload,
  withoutJobs,
} from "../support/harness.ts";

/* What is tried to get in, and to stay in. */

const worker = startWorker(withoutJobs);
const { call } = worker;
const newTeam = () => foundTeam(worker);

let team: Team;
let other: Team;

beforeAll(async () => {
  [team, other] = await Promise.all([newTeam(), newTeam()]);
});

const authorized = (value: string, path = "/docs/v1/usage") => call("GET", path, { headers: { Authorization: value } });

describe("a token", () => {
  test("is not taken from the query, a cookie, a form or another header", async () => {
    const { token } = team;
    for (const path of [
      `?token=${token}`,
      `?access_token=${token}`,
      `?authorization=Bearer%20${token}`,
      `?key=${token}`,
    ]) {
      const { status, body } = await call("GET", `/docs/v1/usage${path}`);
      expect([status, body.code]).toEqual([401, "token_missing"]);
    }
    for (const name of ["Cookie", "X-Api-Key", "X-Auth-Token", "Proxy-Authorization", "X-Authorization", "Api-Key"]) {
      const { status } = await call("GET", "/docs/v1/usage", { headers: { [name]: `Bearer ${token}` } });
      expect(status, name).toBe(401);
    }
    const json = { name: "a", access_token: token };
    expect((await call("POST", "/auth/v1/apikeys", { json })).status).toBe(401);
  });

  test.each<[string, (token: string) => string]>([
    ["without a scheme", (token) => token],
    ["as Basic", (token) => `Basic ${btoa(`${token}:`)}`],
    ["as Basic in the clear", (token) => `Basic ${token}`],
    ["as Token", (token) => `Token ${token}`],
    ["as Digest", (token) => `Digest username="${token}"`],
    ["with something behind it", (token) => `Bearer ${token} x`],
    ["twice", (token) => `Bearer ${token}, Bearer ${token}`],
    ["after a bad one", (token) => `Bearer bad, Bearer ${token}`],
    ["before a bad one", (token) => `Bearer ${token},bad`],
    ["in quotes", (token) => `Bearer "${token}"`],
    ["as a parameter", (token) => `Bearer token=${token}`],
    ["with a colon", (token) => `Bearer: ${token}`],
    ["without a space", (token) => `Bearer${token}`],
    ["after a tab", (token) => `Bearer\t${token}`],
    ["in upper case", (token) => `Bearer ${token.toUpperCase()}`],
    ["percent-encoded", (token) => `Bearer ${token.replace("_", "%5F")}`],
    ["cut", (token) => `Bearer ${token.slice(0, -1)}`],
    ["doubled", (token) => `Bearer ${token}${token}`],
    ["with a zero in front", (token) => `Bearer 0${token}`],
    ["with a wildcard", (token) => `Bearer ${token.slice(0, -1)}%`],
    ["as its hash", () => "Bearer 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ["empty", () => "Bearer "],
    ["of 100,000 characters", () => `Bearer ${"a".repeat(100_000)}`],
    ["of 100,000 characters after a good one", (token) => `Bearer ${token}${"0".repeat(100_000)}`],
  ])("is refused %s", async (_, header) => {
    const { status, body, headers } = await authorized(header(team.token));
    expect(status).toBe(401);
    expect(["token_missing", "token_invalid"]).toContain(body.code);
    expect(headers.get("WWW-Authenticate")).toBe("Bearer");
  });

  test("may follow the scheme's name in any case, as HTTP has it", async () => {
    for (const scheme of ["bearer", "BEARER", "BeArEr "])
      expect((await authorized(`${scheme} ${team.token}`)).status).toBe(200);
  });

  test("in two Authorization headers counts in neither", async () => {
    const headers = new Headers({ Authorization: `Bearer ${team.token}` });
    headers.append("Authorization", `Bearer ${other.token}`);
    expect((await authorized(headers.get("Authorization") ?? "")).status).toBe(401);
  });

  test("is not made public or secret by its prefix", async () => {
    const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } });
    const forged = body.data.key.replace("stow_pk_", "stow_sk_");
    expect((await team.call("GET", "/docs/v1/usage", { token: forged })).body.code).toBe("token_invalid");
    expect((await team.call("GET", "/docs/v1/usage", { token: newToken(realSystem, false) })).status).toBe(401);
  });

  test("of the operator is whole or none, and none is a token in the database", async () => {
    for (const token of [OPERATOR.slice(0, -1), `${OPERATOR}0`, OPERATOR.toUpperCase(), ` ${OPERATOR.slice(1)}`]) {
      expect((await call("GET", "/auth/v1/apikeys", { token })).status).toBe(401);
    }
    const row = await env.DB.prepare("select count(*) as n from api_keys where token_hash = ?").bind(OPERATOR).first();
    expect(row).toEqual({ n: 0 });
  });

  test("is told nothing of by the answer: unknown, expired and revoked look alike", async () => {
    const keys = await Promise.all(
      ["expired", "revoked"].map((name) => team.call("POST", "/auth/v1/apikeys", { json: { name } })),
    );
    const [expired, revoked] = keys.map(({ body }) => body.data);
    await env.DB.prepare("update api_keys set expires_at = 1 where id = ?").bind(expired.id).run();
    await team.call("DELETE", `/auth/v1/apikeys/${revoked.id}`);
    const tokens = ["malformed", newToken(realSystem, false), expired.key, revoked.key];
    const answers = await Promise.all(tokens.map((token) => call("GET", "/docs/v1/usage", { token })));
    expect(new Set(answers.map(({ text }) => text.replace(/"requestId":"[^"]+"/, ""))).size).toBe(1);
    expect(new Set(answers.map(({ headers }) => [...headers.keys()].sort().join())).size).toBe(1);
  });
});

describe("An attack on a login", () => {
  const login = (json: object) => call("POST", "/auth/v1/login", { json });

  test("A login tells no wrong password from an unknown email or team.", async () => {
    const home = await newTeam();
    const { email } = await newUser(home);
    const right = { teamId: home.teamId, email, password: PASSWORD };
    const answers = [];
    for (const wrong of [
      { password: `${PASSWORD}!` },
      { email: "nobody@example.com" },
      { teamId: other.teamId },
      { teamId: "no team" },
      { teamId: "' or 1=1 --" },
    ]) {
      answers.push(await login({ ...right, ...wrong }));
    }
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]));
    expect(new Set(answers.map(({ text }) => text.replace(/"requestId":"[^"]+"/, ""))).size).toBe(1);
  });

  test("A login is not to be had with the hash that the interface shows.", async () => {
    const home = await newTeam();
    const user = await newUser(home);
    expect((await login({ teamId: home.teamId, email: user.email, password: user.password })).body.code).toBe(
      "login_failed",
    );
  });
});

describe("What lives on after its end", () => {
  test("A deleted key is refused from the next request on, also in its own deletion.", async () => {
    const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "brief" } });
    const { key: token, id } = body.data;
    expect((await team.call("DELETE", `/auth/v1/apikeys/${id}`, { token })).status).toBe(200);
    for (const method of ["GET", "DELETE"]) {
      const { body: answer } = await team.call(method, `/auth/v1/apikeys/${id}`, { token });
      expect(answer.code).toBe("token_invalid");
    }
    expect((await team.call("DELETE", `/auth/v1/apikeys/${id}`)).status).toBe(404);
  });

  test.each<[string, (home: Team, path: string) => Promise<unknown>]>([
    ["the user is deleted", (home, path) => home.call("DELETE", path)],
    ["the password changes", (home, path) => home.call("PATCH", path, { json: { password: "canary-password" } })],
  ])("The key of a login dies when %s.", async (_, end) => {
    const home = await newTeam();
    const user = await newUser(home);
    const json = { teamId: home.teamId, email: user.email, password: PASSWORD };
    const token = (await call("POST", "/auth/v1/login", { json })).body.data.key;
    expect((await home.call("GET", "/docs/v1/usage", { token })).status).toBe(200);
    await end(home, `/auth/v1/users/${user._id}`);
    expect((await home.call("GET", "/docs/v1/usage", { token })).body.code).toBe("token_invalid");
    expect((await call("POST", "/auth/v1/login", { json })).body.code).toBe("login_failed");
  });

  test("A deleted file has no address, no metadata and no bytes, and its id comes to nothing.", async () => {
    const id = await upload(team, "gone.txt", "gone");
    expect((await team.call("DELETE", `/docs/v1/uploads/${id}`)).status).toBe(200);
    for (const [method, path] of [
      ["GET", ""],
      ["GET", "/metadata"],
      ["POST", "/reprocess"],
    ] as const) {
      expect((await team.call(method, `/docs/v1/uploads/${id}${path}`)).status).toBe(404);
    }
    expect((await env.BUCKET.list({ prefix: `${team.teamId}/${id}` })).objects).toEqual([]);
    expect((await team.call("GET", "/docs/v1/uploads")).text).not.toContain(id);
  });
});
