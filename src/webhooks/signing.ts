import { createHmac } from "node:crypto";
import { eq, sql } from "drizzle-orm";
import { decryptOrLog, reencryptRows } from "../access/encryption.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import type { System } from "../platform/system.ts";
import type { WebhookRow } from "./webhook-rows.ts";
import type { WebhookKey } from "./webhooks.schema.ts";
import { webhooks } from "./webhooks.schema.ts";

/*
 * Signing secrets and signatures of webhooks: Standard Webhooks 1.0 (github.com/standard-webhooks/standard-webhooks), with
 * its symmetric signature `v1`.
 */

const PREFIX = "whsec_";
const SECRET_BYTES = 32;

export const newSecret = (system: System): string =>
  PREFIX + Buffer.from(system.randomBytes(SECRET_BYTES)).toString("base64");

function sign(secret: string, signed: string): string {
  const key = Buffer.from(secret.slice(PREFIX.length), "base64");
  return `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
}

/** The headers of a message, with one signature per secret. `id` is the same in each attempt, `now` is not. */
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
/** The ciphertext is bound to its webhook. */
export const encryptSecret = (deps: Deps, key: WebhookKey, secret: string): string =>
  deps.secrets.encrypt(secret, encryptionContext(key));
/** @returns null if it can't be decrypted, which is logged */
export function decryptSecret(deps: Deps, row: WebhookRow, encrypted: string): string | null {
  const fields = { webhookId: row.id, teamId: row.teamId };
  return decryptOrLog(deps, encrypted, encryptionContext(row), "webhook_secret_unreadable", fields);
}

/** The secrets that sign at `now`, newest first. @returns null if one can't be decrypted, which is logged */
export function currentSecrets(deps: Deps, row: WebhookRow, now: number): string[] | null {
  const { encryptedSecret, oldEncryptedSecret, oldSecretEndsAt } = row;
  const isOldValid = oldEncryptedSecret !== null && (oldSecretEndsAt ?? 0) > now;
  const encrypted = [encryptedSecret, ...(isOldValid ? [oldEncryptedSecret] : [])];
  const secrets = encrypted.map((value) => decryptSecret(deps, row, value));
  return secrets.every((secret) => secret !== null) ? secrets : null;
}

/** Moves a secret to the current master key. @returns null if it can't be decrypted, which is logged */
export function reencryptSecret(deps: Deps, row: WebhookRow, encrypted: string): string | null {
  const secret = decryptSecret(deps, row, encrypted);
  return secret === null ? null : encryptSecret(deps, row, secret);
}

/** Moves webhook secrets to the current master key. */
const reencryptSecrets = async (deps: Deps) => ({
  reencrypted: await reencryptRows(deps, {
    select: (keyId, limit) => deps.db.select().from(webhooks).where(eq(webhooks.encryptedWith, keyId)).limit(limit),
    reencrypt: (row) => ({
      teamId: row.teamId,
      id: row.id,
      before: row.encryptedSecret,
      encrypted: reencryptSecret(deps, row, row.encryptedSecret),
      old: row.oldEncryptedSecret && reencryptSecret(deps, row, row.oldEncryptedSecret),
    }),
    update: (rows, value) =>
      deps.db
        .update(webhooks)
        .set({
          encryptedSecret: value("encrypted"),
          encryptedWith: value("encryptedWith"),
          oldEncryptedSecret: value("old"),
        })
        .from(rows)
        .where(
          sql`${webhooks.teamId} = ${value("teamId")} and ${webhooks.id} = ${value("id")}
            and ${webhooks.encryptedSecret} = ${value("before")}`,
        ),
  }),
});

export const reencryption: RecoveryStep = {
  name: "webhook secrets",
  counts: ["reencrypted"],
  runBatch: reencryptSecrets,
  maxBatches: 3,
  queries: 5,
};
