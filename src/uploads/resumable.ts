import { and, eq, getTableColumns, ne, sql } from "drizzle-orm";
import { isVisitor } from "../access/actor.ts";
import { authorize, authorizeRead, type Credential, type TeamActor } from "../access/authorization.ts";
import { filesOf, filesOfToken } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { ended, hasRemovedFile, type ResumableRow } from "../files/ending.ts";
import { files } from "../files/files.schema.ts";
import { cleanName, type FileOf, isFile, isFileOfUpload, isRemovedOfUpload } from "../files/names.ts";
import { type FileProperties, propertyColumns } from "../files/properties.ts";
import { PART_BYTES } from "../platform/byte-store.ts";
import { firstOf, hasRow, insertWhere, read, write } from "../platform/db.ts";
import { newSecret, type SecretUrl, secretUrlValues } from "../platform/secret-url.ts";
import { fingerprint } from "../platform/secrets.ts";
import { HOUR, instantOf, newId } from "../platform/system.ts";
import { deleteFile, leave, removeUpload } from "../trash/deletion.ts";
import { removed } from "../trash/trash.schema.ts";
import {
  Appender,
  type AppendInput,
  assembleAndCommit,
  bodyTooLarge,
  isComplete,
  isReceiving,
  MAX_RESUMABLE_MILLISECONDS,
  NAMED_COLUMNS,
  type NamedRow,
  withFile,
} from "./appending.ts";
import { isReplaced, quotaError } from "./quota.ts";
import { insertedLimits, insertReceiving, uploaderId } from "./upload.ts";
import { isUnfinished, uploads } from "./uploads.schema.ts";

/*
 * Resumable uploads. The file is created, committed and enqueued like that of a form upload (upload.ts). Between the two,
 * each request
 *
 *   1. claims     the upload by one conditional update: the offset is the one that the client sent, and `epoch` grows by
 *                 one. A request with an older epoch is fenced off: it saves nothing from then on
 *   2. stores     each full part in R2, and then the part's row and the new offset in one batch, under its epoch
 *   3. saves      the bytes after the last full part as a chunk: at its end, and if the connection breaks or stalls
 *
 * An offset is reported only after it was saved, so a reported offset never decreases. No two requests use the same key
 * or part number, so a fenced-off request overwrites nothing. Only the file's own key is shared. If one `put` stores
 * all bytes there, only its own request's epoch can commit them. Otherwise R2 assembles the parts that the rows name.
 *
 * The request with the last byte commits the file. If that request dies, HEAD, another PATCH or the recovery job does.
 * The recovery job also removes expired uploads and what dead requests left: all objects of an upload except the file
 * start with `chunkPrefix`. If a Worker dies after R2 has created a multipart upload and before a row has its id, R2
 * drops that upload after seven days. Only R2 knows the id, and no binding lists it.
 */

/** The delay between two polls of HEAD. A poll is one read of D1. Interrupted requests usually save within one delay. */
export const POLL_MILLISECONDS = 500;
/** A request that makes no progress for this many polls (2 s) has died, or has nothing left to save. */
const MAX_STALLED_POLLS = 4;
/** HEAD polls at most this often (15 s) for a request that makes progress, because a HEAD counts as one request. */
export const MAX_POLLS = 30;
const MEBIBYTE = 1024 * 1024;
/** R2 allows 10,000 part numbers. The rest is for parts whose request was fenced off. */
const MAX_PARTS = 2500;

/** The limit of R2. */
const MAX_PART_NUMBER = 10_000;
/** An upload without bytes expires this long after its creation, so that it does not hold its quota for a day. */
export const MAX_EMPTY_MILLISECONDS = HOUR;

/** The upload that a URL names. A caller without the secret finds nothing. The caller's team must be required, too. */
function matchesUrl(url: SecretUrl) {
  const { id, secretHash } = secretUrlValues(url);
  return and(eq(uploads.fileId, id), eq(uploads.secretHash, secretHash));
}
/** An upload token continues only uploads of its issuer. It may have expired since it began one, and a new one continues. */
const mayContinue = ({ kind, keyId }: TeamActor) => (kind === "upload" ? eq(uploads.keyId, keyId) : undefined);

interface NewUpload {
  name: string;
  sizeBytes: number;
  metadata: string;
  sha256: string | null;
  properties: FileProperties;
  /** A repeated creation replaces the earlier upload, whose URL its client never got. */
  idempotencyKey: string | undefined;
  /** The first bytes, if the creating request has a body. */
  body?: Omit<AppendInput, "offsetBytes">;
}

interface CreatedUpload {
  url: SecretUrl;
  upload: ResumableRow;
}

/**
 * Creates an upload. If its first bytes fail or are interrupted, deletes it, because the client never got its URL.
 * @throws the errors of `quotaError`, `too_many_unfinished_uploads`, what the bytes throw, and as `appendToUpload`
 */
export async function createUpload(
  deps: Deps,
  actor: TeamActor,
  { body, ...input }: NewUpload,
): Promise<CreatedUpload> {
  const created = await insertResumable(deps, actor, input);
  if (!body) return created;
  const { url } = created;
  let failure: unknown;
  const onInterrupted = (cause: unknown) => {
    failure = cause;
  };
  try {
    const upload = await appendToUpload(deps, actor, url, { ...body, onInterrupted, offsetBytes: 0 });
    if (failure !== undefined && !upload.isFinished) throw failure;
    return { ...created, upload };
  } catch (error) {
    if (!isOfForbiddenType(error)) {
      await terminateUpload(deps, actor, url).catch((cause) =>
        deps.log("warn", "upload_cleanup_failed", { fileId: url.id, cause }),
      );
    }
    // Only this request knows the URL, so a mismatch is our own failure.
    if (error instanceof AppError && error.code === "offset_mismatch") {
      throw new AppError("unavailable", { cause: error });
    }
    throw error;
  }
}

async function insertResumable(
  deps: Deps,
  actor: TeamActor,
  { name, sizeBytes, metadata, sha256, properties, idempotencyKey: given }: Omit<NewUpload, "body">,
): Promise<CreatedUpload> {
  const { db, system } = deps;
  const { teamId, ownerId, keyId, userId } = actor;
  const id = newId(system, db.number);
  const secret = newSecret(system);
  const createdAt = instantOf(id);
  const originalName = cleanName(name);
  const upload: ResumableRow = {
    fileId: id,
    teamId,
    keyId,
    isPublic: isVisitor(actor),
    userId,
    secretHash: fingerprint(secret),
    sizeBytes,
    offsetBytes: 0,
    partBytes: Math.max(PART_BYTES, Math.ceil(sizeBytes / MAX_PARTS / MEBIBYTE) * MEBIBYTE),
    metadata,
    multipartId: null,
    mimeType: null,
    fileType: null,
    nextPart: 1,
    chunks: null,
    epoch: 0,
    isWriting: false,
    isFinished: false,
    hasLeftovers: false,
    isCanceled: false,
    createdAt,
    dueAt: createdAt + MAX_EMPTY_MILLISECONDS,
  };
  const file = {
    ...{ id, teamId, ownerId, originalName, ...propertyColumns(originalName, properties) },
    ...{ idempotencyKey: null, statedSha256: sha256, dueAt: system.now() + MAX_RESUMABLE_MILLISECONDS },
  };
  // Only the token that created an upload can replace it. Line breaks separate it from the keys of form uploads.
  const idempotencyKey = given === undefined ? null : `resumable\n${uploaderId(actor)}\n${given}`;
  const replaced = idempotencyKey === null ? undefined : isReplaced({ id, teamId, ownerId }, idempotencyKey);
  const reservation = { minBytes: sizeBytes, maxBytes: sizeBytes, resumable: { replaced } };
  const queries = [
    ...insertReceiving(deps, actor, file, reservation),
    insertWhere(db, uploads, upload, hasRow(files, isFile(file))),
    insertedLimits(deps, file),
  ] as const;
  const created = { url: { id, secret }, upload };
  if (idempotencyKey === null) {
    const [[refused], , , [inserted]] = await write(deps, queries, { isIdempotent: true });
    if (!inserted) throw quotaError(refused);
    return created;
  }
  const replacement = replaceUpload(deps, file, idempotencyKey);
  const batch = [...queries, ...replacement] as const;
  const [[refused], , , [inserted], , , replacedUploads] = await write(deps, batch, { isIdempotent: true });
  if (!inserted) throw quotaError(refused);
  for (const { originalName, ...replacedUpload } of replacedUploads) {
    const { fileId, teamId } = replacedUpload;
    // Awaited, so that repeated creations can't outrun the deletion of what they replace.
    await removeUpload(deps, { id: fileId, teamId, originalName }, replacedUpload).catch((cause) =>
      deps.log("warn", "upload_cleanup_failed", { fileId, cause }),
    );
  }
  return created;
}

const removedName = sql<string>`(select ${removed.originalName} from ${removed} where ${isRemovedOfUpload})`;

/** Once the upload is inserted, cancels the unfinished upload that has the key, and gives the key to the new one. */
function replaceUpload(deps: Deps, file: FileOf, idempotencyKey: string) {
  const { db, system } = deps;
  const { id, teamId } = file;
  const now = system.now();
  const isInserted = hasRow(files, isFile(file));
  const hasKey = and(filesOf(file), eq(files.idempotencyKey, idempotencyKey), ne(files.id, id));
  const leaving = leave(deps, and(isReplaced(file, idempotencyKey), isInserted), { dueAt: now });
  const end = db
    .update(uploads)
    .set(ended(now))
    .where(and(eq(uploads.teamId, teamId), isUnfinished, hasRemovedFile))
    .returning({ ...getTableColumns(uploads), originalName: removedName.as("originalName") });
  // A finished upload loses only its key.
  const release = db.update(files).set({ idempotencyKey: null }).where(and(hasKey, isInserted));
  return [...leaving, end, release, db.update(files).set({ idempotencyKey }).where(isFile(file))] as const;
}

/**
 * Returns the progress of the upload, and assembles one that has all of its bytes. If a request is still writing, its
 * client has lost the connection. HEAD waits until the request ends, saves its bytes, or stops making progress.
 * @throws `not_found`, `upload_expired`, `upload_locked` if a newer HEAD of this isolate waits for the same request
 */
export async function fetchUpload(
  deps: Deps,
  credential: Credential<"files:upload">,
  url: SecretUrl,
): Promise<ResumableRow> {
  const row = await pollUntilSaved(deps, url, async () => {
    const {
      actor,
      rows: [found],
    } = await authorizeRead(deps, credential, (_, token) =>
      withFile(deps.db).where(and(matchesUrl(url), filesOfToken(deps.db, token))),
    );
    if (!found || (actor.kind === "upload" && found.keyId !== actor.keyId)) throw new AppError("not_found");
    return found;
  });
  if (row.isFinished) return row;
  if (isComplete(row)) return assembleAndCommit(deps, await authorize(deps, credential), row);
  if (row.dueAt <= deps.system.now()) throw new AppError("upload_expired");
  return row;
}

/**
 * One HEAD of an isolate polls an upload, so that many HEADs need as many reads as one. The newest one does: when a
 * client disconnects, its HEAD may end without a trace, and the client's next HEAD must not be rejected for that.
 * @throws `upload_locked` if a newer HEAD polls the upload
 */
async function pollUntilSaved({ system, pollers }: Deps, { id }: SecretUrl, poll: () => Promise<NamedRow>) {
  let row = await poll();
  const poller = Symbol(id);
  if (row.isWriting) pollers.set(id, poller);
  let stalledPolls = 0;
  for (let polls = 0; row.isWriting && stalledPolls < MAX_STALLED_POLLS && polls < MAX_POLLS; polls++) {
    await system.sleep(POLL_MILLISECONDS);
    if (pollers.get(id) !== poller) throw new AppError("upload_locked", { retryAfterSeconds: 1 });
    const before = row;
    row = await poll();
    if (hasSavedChunk(before, row)) break;
    stalledPolls = hasProgressed(before, row) ? 0 : stalledPolls + 1;
  }
  return row;
}

/** A newer request without bytes is not progress: it only has a new epoch. */
const hasProgressed = (before: ResumableRow, { multipartId, offsetBytes }: ResumableRow) =>
  multipartId !== before.multipartId || offsetBytes !== before.offsetBytes;

/** A request that is writing saves a chunk only if its connection stalls. */
const hasSavedChunk = (before: ResumableRow, { epoch, chunks }: ResumableRow) =>
  chunks !== null && chunks !== before.chunks && epoch === before.epoch;

/** Cancels an unfinished upload and deletes its bytes. @throws `not_found`, `forbidden` once it is finished */
export async function terminateUpload(deps: Deps, actor: TeamActor, url: SecretUrl): Promise<void> {
  const isOwn = and(matchesUrl(url), filesOf(actor), mayContinue(actor));
  const [[row]] = await read(deps, [withFile(deps.db).where(isOwn)]);
  if (!row) throw new AppError("not_found");
  await deleteFile(deps, actor, row.fileId, { onlyUnfinished: true });
}

/**
 * Appends bytes at the current offset, and returns the progress. The transport keeps the invocation alive until this
 * settles.
 * @throws `not_found`, `upload_expired`, `offset_mismatch` (also if a newer request has fenced this one off),
 *   `body_too_large`, `type_not_allowed`, which cancels the upload
 */
export async function appendToUpload(
  deps: Deps,
  actor: TeamActor,
  url: SecretUrl,
  input: AppendInput,
): Promise<ResumableRow> {
  const { db, system } = deps;
  const { offsetBytes } = input;
  const sizeBytes = input.sizeBytes ?? 0;
  const now = system.now();
  const isUpload = and(matchesUrl(url), eq(uploads.teamId, actor.teamId), mayContinue(actor));
  const isOwn = hasRow(files, and(isFileOfUpload, filesOf(actor)));
  const isAtEnd = sql`${uploads.offsetBytes} = ${uploads.sizeBytes}`;
  const refusal = firstOf({
    expired: sql`${isUnfinished} and not ${isAtEnd} and ${uploads.dueAt} <= ${now}`,
    offset_mismatch: ne(uploads.offsetBytes, offsetBytes),
    body_too_large: sql`${uploads.offsetBytes} + ${sizeBytes} > ${uploads.sizeBytes}`,
    finished: sql`not ${isUnfinished}`,
    complete: isAtEnd,
    // R2 does not accept another part.
    no_more_parts: sql`${uploads.nextPart} >= ${MAX_PART_NUMBER} or not ${isReceiving}`,
  });
  const found = db
    .select({ ...NAMED_COLUMNS, refusal: refusal.as("refusal") })
    .from(uploads)
    .innerJoin(files, isFileOfUpload)
    .where(and(isUpload, filesOf(actor)));
  // The newest request wins. If an older one is writing, skips the part number that the older request may still upload.
  const claim = db
    .update(uploads)
    .set({
      epoch: sql`${uploads.epoch} + 1`,
      nextPart: sql`${uploads.nextPart} + is_writing`,
      hasLeftovers: sql`has_leftovers or is_writing`,
      isWriting: true,
    })
    .where(and(isUpload, isOwn, sql`${refusal} is null`))
    .returning();
  const [[row], [claimed]] = await write(deps, [found, claim], { isIdempotent: false });
  if (!row) throw new AppError("not_found");
  if (row.refusal === "finished") return row;
  if (row.refusal === "complete") return assembleAndCommit(deps, actor, row);
  if (row.refusal === "body_too_large") throw bodyTooLarge(row.sizeBytes);
  if (row.refusal === "offset_mismatch") {
    throw new AppError("offset_mismatch", { message: `The offset of the upload is ${row.offsetBytes}.` });
  }
  if (!claimed) throw new AppError("upload_expired");
  try {
    return await new Appender(deps, actor, { ...row, ...claimed }, input).run();
  } catch (error) {
    // The upload can never complete.
    if (isOfForbiddenType(error)) await deleteFile(deps, actor, row.fileId, { onlyUnfinished: true });
    // A request that this one has overtaken may still be writing. Then the recovery job removes the upload when that has ended.
    else if (!row.isWriting) await removeIfCanceled(deps, row, claimed);
    throw error;
  }
}

/** An upload that was canceled while this request wrote holds its quota until the request ends: that is now. */
async function removeIfCanceled(deps: Deps, { originalName }: NamedRow, claimed: ResumableRow): Promise<void> {
  const { fileId, teamId, epoch } = claimed;
  const isOwn = and(eq(uploads.fileId, fileId), eq(uploads.epoch, epoch), eq(uploads.isCanceled, true));
  const release = deps.db.update(uploads).set({ isWriting: false, dueAt: deps.system.now() }).where(isOwn).returning();
  const file = { id: fileId, teamId, originalName };
  try {
    const [[canceled]] = await write(deps, [release], { isIdempotent: true });
    if (canceled) await removeUpload(deps, file, canceled);
  } catch (cause) {
    deps.log("warn", "upload_cleanup_failed", { fileId, teamId, cause });
  }
}

const isOfForbiddenType = (error: unknown) => error instanceof AppError && error.code === "type_not_allowed";
