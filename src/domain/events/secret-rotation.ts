import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { columnsFrom, type Param, preparedQuery } from "../../platform/db.ts";
import { webhooks } from "../../platform/event-schema.ts";
import { DAY } from "../../platform/system.ts";
import type { TeamActor } from "../accounts/authorization.ts";
import { isWebhook, type WebhookKey, type WebhookRow, webhookByKey } from "./deliveries.ts";
import { newEvent, writeWithEvent } from "./events.ts";
import { encryptSecret, newSecret, reencryptSecret } from "./signing.ts";
import { findWebhook } from "./webhooks.ts";

/** How long the previous secret also signs, so that an endpoint can switch without rejecting a message. */
export const OLD_SECRET_MILLISECONDS = DAY;

type RotationValues = WebhookKey & {
  encryptedSecret: string;
  encryptedWith: string;
  oldEncryptedSecret: string | null;
  oldSecretEndsAt: number | null;
  /** The secret to replace. If a concurrent rotation was faster, no row has it. */
  before: string;
  updatedAt: number;
};
const replaceSecret = preparedQuery((db, param: Param<RotationValues>) =>
  db
    .update(webhooks)
    .set({
      ...columnsFrom(param, "encryptedSecret", "encryptedWith", "oldEncryptedSecret", "oldSecretEndsAt", "updatedAt"),
      version: sql`${webhooks.version} + 1`,
    })
    .where(and(isWebhook(param), eq(webhooks.encryptedSecret, param("before")))),
);

/**
 * Creates a new secret. The previous one also signs for a day, unless it is revoked or cannot be decrypted.
 * @throws `not_found`; `conflict` if another rotation was faster
 */
export async function rotateSecret(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { revokeOld }: { revokeOld: boolean },
): Promise<{ webhook: WebhookRow; secret: string }> {
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
  return { webhook: rotated, secret };
}
