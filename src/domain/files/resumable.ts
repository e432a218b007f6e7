import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { PART_BYTES } from "../../platform/byte-store.ts";
import { insertWhere, type Param, preparedQuery, read, rowOf, write } from "../../platform/db.ts";
import { files, uploads } from "../../platform/schema.ts";
import { fingerprint } from "../../platform/secrets.ts";
import { newId } from "../../platform/system.ts";
import { authorize, authorizeRead, type Credential, type TeamActor } from "../accounts/authorization.ts";
import { type Append, Appending, finish, tooLong } from "./appending.ts";
import { deleteFile } from "./files.ts";
import { uploadState } from "./idempotency.ts";
import { cleanName } from "./names.ts";
import {
  type AddressValues,
  claimResumable,
  isWhole,
  MAX_EMPTY_MILLISECONDS,
  MAX_RESUMABLE_MILLISECONDS,
  MAX_UNFINISHED_MILLISECONDS,
  type ResumableRow,
  type ResumableUpload,
  resumableAt,
  resumableOfTeam,
  view,
} from "./resumable-rows.ts";
import { canReserve, maxPublicBytes, type ReservationValues, reservationError, reservedByTeam } from "./unfinished.ts";
import { insertReceiving, type UploadValues, uploadValues } from "./upload.ts";

/*
 * An upload that may come in many requests. Its file begins, is committed and is enqueued as that of a form (upload.ts);
 * between the two, each request
 *
 *   1. claims   one conditional update: the offset is the one that the client names, and `epoch` is one more. A request
 *               that still writes under an older epoch saves nothing from then on
 *   2. goes on  with what lies behind the last full part, the stash, in front of what comes
 *   3. saves    each full part once R2 has it: row of the part and new offset in one batch, under its epoch
 *   4. leaves   what is no full part at its end, when the line breaks or has gone silent, in a stash of its own, and saves
 *               the offset
 *
 * An offset is told only after it was saved, so it never falls. No key and no part number is used by two requests, so one
 * that is fenced off overwrites nothing; the file's own key is given bytes where there are none, by a `put` of all of
 * them that only its own epoch may commit, or by putting together the parts that the rows name. The last byte's request
 * commits the file; where it died before, whoever comes next does: HEAD, PATCH or recovery. Recovery also ends what has
 * expired, and clears away what requests that died have left: every object of an upload but its file's bytes begins with
 * `stashPrefix`. A Worker that dies once R2 has begun a multipart upload, and before a row has R2's id of it, leaves that
 * to R2, which drops it after seven days: only R2 makes the id, and no binding lists them.
 */

/** How often HEAD polls a request that is still writing. A poll is one read of D1. */
const POLL_MILLISECONDS = 250;
/** A request that makes no progress for this long has died, or has nothing left to save. */
const MAX_STALLED_MILLISECONDS = 2000;
/** HEAD waits at most this long for a request that makes progress. It may be another client's. */
const MAX_WAITED_MILLISECONDS = 30_000;
const SECRET_BYTES = 16;
const MEBIBYTE = 1024 * 1024;
/** Of an upload, leaving numbers for parts that were sent in vain: R2 takes 10,000. */
const MAX_PARTS = 2500;

/** What the address of an upload says. */
export interface Address {
  id: string;
  secret: string;
}

type NewValues = UploadValues & ResumableRow & ReservationValues;

const insertFile = preparedQuery((db, param: Param<NewValues>) => insertReceiving(db, param, canReserve(db, param)));
const insertResumableRow = preparedQuery((db, param: Param<NewValues>) => {
  const begun = db
    .select({ one: sql`1` })
    .from(files)
    .where(and(eq(files.teamId, param("teamId")), eq(files.id, param("fileId"))));
  return insertWhere(db, uploads, rowOf(uploads, param), sql`exists ${begun}`);
});

interface NewUpload {
  name: string;
  sizeBytes: number;
  metadata: string;
  sha256: string | null;
  /** The first bytes, where they come along. */
  body?: Omit<Append, "offsetBytes">;
}

/**
 * One whose first bytes fail, or break off, goes with them: nobody was told its address.
 * @throws `quota_exceeded`, `file_limit_reached`, `too_many_unfinished_uploads`, what the bytes throw, and as `appendToUpload`
 */
export async function createUpload(
  deps: Deps,
  actor: TeamActor,
  { body, ...input }: NewUpload,
): Promise<{ address: Address; upload: ResumableUpload }> {
  const created = await insertResumable(deps, actor, input);
  if (!body) return created;
  const { address } = created;
  let failure: unknown;
  async function* watched({ bytes }: Pick<Append, "bytes">) {
    try {
      yield* bytes;
    } catch (error) {
      failure = error;
      throw error;
    }
  }
  try {
    const upload = await appendToUpload(deps, actor, address, { ...body, bytes: watched(body), offsetBytes: 0 });
    if (failure !== undefined && !upload.isFinished) throw failure;
    return { address, upload };
  } catch (error) {
    await terminateUpload(deps, actor, address).catch((cause) =>
      deps.log("warn", "upload left to recovery", { fileId: address.id, cause }),
    );
    // Nobody else knows the address: it is a failure of ours that the upload was found at another place.
    if (error instanceof AppError && error.code === "offset_mismatch")
      throw new AppError("unavailable", { cause: error });
    throw error;
  }
}

async function insertResumable(
  deps: Deps,
  { teamId, keyId, kind }: TeamActor,
  input: Omit<NewUpload, "body">,
): Promise<{ address: Address; upload: ResumableUpload }> {
  const { sizeBytes, metadata, sha256 } = input;
  const id = newId(deps.system);
  const secret = Buffer.from(deps.system.randomBytes(SECRET_BYTES)).toString("hex");
  const file = { id, teamId, originalName: cleanName(input.name) };
  const values = { ...uploadValues(deps, file, sizeBytes, MAX_RESUMABLE_MILLISECONDS), statedSha256: sha256 };
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
    partialPart: null,
    epoch: 0,
    isWriting: false,
    isFinished: false,
    hasLeftovers: false,
    createdAt: values.createdAt,
    dueAt: values.createdAt + MAX_EMPTY_MILLISECONDS,
  };
  const reservation = { ...row, maxPublicBytes: maxPublicBytes(deps) };
  const queries = [
    insertFile({ ...reservation, ...values }),
    insertResumableRow({ ...values, ...reservation }),
    uploadState({ id, teamId }),
    reservedByTeam({ teamId }),
  ] as const;
  const [, , own, [reserved]] = await write(deps, queries, { isIdempotent: true });
  if (own.length === 0) throw await reservationError(deps, reservation, reserved);
  return { address: { id, secret }, upload: view(row) };
}

const addressValues = ({ id, secret }: Address): AddressValues => ({ id, secretHash: fingerprint(secret) });

/**
 * Returns the progress of the upload, and assembles one that has all of its bytes. A client that asks while a request
 * still writes has lost that request. So that its bytes count, HEAD waits until it has ended, has saved all it received,
 * or makes no more progress.
 * @throws `not_found`, `upload_expired`
 */
export async function fetchUpload(
  deps: Deps,
  credential: Credential<"upload">,
  address: Address,
): Promise<ResumableUpload> {
  const poll = async () => (await authorizeRead(deps, credential, resumableAt(addressValues(address))))[0];
  let row = await poll();
  let stalledMilliseconds = 0;
  for (let waitedMilliseconds = 0; row?.isWriting; ) {
    if (stalledMilliseconds >= MAX_STALLED_MILLISECONDS || waitedMilliseconds >= MAX_WAITED_MILLISECONDS) break;
    await deps.system.sleep(POLL_MILLISECONDS);
    waitedMilliseconds += POLL_MILLISECONDS;
    const before: ResumableRow = row;
    row = await poll();
    if (row && hasSavedAll(before, row)) break;
    stalledMilliseconds = row && hasProgressed(before, row) ? 0 : stalledMilliseconds + POLL_MILLISECONDS;
  }
  if (!row) throw new AppError("not_found");
  if (row.isFinished) return view(row);
  if (isWhole(row)) return finish(deps, await authorize(deps, credential), row);
  if (row.dueAt <= deps.system.now()) throw new AppError("upload_expired");
  return view(row);
}

const hasProgressed = (before: ResumableRow, { epoch, multipartId, offsetBytes }: ResumableRow) =>
  epoch !== before.epoch || multipartId !== before.multipartId || offsetBytes !== before.offsetBytes;

/** A request that is writing saves a partial part only if its connection stalls. */
const hasSavedAll = (before: ResumableRow, { epoch, partialPart }: ResumableRow) =>
  partialPart !== null && partialPart !== before.partialPart && epoch === before.epoch;

/** Removes an unfinished upload and all that there is of it. @throws `not_found`, `forbidden` once it is finished */
export async function terminateUpload(deps: Deps, actor: TeamActor, address: Address): Promise<void> {
  const { teamId } = actor;
  const [[row]] = await read(deps, [resumableOfTeam({ ...addressValues(address), teamId })]);
  if (!row) throw new AppError("not_found");
  if (row.isFinished) throw new AppError("forbidden", { message: "The upload is complete: delete the file." });
  await deleteFile(deps, actor, row.fileId, { isReceiving: true }).catch((error) => {
    // It was finished in between, or deleted: then it is looked at once more.
    if (error instanceof AppError && error.code === "not_found") return terminateUpload(deps, actor, address);
    throw error;
  });
}

/**
 * Takes bytes at the offset at which the upload stands, and answers how far it has come. The transport keeps the
 * invocation alive until this settles.
 * @throws `not_found`, `upload_expired`, `offset_mismatch`, also where a newer request has taken over, `body_too_large`
 */
export async function appendToUpload(
  deps: Deps,
  actor: TeamActor,
  address: Address,
  append: Append,
): Promise<ResumableUpload> {
  const values = { ...addressValues(address), teamId: actor.teamId };
  const now = deps.system.now();
  const { offsetBytes, sizeBytes } = append;
  const claim = { ...values, offsetBytes, minBytes: sizeBytes ?? 0, now, dueAt: now + MAX_UNFINISHED_MILLISECONDS };
  const [[claimed], [row]] = await write(deps, [claimResumable(claim), resumableOfTeam(values)], {
    isIdempotent: false,
  });
  if (!row) throw new AppError("not_found");
  if (!claimed && !row.isFinished && !isWhole(row) && row.dueAt <= now) throw new AppError("upload_expired");
  if (row.offsetBytes !== offsetBytes) {
    throw new AppError("offset_mismatch", { message: `The upload stands at ${row.offsetBytes} bytes.` });
  }
  if (offsetBytes + (sizeBytes ?? 0) > row.sizeBytes) throw tooLong(row.sizeBytes);
  if (row.isFinished) return view(row);
  if (isWhole(row)) return finish(deps, actor, row);
  if (!claimed) throw new AppError("upload_expired");
  return new Appending(deps, actor, { ...row, ...claimed }, append).run();
}
