import { and, eq, ne, type SQL, sql } from "drizzle-orm";
import { alias, type SQLiteColumn } from "drizzle-orm/sqlite-core";
import { apiKeys, isApiKey, isSuccessor } from "../accounts/keys.schema.ts";
import { teams } from "../accounts/teams.schema.ts";
import { users } from "../accounts/users.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError, type CommonCode } from "../errors.ts";
import {
  type BoundQuery,
  type Db,
  failsWith,
  type Guard,
  hasRow,
  type Param,
  preparedQuery,
  type Query,
  read,
} from "../platform/db.ts";
import { fingerprint, sameSecret } from "../platform/secrets.ts";
import { databaseOf, isTokenShaped } from "../platform/system.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import { type Actor, type CallerRow, isVisitor, type Operator, type TeamActor, type UploadToken } from "./actor.ts";
import { limitOf, type RequestLimit, type Sharers, sharersOf, type Weight } from "./limiter.ts";
import {
  ALL_SCOPES,
  DELETING_SCOPES,
  lacking,
  maskOfRole,
  OWN_FILES_ROLE,
  PUBLIC_SCOPES,
  SCOPES,
  type Scope,
} from "./scopes.ts";
import { openUploadToken } from "./upload-tokens.ts";

/*
 * Determines the caller, and what the caller is allowed to do.
 *
 *   A read    finds the caller and reads the rows in one round trip (`readAs`). It reads for the caller that the isolate remembers,
 *             and returns the rows only if the caller is still the same.
 *   A write   authorizes first (`authorize`), and then writes in one batch, whose first statement states that the caller may
 *             still do so (`stillAllowed`). Anything expensive authorizes first, too.
 *
 * Work that continues after its request names its principal, which is checked then (`isPrincipalAllowed`).
 */

export type { Actor, TeamActor };

/**
 * The requirement of an operation: a scope, the operator, or any token except an upload token. Some admit others without the
 * scope: the operator, who has none because most operations make sense only within a team, and for files that they uploaded,
 * visitors, or only upload tokens that may delete.
 */
export type Access =
  | Scope
  | { scope: Scope; also: "operator" | "uploader" | "deleting token" }
  | "operator"
  | "any token";

type NoUpload = TeamActor & { kind: Exclude<TeamActor["kind"], "upload"> };
/** The callers that an access admits. */
export type ActorWith<A extends Access> = A extends Scope | { also: "uploader" | "deleting token" }
  ? TeamActor
  : A extends "operator"
    ? Operator
    : A extends "any token"
      ? Operator | NoUpload
      : Actor;

/** The scope that a token of a team needs. Null if it needs none, or if only the operator is admitted. */
export function scopeOf(access: Access): Scope | null {
  if (typeof access === "object") return access.scope;
  return access === "any token" || access === "operator" ? null : access;
}

export const admitsOperator = (access: Access): boolean =>
  typeof access === "object" ? access.also === "operator" : access === "operator" || access === "any token";

/** Whether visitors are admitted without the scope. The rule has to check that they uploaded the file. */
export const admitsUploader = (access: Access): boolean => typeof access === "object" && access.also === "uploader";

/** Whether upload tokens with `canDelete` are admitted, as far as their issuer has the scope. The rule has to check the same. */
export const admitsDeletingToken = (access: Access): boolean =>
  typeof access === "object" && access.also === "deleting token";

/** How heavy a request is, if a contributor sends it, or another caller. */
export type Weigh = (isContributor: boolean) => Weight;

/** The requirements of an operation on its token. */
export interface TokenUse<A extends Access> {
  access: A;
  graceMilliseconds?: number | undefined;
  weigh?: Weigh | undefined;
}

/** A request's token, and what its operation needs. */
export interface Credential<A extends Access = Access> {
  readonly access: A;
  /** How long a public key or upload token may still run the operation after its expiry. */
  readonly graceMilliseconds: number;
  /** SHA-256 of the token in hex. Null for the operator token, which needs no database. */
  readonly tokenHash: string | null;
  /** The number of the token's database. Null for the operator token. */
  readonly database: number | null;
  readonly uploadToken?: UploadToken;
  readonly weigh: Weigh;
  /** Set once the caller is authenticated, even if access is denied: for the log and the rate limits. */
  caller?: Caller;
}

interface Caller {
  actor: Actor;
  /** The limit that the request counts for. */
  limit: RequestLimit;
  /** Resolves once it is counted: to the limit that it exceeds, or null. */
  exceeded: Promise<RequestLimit | null>;
}

/** @throws `token_missing`, or `token_invalid` if the token can't be valid, such as one of a database that isn't bound */
export function readCredential<A extends Access>(
  deps: Deps,
  token: string | undefined,
  { access, graceMilliseconds = 0, weigh = () => false }: TokenUse<A>,
): Credential<A> {
  if (!token) throw new AppError("token_missing");
  const use = { access, graceMilliseconds, weigh };
  const uploadToken = openUploadToken(deps, token);
  if (uploadToken && uploadToken.expiresAt + graceMilliseconds <= deps.system.now())
    throw new AppError("token_invalid");
  if (uploadToken || isTokenShaped(token)) {
    const database = databaseOf(uploadToken?.teamId ?? token);
    if (!deps.databases.has(database)) throw new AppError("token_invalid");
    return { ...use, tokenHash: fingerprint(token), database, ...(uploadToken && { uploadToken }) };
  }
  const { operatorToken } = deps.settings;
  if (operatorToken === null || !sameSecret(token, operatorToken)) throw new AppError("token_invalid");
  return { ...use, tokenHash: null, database: null };
}

/** The parameters of the query that identifies a token. */
type TokenValues = {
  tokenHash: string;
  now: number;
  graceMilliseconds: number;
};

const isUserOfKey = and(eq(users.id, apiKeys.userId), eq(users.teamId, apiKeys.teamId));

const isOfContributor = hasRow(users, and(isUserOfKey, eq(users.role, OWN_FILES_ROLE)));

/**
 * The scopes of a row of `api_keys`: its own, or those that the user's role has now. A contributor's key has at most those of the
 * role, also if the user had another role when it was created (`narrowKeys`): the other scopes show what belongs to all of the team.
 */
export const presentScopes = (db: Db) => {
  const ofRole = db
    .select({ scopes: maskOfRole(users.role) })
    .from(users)
    .where(isUserOfKey);
  return sql<number>`coalesce(${apiKeys.scopes}, ${ofRole}, 0)`;
};

/** The owner of the files that a row of `api_keys` sees: its user, if that is a contributor. Null if it sees all of its team. */
export const presentOwner = sql<string | null>`iif(${isOfContributor}, ${apiKeys.userId}, null)`;

const isLive = (param: Param<TokenValues>) => sql`${apiKeys.tokenHash} = ${param("tokenHash")}
  and ${apiKeys.expiresAt} > ${param("now")} - iif(${apiKeys.kind} = 'public', ${param("graceMilliseconds")}, 0)`;

/** The caller of a live token. Finds nothing if the team is being deleted. */
const callerByToken = preparedQuery((db, param: Param<TokenValues>) => {
  const { id: keyId, teamId, userId, kind } = apiKeys;
  return db
    .select({
      keyId,
      teamId,
      userId,
      kind,
      teamStatus: teams.status,
      scopes: presentScopes(db),
      ownerId: presentOwner,
    })
    .from(apiKeys)
    .innerJoin(teams, and(eq(teams.id, apiKeys.teamId), ne(teams.status, "deleting")))
    .where(isLive(param));
});

/** The hash by which the row of a token is found. An upload token has that of its issuer, and the operator none. */
const rowHashOf = ({ tokenHash, uploadToken }: Credential): string => uploadToken?.issuerHash ?? tokenHash ?? "";

const callerOf = ({ system }: Deps, credential: Credential) =>
  callerByToken({
    tokenHash: rowHashOf(credential),
    now: system.now(),
    graceMilliseconds: credential.graceMilliseconds,
  });

/**
 * Authorizes the caller, in a separate round trip.
 * @throws `token_invalid` (also if revoked or expired, or if the team is deleted), `team_suspended`, `insufficient_scope`,
 *   `forbidden`
 */
export async function authorize<A extends Access>(deps: Deps, credential: Credential<A>): Promise<ActorWith<A>> {
  if (credential.tokenHash === null) return admitOperator<A>(deps, credential);
  const [row] = await read(deps, callerOf(deps, credential));
  return admit(deps, credential, row) as ActorWith<A>;
}

/* Reads */

declare const isSeen: unique symbol;
/**
 * The rows that a caller sees: those of its team, or only its own files. Nothing but `readAs` makes one, and gives it to the query whose
 * rows it returns together with the caller's.
 */
export type Viewer = Pick<TeamActor, "teamId" | "ownerId"> & { readonly [isSeen]: true };
const viewerOf = ({ teamId, ownerId }: Pick<TeamActor, "teamId" | "ownerId">) => ({ teamId, ownerId }) as Viewer;

/** A caller changes rarely, such as when a user gets another role, so a second read is almost always enough. */
const MAX_READS = 2;

/**
 * Reads rows for a caller, in the round trip that authorizes it. The query is for the team and owner that this isolate remembers of
 * the caller, and its rows are returned only if the caller's row has the same in that batch. Otherwise it reads once more.
 *
 * A token that the isolate doesn't know is authorized first, which takes one more round trip, and so is one that it remembers without
 * the permission: before that, neither reads a row of a team. A heavy request is counted first, too. The operator reads the named team.
 * @throws as `authorize` does; `unavailable` if the caller has changed with each read; `rate_limited`
 */
export async function readAs<A extends Access, T>(
  deps: Deps,
  credential: Credential<A>,
  query: (viewer: Viewer) => Query<T>,
  namedTeam: string | null = null,
): Promise<{ actor: ActorWith<A>; rows: T }> {
  // The type of rows can't be inferred from a union of queries.
  const queryFor = (viewer: Viewer) => query(viewer) as BoundQuery<T>;
  if (credential.tokenHash === null) {
    const actor = admitOperator<A>(deps, credential);
    // Without a team there is no database, and nothing to read.
    const rows =
      namedTeam === null ? ([] as T) : await read(deps, queryFor(viewerOf({ teamId: namedTeam, ownerId: null })));
    return { actor, rows };
  }
  let viewer = knownViewer(deps, credential) ?? (await authorizedViewer(deps, credential));
  for (let reads = 0; reads < MAX_READS; reads++) {
    const batch = { caller: callerOf(deps, credential), rows: queryFor(viewer) };
    const { caller, rows } = await read(deps, batch);
    const actor = admit(deps, credential, caller[0]);
    if (actor.teamId === viewer.teamId && actor.ownerId === viewer.ownerId) {
      return { actor: actor as ActorWith<A>, rows };
    }
    viewer = viewerOf(actor);
  }
  throw new AppError("unavailable");
}

/** The viewer, if this request has been authorized, or if the isolate remembers a caller with the permission. */
function knownViewer({ callers }: Deps, credential: Credential): Viewer | null {
  const authorized = credential.caller?.actor;
  if (authorized && authorized.kind !== "operator") return viewerOf(authorized);
  const row = callers.get(rowHashOf(credential));
  const actor = row && actorOf(credential, row);
  if (!actor || refusalFor(credential, actor) || credential.weigh(sharersOf(actor).isContributor)) return null;
  return viewerOf(actor);
}

async function authorizedViewer(deps: Deps, credential: Credential): Promise<Viewer> {
  const actor = (await authorize(deps, credential)) as TeamActor;
  await checkCounted(credential);
  return viewerOf(actor);
}

/**
 * Notes who calls. The request is counted for its caller, but once: a write that arrives slowly authorizes again. One that the
 * token has no permission for counts only for the token.
 */
function noteCaller({ limiter }: Deps, credential: Credential, actor: Actor, isPermitted = true): void {
  const sharers = sharersOf(actor);
  const token = tokenName(credential);
  limiter.noteAuthenticated(token, sharers);
  const weight = credential.weigh(sharers.isContributor);
  const limit = isPermitted ? limitOf(sharers, weight) : refusalLimitOf(sharers, weight);
  const count = async () => {
    if (!isPermitted) return (await limiter.countRefusal(token, sharers, limit)) ? null : limit;
    const isToken = limit === "visitors" && credential.uploadToken !== undefined;
    const counts = [limiter.countRequest(sharers, weight), isToken ? limiter.countUploadToken(token) : true];
    const [isCounted, isTokenCounted] = await Promise.all(counts);
    if (!isTokenCounted) return "upload-token";
    return isCounted ? null : limit;
  };
  credential.caller = { ...(credential.caller ?? { limit, exceeded: count() }), actor };
}

/** A visitor's requests that are refused count as those of others do: they have nothing to do with an event day. */
const refusalLimitOf = ({ counter, isContributor }: Sharers, weight: Weight) =>
  limitOf({ counter, isContributor }, weight);

/** Why the token has no permission for the request. Null if it has. */
function refusalFor({ access }: Credential, actor: TeamActor): AppError | null {
  if (access === "operator" || (actor.kind === "upload" && access === "any token")) return new AppError("forbidden");
  if (admitsUploader(access) && isVisitor(actor)) return null;
  const scope = scopeOf(access);
  return scope === null || (actor.scopes & SCOPES[scope]) !== 0 ? null : insufficientScope(scope);
}

/**
 * Refuses without the database what this isolate has refused the token in this minute. A session is authorized again, because its
 * user may have another role now, unless its refusals are too many. The scopes of a key never become wider.
 * @throws `insufficient_scope`, `forbidden`, `rate_limited`
 */
export async function refuseAgain({ limiter, ...deps }: Deps, credential: Credential): Promise<void> {
  const token = tokenName(credential);
  const row = limiter.refusedCaller(token);
  const actor = row && actorOf(credential, row);
  const refusal = actor && refusalFor(credential, actor);
  if (!refusal) return;
  const sharers = sharersOf(actor);
  const limit = refusalLimitOf(sharers, credential.weigh(sharers.isContributor));
  if (actor.kind === "session" && !limiter.areRefusalsBlocked(token, sharers, limit)) return;
  noteCaller({ ...deps, limiter }, credential, actor, false);
  throw refusal;
}

/** The token in the memory of the limiter. */
export const tokenName = ({ tokenHash }: Credential): string => tokenHash ?? "operator";

/**
 * Waits until the request of an authorized caller is counted. A write does so before it changes anything, and a heavy read before it
 * reads. @throws `rate_limited`
 */
export async function checkCounted({ caller }: Credential): Promise<void> {
  const exceeded = await caller?.exceeded;
  if (exceeded) throw new AppError("rate_limited", { limit: exceeded });
}

/** The files that a heavy request changes for each place of the limit that it takes. */
export const FILES_PER_PLACE = 10;
/** A larger change than the rest of a minute allows has to be possible in the next one. */
const MAX_PLACES_SHARE = 0.5;

/** Counts the places of a heavy request that changes this number of files, besides its first. @throws `rate_limited` */
export async function countFiles({ limiter }: Deps, { caller }: Credential, files: number): Promise<void> {
  if (!caller) return;
  const sharers = sharersOf(caller.actor);
  const limit = limitOf(sharers, true);
  const most = Math.floor(RATE_LIMITS[limit] * MAX_PLACES_SHARE);
  const places = Math.min(Math.ceil(files / FILES_PER_PLACE), most) - 1;
  if (places > 0 && !(await limiter.countPlaces(sharers, places))) throw new AppError("rate_limited", { limit });
}

function admitOperator<A extends Access>(deps: Deps, credential: Credential): ActorWith<A> {
  const actor: Operator = { kind: "operator", scopes: ALL_SCOPES };
  const isAdmitted = admitsOperator(credential.access);
  noteCaller(deps, credential, actor, isAdmitted);
  if (!isAdmitted) throw new AppError("forbidden");
  return actor as ActorWith<A>;
}

/** The caller with this row. One with an upload token has at most what visitors may do. */
function actorOf({ access, uploadToken, graceMilliseconds }: Credential, { teamStatus, ...of }: CallerRow): TeamActor {
  const isUploader = admitsUploader(access) && (uploadToken !== undefined || isVisitor(of));
  const scope = isUploader ? null : scopeOf(access);
  const right = { scopes: scope === null ? 0 : SCOPES[scope], graceMilliseconds };
  if (!uploadToken) return { ...of, right };
  const isDeleter = admitsDeletingToken(access) && uploadToken.limits.canDelete;
  const scopes = of.scopes & (isDeleter ? PUBLIC_SCOPES | DELETING_SCOPES : PUBLIC_SCOPES);
  return { ...of, right, kind: "upload", scopes, uploadToken };
}

/** Checks the caller in the order that is documented: token, team, scope. */
function admit(deps: Deps, credential: Credential, row: CallerRow | undefined): TeamActor {
  const rowHash = rowHashOf(credential);
  if (row) deps.callers.set(rowHash, row);
  else deps.callers.delete(rowHash);
  if (!row) throw new AppError("token_invalid");
  const actor = actorOf(credential, row);
  const refusal = row.teamStatus === "suspended" ? null : refusalFor(credential, actor);
  noteCaller(deps, credential, actor, refusal === null);
  if (row.teamStatus === "suspended") throw new AppError("team_suspended");
  if (!refusal) return actor;
  deps.limiter.noteRefused(tokenName(credential), row);
  throw refusal;
}

export const insufficientScope = (scope: Scope) =>
  new AppError("insufficient_scope", { message: `This token lacks the scope ${scope}.`, scope });

/** A caller can grant, change or delete only what its own scopes cover. @throws `insufficient_scope` */
export function checkCovered({ scopes }: Pick<Actor, "scopes">, mask: number): void {
  const [missing] = lacking(mask, scopes);
  if (missing) throw insufficientScope(missing);
}

/** The caller, if it also has this scope. Its write states the right to it, too. @throws `insufficient_scope` */
export function withScope(actor: TeamActor, scope: Scope): TeamActor {
  checkCovered(actor, SCOPES[scope]);
  return { ...actor, right: { ...actor.right, scopes: actor.right.scopes | SCOPES[scope] } };
}

/** Whether a mask in SQL has only scopes that the caller has. The condition of a write whose target has scopes. */
export const covers = ({ scopes }: Pick<Actor, "scopes">, mask: SQL): SQL<boolean> => sql`(${mask} & ~${scopes}) = 0`;

/** The opposite of `covers`: the reason `insufficient_scope` of a refused write. Also true for a mask that is null. */
export const exceeds = (caller: Pick<Actor, "scopes">, mask: SQL): SQL => sql`${covers(caller, mask)} is not true`;

/** The error of a write that SQL refused. `mask` has the scopes of its target, of which the error names a missing one. */
export function refusalError(refusal: CommonCode, caller: Pick<Actor, "scopes">, mask: number | null): AppError {
  const [missing] = refusal === "insufficient_scope" ? lacking(mask ?? 0, caller.scopes) : [];
  return missing ? insufficientScope(missing) : new AppError(refusal);
}

/** Whether the caller may decide how long files are kept: a secret key or an admin that sees all files of the team. */
export const isSecretKeyOrAdmin = ({ kind, scopes, ownerId }: TeamActor): boolean =>
  ownerId === null && (kind === "secret" || lacking(ALL_SCOPES, scopes).length === 0);

/** The key or session with this id. */
export const isKey = (teamId: string, id: string) => and(eq(apiKeys.id, id), eq(apiKeys.teamId, teamId));

interface StillAllowed {
  /** Scopes that the write grants to somebody else. */
  granted?: number;
  /** The write selects no files by who sees them, so a change of that doesn't matter. */
  isForAnyOwner?: boolean;
}

/**
 * The first statement of a write for a caller: its token is live and has the needed scopes, its team is active, and it sees the
 * same files as when it was authorized. Otherwise nothing of the write happens, and the caller gets what it would get now.
 * Null for the operator, whose token has no row.
 */
export function stillAllowed(
  { db, system }: Pick<Deps, "db" | "system">,
  actor: Actor,
  { granted = 0, isForAnyOwner = false }: StillAllowed = {},
): Guard | null {
  if (actor.kind === "operator") return null;
  const { teamId, keyId, ownerId, right } = actor;
  const mask = right.scopes | granted;
  const isLive = sql`${apiKeys.expiresAt} > ${system.now()} - iif(${apiKeys.kind} = 'public', ${right.graceMilliseconds}, 0)`;
  const lacked = sql`${mask} & ~${presentScopes(db)}`;
  const reason = sql`case when ${teams.id} is null then 'token_invalid'
    when ${teams.status} = 'suspended' then 'team_suspended'
    when ${lacked} <> 0 then 'lacks_' || (${lacked})
    ${isForAnyOwner ? sql`` : sql`when ${presentOwner} is not ${ownerId} then 'unavailable'`} end`;
  const query = db
    .select({ isAllowed: failsWith(reason) })
    .from(sql`(select 1) one`)
    .leftJoin(apiKeys, and(isKey(teamId, keyId), isLive))
    .leftJoin(teams, and(eq(teams.id, apiKeys.teamId), ne(teams.status, "deleting")));
  const errorOf = (reason: string) => {
    const [, scopes] = /^lacks_(\d+)$/.exec(reason) ?? [];
    const [missing] = lacking(Number(scopes ?? 0), 0);
    return missing ? insufficientScope(missing) : new AppError(reason as CommonCode);
  };
  return { query, errorOf };
}

/** The same for an upload. Who sees its file does not matter: a user may be promoted while it arrives. */
export const mayStillUpload = (deps: Deps, actor: TeamActor) => stillAllowed(deps, actor, { isForAnyOwner: true });

/* Invitations, folder changes and others that work after their request */

/**
 * The principal of something that works after its request: the user of a user's session, so that it continues after the user
 * logs out, or else the key, also of the key's session. A key is named by the first of those that it replaced by rotation.
 */
export const principalOf = ({ db }: Deps, { teamId, keyId }: Pick<TeamActor, "teamId" | "keyId">): SQL<string> => {
  const ownId = sql`iif(${apiKeys.kind} = 'session', ${apiKeys.userId}, ${apiKeys.id})`;
  const id = sql<string>`coalesce(${apiKeys.originId}, ${ownId})`;
  return sql`${db.select({ id }).from(apiKeys).where(isKey(teamId, keyId))}`;
};

interface Principal {
  teamId: string | SQLiteColumn;
  /** The result of `principalOf`. */
  id: string | SQLiteColumn;
  /** The files that the caller saw: those of this contributor, or all if it is null. */
  ownerId: string | null;
}

const principals = alias(users, "principal");

/**
 * Whether a principal could still ask for what it left behind: the user exists and has these scopes by the role, or the key or
 * one of its successors is live and has them, and it sees the same files. It is checked each time at which it takes effect.
 */
export function isPrincipalAllowed({ db, system }: Deps, { teamId, id, ownerId }: Principal, mask: number | SQL): SQL {
  const covers = (scopes: SQL) => sql`(${scopes} & ${mask}) = ${mask}`;
  const owner = sql`iif(${principals.role} = ${OWN_FILES_ROLE}, ${principals.id}, null)`;
  const isUser = and(eq(principals.id, id), eq(principals.teamId, teamId));
  const isLiveKey = and(
    eq(apiKeys.teamId, teamId),
    isApiKey,
    sql`${apiKeys.expiresAt} > ${system.now()} and ${covers(presentScopes(db))} and ${presentOwner} is ${ownerId}`,
  );
  const isPresentUser = and(isUser, covers(maskOfRole(principals.role)), sql`${owner} is ${ownerId}`);
  return sql`(exists (select 1 from ${users} ${principals} where ${isPresentUser})
    or ${hasRow(apiKeys, and(eq(apiKeys.id, id), isLiveKey))}
    or ${hasRow(apiKeys, and(eq(apiKeys.originId, id), isSuccessor, isLiveKey))})`;
}

export const teamNotAllowed = () => new AppError("forbidden", { message: "Only the operator can send a team ID." });

/** @throws `forbidden` if a team key names a team; `token_invalid` */
export async function refuseNamedTeam(deps: Deps, credential: Credential, teamId: string | undefined): Promise<void> {
  if (teamId === undefined || credential.tokenHash === null) return;
  await authorize(deps, credential);
  throw teamNotAllowed();
}

/* A team */

/** The team, unless it is being deleted. */
export const isExistingTeam = (teamId: string | SQLiteColumn) =>
  and(eq(teams.id, teamId), ne(teams.status, "deleting"));

/** The condition of every insert for a team. The team must also meet `condition`, if there is one. */
export const teamExists = (teamId: string | SQLiteColumn, condition?: SQL) =>
  hasRow(teams, and(isExistingTeam(teamId), condition));
