import { and, isNotNull, isNull, or, type SQL, sql } from "drizzle-orm";
import { isSecretKeyOrAdmin, type TeamActor, teamExists } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { writeWithEvent } from "../events/events.ts";
import { fileEvent } from "../files/file-events.ts";
import { files, isKept } from "../files/files.schema.ts";
import { changed, deleteAfterRetention, type Hold } from "../files/files.ts";
import { isFile } from "../files/names.ts";

/*
 * Holds. A held file can't be deleted, by a request, by retention, or with its team, until a secret key or an admin releases
 * it. A file in the trash can be held, too: then it stays there.
 */

/** The reason is shown with the file, and a row is small. */
export const MAX_REASON_LENGTH = 200;

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
  const isOther = or(isNull(files.hold), sql`${files.hold} ->> '$.reason' <> ${reason}`);
  const place = deps.db
    .update(files)
    .set({ hold: JSON.stringify(hold), ...changed(now) })
    // A deleted team gets no hold, which would keep it from being erased. Its deletion finds those that came before.
    .where(and(isFile(file), isKept, isOther, teamExists(teamId)));
  const held = deps.db
    .select({ hold: files.hold })
    .from(files)
    .where(and(isFile(file), isKept, isNotNull(files.hold)));
  const event = fileEvent(deps, "file.held", actor, file);
  const [, [row]] = await writeWithEvent(deps, event, [place, held], { isIdempotent: true });
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
  const check = deps.db
    .select({ id: files.id })
    .from(files)
    .where(and(isFile(file), isKept));
  // A file in the trash has its own time.
  const ifListed = (value: SQL) => sql`iif(${files.trashedAt} is null, ${value}, null)`;
  const { deleteAfter, deleteAfterBy } = deleteAfterRetention(now);
  const release = deps.db
    .update(files)
    .set({ hold: null, deleteAfter: ifListed(deleteAfter), deleteAfterBy: ifListed(deleteAfterBy), ...changed(now) })
    .where(and(isFile(file), isKept, isNotNull(files.hold)));
  const event = { ...fileEvent(deps, "file.released", actor, file), position: 2 };
  const [[found]] = await writeWithEvent(deps, event, [check, release], { isIdempotent: true });
  if (!found) throw new AppError("not_found");
}
