import type { Context } from "hono";
import * as z from "zod";
import { AppError } from "../errors.ts";
import { filesTag, transcriptRecord } from "../files/files.routes.ts";
import type { AppEnv } from "../http/app-env.ts";
import { withBody } from "../http/body-reader.ts";
import { OCTET_STREAM, readOperation, writeOperation } from "../http/operation.ts";
import { deleteTranscript, fetchTranscript, MAX_TRANSCRIPT_BYTES, setTranscript } from "./transcripts.ts";
import { checkWebVtt } from "./webvtt.ts";

export const VTT = "text/vtt";
export const VTT_EXAMPLE = `WEBVTT

00:00.000 --> 00:02.500
Good evening, and welcome to the night shift.

00:02.500 --> 00:06.000
The lock opens at half past four.
`;

/** The longest tags that RFC 5646 (section 4.4.1) expects. */
const MAX_LANGUAGE_LENGTH = 35;
const language = z
  .string()
  .regex(/^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$/, "Must be a BCP 47 tag, such as `en` or `de-CH`.")
  .max(MAX_LANGUAGE_LENGTH, `Must have at most ${MAX_LANGUAGE_LENGTH} characters.`)
  .meta({ description: "The language as a BCP 47 tag, such as `en` or `de-CH`." });

function checkType(c: Context<AppEnv>): void {
  const [type, ...parameters] = (c.req.header("Content-Type") ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((one) => /^(charset="?utf-8"?)?$/.test(one.trim()));
  if ([VTT, OCTET_STREAM].includes(type?.trim() ?? "") && isUtf8) return;
  throw new AppError("unsupported_media_type", { message: `Send the body with Content-Type: ${VTT}.` });
}

/**
 * Passes a body of WebVTT to `take`. Its memory counts against that of the isolate: many clients may send at once, and slowly.
 * @throws `unsupported_media_type`, `body_too_large`, `upload_timeout`, `unavailable`, `invalid_input`
 */
async function withVtt<T>(c: Context<AppEnv>, take: (bytes: Uint8Array) => Promise<T>): Promise<T> {
  checkType(c);
  const { bytes: store } = c.var.deps;
  const statedBytes = Number(c.req.header("Content-Length") ?? MAX_TRANSCRIPT_BYTES);
  return withBody(c, async (chunks) => {
    const tooLarge = () =>
      new AppError("body_too_large", { message: `A transcript can have at most ${MAX_TRANSCRIPT_BYTES} bytes.` });
    if (statedBytes > MAX_TRANSCRIPT_BYTES) throw tooLarge();
    let memory = new Uint8Array();
    try {
      let sizeBytes = 0;
      for await (const chunk of chunks) {
        const endBytes = sizeBytes + chunk.length;
        if (endBytes > MAX_TRANSCRIPT_BYTES) throw tooLarge();
        const grown = store.grow(memory, endBytes, MAX_TRANSCRIPT_BYTES);
        if (!grown) throw new AppError("unavailable");
        memory = grown;
        memory.set(chunk, sizeBytes);
        sizeBytes = endBytes;
      }
      const bytes = memory.subarray(0, sizeBytes);
      checkWebVtt(bytes);
      return await take(bytes);
    } finally {
      store.free(memory);
    }
  });
}

const get = readOperation(
  "files:read",
  {
    route: "GET /docs/v1/uploads/{id}/transcript",
    tag: filesTag,
    summary: "Get a file's transcript",
    sample: "const vtt = await stowage.files.getTranscript(id);",
    description: "Returns the WebVTT as it was sent.",
    success: {
      description: "The transcript.",
      mediaType: VTT,
      schema: z.string(),
      example: VTT_EXAMPLE,
      headers: { "Content-Language": "The language, if it was given." },
    },
  },
  async ({ c, deps, credential, id }) => {
    const transcript = await fetchTranscript(deps, credential, id);
    if (transcript.language !== null) c.header("Content-Language", transcript.language);
    return c.body(transcript.text, 200, { "Content-Type": `${VTT}; charset=utf-8` });
  },
);

const set = writeOperation(
  "files:write",
  {
    route: "PUT /docs/v1/uploads/{id}/transcript",
    tag: filesTag,
    summary: "Set a file's transcript",
    sample: 'await stowage.files.setTranscript(id, vtt, { language: "en" });',
    description:
      `Takes WebVTT in UTF-8, at most ${MAX_TRANSCRIPT_BYTES / 1024 / 1024} MiB, and replaces the previous transcript. Cues must be in the ` +
      "order of their start; an error names the first line that is wrong. Links of the file show the transcript. Its bytes " +
      "count against the storage quota. Deleting the file deletes it. Counts against a limit of its own, for a contributor as a heavy request.",
    query: z.object({ language: language.optional() }),
    // Checking 2 MiB takes as long as a password.
    isHeavy: "transcripts",
    takesBytes: VTT,
    takesOctetStream: true,
    textExample: VTT_EXAMPLE,
    success: {
      description: "The stored transcript.",
      message: "Transcript set.",
      schema: transcriptRecord.schema,
      example: transcriptRecord.example,
    },
    errors: ["unsupported_media_type", "body_too_large", "upload_timeout", "quota_exceeded"],
  },
  async ({ c, deps, actor, id, query }) => {
    const language = query.language ?? null;
    const set = async (bytes: Uint8Array) => setTranscript(deps, actor, id, { bytes, language });
    return transcriptRecord.render(await withVtt(c, set));
  },
);

const remove = writeOperation(
  "files:write",
  {
    route: "DELETE /docs/v1/uploads/{id}/transcript",
    tag: filesTag,
    summary: "Delete a file's transcript",
    sample: "await stowage.files.deleteTranscript(id);",
    success: { description: "The transcript was deleted.", message: "Transcript deleted." },
  },
  ({ deps, actor, id }) => deleteTranscript(deps, actor, id),
);

export const operations = {
  getTranscript: get,
  setTranscript: set,
  deleteTranscript: remove,
};
