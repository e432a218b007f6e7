import { createApp } from "./app.ts";
import { readDeps } from "./deps.ts";
import { receiveJobs } from "./platform/jobs.ts";
import { consoleLog } from "./platform/log.ts";
import { jobMessages } from "./platform/messages.ts";
import { handleJob, startRecovery } from "./upkeep/consumer.ts";

const app = createApp();

export default {
  fetch: app.fetch,
  queue: (batch, env, ctx) =>
    receiveJobs(batch, consoleLog, jobMessages, async (job) => handleJob(readDeps(env, ctx), batch.queue, job)),
  scheduled: async (_controller, env, ctx) => {
    try {
      await startRecovery(readDeps(env, ctx));
    } catch (cause) {
      consoleLog("error", "recovery_failed", { cause });
      throw cause;
    }
  },
} satisfies ExportedHandler<Env>;
