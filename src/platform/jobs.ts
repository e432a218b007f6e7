import * as z from "zod";
import type { Log } from "./log.ts";
import { once } from "./retry.ts";

const id = z.string().regex(/^[0-9a-f]{24}$/);
/** What a message says: a file has work to do. All else is read from its row, so a late message does no harm. */
const fileJobSchema = z.strictObject({ fileId: id, teamId: id.optional() });
/** The same of a webhook's delivery of the event `seq`. */
const deliveryJobSchema = z.strictObject({ teamId: id, webhookId: id, seq: z.int().positive() });
const jobSchema = z.union([fileJobSchema, deliveryJobSchema]);

/** One of the release before names no team. */
export type ReceivedFileJob = z.infer<typeof fileJobSchema>;
export interface FileJob {
  teamId: string;
  fileId: string;
}
export type DeliveryJob = z.infer<typeof deliveryJobSchema>;
export type ReceivedJob = ReceivedFileJob | DeliveryJob;

// The limits of one sendBatch call are 100 messages and 256 KB.
const BATCH_MESSAGES = 100;

export interface Jobs<Job> {
  send(job: Job): Promise<void>;
  /** They arrive after the delay. */
  sendAll(jobs: Job[], delaySeconds?: number): Promise<void>;
}

export function createJobs<Job>(queue: Queue<Job>): Jobs<Job> {
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
  };
}

/** What became of a job: when to try it again, or a word for the log. */
export type JobOutcome = string | { retryAfterSeconds: number };

const FIRST_RETRY_SECONDS = 10;
const MAX_RETRY_SECONDS = 15 * 60;

/** How long to wait after so many tries: eleven of them span more than an hour. */
export function retryDelaySeconds(tries: number): number {
  return Math.min(FIRST_RETRY_SECONDS * 2 ** (tries - 1), MAX_RETRY_SECONDS);
}

/**
 * Takes a batch message by message: each is acked or retried on its own, so one that fails takes none along. Never throws:
 * a throw would have every message of the batch delivered again. A message that is not of our schema is logged and acked.
 */
export async function receiveJobs(
  batch: MessageBatch,
  log: Log,
  handle: (job: ReceivedJob) => Promise<JobOutcome>,
): Promise<void> {
  await Promise.all(
    batch.messages.map(async (message) => {
      const startedAt = Date.now();
      const { success, data } = jobSchema.safeParse(message.body);
      if (!success) {
        log("error", "message invalid", { outcome: "acked" });
        message.ack();
        return;
      }
      const subject = "fileId" in data ? { fileId: data.fileId } : { webhookId: data.webhookId };
      try {
        const outcome = await handle(data);
        if (typeof outcome === "string") message.ack();
        else message.retry({ delaySeconds: outcome.retryAfterSeconds });
        log("info", "job", {
          ...subject,
          attempts: message.attempts,
          outcome: typeof outcome === "string" ? outcome : "retried",
          durationMilliseconds: Date.now() - startedAt,
        });
      } catch (cause) {
        log("error", "job failed", { ...subject, attempts: message.attempts, outcome: "retried", cause });
        message.retry({ delaySeconds: retryDelaySeconds(message.attempts) });
      }
    }),
  );
}
