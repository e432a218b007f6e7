import { and, eq, isNotNull, lte, not, sql } from "drizzle-orm";
import { isMeasurable, measurePeaks } from "../audio/decoders/measure.ts";
import type { Audio } from "../audio/inspect.ts";
import type { AfterCompletion, CompletedFile, Deps, RecoveryStep } from "../deps.ts";
import { AppError } from "../errors.ts";
import { hasLasting } from "../files/beside.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { type FileKey, type FileOf, isFile, objectKey } from "../files/names.ts";
import { hasRow, write } from "../platform/db.ts";
import type { JobOutcome } from "../platform/jobs.ts";
import type { WaveformJob } from "../platform/messages.ts";
import { HOUR, MINUTE } from "../platform/system.ts";
import { measurements } from "./measurements.schema.ts";
import { setMeasuredWaveform } from "./waveforms.ts";

/*
 * The service measures the waveforms of files that it can decode, in a queue after that of processing. A file whose waveform
 * can't be measured is as good as any other.
 */

/** If reading or storing fails, another attempt follows, up to this many. */
const MAX_ATTEMPTS = 3;
/** After this, the recovery job sends a message again: it was lost, or the attempt failed. */
const RESEND_MILLISECONDS = HOUR;
/** No consumer runs longer (Cloudflare's limit), so one that holds the isolate for longer has died. */
const MAX_DECODING_MILLISECONDS = 15 * MINUTE;
/** How long a message waits if its isolate decodes another file. */
const BUSY_SECONDS = 15;
/** Rows of one batch. */
const DUE_WAVEFORM_ROWS = 500;

/** A file whose waveform is due to be measured. */
const MEASUREMENT = {
  teamId: measurements.teamId,
  fileId: measurements.fileId,
  attempt: sql<number>`${measurements.attempts}`.as("attempt"),
};

const isMeasurementOf = ({ teamId, id }: FileKey) => and(eq(measurements.teamId, teamId), eq(measurements.fileId, id));
/** No client has set a waveform that the measured one could not replace. */
const isOpen = not(hasLasting("waveform"));

/**
 * The consequence of a completed file: its waveform is due to be measured, unless a client has set it. Reprocessing measures it
 * again.
 */
export function planMeasurement(deps: Deps, { file, audio }: CompletedFile) {
  const isPlanned = audio !== null && isMeasurable(audio, file.sizeBytes);
  const dueAt = deps.system.now() + RESEND_MILLISECONDS;
  const isCompleted = and(isFile(file), eq(files.claim, file.claim), eq(files.status, "completed"), isOpen);
  const plan = deps.db
    .insert(measurements)
    .select(sql`select ${teamOfFile}, ${files.id}, 0, ${dueAt} from ${files} where ${isCompleted}`)
    .onConflictDoUpdate({ target: [measurements.teamId, measurements.fileId], set: { attempts: 0, dueAt } })
    .returning(MEASUREMENT);
  const after = isPlanned ? [plan] : [];
  return {
    after,
    committed: (rows) => enqueueMeasurements(deps, rows.flat()),
  } satisfies AfterCompletion<typeof after>;
}

/** Nothing waits for the queue. If a message is lost, the recovery job sends it. */
function enqueueMeasurements(deps: Deps, jobs: WaveformJob[]): void {
  if (jobs.length === 0) return;
  const sent = deps.waveformJobs.sendAll(jobs).catch((cause) => {
    for (const { fileId } of jobs) deps.log("warn", "waveform_message_failed", { fileId, cause });
  });
  deps.after(sent);
}

/** Sends the messages of waveforms that are overdue. */
async function resendMeasurements(deps: Deps) {
  const now = deps.system.now();
  const due = deps.db
    .select({ teamId: measurements.teamId, fileId: measurements.fileId })
    .from(measurements)
    .where(lte(measurements.dueAt, now))
    .orderBy(measurements.dueAt)
    .limit(DUE_WAVEFORM_ROWS);
  const postpone = deps.db
    .update(measurements)
    .set({ dueAt: now + RESEND_MILLISECONDS })
    .where(sql`(${measurements.teamId}, ${measurements.fileId}) in ${due}`)
    .returning(MEASUREMENT);
  const jobs = await write(deps, postpone, { isIdempotent: true, caller: null });
  if (jobs.length > 0) await deps.waveformJobs.sendAll(jobs);
  return { waveforms: jobs.length };
}

export const unmeasuredFiles: RecoveryStep = {
  name: "waveforms",
  counts: ["waveforms"],
  runBatch: resendMeasurements,
  maxBatches: 20,
  queries: 1,
};

/** A file, as its measurement needs it. */
type Claimed = FileOf & { originalName: string; sizeBytes: number; audio: string | null };

/**
 * Runs one job: measures the waveform of a file, and stores it unless a client has set one. The attempt is counted before it
 * begins, and is the last one until it fails with an error: a file whose decoding kills the consumer would stop another isolate
 * each time. A duplicate or late message finds another count.
 */
export async function measureWaveform(deps: Deps, job: WaveformJob): Promise<JobOutcome> {
  // Not awaited: if the other invocation is canceled, its promise never settles.
  if (deps.decoding.endsAt > deps.system.now()) {
    // A new message, because one that is retried ends after the retries of the queue.
    await deps.waveformJobs.sendAll([job], BUSY_SECONDS);
    return "waiting";
  }
  deps.decoding.endsAt = deps.system.now() + MAX_DECODING_MILLISECONDS;
  try {
    const file = await claim(deps, job);
    return file ? await measure(deps, file, job.attempt + 1) : "not_claimed";
  } finally {
    deps.decoding.endsAt = 0;
  }
}

/** Begins an attempt, after which nothing is due until it fails. @returns null if there is nothing to measure */
async function claim(deps: Deps, { teamId, fileId, attempt }: WaveformJob): Promise<Claimed | null> {
  const key = { teamId, id: fileId, ownerId: null };
  const isDue = and(isMeasurementOf(key), eq(measurements.attempts, attempt), isNotNull(measurements.dueAt));
  const begin = deps.db
    .update(measurements)
    .set({ attempts: attempt + 1, dueAt: null })
    .where(and(isDue, hasRow(files, isFile(key))))
    .returning({ fileId: measurements.fileId });
  const { originalName, sizeBytes, audio } = files;
  const select = deps.db
    .select({ originalName, sizeBytes, audio })
    .from(files)
    .where(and(isFile(key), isOpen));
  const {
    begin: [begun],
    select: [file],
  } = await write(deps, { begin, select }, { isIdempotent: false, caller: null });
  return begun && file ? { ...key, ...file } : null;
}

async function measure(deps: Deps, file: Claimed, attempts: number): Promise<string> {
  try {
    const read = async (offset: number, length: number) => {
      const bytes = await deps.bytes.read(objectKey(file), offset, length);
      if (!bytes) throw new AppError("unavailable", { cause: new Error("The object disappeared while it was read.") });
      return bytes;
    };
    // While it is processed again it has no audio, and then a new attempt follows.
    const audio: Audio | null = file.audio === null ? null : JSON.parse(file.audio);
    const channels = audio && (await measurePeaks(read, file.sizeBytes, audio));
    if (channels) {
      return (await setMeasuredWaveform(deps, file, channels)) ? "measured" : "superseded";
    }
    return "unmeasurable";
  } catch (cause) {
    deps.log("warn", "waveform_postponed", { fileId: file.id, teamId: file.teamId, attempts, cause });
    if (attempts < MAX_ATTEMPTS) await planNextAttempt(deps, file, attempts);
    return "postponed";
  }
}

/** The recovery job sends the message of the next attempt. */
async function planNextAttempt(deps: Deps, file: FileOf, attempts: number): Promise<void> {
  const plan = deps.db
    .update(measurements)
    .set({ dueAt: deps.system.now() + RESEND_MILLISECONDS })
    .where(and(isMeasurementOf(file), eq(measurements.attempts, attempts)));
  await write(deps, plan, { isIdempotent: true, caller: null });
}
