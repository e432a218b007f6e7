import type { Context } from "hono";
import type { Address } from "../domain/files/resumable.ts";
import { AppError, type FieldError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";

/* What the requests of tus say (https://tus.io/protocols/resumable-upload). */

export const BYTES_TYPE = "application/offset+octet-stream";
/** Room for a name of any script; what is kept of it is less. */
export const MAX_METADATA_CHARACTERS = 4096;

export const invalid = (...errors: FieldError[]) => new AppError("invalid_input", { errors });

const MAX_DIGITS = 15;
/** What such a header holds. */
export const wholeNumber = (minimum: number) => ({ type: "integer", minimum, maximum: 10 ** MAX_DIGITS - 1 });

/** A header that holds a whole number; undefined where it is not there. */
export function numberIn(c: Context<AppEnv>, name: string): number | undefined {
  const text = c.req.header(name);
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text) && text.length <= MAX_DIGITS) return Number(text);
  throw invalid({ path: name, message: "Must be a whole number." });
}

export function requiredNumberIn(c: Context<AppEnv>, name: string): number {
  const value = numberIn(c, name);
  if (value === undefined) throw invalid({ path: name, message: "Required." });
  return value;
}

/** Keys and values of Upload-Metadata (creation extension, Upload-Metadata). */
export function parseMetadata(header: string): Map<string, string> {
  const problem = (message: string) => invalid({ path: "Upload-Metadata", message });
  if (header.length > MAX_METADATA_CHARACTERS) {
    throw problem(`Must have ${MAX_METADATA_CHARACTERS} characters at most.`);
  }
  const values = new Map<string, string>();
  for (const pair of header === "" ? [] : header.split(",")) {
    const [, key, encoded = ""] = /^([!-+\--~]+)(?: +([A-Za-z0-9+/]*={0,2}))?$/.exec(pair.trim()) ?? [];
    if (key === undefined) throw problem("Must be pairs of a key and a base64 value, with commas between them.");
    if (values.has(key)) throw problem("Each key may be there once.");
    const bytes = Buffer.from(encoded, "base64");
    if (bytes.toString("base64") !== encoded) throw problem("The values must be base64.");
    values.set(key, decode(bytes) ?? "");
    if (key === "filename" && decode(bytes) === undefined) throw problem("The filename must be UTF-8.");
  }
  return values;
}

function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** @throws `not_found` for what can't be an address */
export function addressOf(c: Context<AppEnv>): Address {
  const [, id, secret] = /^([0-9a-f]{24})\.([0-9a-f]{32})$/.exec(c.req.param("upload") ?? "") ?? [];
  if (id === undefined || secret === undefined) throw new AppError("not_found");
  return { id, secret };
}

/** The type of a body that is there must be the one of tus. */
export function checkType(c: Context<AppEnv>): void {
  if (c.req.header("Content-Type")?.toLowerCase() === BYTES_TYPE) return;
  throw new AppError("unsupported_media_type", { message: `Send the bytes as ${BYTES_TYPE}.` });
}
