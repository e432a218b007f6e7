import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { PART_BYTES } from "../../platform/byte-store.ts";
import { hasRow, insertWhere, type Param, preparedQuery, type RowsOf, read, rowOf, write } from "../../platform/db.ts";
import { files } from "../../platform/schema.ts";
import { fingerprint } from "../../platform/secrets.ts";
import { newId } from "../../platform/system.ts";
import { uploads } from "../../platform/upload-schema.ts";
import { authorize, authorizeRead, type Credential, type TeamActor } from "../accounts/authorization.ts";
import { Appender, type AppendInput, assembleAndCommit, bodyTooLarge } from "./appending.ts";
import { deleteFile } from "./deletion.ts";
import { uploadState } from "./idempotency.ts";
import { cleanName, isFile } from "./names.ts";
import type { FileProperties } from "./properties.ts";
import { quotaError } from "./quota.ts";
import {
  claimResumable,
  isComplete,
  MAX_EMPTY_MILLISECONDS,
  MAX_RESUMABLE_MILLISECONDS,
  type NamedRow,
  type ResumableRow,
  resumableByUrl,
  resumableOfTeam,
} from "./resumable-rows.ts";
import { newSecret, type SecretUrl, secretUrlValues } from "./secret-url.ts";
import { canBegin, replaceUpload, tooManyUnfinished, unfinishedCounts } from "./unfinished.ts";
import { insertReceiving, type UploadValues, uploadValues } from "./upload.ts";

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

type NewValues = UploadValues & ResumableRow;

const insertFile = preparedQuery((db, param: Param<NewValues>) => insertReceiving(db, param, canBegin(db, param)));
const insertResumableRow = preparedQuery((db, param: Param<NewValues>) =>
  insertWhere(db, uploads, rowOf(uploads, param), hasRow(files, isFile(param))),
);

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

/**
 * Creates an upload. If its first bytes fail or are interrupted, deletes it, because the client never got its URL.
 * @throws the errors of `quotaError`, `too_many_unfinished_uploads`, what the bytes throw, and as `appendToUpload`
 */
export async function createUpload(
  deps: Deps,
  actor: TeamActor,
  { body, ...input }: NewUpload,
): Promise<{ url: SecretUrl; upload: ResumableRow }> {
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
    return { url, upload };
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
  input: Omit<NewUpload, "body">,
): Promise<{ url: SecretUrl; upload: ResumableRow }> {
  const { teamId, keyId, kind } = actor;
  const { sizeBytes, metadata, sha256, idempotencyKey: key } = input;
  const id = newId(deps.system);
  const secret = newSecret(deps.system);
  const file = { id, teamId, originalName: cleanName(input.name) };
  const bytes = { minBytes: sizeBytes, reservedBytes: sizeBytes };
  const inserted = uploadValues(deps, actor, file, bytes, MAX_RESUMABLE_MILLISECONDS, input.properties);
  // Only the key that created an upload can replace it. Line breaks separate it from the keys of form uploads.
  const idempotencyKey = key === undefined ? null : `resumable\n${keyId}\n${key}`;
  const values = { ...inserted, statedSha256: sha256, idempotencyKey };
  const row: ResumableRow = {
    fileId: id,
    teamId,
    keyId,
    isPublic: kind === "public",
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
    createdAt: values.createdAt,
    dueAt: values.createdAt + MAX_EMPTY_MILLISECONDS,
  };
  const queries = [
    insertFile({ ...row, ...values }),
    insertResumableRow({ ...values, ...row }),
    uploadState({ id, teamId }),
    unfinishedCounts({ teamId, keyId }),
  ] as const;
  const replaced = idempotencyKey === null ? [] : replaceUpload({ id, teamId, idempotencyKey, now: values.now });
  const rows = await write(deps, [...replaced, ...queries], { isIdempotent: true });
  const [, , [created], [counts]] = rows.slice(replaced.length) as unknown as RowsOf<typeof queries>;
  if (!created) throw (counts && tooManyUnfinished(row.isPublic, counts)) ?? (await quotaError(deps, values));
  return { url: { id, secret }, upload: row };
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
    const [found] = await authorizeRead(deps, credential, resumableByUrl(secretUrlValues(url)));
    if (!found) throw new AppError("not_found");
    return found;
  });
  if (row.isFinished) return row;
  if (isComplete(row)) return assembleAndCommit(deps, await authorize(deps, credential), row);
  if (row.dueAt <= deps.system.now()) throw new AppError("upload_expired");
  return row;
}

/**
 * One HEAD of an isolate polls an upload, so that many HEADs cost no more reads than one. The newest one does: when a
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
    if (hasSavedAll(before, row)) break;
    stalledPolls = hasProgressed(before, row) ? 0 : stalledPolls + 1;
  }
  return row;
}

/** A newer request without bytes is no progress: it only has a new epoch. */
const hasProgressed = (before: ResumableRow, { multipartId, offsetBytes }: ResumableRow) =>
  multipartId !== before.multipartId || offsetBytes !== before.offsetBytes;

/** A request that is writing saves a chunk only if its connection stalls. */
const hasSavedAll = (before: ResumableRow, { epoch, chunks }: ResumableRow) =>
  chunks !== null && chunks !== before.chunks && epoch === before.epoch;

/** Cancels an unfinished upload and deletes its bytes. @throws `not_found`, `forbidden` once it is finished */
export async function terminateUpload(deps: Deps, actor: TeamActor, url: SecretUrl): Promise<void> {
  const { teamId } = actor;
  const [[row]] = await read(deps, [resumableOfTeam({ ...secretUrlValues(url), teamId })]);
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
  const values = { ...secretUrlValues(url), teamId: actor.teamId };
  const now = deps.system.now();
  const { offsetBytes, sizeBytes } = input;
  const claim = { ...values, offsetBytes, minBytes: sizeBytes ?? 0, now };
  const [[claimed], [row]] = await write(deps, [claimResumable(claim), resumableOfTeam(values)], {
    isIdempotent: false,
  });
  if (!row) throw new AppError("not_found");
  if (!claimed && !row.isFinished && !isComplete(row) && row.dueAt <= now) throw new AppError("upload_expired");
  if (row.offsetBytes !== offsetBytes) {
    throw new AppError("offset_mismatch", { message: `The offset of the upload is ${row.offsetBytes}.` });
  }
  if (offsetBytes + (sizeBytes ?? 0) > row.sizeBytes) throw bodyTooLarge(row.sizeBytes);
  if (row.isFinished) return row;
  if (isComplete(row)) return assembleAndCommit(deps, actor, row);
  if (!claimed) throw new AppError("upload_expired");
  try {
    return await new Appender(deps, actor, { ...row, ...claimed }, input).run();
  } catch (error) {
    // The upload can never complete.
    if (isOfForbiddenType(error)) await deleteFile(deps, actor, row.fileId, { onlyUnfinished: true });
    throw error;
  }
}

const isOfForbiddenType = (error: unknown) => error instanceof AppError && error.code === "type_not_allowed";
