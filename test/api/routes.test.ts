import { beforeAll, describe, expect, test } from "vitest";
import { api } from "../../src/app.ts";
import { splitRoute } from "../../src/http/operation.ts";
import { call, newTeam, OPERATOR, snapshot, type Team, upload } from "../support/harness.ts";

/*
 * What holds of every route, run over the table of routes itself: a new route is in it from the day it exists.
 */

const UNKNOWN_TOKEN = "stow_sk_00000000000000000000000000000000000000";
const routes = Object.entries(api).map(([route, operation]) => ({ route, ...splitRoute(route), operation }));
const guarded = routes.filter(({ operation }) => operation.access !== "open");
const withId = routes.filter(({ path }) => path.includes("{id}"));

let mine: Team;
let theirs: Team;
let theirIds: Record<"apikeys" | "users" | "uploads", string>;
let publicToken: string;

beforeAll(async () => {
  [mine, theirs] = await Promise.all([newTeam(), newTeam()]);
  const user = await theirs.call("POST", "/auth/v1/users", { json: { email: "a@example.com", password: "12345678" } });
  theirIds = {
    apikeys: theirs.keyId,
    users: user.body.data._id,
    uploads: await upload(theirs, "note.txt", "theirs"),
  };
  const key = await mine.call("POST", "/auth/v1/apikeys", { json: { name: "page", isPublic: true } });
  publicToken = key.body.data.key;
});

const at = (path: string, id: string) => path.replace("{id}", id);
const theirIdFor = (path: string) => theirIds[path.split("/")[3] as keyof typeof theirIds];
/** A valid body, where the route takes one: the refusal must be for the token or the id. */
const valid = ({ bodyExample }: { bodyExample?: unknown }) => (bodyExample === undefined ? {} : { json: bodyExample });

async function expireKey(team: Team): Promise<string> {
  const { env } = await import("cloudflare:workers");
  const { body } = await team.call("POST", "/auth/v1/apikeys", { json: { name: "old" } });
  await env.DB.prepare("update api_keys set expires_at = ? where id = ?")
    .bind(Date.now() - 1, body.data.id)
    .run();
  return body.data.key;
}

describe.each(guarded)("$route", ({ method, path, operation }) => {
  const target = at(path, "0193477be8a01f9c3ad5e7b2");

  test("without a token is refused", async () => {
    const { status, headers, body } = await call(method, target, valid(operation));
    expect([status, body.code]).toEqual([401, "token_missing"]);
    expect(headers.get("WWW-Authenticate")).toBe("Bearer");
  });

  test.each([
    ["that is no token of ours", "hello"],
    ["whose checksum is wrong", `${UNKNOWN_TOKEN.slice(0, -1)}1`],
  ])("with a token %s is refused", async (_, token) => {
    const { status, body } = await call(method, target, { token, ...valid(operation) });
    expect([status, body.code]).toEqual([401, "token_invalid"]);
  });

  test("with an expired token is refused, and changes nothing", async () => {
    const token = await expireKey(mine);
    const before = await snapshot(mine.teamId);
    const { status, body } = await call(method, target, { token, ...valid(operation) });
    expect([status, body.code]).toEqual([401, "token_invalid"]);
    expect(await snapshot(mine.teamId)).toEqual(before);
  });

  test("with a revoked token is refused", async () => {
    const { body: key } = await mine.call("POST", "/auth/v1/apikeys", { json: { name: "brief" } });
    await mine.call("DELETE", `/auth/v1/apikeys/${key.data.id}`);
    const { status, body } = await call(method, target, { token: key.data.key, ...valid(operation) });
    expect([status, body.code]).toEqual([401, "token_invalid"]);
  });
});

describe("a public key", () => {
  test.each(guarded.filter(({ operation }) => operation.access !== "upload"))(
    "may not $route",
    async ({ method, path, operation }) => {
      const { status, body } = await call(method, at(path, mine.keyId), { token: publicToken, ...valid(operation) });
      expect([status, body.code]).toEqual([403, "forbidden"]);
    },
  );
});

describe("the operator", () => {
  test.each(guarded.filter(({ operation }) => operation.access !== "keys"))(
    "may not $route",
    async ({ method, path, operation }) => {
      const { status, body } = await call(method, at(path, mine.keyId), { token: OPERATOR, ...valid(operation) });
      expect([status, body.code]).toEqual([403, "forbidden"]);
    },
  );
});

describe.each(withId)("$route", ({ method, path, operation }) => {
  test("answers the same 404 to another team's id, an unknown and a malformed one, and changes nothing", async () => {
    const before = await snapshot(theirs.teamId);
    const texts = new Set<string>();
    for (const id of [theirIdFor(path), "0193477be8a01f9c3ad5e7b2", "nonsense", "%00", "..%2f..", "0".repeat(2000)]) {
      const { status, text } = await mine.call(method, at(path, id), valid(operation));
      expect(status, id).toBe(404);
      texts.add(text.replace(/"requestId":"[^"]+"/, ""));
    }
    expect([...texts]).toEqual(['{"status":false,"message":"Not found.","code":"not_found",}']);
    expect(await snapshot(theirs.teamId)).toEqual(before);
  });
});

describe("a path", () => {
  test.each([...new Set(routes.map(({ path }) => path))])("%s takes only its methods, and names them", async (path) => {
    const taken = routes.filter((route) => route.path === path).map(({ method }) => method);
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"].filter((one) => !taken.includes(one))) {
      const { status, headers, body } = await mine.call(method, at(path, mine.keyId));
      expect([status, body.code]).toEqual([405, "method_not_allowed"]);
      expect(headers.get("Allow")?.split(", ")).toEqual(expect.arrayContaining(taken));
    }
  });

  test.each(["/", "/auth/v1", "/docs/v1/uploads/", "/auth/v2/users", "/auth/v1/users/a/b"])(
    "%s that is not there is route_not_found",
    async (path) => {
      const { status, body } = await mine.call("GET", path);
      expect([status, body.code]).toEqual([404, "route_not_found"]);
    },
  );
});
