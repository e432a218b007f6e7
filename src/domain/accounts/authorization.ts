import { and, eq, ne, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteSelect } from "drizzle-orm/sqlite-core";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import {
  type BoundQuery,
  type Builder,
  type Db,
  type Param,
  preparedQuery,
  type RowsOf,
  read,
} from "../../platform/db.ts";
import { apiKeys, teams, users } from "../../platform/schema.ts";
import { fingerprint, sameSecret } from "../../platform/secrets.ts";
import { isTokenShaped } from "../../platform/system.ts";
import { ALL_SCOPES, lacking, maskOfRole, SCOPES, type Scope } from "./scopes.ts";

/** An authenticated caller: a token of a team, or the operator, who manages teams and the keys of any team. */
export type Actor = Operator | TeamActor;
type Operator = { kind: "operator" };

export interface TeamActor {
  kind: "secret" | "public" | "session";
  teamId: string;
  /** The API key or session. */
  keyId: string;
  /** The user whose session it is, or whose session created the key. */
  userId: string | null;
}

/**
 * What an operation requires: a scope (`or operator`: the operator needs none), the operator, or just a valid token. The
 * operator has no scopes, because most operations make sense only within a team.
 */
export type Access = Scope | `${Scope} or operator` | "operator" | "any token";

/** The callers that an access admits. */
export type ActorWith<A extends Access> = A extends Scope ? TeamActor : A extends "operator" ? Operator : Actor;

/** The scope that a token of a team needs. Null if it needs none, or if only the operator is admitted. */
export const scopeOf = (access: Access): Scope | null =>
  access === "any token" || access === "operator" ? null : (access.replace(" or operator", "") as Scope);

export const admitsOperator = (access: Access): boolean => access === "any token" || access.endsWith("operator");

/** Requires every bit, also those that no token has. */
const OPERATOR_ONLY = -1;

/** The mask that a token of a team needs. */
const maskFor = (access: Access): number => {
  const scope = scopeOf(access);
  if (scope !== null) return SCOPES[scope];
  return access === "operator" ? OPERATOR_ONLY : 0;
};

/** A request's token, and what its operation needs. */
export interface Credential<A extends Access = Access> {
  readonly access: A;
  /** The mask of the scopes that a token of a team needs. */
  needed: number;
  /** How long a public key may still run the operation after its expiry. */
  readonly graceMilliseconds: number;
  /** SHA-256 of the token in hex. Null for the operator token, which needs no database. */
  readonly tokenHash: string | null;
  /** The caller, once authenticated, even if access is denied. */
  actor: Actor | null;
  /** The caller's scopes, once authenticated. The operator's cover those of every token. */
  scopes: number;
}

/** @throws `token_missing`, or `token_invalid` if the token can't be valid */
export function readCredential<A extends Access>(
  deps: Deps,
  token: string | undefined,
  access: A,
  graceMilliseconds = 0,
): Credential<A> {
  if (!token) throw new AppError("token_missing");
  const caller = { access, needed: maskFor(access), graceMilliseconds, actor: null, scopes: 0 };
  if (isTokenShaped(token)) return { ...caller, tokenHash: fingerprint(token) };
  const { operatorToken } = deps.settings;
  if (operatorToken === null || !sameSecret(token, operatorToken)) throw new AppError("token_invalid");
  return { ...caller, tokenHash: null };
}

export type TokenValues = {
  tokenHash: string;
  now: number;
  needed: number;
  graceMilliseconds: number;
  /** The team that the operator named. */
  namedTeam: string | null;
};

/** The scopes of a row of `api_keys`: its own, or those that the user's role has now. */
export const presentScopes = (db: Db) => {
  const ofRole = db
    .select({ scopes: maskOfRole(users.role) })
    .from(users)
    .where(and(eq(users.id, apiKeys.userId), eq(users.teamId, apiKeys.teamId)));
  return sql<number>`coalesce(${apiKeys.scopes}, ${ofRole}, 0)`;
};

/**
 * Whether the scopes that the caller has now include the mask. It is for the WHERE of a write whose target has scopes: a
 * caller can change only what its own scopes cover. The operator, whose `callerKeyId` is null, covers everything.
 */
export function isCovered(db: Db, param: Param<{ callerKeyId: string | null }>, mask: SQL) {
  const ofCaller = db
    .select({ scopes: presentScopes(db) })
    .from(apiKeys)
    .where(eq(apiKeys.id, param("callerKeyId")));
  return sql`(${param("callerKeyId")} is null or (${mask} & ~coalesce(${ofCaller}, 0)) = 0)`;
}

/** @throws `insufficient_scope` unless the caller, who is authorized, covers the mask */
export function checkCovered({ scopes }: Credential, mask: number): void {
  const [missing] = lacking(mask, scopes);
  if (missing) throw insufficientScope(missing);
}

const isLive = (param: Param<TokenValues>) => sql`${apiKeys.tokenHash} = ${param("tokenHash")}
  and ${apiKeys.expiresAt} > ${param("now")} - iif(${apiKeys.kind} = 'public', ${param("graceMilliseconds")}, 0)`;

/** The row of the token, if the caller may run the operation. Must agree with `admit`. */
export const isAdmitted = (db: Db, param: Param<TokenValues>) =>
  and(isLive(param), sql`(${presentScopes(db)} & ${param("needed")}) = ${param("needed")}`);

/** Finds nothing if the team is being deleted. */
const callerByToken = preparedQuery((db, param: Param<TokenValues>) => {
  const { id: keyId, teamId, userId, kind } = apiKeys;
  return db
    .select({ keyId, teamId, userId, kind, scopes: presentScopes(db), teamStatus: teams.status })
    .from(apiKeys)
    .innerJoin(teams, and(eq(teams.id, apiKeys.teamId), ne(teams.status, "deleting")))
    .where(isLive(param));
});
type Caller = RowsOf<[ReturnType<typeof callerByToken>]>[0][number];

/** A read that is limited to one team: the team of the token, or the team that the operator named. */
export type TeamRead<T> = (team: TokenValues) => BoundQuery<T>;
/** The rows of a query that `teamRead` has built. */
export type RowsOfRead<R extends (values: never) => TeamRead<unknown>> =
  ReturnType<R> extends TeamRead<infer T> ? T : never;

/**
 * Builds a read that `authorizeRead` authorizes in the same round trip: its WHERE requires `teamId` to be the team of the
 * token, which must be live and have the needed scope. With any other token it finds nothing. `around` wraps the limited
 * query, if it is only a part of the one to send.
 */
export function teamRead<V extends object, B extends SQLiteSelect, Whole extends Builder = B>(
  teamId: SQLiteColumn,
  build: (db: Db, param: Param<V>) => { query: B; where?: SQL | undefined },
  around: (query: B, db: Db, param: Param<V>) => Whole = (query) => query as unknown as Whole,
): (values: V) => TeamRead<Awaited<Whole>> {
  const prepared = preparedQuery((db, param: Param<V & TokenValues>) => {
    const { query, where } = build(db, param);
    const ownTeam = db.select({ teamId: apiKeys.teamId }).from(apiKeys).where(isAdmitted(db, param));
    const isOfTeam = eq(teamId, sql`coalesce(${param("namedTeam")}, ${ownTeam})`);
    return around(query.where(and(where, isOfTeam)), db, param);
  });
  return (values) => (team) => prepared({ ...values, ...team });
}

export const tokenValues = ({ system }: Deps, { tokenHash, needed, graceMilliseconds }: Credential): TokenValues => ({
  // No key has an empty hash, so the operator finds nothing without a named team.
  tokenHash: tokenHash ?? "",
  now: system.now(),
  needed,
  graceMilliseconds,
  namedTeam: null,
});

/**
 * Authenticates the caller and checks the scope, in a separate round trip.
 * @throws `token_invalid` (also if revoked or expired, or if the team is deleted), `team_suspended`, `insufficient_scope`,
 *   `forbidden`
 */
export async function authorize<A extends Access>(
  { guard: _, ...deps }: Deps,
  credential: Credential<A>,
): Promise<ActorWith<A>> {
  if (credential.tokenHash === null) return admitOperator(credential);
  const [[row]] = await read(deps, [callerByToken(tokenValues(deps, credential))]);
  return admit(deps, credential, row);
}

/** Like `authorize`, with a read in the same round trip. The operator reads the named team. @returns the rows */
export async function authorizeRead<T>(
  deps: Deps,
  credential: Credential,
  teamRows: TeamRead<T>,
  namedTeam: string | null = null,
): Promise<T> {
  if (credential.tokenHash === null) {
    admitOperator(credential);
    const [rows] = await read(deps, [teamRows({ ...tokenValues(deps, credential), namedTeam })]);
    return rows;
  }
  const token = tokenValues(deps, credential);
  const [[row], rows] = await read(deps, [callerByToken(token), teamRows(token)]);
  admit(deps, credential, row);
  return rows;
}

export const teamNotAllowed = () => new AppError("forbidden", { message: "Only the operator can send a team ID." });

/** @throws `forbidden` if a team key names a team; `token_invalid` */
export async function refuseNamedTeam(deps: Deps, credential: Credential, teamId: string | undefined): Promise<void> {
  if (teamId === undefined || credential.tokenHash === null) return;
  await authorize(deps, credential);
  throw teamNotAllowed();
}

export const insufficientScope = (scope: Scope) =>
  new AppError("insufficient_scope", { message: `This token lacks the scope ${scope}.`, scope });

function admitOperator<A extends Access>(credential: Credential<A>): ActorWith<A> {
  const actor: Operator = { kind: "operator" };
  credential.actor = actor;
  credential.scopes = ALL_SCOPES;
  if (!admitsOperator(credential.access)) throw new AppError("forbidden");
  return actor as ActorWith<A>;
}

/** Names the scope of the operation first, and then those of its input. @throws `insufficient_scope` */
export function checkNeeded(credential: Credential): void {
  checkCovered(credential, maskFor(credential.access));
  checkCovered(credential, credential.needed);
}

/** The checks of a caller, in the order in which they are documented. Must agree with `isAdmitted`. */
function admit<A extends Access>(
  { identities }: Pick<Deps, "identities">,
  credential: Credential<A>,
  row: Caller | undefined,
): ActorWith<A> {
  const { tokenHash } = credential;
  if (!row) {
    identities.delete(tokenHash ?? "");
    throw new AppError("token_invalid");
  }
  const { scopes, teamStatus, ...actor } = row;
  identities.set(tokenHash ?? "", actor);
  credential.actor = actor;
  credential.scopes = scopes;
  if (teamStatus === "suspended") throw new AppError("team_suspended");
  if (credential.access === "operator") throw new AppError("forbidden");
  checkNeeded(credential);
  return actor as ActorWith<A>;
}
