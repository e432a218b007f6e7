import * as z from "zod";
import { FILE_TYPES } from "../domain/audio/media-type.ts";
import { deleteFile } from "../domain/files/deletion.ts";
import {
  FAILURE_CODES,
  fetchMetadata,
  fetchStatus,
  LISTED_STATES,
  reprocessFile,
  type StoredFile,
  signFile,
} from "../domain/files/files.ts";
import { fetchUsage } from "../domain/files/quota.ts";
import { countExpensiveCall } from "./authentication.ts";
import { linkUrl } from "./links.ts";
import { readOperation, writeOperation } from "./operation.ts";
import { id, iso, timestamp } from "./validation.ts";
import { setEtag, versionHeaders } from "./versions.ts";

const SIGNED_SECONDS = 3600;
const MAX_SIGNED_SECONDS = 604_800; // S3's limit

const nullable = <T extends z.ZodType>(schema: T, description: string) => schema.nullable().meta({ description });

export const fileSchema = z
  .strictObject({
    _id: id,
    teamId: id,
    originalName: z.string(),
    fileType: z.enum(FILE_TYPES),
    status: z.enum(LISTED_STATES),
    createdAt: timestamp,
    updatedAt: timestamp,
    __v: z.int().nonnegative(),
    filename: z.string().meta({ description: "`{id}-{originalName}`." }),
    path: z.url().meta({ description: "Private: only a signed URL opens it." }),
    size: z.int().nonnegative().meta({ description: "Bytes." }),
    mimeType: z.string().meta({ description: "Detected from content." }),
    durationSeconds: nullable(z.number().nonnegative(), "Null unless the file is audio."),
    name: z.string().meta({ description: "The display and download name." }),
    folder: z.string().meta({ description: "Empty: outside all folders." }),
    reference: nullable(z.string(), "Your own ID of the file."),
    tags: z.array(z.string()),
    title: nullable(z.string(), "From the tags of the audio, up to 200 characters."),
    artist: nullable(z.string(), "From the tags of the audio, up to 200 characters."),
  })
  .meta({ id: "File" });

const metadataSchema = fileSchema
  .extend({
    sha256: nullable(z.string().regex(/^[0-9a-f]{64}$/), "Null for a resumable upload until its bytes were read back."),
    processedAt: timestamp.nullable(),
    failure: z.strictObject({ code: z.enum(FAILURE_CODES), message: z.string() }).nullable(),
    audio: z
      .strictObject({
        container: z.string().nullable(),
        codec: z.string().nullable(),
        durationSeconds: nullable(z.number().nonnegative(), "Null if the file does not state it."),
        sampleRate: nullable(z.number(), "Hertz."),
        channels: z.number().nullable(),
        bitrate: nullable(z.number(), "Bits per second."),
        lossless: z.boolean().nullable(),
        tags: z.record(z.string(), z.union([z.string(), z.number()])),
      })
      .nullable()
      .meta({ description: "Null until processed, and for files that are not audio." }),
    hasWaveform: z.boolean().meta({ description: "Whether a waveform has been set." }),
    metadata: z.record(z.string(), z.unknown()).meta({ description: "Your own fields." }),
  })
  .meta({ id: "FileMetadata" });

export function renderFile(file: StoredFile): z.input<typeof fileSchema> {
  return {
    _id: file.id,
    teamId: file.teamId,
    originalName: file.originalName,
    fileType: file.fileType as (typeof FILE_TYPES)[number],
    status: file.status as z.input<typeof fileSchema>["status"],
    createdAt: iso(file.createdAt),
    updatedAt: iso(file.updatedAt),
    __v: file.version,
    filename: file.filename,
    path: file.path,
    size: file.sizeBytes,
    mimeType: file.mimeType,
    durationSeconds: file.durationSeconds,
    name: file.name,
    folder: file.folder,
    reference: file.reference,
    tags: file.tags,
    title: file.title,
    artist: file.artist,
  };
}

export const exampleFile: z.input<typeof fileSchema> = {
  _id: "0193477c0a5e2b7f4d1c8e90",
  teamId: "0193477be89f4d2e6b8a0c13",
  originalName: "interview.mp3",
  fileType: "audio file",
  status: "completed",
  createdAt: "2026-11-20T09:33:00.000Z",
  updatedAt: "2026-11-20T09:33:01.000Z",
  __v: 3,
  filename: "0193477c0a5e2b7f4d1c8e90-interview.mp3",
  path: "https://account.r2.cloudflarestorage.com/stowage-files/0193477be89f4d2e6b8a0c13/0193477c0a5e2b7f4d1c8e90-interview.mp3",
  size: 482_113,
  mimeType: "audio/mpeg",
  durationSeconds: 30.04,
  name: "Interview with Ada.mp3",
  folder: "podcast/2026",
  reference: "episode-12",
  tags: ["interview"],
  title: "Interview",
  artist: null,
};

const done = z.strictObject({ status: z.literal(true), message: z.string() });

export const sign = readOperation(
  "files:download",
  {
    tag: "Files",
    summary: "Get a signed download URL",
    description: "Anyone with the URL can GET the file, with or without Range. Works in any status.",
    query: z.object({
      expiresIn: z
        .string()
        .regex(/^\d{1,9}$/, `Must be 1 to ${MAX_SIGNED_SECONDS} seconds.`)
        .transform(Number)
        .refine((value) => value >= 1 && value <= MAX_SIGNED_SECONDS, `Must be 1 to ${MAX_SIGNED_SECONDS} seconds.`)
        .optional()
        .meta({
          type: "integer",
          minimum: 1,
          maximum: MAX_SIGNED_SECONDS,
          default: SIGNED_SECONDS,
          description: "Seconds until the URL expires.",
        }),
    }),
    success: {
      description: "The signed URL.",
      schema: z.strictObject({ status: z.literal(true), message: z.string(), signedUrl: z.url() }),
      example: {
        status: true,
        message: "Signed URL created. It expires in 3600 seconds.",
        signedUrl: `${exampleFile.path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature=9f1c`,
      },
    },
  },
  async ({ c, deps, credential, id, query: { expiresIn = SIGNED_SECONDS } }) => {
    const signed = await signFile(deps, credential, id, expiresIn);
    const signedUrl = typeof signed === "string" ? signed : linkUrl(c, signed);
    return { status: true as const, message: `Signed URL created. It expires in ${expiresIn} seconds.`, signedUrl };
  },
);

export const metadata = readOperation(
  "files:read",
  {
    tag: "Files",
    summary: "Get a file's metadata",
    success: {
      description: "The file and the results of its processing.",
      message: "File found.",
      schema: metadataSchema,
      example: {
        ...exampleFile,
        sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        processedAt: "2026-11-20T09:33:01.000Z",
        failure: null,
        audio: {
          container: "MPEG",
          codec: "MPEG 1 Layer 3",
          durationSeconds: 30.04,
          sampleRate: 44_100,
          channels: 2,
          bitrate: 128_000,
          lossless: false,
          tags: { title: "Interview" },
        },
        hasWaveform: false,
        metadata: { season: 2 },
      },
      headers: versionHeaders,
    },
  },
  async ({ c, deps, credential, id }) => {
    const file = await fetchMetadata(deps, credential, id);
    const { sha256, failure, audio, hasWaveform, metadata } = file;
    const processedAt = file.processedAt === null ? null : iso(file.processedAt);
    setEtag(c, file);
    return { ...renderFile(file), sha256, processedAt, failure, audio, hasWaveform, metadata };
  },
);

export const status = readOperation(
  "any token",
  {
    tag: "Files",
    summary: "Get the status of a file",
    description:
      "Needs the scope `files:read`, or the public key that uploaded the file. Any other public key gets 404.",
    success: {
      description: "The status.",
      message: "File found.",
      schema: metadataSchema.pick({ _id: true, status: true, failure: true }).meta({ id: "FileStatus" }),
      example: { _id: exampleFile._id, status: "completed", failure: null },
    },
    errorCodes: ["forbidden", "insufficient_scope"],
  },
  async ({ deps, credential, id }) => ({ _id: id, ...(await fetchStatus(deps, credential, id)) }),
);

export const remove = writeOperation(
  "files:delete",
  {
    tag: "Files",
    summary: "Delete a file",
    description:
      "Works in any status. Deletes the bytes, so the file's signed URLs stop working. With the id of an unfinished upload, cancels that upload.",
    query: z.object({
      unfinished: z.literal("true").optional().meta({
        description: "Only cancels an upload. If the upload is complete, the response is 403 and the file stays.",
      }),
    }),
    success: {
      description: "The file was deleted.",
      schema: done,
      example: { status: true, message: "File deleted." },
    },
  },
  async ({ deps, actor, id, query }) => {
    await deleteFile(deps, actor, id, { onlyUnfinished: query.unfinished !== undefined });
    return { status: true as const, message: "File deleted." };
  },
);

export const reprocess = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Process a file again",
    description:
      "Sets a completed or failed file back to pending. A pending or processing file stays as it is. A team may do this 10 times a minute.",
    success: {
      description: "The file will be processed.",
      schema: done,
      example: { status: true, message: "The file will be processed shortly." },
    },
  },
  async ({ c, deps, actor, id }) => {
    await countExpensiveCall(c, "reprocess", actor);
    await reprocessFile(deps, actor, id);
    return { status: true as const, message: "The file will be processed shortly." };
  },
);

export const usage = readOperation(
  "files:read",
  {
    tag: "Files",
    summary: "Get the team's usage",
    description:
      "The team's files, bytes and events, and their limits. An upload in progress counts with its Content-Length. The oldest events above `maxEvents` are deleted within minutes.",
    success: {
      description: "The usage.",
      message: "Usage of the team.",
      schema: z.strictObject({
        files: z.int().nonnegative(),
        bytes: z.int().nonnegative(),
        maxFiles: z.int().nonnegative(),
        maxBytes: z.int().nonnegative(),
        events: z.int().nonnegative(),
        maxEvents: z.int().positive(),
      }),
      example: {
        files: 12,
        bytes: 60_104_321,
        maxFiles: 100_000,
        maxBytes: 50_000_000_000,
        events: 4210,
        maxEvents: 200_000,
      },
    },
  },
  ({ deps, credential }) => fetchUsage(deps, credential),
);
