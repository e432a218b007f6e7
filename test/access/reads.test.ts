import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { readAs, readCredential } from "../../src/access/authorization.ts";
import { inDatabaseOfToken } from "../../src/access/databases.ts";
import type { Db } from "../../src/platform/db.ts";
import { databaseOf, newToken, realSystem } from "../../src/platform/system.ts";
import { buildRequest } from "../support/client.ts";
import { readDeps } from "../support/deps.ts";
import { call, dataOf, form, idsIn, newKey, newMember, newTeam, OPERATOR, type Team } from "../support/harness.ts";
import { app, type Isolate, introduced, newIsolate, watched } from "../support/isolates.ts";
import { issueToken } from "../support/visitors.ts";

/*
 * A read is for the caller that its isolate remembers, and is answered only if the caller's row says the same. Each test changes the
 * caller by another isolate.
 */

const UPLOADS = "/docs/v1/uploads";

/** The table that a statement reads, outside of all subqueries. */
function tableOf(statement: string): string {
  const inner = statement.replaceAll(/\([^()]*\)/g, "");
  return inner === statement ? (/\bfrom "(\w+)/.exec(statement)?.[1] ?? "") : tableOf(inner);
}

/** The answer to a read in the isolate, and the tables that each of its round trips reads: `api_keys` for the caller. */
async function readIn(isolate: Isolate, token: string, path = UPLOADS) {
  const request = buildRequest("GET", path, { token });
  const { result, roundTrips } = await watched(async (bindings, ctx) => app.fetch(request, bindings, ctx), isolate);
  const body: { data?: unknown; code?: string } = await result.json();
  const tables = roundTrips.map(({ statements }) => statements.map((one) => tableOf(one.sql)));
  return { status: result.status, body, tables };
}

const CALLER = ["api_keys"];
const CALLER_AND_FILES = ["api_keys", "files"];

async function put(team: Team, token = team.token): Promise<string> {
  return (await dataOf(call("POST", UPLOADS, { body: form("a.txt", "a"), token })))._id;
}
const change = async (team: Team, path: string, json: object, token = team.token) => {
  expect((await call("PATCH", path, { json, token })).status).toBe(200);
};

describe("A token that the isolate does not know", () => {
  test("reads no row of a team before it is authorized, and from then on one round trip is enough", async () => {
    const team = await newTeam();
    const isolate = newIsolate();
    expect((await readIn(isolate, team.token)).tables).toEqual([CALLER, CALLER_AND_FILES]);
    expect((await readIn(isolate, team.token)).tables).toEqual([CALLER_AND_FILES]);
  });

  test("reads no row of a team if it is not valid, however often it comes", async () => {
    const { teamId } = await newTeam();
    const unknown = newToken(realSystem, "secret", databaseOf(teamId));
    const isolate = newIsolate();
    for (let time = 0; time < 3; time++) {
      const { status, tables } = await readIn(isolate, unknown);
      expect([status, tables]).toEqual([401, [CALLER]]);
    }
  });

  test("reads no row of a team if it lacks the scope, also once the isolate knows it", async () => {
    const team = await newTeam();
    const { key: token } = await newKey(team, { scopes: ["users:read"] });
    const { status, tables } = await readIn(await introduced(token), token);
    expect([status, tables]).toEqual([403, [CALLER]]);
  });
});

describe("An upload token", () => {
  test("is known as soon as the key is that issued it", async () => {
    const team = await newTeam();
    const id = await put(team);
    const isolate = await introduced(team.token);
    const { token } = await issueToken(team);
    const { status, tables } = await readIn(isolate, token, `${UPLOADS}/${id}/status`);
    expect([status, tables]).toEqual([404, [CALLER_AND_FILES]]);
  });
});

describe("A caller that another isolate has changed", () => {
  test("reads only its own files once it is a contributor, in a second round trip", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "member");
    const [other, own] = [await put(team), await put(team, token)];
    const isolate = await introduced(token);
    expect(idsIn((await readIn(isolate, token)).body.data as { _id: string }[]).sort()).toEqual([other, own].sort());
    await change(team, `/auth/v1/users/${id}`, { role: "contributor" });
    const { body, tables } = await readIn(isolate, token);
    expect([idsIn(body.data as { _id: string }[]), tables]).toEqual([[own], [CALLER_AND_FILES, CALLER_AND_FILES]]);
    expect((await readIn(isolate, token)).tables).toEqual([CALLER_AND_FILES]);
  });

  test("reads all files of its team once it is a member again", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "contributor");
    const ids = [await put(team), await put(team, token)];
    const isolate = await introduced(token);
    expect((await readIn(isolate, token)).body.data).toHaveLength(1);
    await change(team, `/auth/v1/users/${id}`, { role: "member" });
    expect(idsIn((await readIn(isolate, token)).body.data as { _id: string }[]).sort()).toEqual(ids.sort());
  });

  test("reads nothing with a session whose user has lost the scope", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "admin");
    const isolate = await introduced(token);
    await change(team, `/auth/v1/users/${id}`, { role: "viewer" });
    const { status, body } = await readIn(isolate, token, "/auth/v1/users");
    expect([status, body.code, body.data]).toEqual([403, "insufficient_scope", undefined]);
  });

  test("reads nothing with a key that was revoked, and is forgotten", async () => {
    const team = await newTeam();
    const { _id: id, key: token } = await newKey(team);
    await put(team);
    const isolate = await introduced(token);
    expect((await call("DELETE", `/auth/v1/apikeys/${id}`, { token: team.token })).status).toBe(200);
    const first = await readIn(isolate, token);
    expect([first.status, first.body.code, first.body.data]).toEqual([401, "token_invalid", undefined]);
    expect((await readIn(isolate, token)).tables).toEqual([CALLER]);
  });

  test("reads nothing while its team is suspended", async () => {
    const team = await newTeam();
    await put(team);
    const isolate = await introduced(team.token);
    await change(team, `/auth/v1/teams/${team.teamId}`, { status: "suspended" }, OPERATOR);
    const { status, body } = await readIn(isolate, team.token);
    expect([status, body.code, body.data]).toEqual([403, "team_suspended", undefined]);
  });

  test("gets unavailable if it changes with each read", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "member");
    const flip = "update users set role = iif(role = 'member', 'contributor', 'member') where id = ?";
    // It is the other one in the next batch.
    const query = () => ({
      bindTo: ({ $client }: Db) => ({ statement: $client.prepare(flip).bind(id), rows: () => "rows" }),
    });
    const deps = readDeps(env, { waitUntil: () => {} });
    const credential = readCredential(deps, token, { access: "files:read" });
    const chosen = inDatabaseOfToken(deps, credential);
    const reading = () => readAs(chosen, readCredential(deps, token, { access: "files:read" }), query);
    await expect(reading()).resolves.toMatchObject({ actor: { ownerId: null }, rows: "rows" });
    await expect(reading()).rejects.toMatchObject({ code: "unavailable" });
  });
});
