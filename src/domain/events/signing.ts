import { createHmac } from "node:crypto";
import { and, eq } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { given, type Param, preparedQuery, read, write } from "../../platform/db.ts";
import { webhooks } from "../../platform/schema.ts";
import { DecryptionError } from "../../platform/secrets.ts";
import type { System } from "../../platform/system.ts";
import { isWebhook, type WebhookKey, type WebhookRow } from "./deliveries.ts";

/*
 * The secrets of webhooks, and what is signed with them: Standard Webhooks 1.0
 * (github.com/standard-webhooks/standard-webhooks), with its symmetric signature `v1`.
 */

const PREFIX = "whsec_";
const SECRET_BYTES = 32;
/** Stands in `encryptedWith` for a secret that can't be decrypted, so that no later run stumbles over it. */
const UNREADABLE = "unreadable";

export const newSecret = (system: System): string =>
  PREFIX + Buffer.from(system.randomBytes(SECRET_BYTES)).toString("base64");

function sign(secret: string, signed: string): string {
  const key = Buffer.from(secret.slice(PREFIX.length), "base64");
  return `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
}

/** The headers of a message, with a signature by each secret; `id` is the same in each try, `now` (ms) is not. */
export function messageHeaders(secrets: string[], id: string, now: number, body: string): Record<string, string> {
  const timestamp = Math.floor(now / 1000);
  return {
    "Content-Type": "application/json",
    "User-Agent": "Stowage-Webhooks/1.0",
    "webhook-id": id,
    "webhook-timestamp": String(timestamp),
    "webhook-signature": secrets.map((secret) => sign(secret, `${id}.${timestamp}.${body}`)).join(" "),
  };
}

const encryptionContext = ({ id, teamId }: WebhookKey) => `webhook/${id}/${teamId}`;
/** Bound to its webhook, as a token is to its key. */
export const encryptSecret = (deps: Deps, key: WebhookKey, secret: string) =>
  deps.secrets.encrypt(secret, encryptionContext(key));
const decrypt = (deps: Deps, key: WebhookKey, encrypted: string) =>
  deps.secrets.decrypt(encrypted, encryptionContext(key));

/** The secrets that sign at `now`, newest first. @throws DecryptionError */
export function currentSecrets(deps: Deps, row: WebhookRow, now: number): string[] {
  const { encryptedSecret, oldEncryptedSecret, oldSecretEndsAt } = row;
  const isOldGood = oldEncryptedSecret !== null && (oldSecretEndsAt ?? 0) > now;
  return [encryptedSecret, ...(isOldGood ? [oldEncryptedSecret] : [])].map((one) => decrypt(deps, row, one));
}

/** The secret under the current master key; null, and logged, where it can't be decrypted. */
export function reencryptSecret(deps: Deps, row: WebhookRow, encrypted: string): string | null {
  try {
    return encryptSecret(deps, row, decrypt(deps, row, encrypted));
  } catch (cause) {
    if (!(cause instanceof DecryptionError)) throw cause;
    deps.log("error", "webhook_secret_unreadable", { webhookId: row.id, teamId: row.teamId, cause });
    return null;
  }
}

const encryptedWithKey = preparedQuery((db, param: Param<{ keyId: string; limit: number }>) =>
  db
    .select()
    .from(webhooks)
    .where(eq(webhooks.encryptedWith, param("keyId")))
    .limit(param("limit")),
);
type Reencryption = Pick<WebhookRow, "teamId" | "id" | "encryptedSecret" | "encryptedWith" | "oldEncryptedSecret"> & {
  before: string;
};
const replaceEncryption = preparedQuery((db, param: Param<Reencryption>) =>
  db
    .update(webhooks)
    .set(given(param, "encryptedSecret", "encryptedWith", "oldEncryptedSecret"))
    .where(and(isWebhook(param), eq(webhooks.encryptedSecret, param("before")))),
);

/** As `reencryptTokens` does: the secrets that an older master key encrypted, so that it can be retired. @returns how many */
export async function reencryptSecrets(deps: Deps, limit: number): Promise<number> {
  const { olderKeyIds, currentKeyId } = deps.secrets;
  const queries = olderKeyIds.map((keyId) => encryptedWithKey({ keyId, limit }));
  const rows = queries.length === 0 ? [] : (await read(deps, queries)).flat();
  if (rows.length === 0) return 0;
  let count = 0;
  const updates = rows.map((row) => {
    const fresh = reencryptSecret(deps, row, row.encryptedSecret);
    if (fresh !== null) count++;
    return replaceEncryption({
      id: row.id,
      teamId: row.teamId,
      before: row.encryptedSecret,
      encryptedSecret: fresh ?? row.encryptedSecret,
      encryptedWith: fresh === null ? UNREADABLE : currentKeyId,
      oldEncryptedSecret: row.oldEncryptedSecret && reencryptSecret(deps, row, row.oldEncryptedSecret),
    });
  });
  await write(deps, updates, { isIdempotent: true });
  return count;
}
