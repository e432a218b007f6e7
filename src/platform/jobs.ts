import * as z from "zod";
import type { Log } from "./log.ts";
import { once } from "./retry.ts";

const id = z.string().regex(/^[0-9a-f]{24}$/);
/** A file may have work to do. Its row decides which, so a late or duplicate message is harmless. */
const fileJobSchema = z.strictObject({ teamId: id, fileId: id });
/** A webhook may have deliveries that are due. Its rows decide which. `at` is when the message should arrive. */
const webhookJobSchema = z.strictObject({ teamId: id, webhookId: id, at: z.number().optional() });
/** The recovery job of a database should run. */
const recoveryJobSchema = z.strictObject({ database: z.int() });
const jobSchema = z.union([fileJobSchema, webhookJobSchema, recoveryJobSchema]);

export type FileJob = z.infer<typeof fileJobSchema>;
export type WebhookJob = z.infer<typeof webhookJobSchema>;
export type RecoveryJob = z.infer<typeof recoveryJobSchema>;
export type Job = FileJob | WebhookJob | RecoveryJob;

// The limits of one sendBatch call are 100 messages and 256 KB.
const BATCH_MESSAGES = 100;

export interface Jobs<J> {
  send(job: J): Promise<void>;
  /** The messages arrive after the delay. */
  sendAll(jobs: J[], delaySeconds?: number): Promise<void>;
  /** Throws if the queue does not respond. Sends nothing. */
  check(): Promise<unknown>;
}

export function createJobs<J>(queue: Queue<J>): Jobs<J> {
  return {
    async send(job) {
      await once(() => queue.send(job));
    },
    async sendAll(jobs, delaySeconds = 0) {
      for (let i = 0; i < jobs.length; i += BATCH_MESSAGES) {
        const batch = jobs.slice(i, i + BATCH_MESSAGES).map((body) => ({ body }));
        await once(() => queue.sendBatch(batch, { delaySeconds }));
      }
    },
    check: () => queue.metrics(),
  };
}

/** The outcome for the log, or the delay before a retry. */
export type JobOutcome = string | { retryAfterSeconds: number };

const FIRST_RETRY_SECONDS = 10;
const MAX_RETRY_SECONDS = 15 * 60;

/** The delay after a number of attempts. Eleven attempts span more than an hour. */
export function retryDelaySeconds(attempts: number): number {
  return Math.min(FIRST_RETRY_SECONDS * 2 ** (attempts - 1), MAX_RETRY_SECONDS);
}

/** The fields of a message that its log lines name. */
function subjectOf(job: Job) {
  if ("database" in job) return { database: job.database };
  return "fileId" in job ? { fileId: job.fileId } : { webhookId: job.webhookId };
}

/**
 * Handles the messages of a batch. Acks or retries each one separately, so that a failure affects only its own message.
 * Never throws, because the queue would then redeliver the whole batch. Messages that violate the schema are logged and
 * acked.
 */
export async function receiveJobs(
  batch: MessageBatch,
  log: Log,
  handle: (job: Job) => Promise<JobOutcome>,
): Promise<void> {
  await Promise.all(
    batch.messages.map(async (message) => {
      const startedAt = Date.now();
      const { success, data } = jobSchema.safeParse(message.body);
      if (!success) {
        log("error", "message_rejected", { outcome: "acked" });
        message.ack();
        return;
      }
      const subject = subjectOf(data);
      try {
        const outcome = await handle(data);
        if (typeof outcome === "string") message.ack();
        else message.retry({ delaySeconds: outcome.retryAfterSeconds });
        log("info", "job_finished", {
          ...subject,
          attempts: message.attempts,
          outcome: typeof outcome === "string" ? outcome : "retried",
          durationMilliseconds: Date.now() - startedAt,
        });
      } catch (cause) {
        log("error", "job_failed", { ...subject, attempts: message.attempts, outcome: "retried", cause });
        message.retry({ delaySeconds: retryDelaySeconds(message.attempts) });
      }
    }),
  );
}
