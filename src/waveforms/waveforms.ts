import { and, eq, exists, isNotNull, isNull, lt, or, type SQL, sql } from "drizzle-orm";
import { isVisitor } from "../access/actor.ts";
import { type Credential, readAs, stillAllowed, type TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Initiator, SYSTEM, writeWithEvent } from "../events/events.ts";
import { FILE_EVENTS } from "../files/file-event-types.ts";
import { recordedFile } from "../files/file-events.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { changed, isUploadedBy, MAX_SHOWN_PEAK, ofKnownFile, SHOWN_PEAKS } from "../files/files.ts";
import {
  type FileKey,
  type FileOf,
  isFile,
  MAX_WRITING_MILLISECONDS,
  waveformKey,
  waveformOf,
} from "../files/names.ts";
import { evaluate, type Guard, read, write } from "../platform/db.ts";
import { waveforms } from "./waveforms.schema.ts";

/** Each channel has the same number of peaks, from -1 to 1. */
export type Channels = number[][];

/** A peak is stored as a signed byte. -1, 0, and 1 keep their exact values. */
const FULL_SCALE = 127;
/** Enough to distinguish all bytes. */
const DECIMALS = 3;
/** Far above the 4,001 bytes of the largest waveform that the API accepts. */
const MAX_OBJECT_BYTES = 64 * 1024;

/** The object has one byte for the number of channels, then the peaks of each channel. */
const pack = (channels: Channels): Uint8Array =>
  Uint8Array.from([channels.length, ...channels.flat().map((peak) => Math.round(peak * FULL_SCALE))]);

function unpack([channelCount = 1, ...bytes]: Uint8Array): Channels {
  const peaks = Array.from(Int8Array.from(bytes), (byte) => Number((byte / FULL_SCALE).toFixed(DECIMALS)));
  const length = peaks.length / channelCount;
  return Array.from({ length: channelCount }, (_, i) => peaks.slice(i * length, (i + 1) * length));
}

/**
 * The mean peak of each part of the file, in its louder channel: the loudest one would be the same in each part of a long
 * recording of speech. A short waveform repeats its peaks.
 */
export function shownPeaks(channels: Channels): Buffer {
  const length = channels[0]?.length ?? 0;
  const levelOf = (part: number) => {
    const start = Math.floor((part * length) / SHOWN_PEAKS);
    const end = Math.max(start + 1, Math.floor(((part + 1) * length) / SHOWN_PEAKS));
    const meanOf = (peaks: number[]) =>
      peaks.slice(start, end).reduce((sum, peak) => sum + Math.abs(peak), 0) / (end - start);
    return Math.max(...channels.map(meanOf));
  };
  return Buffer.from(Array.from({ length: SHOWN_PEAKS }, (_, part) => Math.round(levelOf(part) * MAX_SHOWN_PEAK)));
}

/** @throws `not_found`, also if the file has no waveform */
export async function fetchWaveform(deps: Deps, credential: Credential<"files:read">, id: string): Promise<Channels> {
  const { rows } = await readAs(deps, credential, (viewer) =>
    deps.db
      .select({ id: files.id, teamId: teamOfFile, hasWaveform })
      .from(files)
      .where(isFile({ ...viewer, id })),
  );
  const channels = rows[0] && (await readWaveform(deps, rows[0]));
  if (!channels) throw new AppError("not_found");
  return channels;
}

export const hasWaveform = sql<0 | 1>`${waveformOf(sql`${waveforms.peaks} is not null`)} is 1`.as("hasWaveform");

/** Reads the waveform of a listed file; null if it has none. */
export async function readWaveform(deps: Deps, file: FileKey & { hasWaveform: 0 | 1 }): Promise<Channels | null> {
  if (file.hasWaveform === 0) return null;
  const bytes = await deps.bytes.read(waveformKey(file), 0, MAX_OBJECT_BYTES);
  return bytes && unpack(bytes);
}

export const isWaveformOf = ({ teamId, id }: FileKey) => and(eq(waveforms.teamId, teamId), eq(waveforms.fileId, id));

/** A waveform that never replaces one that the team has set: measured by the service, or set by a visitor. */
interface Yielding {
  /** The object that it may replace, by its etag. Null if there was none before it. */
  previousEtag: string | null;
  /** Which files are the visitor's, who replaces no waveform. */
  isOfVisitor?: SQL | undefined;
}

/**
 * Stores a waveform in place of the one before: first that a write began, then the object, then that it is stored. So a file
 * has a waveform only once its object is in R2. A deletion knows of a write in progress: the recovery job deletes the object
 * again that a dead Worker wrote. A yielding waveform never replaces one that the team has set, or sets at the same time.
 * @returns the stored waveform; null if the file is gone, or another waveform stays
 */
async function storeWaveform(
  deps: Deps,
  initiator: Initiator,
  file: FileOf,
  channels: Channels,
  caller: Guard | null,
  yielding?: Yielding,
): Promise<Channels | null> {
  const isWaveform = isWaveformOf(file);
  const now = deps.system.now();
  const writingSince = now;
  const isUnset = isNotNull(waveforms.attempts);
  const isIdle = or(isNull(waveforms.writingSince), lt(waveforms.writingSince, now - MAX_WRITING_MILLISECONDS));
  const { isOfVisitor } = yielding ?? {};
  const target = sql`${files} where ${and(isFile(file), isOfVisitor)}`;
  const begin = deps.db
    .insert(waveforms)
    .select(sql`select ${teamOfFile}, ${files.id}, null, ${writingSince}, 0, null from ${target}`)
    .onConflictDoUpdate({
      target: [waveforms.teamId, waveforms.fileId],
      set: { writingSince },
      ...(yielding && { setWhere: and(isUnset, isIdle, isOfVisitor && isNull(waveforms.peaks)) as SQL }),
    })
    .returning({ fileId: waveforms.fileId });
  const begun = await write(deps, begin, { isIdempotent: true, caller });
  if (begun.length === 0) return null;
  const bytes = pack(channels);
  const isStored = await deps.bytes.replace(waveformKey(file), bytes, yielding?.previousEtag);
  if (!isStored) return null;
  // A later write that has begun stays in progress. It will have the event.
  const isLast = and(isWaveform, eq(waveforms.writingSince, writingSince), yielding && isUnset);
  const note = deps.db
    .update(files)
    .set(changed(now))
    .where(and(isFile(file), exists(deps.db.select().from(waveforms).where(isLast))));
  const finish = deps.db
    .update(waveforms)
    .set({
      peaks: shownPeaks(channels),
      writingSince: sql`nullif(${waveforms.writingSince}, ${writingSince})`,
      ...(!yielding && { attempts: null }),
      // The service still measures a visitor's file, if it can.
      ...(!isOfVisitor && { dueAt: null }),
    })
    .where(yielding ? isLast : isWaveform)
    .returning({ fileId: waveforms.fileId });
  const kept = evaluate(deps.db, { id: ofKnownFile<string>(file, "id") });
  const updated = { type: FILE_EVENTS.updated, initiator, file, fields: ["waveform"] };
  const batch = { note: recordedFile(deps, updated, note), finish, kept };
  // The caller had the right when the write began. By now, the object has changed, and the row has to say so.
  const {
    finish: finished,
    kept: [row],
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
  if (!row?.id) {
    // The file was deleted in the meantime.
    await deps.bytes.remove([waveformKey(file)]);
    return null;
  }
  return finished.length > 0 ? unpack(bytes) : null;
}

/**
 * Sets the waveform of a file. A visitor sets the first one of a file that it uploaded.
 * @returns the stored waveform
 * @throws `not_found`; `forbidden` if a visitor's file has a waveform
 */
export async function setWaveform(deps: Deps, actor: TeamActor, id: string, channels: Channels): Promise<Channels> {
  const file = { ...actor, id };
  const isOfVisitor = isVisitor(actor) ? isUploadedBy(actor) : undefined;
  const yielding = isOfVisitor && { previousEtag: null, isOfVisitor };
  const stored = await storeWaveform(deps, actor, file, channels, stillAllowed(deps, actor), yielding);
  if (stored) return stored;
  if (isOfVisitor) {
    const [own] = await read(
      deps,
      deps.db
        .select({ id: files.id })
        .from(files)
        .where(and(isFile(file), isOfVisitor)),
    );
    if (own) throw new AppError("forbidden", { message: "The file has a waveform. Only its team can replace it." });
  }
  throw new AppError("not_found");
}

/** @returns whether it is stored, and no client's waveform stays */
export const setMeasuredWaveform = async (deps: Deps, file: FileOf, channels: Channels, measured: Yielding) =>
  (await storeWaveform(deps, SYSTEM, file, channels, null, measured)) !== null;
