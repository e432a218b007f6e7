import type { Context } from "hono";
import * as z from "zod";
import { AppError, invalidField, isError } from "../errors.ts";
import { fileRecord, filesTag } from "../files/files.routes.ts";
import { parseProperties } from "../files/properties.routes.ts";
import type { AppEnv } from "../http/app-env.ts";
import {
  beginBody,
  CONTENT_DIGEST,
  DigestCheck,
  encodingError,
  REPR_DIGEST,
  statedSha256,
} from "../http/body-reader.ts";
import { inHours } from "../http/introduction.ts";
import { MAX_OVERHEAD_BYTES, readMultipartFile } from "../http/multipart.ts";
import { writeOperation } from "../http/operation.ts";
import { fileLimitReached, tooManyUnfinishedUploads, uploadLimitReached } from "./quota.ts";
import { typeNotAllowed } from "./storing.ts";
import { IDEMPOTENCY_MILLISECONDS, idempotencyConflict, idempotencyInProgress, uploadFile } from "./upload.ts";

/** Printable ASCII. HTTP removes white space at both ends. */
const IDEMPOTENCY_KEY = /^[!-~]([ -~]*[!-~])?$/;

export const idempotencyHeader = (description: string) => ({
  "Idempotency-Key": {
    description,
    schema: { type: "string", minLength: 1, maxLength: 255, pattern: IDEMPOTENCY_KEY.source },
  },
});

/** @throws `invalid_input` */
export function idempotencyKeyOf(c: Context<AppEnv>): string | undefined {
  const key = c.req.header("Idempotency-Key");
  if (key === undefined || (IDEMPOTENCY_KEY.test(key) && key.length <= 255)) return key;
  throw invalidField("Idempotency-Key", "Must have 1 to 255 characters of printable ASCII.");
}

function contentLengthOf(header = ""): number | null {
  return /^\d+$/.test(header) ? Number(header) : null;
}

const upload = writeOperation(
  "files:upload",
  {
    route: "POST /docs/v1/uploads",
    tag: filesTag,
    summary: "Upload a file",
    sample:
      "const { id } = await stowage.files.upload(file);\nconst { audio } = await stowage.files.waitUntilProcessed(id);",
    description:
      "Send one part `file` with a file name. A part `properties` before or after it, at most 8 KiB of JSON, can set name, " +
      "folder, reference, tags and metadata. With a public key, it has at most 1 KiB, and any visitor can send anything in it: " +
      "don't trust the `reference` of a file if the `actor` of its event `file.uploaded` has the kind `public`. An upload token " +
      "sets the properties itself: 400 if they are sent. Up to ten other parts of 1 KiB are ignored. All of these may be text or Blobs. The file is listed " +
      "once its bytes are stored, and processed after the response.",
    takesFile: true,
    query: () =>
      z.object({
        limit: z.unknown().optional().meta({ type: "string", deprecated: true, description: "Accepted and ignored." }),
      }),
    requestHeaders: {
      "Content-Digest": CONTENT_DIGEST,
      "Repr-Digest": REPR_DIGEST,
      ...idempotencyHeader(
        `Uploads with the same key and bytes within ${inHours(IDEMPOTENCY_MILLISECONDS)} store one file and return it. A repetition that states the digest of the file in \`Repr-Digest\` is recognized by it, so it can send any one byte in place of the file. ` +
          "The key is the team's, so two secret keys that send the same one get the same file, also after a rotation; a public key, an upload token and a contributor each have their own.",
      ),
    },
    success: {
      description: "The file is stored.",
      message: "File uploaded. It will be processed shortly.",
      schema: fileRecord.schema,
      example: { ...fileRecord.example, status: "pending", durationSeconds: null, __v: 1 },
      headers: { Location: "The file: `/docs/v1/uploads/{id}`." },
    },
    errors: [
      "invalid_input",
      "malformed_multipart",
      "digest_mismatch",
      "file_missing",
      "file_empty",
      "too_many_files",
      "not_found",
      "upload_timeout",
      idempotencyConflict,
      idempotencyInProgress,
      uploadLimitReached,
      typeNotAllowed,
      fileLimitReached,
      tooManyUnfinishedUploads,
      "body_too_large",
      "file_too_large",
      "quota_exceeded",
      "unsupported_media_type",
    ],
  },
  async ({ c, deps, actor }) => {
    const contentType = c.req.header("Content-Type") ?? "";
    if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) {
      throw new AppError("unsupported_media_type", {
        message: "Send the file with Content-Type: multipart/form-data.",
      });
    }
    const idempotencyKey = idempotencyKeyOf(c);
    const { maxUploadBytes, uploadIdleMilliseconds } = deps.settings;
    const contentLength = contentLengthOf(c.req.header("Content-Length"));
    if ((contentLength ?? 0) > maxUploadBytes + MAX_OVERHEAD_BYTES) {
      throw new AppError("file_too_large", {
        message: `The file can have at most ${maxUploadBytes} bytes. Use a resumable upload for larger files.`,
      });
    }
    const maxBytes = Math.min(contentLength ?? maxUploadBytes, maxUploadBytes);
    // A Content-Length that is too small must not bypass the quota, so no more than the reserved bytes are accepted.
    const digests = { body: new DigestCheck(c, "Content-Digest"), file: new DigestCheck(c, "Repr-Digest") };
    const stated = statedSha256(c, "Repr-Digest");
    const limits = {
      maxFileBytes: maxBytes,
      idleMilliseconds: uploadIdleMilliseconds,
      begin: () => beginBody(c),
      digests,
    };
    // Content-Length includes the form around the file, which rarely takes this much.
    const minBytes = contentLength === null ? null : contentLength - MAX_OVERHEAD_BYTES;
    const uploaded = readMultipartFile(c.req.raw.body, contentType, limits, async (name, bytes, form) => {
      const early = form.properties;
      const properties = parseProperties(deps, early, actor);
      const lateProperties = () =>
        form.properties === early ? undefined : parseProperties(deps, form.properties, actor);
      const file = {
        name,
        bytes,
        minBytes,
        maxBytes,
        idempotencyKey,
        statedSha256: stated,
        properties,
        lateProperties,
      };
      return uploadFile(deps, actor, file);
    });
    // A disconnect must not end the invocation before the upload is rolled back.
    deps.after(uploaded.catch(() => undefined));
    const file = await uploaded.catch((error) => {
      const isMalformed = isError(error, "malformed_multipart");
      throw (isMalformed && encodingError(c)) || error;
    });
    c.header("Location", `/docs/v1/uploads/${file.id}`);
    return fileRecord.render(file);
  },
);

export const operations = {
  uploadFile: upload,
};
