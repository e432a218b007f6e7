import { DurableObject } from "cloudflare:workers";
import { createApp } from "./app.ts";
import { readDeps } from "./deps.ts";
import { receiveJobs } from "./platform/jobs.ts";
import { consoleLog } from "./platform/log.ts";
import { jobMessages } from "./platform/messages.ts";
import { realSystem } from "./platform/system.ts";
import type { SearchIndex, SearchRequest } from "./search/indexes.ts";
import { RESTART_MILLISECONDS as INDEX_RESTART_MILLISECONDS, TeamIndex } from "./search/team-index.ts";
import * as service from "./service.ts";
import { handleJob, startRecovery } from "./upkeep/consumer.ts";
import { RESTART_MILLISECONDS, WebhookOutbox } from "./webhooks/outbox.ts";
import { keyOf, type ListRequest, type Outbox, type ReplayRequest } from "./webhooks/outboxes.ts";

const app = createApp();

/** Sends the deliveries of one webhook. */
export class WebhookObject extends DurableObject<Env> implements Outbox {
  #opened: WebhookOutbox | undefined;

  get #outbox() {
    this.#opened ??= new WebhookOutbox(readDeps(this.env, this.ctx, service), this.ctx);
    return this.#opened;
  }

  wake(isChanged: boolean) {
    return this.#outbox.wake(isChanged);
  }
  health() {
    return this.#outbox.health();
  }
  list(request: ListRequest) {
    return this.#outbox.list(request);
  }
  redeliver(seq: number, requestId: string) {
    return this.#outbox.redeliver(seq, requestId);
  }
  replay(request: ReplayRequest) {
    return this.#outbox.replay(request);
  }
  /** Never throws, because the platform drops an alarm after six errors. */
  override async alarm() {
    try {
      await this.#outbox.run();
    } catch (cause) {
      const { teamId, id: webhookId } = keyOf(this.ctx.id.name);
      consoleLog("error", "webhook_sending_failed", { teamId, webhookId, cause });
      await this.ctx.storage.setAlarm(realSystem.now() + RESTART_MILLISECONDS);
    }
  }
}

/** The index of the words of a team's transcripts. */
export class SearchObject extends DurableObject<Env> implements SearchIndex {
  #opened: TeamIndex | undefined;

  get #index() {
    this.#opened ??= new TeamIndex(readDeps(this.env, this.ctx, service), this.ctx);
    return this.#opened;
  }

  wake(isChanged: boolean) {
    return this.#index.wake(isChanged);
  }
  search(request: SearchRequest) {
    return this.#index.search(request);
  }
  status() {
    return this.#index.status();
  }
  rebuild() {
    return this.#index.rebuild();
  }
  /** Never throws, because the platform drops an alarm after six errors. */
  override async alarm() {
    try {
      await this.#index.run();
    } catch (cause) {
      consoleLog("error", "search_indexing_failed", { teamId: this.ctx.id.name ?? "", cause });
      await this.ctx.storage.setAlarm(realSystem.now() + INDEX_RESTART_MILLISECONDS);
    }
  }
}

export default {
  fetch: app.fetch,
  queue: (batch, env, ctx) =>
    receiveJobs(batch, consoleLog, jobMessages, async (job) =>
      handleJob(readDeps(env, ctx, service), batch.queue, job),
    ),
  scheduled: async (_controller, env, ctx) => {
    try {
      await startRecovery(readDeps(env, ctx, service));
    } catch (cause) {
      consoleLog("error", "recovery_failed", { cause });
      throw cause;
    }
  },
} satisfies ExportedHandler<Env>;
