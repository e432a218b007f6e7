import { and, eq, not, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError, invalidField } from "../../errors.ts";
import { type Db, hasRow, type Param, preparedQuery, read } from "../../platform/db.ts";
import { apiKeys, isSession } from "../../platform/schema.ts";
import { fieldsOf, newEvent, writeWithEvent } from "../events/events.ts";
import { uploadCancellation } from "../files/unfinished.ts";
import { type Actor, type Credential, checkCovered, isCovered } from "./authorization.ts";
import { type ApiKey, anyKeyById, hasId, showKey } from "./keys.ts";
import { lacking, maskOf, type Scope } from "./scopes.ts";

/* Updates and deletions of API keys. An update only ever narrows what a key may do. A caller must cover the key's scopes. */

export interface KeyChanges {
  name?: string | undefined;
  scopes?: Scope[] | undefined;
  expiresAt?: number | undefined;
}

/** Null leaves a field unchanged. */
interface UpdateValues {
  id: string;
  teamId: string;
  callerKeyId: string | null;
  name: string | null;
  scopes: number | null;
  expiresAt: number | null;
}

type Target = Pick<UpdateValues, "id" | "teamId" | "callerKeyId">;

/** The operator changes keys of any team. @throws `not_found` */
async function targetOf(deps: Deps, actor: Actor, id: string): Promise<Target> {
  if (actor.kind !== "operator") return { id, teamId: actor.teamId, callerKeyId: actor.keyId };
  const [[row]] = await read(deps, [anyKeyById({ id })]);
  if (!row) throw new AppError("not_found");
  return { id, teamId: row.teamId, callerKeyId: null };
}

const isTarget = (param: Param<Target>) => and(hasId(param), eq(apiKeys.teamId, param("teamId")));
const isSessionOfKey = (param: Param<Target>) =>
  and(isSession, eq(apiKeys.createdByKeyId, param("id")), eq(apiKeys.teamId, param("teamId")));

/** `updateError` checks the conditions in turn to find the one that failed. */
const narrowKey = preparedQuery((db, param: Param<UpdateValues>) => {
  const changed = (name: "name" | "scopes" | "expiresAt") => sql`coalesce(${param(name)}, ${apiKeys[name]})`;
  return db
    .update(apiKeys)
    .set({ name: changed("name"), scopes: changed("scopes"), expiresAt: changed("expiresAt") })
    .where(
      and(
        isTarget(param),
        isCovered(db, param, sql`${apiKeys.scopes}`),
        sql`(coalesce(${param("scopes")}, 0) & ~${apiKeys.scopes}) = 0`,
        sql`coalesce(${param("expiresAt")}, 0) <= ${apiKeys.expiresAt}`,
      ),
    )
    .returning();
});

const keyState = preparedQuery((db, param: Param<Target>) => db.select().from(apiKeys).where(isTarget(param)));

/** Narrows the sessions that the key created to the key as it is now. */
const narrowSessions = preparedQuery((db, param: Param<UpdateValues>) => {
  const ofKey = (db: Db, name: "scopes" | "expiresAt") =>
    sql`${db.select({ value: apiKeys[name] }).from(apiKeys).where(isTarget(param))}`;
  const [scopes, expiresAt] = [ofKey(db, "scopes"), ofKey(db, "expiresAt")];
  const isWider = sql`((${apiKeys.scopes} & ~${scopes}) <> 0 or ${apiKeys.expiresAt} > ${expiresAt})`;
  return db
    .update(apiKeys)
    .set({ scopes: sql`${apiKeys.scopes} & ${scopes}`, expiresAt: sql`min(${apiKeys.expiresAt}, ${expiresAt})` })
    .where(and(isSessionOfKey(param), isWider));
});

/**
 * Renames the key, or narrows its scopes or lifetime, and those of the sessions that it created.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the key, `invalid_input` if a change would widen it
 */
export async function updateKey(
  deps: Deps,
  actor: Actor,
  credential: Credential,
  id: string,
  changes: KeyChanges,
): Promise<ApiKey> {
  if (changes.expiresAt !== undefined && changes.expiresAt <= deps.system.now()) {
    throw invalidField("expiresAt", "Must be in the future. To end the key now, delete it.");
  }
  const values: UpdateValues = {
    ...(await targetOf(deps, actor, id)),
    name: changes.name ?? null,
    scopes: changes.scopes ? maskOf(changes.scopes) : null,
    expiresAt: changes.expiresAt ?? null,
  };
  const event = newEvent(deps, "apikey.updated", actor, values, { fields: fieldsOf(changes) });
  const queries = [narrowKey(values), keyState(values), narrowSessions(values)] as const;
  const [[updated], [state]] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (!state) throw new AppError("not_found");
  if (!updated) throw updateError(credential, values, state.scopes ?? 0);
  return showKey(deps, credential, updated);
}

function updateError(credential: Credential, { scopes }: UpdateValues, present: number): AppError {
  checkCovered(credential, present);
  const added = lacking(scopes ?? 0, present);
  if (added.length > 0)
    return invalidField("scopes", `The key doesn't have ${added.join(", ")}. Scopes can only be removed.`);
  return invalidField("expiresAt", "The key expires earlier. A lifetime can only be shortened.");
}

const isDeletable = (db: Db, param: Param<Target>) =>
  and(isTarget(param), isCovered(db, param, sql`${apiKeys.scopes}`));
const deleteKeyById = preparedQuery((db, param: Param<Target>) =>
  db.delete(apiKeys).where(isDeletable(db, param)).returning(),
);

/** Runs before the deletion, for the key and its sessions. If there is no key to delete, cancels nothing. */
const cancelUploadsOfKey = uploadCancellation((db, param: Param<Target>) => {
  const key = sql`from ${apiKeys} where ${isDeletable(db, param)}`;
  return sql`(select ${apiKeys.id} ${key} union all select ${apiKeys.id} from ${apiKeys}
    where ${isSession} and ${apiKeys.createdByKeyId} = ${param("id")} and exists (select 1 ${key}))`;
});

/** Ends the sessions that the key created, once it is deleted. */
const endSessionsOfDeleted = preparedQuery((db, param: Param<Target>) =>
  db.delete(apiKeys).where(and(isSessionOfKey(param), not(hasRow(apiKeys, eq(apiKeys.id, param("id")))))),
);

/**
 * Revokes the key and the sessions that it created, immediately, and cancels their unfinished uploads.
 * @returns the deleted key
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the key
 */
export async function deleteKey(deps: Deps, actor: Actor, credential: Credential, id: string): Promise<ApiKey> {
  const key = await targetOf(deps, actor, id);
  const cancelUploads = cancelUploadsOfKey(deps, key);
  const queries = [...cancelUploads, deleteKeyById(key), keyState(key), endSessionsOfDeleted(key)] as const;
  const event = { ...newEvent(deps, "apikey.revoked", actor, key), position: cancelUploads.length + 1 };
  const [, , [row], [state]] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (row) return showKey(deps, credential, row);
  if (state) checkCovered(credential, state.scopes ?? 0);
  throw new AppError("not_found");
}
