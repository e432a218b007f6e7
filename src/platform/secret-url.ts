import { fingerprint } from "./secrets.ts";
import type { System } from "./system.ts";

/* URLs that contain `{id}.{secret}`: links, resumable uploads and invitations. The database has only the hash of the secret. */

const SECRET_BYTES = 16;

export interface SecretUrl {
  id: string;
  secret: string;
}

export const newSecret = (system: System): string => Buffer.from(system.randomBytes(SECRET_BYTES)).toString("hex");

/** The values by which the row of such a URL is found. */
export interface SecretUrlValues {
  id: string;
  secretHash: string;
}

export const secretUrlValues = ({ id, secret }: SecretUrl): SecretUrlValues => ({
  id,
  secretHash: fingerprint(secret),
});

export const renderSecretUrl = ({ id, secret }: SecretUrl): string => `${id}.${secret}`;

/** @returns undefined if the text is malformed */
export function parseSecretUrl(text = ""): SecretUrl | undefined {
  const [, id, secret] = /^([0-9a-f]{24})\.([0-9a-f]{32})$/.exec(text) ?? [];
  return id === undefined || secret === undefined ? undefined : { id, secret };
}
