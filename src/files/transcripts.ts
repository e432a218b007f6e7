import { and, eq, isNotNull, or, sql } from "drizzle-orm";
import { authorizeRead, type Credential, type TeamActor } from "../access/authorization.ts";
import { filesOfToken } from "../access/own-files.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { writeWithEvent } from "../events/events.ts";
import { firstOf, hasRow, write } from "../platform/db.ts";
import { fileEvent } from "./file-events.ts";
import { files, isListed, teamOfFile } from "./files.schema.ts";
import { changed, ofKnownFile, parseTranscript, TRANSCRIPT, type Transcript } from "./files.ts";
import { type FileKey, isFile, transcriptKey } from "./names.ts";
import { transcripts } from "./transcripts.schema.ts";

/*
 * A transcript is a WebVTT text next to the bytes of its file. It counts in `reserved_bytes` of the file, so also against the
 * quota of the team, until the file is gone.
 *
 * A write first claims the row, then writes or deletes the object, then records it. If another write has claimed the row in
 * the meantime, either object may be the one that is stored: so the write starts over, and the last that began records what
 * is stored. A deletion of the file knows of a write in progress, as for waveforms.
 */

/** An hour of speech has about 100 KB. */
export const MAX_TRANSCRIPT_BYTES = 2 * 1024 * 1024;
/** Writes of the same transcript that may overtake a request. */
const MAX_ATTEMPTS = 5;

/** Streams the text; null if there is no object. */
export const openTranscript = (deps: Deps, file: FileKey): Promise<ReadableStream<Uint8Array> | null> =>
  deps.bytes.open(transcriptKey(file), 0, MAX_TRANSCRIPT_BYTES);

/** @throws `not_found`, also if the file has no transcript */
export async function fetchTranscript(deps: Deps, credential: Credential<"files:read">, id: string) {
  const { rows } = await authorizeRead(deps, credential, (_, token) =>
    deps.db
      .select({ id: files.id, teamId: teamOfFile, json: TRANSCRIPT.as("json") })
      .from(files)
      .where(and(filesOfToken(deps.db, token), eq(files.id, id), isListed)),
  );
  const transcript = parseTranscript(rows[0]?.json ?? null);
  const text = transcript && rows[0] && (await openTranscript(deps, rows[0]));
  if (!text) throw new AppError("not_found");
  return { ...transcript, text };
}

const isTranscriptOf = ({ teamId, id }: FileKey) => and(eq(transcripts.teamId, teamId), eq(transcripts.fileId, id));
/** One is stored, or may be. */
const mayExist = or(isNotNull(transcripts.sizeBytes), isNotNull(transcripts.writingSince));
const isInProgress = (file: FileKey, version: number) =>
  hasRow(transcripts, and(isTranscriptOf(file), eq(transcripts.version, version), isNotNull(transcripts.writingSince)));

/** Reserves the space that the file and a new transcript need, and claims the row. @returns the number of the write */
async function beginWrite(deps: Deps, actor: TeamActor, id: string, sizeBytes: number): Promise<number> {
  const { db, settings, system } = deps;
  const isListedFile = and(isFile({ ...actor, id }), isListed);
  // That of the previous one until this is recorded: either may be stored.
  const neededBytes = sql`max(${files.reservedBytes}, ${files.sizeBytes} + ${sizeBytes})`;
  const maxBytes = sql`coalesce(${teams.maxBytes}, ${settings.maxTeamBytes})`;
  const exceeds = sql`${teams.bytes} - ${files.reservedBytes} + ${neededBytes} > ${maxBytes}`;
  const refusal = firstOf({
    quota_exceeded: sql`${neededBytes} > ${files.reservedBytes} and ${hasRow(teams, and(eq(teams.id, teamOfFile), exceeds))}`,
  });
  const check = db.select({ refusal }).from(files).where(isListedFile);
  const isAccepted = sql`${isListedFile} and ${refusal} is null`;
  const reserve = db
    .update(files)
    .set({ reservedBytes: neededBytes })
    .where(sql`${isAccepted} and ${neededBytes} > ${files.reservedBytes}`);
  const writingSince = system.now();
  const claim = db
    .insert(transcripts)
    .select(
      sql`select ${teamOfFile}, ${files.id}, null, null, null, ${writingSince}, 1 from ${files} where ${isAccepted}`,
    )
    .onConflictDoUpdate({
      target: [transcripts.teamId, transcripts.fileId],
      set: { writingSince, version: sql`${transcripts.version} + 1` },
    })
    .returning({ version: transcripts.version });
  const [[file], , [claimed]] = await write(deps, [check, reserve, claim], { isIdempotent: true });
  if (file?.refusal === "quota_exceeded") {
    throw new AppError("quota_exceeded", { message: "Storage quota exceeded. Delete files and retry." });
  }
  if (!claimed) throw new AppError("not_found");
  return claimed.version;
}

/** Claims the row of a transcript that exists, or may. @returns the number of the write */
async function beginDeletion(deps: Deps, actor: TeamActor, id: string): Promise<number> {
  const file = { ...actor, id };
  const claim = deps.db
    .update(transcripts)
    .set({ writingSince: deps.system.now(), version: sql`${transcripts.version} + 1` })
    .where(and(isTranscriptOf(file), mayExist, hasRow(files, and(isFile(file), isListed))))
    .returning({ version: transcripts.version });
  const [[claimed]] = await write(deps, [claim], { isIdempotent: true });
  if (!claimed) throw new AppError("not_found");
  return claimed.version;
}

/** Records what a write has stored. @returns whether no other write has begun since @throws `not_found` if the file is gone */
async function endWrite(deps: Deps, actor: TeamActor, id: string, version: number, stored: Transcript | null) {
  const file = { ...actor, id };
  const { db } = deps;
  // First, because a repetition must not change the file again.
  const change = db
    .update(files)
    .set({ reservedBytes: sql`${files.sizeBytes} + ${stored?.sizeBytes ?? 0}`, ...changed(deps.system.now()) })
    .where(and(isFile(file), isListed, isInProgress(file, version)));
  const record = db
    .update(transcripts)
    .set({ ...(stored ?? { language: null, sizeBytes: null, updatedAt: null }), writingSince: null })
    .where(and(isTranscriptOf(file), eq(transcripts.version, version)));
  const latest = sql<number>`(select ${transcripts.version} from ${transcripts} where ${isTranscriptOf(file)})`;
  const kept = db
    .select({ id: ofKnownFile<string>(file, "id"), version: latest.as("version") })
    .from(sql`(select 1) one`);
  const event = fileEvent(deps, "file.updated", actor, file, { fields: ["transcript"] });
  const [, , [row]] = await writeWithEvent(deps, event, [change, record, kept], { isIdempotent: true });
  if (!row?.id) {
    // The file was deleted in the meantime.
    await deps.bytes.remove([transcriptKey(file)]);
    throw new AppError("not_found");
  }
  return row.version === version;
}

/**
 * Stores a transcript in place of the one before.
 * @param bytes WebVTT
 * @throws `not_found`, `quota_exceeded`; `conflict` if other writes kept overtaking this one
 */
export async function setTranscript(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { bytes, language }: { bytes: Uint8Array; language: string | null },
): Promise<Transcript> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const version = await beginWrite(deps, actor, id, bytes.length);
    await deps.bytes.replace(transcriptKey({ ...actor, id }), bytes);
    const stored = { language, sizeBytes: bytes.length, updatedAt: deps.system.now() };
    if (await endWrite(deps, actor, id, version, stored)) return stored;
  }
  throw new AppError("conflict");
}

/** @throws `not_found`, also if there is none; `conflict` as `setTranscript` does */
export async function deleteTranscript(deps: Deps, actor: TeamActor, id: string): Promise<void> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const version = await beginDeletion(deps, actor, id);
    await deps.bytes.remove([transcriptKey({ ...actor, id })]);
    if (await endWrite(deps, actor, id, version, null)) return;
  }
  throw new AppError("conflict");
}
