import { eq, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError, invalidField } from "../../errors.ts";
import { columnsFrom, insertWhere, type Param, preparedQuery, read, rowOf } from "../../platform/db.ts";
import { webhooks } from "../../platform/event-schema.ts";
import { newId } from "../../platform/system.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "../accounts/authorization.ts";
import { teamExists } from "../accounts/teams.ts";
import {
  deletePending,
  ENDED_ROWS,
  endPending,
  enqueueWebhooks,
  isWebhook,
  type WebhookKey,
  type WebhookRow,
  webhookByKey,
} from "./deliveries.ts";
import { type EventType, fieldsOf, newEvent, writeWithEvent } from "./events.ts";
import { encryptSecret, newSecret } from "./signing.ts";
import { validateWebhookUrl } from "./webhook-url.ts";

/** Each webhook adds two rows written to every event of the team. */
export const MAX_WEBHOOKS = 10;

const storedTypes = (types: EventType[] | null | undefined) => (types ? JSON.stringify([...new Set(types)]) : null);

/** @throws `invalid_input` */
function normalizeUrl(deps: Deps, text: string): string {
  const validated = validateWebhookUrl(text, deps.settings.isInsecureWebhookAllowed);
  if ("url" in validated) return validated.url;
  throw invalidField("url", validated.problem);
}

export interface NewWebhook {
  url: string;
  types?: EventType[] | null | undefined;
  description: string;
}

/** The statement itself enforces the limit, so concurrent inserts cannot exceed it. The id makes it idempotent. */
const insertWebhook = preparedQuery((db, param: Param<WebhookRow>) => {
  const count = sql`(select count(*) from ${webhooks} where ${eq(webhooks.teamId, param("teamId"))})`;
  return insertWhere(db, webhooks, rowOf(webhooks, param), sql`${count} < ${MAX_WEBHOOKS} and ${teamExists(param)}`);
});

/**
 * @returns the webhook and its secret, which no later response shows
 * @throws `invalid_input` for a URL that is not allowed, `too_many_webhooks`
 */
export async function createWebhook(
  deps: Deps,
  actor: TeamActor,
  { url, types, description }: NewWebhook,
): Promise<{ webhook: WebhookRow; secret: string }> {
  const now = deps.system.now();
  const key = { id: newId(deps.system), teamId: actor.teamId };
  const secret = newSecret(deps.system);
  const row: WebhookRow = {
    ...key,
    url: normalizeUrl(deps, url),
    types: storedTypes(types),
    description,
    status: "enabled",
    disabledReason: null,
    encryptedSecret: encryptSecret(deps, key, secret),
    oldEncryptedSecret: null,
    oldSecretEndsAt: null,
    encryptedWith: deps.secrets.currentKeyId,
    failures: 0,
    failingSince: null,
    resumeAt: null,
    leaseId: null,
    leaseEndsAt: 0,
    createdAt: now,
    updatedAt: now,
    version: 0,
    failureBodies: "[]",
  };
  const event = newEvent(deps, "webhook.created", actor, row);
  const [, [stored]] = await writeWithEvent(deps, event, [insertWebhook(row), webhookByKey(key)], {
    isIdempotent: true,
  });
  if (!stored) {
    const message = `A team can have at most ${MAX_WEBHOOKS} webhooks. Delete one and retry.`;
    throw new AppError("too_many_webhooks", { message });
  }
  return { webhook: row, secret };
}

const webhooksOfTeam = teamRead(webhooks.teamId, (db) => ({
  query: db.select().from(webhooks).orderBy(webhooks.id).$dynamic(),
}));

/** Lists the team's webhooks, oldest first. */
export const listWebhooks = (deps: Deps, credential: Credential<"webhooks:read">): Promise<WebhookRow[]> =>
  authorizeRead(deps, credential, webhooksOfTeam({}));

const webhookById = teamRead(webhooks.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select().from(webhooks).$dynamic(),
  where: eq(webhooks.id, param("id")),
}));

/** @throws `not_found` */
export async function fetchWebhook(
  deps: Deps,
  credential: Credential<"webhooks:read">,
  id: string,
): Promise<WebhookRow> {
  const [row] = await authorizeRead(deps, credential, webhookById({ id }));
  if (!row) throw new AppError("not_found");
  return row;
}

/** Fetches the row for a caller who is already authorized. @throws `not_found` */
export async function findWebhook(deps: Deps, { teamId }: TeamActor, id: string): Promise<WebhookRow> {
  const [[row]] = await read(deps, [webhookByKey({ teamId, id })]);
  if (!row) throw new AppError("not_found");
  return row;
}

export type WebhookChanges = { [Field in keyof NewWebhook]?: NewWebhook[Field] | undefined } & {
  status?: WebhookRow["status"] | undefined;
};

/** Null leaves a column as it is. `hasTypes` says whether to set `types`, because null is one of its values. */
type ChangeValues = WebhookKey & {
  url: string | null;
  hasTypes: number;
  types: string | null;
  description: string | null;
  status: string | null;
  updatedAt: number;
};

/** Enabling the webhook or changing its URL resets its failures. The lease stays, because its round is still running. */
const updateById = preparedQuery((db, param: Param<ChangeValues>) => {
  const changed = (name: "url" | "description" | "status") => sql`coalesce(${param(name)}, ${webhooks[name]})`;
  const isReset = sql`(${param("status")} = 'enabled' or ${param("url")} is not null)`;
  const resetFailures = (name: "failures" | "failingSince" | "resumeAt", initial: SQL) =>
    sql`case when ${isReset} then ${initial} else ${webhooks[name]} end`;
  return db
    .update(webhooks)
    .set({
      url: changed("url"),
      types: sql`case when ${param("hasTypes")} then ${param("types")} else ${webhooks.types} end`,
      description: changed("description"),
      status: changed("status"),
      disabledReason: sql`case ${param("status")} when 'enabled' then null when 'disabled' then 'requested'
        else ${webhooks.disabledReason} end`,
      failures: resetFailures("failures", sql`0`),
      failingSince: resetFailures("failingSince", sql`null`),
      resumeAt: resetFailures("resumeAt", sql`null`),
      ...columnsFrom(param, "updatedAt"),
      version: sql`${webhooks.version} + 1`,
    })
    .where(isWebhook(param))
    .returning();
});

/**
 * Disabling ends the pending deliveries, the first of them in the same batch.
 * @throws `not_found`, `invalid_input` for a URL that is not allowed
 */
export async function updateWebhook(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: WebhookChanges,
): Promise<WebhookRow> {
  const { url, types, description, status } = changes;
  const key = { id, teamId: actor.teamId };
  const now = deps.system.now();
  const update = updateById({
    ...key,
    url: url === undefined ? null : normalizeUrl(deps, url),
    hasTypes: types === undefined ? 0 : 1,
    types: storedTypes(types),
    description: description ?? null,
    status: status ?? null,
    updatedAt: now,
  });
  const event = newEvent(deps, "webhook.updated", actor, key, { fields: fieldsOf(changes) });
  const end = status === "disabled" ? [endPending(key, now)] : [];
  const [[row], ended] = await writeWithEvent(deps, event, [update, ...end], { isIdempotent: false });
  if (!row) throw new AppError("not_found");
  const isResumed = status === "enabled" || (url !== undefined && row.status === "enabled");
  if (isResumed || ended?.length === ENDED_ROWS)
    deps.after(enqueueWebhooks(deps, [{ teamId: row.teamId, webhookId: id }]));
  return row;
}

const deleteById = preparedQuery((db, param: Param<WebhookKey>) =>
  db.delete(webhooks).where(isWebhook(param)).returning({ id: webhooks.id }),
);

/** Also deletes pending deliveries. The recovery job purges the others when their events expire. @throws `not_found` */
export async function deleteWebhook(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const key = { id, teamId: actor.teamId };
  const event = newEvent(deps, "webhook.deleted", actor, key);
  const queries = [deleteById(key), deletePending(key)] as const;
  const [rows, deleted] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (rows.length === 0) throw new AppError("not_found");
  if (deleted.length === ENDED_ROWS) {
    deps.after(enqueueWebhooks(deps, [{ teamId: actor.teamId, webhookId: id }]));
  }
}
