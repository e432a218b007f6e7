import { and, eq, not, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { hasRow, type Param, preparedQuery } from "../../platform/db.ts";
import { apiKeys, isApiKey, isSession, users } from "../../platform/schema.ts";
import { type EventValues, eventValues, insertEvent, writeWithEvent } from "../events/events.ts";
import { uploadCancellation } from "../files/unfinished.ts";
import type { ExpectedVersions } from "../versions.ts";
import type { Credential, TeamActor } from "./authorization.ts";
import { changeError, DELETED, isChangeable, isKeyOfUser, type TargetValues, targetOf, targetState } from "./users.ts";

/* The deletion of a user, with the sessions and keys that end with it. */

const deleteTarget = preparedQuery((db, param: Param<TargetValues>) =>
  db.delete(users).where(isChangeable(db, param)).returning({ id: users.id }),
);

type DeletionValues = TargetValues & { keepKeys: boolean };

/** True for the sessions and keys that are left once the user is deleted. */
const isOfDeleted = (param: Param<TargetValues>) =>
  and(isKeyOfUser(param), not(hasRow(users, eq(users.id, param("id")))));
const isRevoked = (param: Param<DeletionValues>) => sql`(${isSession} or not ${param("keepKeys")})`;
const cancelUploadsOfDeleted = uploadCancellation((db, param: Param<DeletionValues>) => {
  const ids = db
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(and(isOfDeleted(param), isRevoked(param)));
  return sql`${ids}`;
});
const revokeKeysOfDeleted = preparedQuery((db, param: Param<DeletionValues>) =>
  db.delete(apiKeys).where(and(isOfDeleted(param), isRevoked(param))),
);
/** A kept key no longer belongs to anyone, so it can create further keys. */
const releaseKeysOfDeleted = preparedQuery((db, param: Param<DeletionValues>) =>
  db.update(apiKeys).set({ userId: null }).where(isOfDeleted(param)),
);

/**
 * Inserted before the deletion under the same condition, because it needs the version and the keys. A team has at most
 * `MAX_TEAM_KEYS` API keys, so their ids take less than 30 KB.
 */
const insertDeletedEvent = preparedQuery(
  (db, param: Param<DeletionValues & Omit<EventValues, "subjectVersion" | "data">>) => {
    const keyIds = db
      .select({ ids: sql`json_group_array(${apiKeys.id})` })
      .from(apiKeys)
      .where(and(isKeyOfUser(param), isApiKey, isRevoked(param)));
    return insertEvent(
      db,
      param,
      {
        subjectVersion: sql`${users.version}`,
        data: sql`json_object('_id', ${param("id")}, 'revokedKeyIds', json(${keyIds}))`,
      },
      sql`from ${users} where ${isChangeable(db, param)}`,
    );
  },
);

/**
 * Deletes the user with their sessions, and the keys that these created unless `keepKeys`, and cancels the unfinished uploads
 * of what it deletes.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the user's role, `last_admin`, `version_mismatch`
 */
export async function deleteUser(
  deps: Deps,
  actor: TeamActor,
  credential: Credential,
  id: string,
  { versions, keepKeys }: { versions: ExpectedVersions; keepKeys: boolean },
): Promise<void> {
  const target = { ...targetOf(actor, id, versions, DELETED), keepKeys };
  const insert = insertDeletedEvent({ ...target, ...eventValues(deps, "user.deleted", actor, target) });
  const event = { teamId: actor.teamId, position: 0, insert };
  const endKeys = [...cancelUploadsOfDeleted(deps, target), revokeKeysOfDeleted(target), releaseKeysOfDeleted(target)];
  const queries = [deleteTarget(target), targetState(target), ...endKeys] as const;
  const [deleted, [state]] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (deleted.length === 0) throw changeError(credential, versions, state);
}
