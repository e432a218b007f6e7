import type { Context } from "hono";
import * as z from "zod";
import { AppError } from "../errors.ts";
import { filesTag, transcriptRecord } from "../files/files.routes.ts";
import type { AppEnv } from "../http/app-env.ts";
import { withBody } from "../http/body-reader.ts";
import { OCTET_STREAM, readOperation, writeOperation } from "../http/operation.ts";
import { lazy } from "../lazy.ts";
import { FORMATS, type Format, type ReadTranscript, readTranscript } from "./reading.ts";
import { deleteTranscript, fetchTranscript, MAX_TRANSCRIPT_BYTES, setTranscript } from "./transcripts.ts";

export const VTT = "text/vtt";
const SUBRIP = "application/x-subrip";
export const VTT_EXAMPLE = `WEBVTT

00:00.000 --> 00:02.500
Good evening, and welcome to the night shift.

00:02.500 --> 00:06.000
The lock opens at half past four.
`;

const SUBRIP_EXAMPLE = `1
00:00:00,000 --> 00:00:02,500
Good evening, and welcome to the night shift.
`;

/** The longest tags that RFC 5646 (section 4.4.1) expects. */
const MAX_LANGUAGE_LENGTH = 35;
const language = lazy(() =>
  z
    .string()
    .regex(/^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$/, "Must be a BCP 47 tag, such as `en` or `de-CH`.")
    .max(MAX_LANGUAGE_LENGTH, `Must have at most ${MAX_LANGUAGE_LENGTH} characters.`)
    .meta({ description: "The language as a BCP 47 tag, such as `en` or `de-CH`." }),
);

/** @returns null if the type does not determine the format */
function formatOf(c: Context<AppEnv>): Format | null {
  const [type = "", ...parameters] = (c.req.header("Content-Type") ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((one) => /^(charset="?utf-8"?)?$/.test(one.trim()));
  const name = type.trim();
  if (isUtf8 && (name === VTT || name === SUBRIP)) return FORMATS[name];
  if (isUtf8 && name === OCTET_STREAM) return null;
  throw new AppError("unsupported_media_type", { message: `Send the body with Content-Type: ${VTT}, or ${SUBRIP}.` });
}

/**
 * Passes a transcript to `take`, as WebVTT. Its memory counts against that of the isolate: many clients may send at once, and slowly.
 * @throws `unsupported_media_type`, `body_too_large`, `upload_timeout`, `unavailable`, `invalid_input`
 */
async function withTranscript<T>(c: Context<AppEnv>, take: (read: ReadTranscript) => Promise<T>): Promise<T> {
  const format = formatOf(c);
  const { bytes: store } = c.get("deps");
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
      const read = readTranscript(memory.subarray(0, sizeBytes), format);
      // Rewritten, it can be longer.
      if (read.bytes.length > MAX_TRANSCRIPT_BYTES) throw tooLarge();
      return await take(read);
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
    description: "Returns WebVTT that every player reads: as it was sent, if it was valid.",
    success: {
      description: "The transcript.",
      mediaType: VTT,
      schema: () => z.string(),
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
      `Takes WebVTT or SubRip (SRT) in UTF-8, at most ${MAX_TRANSCRIPT_BYTES / 1024 / 1024} MiB, and replaces the previous transcript. ` +
      "Valid WebVTT is stored as it is sent. Anything else that players accept is stored as WebVTT with its cues in the order of their start: " +
      "cues that overlap, have no length or stand in another order, times of other forms, missing empty lines. " +
      "Cues without a text or readable times are left out, and counted in `skippedCues`. " +
      "Links of the file show the transcript. Its bytes count against the storage quota. Deleting the file deletes it. " +
      "Counts against a separate limit, for a contributor as a heavy request.",
    query: () => z.object({ language: language().optional() }),
    // Checking 2 MiB takes as long as a password.
    isHeavy: "transcripts",
    takesBytes: { [VTT]: VTT_EXAMPLE, [SUBRIP]: SUBRIP_EXAMPLE },
    takesOctetStream: true,
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
    const set = (read: ReadTranscript) => setTranscript(deps, actor, id, { ...read, language });
    return transcriptRecord.render(await withTranscript(c, set));
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
