import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { DecryptionError } from "../platform/secrets.ts";
import { newId, SECOND } from "../platform/system.ts";
import { isVisitor, type TeamActor, type UploadToken } from "./actor.ts";

/*
 * Upload tokens: a server gives one to the browser of a visitor, who can upload a few files with it and do nothing else. No row
 * is stored: the token itself holds its limits, encrypted and protected from changes. It names the key or session that
 * issued it by the hash of that token, and is authorized by that row. So it ends with its issuer.
 */

const PREFIX = "stow_ut_";
/** Holds the id of the master key in hex, and the encrypted text. */
const TOKEN = /^stow_ut_([0-9a-f]{8})([\w-]+)$/;
/** More than a token with the largest properties has. */
const MAX_CHARACTERS = 8 * 1024;
/** Proxies and servers limit a header to 8 KiB. In the token, 3 bytes take 4 characters. */
export const MAX_TOKEN_PROPERTIES_BYTES = 4 * 1024;
export const MAX_TOKEN_SECONDS = 86_400;
export const MAX_TOKEN_FILES = 100;

type NewUploadToken = Pick<UploadToken, "limits" | "properties"> & { expiresInSeconds: number };

/** @throws `forbidden` for a public key and an upload token */
export function createUploadToken(
  { db, secrets, system }: Deps,
  actor: TeamActor,
  { tokenHash }: { tokenHash: string | null },
  { expiresInSeconds, ...fields }: NewUploadToken,
): { token: string; id: string; expiresAt: number } {
  if (isVisitor(actor) || tokenHash === null) {
    throw new AppError("forbidden", { message: "Only a secret key or a session can create an upload token." });
  }
  const [id, expiresAt] = [newId(system, db.number), system.now() + expiresInSeconds * SECOND];
  const held: UploadToken = { id, teamId: actor.teamId, issuerHash: tokenHash, expiresAt, ...fields };
  return { token: PREFIX + secrets.sealUploadToken(JSON.stringify(held)).replace(".", ""), id, expiresAt };
}

/** Decrypts an upload token. Null for any other token, and for one that this service did not make. */
export function openUploadToken({ secrets }: Deps, token: string): UploadToken | null {
  const [, keyId, text] = (token.length <= MAX_CHARACTERS && TOKEN.exec(token)) || [];
  if (keyId === undefined) return null;
  try {
    return JSON.parse(secrets.openUploadToken(`${keyId}.${text}`));
  } catch (error) {
    if (error instanceof DecryptionError) return null;
    throw error;
  }
}
