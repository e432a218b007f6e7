import type { Context } from "hono";
import type * as z from "zod";
import { appendToUpload, createUpload, fetchUpload, terminateUpload } from "../domain/files/resumable.ts";
import {
  MAX_EMPTY_MILLISECONDS,
  MAX_UNFINISHED_MILLISECONDS,
  type ResumableUpload,
} from "../domain/files/resumable-rows.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import { withBody } from "./body-reader.ts";
import { renderMethodNotAllowed, retryAfterOf } from "./failures.ts";
import { inHours } from "./introduction.ts";
import { type HeaderContract, type Operation, read, write } from "./operation.ts";
import {
  BYTES_TYPE,
  checkType,
  invalid,
  MAX_METADATA_CHARACTERS,
  METADATA_PATTERN,
  numberIn,
  parseMetadata,
  parseUploadUrl,
  requiredNumberIn,
  wholeNumber,
} from "./tus-headers.ts";
import { readQuery } from "./validation.ts";

/* tus 1.0.0 (https://tus.io/protocols/resumable-upload): the core protocol and the extensions named below. */

export const RESUMABLE = "/docs/v1/uploads/resumable";
const VERSION = "1.0.0";
const EXTENSIONS = "creation,creation-with-upload,expiration,termination";

const TUS_RESUMABLE: HeaderContract = {
  required: true,
  description: "The version of the protocol: 400 where it is missing, 412 where it is another.",
  schema: { type: "string", const: VERSION },
};
const EXPIRY = `${inHours(MAX_UNFINISHED_MILLISECONDS)} after its last byte, or ${inHours(MAX_EMPTY_MILLISECONDS)} after its creation if no byte has arrived`;
const PROGRESS_HEADERS = {
  "Tus-Resumable": VERSION,
  "Upload-Expires": `When the upload expires: ${EXPIRY}.`,
};
const CONTENT_LOCATION = "The file: `/docs/v1/uploads/{id}`. It is listed once the last byte is stored.";
const REFUSED_HEADERS = ["Upload-Defer-Length", "Upload-Concat"];

type Contract = Parameters<typeof write<"upload", z.ZodType>>[1];
type Handle<R> = (request: R) => Promise<Response>;
const reading = read<"upload", z.ZodType>;
const writing = write<"upload", z.ZodType>;

/** An operation of tus: whoever may upload a file may ask it, in the one version there is. */
function tus<R extends { c: Context<AppEnv> }>(
  make: (right: "upload", contract: Contract, handle: Handle<R>) => Operation,
  contract: Contract,
  handle: Handle<R>,
): Operation {
  const headers = { "Tus-Resumable": TUS_RESUMABLE, ...contract.requestHeaders };
  const refusals = ["invalid_input" as const, "unsupported_version" as const, ...(contract.refusals ?? [])];
  const operation = make("upload", { ...contract, requestHeaders: headers, refusals }, async (request) => {
    const { c } = request;
    const version = c.req.header("Tus-Resumable");
    if (version !== VERSION) c.header("Tus-Version", VERSION);
    if (version === undefined) throw invalid({ path: "Tus-Resumable", message: "Required." });
    if (version !== VERSION) throw new AppError("unsupported_version");
    const refused = REFUSED_HEADERS.filter((name) => c.req.header(name) !== undefined);
    if (refused.length > 0) throw invalid(...refused.map((path) => ({ path, message: "Not supported." })));
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

const fileUrl = ({ id }: { id: string }) => `/docs/v1/uploads/${id}`;

/** The headers that tell how far an upload has come. */
function progressHeaders(upload: ResumableUpload): Record<string, string> {
  const { offsetBytes, expiresAt, isFinished } = upload;
  return {
    "Upload-Offset": String(offsetBytes),
    // RFC 9110, section 5.6.7.
    ...(isFinished ? { "Content-Location": fileUrl(upload) } : { "Upload-Expires": new Date(expiresAt).toUTCString() }),
  };
}

export const options: Operation = {
  access: "public",
  tag: "Resumable uploads",
  summary: "Tell what resumable uploads can do",
  success: {
    statuses: [204],
    description: "The versions and extensions of tus.",
    headers: {
      "Tus-Resumable": VERSION,
      "Tus-Version": VERSION,
      "Tus-Extension": EXTENSIONS,
      "Tus-Max-Size": "Bytes of the largest file.",
    },
  },
  answer: async (c) => {
    readQuery(c, undefined);
    return c.body(null, 204, {
      "Tus-Resumable": VERSION,
      "Tus-Version": VERSION,
      "Tus-Extension": EXTENSIONS,
      "Tus-Max-Size": String(c.var.deps.settings.maxFileBytes),
    });
  },
};

export const create = tus(
  writing,
  {
    tag: "Resumable uploads",
    summary: "Begin a resumable upload",
    description:
      "tus 1.0.0: any client of that protocol uploads here, in requests of any size. The first bytes may come along. " +
      `An unfinished upload expires ${EXPIRY}. Revoking the key that created it cancels it. A public key may do this.`,
    takesBytes: BYTES_TYPE,
    isBodyOptional: true,
    requestHeaders: {
      "Upload-Length": {
        required: true,
        description: "Bytes of the file.",
        schema: { ...wholeNumber(1), example: 482_113 },
      },
      "Upload-Metadata": {
        description:
          "Comma-separated pairs of a key and a base64 value. `filename` must be UTF-8. `sha256` (64 hex digits) is compared " +
          "with the stored bytes. Keys must be unique. Other keys have no effect; HEAD returns them.",
        schema: { type: "string", maxLength: MAX_METADATA_CHARACTERS, pattern: METADATA_PATTERN },
      },
    },
    success: {
      statuses: [201],
      description: "The upload has begun.",
      headers: {
        Location: `The upload: \`${RESUMABLE}/{id}.{secret}\`. Whoever has it and a token of the team may go on.`,
        "Content-Location": CONTENT_LOCATION,
        "Upload-Offset": "What is stored of it.",
        ...PROGRESS_HEADERS,
      },
    },
    refusals: [
      "file_too_large",
      "quota_exceeded",
      "file_limit_reached",
      "too_many_unfinished_uploads",
      "body_too_large",
      "unsupported_media_type",
      "upload_timeout",
    ],
  },
  async ({ c, deps, actor }) => {
    const sizeBytes = requiredNumberIn(c, "Upload-Length");
    if (sizeBytes === 0) throw invalid({ path: "Upload-Length", message: "Must be 1 at least." });
    const { maxFileBytes } = deps.settings;
    if (sizeBytes > maxFileBytes) {
      throw new AppError("file_too_large", { message: `A file may have ${maxFileBytes} bytes at most.` });
    }
    const metadata = c.req.header("Upload-Metadata") ?? "";
    const values = parseMetadata(metadata);
    const sha256 = values.get("sha256")?.toLowerCase() ?? null;
    if (sha256 !== null && !/^[0-9a-f]{64}$/.test(sha256)) {
      throw invalid({ path: "Upload-Metadata", message: "The sha256 must be 64 hex digits." });
    }
    const bodyBytes = numberIn(c, "Content-Length") ?? null;
    const hasBody = c.req.raw.body !== null && bodyBytes !== 0;
    if (hasBody) checkType(c);
    if ((bodyBytes ?? 0) > sizeBytes) {
      throw new AppError("body_too_large", { message: `The upload has ${sizeBytes} bytes by its Upload-Length.` });
    }
    const input = { name: values.get("filename") ?? "", sizeBytes, metadata, sha256 };
    const { url, upload } = await (hasBody
      ? withBody(c, (bytes) => createUpload(deps, actor, { ...input, body: { bytes, sizeBytes: bodyBytes } }))
      : createUpload(deps, actor, input));
    const location = `${RESUMABLE}/${url.id}.${url.secret}`;
    return c.body(null, 201, { ...progressHeaders(upload), Location: location, "Content-Location": fileUrl(upload) });
  },
);

const headOnce = tus(
  reading,
  {
    tag: "Resumable uploads",
    summary: "Ask how far a resumable upload has come",
    codeOfFailures: "upload_locked",
    success: {
      description: "How far it has come.",
      headers: {
        "Upload-Offset": "What is stored.",
        "Upload-Length": "Bytes of the file.",
        "Upload-Metadata": "As it was sent.",
        ...PROGRESS_HEADERS,
      },
    },
    refusals: ["upload_expired"],
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
  writing,
  {
    tag: "Resumable uploads",
    summary: "Send more of a resumable upload",
    description:
      "All that came counts, also where the line breaks. Of two requests at a time the newer goes on. The file is " +
      "processed once its last byte is stored.",
    takesBytes: BYTES_TYPE,
    requestHeaders: {
      "Upload-Offset": { required: true, description: "Where the bytes begin.", schema: wholeNumber(0) },
    },
    success: {
      statuses: [204],
      description: "The bytes are stored.",
      headers: { "Upload-Offset": "What is stored.", "Content-Location": CONTENT_LOCATION, ...PROGRESS_HEADERS },
    },
    refusals: ["offset_mismatch", "upload_expired", "body_too_large", "unsupported_media_type"],
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
  writing,
  {
    tag: "Resumable uploads",
    summary: "Give up a resumable upload",
    success: { statuses: [204], description: "Nothing of it is left.", headers: { "Tus-Resumable": VERSION } },
  },
  async ({ c, deps, actor }) => {
    await terminateUpload(deps, actor, parseUploadUrl(c));
    return c.body(null, 204);
  },
);

const METHODS: Record<string, Operation> = { HEAD: head, PATCH: append, DELETE: remove };

/** For clients in whose way something stands that lets only GET and POST through. */
export const override: Operation = {
  ...append,
  isBodyOptional: true,
  tag: "Resumable uploads",
  summary: "Do what X-HTTP-Method-Override says",
  description: "As HEAD, PATCH or DELETE, where something in the way lets no such request through.",
  requestHeaders: {
    "X-HTTP-Method-Override": {
      required: true,
      description: "The method that is meant.",
      schema: { type: "string", enum: Object.keys(METHODS) },
    },
    "Tus-Resumable": TUS_RESUMABLE,
  },
  success: { ...append.success, statuses: [200, 204], description: "As that method: 200 for HEAD." },
  refusals: [...new Set(Object.values(METHODS).flatMap(({ refusals = [] }) => refusals)), "method_not_allowed"],
  answer: async (c) => {
    const operation = METHODS[c.req.header("X-HTTP-Method-Override")?.toUpperCase() ?? ""];
    return operation ? operation.answer(c) : renderMethodNotAllowed(c, Object.keys(METHODS));
  },
};
