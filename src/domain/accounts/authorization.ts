import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteSelect } from "drizzle-orm/sqlite-core";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type BoundQuery, type Db, type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys } from "../../platform/schema.ts";
import { fingerprint, sameSecret } from "../../platform/secrets.ts";
import { isTokenShaped } from "../../platform/system.ts";

/**
 * An authenticated caller. A secret key acts for its team; a public key may ship in a web page and only uploads; the
 * operator creates, lists, fetches and deletes keys of any team, and nothing else.
 */
export type Actor = { kind: "operator" } | { kind: "secret" | "public"; teamId: string; keyId: string };

/** One that belongs to a team. */
export type TeamActor = Extract<Actor, { teamId: string }>;

/** What an operation needs of its caller: to manage keys, to act for a team, or to upload for it. */
export type Right = "keys" | "team" | "upload";

/** Who may have a right: the operator manages keys only. */
export type ActorWith<R extends Right> = R extends "keys" ? Actor : TeamActor;

const RIGHTS: Record<Actor["kind"], readonly Right[]> = {
  operator: ["keys"],
  secret: ["keys", "team", "upload"],
  public: ["upload"],
};

/** A request's token and the right its operation needs. The database has not been asked yet whether the token is good. */
export interface Credential<R extends Right = Right> {
  readonly right: R;
  /** SHA-256 of the token, hex; null for the operator, whose token needs no database. */
  readonly tokenHash: string | null;
  /** Called once the caller is authenticated, whether or not they have the right. */
  readonly onAuthenticated: (actor: Actor) => void;
}

/** @throws `token_missing`, or `token_invalid` where it can't be a token of ours */
export function readCredential<R extends Right>(
  deps: Deps,
  token: string | undefined,
  right: R,
  onAuthenticated: (actor: Actor) => void,
): Credential<R> {
  if (!token) throw new AppError("token_missing");
  if (isTokenShaped(token)) return { right, tokenHash: fingerprint(token), onAuthenticated };
  const { operatorToken } = deps.settings;
  const isOperator = operatorToken !== null && sameSecret(token, operatorToken);
  if (!isOperator) throw new AppError("token_invalid");
  return { right, tokenHash: null, onAuthenticated };
}

type TokenValues = { tokenHash: string; now: number };

const isLive = (param: Param<TokenValues>) =>
  and(eq(apiKeys.tokenHash, param("tokenHash")), gt(apiKeys.expiresAt, param("now")));

const keyByToken = preparedQuery((db, param: Param<TokenValues>) =>
  db
    .select({ keyId: apiKeys.id, teamId: apiKeys.teamId, isPublic: apiKeys.isPublic })
    .from(apiKeys)
    .where(isLive(param)),
);

/** A read of one team's rows: that of the token, or of any team for the operator, for whom `token` is null. */
export type TeamRead<T> = (token: TokenValues | null) => BoundQuery<T>;

/**
 * A read that is authorised in its own round trip: `authorizeRead` runs it in one batch with the look-up of the key, and
 * adds to its WHERE that `teamId` is the team of that very key, a live and secret one. With a token that is not, it finds
 * nothing.
 */
export function teamRead<V extends object, B extends SQLiteSelect>(
  teamId: SQLiteColumn,
  build: (db: Db, param: Param<V>) => { query: B; where?: SQL | undefined },
): (values: V) => TeamRead<Awaited<B>> {
  const forTeam = preparedQuery((db, param: Param<V & TokenValues>): B => {
    const { query, where } = build(db, param);
    const isTeamKey = and(isLive(param), eq(apiKeys.isPublic, false));
    const team = db.select({ teamId: apiKeys.teamId }).from(apiKeys).where(isTeamKey);
    return query.where(and(where, eq(teamId, sql`${team}`)));
  });
  const forOperator = preparedQuery((db, param: Param<V>): B => {
    const { query, where } = build(db, param);
    return query.where(where);
  });
  return (values) => (token) => (token ? forTeam({ ...values, ...token }) : forOperator(values));
}

/**
 * Authenticates the caller and checks their right, before a write or anything expensive.
 * @throws `token_invalid` (unknown, revoked and expired alike), `forbidden`
 */
export async function authorize<R extends Right>(deps: Deps, credential: Credential<R>): Promise<ActorWith<R>> {
  if (credential.tokenHash === null) return admit(credential, { kind: "operator" });
  const token = { tokenHash: credential.tokenHash, now: deps.system.now() };
  const [[key]] = await read(deps, [keyByToken(token)]);
  return admit(credential, actorOf(key));
}

/** The same with a read in the same round trip. @returns its rows, read for no one else than the caller */
export async function authorizeRead<T>(deps: Deps, credential: Credential, wanted: TeamRead<T>): Promise<T> {
  if (credential.tokenHash === null) {
    admit(credential, { kind: "operator" });
    const [rows] = await read(deps, [wanted(null)]);
    return rows;
  }
  const token = { tokenHash: credential.tokenHash, now: deps.system.now() };
  const [[key], rows] = await read(deps, [keyByToken(token), wanted(token)]);
  admit(credential, actorOf(key));
  return rows;
}

function actorOf(key: { keyId: string; teamId: string; isPublic: boolean } | undefined): TeamActor {
  if (!key) throw new AppError("token_invalid");
  return { kind: key.isPublic ? "public" : "secret", teamId: key.teamId, keyId: key.keyId };
}

function admit<R extends Right>({ right, onAuthenticated }: Credential<R>, actor: Actor): ActorWith<R> {
  onAuthenticated(actor);
  if (!RIGHTS[actor.kind].includes(right)) throw new AppError("forbidden");
  return actor as ActorWith<R>;
}
