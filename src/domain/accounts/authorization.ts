import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteSelect } from "drizzle-orm/sqlite-core";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type BoundQuery, type Builder, type Db, type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys } from "../../platform/schema.ts";
import { fingerprint, sameSecret } from "../../platform/secrets.ts";
import { isTokenShaped } from "../../platform/system.ts";

/**
 * An authenticated caller. A secret key acts for its team; a public key may ship in a web page and only uploads; the
 * operator creates, lists, fetches and deletes keys of any team, and nothing else.
 */
export type Actor = { kind: "operator" } | TeamActor;

/** One that belongs to a team. */
export interface TeamActor {
  kind: "secret" | "public";
  teamId: string;
  keyId: string;
  /** Whose login made the key; null of any other key. */
  userId: string | null;
}

/** What an operation needs of its caller: to manage keys, to act for a team, or to upload for it. */
export type Right = "keys" | "team" | "upload";

/** Who may have a right: the operator manages keys only. */
export type ActorWith<R extends Right> = R extends "keys" ? Actor : TeamActor;

export const RIGHTS: Record<Actor["kind"], readonly Right[]> = {
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

type TokenValues = {
  tokenHash: string;
  now: number;
  /** 1 where a public key has the right that is asked for. */
  mayBePublic: number;
};

const tokenValues = (deps: Deps, tokenHash: string, right: Right): TokenValues => ({
  tokenHash,
  now: deps.system.now(),
  mayBePublic: Number(RIGHTS.public.includes(right)),
});

const isLive = (param: Param<TokenValues>) =>
  and(eq(apiKeys.tokenHash, param("tokenHash")), gt(apiKeys.expiresAt, param("now")));

const keyByToken = preparedQuery((db, param: Param<TokenValues>) =>
  db
    .select({ keyId: apiKeys.id, teamId: apiKeys.teamId, userId: apiKeys.userId, isPublic: apiKeys.isPublic })
    .from(apiKeys)
    .where(isLive(param)),
);

/** A read of one team's rows: that of the token; for the operator the one that is named, or any. */
export type TeamRead<T> = (team: TokenValues | { teamId: string } | null) => BoundQuery<T>;

/**
 * A read that is authorised in its own round trip: `authorizeRead` runs it in one batch with the look-up of the key, and
 * adds to its WHERE that `teamId` is the team of that very key, a live one, and a secret one unless a public key has the
 * right too. With a token that is not, it finds nothing. `around` makes of the query that is so limited the one that is
 * sent, where that holds it as a part.
 */
export function teamRead<V extends object, B extends SQLiteSelect, Whole extends Builder = B>(
  teamId: SQLiteColumn,
  build: (db: Db, param: Param<V>) => { query: B; where?: SQL | undefined },
  around: (query: B, db: Db, param: Param<V>) => Whole = (query) => query as unknown as Whole,
): (values: V) => TeamRead<Awaited<Whole>> {
  const forTeam = preparedQuery((db, param: Param<V & TokenValues>) => {
    const { query, where } = build(db, param);
    const hasRight = and(isLive(param), sql`${apiKeys.isPublic} <= ${param("mayBePublic")}`);
    const team = db.select({ teamId: apiKeys.teamId }).from(apiKeys).where(hasRight);
    return around(query.where(and(where, eq(teamId, sql`${team}`))), db, param);
  });
  const forNamed = preparedQuery((db, param: Param<V & { teamId: string }>) => {
    const { query, where } = build(db, param);
    return around(query.where(and(where, eq(teamId, param("teamId")))), db, param);
  });
  const forAny = preparedQuery((db, param: Param<V>) => {
    const { query, where } = build(db, param);
    return around(query.where(where), db, param);
  });
  return (values) => (team) => {
    if (!team) return forAny(values);
    return "teamId" in team ? forNamed({ ...values, ...team }) : forTeam({ ...values, ...team });
  };
}

/**
 * Authenticates the caller and checks their right, before a write or anything expensive.
 * @throws `token_invalid` (unknown, revoked and expired alike), `forbidden`
 */
export async function authorize<R extends Right>(deps: Deps, credential: Credential<R>): Promise<ActorWith<R>> {
  if (credential.tokenHash === null) return admit(credential, { kind: "operator" });
  const token = tokenValues(deps, credential.tokenHash, credential.right);
  const [[key]] = await read(deps, [keyByToken(token)]);
  return admit(credential, actorOf(key));
}

/**
 * The same with a read in the same round trip. `teamId` limits what the operator reads to one team.
 * @returns its rows, read for no one else than the caller
 */
export async function authorizeRead<T>(
  deps: Deps,
  credential: Credential,
  wanted: TeamRead<T>,
  teamId?: string,
): Promise<T> {
  if (credential.tokenHash === null) {
    admit(credential, { kind: "operator" });
    const [rows] = await read(deps, [wanted(teamId === undefined ? null : { teamId })]);
    return rows;
  }
  const token = tokenValues(deps, credential.tokenHash, credential.right);
  const [[key], rows] = await read(deps, [keyByToken(token), wanted(token)]);
  admit(credential, actorOf(key));
  return rows;
}

export const namesTeam = () => new AppError("forbidden", { message: "Only the operator names a team." });

/** @throws `forbidden` where a team's key names a team, as the operator may; `token_invalid` */
export async function refuseNamedTeam(deps: Deps, credential: Credential, teamId: string | undefined): Promise<void> {
  if (teamId === undefined || credential.tokenHash === null) return;
  await authorize(deps, credential);
  throw namesTeam();
}

function actorOf(key: (Omit<TeamActor, "kind"> & { isPublic: boolean }) | undefined): TeamActor {
  if (!key) throw new AppError("token_invalid");
  const { isPublic, ...actor } = key;
  return { kind: isPublic ? "public" : "secret", ...actor };
}

function admit<R extends Right>({ right, onAuthenticated }: Credential<R>, actor: Actor): ActorWith<R> {
  onAuthenticated(actor);
  if (!RIGHTS[actor.kind].includes(right)) throw new AppError("forbidden");
  return actor as ActorWith<R>;
}
