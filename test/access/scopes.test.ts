import fc from "fast-check";
import { expect, test } from "vitest";
import { maskOf, ROLE_NAMES, ROLES, type Role, SCOPE_NAMES, type Scope, scopesIn } from "../../src/access/scopes.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { databaseOf, newId, newToken, realSystem } from "../../src/platform/system.ts";
import { DB } from "../support/databases.ts";
import {
  compose,
  newSession,
  newTeam,
  PASSWORD,
  startWorker,
  type Team,
  withoutHashing,
  withoutLimits,
} from "../support/harness.ts";
import { isExhaustive } from "../support/tiers.ts";

/*
 * Random callers with random scopes, in one team: whatever they do, they learn no token that may do more than they may.
 * Set STOWAGE_SEED for other callers.
 */

const CALLERS = isExhaustive ? 500 : 30;
const worker = startWorker(compose(withoutHashing, withoutLimits));

/** Inserts a key, because creating it would be another call. */
async function newKeyRow({ teamId }: Team, mask: number) {
  const [id, token] = [newId(realSystem, databaseOf(teamId)), newToken(realSystem, "secret", databaseOf(teamId))];
  await DB.prepare(
    `insert into api_keys (id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, last_used_at, lifetime_milliseconds, created_at, expires_at)
     select ?1, team_id, ?2, 'row', kind, ?3, ?4, encrypted_token, encrypted_with, ?5, 1e9, 1, ?5 + 1e10
     from api_keys where team_id = ?6 limit 1`,
  )
    .bind(id, crypto.randomUUID(), mask, fingerprint(token), Date.now(), teamId)
    .run();
  return { id, token };
}

/** The scopes that each token has now. A token that is not accepted has none. */
async function scopesNow(tokens: Iterable<string>): Promise<number[]> {
  const hashes = JSON.stringify([...tokens].map(fingerprint));
  const { results } = await DB.prepare(
    `select k.scopes, u.role from api_keys k left join users u on u.id = k.user_id and k.scopes is null
     where k.token_hash in (select value from json_each(?))`,
  )
    .bind(hashes)
    .all<{ scopes: number | null; role: Role | null }>();
  return results.map(({ scopes, role }) => scopes ?? (role ? maskOf(ROLES[role]) : 0));
}

interface Step {
  act: (typeof ACTS)[number];
  scopes: Scope[] | undefined;
  role: Role | undefined;
  /** Selects the record. */
  at: number;
}
const ACTS = [
  ...["create", "update", "rotate", "fetch", "list", "delete", "session"],
  ...["create user", "update user", "update password", "me"],
] as const;

const steps = fc.array(
  fc.record<Step>({
    act: fc.constantFrom(...ACTS),
    scopes: fc.option(fc.subarray(SCOPE_NAMES, { minLength: 1 }), { nil: undefined }),
    role: fc.option(fc.constantFrom(...ROLE_NAMES), { nil: undefined }),
    at: fc.nat(50),
  }),
  { minLength: 2, maxLength: 5 },
);
// Callers that can manage keys or users learn the most.
const masks = fc
  .tuple(fc.subarray(SCOPE_NAMES), fc.subarray(["keys:write", "keys:read", "users:write"] as const))
  .map(([some, more]) => maskOf([...new Set<Scope>([...some, ...more])]));

/** The request of a step. */
function requestOf({ act, scopes, role, at }: Step, keys: string[], users: string[]): [string, string, object?] {
  const key = `/auth/v1/apikeys/${keys[at % keys.length]}`;
  const user = `/auth/v1/users/${users[at % users.length]}`;
  const email = `${crypto.randomUUID()}@example.com`;
  switch (act) {
    case "create":
      return ["POST", "/auth/v1/apikeys", { name: "made", scopes, isPublic: at % 7 === 0 && !scopes }];
    case "update":
      return ["PATCH", key, { name: "changed", ...(scopes && { scopes }) }];
    case "rotate":
      return ["POST", `${key}/rotate`, { overlapSeconds: 60 }];
    case "fetch":
      return ["GET", key];
    case "delete":
      return ["DELETE", key];
    case "list":
      return ["GET", "/auth/v1/apikeys?limit=100"];
    case "session":
      return ["POST", "/auth/v1/sessions"];
    case "create user":
      return ["POST", "/auth/v1/users", { email, password: PASSWORD, role }];
    case "update user":
      return ["PATCH", user, { lastName: "King", ...(role && { role }) }];
    case "update password":
      return ["PATCH", user, { password: PASSWORD, ...(role && { role }) }];
    default:
      return ["GET", "/auth/v1/me"];
  }
}

test(`${CALLERS} random callers learn no token with scopes that they lack`, async () => {
  const team = await newTeam(worker);
  const counts = { learned: 0, allowed: 0, denied: 0 };
  const property = fc.asyncProperty(masks, steps, async (mask, sequence) => {
    const caller = await newKeyRow(team, mask);
    const keyOf = async (scopes: readonly Scope[]) => (await newKeyRow(team, maskOf(scopes))).id;
    const keys = [caller.id, await keyOf(["files:read"]), await keyOf(SCOPE_NAMES), team.keyId];
    const users = await Promise.all(
      ROLE_NAMES.map(async (role) => {
        const json = { email: `${crypto.randomUUID()}@example.com`, password: PASSWORD, role };
        return (await team.call("POST", "/auth/v1/users", { json })).body.data._id as string;
      }),
    );
    const learned = new Set([caller.token]);
    const knownPasswords = new Set<string>();
    for (const step of sequence) {
      const own = keys.filter((id) => id !== team.keyId || !["delete", "update", "rotate"].includes(step.act));
      const [method, path, json] = requestOf(step, own, users);
      // A token that the caller has learned is as good as its own.
      const tokens = [...learned];
      const token = tokens[step.at % tokens.length] ?? caller.token;
      const { status, text, body } = await worker.call(method, path, { token, ...(json && { json }) });
      if (status !== 200) counts.denied += 1;
      if (status !== 200) continue;
      counts.allowed += 1;
      for (const [found] of text.matchAll(/stow_(?:sk|pk|ss)_[0-9A-Za-z]{40}/g)) learned.add(found);
      if (json && "password" in json) {
        const id: string = body.data?._id ?? body._id;
        users.push(id);
        knownPasswords.add(id);
      }
      if (step.act === "create") keys.push(body.data.id);
      // The caller logs in with every password that it knows.
      for (const id of knownPasswords) learned.add(await newSession(team, id));
    }
    counts.learned += learned.size;
    for (const present of await scopesNow(learned)) expect(scopesIn(present & ~mask)).toEqual([]);
    // The next caller finds the team as this one did.
    await DB.batch([
      DB.prepare("delete from api_keys where team_id = ? and id <> ?").bind(team.teamId, team.keyId),
      DB.prepare("delete from users where team_id = ?").bind(team.teamId),
    ]);
  });
  await fc.assert(property, { numRuns: CALLERS });
  // The callers reached what they could.
  expect(counts.allowed).toBeGreaterThan(CALLERS / 2);
  expect(counts.denied).toBeGreaterThan(CALLERS / 2);
  expect(counts.learned).toBeGreaterThan(CALLERS * 1.2);
}, 600_000);
