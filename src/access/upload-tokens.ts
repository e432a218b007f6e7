import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { DecryptionError } from "../platform/secrets.ts";
import { DAY, newId, SECOND, withDatabase } from "../platform/system.ts";
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

/** For this long after its expiry, a token may still ask for the status of what it uploaded, and set its first waveform. */
export const TOKEN_GRACE_MILLISECONDS = DAY;

type NewUploadToken = Pick<UploadToken, "limits" | "properties"> & {
  expiresInSeconds: number;
  /** The page's name of the visitor, for which uploads are counted together. */
  subject?: string | undefined;
  /** A secret of the page's server for the visitor, whose tokens have the same rights. */
  owner?: string | undefined;
};

/** @throws `forbidden` for a public key and an upload token */
export function createUploadToken(
  { db, secrets, system }: Deps,
  actor: TeamActor,
  { tokenHash }: { tokenHash: string | null },
  { expiresInSeconds, subject, owner, ...fields }: NewUploadToken,
): { token: string; id: string; expiresAt: number } {
  if (isVisitor(actor) || tokenHash === null) {
    throw new AppError("forbidden", { message: "Only a secret key or a session can create an upload token." });
  }
  const { teamId, keyId } = actor;
  const [ownId, expiresAt] = [newId(system, db.number), system.now() + expiresInSeconds * SECOND];
  // Neither is in the token, which has only what they are compared by.
  const id = owner === undefined ? ownId : withDatabase(secrets.visitorId(["owner", teamId, owner]), db.number);
  const countedAs =
    subject === undefined ? { token: ownId } : { subject: secrets.visitorId(["subject", teamId, keyId, subject]) };
  const held: UploadToken = { id, countedAs, teamId, issuerHash: tokenHash, expiresAt, ...fields };
  return { token: PREFIX + secrets.sealUploadToken(JSON.stringify(held)).replace(".", ""), id, expiresAt };
}

/** The identity for which the limits of a visitor count an upload now. A subject has another id on each UTC day. Null if no visitor calls. */
export function visitorIdOf({ secrets, system }: Deps, { kind, keyId, uploadToken }: TeamActor): string | null {
  if (!isVisitor({ kind })) return null;
  if (!uploadToken) return keyId;
  const { countedAs } = uploadToken;
  if ("token" in countedAs) return countedAs.token;
  const day = new Date(system.now()).toISOString().slice(0, 10);
  return secrets.visitorId(["day", countedAs.subject, day]);
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
