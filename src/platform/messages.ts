import * as z from "zod";
import { lazy } from "../lazy.ts";
import type { Messages } from "./jobs.ts";

/* The messages of the queues. The rows determine the work, so a late or duplicate message is harmless. */

const id = lazy(() => z.string().regex(/^[0-9a-f]{24}$/));
/** A file may have work to do. */
const fileJobSchema = lazy(() => z.strictObject({ teamId: id(), fileId: id() }));
/** The waveform of a file may have to be measured. Only one message begins each attempt. */
const waveformJobSchema = lazy(() => z.strictObject({ teamId: id(), fileId: id(), attempt: z.int() }));
/** The recovery job of a database should run. */
const recoveryJobSchema = lazy(() => z.strictObject({ database: z.int() }));

export type FileJob = z.infer<ReturnType<typeof fileJobSchema>>;
export type WaveformJob = z.infer<ReturnType<typeof waveformJobSchema>>;
export type RecoveryJob = z.infer<ReturnType<typeof recoveryJobSchema>>;
export type Job = FileJob | WaveformJob | RecoveryJob;

export const jobMessages: Messages<Job> = {
  schema: lazy(() => z.union([fileJobSchema(), waveformJobSchema(), recoveryJobSchema()])),
  subjectOf: (job) => ("database" in job ? { database: job.database } : { fileId: job.fileId }),
};
