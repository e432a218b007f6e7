import { and, isNotNull, isNull, or, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import { isSecretKeyOrAdmin, type TeamActor, teamExists } from "../access/authorization.ts";
import { filesOf, removedOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import type { EventType } from "../events/event-type.ts";
import { writeWithEvent } from "../events/events.ts";
import { evaluate, type Query } from "../platform/db.ts";
import { FILE_EVENTS } from "./file-event-types.ts";
import { recordedFile } from "./file-events.ts";
import { files, isHeld } from "./files.schema.ts";
import { changed, deleteAfterRetention, type Hold, ofKnownFile, trashedFiles } from "./files.ts";
import { type FileOf, isFile, isRemoved } from "./names.ts";
import { isHeldInTrash, isTrashed, removed } from "./removed.schema.ts";

/*
 * Holds. A held file can't be deleted, by a request, by retention, or with its team, until a secret key or an admin releases
 * it. A file in the trash can be held, too: then it stays there.
 */

export const fileHeld = errorCode(
  "file_held",
  409,
  "A hold forbids the deletion. Release the hold, as an admin or with a secret key, and retry.",
);

/** The reason is shown with the file, and a row is small. */
export const MAX_REASON_LENGTH = 200;

/** The id of a held file of the team, listed or in the trash; null if there is none. Without the indexes, SQLite reads all files. */
export function heldFileOf(teamId: string) {
  const whose = { teamId, ownerId: null };
  return sql<string | null>`coalesce(
    (select ${files.id} from ${files} indexed by files_held where ${and(filesOf(whose), isHeld)} limit 1),
    (select ${removed.id} from ${removed} indexed by removed_held where ${and(removedOf(whose), isHeldInTrash)} limit 1))`;
}

/** The values of a file in the trash after a visible change. */
const changedInTrash = (now: number) =>
  sql`json_set(${removed.file}, '$.version', (${removed.file} ->> '$.version') + 1, '$.updated_at', ${now})`;

/** The changes of a file that is listed, or in the trash, of which one finds the file. */
function inBoth(
  deps: Deps,
  type: EventType,
  actor: TeamActor,
  file: FileOf,
  changes: { listed: Query; trashed: Query },
) {
  const what = { type, initiator: actor, file };
  return {
    listed: recordedFile(deps, what, changes.listed),
    trashed: recordedFile(deps, { ...what, source: trashedFiles() }, changes.trashed),
  };
}

/**
 * Holds the file. If it is held for another reason, the new one replaces it.
 * @throws `not_found`; `forbidden` for a caller that sees only its own files
 */
export async function holdFile(deps: Deps, actor: TeamActor, id: string, reason: string): Promise<Hold> {
  const { teamId, keyId, userId, ownerId } = actor;
  // A hold forbids the deletion of the whole team.
  if (ownerId !== null) throw new AppError("forbidden", { message: "A contributor can't hold files." });
  const file = { ...actor, id };
  const now = deps.system.now();
  const hold: Hold = { reason, createdAt: now, createdBy: { keyId, userId } };
  const isOther = (column: SQLiteColumn) => or(isNull(column), sql`${column} ->> '$.reason' <> ${reason}`);
  // A deleted team gets no hold, which would keep it from being erased. Its deletion finds those that came before.
  const isExisting = teamExists(teamId);
  const listed = deps.db
    .update(files)
    .set({ hold: JSON.stringify(hold), ...changed(now) })
    .where(and(isFile(file), isOther(files.hold), isExisting));
  const trashed = deps.db
    .update(removed)
    .set({ hold: JSON.stringify(hold), file: changedInTrash(now) })
    .where(and(isRemoved(file), isTrashed, isOther(removed.hold), isExisting));
  const held = evaluate(deps.db, { hold: ofKnownFile<string>(file, "hold") });
  const batch = { changes: inBoth(deps, FILE_EVENTS.held, actor, file, { listed, trashed }), held };
  const [row] = (await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor })).held;
  if (!row?.hold) throw new AppError("not_found");
  return JSON.parse(row.hold);
}

/** Can be repeated. @throws `not_found`; `forbidden` for any caller but a secret key or an admin that sees all files */
export async function releaseFile(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  if (!isSecretKeyOrAdmin(actor)) {
    throw new AppError("forbidden", {
      message: "Only a secret key or an admin that sees all files can release a hold.",
    });
  }
  const file = { ...actor, id };
  const now = deps.system.now();
  const check = evaluate(deps.db, { id: ofKnownFile<string>(file, "id") });
  const listed = deps.db
    .update(files)
    .set({ hold: null, ...deleteAfterRetention(now), ...changed(now) })
    .where(and(isFile(file), isNotNull(files.hold)));
  const trashed = deps.db
    .update(removed)
    .set({ hold: null, file: changedInTrash(now) })
    .where(and(isRemoved(file), isTrashed, isNotNull(removed.hold)));
  const batch = { changes: inBoth(deps, FILE_EVENTS.released, actor, file, { listed, trashed }), check };
  const [found] = (await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor })).check;
  if (!found?.id) throw new AppError("not_found");
}
