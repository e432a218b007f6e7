import { and, eq, sql } from "drizzle-orm";
import { type Credential, readAs, stillAllowed, type TeamActor, teamExists } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode, invalidField } from "../errors.ts";
import { fieldsOf, recorded, writeWithEvent } from "../events/events.ts";
import { followers } from "../events/followers.schema.ts";
import { isFollower, wake } from "../events/followers.ts";
import { insertWhere, type Query, read } from "../platform/db.ts";
import { DAY, MINUTE, newId } from "../platform/system.ts";
import type { WebhookHealth } from "./outboxes.ts";
import { decryptSecret, encryptSecret, newSecret, reencryptSecret } from "./signing.ts";
import { WEBHOOK_EVENTS } from "./webhook-event-types.ts";
import { followAsWebhook, followerOf, isWebhook, type WebhookRow, webhookByKey } from "./webhook-rows.ts";
import { validateWebhookUrl } from "./webhook-url.ts";
import { type WebhookKey, webhooks } from "./webhooks.schema.ts";

export const tooManyWebhooks = errorCode(
  "too_many_webhooks",
  409,
  "The team has too many webhooks. Delete one and retry.",
);

/** Each event wakes every webhook of the team that receives it. */
export const MAX_WEBHOOKS = 10;

/** A webhook with the health of its endpoint, which its object knows. */
export type Webhook = WebhookRow & WebhookHealth;

/** The health of a webhook that is new, or whose failures were reset. */
const NO_HEALTH: WebhookHealth = { failures: 0, failingSince: null, hours: [], lastResult: null };

const withHealth = async (deps: Deps, row: WebhookRow): Promise<Webhook> => ({
  ...row,
  ...(await deps.outboxes(row).health()),
});

/** Stores who changed the field: this caller decides about the endpoint and the signature. */
const changedBy = ({ keyId, userId }: TeamActor, fields: ("url" | "secret" | "status")[]) => {
  const setters = fields.map((field) => sql`${`$.${field}`}, ${userId}`);
  if (fields.includes("secret")) setters.push(sql`'$.rotatedBy', ${keyId}`);
  const values = sql.join([sql`'$.keyId', ${keyId}, '$.userId', ${userId}`, ...setters], sql`, `);
  return fields.length === 0 ? undefined : sql`json_set(${webhooks.changedBy}, ${values})`;
};

const storedTypes = (types: string[] | null | undefined) => (types ? JSON.stringify([...new Set(types)]) : null);

/** @throws `invalid_input` */
function normalizeUrl(deps: Deps, text: string): string {
  const validated = validateWebhookUrl(text, deps.settings.isInsecureWebhookAllowed);
  if ("url" in validated) return validated.url;
  throw invalidField("url", validated.problem);
}

export interface NewWebhook {
  url: string;
  types?: string[] | null | undefined;
  description: string;
}

/**
 * @returns the webhook and its secret, which no later response shows
 * @throws `invalid_input` for a URL that is not allowed, `too_many_webhooks`
 */
export async function createWebhook(
  deps: Deps,
  actor: TeamActor,
  { url, types, description }: NewWebhook,
): Promise<{ webhook: Webhook; secret: string }> {
  const now = deps.system.now();
  const key = { id: newId(deps.system, deps.db.number), teamId: actor.teamId };
  const secret = newSecret(deps.system);
  const row = {
    ...key,
    url: normalizeUrl(deps, url),
    types: storedTypes(types),
    description,
    disabledReason: null,
    keyId: actor.keyId,
    userId: actor.userId,
    changedBy: JSON.stringify({ keyId: actor.keyId, userId: actor.userId }),
    encryptedSecret: encryptSecret(deps, key, secret),
    oldEncryptedSecret: null,
    oldSecretEndsAt: null,
    encryptedWith: deps.secrets.currentKeyId,
    epoch: 0,
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  // The statement itself enforces the limit, so concurrent inserts cannot exceed it. The id makes it idempotent.
  const count = sql`(select count(*) from ${webhooks} where ${eq(webhooks.teamId, actor.teamId)})`;
  const isAllowed = and(sql`${count} < ${MAX_WEBHOOKS}`, teamExists(actor.teamId));
  const batch = {
    // It follows before the event, which it gets.
    create: recorded(
      deps,
      { type: WEBHOOK_EVENTS.created, initiator: actor, subject: row },
      { insert: insertWhere(deps.db, webhooks, row, isAllowed), follow: followAsWebhook(deps, key) },
    ),
    stored: webhookByKey(deps.db, key),
  };
  const {
    stored: [stored],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor });
  if (!stored) {
    const message = `A team can have at most ${MAX_WEBHOOKS} webhooks. Delete one and retry.`;
    throw new AppError(tooManyWebhooks, { message });
  }
  return { webhook: { ...stored, ...NO_HEALTH }, secret };
}

/** Lists the team's webhooks, oldest first. */
export async function listWebhooks(deps: Deps, credential: Credential<"webhooks:read">): Promise<Webhook[]> {
  const { rows } = await readAs(deps, credential, ({ teamId }) =>
    deps.db.select().from(webhooks).where(eq(webhooks.teamId, teamId)).orderBy(webhooks.id),
  );
  return Promise.all(rows.map((row) => withHealth(deps, row)));
}

/** @throws `not_found` */
export async function fetchWebhook(deps: Deps, credential: Credential<"webhooks:read">, id: string): Promise<Webhook> {
  const { rows } = await readAs(deps, credential, ({ teamId }) =>
    deps.db
      .select()
      .from(webhooks)
      .where(and(eq(webhooks.teamId, teamId), eq(webhooks.id, id))),
  );
  if (!rows[0]) throw new AppError("not_found");
  return withHealth(deps, rows[0]);
}

/** Fetches the row for a caller who is already authorized. @throws `not_found` */
export async function findWebhook(deps: Deps, actor: TeamActor, id: string): Promise<WebhookRow> {
  const { teamId } = actor;
  const [row] = await read(deps, webhookByKey(deps.db, { teamId, id }), stillAllowed(deps, actor));
  if (!row) throw new AppError("not_found");
  return row;
}

export type WebhookChanges = { [Field in keyof NewWebhook]?: NewWebhook[Field] | undefined } & {
  status?: "enabled" | "disabled" | undefined;
};

/** Part of the batch that updates a webhook, before its event, which an enabled webhook gets. */
function followerChanges(deps: Deps, key: WebhookKey, { types, status }: WebhookChanges): Query[] {
  const { db } = deps;
  const isOwn = isFollower(followerOf(key));
  if (status === "disabled") return [db.delete(followers).where(isOwn)];
  return [
    ...(status === "enabled" ? [followAsWebhook(deps, key)] : []),
    ...(types === undefined
      ? []
      : [
          db
            .update(followers)
            .set({ types: storedTypes(types) })
            .where(isOwn),
        ]),
  ];
}

/**
 * Enabling it or changing its URL resets its failures, and what happened while it was disabled is not sent. Disabling it ends
 * its pending deliveries.
 * @throws `not_found`, `invalid_input` for a URL that is not allowed
 */
export async function updateWebhook(
  deps: Deps,
  actor: TeamActor,
  id: string,
  changes: WebhookChanges,
): Promise<Webhook> {
  const { url, types, description, status } = changes;
  const key = { id, teamId: actor.teamId };
  const isReset = status === "enabled" || url !== undefined;
  const update = deps.db
    .update(webhooks)
    .set({
      description,
      ...(url !== undefined && { url: normalizeUrl(deps, url) }),
      ...(types !== undefined && { types: storedTypes(types) }),
      ...(status && { disabledReason: status === "enabled" ? null : "requested" }),
      changedBy: changedBy(actor, [
        ...(url === undefined ? [] : (["url"] as const)),
        ...(status === undefined ? [] : (["status"] as const)),
      ]),
      ...(isReset && { epoch: sql`${webhooks.epoch} + 1` }),
      updatedAt: deps.system.now(),
      version: sql`${webhooks.version} + 1`,
    })
    .where(isWebhook(key))
    .returning();
  const updated = {
    type: WEBHOOK_EVENTS.updated,
    initiator: actor,
    subject: key,
    data: { fields: fieldsOf(changes) },
  };
  // An invented id names no object.
  await findWebhook(deps, actor, id);
  // Before the change, so that its failure changes nothing.
  const health = await deps.outboxes(key).health();
  const {
    update: {
      change: [row],
    },
  } = await writeWithEvent(
    deps,
    { follower: followerChanges(deps, key, changes), update: recorded(deps, updated, update) },
    { isIdempotent: false, caller: actor },
  );
  if (!row) throw new AppError("not_found");
  await wake(deps, [followerOf(key)], true);
  return { ...row, ...health, ...(isReset && { failures: 0, failingSince: null }) };
}

/** Its object notices that the row is gone, and deletes its deliveries. @throws `not_found` */
export async function deleteWebhook(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const key = { id, teamId: actor.teamId };
  const deleted = {
    type: WEBHOOK_EVENTS.deleted,
    initiator: actor,
    subject: { ...key, version: sql`${webhooks.version}` },
    from: sql`${webhooks}`,
    where: isWebhook(key),
    reads: "before",
  } as const;
  const remove = deps.db.delete(webhooks).where(isWebhook(key)).returning({ id: webhooks.id });
  const unfollow = deps.db.delete(followers).where(isFollower(followerOf(key)));
  const { removal } = await writeWithEvent(
    deps,
    { removal: recorded(deps, deleted, remove), unfollow },
    { isIdempotent: false, caller: actor },
  );
  if (removal.change.length === 0) throw new AppError("not_found");
  await wake(deps, [followerOf(key)], true);
}

/** How long the previous secret also signs, so that an endpoint can switch without rejecting a message. */
export const OLD_SECRET_MILLISECONDS = DAY;
/** How long a caller who did not get the response can repeat a rotation. Short, because it shows the secret again. */
export const REPEAT_MILLISECONDS = 10 * MINUTE;

/**
 * Creates a new secret. The previous one also signs for a day, unless it is revoked or cannot be decrypted. If the response is lost,
 * another new secret would end the one that endpoints still verify with. So a repetition by the same caller returns the same
 * secret, unless it revokes the previous one.
 * @throws `not_found`; `conflict` if another rotation was faster
 */
export async function rotateSecret(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { revokeOld }: { revokeOld: boolean },
): Promise<{ webhook: Webhook; secret: string }> {
  const row = await findWebhook(deps, actor, id);
  const health = await deps.outboxes(row).health();
  const repeated = (current: WebhookRow) => {
    if (revokeOld || !isRotatedBy(deps, actor, current)) return null;
    const secret = decryptSecret(deps, current, current.encryptedSecret);
    return secret === null ? null : { webhook: { ...current, ...health }, secret };
  };
  const earlier = repeated(row);
  if (earlier) return earlier;
  const now = deps.system.now();
  const secret = newSecret(deps.system);
  const old = revokeOld ? null : reencryptSecret(deps, row, row.encryptedSecret);
  const encryptedSecret = encryptSecret(deps, row, secret);
  const replace = deps.db
    .update(webhooks)
    .set({
      changedBy: changedBy(actor, ["secret"]),
      encryptedSecret,
      encryptedWith: deps.secrets.currentKeyId,
      oldEncryptedSecret: old,
      oldSecretEndsAt: old === null ? null : now + OLD_SECRET_MILLISECONDS,
      updatedAt: now,
      version: sql`${webhooks.version} + 1`,
    })
    // If a concurrent rotation was faster, no row has the secret that was read.
    .where(and(isWebhook(row), eq(webhooks.encryptedSecret, row.encryptedSecret)));
  const rotation = { type: WEBHOOK_EVENTS.updated, initiator: actor, subject: row, data: { fields: ["secret"] } };
  const batch = { replace: recorded(deps, rotation, replace), stored: webhookByKey(deps.db, row) };
  const {
    stored: [rotated],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: actor });
  if (!rotated) throw new AppError("not_found");
  if (rotated.encryptedSecret === encryptedSecret) {
    await wake(deps, [followerOf(row)], true);
    return { webhook: { ...rotated, ...health }, secret };
  }
  const faster = repeated(rotated);
  if (!faster) throw new AppError("conflict");
  return faster;
}

/** Whether this caller rotated the secret a short time ago, and the previous one still signs. */
const isRotatedBy = ({ system }: Deps, { keyId }: TeamActor, { changedBy, oldSecretEndsAt }: WebhookRow): boolean =>
  JSON.parse(changedBy).rotatedBy === keyId &&
  (oldSecretEndsAt ?? 0) > system.now() + OLD_SECRET_MILLISECONDS - REPEAT_MILLISECONDS;
