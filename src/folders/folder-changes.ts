import { and, asc, eq, isNull, lte, ne, not, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { isPrincipalAllowed, principalOf, type TeamActor, teamExists } from "../access/authorization.ts";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import { filesOf } from "../access/own-files.ts";
import { SCOPES } from "../access/scopes.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { AppError, errorCode, invalidField } from "../errors.ts";
import { type Initiator, writeWithEvent } from "../events/events.ts";
import { asDeleter, MAX_DELETED_FILES, manyDeletions } from "../files/deletion.ts";
import { files, isHeld } from "../files/files.schema.ts";
import { filesInFolders, folderMove } from "../files/in-folders.ts";
import { folderKey, MAX_FOLDER_BYTES } from "../files/names.ts";
import { type Batch, evaluate, firstOf, hasRow, insertWhere, type RowsOf, read } from "../platform/db.ts";
import { MINUTE, newId } from "../platform/system.ts";
import { folderChanges, folders } from "./folders.schema.ts";
import { AFTER_SEPARATOR, foldersOf } from "./folders.ts";

/*
 * Moves and deletes folders with everything in them. A row of `folder_changes` records the progress of a change. It advances in
 * steps, each of which is one batch:
 *
 *   1. select   the next files of the folder, in the order of their index
 *   2. change   those of them that were in the folder when the change was requested, each with its event, and some of the
 *               created folders
 *   3. finish   continue after these files, or delete the row once nothing is left
 *
 * The request does the first step, and the recovery job the others. What a step selects depends only on its row, so a
 * repeated step changes nothing twice. A team changes one folder at a time, and so does each contributor among the own files,
 * who therefore can't hold up the team. If two changes concern the same file, the first one wins, because it sets `folder_since`.
 *
 * A change that can't be stopped would continue to delete after a leaked key is revoked. So each step requires that the user or
 * the key who requested it could still do so, with the same scopes and for the same files, and that the team is active.
 * Otherwise, the change ends as it is. It continues when a user logs out, when a session expires, and when a key is rotated.
 *
 * A file that comes into the folder after the request stays there, whether it is uploaded or moved (`folder_since`). So a
 * deletion never deletes a file that a client stores after the request.
 */

export const folderBusy = errorCode(
  "folder_busy",
  409,
  "Another folder of the team is being moved or deleted. Retry in a few minutes.",
);

/** Files of a step. A move rewrites up to ten rows for each. */
const MOVED_FILES = 500;
/** Created folders of a step. */
const STEP_FOLDERS = 500;
/** Folders whose paths are checked if a move makes them longer: up to three rows each. */
const CHECKED_FOLDERS = 1500;
/** Held files of a folder that its deletion counts. */
export const MAX_COUNTED_HOLDS = 1000;
/** How long the request may take for the first step before the recovery job continues. */
const MAX_STEP_MILLISECONDS = MINUTE;
/** Steps that one batch of the recovery job takes. Each has up to ten queries. */
const CONTINUED_STEPS = 4;

type FolderChange = typeof folderChanges.$inferSelect;
type Requested = Omit<FolderChange, "requestedBy" | "position" | "stepEnd" | "dueAt">;
type Range = Pick<FolderChange, "teamId" | "ownerId" | "folder">;
const ownerIn = ({ ownerId }: Pick<Range, "ownerId">): string | null => (ownerId === "" ? null : ownerId);

/** The folder and those below it: one range, because no path has a character before the separator. */
const isWithin = (column: SQLiteColumn, folder: string) =>
  sql`${column} >= ${folderKey(folder)} and ${column} < ${folderKey(folder) + AFTER_SEPARATOR}`;
function filesWithin({ folder, ...range }: Range): { from: SQL; where: SQL | undefined } {
  const { from, where } = filesInFolders({ ...range, ownerId: ownerIn(range) });
  return { from, where: and(where, isWithin(files.folderKey, folder)) };
}
const foldersWithin = (range: Range) =>
  and(foldersOf({ ...range, ownerId: ownerIn(range) }), isWithin(folders.folderKey, range.folder));

const isOfOwner = ({ teamId, ownerId }: Omit<Range, "folder">) =>
  and(eq(folderChanges.teamId, teamId), eq(folderChanges.ownerId, ownerId));
const isChange = ({ id, ...change }: Omit<Range, "folder"> & Pick<FolderChange, "id">) =>
  and(isOfOwner(change), eq(folderChanges.id, id));

/** The scopes that a change needs at each of its steps: without a trash, a deletion erases. */
function scopesOf({ settings }: Deps, { target }: Pick<FolderChange, "target">): number {
  if (target !== null) return SCOPES["files:write"];
  return SCOPES["files:delete"] | (settings.trashDays > 0 ? 0 : SCOPES["files:erase"]);
}
const isActive = (teamId: string) => and(eq(teams.id, teamId), eq(teams.status, "active"));

/** Whether the change of a row may continue. */
function mayContinue(deps: Deps, change: Requested): SQL {
  const { teamId } = change;
  const principal = { teamId, id: folderChanges.requestedBy, ownerId: ownerIn(change) };
  return hasRow(teams, and(isActive(teamId), isPrincipalAllowed(deps, principal, scopesOf(deps, change))));
}

/** Whether a path in the folder would be too long after the move, or there are too many folders to check. */
function isTooLong({ db }: Deps, range: Range, target: string): SQL | undefined {
  const added = Buffer.byteLength(target) - Buffer.byteLength(range.folder);
  if (added <= 0) return undefined;
  const { from, where } = filesWithin(range);
  const next = (bound: SQL) => sql`(select ${files.folderKey} from ${from} where ${where}
    and ${files.folderKey} > ${bound} order by ${files.folderKey} limit 1)`;
  const created = db
    .select({ path: folders.folderKey })
    .from(folders)
    .where(foldersWithin(range))
    .limit(CHECKED_FOLDERS);
  return sql`(select count(*) >= ${CHECKED_FOLDERS} or max(length(cast(path as blob))) > ${MAX_FOLDER_BYTES - added} from (
    with recursive child (path) as (select ${next(sql`''`)} union all
      select ${next(sql`child.path`)} from child where child.path is not null limit ${CHECKED_FOLDERS})
    select path from child where path is not null union all select folder_key from ${created} found) matching)`;
}

/** How many files the first step of a change finds at most. */
export async function countFilesWithin({ db, ...deps }: Deps, { teamId, ownerId }: TeamActor, folder: string) {
  const { from, where } = filesWithin({ teamId, ownerId: ownerId ?? "", folder });
  const first = sql`(select 1 from ${from} where ${where} limit ${MOVED_FILES}) found`;
  const [found] = await read({ db, ...deps }, db.select({ count: sql<number>`count(*)` }).from(first));
  return found?.count ?? 0;
}

/** The held files in a folder, of which at most `MAX_COUNTED_HOLDS` are examined. */
const countHeld = ({ teamId, ownerId, folder }: Range) =>
  sql<number>`(select count(*) from (select ${files.userId} as owner from ${files} indexed by files_held
    where ${and(filesOf({ teamId, ownerId: null }), isHeld, isWithin(files.folderKey, folder))}
    limit ${MAX_COUNTED_HOLDS}) examined where ${ownerId === "" ? sql`true` : sql`owner = ${ownerId}`})`;

/** The batch of one step. */
function stepOf(deps: Deps, change: Requested, dueAt: number) {
  const { db } = deps;
  const { folder, target, teamId, createdAt } = change;
  const { from, where } = filesWithin(change);
  const ofRow = (column: SQL) => sql`(select ${column} from ${folderChanges} where ${isChange(change)})`;
  const [position, stepEnd] = [ofRow(sql`position`), ofRow(sql`step_end`)];
  const key = sql`(${files.folderKey}, ${files.id})`;
  const isNext = sql`${key} > (${position} ->> 0, ${position} ->> 1)`;
  const last = sql`(select json_array(${files.folderKey}, ${files.id}) from ${from} where ${where} and ${isNext}
    order by ${files.folderKey}, ${files.id} limit 1 offset ${(target === null ? MAX_DELETED_FILES : MOVED_FILES) - 1})`;
  const stopped = db
    .delete(folderChanges)
    .where(and(isChange(change), not(mayContinue(deps, change))))
    .returning({ id: folderChanges.id });
  const select = db
    .update(folderChanges)
    .set({ stepEnd: sql`${last}`, dueAt })
    .where(isChange(change));
  // A change that has stopped, or was completed by another run, does nothing.
  const isOpen = hasRow(folderChanges, isChange(change));
  const isInStep = sql`(${stepEnd} is null or ${key} <= (${stepEnd} ->> 0, ${stepEnd} ->> 1))`;
  const isAffected = and(
    where,
    isNext,
    isInStep,
    lte(files.folderSince, createdAt),
    // A held file stays, with its folder.
    target === null ? isNull(files.hold) : undefined,
    isOpen,
  );
  const selected = (columns: SQL) => sql`(select ${columns} from ${from} where ${isAffected})`;
  const isNextFolder = and(foldersWithin(change), lte(folders.createdAt, createdAt), isOpen);
  const nextFolders = sql`select ${folders.teamId}, ${folders.folderKey}, ${folders.ownerId} from ${folders}
    where ${isNextFolder} order by ${folders.folderKey} limit ${STEP_FOLDERS}`;
  const removeFolders = db.delete(folders).where(sql`(team_id, folder_key, owner_id) in (${nextFolders})`);
  const initiator: Initiator = JSON.parse(change.initiator);
  const changes: Batch =
    target === null
      ? manyDeletions(deps, initiator, teamId, selected)
      : {
          files: folderMove(deps, { initiator, teamId, folder, target }, selected),
          folders: copyFolders(deps, folder, target, nextFolders),
        };
  const isLast = and(isChange(change), isNull(folderChanges.stepEnd), sql`not exists (${nextFolders})`);
  const finish = db.delete(folderChanges).where(isLast);
  const advance = db
    .update(folderChanges)
    .set({ position: sql`${folderChanges.stepEnd}` })
    .where(and(isChange(change), sql`step_end is not null`));
  const left = db.select({ id: folderChanges.id }).from(folderChanges).where(isChange(change));
  return { stopped, select, changes, removeFolders, finish, advance, left };
}

const copyFolders = ({ db, system }: Deps, folder: string, target: string, nextFolders: SQL) =>
  db
    .insert(folders)
    .select(
      sql`select team_id, owner_id, ${folderKey(target)} || substr(folder_key, length(${folderKey(folder)}) + 1),
        ${system.now()} from (${nextFolders}) found where true`,
    )
    .onConflictDoNothing();

/** @returns whether it is complete. If not, the recovery job continues */
type Started = { folder: string; isComplete: boolean };

/**
 * Moves a folder. Moving into a folder that exists merges the two. A folder without files or folders is already as requested.
 * @throws `folder_busy`, `invalid_input` for a folder that
 *   would be in itself or has a path that would be too long
 */
export async function moveFolder(deps: Deps, actor: TeamActor, folder: string, target: string): Promise<Started> {
  if (`${target}/`.startsWith(`${folder}/`)) throw invalidField("to", "Must not be in the folder itself.");
  const { isComplete } = await changeFolder(deps, actor, folder, target);
  return { folder: target, isComplete };
}

/**
 * Deletes a folder with its files, except for held ones. @returns also how many of these it has
 * @throws `folder_busy`, `insufficient_scope` if that erases files and the caller may not
 */
export async function deleteFolder(deps: Deps, actor: TeamActor, folder: string): Promise<Started & { held: number }> {
  return { folder, ...(await changeFolder(deps, asDeleter(deps, actor), folder, null)) };
}

async function changeFolder(deps: Deps, actor: TeamActor, folder: string, target: string | null) {
  const { teamId, kind, keyId, userId } = actor;
  const ownerId = actor.ownerId ?? "";
  const now = deps.system.now();
  const initiator = JSON.stringify({ kind, keyId, userId });
  const change = {
    teamId,
    ownerId,
    folder,
    target,
    initiator,
    id: newId(deps.system, deps.db.number),
    createdAt: now,
  };
  const refusal = firstOf({
    folder_busy: hasRow(folderChanges, and(isOfOwner(change), ne(folderChanges.id, change.id))),
    too_long: target === null ? undefined : isTooLong(deps, change, target),
  });
  const row = {
    ...change,
    requestedBy: principalOf(deps, actor),
    position: '["",""]',
    stepEnd: null,
    dueAt: now + MAX_STEP_MILLISECONDS,
  };
  const held = target === null ? countHeld(change) : sql<number>`0`;
  const batch = {
    checked: evaluate(deps.db, { refusal, held: held.as("held") }),
    insert: insertWhere(deps.db, folderChanges, row, teamExists(teamId, sql`${refusal} is null`)),
    step: stepOf(deps, change, row.dueAt),
  };
  const {
    checked: [found],
    step,
  } = await writeWithEvent(deps, batch, { ...STEP_OPTIONS, caller: actor });
  const isComplete = isLastStep(deps, change, step);
  const reason = found?.refusal;
  if (reason === "folder_busy") throw new AppError(folderBusy);
  if (reason === "too_long") {
    const limit = `Paths can have at most ${MAX_FOLDER_BYTES} bytes, and a longer path needs less than ${CHECKED_FOLDERS} folders in it.`;
    throw invalidField("to", limit);
  }
  return { isComplete, held: found?.held ?? 0 };
}

/**
 * After a lost response, a repetition takes a step more, or finds nothing left. Without its inserts, a step of a deletion would move
 * no file, and go on to the next ones.
 */
const STEP_OPTIONS = { isIdempotent: true, needsInserts: true };

/** Whether the change is complete. */
function isLastStep(deps: Deps, { teamId }: Requested, { stopped, left }: RowsOf<ReturnType<typeof stepOf>>): boolean {
  if (stopped.length > 0) deps.log("warn", "folder_change_stopped", { teamId });
  return left.length === 0;
}

/** Continues the changes that are due. */
async function continueFolderChanges(deps: Deps) {
  const now = deps.system.now();
  const due = deps.db
    .select()
    .from(folderChanges)
    .where(lte(folderChanges.dueAt, now))
    .orderBy(asc(folderChanges.dueAt))
    .limit(CONTINUED_STEPS);
  const rows = await read(deps, due);
  for (const change of rows) {
    let isComplete = false;
    for (let step = 0; step < CONTINUED_STEPS / rows.length && !isComplete; step++) {
      isComplete = isLastStep(
        deps,
        change,
        await writeWithEvent(deps, stepOf(deps, change, now), { ...STEP_OPTIONS, caller: null }),
      );
    }
  }
  return { folderSteps: rows.length };
}

/** The changes of deleted teams. */
export const folderChangesOfDeleted = rowsOfDeleted(folderChanges, {
  key: [folderChanges.teamId, folderChanges.ownerId],
});

export const unfinishedFolderChanges: RecoveryStep = {
  name: "folders",
  counts: ["folderSteps"],
  runBatch: continueFolderChanges,
  maxBatches: 2,
  queries: 45,
};
