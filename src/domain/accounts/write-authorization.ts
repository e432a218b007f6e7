import { and, eq, notInArray, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Guard, type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys, teams } from "../../platform/schema.ts";
import {
  type Access,
  type ActorWith,
  authorize,
  type Credential,
  checkNeeded,
  isAdmitted,
  presentScopes,
  type TokenValues,
  tokenValues,
} from "./authorization.ts";
import { maskOf, type Scope } from "./scopes.ts";

/* The authorization of writes, in the round trip of the write itself. */

/** Used as an invalid JSON path: SQLite evaluates it when the query runs, and quotes it in the error. */
const REJECTION = "caller_rejected";

/** Fails its batch unless the token is admitted. Reads the same rows as `callerByToken`. */
const guardByToken = preparedQuery((db, param: Param<TokenValues>) =>
  db
    .select({
      passed: sql`json_extract('{}', iif(count(*) > 0, '$', ${REJECTION}))`,
      scopes: sql<number>`max(${presentScopes(db)})`,
    })
    .from(apiKeys)
    // `not in`: with `status = …` the planner would use `teams_status` and read one more row.
    .innerJoin(teams, and(eq(teams.id, apiKeys.teamId), notInArray(teams.status, ["suspended", "deleting"])))
    .where(isAdmitted(db, param)),
);

/** A caller and the dependencies of a write. */
interface Writer<A extends Access> {
  actor: ActorWith<A>;
  deps: Deps;
}

/**
 * Authorizes a write, in the same round trip as its first batch if this isolate has seen the token before: a token always
 * identifies the same caller. Its expiry and its scopes are conditions of that batch, which otherwise fails as a whole.
 * The first batch of a new token has them too, because its body may have taken minutes. So `write` must do nothing that
 * matters before its first batch, except after `ensureAuthorized`.
 *
 * Nothing is returned and no error is thrown before the caller is authorized, except `unavailable`.
 */
export async function authorizeWrite<A extends Access, T>(
  deps: Deps,
  credential: Credential<A>,
  write: (writer: Writer<A>) => Promise<T>,
): Promise<T> {
  const { tokenHash, access } = credential;
  if (tokenHash === null || access === "operator") return write({ actor: await authorize(deps, credential), deps });
  const known = deps.identities.get(tokenHash) as ActorWith<A> | undefined;
  const actor = known ?? (await authorize(deps, credential));
  const guard: Guard = {
    query: guardByToken(tokenValues(deps, credential)),
    isDue: true,
    hasPassed: known === undefined,
    onPassed(rows) {
      const [caller] = rows as { scopes: number }[];
      credential.actor = actor;
      credential.scopes = caller?.scopes ?? 0;
    },
  };
  try {
    const result = await write({ actor, deps: { ...deps, guard } });
    if (!guard.hasPassed) await authorize(deps, credential);
    return result;
  } catch (error) {
    const isRejection = isGuardRejection(error);
    const isUnavailable = error instanceof AppError && error.code === "unavailable";
    if (isRejection || !(guard.hasPassed || isUnavailable)) await authorize(deps, credential);
    // The guard rejected the token, but it is valid now: for example, its role changed twice.
    throw isRejection ? new AppError("conflict") : error;
  }
}

/** True if the guard rejected the first batch, which then changed nothing. */
export const isGuardRejection = (error: unknown) => error instanceof Error && error.message.includes(REJECTION);

/**
 * Authorizes the caller of a write now, before anything expensive, or because the caller's scopes are needed. Costs a round
 * trip if it is not done yet.
 */
export async function ensureAuthorized(deps: Deps): Promise<void> {
  if (deps.guard && !deps.guard.hasPassed) await read(deps, []);
}

/** Runs the next batch under the guard again, after work that takes so long that the caller's access may have ended. */
export function authorizeAgain({ guard }: Deps): void {
  if (guard) guard.isDue = true;
}

/**
 * Requires scopes besides the one of the operation. In a write, call it before the first batch, or after
 * `ensureAuthorized`.
 * @throws `insufficient_scope`, now or in that batch
 */
export function requireScopes(deps: Deps, credential: Credential, scopes: readonly Scope[]): void {
  credential.needed |= maskOf(scopes);
  const { guard } = deps;
  if (guard) guard.query = guardByToken(tokenValues(deps, credential));
  if (!guard || guard.hasPassed) checkNeeded(credential);
}
