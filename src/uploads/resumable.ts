import { and, eq, getTableColumns, ne, not, or, sql } from "drizzle-orm";
import { isVisitor } from "../access/actor.ts";
import { authorize, type Credential, mayStillUpload, readAs, type TeamActor } from "../access/authorization.ts";
import { uploadsOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode, isError } from "../errors.ts";
import {
  cancelUploads,
  isKnownUpload,
  namedFile,
  removeUpload,
  tryToRemoveUpload,
  type UploadRow,
} from "../files/ending.ts";
import { cleanName, type FileOf, isUpload } from "../files/names.ts";
import { type FileProperties, propertyColumns } from "../files/properties.ts";
import { PART_BYTES } from "../platform/byte-store.ts";
import { firstOf, type Guard, hasRow, read, write } from "../platform/db.ts";
import { newSecret, type SecretUrl, secretUrlValues } from "../platform/secret-url.ts";
import { fingerprint } from "../platform/secrets.ts";
import { HOUR, instantOf, newId } from "../platform/system.ts";
import { Appender, type AppendInput, assembleAndCommit, bodyTooLarge, isComplete } from "./appending.ts";
import { growthError, growthRefusals, isReplaced, quotaError, uncountRepetition } from "./quota.ts";
import { giveWay, insertWithRoom } from "./room.ts";
import { typeNotAllowed } from "./storing.ts";
import { cancelUpload } from "./unfinished.ts";
import { arrivingUpload, insertUpload, offsetMismatch, setBy, uploaderId } from "./upload.ts";
import { isCanceled, isReceiving, uploads } from "./uploads.schema.ts";

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

export const uploadExpired = errorCode("upload_expired", 410, "The upload has expired. Create a new one.");
export const uploadLocked = errorCode("upload_locked", 423, "The upload is in use. Retry shortly.");

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
  upload: UploadRow;
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
    if (failure !== undefined && upload.status !== "committed") throw failure;
    return { ...created, upload };
  } catch (error) {
    const isCanceled = isError(error, "not_found");
    if (!isOfForbiddenType(error) && !isCanceled) {
      await terminateUpload(deps, actor, url, null).catch((cause) =>
        deps.log("warn", "upload_cleanup_failed", { fileId: url.id, cause }),
      );
    }
    // Only this request knows the URL, so a mismatch is our own failure.
    if (isError(error, offsetMismatch)) {
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
  const { teamId, ownerId } = actor;
  const id = newId(system, db.number);
  const secret = newSecret(system);
  const originalName = cleanName(name);
  const file = { id, teamId, ownerId, originalName };
  const columns = {
    secretHash: fingerprint(secret),
    partBytes: Math.max(PART_BYTES, Math.ceil(sizeBytes / MAX_PARTS / MEBIBYTE) * MEBIBYTE),
    metadata,
    statedSha256: sha256,
    properties: JSON.stringify(setBy(deps, actor, propertyColumns(originalName, properties))),
    dueAt: instantOf(id) + MAX_EMPTY_MILLISECONDS,
  };
  // Only the token that created an upload can replace it. Line breaks separate it from the keys of form uploads.
  const idempotencyKey = given === undefined ? null : `resumable\n${uploaderId(actor)}\n${given}`;
  const replaced = idempotencyKey === null ? undefined : isReplaced(file, idempotencyKey);
  const reservation = { minBytes: sizeBytes, maxBytes: sizeBytes, resumable: { replaced } };
  const creation = {
    quota: insertUpload(deps, actor, file, columns, reservation),
    arriving: arrivingUpload(file),
  };
  const insert = async () => {
    const replacement = idempotencyKey === null ? [] : [replaceUpload(deps, actor, file, idempotencyKey)];
    const options = { isIdempotent: true, caller: mayStillUpload(deps, actor) };
    const rows = await write(deps, { creation, replacement }, options);
    for (const earlier of rows.replacement.flatMap(({ cancel }) => cancel)) {
      // Awaited, so that repeated creations can't outrun the deletion of what they replace.
      await tryToRemoveUpload(deps, earlier);
    }
    const { quota, arriving } = rows.creation;
    return { upload: arriving[0], refused: quota.refusal[0] };
  };
  const { upload, refused } = await insertWithRoom(deps, actor, file, insert);
  if (!upload) throw quotaError(refused);
  return { url: { id, secret }, upload };
}

/** Once the upload is inserted, cancels the unfinished upload that has the key, and gives the key to the new one. */
function replaceUpload(deps: Deps, actor: TeamActor, file: FileOf, idempotencyKey: string) {
  const { db } = deps;
  const isOther = and(eq(uploads.idempotencyKey, idempotencyKey), ne(uploads.fileId, file.id));
  const isReplaceable = and(uploadsOf(file), isOther, hasRow(uploads, isUpload(file)));
  // A finished upload loses only its key.
  const release = db.update(uploads).set({ idempotencyKey: null }).where(isReplaceable);
  const give = db
    .update(uploads)
    .set({ idempotencyKey })
    .where(and(isUpload(file), isReceiving));
  const uncount = actor.uploadToken ? [uncountRepetition(deps, file, idempotencyKey)] : [];
  return { uncount, cancel: cancelUploads(deps, isReplaceable).returning(), release, give };
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
): Promise<UploadRow> {
  const row = await pollUntilSaved(deps, url, async () => {
    const {
      actor,
      rows: [found],
    } = await readAs(deps, credential, (viewer) =>
      deps.db
        .select()
        .from(uploads)
        .where(and(uploadsOf(viewer), matchesUrl(url), isKnownUpload)),
    );
    if (!found || (actor.kind === "upload" && found.keyId !== actor.keyId)) throw new AppError("not_found");
    return found;
  });
  if (row.status === "committed") return row;
  if (isComplete(row)) return assembleAndCommit(deps, await authorize(deps, credential), row);
  if (row.dueAt <= deps.system.now()) throw new AppError(uploadExpired);
  return row;
}

/**
 * One HEAD of an isolate polls an upload, so that many HEADs need as many reads as one. The newest one does: when a
 * client disconnects, its HEAD may end without a trace, and the client's next HEAD must not be rejected for that.
 * @throws `upload_locked` if a newer HEAD polls the upload
 */
async function pollUntilSaved({ system, pollers }: Deps, { id }: SecretUrl, poll: () => Promise<UploadRow>) {
  let row = await poll();
  const poller = Symbol(id);
  if (row.isWriting) pollers.set(id, poller);
  let stalledPolls = 0;
  for (let polls = 0; row.isWriting && stalledPolls < MAX_STALLED_POLLS && polls < MAX_POLLS; polls++) {
    await system.sleep(POLL_MILLISECONDS);
    if (pollers.get(id) !== poller) throw new AppError(uploadLocked, { retryAfterSeconds: 1 });
    const before = row;
    row = await poll();
    if (hasSavedChunk(before, row)) break;
    stalledPolls = hasProgressed(before, row) ? 0 : stalledPolls + 1;
  }
  return row;
}

/** A newer request without bytes is not progress: it only has a new epoch. */
const hasProgressed = (before: UploadRow, { multipartId, offsetBytes }: UploadRow) =>
  multipartId !== before.multipartId || offsetBytes !== before.offsetBytes;

/** A request that is writing saves a chunk only if its connection stalls. */
const hasSavedChunk = (before: UploadRow, { epoch, chunks }: UploadRow) =>
  chunks !== null && chunks !== before.chunks && epoch === before.epoch;

/** Cancels an unfinished upload and deletes its bytes. @throws `not_found`, `forbidden` once it is finished */
export async function terminateUpload(
  deps: Deps,
  actor: TeamActor,
  url: SecretUrl,
  caller: Guard | null = mayStillUpload(deps, actor),
): Promise<void> {
  const isOwn = and(uploadsOf(actor), matchesUrl(url), mayContinue(actor), isKnownUpload);
  const [row] = await read(deps, deps.db.select({ fileId: uploads.fileId }).from(uploads).where(isOwn));
  if (!row) throw new AppError("not_found");
  await cancelUpload(deps, actor, row.fileId, caller);
}

/**
 * Appends bytes at the current offset, and returns the progress. The transport keeps the invocation alive until this
 * settles.
 * @throws `not_found`, also once the upload was canceled, `upload_expired`, `offset_mismatch` (also if a newer request has fenced this one off),
 *   `body_too_large`, `type_not_allowed`, which cancels the upload; `quota_exceeded` or `too_many_unfinished_uploads` if its first
 *   byte can't reserve what a visitor has announced
 */
export async function appendToUpload(
  deps: Deps,
  actor: TeamActor,
  url: SecretUrl,
  input: AppendInput,
): Promise<UploadRow> {
  let { row, claimed } = await claimUpload(deps, actor, url, input);
  if (!claimed && row && (await giveWay(deps, actor, url, row.refusal))) {
    ({ row, claimed } = await claimUpload(deps, actor, url, input));
  }
  if (!row) throw new AppError("not_found");
  if (row.refusal === "finished") return row;
  if (row.refusal === "complete") return assembleAndCommit(deps, actor, row);
  if (row.refusal === "body_too_large") throw bodyTooLarge(row.sizeBytes);
  if (row.refusal === "offset_mismatch") {
    throw new AppError(offsetMismatch, { message: `The offset of the upload is ${row.offsetBytes}.` });
  }
  if (row.refusal === "quota_exceeded" || row.refusal === "public_quota_exceeded") throw growthError(row.refusal);
  if (!claimed) throw new AppError(uploadExpired);
  const appender = new Appender(deps, actor, { ...row, ...claimed }, input);
  try {
    return await appender.run();
  } catch (error) {
    // The upload can never complete.
    if (isOfForbiddenType(error)) await cancelUpload(deps, actor, row.fileId, null);
    else if (appender.isWriting) await endWriting(deps, claimed);
    throw error;
  }
}

/** The claim of a request that appends. The first byte of a visitor reserves all that it has announced. */
async function claimUpload(deps: Deps, actor: TeamActor, url: SecretUrl, input: AppendInput) {
  const { db, system } = deps;
  const { offsetBytes } = input;
  const sizeBytes = input.sizeBytes ?? 0;
  const hasBytes = input.sizeBytes !== 0;
  const now = system.now();
  const isOwn = and(uploadsOf(actor), matchesUrl(url), mayContinue(actor), isKnownUpload);
  const isAtEnd = sql`${uploads.offsetBytes} = ${uploads.sizeBytes}`;
  const refusal = firstOf({
    expired: sql`${isReceiving} and not ${isAtEnd} and ${uploads.dueAt} <= ${now}`,
    offset_mismatch: ne(uploads.offsetBytes, offsetBytes),
    body_too_large: sql`${uploads.offsetBytes} + ${sizeBytes} > ${uploads.sizeBytes}`,
    finished: sql`not ${isReceiving}`,
    complete: isAtEnd,
    // R2 does not accept another part.
    no_more_parts: sql`${uploads.nextPart} >= ${MAX_PART_NUMBER}`,
    ...(hasBytes && isVisitor(actor) && growthRefusals(deps, actor.teamId)),
  });
  const found = db
    .select({ ...getTableColumns(uploads), refusal: refusal.as("refusal") })
    .from(uploads)
    .where(isOwn);
  // The newest request wins. If an older one is writing, skips the part number that the older request may still upload.
  const claim = db
    .update(uploads)
    .set({
      epoch: sql`${uploads.epoch} + 1`,
      nextPart: sql`${uploads.nextPart} + is_writing`,
      hasLeftovers: sql`has_leftovers or is_writing`,
      fencedOff: sql`fenced_off + is_writing`,
      isWriting: true,
      ...(hasBytes && isVisitor(actor) && { reservedBytes: sql`size_bytes` }),
    })
    .where(and(isOwn, sql`${refusal} is null`))
    .returning();
  const {
    found: [row],
    claim: [claimed],
  } = await write(deps, { found, claim }, { isIdempotent: false, caller: mayStillUpload(deps, actor) });
  return { row, claimed };
}

/**
 * The end of a request that still counts as writing. An upload that was canceled meanwhile holds its quota until the last of its
 * requests ends, which removes it. If no one has fenced this request off or canceled the upload, one of its writes to R2 may still be
 * in flight, so it keeps counting until the next request.
 */
async function endWriting(deps: Deps, claimed: UploadRow): Promise<void> {
  const { fileId, teamId, epoch } = claimed;
  const isNewest = eq(uploads.epoch, epoch);
  const end = deps.db
    .update(uploads)
    .set({
      isWriting: sql`is_writing and not ${isNewest}`,
      fencedOff: sql`max(0, fenced_off - iif(${isNewest}, 0, 1))`,
    })
    .where(and(isUpload(namedFile(claimed)), or(not(isNewest), isCanceled)))
    .returning();
  try {
    // Not repeated if its response was lost: another request would be taken for ended. The recovery job removes the upload then.
    const [ended] = await write(deps, end, { isIdempotent: false, caller: null });
    if (ended?.status === "canceled" && !ended.isWriting && ended.fencedOff === 0) await removeUpload(deps, ended);
  } catch (cause) {
    deps.log("warn", "upload_cleanup_failed", { fileId, teamId, cause });
  }
}

const isOfForbiddenType = (error: unknown) => isError(error, typeNotAllowed);
