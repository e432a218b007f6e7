import { and, eq, type SQL, sql } from "drizzle-orm";
import type { Db, Param } from "../../platform/db.ts";
import { apiKeys, files, type TeamOfFile, teamOfFile } from "../../platform/schema.ts";
import {
  ownerOf,
  presentOwner,
  type TeamActor,
  type TokenValues,
  teamOf,
  type Viewer,
  valuesOf,
} from "./authorization.ts";

/*
 * Selects the files that a caller sees and changes. Contributors, and keys with `ownFilesOnly`, have only their own.
 * Every query of files for a caller takes its condition from here. No other compiles: the type of `files` has no `teamId`.
 */

/** All files of a team, or those of one owner. */
export type FilesOf = Pick<Viewer, "teamId" | "ownerId">;

/** The files that a caller sees. A job sees those of a team, and passes `ownerId: null`. */
export const filesOf = ({ teamId, ownerId }: FilesOf) =>
  and(eq(teamOfFile, teamId as TeamOfFile | SQL), ownerId === null ? undefined : eq(files.ownerId, ownerId));

/** The columns of a new file that say whose it is. */
export const ownerColumns = ({ teamId, keyId, userId, ownerId }: TeamActor) => ({
  ...{ teamId: teamId as TeamOfFile, keyId, userId },
  ownerId: userId ?? ownerId,
});

/** The files that the caller of a read sees, in the round trip that authorizes it. For one file: no index serves a list. */
export function filesOfToken(db: Db, token: TokenValues | Param<TokenValues>) {
  const param = typeof token === "function" ? token : valuesOf(token);
  return and(eq(teamOfFile, teamOf(db, param)), sql`${ownerOf(db, param)} in ('', ${files.ownerId})`);
}

/** The keys and sessions that a caller sees: one with only its own files sees those of its user, and those that it created. */
export function keysOf({ ownerId, keyId }: Pick<Viewer, "ownerId" | "keyId">): SQL | undefined {
  if (ownerId === null) return undefined;
  // Only those that are limited like the caller: others would show it more.
  return sql`(${presentOwner} = ${ownerId} or ${presentOwner} is not null and ${apiKeys.createdByKeyId} = ${keyId})`;
}
