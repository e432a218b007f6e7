import { and, eq, sql } from "drizzle-orm";
import { files, type TeamOfFile, teamOfFile } from "../files/files.schema.ts";
import { removed, teamOfRemoved } from "../files/removed.schema.ts";
import type { Param } from "../platform/db.ts";
import { uploads } from "../uploads/uploads.schema.ts";
import type { TeamActor } from "./actor.ts";

/*
 * Selects the files that a caller sees and changes. Contributors, with their sessions and keys, have only their own.
 * Every query of files for a caller takes its condition from here. No other compiles: the type of `files` has no `teamId`.
 */

/** All files of a team, or those of one owner. */
export type FilesOf = Pick<TeamActor, "teamId" | "ownerId">;

/** The files that a caller sees. A job sees those of a team, and passes `ownerId: null`. */
export const filesOf = ({ teamId, ownerId }: FilesOf) =>
  and(eq(teamOfFile, teamId as TeamOfFile), ownerId === null ? undefined : eq(files.userId, ownerId));

/** All files of a team, in a prepared query. */
export const filesOfTeamParam = (param: Param<Pick<FilesOf, "teamId">>) => eq(teamOfFile, param("teamId") as never);

/** The files that a caller sees, in a prepared query. For one file: no index serves a list. */
export const filesOfParam = (param: Param<FilesOf>) =>
  and(filesOfTeamParam(param), sql`(${param("ownerId")} is null or ${files.userId} = ${param("ownerId")})`);

/** The caller's files that are in the trash, or wait for their bytes to be deleted. */
export const removedOf = ({ teamId, ownerId }: FilesOf) =>
  and(eq(teamOfRemoved, teamId as TeamOfFile), ownerId === null ? undefined : eq(removed.userId, ownerId));

/** The caller's uploads: of the files that it will see. */
export const uploadsOf = ({ teamId, ownerId }: FilesOf) =>
  and(eq(uploads.teamId, teamId), ownerId === null ? undefined : eq(uploads.userId, ownerId));

/** The same in a prepared query. Use it only for one upload, because no index serves it for a list. */
export const uploadsOfParam = (param: Param<FilesOf>) =>
  and(
    eq(uploads.teamId, param("teamId")),
    sql`(${param("ownerId")} is null or ${uploads.userId} = ${param("ownerId")})`,
  );

/** The columns of a new file that say whose it is. */
export const ownerColumns = ({ teamId, keyId, userId }: { teamId: string; keyId: string; userId: string | null }) => ({
  teamId: teamId as TeamOfFile,
  keyId,
  userId,
});
