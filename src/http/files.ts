import * as z from "zod";
import { authorize, checkCovered } from "../domain/access/authorization.ts";
import { SCOPES } from "../domain/access/scopes.ts";
import { FILE_TYPES } from "../domain/audio/media-type.ts";
import { changeFiles, MAX_BATCH_FILES, REPROCESSED_FILES_PER_CALL } from "../domain/files/batches.ts";
import { deleteFile } from "../domain/files/deletion.ts";
import {
  FAILURE_CODES,
  type FileMetadata,
  fetchMetadata,
  fetchStatus,
  type Hold,
  LISTED_STATES,
  type StoredFile,
  signFile,
} from "../domain/files/files.ts";
import {
  deleteFolder as deleteFolderWithFiles,
  MAX_COUNTED_HOLDS,
  moveFolder as moveFolderTo,
} from "../domain/files/folder-changes.ts";
import { listFolders, MAX_FOLDERS, createFolder as storeFolder } from "../domain/files/folders.ts";
import {
  EXAMINED_FILES,
  examinesFiles,
  FILE_ORDERS,
  listFiles,
  MAX_SEARCHED_WORDS,
  SEARCHED_NAMES,
  wordsIn,
} from "../domain/files/lists.ts";
import { reprocessFile } from "../domain/files/processing.ts";
import { updateFile } from "../domain/files/properties.ts";
import { fetchWaveform, MAX_SHOWN_PEAK, SHOWN_PEAKS, setWaveform as storeWaveform } from "../domain/files/waveforms.ts";
import { fetchUsage } from "../domain/uploads/quota.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import { chargeRequests, countExpensiveCall, countRequests, countSearch } from "./authentication.ts";
import { linkUrl } from "./links.ts";
import { listOperation, readOperation, writeOperation } from "./operation.ts";
import { checkDeleteAfter, folder, properties, propertiesExample, reference, someTags, tag } from "./properties.ts";
import { creator, describeRecord, fieldOf } from "./record.ts";
import {
  atLeastOneField,
  cursorOf,
  id,
  instant,
  iso,
  isoOrNull,
  MAX_LIMIT,
  nameFilter,
  pageLimit,
  pageQuery,
  pageRequest,
  timestamp,
} from "./validation.ts";
import { expectedVersions, ifMatch, setEtag, versionHeaders } from "./versions.ts";

/* Files: what they are, finding and reading them, changing one or many at once, and their waveforms. */

/* The record */

const nullable = <T extends z.ZodType>(schema: T, description: string) => schema.nullable().meta({ description });
const FROM_TAGS = "From the tags of the audio, up to 200 characters.";

const field = fieldOf<StoredFile>();

export const fileRecord = describeRecord({
  id: "File",
  fields: {
    _id: field(id, "0193477c0a5e2b7f4d1c8e90", (file) => file.id),
    teamId: field(id, "0193477be89f4d2e6b8a0c13", (file) => file.teamId),
    originalName: field(z.string(), "interview.mp3", (file) => file.originalName),
    fileType: field(z.enum(FILE_TYPES), "audio file", (file) => file.fileType as (typeof FILE_TYPES)[number]),
    status: field(z.enum(LISTED_STATES), "completed", (file) => file.status as (typeof LISTED_STATES)[number]),
    createdAt: field(timestamp, "2026-11-20T09:33:00.000Z", (file) => iso(file.createdAt)),
    updatedAt: field(timestamp, "2026-11-20T09:33:01.000Z", (file) => iso(file.updatedAt)),
    __v: field(z.int().nonnegative(), 3, (file) => file.version),
    filename: field(
      z.string().meta({ description: "`{id}-{originalName}`." }),
      "0193477c0a5e2b7f4d1c8e90-interview.mp3",
      (file) => file.filename,
    ),
    path: field(
      z.url().meta({ description: "Private: only a signed URL opens it." }),
      "https://account.r2.cloudflarestorage.com/stowage-files/0193477be89f4d2e6b8a0c13/0193477c0a5e2b7f4d1c8e90-interview.mp3",
      (file) => file.path,
    ),
    size: field(z.int().nonnegative().meta({ description: "Bytes." }), 482_113, (file) => file.sizeBytes),
    mimeType: field(z.string().meta({ description: "Detected from content." }), "audio/mpeg", (file) => file.mimeType),
    durationSeconds: field(
      nullable(z.number().nonnegative(), "Null unless the file is audio."),
      30.04,
      (file) => file.durationSeconds,
    ),
    name: field(
      z.string().meta({ description: "The display and download name." }),
      "Interview with Ada.mp3",
      (file) => file.name,
    ),
    folder: field(
      z.string().meta({ description: "Empty: outside all folders." }),
      "podcast/2026",
      (file) => file.folder,
    ),
    reference: field(nullable(z.string(), "Your own ID of the file."), "episode-12", (file) => file.reference),
    tags: field(z.array(z.string()), ["interview"], (file) => file.tags),
    deleteAfter: field(nullable(timestamp, "When the service deletes the file. Null: never."), null, (file) =>
      isoOrNull(file.deleteAfter),
    ),
    uploadedBy: field(
      z
        .strictObject({ keyId: id, userId: id.nullable() })
        .meta({ description: "The key or session that began the upload, and its user. Never changes." }),
      { keyId: "0193477be8a01f9c3ad5e7b2", userId: null },
      ({ keyId, userId }) => ({ keyId, userId }),
    ),
    title: field(nullable(z.string(), FROM_TAGS), "Interview", (file) => file.title),
    peaks: field(
      nullable(
        z.array(z.int().min(0).max(MAX_SHOWN_PEAK)).length(SHOWN_PEAKS),
        `The waveform as ${SHOWN_PEAKS} bars of 0 to ${MAX_SHOWN_PEAK}. Null until a waveform is set.`,
      ),
      Array.from({ length: SHOWN_PEAKS }, (_, i) => Math.round(MAX_SHOWN_PEAK * Math.abs(Math.sin(i / 4)))),
      (file) => file.peaks,
    ),
    artist: field(nullable(z.string(), FROM_TAGS), null, (file) => file.artist),
  },
});

const audioSchema = z.strictObject({
  container: z.string().nullable(),
  codec: z.string().nullable(),
  durationSeconds: nullable(z.number().nonnegative(), "Null if the file does not state it."),
  sampleRate: nullable(z.number(), "Hertz."),
  channels: z.number().nullable(),
  bitrate: nullable(z.number(), "Bits per second."),
  lossless: z.boolean().nullable(),
  tags: z.record(z.string(), z.union([z.string(), z.number()])),
});
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

export const holdSchema = z
  .strictObject({ reason: z.string(), createdAt: timestamp, createdBy: creator })
  .meta({ id: "Hold" });
export const renderHold = (hold: Hold) => ({ ...hold, createdAt: iso(hold.createdAt) });

const metadataField = fieldOf<FileMetadata>();

const metadataRecord = describeRecord({
  id: "FileMetadata",
  fields: {
    ...fileRecord.fields,
    sha256: metadataField(
      nullable(z.string().regex(/^[0-9a-f]{64}$/), "Null for a resumable upload until its bytes were read back."),
      "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
      (file) => file.sha256,
    ),
    processedAt: metadataField(timestamp.nullable(), "2026-11-20T09:33:01.000Z", (file) => isoOrNull(file.processedAt)),
    failure: metadataField(
      z.strictObject({ code: z.enum(FAILURE_CODES), message: z.string() }).nullable(),
      null,
      (file) => file.failure,
    ),
    audio: metadataField(
      nullable(audioSchema, "Null until processed, and for files that are not audio."),
      exampleAudio,
      (file) => file.audio,
    ),
    hasWaveform: metadataField(
      z.boolean().meta({ description: "Whether a waveform has been set." }),
      false,
      (file) => file.hasWaveform,
    ),
    metadata: metadataField(
      z.record(z.string(), z.unknown()).meta({ description: "Your own fields." }),
      { season: 2 },
      (file) => file.metadata,
    ),
    hold: metadataField(
      nullable(holdSchema, "Why the file can't be deleted. Null if it can."),
      null,
      (file) => file.hold && renderHold(file.hold),
    ),
  },
});

/* One file */

const SIGNED_SECONDS = 3600;
const MAX_SIGNED_SECONDS = 604_800; // S3's limit

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
        signedUrl: `${fileRecord.example.path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature=9f1c`,
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

export const status = readOperation(
  "uploader",
  {
    tag: "Files",
    summary: "Get the status of a file",
    description:
      "Needs the scope `files:read`, or the public key or upload token that uploaded the file. Any other public key or upload token gets 404.",
    success: {
      description: "The status.",
      message: "File found.",
      schema: metadataRecord.schema.pick({ _id: true, status: true, failure: true }).meta({ id: "ProcessingStatus" }),
      example: { _id: fileRecord.example._id, status: "completed", failure: null },
    },
    errorCodes: ["insufficient_scope"],
  },
  async ({ deps, credential, id }) => ({ _id: id, ...(await fetchStatus(deps, credential, id)) }),
);

export const remove = writeOperation(
  "files:delete",
  {
    tag: "Files",
    summary: "Delete a file",
    description:
      "Works in any status. The file's links and signed URLs stop working. If the service has a trash, the file moves there, and is erased later; otherwise its bytes are deleted. With the id of an unfinished upload, cancels that upload.",
    query: z.object({
      permanent: z.enum(["true", "false"]).optional().meta({
        description: "`true` erases the file at once, also one that is in the trash. A contributor can't.",
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
    errorCodes: ["file_held"],
  },
  async ({ deps, actor, id, query }) => {
    const isPermanent = query.permanent === "true";
    await deleteFile(deps, actor, id, { onlyUnfinished: query.unfinished !== undefined, isPermanent });
    return { status: true as const, message: "File deleted." };
  },
);

export const reprocess = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Process a file again",
    description: `Sets a completed or failed file back to pending. A pending or processing file stays as it is. A team may do this ${RATE_LIMITS["expensive-call"]} times a minute.`,
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

/** The part of the usage that the trash takes. */
export const trashUsage = {
  trashFiles: z.int().nonnegative().meta({ description: "The part of `files` that is in the trash." }),
  trashBytes: z.int().nonnegative().meta({ description: "The part of `bytes` that is in the trash." }),
};

export const usage = readOperation(
  "files:read",
  {
    tag: "Files",
    summary: "Get the team's usage",
    description:
      "The team's files, bytes and events, and their limits. An upload in progress counts with its Content-Length. `events` are those of files and links: the oldest above `maxEvents` are deleted within minutes. A contributor gets what the own files take, without uploads in progress and events, at most 10 times a minute.",
    success: {
      description: "The usage.",
      message: "Usage of the team.",
      schema: z.strictObject({
        files: z.int().nonnegative(),
        bytes: z.int().nonnegative(),
        ...trashUsage,
        maxFiles: z.int().nonnegative(),
        maxBytes: z.int().nonnegative(),
        events: z.int().nonnegative(),
        maxEvents: z.int().positive(),
      }),
      example: {
        files: 12,
        bytes: 60_104_321,
        trashFiles: 1,
        trashBytes: 482_113,
        maxFiles: 100_000,
        maxBytes: 50_000_000_000,
        events: 4210,
        maxEvents: 200_000,
      },
    },
  },
  async ({ deps, credential }) => fetchUsage(deps, credential),
);

/* Lists */

/** A list that examines files for several filters counts like the pages that have these files. */
const EXAMINING_REQUESTS = Math.ceil(EXAMINED_FILES / MAX_LIMIT);
/** Names have at most 200 bytes. */
const MAX_NAME_FILTER = 200;

export const list = listOperation(
  "files:read",
  {
    tag: "Files",
    summary: "List files",
    description: `Newest first, or by name if \`name\` or \`search\` is given without \`sort\`. With several filters, a page may be short or empty and still have a \`Link\`, and can count as ${EXAMINING_REQUESTS} requests. A search may also return such a page: it examines up to ${SEARCHED_NAMES.toLocaleString("en")} files per request.`,
    query: pageQuery("files").extend({
      status: z.enum(LISTED_STATES).optional(),
      fileType: z.enum(FILE_TYPES).optional(),
      name: nameFilter(MAX_NAME_FILTER).optional().meta({ description: "A prefix of the name, in any case." }),
      createdAfter: instant.optional(),
      createdBefore: instant.optional(),
      folder: folder.optional().meta({ description: "Files in this folder. Empty: files outside all folders." }),
      under: folder.optional().meta({ description: "Files in this folder and the folders below it." }),
      tag: tag.optional(),
      reference: reference.optional(),
      uploadedBy: id.optional().meta({
        description: "The ID of a user, for the files that the user uploaded.",
      }),
      search: nameFilter(MAX_NAME_FILTER)
        .refine((text) => {
          const count = wordsIn(text).length;
          return count >= 1 && count <= MAX_SEARCHED_WORDS;
        }, `Must have 1 to ${MAX_SEARCHED_WORDS} words.`)
        .optional()
        .meta({
          description: `Up to ${MAX_SEARCHED_WORDS} words, in any order and case. Finds the files that have every word, or a part of a longer one, in their name, title, artist, reference, folder or tags. Searches the first 200 bytes of each, and whole folders.`,
        }),
      sort: z.enum(FILE_ORDERS).optional().meta({ description: "`-`: descending." }),
    }),
    requestsOf: (query) => (examinesFiles(query) ? EXAMINING_REQUESTS : 1),
    success: { description: "A page of files.", noun: "Files", schema: fileRecord.schema, example: fileRecord.example },
  },
  async ({ c, deps, credential, query }) => {
    if (query.search !== undefined) {
      // A rejected request spends nothing of its team.
      if (!c.var.actor) await authorize(deps, credential);
      await countSearch(c, credential);
    }
    const page = await listFiles(deps, credential, query, pageRequest(query));
    const ownerId = c.var.actor && "ownerId" in c.var.actor ? c.var.actor.ownerId : null;
    // Which index serves the list depends on the caller.
    if (ownerId !== null && !examinesFiles(query) && examinesFiles({ ...query, uploadedBy: ownerId })) {
      await chargeRequests(c, credential, EXAMINING_REQUESTS - 1);
    }
    return page;
  },
  fileRecord.render,
);

export const folders = listOperation(
  "files:read",
  {
    tag: "Files",
    summary: "List folders",
    description:
      "The folders directly below a folder, by name. A folder exists as long as a file is in it or below it, and if it was created, until it is deleted.",
    query: z.object({
      limit: pageLimit.meta({ description: `Page size. Default and maximum ${MAX_LIMIT}.` }),
      cursor: cursorOf("folders"),
      under: folder.optional().meta({ description: "Default: the top-level folders." }),
    }),
    success: {
      description: "A page of folders, as full paths.",
      noun: "Folders",
      schema: z.string(),
      example: "podcast/2026",
    },
  },
  ({ deps, credential, query: { under = "", limit = MAX_LIMIT, cursor } }) =>
    listFolders(deps, credential, under, { limit, cursor }),
  (folder) => folder,
);

const namedFolder = folder.refine((path) => path !== "", "Must not be empty.").meta({ minLength: 1 });

export const createFolder = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Create a folder",
    description: `Creates an empty folder; one that exists stays as it is. A team can have ${MAX_FOLDERS.toLocaleString("en")} created folders. A file needs none: uploading or moving it into a folder is enough.`,
    body: z.strictObject({ folder: namedFolder }),
    bodyExample: { folder: "podcast/2027" },
    success: {
      description: "The folder exists.",
      message: "Folder created.",
      schema: z.strictObject({ folder: z.string() }),
      example: { folder: "podcast/2027" },
    },
    errorCodes: ["too_many_folders"],
  },
  async ({ deps, actor, body }) => {
    await storeFolder(deps, actor, body.folder);
    return { folder: body.folder };
  },
);

const FOLDER_CHANGE =
  "The first files are changed at once. If there are more, `isComplete` is false, and the rest follows within minutes; until then other folders of the team can't be moved or deleted (409). It ends as it is if your token is revoked, or your team suspended. " +
  "A file that comes into the folder after the request stays where it was put. Each file has its event, as in a batch. " +
  `A contributor changes only the own files, independently of the others. Up to ${RATE_LIMITS["expensive-call"]} a minute.`;
const folderChange = z.strictObject({
  folder: z.string().meta({ description: "Where the folder is, or was." }),
  isComplete: z.boolean(),
});
const folderDeletion = folderChange.extend({
  held: z
    .int()
    .nonnegative()
    .max(MAX_COUNTED_HOLDS)
    .meta({
      description: `The held files that stay in the folder. At most ${MAX_COUNTED_HOLDS.toLocaleString("en")} are counted.`,
    }),
});
/** @returns such as "Folder deleted. 2 held files stay in it." */
const describeDeletion = ({ isComplete, held }: z.infer<typeof folderDeletion>) => {
  const text = isComplete ? "Folder deleted." : "The folder is being deleted.";
  if (held === 0) return text;
  return `${text} ${held === 1 ? "1 held file stays" : `${held} held files stay`} in it.`;
};

export const moveFolder = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Rename or move a folder",
    description: `Moves the files and folders in it along. If \`to\` exists, the two are merged. A folder that doesn't exist has nothing to move. ${FOLDER_CHANGE}`,
    body: z.strictObject({ folder: namedFolder, to: namedFolder.meta({ description: "Its new path." }) }),
    bodyExample: { folder: "podcast/2026", to: "archive/podcast" },
    success: {
      description: "The folder is moved, or being moved.",
      message: ({ isComplete }) => (isComplete ? "Folder moved." : "The folder is being moved."),
      schema: folderChange,
      example: { folder: "archive/podcast", isComplete: true },
    },
    errorCodes: ["folder_busy"],
  },
  async ({ c, deps, actor, body }) => {
    await countExpensiveCall(c, "folder", actor);
    return moveFolderTo(deps, actor, body.folder, body.to);
  },
);

export const deleteFolder = writeOperation(
  "files:delete",
  {
    tag: "Files",
    summary: "Delete a folder",
    description: `Deletes the files and folders in it. Held files stay, with their folders. ${FOLDER_CHANGE}`,
    body: z.strictObject({ folder: namedFolder }),
    bodyExample: { folder: "podcast/2025" },
    success: {
      description: "The folder is deleted, or being deleted.",
      message: describeDeletion,
      schema: folderDeletion,
      example: { folder: "podcast/2025", isComplete: true, held: 0 },
    },
    errorCodes: ["folder_busy"],
  },
  async ({ c, deps, actor, body }) => {
    await countExpensiveCall(c, "folder", actor);
    return deleteFolderWithFiles(deps, actor, body.folder);
  },
);

/* Changes */

export const update = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Update a file",
    description:
      "Changes only the given fields, in any status. The bytes and the signed URLs stay as they are. `deleteAfter` also needs `files:delete`.",
    body: atLeastOneField(properties),
    bodyExample: propertiesExample,
    requestHeaders: ifMatch,
    success: {
      description: "The updated file.",
      message: "File updated.",
      schema: fileRecord.schema,
      example: fileRecord.example,
      headers: versionHeaders,
    },
    errorCodes: ["version_mismatch", "file_held"],
  },
  async ({ c, deps, actor, id, body }) => {
    if (body.deleteAfter !== undefined) checkCovered(actor, SCOPES["files:delete"]);
    checkDeleteAfter(deps, body);
    const file = await updateFile(deps, actor, id, body, expectedVersions(c.req.header("If-Match")));
    setEtag(c, file);
    return fileRecord.render(file);
  },
);

const ids = z
  .array(z.string())
  .min(1, "Must have at least one ID.")
  .max(MAX_BATCH_FILES, `Must have at most ${MAX_BATCH_FILES} IDs.`)
  .refine((all) => new Set(all).size === all.length, "Must not repeat an ID.")
  .meta({ uniqueItems: true });

const ITEM_CODES = ["not_found", "too_many_tags", "file_held", "not_in_trash"] as const;

export const batch = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Change many files",
    description: `Deletes, restores, tags, untags, moves or reprocesses files. A deletion or restoration also needs \`files:delete\`; with \`permanent\`, a deletion erases the files, also those in the trash; a contributor can't do that. Repeating a batch changes nothing more. Each ID counts as a request. For the limit of reprocessed files, ${REPROCESSED_FILES_PER_CALL} files of a batch count as one.`,
    body: z.discriminatedUnion("action", [
      z.strictObject({ action: z.enum(["restore", "reprocess"]), ids }),
      z.strictObject({ action: z.literal("delete"), ids, permanent: z.boolean().optional() }),
      z.strictObject({ action: z.enum(["tag", "untag"]), ids, tags: someTags }),
      z.strictObject({ action: z.literal("move"), ids, folder }),
    ]),
    bodyExample: { action: "move", ids: [fileRecord.example._id], folder: "podcast/2026" },
    success: {
      description: "A result for each ID, in their order.",
      message: (results) => `Files changed: ${results.filter(({ ok }) => ok).length} of ${results.length}.`,
      schema: z.array(z.strictObject({ _id: z.string(), ok: z.boolean(), code: z.enum(ITEM_CODES).optional() })),
      example: [{ _id: fileRecord.example._id, ok: true }],
    },
  },
  async ({ c, deps, actor, credential, body: { ids: given, ...action } }) => {
    // The request itself is already counted.
    await countRequests(c, credential, given.length - 1);
    if (action.action === "reprocess") {
      await countExpensiveCall(c, "reprocess", actor, Math.ceil(given.length / REPROCESSED_FILES_PER_CALL));
    }
    const results = await changeFiles(deps, actor, given, action);
    return results.map(({ id, code }) => ({ _id: id, ok: code === null, ...(code && { code }) }));
  },
);

/* Waveforms */

const MAX_CHANNELS = 2;
/** Fewer peaks draw no useful curve. */
const MIN_PEAKS = 16;
/** One peak per pixel of a wide screen. */
const MAX_PEAKS = 2000;
/** Fits two channels of the longest numbers that JavaScript writes, 25 characters each, with commas. */
const MAX_WAVEFORM_BYTES = 128 * 1024;

const peaks = `Must have ${MIN_PEAKS} to ${MAX_PEAKS} peaks.`;
const bounds = "Must be from -1 to 1.";
const channels = "Must have one or two channels.";

const waveformSchema = z
  .strictObject({
    channels: z
      .array(z.array(z.number().min(-1, bounds).max(1, bounds)).min(MIN_PEAKS, peaks).max(MAX_PEAKS, peaks))
      .min(1, channels)
      .max(MAX_CHANNELS, channels)
      .refine(([first, second]) => !second || second.length === first?.length, {
        path: [1],
        error: "Must have as many peaks as the first.",
      })
      .meta({ description: "One or two of equal length." }),
  })
  .meta({ id: "Waveform" });

const exampleWaveform = {
  channels: [
    [0, 0.118, 0.394, 0.803, 1, 0.748, 0.331, 0.055, -0.087, -0.402, -0.78, -1, -0.661, -0.346, -0.157, -0.024],
  ],
};

export const getWaveform = readOperation(
  "files:read",
  {
    tag: "Files",
    summary: "Get a file's waveform",
    description: "Returns the peaks as they were sent, each rounded to the precision of a byte.",
    success: {
      description: "The waveform.",
      message: "Waveform found.",
      schema: waveformSchema,
      example: exampleWaveform,
    },
  },
  async ({ deps, credential, id }) => ({ channels: await fetchWaveform(deps, credential, id) }),
);

export const setWaveform = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Set a file's waveform",
    description:
      `Takes one or two channels of ${MIN_PEAKS} to ${MAX_PEAKS} peaks from -1 to 1, from any client that has decoded the ` +
      "audio, and replaces the previous waveform. Each peak is stored as a byte, with an error of at most 0.0045; -1, 0, and 1 " +
      `are exact. The file's \`peaks\` show it in small; \`__v\` and the events stay as they are. Deleting the file deletes the waveform. The body may have ${MAX_WAVEFORM_BYTES / 1024} KiB.`,
    body: waveformSchema,
    maxBodyBytes: MAX_WAVEFORM_BYTES,
    bodyExample: {
      channels: [[0, 0.12, 0.39, 0.8, 1, 0.75, 0.33, 0.055, -0.09, -0.4, -0.78, -1, -0.66, -0.35, -0.16, -0.02]],
    },
    success: {
      description: "The stored waveform.",
      message: "Waveform set.",
      schema: waveformSchema,
      example: exampleWaveform,
    },
  },
  async ({ deps, actor, id, body }) => ({ channels: await storeWaveform(deps, actor, id, body.channels) }),
);
