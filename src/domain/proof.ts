import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Bound, type Builder, type Db, runBatch, type Slot, statement } from "../platform/db.ts";
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

type Credential = { tokenHash: string; now: number };

const isLive = (slot: Slot<Credential>) =>
  and(eq(apiKeys.tokenHash, slot("tokenHash")), gt(apiKeys.expiresAt, slot("now")));

const credential = statement((db, slot: Slot<Credential>) =>
  db
    .select({ keyId: apiKeys.id, teamId: apiKeys.teamId, isPublic: apiKeys.isPublic })
    .from(apiKeys)
    .where(isLive(slot)),
);

/** A read for a caller who is not proven yet; null stands for the operator. */
export type ScopedRead<T> = (caller: Credential | null) => Bound<T>;

/**
 * A statement that rides along with the proof of its caller. It must put `scope` in its WHERE: the team is a sub-select
 * of the very credential that is being proven, so an unproven caller's reads find nothing.
 */
export function scopedRead<V extends object, B extends Builder>(
  write: (db: Db, scope: Scope, slot: Slot<V>) => B,
): (values: V) => ScopedRead<Awaited<B>> {
  const forTeam = statement((db, slot: Slot<V & Credential>) => {
    let isScoped = false;
    const team = db
      .select({ teamId: apiKeys.teamId })
      .from(apiKeys)
      .where(and(isLive(slot), eq(apiKeys.isPublic, false)));
    const scope = (column: SQLiteColumn) => {
      isScoped = true;
      return eq(column, sql`${team}`);
    };
    const written = write(db, scope, slot);
    if (!isScoped) throw new TypeError("A read that asks for no team would find those of all.");
    return written;
  });
  const forOperator = statement((db, slot: Slot<V>) => write(db, () => undefined, slot));
  return (values) => (caller) => (caller ? forTeam({ ...values, ...caller }) : forOperator(values));
}

/**
 * Proves the caller, with a read that rides along in the same round trip or none.
 *
 * @returns the actor, and the rows of the read
 * @throws `token_invalid` (unknown, revoked and expired alike), `forbidden`
 */
export async function prove<R extends Right, T = undefined>(
  deps: Deps,
  caller: Caller,
  right: R,
  wanted?: ScopedRead<T>,
): Promise<[ActorWith<R>, T]> {
  const admit = (actor: Actor) => {
    caller.actor = actor;
    if (!may(actor, right)) throw new AppError("forbidden");
    return actor as ActorWith<R>;
  };
  if (caller.kind === "operator") {
    const actor = admit({ kind: "operator" });
    const [rows] = wanted ? await runBatch(deps, [wanted(null)]) : [];
    return [actor, rows as T];
  }
  const sent: Credential = { tokenHash: caller.tokenHash, now: deps.system.now() };
  const ridesAlong = wanted ? [wanted(sent)] : [];
  const [[key], rows] = await runBatch(deps, [credential(sent), ...ridesAlong]);
  if (!key) throw new AppError("token_invalid");
  return [admit({ kind: key.isPublic ? "public" : "secret", teamId: key.teamId, keyId: key.keyId }), rows as T];
}
