import * as z from "zod";
import { IDEMPOTENCY_MILLISECONDS } from "../domain/files/idempotency.ts";
import { uploadFile } from "../domain/files/upload.ts";
import { AppError } from "../errors.ts";
import { exampleFile, fileSchema, renderFile } from "./files.ts";
import { inHours } from "./introduction.ts";
import { MAX_OVERHEAD_BYTES, readMultipartFile } from "./multipart.ts";
import { write } from "./operation.ts";

/** Printable ASCII without white space at its ends, which HTTP takes off. */
const IDEMPOTENCY_KEY = /^[!-~]([ -~]*[!-~])?$/;

function contentLengthOf(header = ""): number | null {
  return /^\d+$/.test(header) ? Number(header) : null;
}

export const upload = write(
  "upload",
  {
    tag: "Files",
    summary: "Upload a file",
    description:
      "One part `file` with a file name; up to ten text parts of 1 KiB are ignored, and so is `limit` in the query. " +
      "The file is listed once its bytes are stored, and is processed after the answer. A public key may do this.",
    takesFile: true,
    query: z.object({ limit: z.unknown().optional().meta({ type: "string", description: "Accepted and ignored." }) }),
    requestHeaders: {
      "Idempotency-Key": {
        description: `The same key and bytes within ${inHours(IDEMPOTENCY_MILLISECONDS)} store one file and get the first answer.`,
        schema: { type: "string", minLength: 1, maxLength: 255, pattern: IDEMPOTENCY_KEY.source },
      },
    },
    success: {
      description: "The file is stored.",
      schema: z.strictObject({ message: z.string(), data: fileSchema }),
      example: {
        message: "File uploaded. It will be processed shortly.",
        data: { ...exampleFile, status: "pending", durationSeconds: null, __v: 1 },
      },
      headers: { Location: "The file: `/docs/v1/uploads/{id}`." },
    },
    refusals: [
      "invalid_input",
      "malformed_multipart",
      "file_missing",
      "file_empty",
      "too_many_files",
      "not_found",
      "upload_timeout",
      "idempotency_conflict",
      "idempotency_in_progress",
      "file_limit_reached",
      "body_too_large",
      "file_too_large",
      "quota_exceeded",
      "unsupported_media_type",
    ],
  },
  async ({ c, deps, actor }) => {
    const contentType = c.req.header("Content-Type") ?? "";
    if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) {
      throw new AppError("unsupported_media_type", { message: "Send the file as multipart/form-data." });
    }
    const idempotencyKey = c.req.header("Idempotency-Key");
    if (idempotencyKey !== undefined && !(IDEMPOTENCY_KEY.test(idempotencyKey) && idempotencyKey.length <= 255)) {
      const errors = [{ path: "Idempotency-Key", message: "Must have 1 to 255 characters of printable ASCII." }];
      throw new AppError("invalid_input", { errors });
    }
    const { maxUploadBytes, uploadIdleMilliseconds } = deps.settings;
    const contentLength = contentLengthOf(c.req.header("Content-Length"));
    if ((contentLength ?? 0) > maxUploadBytes + MAX_OVERHEAD_BYTES) {
      throw new AppError("file_too_large", { message: `A file may have ${maxUploadBytes} bytes at most.` });
    }
    const maxBytes = Math.min(contentLength ?? maxUploadBytes, maxUploadBytes);
    // No more is taken than is reserved: a stated length that is too short must not get past the quota.
    const limits = { maxFileBytes: maxBytes, idleMilliseconds: uploadIdleMilliseconds };
    // The form around the file counts too, and seldom takes so much.
    const minBytes = contentLength === null ? null : contentLength - MAX_OVERHEAD_BYTES;
    const uploaded = readMultipartFile(c.req.raw.body, contentType, limits, (name, bytes) =>
      uploadFile(deps, actor, { name, bytes, minBytes, maxBytes, idempotencyKey }),
    );
    // A client that goes away must not end the invocation before the upload is undone.
    deps.after(uploaded.catch(() => undefined));
    const file = await uploaded;
    const body = { message: "File uploaded. It will be processed shortly.", data: renderFile(file) };
    return c.json(body, 200, { Location: `/docs/v1/uploads/${file.id}` });
  },
);
