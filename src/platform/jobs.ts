import type * as z from "zod";
import type { Log, LogFields } from "./log.ts";
import { once } from "./retry.ts";

// The limits of one sendBatch call are 100 messages and 256 KB.
const BATCH_MESSAGES = 100;

export interface Jobs<J> {
  /** The messages arrive after the delay. */
  sendAll(jobs: J[], delaySeconds?: number): Promise<void>;
  /** Throws if the queue does not respond. Sends nothing. */
  check(): Promise<unknown>;
}

export function createJobs<J>(queue: Queue<J>): Jobs<J> {
  return {
    async sendAll(jobs, delaySeconds = 0) {
      for (let i = 0; i < jobs.length; i += BATCH_MESSAGES) {
        const batch = jobs.slice(i, i + BATCH_MESSAGES).map((body) => ({ body }));
        await once(() => queue.sendBatch(batch, { delaySeconds }));
      }
    },
    check: () => queue.metrics(),
  };
}

/** The messages that a consumer accepts. */
export interface Messages<J> {
  schema: () => z.ZodType<J>;
  /** The record that a message names, for the log. */
  subjectOf(job: J): LogFields;
}

/** The outcome for the log, or the delay before a retry. */
export type JobOutcome = string | { retryAfterSeconds: number };

const FIRST_RETRY_SECONDS = 10;
const MAX_RETRY_SECONDS = 15 * 60;

/** The delay after a number of attempts. Eleven attempts span more than an hour. */
export function retryDelaySeconds(attempts: number): number {
  return Math.min(FIRST_RETRY_SECONDS * 2 ** (attempts - 1), MAX_RETRY_SECONDS);
}

/**
 * Handles the messages of a batch. Acks or retries each one separately, so that a failure affects only its own message.
 * Never throws, because the queue would then redeliver the whole batch. Messages that violate the schema are logged and
 * acked.
 */
export async function receiveJobs<J>(
  batch: MessageBatch,
  log: Log,
  { schema, subjectOf }: Messages<J>,
  handle: (job: J) => Promise<JobOutcome>,
): Promise<void> {
  await Promise.all(
    batch.messages.map(async (message) => {
      const startedAt = Date.now();
      const { success, data } = schema().safeParse(message.body);
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
