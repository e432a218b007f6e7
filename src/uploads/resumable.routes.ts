import type { Context } from "hono";
import type * as z from "zod";
import { isVisitor } from "../access/actor.ts";
import type { TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode, errorOf, invalidField, isError } from "../errors.ts";
import type { UploadRow } from "../files/ending.ts";
import { parseProperties } from "../files/properties.routes.ts";
import type { AppEnv } from "../http/app-env.ts";
import { REPR_DIGEST, statedSha256, withBody } from "../http/body-reader.ts";
import { renderMethodNotAllowed, retryAfterOf } from "../http/failures.ts";
import { inHours } from "../http/introduction.ts";
import { type HeaderContract, type Operation, readOperation, writeOperation } from "../http/operation.ts";
import { RESUMABLE } from "../http/paths.ts";
import { readQuery } from "../http/validation.ts";
import { grouped } from "../numbers.ts";
import { parseSecretUrl, renderSecretUrl, type SecretUrl } from "../platform/secret-url.ts";
import { bodyTooLarge, MAX_RESUMABLE_MILLISECONDS, MAX_UNFINISHED_MILLISECONDS } from "./appending.ts";
import { fileLimitReached, tooManyUnfinishedUploads, uploadLimitReached } from "./quota.ts";
import {
  appendToUpload,
  createUpload,
  fetchUpload,
  MAX_EMPTY_MILLISECONDS,
  terminateUpload,
  uploadExpired,
  uploadLocked,
} from "./resumable.ts";
import { typeNotAllowed } from "./storing.ts";
import { idempotencyHeader, idempotencyKeyOf } from "./upload.routes.ts";
import { offsetMismatch } from "./upload.ts";

export const unsupportedVersion = errorCode(
  "unsupported_version",
  412,
  "This tus version is not supported. Send `Tus-Resumable: 1.0.0`.",
);

/* tus 1.0.0 (https://tus.io/protocols/resumable-upload): the core protocol and the extensions named below. */

export const resumableTag = {
  name: "Resumable uploads",
  description:
    "For large files and unreliable connections: interrupted uploads resume where they left off (tus 1.0.0).",
};

const VERSION = "1.0.0";
const CAPABILITIES = {
  "Tus-Resumable": VERSION,
  "Tus-Version": VERSION,
  "Tus-Extension": "creation,creation-with-upload,expiration,termination",
};
const TUS_RESUMABLE: HeaderContract = {
  required: true,
  description: "The protocol version. A request without it gets 400, and one with another version gets 412.",
  // Not a constant, which some generators of clients reject in a header.
  schema: { type: "string", example: VERSION },
};
const EXPIRY = `${inHours(MAX_UNFINISHED_MILLISECONDS)} after its last byte, or ${inHours(MAX_EMPTY_MILLISECONDS)} after its creation if no byte has arrived; at most ${MAX_RESUMABLE_MILLISECONDS / 86_400_000} days after its creation`;
const PROGRESS_HEADERS = { "Tus-Resumable": VERSION, "Upload-Expires": `When the upload expires: ${EXPIRY}.` };
const STORED_BYTES = "The number of stored bytes.";
const CONTENT_LOCATION = "The file: `/docs/v1/uploads/{id}`. It is listed once the last byte is stored.";
/**
 * Refused: headers of extensions that are not offered; a digest of the body, of which a part may be stored before all has arrived; and a
 * content coding, which would be stored as the bytes of the file.
 */
const UNSUPPORTED_HEADERS = ["Upload-Defer-Length", "Upload-Concat", "Content-Digest", "Content-Encoding"];

/** The expiry of a public key or upload token stops new uploads only. An upload URL works until its upload expires, or the issuer of the upload token is revoked. */
const AFTER_KEY_EXPIRY = { graceMilliseconds: MAX_RESUMABLE_MILLISECONDS };

type Contract = Parameters<typeof writeOperation<"files:upload", z.ZodType>>[1];
type Handle<R> = (request: R) => Promise<Response>;

/** An operation of the protocol. It accepts every key that can upload files, and rejects unsupported versions. */
function tus<R extends { c: Context<AppEnv> }>(
  make: (access: "files:upload", contract: Contract, handle: Handle<R>) => Operation,
  contract: Contract,
  handle: Handle<R>,
): Operation {
  const headers = { "Tus-Resumable": TUS_RESUMABLE, ...contract.requestHeaders };
  const errors = ["invalid_input" as const, unsupportedVersion, ...(contract.errors ?? [])];
  const operation = make("files:upload", { ...contract, requestHeaders: headers, errors }, async (request) => {
    const { c } = request;
    const version = c.req.header("Tus-Resumable");
    if (version !== VERSION) c.header("Tus-Version", VERSION);
    if (version === undefined) throw invalidField("Tus-Resumable", "Required.");
    if (version !== VERSION) throw new AppError(unsupportedVersion);
    const unsupported = UNSUPPORTED_HEADERS.find((name) => c.req.header(name) !== undefined);
    if (unsupported) throw invalidField(unsupported, "Not supported.");
    return handle(request);
  });
  return {
    ...operation,
    answer: (c) => {
      c.header("Tus-Resumable", VERSION);
      return operation.answer(c);
    },
  };
}

/* Request headers */

const BYTES_TYPE = "application/offset+octet-stream";
/** Enough for properties of 8 KiB in base64 and a file name, and below Node's limit of 16 KiB for all headers. */
const MAX_METADATA_CHARACTERS = 12 * 1024;

/** Enough for properties of 1 KiB in base64 and a file name. It is stored for a day, and anyone may have a public key. */
const MAX_VISITOR_METADATA_CHARACTERS = 3 * 1024;

const MAX_DIGITS = 15;
/** The OpenAPI schema of a header with a whole number. */
const wholeNumber = (minimum: number) => ({ type: "integer", minimum, maximum: 10 ** MAX_DIGITS - 1 });

/** Returns the number in a header; undefined if the header is absent. @throws `invalid_input` */
function numberIn(c: Context<AppEnv>, name: string): number | undefined {
  const text = c.req.header(name);
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text) && text.length <= MAX_DIGITS) return Number(text);
  throw invalidField(name, "Must be a whole number.");
}

function requiredNumberIn(c: Context<AppEnv>, name: string): number {
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
const CREATION_HEADERS: Record<string, HeaderContract> = {
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
      "with the stored bytes. `properties` is JSON as in a form upload. With a public key, any visitor can send anything in it. " +
      "An upload token sets it itself: 400 if it is sent. With either, the header has at most " +
      `${grouped(MAX_VISITOR_METADATA_CHARACTERS)} characters. Keys must be unique. Others have no effect.`,
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
function parseNewUpload(c: Context<AppEnv>, deps: Deps, actor: TeamActor) {
  const { maxFileBytes } = deps.settings;
  const sizeBytes = requiredNumberIn(c, "Upload-Length");
  if (sizeBytes === 0) throw invalidField("Upload-Length", "Must be at least 1.");
  if (sizeBytes > maxFileBytes) {
    throw new AppError("file_too_large", { message: `A file can have at most ${maxFileBytes} bytes.` });
  }
  const metadata = c.req.header("Upload-Metadata") ?? "";
  if (isVisitor(actor) && metadata.length > MAX_VISITOR_METADATA_CHARACTERS) {
    const message = `Must have at most ${MAX_VISITOR_METADATA_CHARACTERS} characters with a public key or an upload token.`;
    throw invalidField("Upload-Metadata", message);
  }
  const values = parseMetadata(metadata);
  const digest = statedSha256(c, "Repr-Digest");
  const sha256 = values.get("sha256")?.toLowerCase() ?? digest;
  if (sha256 !== null && !/^[0-9a-f]{64}$/.test(sha256)) {
    throw invalidField("Upload-Metadata", "The sha256 must be 64 hex digits.");
  }
  if (digest !== null && sha256 !== digest)
    throw invalidField("Repr-Digest", "Differs from the sha256 in the metadata.");
  const properties = parseProperties(deps, values.get("properties"), actor);
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
function parseUploadUrl(c: Context<AppEnv>): SecretUrl {
  const url = parseSecretUrl(c.req.param("upload"));
  if (!url) throw new AppError("not_found");
  return url;
}

/** @throws `unsupported_media_type` */
function checkType(c: Context<AppEnv>): void {
  if (c.req.header("Content-Type")?.toLowerCase() === BYTES_TYPE) return;
  throw new AppError("unsupported_media_type", { message: `Send the bytes with Content-Type: ${BYTES_TYPE}.` });
}

/* Operations */

const fileUrl = ({ fileId }: UploadRow) => `/docs/v1/uploads/${fileId}`;

function progressHeaders(upload: UploadRow): Record<string, string> {
  const { offsetBytes, dueAt, status } = upload;
  return {
    "Upload-Offset": String(offsetBytes),
    // toUTCString() has the format of RFC 9110, section 5.6.7.
    ...(status === "committed"
      ? { "Content-Location": fileUrl(upload) }
      : { "Upload-Expires": new Date(dueAt).toUTCString() }),
  };
}

const options: Operation = {
  access: null,
  route: "OPTIONS /docs/v1/uploads/resumable",
  tag: resumableTag,
  summary: "Get the capabilities of resumable uploads",
  success: {
    statuses: [204],
    description: "The versions and extensions of tus.",
    headers: { ...CAPABILITIES, "Tus-Max-Size": "The maximum file size in bytes." },
  },
  answer: async (c) => {
    readQuery(c, undefined);
    return c.body(null, 204, { ...CAPABILITIES, "Tus-Max-Size": String(c.get("deps").settings.maxFileBytes) });
  },
};

const create = tus(
  writeOperation<"files:upload", z.ZodType>,
  {
    route: "POST /docs/v1/uploads/resumable",
    tag: resumableTag,
    summary: "Create a resumable upload",
    sample:
      "const { id } = await stowage.files.upload(file, {\n  onProgress: (sent, total) => {},\n  onResumeUrl: (uploadUrl) => {},\n});",
    description:
      "Works with every tus 1.0.0 client. Requests can have any size, and this one can include the first bytes. " +
      `An unfinished upload expires ${EXPIRY}. Revoking the key that created it cancels it.`,
    takesBytes: { [BYTES_TYPE]: null },
    isBodyOptional: true,
    requestHeaders: CREATION_HEADERS,
    success: {
      statuses: [201],
      description: "The upload was created.",
      headers: {
        Location: `The upload URL: \`${RESUMABLE}/{id}.{secret}\`. Resuming the upload takes this URL and a token of the team.`,
        "Content-Location": CONTENT_LOCATION,
        "Upload-Offset": STORED_BYTES,
        ...PROGRESS_HEADERS,
      },
    },
    errors: [
      "file_too_large",
      "quota_exceeded",
      uploadLimitReached,
      typeNotAllowed,
      fileLimitReached,
      tooManyUnfinishedUploads,
      "body_too_large",
      "unsupported_media_type",
      "upload_timeout",
    ],
  },
  async ({ c, deps, actor }) => {
    const input = { ...parseNewUpload(c, deps, actor), idempotencyKey: idempotencyKeyOf(c) };
    const { sizeBytes } = input;
    const bodyBytes = numberIn(c, "Content-Length") ?? null;
    const hasBody = c.req.raw.body !== null && bodyBytes !== 0;
    if (hasBody) checkType(c);
    if ((bodyBytes ?? 0) > sizeBytes) throw bodyTooLarge(sizeBytes);
    const { url, upload } = await (hasBody
      ? withBody(c, (bytes) => createUpload(deps, actor, { ...input, body: { bytes, sizeBytes: bodyBytes } }))
      : createUpload(deps, actor, input));
    const location = `${RESUMABLE}/${renderSecretUrl(url)}`;
    return c.body(null, 201, { ...progressHeaders(upload), Location: location, "Content-Location": fileUrl(upload) });
  },
);

const headOnce = tus(
  readOperation<"files:upload", z.ZodType>,
  {
    ...AFTER_KEY_EXPIRY,
    route: "HEAD /docs/v1/uploads/resumable/{upload}",
    tag: resumableTag,
    summary: "Get the progress of a resumable upload",
    retryableFailure: uploadLocked,
    success: {
      description: "The progress of the upload.",
      headers: {
        "Upload-Offset": STORED_BYTES,
        "Upload-Length": "The size of the file in bytes.",
        "Upload-Metadata": "The metadata as the client sent it.",
        ...PROGRESS_HEADERS,
      },
    },
    errors: [uploadExpired],
  },
  async ({ c, deps, credential }) => {
    const upload = await fetchUpload(deps, credential, parseUploadUrl(c));
    const { sizeBytes, metadata } = upload;
    return c.body(null, 200, {
      ...progressHeaders(upload),
      "Upload-Length": String(sizeBytes),
      ...(metadata !== "" && { "Upload-Metadata": metadata }),
    });
  },
);

/**
 * tus clients restart from zero on any response except 2xx and 423, so transient failures are 423 here. A bug stays 500:
 * with 423, clients would poll forever.
 */
const head: Operation = {
  ...headOnce,
  answer: async (c) => {
    try {
      return await headOnce.answer(c);
    } catch (cause) {
      if (!isError(cause, "unavailable", "rate_limited")) throw cause;
      const isLimited = cause.kind === errorOf("rate_limited");
      if (!isLimited) {
        c.get("log")("error", "request_failed", { requestId: c.get("requestId"), code: uploadLocked.code, cause });
      }
      const retryAfterSeconds = (isLimited ? retryAfterOf(cause) : cause.retryAfterSeconds) ?? 1;
      throw new AppError(uploadLocked, { retryAfterSeconds, cause });
    }
  },
};

const appendOnce = tus(
  writeOperation<"files:upload", z.ZodType>,
  {
    ...AFTER_KEY_EXPIRY,
    route: "PATCH /docs/v1/uploads/resumable/{upload}",
    tag: resumableTag,
    summary: "Append to a resumable upload",
    description:
      "If the connection breaks, the received bytes are kept. If two requests send at the same time, the newer one " +
      "continues. The file is processed once its last byte is stored.",
    takesBytes: { [BYTES_TYPE]: null },
    requestHeaders: {
      "Upload-Offset": {
        required: true,
        description: "The offset of the first byte in the file.",
        schema: wholeNumber(0),
      },
    },
    success: {
      statuses: [204],
      description: "The bytes are stored.",
      headers: { "Upload-Offset": STORED_BYTES, "Content-Location": CONTENT_LOCATION, ...PROGRESS_HEADERS },
    },
    errors: [
      offsetMismatch,
      uploadExpired,
      tooManyUnfinishedUploads,
      "body_too_large",
      "quota_exceeded",
      "unsupported_media_type",
      typeNotAllowed,
    ],
  },
  async ({ c, deps, actor }) => {
    const url = parseUploadUrl(c);
    checkType(c);
    const offsetBytes = requiredNumberIn(c, "Upload-Offset");
    const sizeBytes = numberIn(c, "Content-Length") ?? (c.req.raw.body === null ? 0 : null);
    const upload = await withBody(c, (bytes) => appendToUpload(deps, actor, url, { offsetBytes, bytes, sizeBytes }));
    return c.body(null, 204, progressHeaders(upload));
  },
);

/** The request keeps running after the client disconnects, so that the bytes it has read are saved. */
const append: Operation = {
  ...appendOnce,
  sample: "const { id } = await stowage.files.upload(file, { resumeUrl: uploadUrl });",
  answer: (c) => {
    const answer = appendOnce.answer(c);
    c.get("deps").after(answer.catch(() => undefined));
    return answer;
  },
};

const remove = tus(
  writeOperation<"files:upload", z.ZodType>,
  {
    ...AFTER_KEY_EXPIRY,
    route: "DELETE /docs/v1/uploads/resumable/{upload}",
    tag: resumableTag,
    summary: "Cancel a resumable upload",
    sample: "await stowage.unfinishedUploads.cancel(uploadUrl);",
    success: {
      statuses: [204],
      description: "The upload was canceled and its bytes are deleted.",
      headers: { "Tus-Resumable": VERSION },
    },
  },
  async ({ c, deps, actor }) => {
    await terminateUpload(deps, actor, parseUploadUrl(c));
    return c.body(null, 204);
  },
);

const METHODS: Record<string, Operation> = { HEAD: head, PATCH: append, DELETE: remove };

/** For clients behind a proxy that allows only GET and POST. */
const override: Operation = {
  ...appendOnce,
  isBodyOptional: true,
  route: "POST /docs/v1/uploads/resumable/{upload}",
  tag: resumableTag,
  summary: "Send the method in a header",
  description: "Runs HEAD, PATCH, or DELETE for clients behind a proxy that allows only GET and POST.",
  requestHeaders: {
    "X-HTTP-Method-Override": {
      required: true,
      description: "The method to run.",
      schema: { type: "string", enum: Object.keys(METHODS) },
    },
    "Tus-Resumable": TUS_RESUMABLE,
  },
  success: {
    ...append.success,
    statuses: [200, 204],
    description: "The response of that method: 200 for HEAD, 204 for the others.",
  },
  errors: [...new Set(Object.values(METHODS).flatMap(({ errors = [] }) => errors)), "method_not_allowed"],
  answer: async (c) => {
    const operation = METHODS[c.req.header("X-HTTP-Method-Override")?.toUpperCase() ?? ""];
    return operation ? operation.answer(c) : renderMethodNotAllowed(c, Object.keys(METHODS));
  },
};

export const operations = {
  describeResumableUploads: options,
  createResumableUpload: create,
  getResumableUpload: head,
  appendToResumableUpload: append,
  deleteResumableUpload: remove,
  overrideResumableUpload: override,
};
