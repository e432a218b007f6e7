import * as z from "zod";
import { isVisitor } from "../access/actor.ts";
import { type TeamActor, withScope } from "../access/authorization.ts";
import { TOKEN_GRACE_MILLISECONDS } from "../access/upload-tokens.ts";
import { FILE_TYPES, type FileType } from "../audio/media-type.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { readOperation, writeOperation } from "../http/operation.ts";
import { creator, describeRecord, fieldOf } from "../http/record.ts";
import { atLeastOneField, id, iso, isoOrNull, timestamp } from "../http/validation.ts";
import { expectedVersions, ifMatch, setEtag, versionHeaders } from "../http/versions.ts";
import { lazy } from "../lazy.ts";
import { cancelUpload } from "../uploads/unfinished.ts";
import type { BesideObject } from "./beside.ts";
import { asDeleter, deleteFile } from "./deletion.ts";
import {
  FAILURE_CODES,
  FILE_STATES,
  type FileMetadata,
  fetchMetadata,
  fetchStatus,
  type Hold,
  MAX_SHOWN_PEAK,
  SHOWN_PEAKS,
  type StoredFile,
} from "./files.ts";
import { fileHeld } from "./holds.ts";
import type { ListedFile } from "./lists.ts";
import { reprocessFile } from "./processing.ts";
import { checkDeleteAfter, properties, propertiesExample } from "./properties.routes.ts";
import { updateFile } from "./properties.ts";

/* Files: what they are, reading one and changing it. */

export const filesTag = {
  name: "Files",
  description: "Upload, process, list and download audio files, or files of any other type.",
};

/* The record */

const nullable = <T extends z.ZodType>(schema: T, description: string) => schema.nullable().meta({ description });
const FROM_TAGS = "From the tags of the audio, up to 200 characters.";

/** Named, because generators for Java fail at a set of values that have no name. */
export const fileType = lazy(() => z.enum(FILE_TYPES).meta({ id: "FileType" }));

const UPLOADED_BY = "The key or session that began the upload, and its user. Never changes.";

const field = fieldOf<StoredFile>();

export const fileRecord = describeRecord({
  id: "StoredFile",
  fields: {
    _id: field(id, "0193477c0a5e2b7f4d1c8e90", (file) => file.id),
    teamId: field(id, "0193477be89f4d2e6b8a0c13", (file) => file.teamId),
    originalName: field(
      () => z.string(),
      "interview.mp3",
      (file) => file.originalName,
    ),
    fileType: field(fileType, "audio file", (file) => file.fileType as FileType),
    status: field(
      () => z.enum(FILE_STATES),
      "completed",
      (file) => file.status,
    ),
    createdAt: field(timestamp, "2026-11-20T09:33:00.000Z", (file) => iso(file.createdAt)),
    updatedAt: field(timestamp, "2026-11-20T09:33:01.000Z", (file) => iso(file.updatedAt)),
    __v: field(
      () => z.int().nonnegative(),
      3,
      (file) => file.version,
    ),
    filename: field(
      () => z.string().meta({ description: "`{id}-{originalName}`." }),
      "0193477c0a5e2b7f4d1c8e90-interview.mp3",
      (file) => file.filename,
    ),
    path: field(
      () =>
        z.url().meta({
          description:
            "The private URL of the object in the store. It can't be opened: request a signed URL or a link.",
        }),
      "https://account.r2.cloudflarestorage.com/stowage-files/0193477be89f4d2e6b8a0c13/0193477c0a5e2b7f4d1c8e90-interview.mp3",
      (file) => file.path,
    ),
    size: field(
      () => z.int().nonnegative().meta({ description: "Bytes." }),
      482_113,
      (file) => file.sizeBytes,
    ),
    mimeType: field(
      () => z.string().meta({ description: "Detected from content." }),
      "audio/mpeg",
      (file) => file.mimeType,
    ),
    durationSeconds: field(
      () => nullable(z.number().nonnegative(), "Null unless the file is audio."),
      30.04,
      (file) => file.durationSeconds,
    ),
    name: field(
      () => z.string().meta({ description: "The display and download name." }),
      "Interview with Ada.mp3",
      (file) => file.name,
    ),
    folder: field(
      () => z.string().meta({ description: "Empty: outside all folders." }),
      "podcast/2026",
      (file) => file.folder,
    ),
    reference: field(
      () => nullable(z.string(), "Your own ID of the file."),
      "episode-12",
      (file) => file.reference,
    ),
    tags: field(
      () => z.array(z.string()),
      ["interview"],
      (file) => file.tags,
    ),
    deleteAfter: field(
      () => nullable(timestamp(), "When the service deletes the file. Null: never."),
      null,
      (file) => isoOrNull(file.deleteAfter),
    ),
    uploadedBy: field(
      () => creator().meta({ description: UPLOADED_BY }),
      { keyId: "0193477be8a01f9c3ad5e7b2", userId: null },
      ({ keyId, userId }) => ({ keyId, userId }),
    ),
    hasTranscript: field(
      () => z.boolean().meta({ description: "Whether a transcript is set." }),
      false,
      (file) => file.hasTranscript,
    ),
    title: field(
      () => nullable(z.string(), FROM_TAGS),
      "Interview",
      (file) => file.title,
    ),
    peaks: field(
      () =>
        nullable(
          z.array(z.int().min(0).max(MAX_SHOWN_PEAK)).length(SHOWN_PEAKS),
          `The waveform as ${SHOWN_PEAKS} bars of 0 to ${MAX_SHOWN_PEAK}. Null as long as there is no waveform.`,
        ),
      Array.from({ length: SHOWN_PEAKS }, (_, i) => Math.round(MAX_SHOWN_PEAK * Math.abs(Math.sin(i / 4)))),
      (file) => file.peaks,
    ),
    artist: field(
      () => nullable(z.string(), FROM_TAGS),
      null,
      (file) => file.artist,
    ),
  },
});

const audioSchema = lazy(() =>
  z
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
    .meta({ id: "AudioMetadata" }),
);
const exampleAudio = {
  container: "MPEG",
  codec: "MPEG 1 Layer 3",
  durationSeconds: 30.04,
  sampleRate: 44_100,
  channels: 2,
  bitrate: 128_000,
  lossless: false,
  tags: { title: "Interview" },
};

const transcriptField = fieldOf<Omit<BesideObject, "version">>();
export const transcriptRecord = describeRecord({
  id: "Transcript",
  fields: {
    language: transcriptField(
      () => nullable(z.string(), "A BCP 47 tag. Null if it was not given."),
      "en",
      (one) => one.language,
    ),
    size: transcriptField(
      () => z.int().nonnegative().meta({ description: "Bytes." }),
      137,
      (one) => one.reservedBytes,
    ),
    cues: transcriptField(
      () => z.int().nonnegative().meta({ description: "The cues with a text." }),
      2,
      (one) => one.cues,
    ),
    skippedCues: transcriptField(
      () =>
        z
          .int()
          .nonnegative()
          .meta({ description: "Cues that were sent without a text or readable times. They are left out." }),
      0,
      (one) => one.skippedCues,
    ),
    updatedAt: transcriptField(timestamp, "2026-11-20T09:35:00.000Z", (one) => iso(one.updatedAt)),
  },
});

export const holdSchema = lazy(() =>
  z.strictObject({ reason: z.string(), createdAt: timestamp(), createdBy: creator() }).meta({ id: "Hold" }),
);
export const renderHold = (hold: Hold) => ({ ...hold, createdAt: iso(hold.createdAt) });

const metadataField = fieldOf<FileMetadata>();

const metadataRecord = describeRecord({
  id: "FileMetadata",
  fields: {
    ...fileRecord.fields,
    uploadedBy: metadataField(
      () =>
        creator()
          .extend({
            name: nullable(
              z.string(),
              "The name of the user, or of a key without a user, as in events. Null if it has none, or is deleted.",
            ),
          })
          .meta({ description: UPLOADED_BY }),
      { keyId: "0193477be8a01f9c3ad5e7b2", userId: null, name: "Backend" },
      ({ keyId, userId, uploaderName: name }) => ({ keyId, userId, name }),
    ),
    uploadTokenId: metadataField(
      () =>
        nullable(
          id(),
          "The upload token that began the upload, or its `owner`: the `_id` of its creation. Null for any other caller.",
        ),
      null,
      (file) => file.uploadTokenId,
    ),
    sha256: metadataField(
      () => nullable(z.string().regex(/^[0-9a-f]{64}$/), "Null for a resumable upload until its bytes were read back."),
      "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
      (file) => file.sha256,
    ),
    processedAt: metadataField(
      () => timestamp().nullable(),
      "2026-11-20T09:33:01.000Z",
      (file) => isoOrNull(file.processedAt),
    ),
    failure: metadataField(
      () =>
        z
          .strictObject({ code: z.enum(FAILURE_CODES), message: z.string() })
          .meta({ id: "ProcessingFailure" })
          .nullable(),
      null,
      (file) => file.failure,
    ),
    audio: metadataField(
      () => nullable(audioSchema(), "Null until processed, and for files that are not audio."),
      exampleAudio,
      (file) => file.audio,
    ),
    hasWaveform: metadataField(
      () =>
        z.boolean().meta({ description: "Whether there is a waveform: measured by the service, or set by a client." }),
      false,
      (file) => file.hasWaveform,
    ),
    transcript: metadataField(
      () => nullable(transcriptRecord.schema(), "Null until a transcript is set."),
      null,
      (file) => file.transcript && transcriptRecord.render(file.transcript),
    ),
    metadata: metadataField(
      () => z.record(z.string(), z.unknown()).meta({ description: "Your own fields." }),
      { season: 2 },
      (file) => file.metadata,
    ),
    hold: metadataField(
      () => nullable(holdSchema(), "Why the file can't be deleted. Null if it can."),
      null,
      (file) => file.hold && renderHold(file.hold),
    ),
  },
});

/** A file in a list. */
export const listedFileRecord = {
  schema: lazy(() =>
    z
      .strictObject({
        ...metadataRecord.schema().partial().shape,
        ...fileRecord.schema().shape,
        uploadedBy: metadataRecord.schema().shape.uploadedBy.partial({ name: true }).meta({ description: UPLOADED_BY }),
      })
      .meta({
        id: "ListedFile",
        description: "The fields that a `StoredFile` lacks are there only with `include=metadata`.",
      }),
  ),
  example: fileRecord.example,
  render: (file: ListedFile) => ("audio" in file ? metadataRecord.render(file) : fileRecord.render(file)),
};

/* One file */

const done = lazy(() => z.strictObject({ status: z.literal(true), message: z.string() }));

const metadata = readOperation(
  "files:read",
  {
    route: "GET /docs/v1/uploads/{id}/metadata",
    tag: filesTag,
    summary: "Get a file's metadata",
    sample: "const { audio } = await stowage.files.get(id);",
    success: {
      description: "The file and the results of its processing.",
      message: "File found.",
      schema: metadataRecord.schema,
      example: metadataRecord.example,
      headers: versionHeaders,
    },
  },
  async ({ c, deps, credential, id }) => {
    const file = await fetchMetadata(deps, credential, id);
    setEtag(c, file);
    return metadataRecord.render(file);
  },
);

const status = readOperation(
  { scope: "files:read", also: "uploader" },
  {
    route: "GET /docs/v1/uploads/{id}/status",
    tag: filesTag,
    summary: "Get the status of a file",
    description: "The upload token or public key that uploaded the file may ask until a day after its expiry.",
    graceMilliseconds: TOKEN_GRACE_MILLISECONDS,
    sample: "const { status, failure } = await stowage.files.status(id);",
    success: {
      description: "The status.",
      message: "File found.",
      schema: () =>
        metadataRecord.schema().pick({ _id: true, status: true, failure: true }).meta({ id: "ProcessingStatus" }),
      example: { _id: fileRecord.example._id, status: "completed", failure: null },
    },
  },
  async ({ deps, credential, id }) => ({ _id: id, ...(await fetchStatus(deps, credential, id)) }),
);

const remove = writeOperation(
  { scope: "files:delete", also: "deleting token" },
  {
    route: "DELETE /docs/v1/uploads/{id}",
    tag: filesTag,
    summary: "Delete a file",
    sample: "await stowage.files.delete(id);",
    description:
      "Works in any status. The file's links and signed URLs stop working. If the service has a trash, the file moves there, and is erased later; otherwise its bytes are deleted, which also needs `files:erase`. With the id of an unfinished upload, cancels that upload. An upload token with `canDelete` may do so until a day after its expiry, without a query, while nobody else has changed, linked, held or transcribed the file; then it gets 403.",
    graceMilliseconds: TOKEN_GRACE_MILLISECONDS,
    query: () =>
      z.object({
        permanent: z.enum(["true", "false"]).optional().meta({
          description: "`true` erases the file at once, also one that is in the trash. Needs `files:erase`.",
        }),
        unfinished: z.literal("true").optional().meta({
          description: "Only cancels an upload. If the upload is complete, the response is 403 and the file stays.",
        }),
      }),
    success: {
      description: "The file was deleted.",
      schema: done,
      example: { status: true, message: "File deleted." },
    },
    errors: [fileHeld],
  },
  async ({ deps, actor, id, query }) => {
    if (isVisitor(actor) && (query.unfinished !== undefined || query.permanent === "true")) {
      const message = "An upload token can send neither `permanent` nor `unfinished`.";
      throw new AppError("forbidden", { message });
    }
    if (query.unfinished !== undefined) await cancelUpload(deps, actor, id);
    else await deleteFile(deps, actor, id, { isPermanent: query.permanent === "true" });
    return { status: true as const, message: "File deleted." };
  },
);

const reprocess = writeOperation(
  "files:write",
  {
    route: "POST /docs/v1/uploads/{id}/reprocess",
    tag: filesTag,
    summary: "Process a file again",
    sample: "await stowage.files.reprocess(id);",
    description: "Sets a completed or failed file back to pending. A pending or processing file stays as it is.",
    isHeavy: true,
    success: {
      description: "The file will be processed.",
      schema: done,
      example: { status: true, message: "The file will be processed shortly." },
    },
  },
  async ({ deps, actor, id }) => {
    await reprocessFile(deps, actor, id);
    return { status: true as const, message: "The file will be processed shortly." };
  },
);

/** The caller, if it may also decide when the service deletes the file. @throws `insufficient_scope` */
function deleterFor(deps: Deps, actor: TeamActor, deleteAfter: number | null | undefined): TeamActor {
  if (deleteAfter === undefined) return actor;
  return deleteAfter === null ? withScope(actor, "files:delete") : asDeleter(deps, actor);
}

const update = writeOperation(
  "files:write",
  {
    route: "PATCH /docs/v1/uploads/{id}",
    tag: filesTag,
    summary: "Update a file",
    sample: 'const file = await stowage.files.update(id, { folder: "podcast/2026", tags: ["interview"] });',
    description:
      "Changes only the given fields, in any status. The bytes and the signed URLs stay as they are. `deleteAfter` also needs `files:delete`, and, unless it is null, `files:erase` if there is no trash.",
    body: () => atLeastOneField(properties()),
    bodyExample: propertiesExample,
    requestHeaders: ifMatch,
    success: {
      description: "The updated file.",
      message: "File updated.",
      schema: fileRecord.schema,
      example: fileRecord.example,
      headers: versionHeaders,
    },
    errors: ["version_mismatch", fileHeld],
  },
  async ({ c, deps, actor, id, body }) => {
    checkDeleteAfter(deps, body);
    const file = await updateFile(
      deps,
      deleterFor(deps, actor, body.deleteAfter),
      id,
      body,
      expectedVersions(c.req.header("If-Match")),
    );
    setEtag(c, file);
    return fileRecord.render(file);
  },
);

export const operations = {
  updateFile: update,
  deleteFile: remove,
  getFileMetadata: metadata,
  getFileStatus: status,
  reprocessFile: reprocess,
};
