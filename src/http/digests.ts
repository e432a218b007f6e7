import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import type { Context } from "hono";
import { AppError, invalidField } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import type { HeaderContract } from "./operation.ts";

/*
 * Digest fields of requests (RFC 9530). Only SHA-256 is checked. Other registered algorithms are ignored; anything else is
 * rejected, because a misspelled `sha-256` would disable the check unnoticed.
 */

const OTHER_ALGORITHM = /^(sha-512|sha|md5|unixsum|unixcksum|adler|crc32c)=:/;

const SCHEMA = { type: "string", example: "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:" };
export const CONTENT_DIGEST: HeaderContract = {
  description: "SHA-256 of the request body (RFC 9530).",
  schema: SCHEMA,
};
export const REPR_DIGEST: HeaderContract = { description: "SHA-256 of the file (RFC 9530).", schema: SCHEMA };

/** Returns the SHA-256, in hex, that a digest field states; null if it states none. @throws `invalid_input` */
export function statedSha256(c: Context<AppEnv>, field: "Content-Digest" | "Repr-Digest"): string | null {
  const members =
    c.req
      .header(field)
      ?.split(",")
      .map((text) => text.trim()) ?? [];
  const checked = members.filter((text) => !OTHER_ALGORITHM.test(text));
  // The field is a dictionary: if a key is repeated, the last member counts (RFC 8941, section 3.2).
  const member = checked.findLast((text) => text.startsWith("sha-256=")) ?? checked[0];
  if (member === undefined) return null;
  const [, encoded = ""] = /^sha-256=:([A-Za-z0-9+/]{43}=):$/.exec(member) ?? [];
  const bytes = Buffer.from(encoded, "base64");
  if (bytes.length !== 32) throw invalidField(field, "Must be sha-256=:…: with 32 bytes in base64.");
  return bytes.toString("hex");
}

/** Hashes bytes as they pass, if the client has stated their digest. */
export class DigestCheck {
  readonly #field: string;
  readonly #stated: string | null;
  readonly #hash = createHash("sha256");

  constructor(c: Context<AppEnv>, field: "Content-Digest" | "Repr-Digest") {
    this.#field = field;
    this.#stated = statedSha256(c, field);
  }

  update(bytes: Uint8Array): void {
    if (this.#stated !== null) this.#hash.update(bytes);
  }

  /** Call once, after the last byte. @throws `digest_mismatch` */
  end(): void {
    if (this.#stated === null || this.#hash.digest("hex") === this.#stated) return;
    throw new AppError("digest_mismatch", { message: `The bytes do not match ${this.#field}. Send them again.` });
  }
}
