import type { Context } from "hono";
import { parseSecretUrl, type SecretUrl } from "../domain/files/secret-url.ts";
import { AppError, invalidField } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import { REPR_DIGEST, statedSha256 } from "./digests.ts";
import { idempotencyHeader } from "./form-upload.ts";
import type { HeaderContract } from "./operation.ts";
import { parseProperties } from "./properties.ts";

/* The request headers of tus (https://tus.io/protocols/resumable-upload). */

export const BYTES_TYPE = "application/offset+octet-stream";
/** Enough for properties of 8 KiB in base64 and a file name, and below Node's limit of 16 KiB for all headers. */
const MAX_METADATA_CHARACTERS = 12 * 1024;

const MAX_DIGITS = 15;
/** The OpenAPI schema of such a header. */
export const wholeNumber = (minimum: number) => ({ type: "integer", minimum, maximum: 10 ** MAX_DIGITS - 1 });

/** Returns the number in a header; undefined if the header is absent. @throws `invalid_input` */
export function numberIn(c: Context<AppEnv>, name: string): number | undefined {
  const text = c.req.header(name);
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text) && text.length <= MAX_DIGITS) return Number(text);
  throw invalidField(name, "Must be a whole number.");
}

export function requiredNumberIn(c: Context<AppEnv>, name: string): number {
  const value = numberIn(c, name);
  if (value === undefined) throw invalidField(name, "Required.");
  return value;
}

// Canonical base64: the unused bits of the last character are zero.
const BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?";
const PAIR = ` *[!-+\\--~]+( +${BASE64})? *`;
/** Upload-Metadata in OpenAPI. */
export const METADATA_PATTERN = `^(${PAIR}(,${PAIR})*)?$`;

/** The request headers of a creation. */
export const CREATION_HEADERS: Record<string, HeaderContract> = {
  ...idempotencyHeader(
    "A creation with the same key and token replaces the earlier upload if that is unfinished, so a lost response reserves no quota.",
  ),
  "Upload-Length": {
    required: true,
    description: "The size of the file in bytes.",
    schema: { ...wholeNumber(1), example: 482_113 },
  },
  "Upload-Metadata": {
    description:
      "Comma-separated pairs of a key and a base64 value. `filename` must be UTF-8. `sha256` (64 hex digits) is compared " +
      "with the stored bytes. `properties` is JSON as in a form upload, and with a public key as little to be trusted. Keys must be unique. Others have no effect.",
    schema: { type: "string", maxLength: MAX_METADATA_CHARACTERS, pattern: METADATA_PATTERN },
  },
  "Repr-Digest": { ...REPR_DIGEST, description: `${REPR_DIGEST.description} Like \`sha256\` in the metadata.` },
};

/** The keys and values of Upload-Metadata (tus creation extension). */
export function parseMetadata(header: string): Map<string, string> {
  const problem = (message: string) => invalidField("Upload-Metadata", message);
  if (header.length > MAX_METADATA_CHARACTERS) {
    throw problem(`Must have at most ${MAX_METADATA_CHARACTERS} characters.`);
  }
  const values = new Map<string, string>();
  for (const pair of header === "" ? [] : header.split(",")) {
    const [, key, encoded = ""] = /^([!-+\--~]+)(?: +([A-Za-z0-9+/]*={0,2}))?$/.exec(pair.trim()) ?? [];
    if (key === undefined) throw problem("Must be comma-separated pairs of a key and a base64 value.");
    if (values.has(key)) throw problem("Keys must be unique.");
    const bytes = Buffer.from(encoded, "base64");
    if (bytes.toString("base64") !== encoded) throw problem("Values must be base64.");
    values.set(key, decode(bytes) ?? "");
    if (key === "filename" && decode(bytes) === undefined) throw problem("The filename must be UTF-8.");
  }
  return values;
}

/** Reads the headers of a creation request. The file name may be empty. @throws `invalid_input`, `file_too_large` */
export function parseNewUpload(c: Context<AppEnv>, maxFileBytes: number) {
  const sizeBytes = requiredNumberIn(c, "Upload-Length");
  if (sizeBytes === 0) throw invalidField("Upload-Length", "Must be at least 1.");
  if (sizeBytes > maxFileBytes) {
    throw new AppError("file_too_large", { message: `A file can have at most ${maxFileBytes} bytes.` });
  }
  const metadata = c.req.header("Upload-Metadata") ?? "";
  const values = parseMetadata(metadata);
  const digest = statedSha256(c, "Repr-Digest");
  const sha256 = values.get("sha256")?.toLowerCase() ?? digest;
  if (sha256 !== null && !/^[0-9a-f]{64}$/.test(sha256)) {
    throw invalidField("Upload-Metadata", "The sha256 must be 64 hex digits.");
  }
  if (digest !== null && sha256 !== digest)
    throw invalidField("Repr-Digest", "Differs from the sha256 in the metadata.");
  const properties = parseProperties(values.get("properties"));
  return { name: values.get("filename") ?? "", sizeBytes, metadata, sha256, properties };
}

function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The upload that the URL names. @throws `not_found` for a malformed URL */
export function parseUploadUrl(c: Context<AppEnv>): SecretUrl {
  const url = parseSecretUrl(c.req.param("upload"));
  if (!url) throw new AppError("not_found");
  return url;
}

/** @throws `unsupported_media_type` */
export function checkType(c: Context<AppEnv>): void {
  if (c.req.header("Content-Type")?.toLowerCase() === BYTES_TYPE) return;
  throw new AppError("unsupported_media_type", { message: `Send the bytes with Content-Type: ${BYTES_TYPE}.` });
}
