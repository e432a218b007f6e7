import type { Context } from "hono";
import type * as z from "zod";
import { bodyTooLarge } from "../domain/files/appending.ts";
import { appendToUpload, createUpload, fetchUpload, terminateUpload } from "../domain/files/resumable.ts";
import {
  MAX_EMPTY_MILLISECONDS,
  MAX_RESUMABLE_MILLISECONDS,
  MAX_UNFINISHED_MILLISECONDS,
  type ResumableRow,
} from "../domain/files/resumable-rows.ts";
import { renderSecretUrl } from "../domain/files/secret-url.ts";
import { AppError, invalidField } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import { withBody } from "./body-reader.ts";
import { renderMethodNotAllowed, retryAfterOf } from "./failures.ts";
import { idempotencyKeyOf } from "./form-upload.ts";
import { inHours } from "./introduction.ts";
import { type HeaderContract, type Operation, readOperation, writeOperation } from "./operation.ts";
import {
  BYTES_TYPE,
  CREATION_HEADERS,
  checkType,
  numberIn,
  parseNewUpload,
  parseUploadUrl,
  requiredNumberIn,
  wholeNumber,
} from "./tus-headers.ts";
import { readQuery } from "./validation.ts";

/* tus 1.0.0 (https://tus.io/protocols/resumable-upload): the core protocol and the extensions named below. */

export const RESUMABLE = "/docs/v1/uploads/resumable";
const VERSION = "1.0.0";
const CAPABILITIES = {
  "Tus-Resumable": VERSION,
  "Tus-Version": VERSION,
  "Tus-Extension": "creation,creation-with-upload,expiration,termination",
};
const TUS_RESUMABLE: HeaderContract = {
  required: true,
  description: "The protocol version. A request without it gets 400, and one with another version gets 412.",
  schema: { type: "string", const: VERSION },
};
const EXPIRY = `${inHours(MAX_UNFINISHED_MILLISECONDS)} after its last byte, or ${inHours(MAX_EMPTY_MILLISECONDS)} after its creation if no byte has arrived; at most ${MAX_RESUMABLE_MILLISECONDS / 86_400_000} days after its creation`;
const PROGRESS_HEADERS = { "Tus-Resumable": VERSION, "Upload-Expires": `When the upload expires: ${EXPIRY}.` };
const STORED_BYTES = "The number of stored bytes.";
const CONTENT_LOCATION = "The file: `/docs/v1/uploads/{id}`. It is listed once the last byte is stored.";
/** Extensions of tus that are not offered, and a digest of the body: a part of it may be stored before all has arrived. */
const UNSUPPORTED_HEADERS = ["Upload-Defer-Length", "Upload-Concat", "Content-Digest"];

/** The expiry of a public key stops new uploads only. An upload URL works until its upload expires. */
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
  const errorCodes = ["invalid_input" as const, "unsupported_version" as const, ...(contract.errorCodes ?? [])];
  const operation = make("files:upload", { ...contract, requestHeaders: headers, errorCodes }, async (request) => {
    const { c } = request;
    const version = c.req.header("Tus-Resumable");
    if (version !== VERSION) c.header("Tus-Version", VERSION);
    if (version === undefined) throw invalidField("Tus-Resumable", "Required.");
    if (version !== VERSION) throw new AppError("unsupported_version");
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

const fileUrl = ({ fileId }: ResumableRow) => `/docs/v1/uploads/${fileId}`;

function progressHeaders(upload: ResumableRow): Record<string, string> {
  const { offsetBytes, dueAt, isFinished } = upload;
  return {
    "Upload-Offset": String(offsetBytes),
    // toUTCString() has the format of RFC 9110, section 5.6.7.
    ...(isFinished ? { "Content-Location": fileUrl(upload) } : { "Upload-Expires": new Date(dueAt).toUTCString() }),
  };
}

export const options: Operation = {
  access: "public",
  tag: "Resumable uploads",
  summary: "Get the capabilities of resumable uploads",
  success: {
    statuses: [204],
    description: "The versions and extensions of tus.",
    headers: { ...CAPABILITIES, "Tus-Max-Size": "The maximum file size in bytes." },
  },
  answer: async (c) => {
    readQuery(c, undefined);
    return c.body(null, 204, { ...CAPABILITIES, "Tus-Max-Size": String(c.var.deps.settings.maxFileBytes) });
  },
};

export const create = tus(
  writeOperation<"files:upload", z.ZodType>,
  {
    tag: "Resumable uploads",
    summary: "Create a resumable upload",
    description:
      "Works with every tus 1.0.0 client. Requests can have any size, and this one can include the first bytes. " +
      `An unfinished upload expires ${EXPIRY}. Revoking the key that created it cancels it.`,
    takesBytes: BYTES_TYPE,
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
    errorCodes: [
      "file_too_large",
      "quota_exceeded",
      "upload_limit_reached",
      "type_not_allowed",
      "file_limit_reached",
      "too_many_unfinished_uploads",
      "body_too_large",
      "unsupported_media_type",
      "upload_timeout",
    ],
  },
  async ({ c, deps, actor }) => {
    const input = { ...parseNewUpload(c, deps.settings.maxFileBytes), idempotencyKey: idempotencyKeyOf(c) };
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
    tag: "Resumable uploads",
    summary: "Get the progress of a resumable upload",
    retryableFailureCode: "upload_locked",
    success: {
      description: "The progress of the upload.",
      headers: {
        "Upload-Offset": STORED_BYTES,
        "Upload-Length": "The size of the file in bytes.",
        "Upload-Metadata": "The metadata as the client sent it.",
        ...PROGRESS_HEADERS,
      },
    },
    errorCodes: ["upload_expired"],
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
export const head: Operation = {
  ...headOnce,
  answer: async (c) => {
    try {
      return await headOnce.answer(c);
    } catch (cause) {
      if (!(cause instanceof AppError) || !["unavailable", "rate_limited"].includes(cause.code)) throw cause;
      if (cause.code === "unavailable") {
        c.var.log("error", "request_failed", { requestId: c.var.requestId, code: "upload_locked", cause });
      }
      const retryAfterSeconds = (cause.code === "rate_limited" ? retryAfterOf(cause) : cause.retryAfterSeconds) ?? 1;
      throw new AppError("upload_locked", { retryAfterSeconds, cause });
    }
  },
};

const appendOnce = tus(
  writeOperation<"files:upload", z.ZodType>,
  {
    ...AFTER_KEY_EXPIRY,
    tag: "Resumable uploads",
    summary: "Append to a resumable upload",
    description:
      "If the connection breaks, the received bytes are kept. If two requests send at the same time, the newer one " +
      "continues. The file is processed once its last byte is stored.",
    takesBytes: BYTES_TYPE,
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
    errorCodes: ["offset_mismatch", "upload_expired", "body_too_large", "unsupported_media_type", "type_not_allowed"],
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
export const append: Operation = {
  ...appendOnce,
  answer: (c) => {
    const answer = appendOnce.answer(c);
    c.var.deps.after(answer.catch(() => undefined));
    return answer;
  },
};

export const remove = tus(
  writeOperation<"files:upload", z.ZodType>,
  {
    ...AFTER_KEY_EXPIRY,
    tag: "Resumable uploads",
    summary: "Cancel a resumable upload",
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
export const override: Operation = {
  ...append,
  isBodyOptional: true,
  tag: "Resumable uploads",
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
  errorCodes: [...new Set(Object.values(METHODS).flatMap(({ errorCodes = [] }) => errorCodes)), "method_not_allowed"],
  answer: async (c) => {
    const operation = METHODS[c.req.header("X-HTTP-Method-Override")?.toUpperCase() ?? ""];
    return operation ? operation.answer(c) : renderMethodNotAllowed(c, Object.keys(METHODS));
  },
};
