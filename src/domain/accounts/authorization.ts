import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteSelect } from "drizzle-orm/sqlite-core";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type BoundQuery, type Builder, type Db, type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys } from "../../platform/schema.ts";
import { fingerprint, sameSecret } from "../../platform/secrets.ts";
import { isTokenShaped } from "../../platform/system.ts";

/**
 * An authenticated caller. A secret key acts for its team. A public key may ship in a web page, and only uploads. The
 * operator creates, lists, gets and deletes keys of any team, and reads their events.
 */
export type Actor = { kind: "operator" } | TeamActor;

export interface TeamActor {
  kind: "secret" | "public";
  teamId: string;
  keyId: string;
  /** The user whose login the key is, or whose login created it. */
  userId: string | null;
}

/** The permission that an operation needs: to manage keys, to act for a team, or to upload for it. */
export type Permission = "keys" | "team" | "upload";

/** The callers that can have a permission. The operator only manages keys. */
export type ActorWith<R extends Permission> = R extends "keys" ? Actor : TeamActor;

export const PERMISSIONS: Record<Actor["kind"], readonly Permission[]> = {
  operator: ["keys"],
  secret: ["keys", "team", "upload"],
  public: ["upload"],
};

/** A request's token, and the permission that its operation needs. */
export interface Credential<R extends Permission = Permission> {
  readonly permission: R;
  /** SHA-256 of the token in hex. Null for the operator token, which needs no database. */
  readonly tokenHash: string | null;
  /** The caller, once authenticated, even without the permission. */
  actor: Actor | null;
}

/** @throws `token_missing`, or `token_invalid` if the token can't be valid */
export function readCredential<R extends Permission>(
  deps: Deps,
  token: string | undefined,
  permission: R,
): Credential<R> {
  if (!token) throw new AppError("token_missing");
  if (isTokenShaped(token)) return { permission, tokenHash: fingerprint(token), actor: null };
  const { operatorToken } = deps.settings;
  if (operatorToken === null || !sameSecret(token, operatorToken)) throw new AppError("token_invalid");
  return { permission, tokenHash: null, actor: null };
}

type TokenValues = {
  tokenHash: string;
  now: number;
  /** 1 if public keys have the permission too. */
  mayBePublic: number;
  /** The team that the operator named. */
  namedTeam: string | null;
};

const isLive = (param: Param<TokenValues>) =>
  and(eq(apiKeys.tokenHash, param("tokenHash")), gt(apiKeys.expiresAt, param("now")));

const keyByToken = preparedQuery((db, param: Param<TokenValues>) =>
  db
    .select({ keyId: apiKeys.id, teamId: apiKeys.teamId, userId: apiKeys.userId, isPublic: apiKeys.isPublic })
    .from(apiKeys)
    .where(isLive(param)),
);

/** A read that is limited to one team: the team of the token, or the team that the operator named. */
export type TeamRead<T> = (team: TokenValues) => BoundQuery<T>;

/**
 * Builds a read that `authorizeRead` authorizes in the same round trip: its WHERE requires `teamId` to be the team of the
 * token's live key, which must be secret unless public keys have the permission too. With an invalid token it finds
 * nothing. `around` wraps the limited query, if it is only a part of the one to send.
 */
export function teamRead<V extends object, B extends SQLiteSelect, Whole extends Builder = B>(
  teamId: SQLiteColumn,
  build: (db: Db, param: Param<V>) => { query: B; where?: SQL | undefined },
  around: (query: B, db: Db, param: Param<V>) => Whole = (query) => query as unknown as Whole,
): (values: V) => TeamRead<Awaited<Whole>> {
  const prepared = preparedQuery((db, param: Param<V & TokenValues>) => {
    const { query, where } = build(db, param);
    const hasPermission = and(isLive(param), sql`${apiKeys.isPublic} <= ${param("mayBePublic")}`);
    const ownTeam = db.select({ teamId: apiKeys.teamId }).from(apiKeys).where(hasPermission);
    const isOfTeam = eq(teamId, sql`coalesce(${param("namedTeam")}, ${ownTeam})`);
    return around(query.where(and(where, isOfTeam)), db, param);
  });
  return (values) => (team) => prepared({ ...values, ...team });
}

const tokenValues = ({ system }: Deps, tokenHash: string, permission: Permission): TokenValues => ({
  tokenHash,
  now: system.now(),
  mayBePublic: Number(PERMISSIONS.public.includes(permission)),
  namedTeam: null,
});

/**
 * Authenticates the caller and checks the permission, before a write or anything expensive.
 * @throws `token_invalid` (also if revoked or expired), `forbidden`
 */
export async function authorize<R extends Permission>(deps: Deps, credential: Credential<R>): Promise<ActorWith<R>> {
  if (credential.tokenHash === null) return admit(credential, { kind: "operator" });
  const [[key]] = await read(deps, [keyByToken(tokenValues(deps, credential.tokenHash, credential.permission))]);
  return admit(credential, actorOf(key));
}

/** Like `authorize`, with a read in the same round trip. The operator reads the named team. @returns the rows */
export async function authorizeRead<T>(
  deps: Deps,
  credential: Credential,
  teamRows: TeamRead<T>,
  namedTeam: string | null = null,
): Promise<T> {
  if (credential.tokenHash === null) {
    admit(credential, { kind: "operator" });
    // No key has an empty hash, so without a named team the operator finds nothing.
    const [rows] = await read(deps, [teamRows({ ...tokenValues(deps, "", credential.permission), namedTeam })]);
    return rows;
  }
  const token = tokenValues(deps, credential.tokenHash, credential.permission);
  const [[key], rows] = await read(deps, [keyByToken(token), teamRows(token)]);
  admit(credential, actorOf(key));
  return rows;
}

export const teamNotAllowed = () => new AppError("forbidden", { message: "Only the operator can send a team ID." });

/** @throws `forbidden` if a team key names a team; `token_invalid` */
export async function refuseNamedTeam(deps: Deps, credential: Credential, teamId: string | undefined): Promise<void> {
  if (teamId === undefined || credential.tokenHash === null) return;
  await authorize(deps, credential);
  throw teamNotAllowed();
}

function actorOf(key: (Omit<TeamActor, "kind"> & { isPublic: boolean }) | undefined): TeamActor {
  if (!key) throw new AppError("token_invalid");
  const { isPublic, ...actor } = key;
  return { kind: isPublic ? "public" : "secret", ...actor };
}

function admit<R extends Permission>(credential: Credential<R>, actor: Actor): ActorWith<R> {
  credential.actor = actor;
  if (!PERMISSIONS[actor.kind].includes(credential.permission)) throw new AppError("forbidden");
  return actor as ActorWith<R>;
}
