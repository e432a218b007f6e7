import { describe, expect, test } from "vitest";
import { fingerprint } from "../../src/platform/secrets.ts";
import { DB } from "../support/databases.ts";
import { beforeWrite } from "../support/deps.ts";
import {
  compose,
  newKey,
  newTeam,
  snapshot,
  startWorker,
  type Team,
  withoutHashing,
  withoutJobs,
  withoutLimits,
} from "../support/harness.ts";
import { newRecord, pathTo, type Route, requestFor, routes } from "../support/routes.ts";

/*
 * A caller can lose its access between its authorization and its write: a body may take half a minute to arrive. Then the write
 * does not happen, and the caller gets what it would get now.
 */

const isOfOperator = ({ operation }: Route) => operation.access === "operator";
/** They write for no caller with a token, or nothing at all. */
const WITHOUT_WRITE = [
  // Its right is checked when the token is used.
  "POST /docs/v1/uploadtokens",
];
const writes = routes.filter(
  (route) =>
    route.method !== "GET" &&
    route.operation.access !== null &&
    !isOfOperator(route) &&
    !WITHOUT_WRITE.includes(route.name),
);

/** How a caller loses its access, and what it gets then. */
const LOSSES: Record<string, { lose(team: Team, token: string): Promise<unknown>; status: number; code: string }> = {
  "is revoked": {
    lose: (_, token) => DB.prepare("delete from api_keys where token_hash = ?").bind(fingerprint(token)).run(),
    status: 401,
    code: "token_invalid",
  },
  expires: {
    lose: (_, token) =>
      DB.prepare("update api_keys set expires_at = 1 where token_hash = ?").bind(fingerprint(token)).run(),
    status: 401,
    code: "token_invalid",
  },
  "loses its scopes": {
    lose: (_, token) =>
      DB.prepare("update api_keys set scopes = 0 where token_hash = ?").bind(fingerprint(token)).run(),
    status: 403,
    code: "insufficient_scope",
  },
  "has a team that is suspended": {
    lose: ({ teamId }) => DB.prepare("update teams set status = 'suspended' where id = ?").bind(teamId).run(),
    status: 403,
    code: "team_suspended",
  },
  "has a team that is deleted": {
    lose: ({ teamId }) => DB.prepare("update teams set status = 'deleting' where id = ?").bind(teamId).run(),
    status: 401,
    code: "token_invalid",
  },
};

describe.each(Object.entries(LOSSES))(
  "A caller that %s before its write changes nothing",
  (_, { lose, status, code }) => {
    // An operation for any token needs no scope: a session has the scopes that its key has now.
    const affected =
      code === "insufficient_scope" ? writes.filter(({ operation }) => operation.access !== "any token") : writes;
    test.each(affected.map((route) => [route.name, route] as const))("by %s", async (_name, route) => {
      const team = await newTeam();
      const { key: token } = await newKey(team);
      const path = route.path.includes("{id}") ? pathTo(route, await newRecord(team, route)) : route.path;
      let before = "";
      const act = async () => {
        await lose(team, token);
        before = JSON.stringify(await snapshot(team.teamId));
      };
      const { call } = startWorker(compose(withoutJobs, withoutHashing, withoutLimits, beforeWrite(act)));
      const answer = await call(route.method, path, { ...requestFor(route), token });
      expect(before, "it writes for its caller").not.toBe("");
      expect([answer.status, answer.code]).toEqual([status, code]);
      expect(JSON.stringify(await snapshot(team.teamId))).toBe(before);
    });
  },
);
