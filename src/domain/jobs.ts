import * as z from "zod";
import type { Messages } from "../platform/jobs.ts";

/* The messages of the queues. The rows decide what is done, so a late or duplicate message is harmless. */

const id = z.string().regex(/^[0-9a-f]{24}$/);
/** A file may have work to do. */
const fileJobSchema = z.strictObject({ teamId: id, fileId: id });
/** A webhook may have deliveries that are due. `at` is when the message should arrive. */
const webhookJobSchema = z.strictObject({ teamId: id, webhookId: id, at: z.number().optional() });

export type FileJob = z.infer<typeof fileJobSchema>;
export type WebhookJob = z.infer<typeof webhookJobSchema>;
export type Job = FileJob | WebhookJob;

export const jobMessages: Messages<Job> = {
  schema: z.union([fileJobSchema, webhookJobSchema]),
  subjectOf: (job) => ("fileId" in job ? { fileId: job.fileId } : { webhookId: job.webhookId }),
};
