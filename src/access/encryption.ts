import { type SQL, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { type Query, read, write } from "../platform/db.ts";
import type { LogFields } from "../platform/log.ts";
import { DecryptionError } from "../platform/secrets.ts";

/** Replaces the id of the master key of a value that can't be decrypted, so that later runs skip its row. */
const UNREADABLE = "unreadable";

/** @returns null if the value can't be decrypted, which is logged as `event` */
export function decryptOrLog(
  deps: Deps,
  encrypted: string,
  context: string,
  event: string,
  fields: LogFields,
): string | null {
  try {
    return deps.secrets.decrypt(encrypted, context);
  } catch (cause) {
    if (!(cause instanceof DecryptionError)) throw cause;
    deps.log("error", event, { ...fields, cause });
    return null;
  }
}

/** Rows of one batch. */
const REENCRYPTED_ROWS = 100;

interface EncryptedRows<Row> {
  select(keyId: string, limit: number): Query<Row[]>;
  /** The columns that `update` needs. `encrypted` is null if its value, `before`, can't be decrypted. */
  reencrypt(row: Row): { before: string | null; encrypted: string | null };
  /** Updates the rows, whose values `value` names. */
  update(rows: SQL, value: (name: string) => SQL): Query;
}

/**
 * Re-encrypts up to `REENCRYPTED_ROWS` rows of the older master keys, so that these can be retired. A value that can't be
 * decrypted is logged once. @returns how many were re-encrypted or given up
 */
export async function reencryptRows<Row>(
  deps: Deps,
  { select, reencrypt, update }: EncryptedRows<Row>,
): Promise<number> {
  const { olderKeyIds, currentKeyId } = deps.secrets;
  const queries = olderKeyIds.map((keyId) => select(keyId, REENCRYPTED_ROWS));
  const rows = queries.length === 0 ? [] : (await read(deps, { rows: queries })).rows.flat().slice(0, REENCRYPTED_ROWS);
  if (rows.length === 0) return 0;
  const values = rows.map(reencrypt).map(({ before, encrypted, ...row }) => ({
    ...row,
    before,
    encrypted: encrypted ?? before,
    encryptedWith: encrypted === null ? UNREADABLE : currentKeyId,
  }));
  const value = (name: string) => sql`(json_each.value ->> ${name})`;
  await write(deps, update(sql`json_each(${JSON.stringify(values)})`, value), { isIdempotent: true, caller: null });
  return rows.length;
}
