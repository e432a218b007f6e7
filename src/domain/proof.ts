import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { BatchItem, BatchResponse } from "drizzle-orm/batch";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { retrying } from "../platform/db.ts";
import { apiKeys } from "../platform/schema.ts";
import { fingerprint, sameSecret } from "../platform/secrets.ts";
import { isTokenShaped } from "../platform/system.ts";
import { type Actor, type ActorWith, may, type Right } from "./actor.ts";

/** Who sent the request, as far as the token alone tells: the operator for certain, anyone else to be proven. */
export type Caller = ({ kind: "operator" } | { kind: "bearer"; tokenHash: string }) & {
  /** Set once proven, for the log. */
  actor?: Actor;
};

/** Reads a bearer token without a database: `token_missing`, or `token_invalid` where it can't be a token of ours. */
export function identify(deps: Deps, token: string | undefined): Caller {
  if (!token) throw new AppError("token_missing");
  if (isTokenShaped(token)) return { kind: "bearer", tokenHash: fingerprint(token) };
  const { operatorToken } = deps.settings;
  if (operatorToken !== null && sameSecret(token, operatorToken)) return { kind: "operator" };
  throw new AppError("token_invalid");
}

/** Limits a column to the caller's team. Of the operator, who has none, it asks nothing. */
export type Scope = (teamId: SQLiteColumn) => SQL | undefined;
type Reads = readonly BatchItem<"sqlite">[];

/**
 * Proves the caller, with reads that ride along in the same round trip. Each read must put `scope` in its WHERE: the
 * team is a sub-select of the very credential that is being proven, so an unproven caller's reads find nothing.
 *
 * @returns the actor, then the rows of each read
 * @throws `token_invalid` (unknown, revoked and expired alike), `forbidden`
 */
export async function prove<R extends Right, T extends Reads = []>(
  deps: Deps,
  caller: Caller,
  right: R,
  reads?: (scope: Scope) => readonly [...T],
): Promise<[ActorWith<R>, ...BatchResponse<T>]> {
  const { db, system } = deps;
  // The type of a batch does not survive a statement put before it; the order of the results does.
  const run = (statements: Reads) =>
    retrying(system, () => db.batch(statements as [BatchItem<"sqlite">])) as Promise<unknown[]>;
  const answer = (actor: Actor, rows: unknown[]) => {
    caller.actor = actor;
    if (!may(actor, right)) throw new AppError("forbidden");
    return [actor, ...rows] as unknown as [ActorWith<R>, ...BatchResponse<T>];
  };

  if (caller.kind === "operator") {
    const actor: Actor = { kind: "operator" };
    const allowed = may(actor, right) ? (reads?.(() => undefined) ?? []) : [];
    return answer(actor, allowed.length > 0 ? await run(allowed) : []);
  }

  const isLive = and(eq(apiKeys.tokenHash, caller.tokenHash), gt(apiKeys.expiresAt, system.now()));
  const credential = db
    .select({ keyId: apiKeys.id, teamId: apiKeys.teamId, isPublic: apiKeys.isPublic })
    .from(apiKeys)
    .where(isLive);
  const team = db
    .select({ teamId: apiKeys.teamId })
    .from(apiKeys)
    .where(and(isLive, eq(apiKeys.isPublic, false)));
  const [found, ...rows] = await run([credential, ...(reads?.((column) => eq(column, sql`${team}`)) ?? [])]);
  const [key] = found as Awaited<typeof credential>;
  if (!key) throw new AppError("token_invalid");
  return answer({ kind: key.isPublic ? "public" : "secret", teamId: key.teamId, keyId: key.keyId }, rows);
}
