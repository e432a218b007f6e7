import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { given, insertWhere, type Param, preparedQuery, read, rowOf } from "../../platform/db.ts";
import { webhooks } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "../accounts/authorization.ts";
import { judgeAddress, surroundingsOf } from "./addresses.ts";
import { isWebhook, type WebhookKey, type WebhookRow, webhookByKey } from "./deliveries.ts";
import { type EventType, newEvent, writeWithEvent } from "./events.ts";
import { encryptSecret, newSecret, reencryptSecret } from "./signing.ts";

/** Each adds a row written to every event of the team. */
export const MAX_WEBHOOKS = 10;
/** For so long the secret before signs too, so that a receiver can take up the new one without missing anything. */
export const OLD_SECRET_MILLISECONDS = 24 * 60 * 60 * 1000;

/** Why a webhook is disabled: its team asked, it answered 410, or it took nothing for days. */
export type DisabledReason = "requested" | "gone" | "failing";

/** A webhook as its team sees it. Instants are milliseconds since the epoch. */
export interface Webhook
  extends Pick<WebhookRow, "id" | "teamId" | "url" | "description" | "status" | "createdAt" | "updatedAt" | "version"> {
  /** Null for all. */
  types: EventType[] | null;
  disabledReason: DisabledReason | null;
}

const parseTypes = (types: string | null): EventType[] | null => types && JSON.parse(types);
const storedTypes = (types: EventType[] | null | undefined) => (types ? JSON.stringify([...new Set(types)]) : null);

function view(row: WebhookRow): Webhook {
  const { id, teamId, url, types, description, status, disabledReason, createdAt, updatedAt, version } = row;
  return {
    id,
    teamId,
    url,
    types: parseTypes(types),
    description,
    status,
    disabledReason: disabledReason as DisabledReason | null,
    createdAt,
    updatedAt,
    version,
  };
}

/** @throws `invalid_input` */
function acceptAddress(deps: Deps, text: string, ownHost: string): string {
  const judged = judgeAddress(text, surroundingsOf(deps, ownHost));
  if ("url" in judged) return judged.url;
  throw new AppError("invalid_input", { errors: [{ path: "url", message: judged.refusal }] });
}

export interface NewWebhook {
  url: string;
  types?: EventType[] | null | undefined;
  description: string;
}

/** The limit is decided here, also between two inserts at once. The id makes it idempotent. */
const insertWebhook = preparedQuery((db, param: Param<WebhookRow>) => {
  const count = sql`(select count(*) from ${webhooks} where ${eq(webhooks.teamId, param("teamId"))})`;
  return insertWhere(db, webhooks, rowOf(webhooks, param), sql`${count} < ${MAX_WEBHOOKS}`);
});

/**
 * `ownHost` is the host of the request: an address there is refused.
 * @returns the webhook, and the secret that no later answer shows
 * @throws `invalid_input` for an address that nothing is sent to, `too_many_webhooks` above ten
 */
export async function createWebhook(
  deps: Deps,
  actor: TeamActor,
  { url, types, description }: NewWebhook,
  ownHost: string,
): Promise<{ webhook: Webhook; secret: string }> {
  const now = deps.system.now();
  const key = { id: newId(deps.system), teamId: actor.teamId };
  const secret = newSecret(deps.system);
  const row: WebhookRow = {
    ...key,
    url: acceptAddress(deps, url, ownHost),
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
    ownHost,
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  const event = newEvent(deps, "webhook.created", actor, row);
  const [, [stored]] = await writeWithEvent(deps, event, [insertWebhook(row), webhookByKey(key)], {
    isIdempotent: true,
  });
  if (!stored) {
    const message = `A team can have at most ${MAX_WEBHOOKS} webhooks. Delete one and retry.`;
    throw new AppError("too_many_webhooks", { message });
  }
  return { webhook: view(row), secret };
}

const webhooksOfTeam = teamRead(webhooks.teamId, (db) => ({
  query: db.select().from(webhooks).orderBy(webhooks.id).$dynamic(),
}));

/** All of the team's, oldest first. */
export async function listWebhooks(deps: Deps, credential: Credential<"team">): Promise<Webhook[]> {
  return (await authorizeRead(deps, credential, webhooksOfTeam({}))).map(view);
}

const webhookById = teamRead(webhooks.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select().from(webhooks).$dynamic(),
  where: eq(webhooks.id, param("id")),
}));

/** @throws `not_found` */
export async function fetchWebhook(deps: Deps, credential: Credential<"team">, id: string): Promise<Webhook> {
  const [row] = await authorizeRead(deps, credential, webhookById({ id }));
  if (!row) throw new AppError("not_found");
  return view(row);
}

/** The row itself, for who is authorised already. @throws `not_found` */
export async function findWebhook(deps: Deps, { teamId }: TeamActor, id: string): Promise<WebhookRow> {
  const [[row]] = await read(deps, [webhookByKey({ teamId, id })]);
  if (!row) throw new AppError("not_found");
  return row;
}

export type WebhookChanges = { [Field in keyof NewWebhook]?: NewWebhook[Field] | undefined } & {
  status?: WebhookRow["status"] | undefined;
};

/** Null leaves a column as it is; `hasTypes` says whether `types` is given, of which null is a value. */
type ChangeValues = WebhookKey & {
  url: string | null;
  ownHost: string | null;
  hasTypes: number;
  types: string | null;
  description: string | null;
  status: string | null;
  updatedAt: number;
};

/** Enabled, or sent elsewhere, it begins anew: what failed before is forgotten. */
const updateById = preparedQuery((db, param: Param<ChangeValues>) => {
  const changed = (name: "url" | "ownHost" | "description" | "status") =>
    sql`coalesce(${param(name)}, ${webhooks[name]})`;
  const isNew = sql`(${param("status")} = 'enabled' or ${param("url")} is not null)`;
  const kept = (name: "failures" | "failingSince" | "resumeAt", anew: ReturnType<typeof sql>) =>
    sql`case when ${isNew} then ${anew} else ${webhooks[name]} end`;
  return db
    .update(webhooks)
    .set({
      url: changed("url"),
      ownHost: changed("ownHost"),
      types: sql`case when ${param("hasTypes")} then ${param("types")} else ${webhooks.types} end`,
      description: changed("description"),
      status: changed("status"),
      disabledReason: sql`case ${param("status")} when 'enabled' then null when 'disabled' then 'requested'
        else ${webhooks.disabledReason} end`,
      failures: kept("failures", sql`0`),
      failingSince: kept("failingSince", sql`null`),
      resumeAt: kept("resumeAt", sql`null`),
      ...given(param, "updatedAt"),
      version: sql`${webhooks.version} + 1`,
    })
    .where(isWebhook(param))
    .returning();
});

/** @throws `not_found`, `invalid_input` for an address that nothing is sent to */
export async function updateWebhook(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: WebhookChanges,
  ownHost: string,
): Promise<Webhook> {
  const { url, types, description, status } = changes;
  const key = { id, teamId: actor.teamId };
  const update = updateById({
    ...key,
    url: url === undefined ? null : acceptAddress(deps, url, ownHost),
    ownHost: url === undefined ? null : ownHost,
    hasTypes: types === undefined ? 0 : 1,
    types: storedTypes(types),
    description: description ?? null,
    status: status ?? null,
    updatedAt: deps.system.now(),
  });
  const fields = Object.entries(changes).flatMap(([name, value]) => (value === undefined ? [] : [name]));
  const event = newEvent(deps, "webhook.updated", actor, key, { fields });
  const [[row]] = await writeWithEvent(deps, event, [update], { isIdempotent: false });
  if (!row) throw new AppError("not_found");
  return view(row);
}

const deleteById = preparedQuery((db, param: Param<WebhookKey>) =>
  db.delete(webhooks).where(isWebhook(param)).returning({ id: webhooks.id }),
);

/** What is on its way to it is not sent any more; recovery removes the log of its deliveries in time. @throws `not_found` */
export async function deleteWebhook(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const key = { id, teamId: actor.teamId };
  const event = newEvent(deps, "webhook.deleted", actor, key);
  const [rows] = await writeWithEvent(deps, event, [deleteById(key)], { isIdempotent: false });
  if (rows.length === 0) throw new AppError("not_found");
}

type RotationValues = WebhookKey & {
  encryptedSecret: string;
  encryptedWith: string;
  oldEncryptedSecret: string | null;
  oldSecretEndsAt: number | null;
  /** The secret that was replaced: another rotation at once finds it gone. */
  before: string;
  updatedAt: number;
};
const replaceSecret = preparedQuery((db, param: Param<RotationValues>) =>
  db
    .update(webhooks)
    .set({
      ...given(param, "encryptedSecret", "encryptedWith", "oldEncryptedSecret", "oldSecretEndsAt", "updatedAt"),
      version: sql`${webhooks.version} + 1`,
    })
    .where(and(isWebhook(param), eq(webhooks.encryptedSecret, param("before")))),
);

/**
 * A new secret. The one before signs too for a day, unless it is revoked, or can't be decrypted any more.
 * @throws `not_found`; `conflict` if another rotation was faster
 */
export async function rotateSecret(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { revokeOld }: { revokeOld: boolean },
): Promise<{ webhook: Webhook; secret: string }> {
  const row = await findWebhook(deps, actor, id);
  const now = deps.system.now();
  const secret = newSecret(deps.system);
  const old = revokeOld ? null : reencryptSecret(deps, row, row.encryptedSecret);
  const values: RotationValues = {
    id,
    teamId: row.teamId,
    encryptedSecret: encryptSecret(deps, row, secret),
    encryptedWith: deps.secrets.currentKeyId,
    oldEncryptedSecret: old,
    oldSecretEndsAt: old === null ? null : now + OLD_SECRET_MILLISECONDS,
    before: row.encryptedSecret,
    updatedAt: now,
  };
  const event = newEvent(deps, "webhook.updated", actor, row, { fields: ["secret"] });
  const queries = [replaceSecret(values), webhookByKey(row)] as const;
  const [, [rotated]] = await writeWithEvent(deps, event, queries, { isIdempotent: true });
  if (!rotated) throw new AppError("not_found");
  if (rotated.encryptedSecret !== values.encryptedSecret) throw new AppError("conflict");
  return { webhook: view(rotated), secret };
}
