import { and, eq, gt, isNotNull, ne, not, or, sql } from "drizzle-orm";
import { type Credential, readAs, stillAllowed, type TeamActor } from "../access/authorization.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { writeWithEvent } from "../events/events.ts";
import { FILE_EVENTS } from "../files/file-event-types.ts";
import { recordedFile } from "../files/file-events.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { changed, ofKnownFile, parseTranscript, TRANSCRIPT, type Transcript } from "../files/files.ts";
import { type FileKey, isFile, MAX_WRITING_MILLISECONDS, transcriptKey } from "../files/names.ts";
import { evaluate, firstOf, hasRow, write } from "../platform/db.ts";
import { transcripts } from "./transcripts.schema.ts";

/*
 * A transcript is a WebVTT text next to the bytes of its file. It counts in `reserved_bytes` of the file, so also against the
 * quota of the team, until the file is gone.
 *
 * A write first claims the row, then writes or deletes the object, then records it. Until it ends, no other one begins: 409.
 * The claim of a write whose Worker has died ends after a minute. A deletion of the file knows of a write in progress, as for waveforms.
 */

/** An hour of speech has about 100 KB. */
export const MAX_TRANSCRIPT_BYTES = 2 * 1024 * 1024;

/** Streams the text; null if there is no object. */
export const openTranscript = (deps: Deps, file: FileKey): Promise<ReadableStream<Uint8Array> | null> =>
  deps.bytes.open(transcriptKey(file), 0, MAX_TRANSCRIPT_BYTES);

/** @throws `not_found`, also if the file has no transcript */
export async function fetchTranscript(deps: Deps, credential: Credential<"files:read">, id: string) {
  const { rows } = await readAs(deps, credential, (viewer) =>
    deps.db
      .select({ id: files.id, teamId: teamOfFile, json: TRANSCRIPT.as("json") })
      .from(files)
      .where(isFile({ ...viewer, id })),
  );
  const transcript = parseTranscript(rows[0]?.json ?? null);
  const text = transcript && rows[0] && (await openTranscript(deps, rows[0]));
  if (!text) throw new AppError("not_found");
  return { ...transcript, text };
}

const isTranscriptOf = ({ teamId, id }: FileKey) => and(eq(transcripts.teamId, teamId), eq(transcripts.fileId, id));
/** A transcript is stored, or may be. */
const mayExist = or(isNotNull(transcripts.sizeBytes), isNotNull(transcripts.writingSince));
/** The row, while the write with this version is in progress. */
const isInProgress = (file: FileKey, version: number) =>
  and(isTranscriptOf(file), eq(transcripts.version, version), isNotNull(transcripts.writingSince));
/** Whether another write is in progress. One with the same version is the same claim, repeated. */
const isClaimed = (file: FileKey, { version, writingSince }: Claim) =>
  hasRow(
    transcripts,
    and(
      isTranscriptOf(file),
      gt(transcripts.writingSince, writingSince - MAX_WRITING_MILLISECONDS),
      ne(transcripts.version, version),
    ),
  );

interface Claim {
  version: number;
  writingSince: number;
}
const newClaim = ({ system }: Deps): Claim => ({
  version: Buffer.from(system.randomBytes(6)).readUIntBE(0, 6),
  writingSince: system.now(),
});

/**
 * Reserves the space that the file and a new transcript need, and claims the row.
 * @returns the version of the write
 * @throws `not_found`, `quota_exceeded`, `conflict`
 */
async function beginWrite(deps: Deps, actor: TeamActor, id: string, sizeBytes: number): Promise<number> {
  const { db, settings } = deps;
  const claim = newClaim(deps);
  const isOfFile = isFile({ ...actor, id });
  // Until the new transcript is recorded, the previous one may still be stored.
  const neededBytes = sql`max(${files.reservedBytes}, ${files.sizeBytes} + ${sizeBytes})`;
  const maxBytes = sql`coalesce(${teams.maxBytes}, ${settings.maxTeamBytes})`;
  const exceeds = sql`${teams.bytes} - ${files.reservedBytes} + ${neededBytes} > ${maxBytes}`;
  const refusal = firstOf({
    conflict: isClaimed({ ...actor, id }, claim),
    quota_exceeded: sql`${neededBytes} > ${files.reservedBytes} and ${hasRow(teams, and(eq(teams.id, teamOfFile), exceeds))}`,
  });
  const check = db.select({ refusal }).from(files).where(isOfFile);
  const isAccepted = sql`${isOfFile} and ${refusal} is null`;
  const reserve = db
    .update(files)
    .set({ reservedBytes: neededBytes })
    .where(sql`${isAccepted} and ${neededBytes} > ${files.reservedBytes}`);
  const columns = sql`null, null, null, ${claim.writingSince}, ${claim.version}`;
  const insert = db
    .insert(transcripts)
    .select(sql`select ${teamOfFile}, ${files.id}, ${columns} from ${files} where ${isAccepted}`)
    .onConflictDoUpdate({ target: [transcripts.teamId, transcripts.fileId], set: claim });
  const {
    check: [file],
  } = await write(deps, { check, reserve, insert }, { isIdempotent: true, caller: stillAllowed(deps, actor) });
  if (!file) throw new AppError("not_found");
  if (file.refusal === "conflict") throw isBeingWritten();
  if (file.refusal === "quota_exceeded") {
    throw new AppError("quota_exceeded", { message: "Storage quota exceeded. Delete files and retry." });
  }
  return claim.version;
}

const isBeingWritten = () =>
  new AppError("conflict", { message: "The transcript is being written by another request. Retry." });

/** Claims the row of a transcript that exists, or may. @returns the version of the write @throws `not_found`, `conflict` */
async function beginDeletion(deps: Deps, actor: TeamActor, id: string): Promise<number> {
  const file = { ...actor, id };
  const claim = newClaim(deps);
  const isDeletable = and(isTranscriptOf(file), mayExist, hasRow(files, and(isFile(file))));
  const refusal = isClaimed(file, claim);
  const check = deps.db.select({ refusal }).from(transcripts).where(isDeletable);
  const update = deps.db
    .update(transcripts)
    .set(claim)
    .where(and(isDeletable, not(refusal)));
  const {
    check: [found],
  } = await write(deps, { check, update }, { isIdempotent: true, caller: stillAllowed(deps, actor) });
  if (!found) throw new AppError("not_found");
  if (found.refusal) throw isBeingWritten();
  return claim.version;
}

/** Lets another write begin at once if R2 fails. The row stays in progress: the object may have changed, or may still change. */
async function endingClaim(deps: Deps, file: FileKey, version: number, work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    const end = deps.db
      .update(transcripts)
      .set({ writingSince: deps.system.now() - MAX_WRITING_MILLISECONDS })
      .where(isInProgress(file, version));
    await write(deps, end, { isIdempotent: true, caller: null }).catch(() => undefined);
    throw error;
  }
}

/** Records what a write has stored. @throws `not_found` if the file is gone, `conflict` if another write has begun since */
async function endWrite(
  deps: Deps,
  actor: TeamActor,
  id: string,
  version: number,
  stored: Transcript | null,
): Promise<void> {
  const file = { ...actor, id };
  const { db } = deps;
  // First, because a repetition must not change the file again.
  const change = db
    .update(files)
    .set({ reservedBytes: sql`${files.sizeBytes} + ${stored?.sizeBytes ?? 0}`, ...changed(deps.system.now()) })
    .where(and(isFile(file), hasRow(transcripts, isInProgress(file, version))));
  // A file that is in the trash by now still counts the deleted one. So its deletion can be repeated after the file has returned.
  const isEnded = stored ? sql`null` : sql`iif(${hasRow(files, isFile(file))}, null, writing_since)`;
  const record = db
    .update(transcripts)
    .set({ ...(stored ?? { language: null, sizeBytes: null, updatedAt: null }), writingSince: isEnded })
    .where(and(isTranscriptOf(file), eq(transcripts.version, version)));
  const latest = sql<number>`(select ${transcripts.version} from ${transcripts} where ${isTranscriptOf(file)})`;
  const kept = evaluate(db, { id: ofKnownFile<string>(file, "id"), version: latest.as("version") });
  const updated = { type: FILE_EVENTS.updated, initiator: actor, file, fields: ["transcript"] };
  const batch = { file: recordedFile(deps, updated, change), record, kept };
  // The caller had the right when the write began. By now, the object has changed, and the row has to say so.
  const {
    kept: [row],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
  if (!row?.id) {
    // The file was deleted in the meantime.
    await deps.bytes.remove([transcriptKey(file)]);
    throw new AppError("not_found");
  }
  if (row.version !== version) throw isBeingWritten();
}

/**
 * Stores a transcript in place of the one before.
 * @param bytes WebVTT
 * @throws `not_found`, `quota_exceeded`; `conflict` if another write is in progress
 */
export async function setTranscript(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { bytes, language }: { bytes: Uint8Array; language: string | null },
): Promise<Transcript> {
  const file = { ...actor, id };
  const version = await beginWrite(deps, actor, id, bytes.length);
  await endingClaim(deps, file, version, deps.bytes.replace(transcriptKey(file), bytes));
  const stored = { language, sizeBytes: bytes.length, updatedAt: deps.system.now() };
  await endWrite(deps, actor, id, version, stored);
  return stored;
}

/** @throws `not_found`, also if there is none; `conflict` as `setTranscript` does */
export async function deleteTranscript(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  const file = { ...actor, id };
  const version = await beginDeletion(deps, actor, id);
  await endingClaim(deps, file, version, deps.bytes.remove([transcriptKey(file)]));
  await endWrite(deps, actor, id, version, null);
}
