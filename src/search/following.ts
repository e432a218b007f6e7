import { and, asc, desc, eq, gt, lt, type SQL, sql } from "drizzle-orm";
import { isExistingTeam } from "../access/authorization.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps } from "../deps.ts";
import { events } from "../events/events.schema.ts";
import type { FollowerKey } from "../events/followers.schema.ts";
import { follow } from "../events/followers.ts";
import { fileObjects } from "../files/beside.schema.ts";
import { FILE_EVENTS } from "../files/file-event-types.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { hasRow, isOneOf, qualified, read, write } from "../platform/db.ts";
import { KIND as TRANSCRIPT } from "../transcripts/transcripts.ts";
import type { FileVersion } from "./index-store.ts";

/* The rows that the index of a team reads from the database: events, and the present transcripts. */

/** The kind of the follower, see events/followers.ts. */
export const SEARCH = "search";
/** It also follows the changes of transcripts, see `wants` in service.ts. */
const FOLLOWED = [FILE_EVENTS.deleted, FILE_EVENTS.trashed, FILE_EVENTS.restored].map(({ name }) => name);
export const followerOf = (teamId: string): FollowerKey => ({ teamId, kind: SEARCH, id: teamId });

/** Events that one query reads. */
const PAGE_EVENTS = 500;

/** The present transcripts of files that are listed. Starts at the transcripts. */
const TRANSCRIPTS = sql`${fileObjects} indexed by file_objects_transcripts cross join ${files}
  on ${teamOfFile} = ${fileObjects.teamId} and ${files.id} = ${fileObjects.fileId}`;
/** As in the index. A parameter would not match it. */
const isTranscript = (teamId: string) =>
  and(eq(fileObjects.teamId, teamId), sql`${fileObjects.kind} = 'transcript' and ${fileObjects.state} = 'current'`);

const selectTranscripts = ({ db }: Deps) =>
  db
    .select({
      fileId: qualified<string>(fileObjects.fileId).as("file"),
      version: qualified<string>(fileObjects.version).as("v"),
    })
    .from(TRANSCRIPTS);

interface Changes {
  /** The number of the last event of the team. */
  last: number;
  /** Whether the log still has the event with the number of the cursor, or the cursor is before the first. */
  isContinuous: boolean;
  /** The files whose transcript may have changed, and the number of the last event that was read. */
  fileIds: string[];
  cursor: number;
  hasMore: boolean;
}

/** Reads the next events of a team. @returns null if there is no such team */
export async function readChanges(deps: Deps, teamId: string, cursor: number): Promise<Changes | null> {
  const { db } = deps;
  const isOfTeam = eq(events.teamId, teamId);
  const fields = sql<string | null>`json_extract(${events.data}, '$.fields')`.as("fields");
  const batch = {
    team: db.select({ id: teams.id }).from(teams).where(isExistingTeam(teamId)),
    last: db.select({ seq: events.seq }).from(events).where(isOfTeam).orderBy(desc(events.seq)).limit(1),
    known: db
      .select({ seq: events.seq })
      .from(events)
      .where(and(isOfTeam, eq(events.seq, cursor))),
    page: db
      .select({ seq: events.seq, type: events.type, subjectId: events.subjectId, fields })
      .from(events)
      .where(and(isOfTeam, gt(events.seq, cursor)))
      .orderBy(asc(events.seq))
      .limit(PAGE_EVENTS),
  };
  const { team, last, known, page } = await read(deps, batch);
  if (team.length === 0) return null;
  const isConcerned = ({ type, fields }: (typeof page)[number]) =>
    FOLLOWED.includes(type) ||
    (type === FILE_EVENTS.updated.name && (JSON.parse(fields ?? "[]") as string[]).includes(TRANSCRIPT));
  return {
    last: last[0]?.seq ?? 0,
    isContinuous: cursor === 0 || known.length > 0,
    fileIds: [...new Set(page.filter(isConcerned).map(({ subjectId }) => subjectId))],
    cursor: page.at(-1)?.seq ?? cursor,
    hasMore: page.length === PAGE_EVENTS,
  };
}

/** The versions of the present transcripts of these files. */
export async function versionsOf(deps: Deps, teamId: string, fileIds: string[]): Promise<Map<string, string>> {
  if (fileIds.length === 0) return new Map();
  const isWanted = isOneOf(fileObjects.fileId, fileIds);
  const rows = await read(deps, selectTranscripts(deps).where(and(isTranscript(teamId), isWanted)));
  return new Map(rows.map(({ fileId, version }) => [fileId, version]));
}

/** The present transcripts of the files with ids below one, newest first. */
export const transcriptsBelow = (deps: Deps, teamId: string, below: string, limit: number): Promise<FileVersion[]> =>
  read(
    deps,
    selectTranscripts(deps)
      .where(and(isTranscript(teamId), lt(fileObjects.fileId, below)))
      .orderBy(desc(fileObjects.fileId))
      .limit(limit),
  );

/** The query of the newest files with a transcript that meet a condition. */
export const filesWithTranscript = ({ db }: Deps, teamId: string, condition: SQL | undefined, limit: number) =>
  db
    .select({ id: qualified<string>(fileObjects.fileId).as("file") })
    .from(TRANSCRIPTS)
    .where(and(isTranscript(teamId), condition))
    .orderBy(desc(fileObjects.fileId))
    .limit(limit);

/** Has the events of the team wake the index, if it does not yet. */
export async function followLog(deps: Deps, teamId: string): Promise<void> {
  const source = sql`where ${hasRow(teams, isExistingTeam(teamId))}`;
  const types = sql`${JSON.stringify(FOLLOWED)}`;
  await write(deps, follow(deps, followerOf(teamId), types, source), { isIdempotent: true, caller: null });
}
