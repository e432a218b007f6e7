import { eq } from "drizzle-orm";
import { type Deps, readDeps } from "../../../src/deps.ts";
import { newEvent, SYSTEM, writeWithEvent } from "../../../src/events/events.ts";
import { createDb } from "../../../src/platform/db.ts";
import { createJobs, receiveJobs } from "../../../src/platform/jobs.ts";
import { jobMessages, type WebhookJob } from "../../../src/platform/messages.ts";
import { realSystem } from "../../../src/platform/system.ts";
import { handleJob } from "../../../src/upkeep/consumer.ts";
import { enqueueWebhooks } from "../../../src/webhooks/deliveries.ts";
import { webhooks } from "../../../src/webhooks/webhooks.schema.ts";

/*
 * Runs the service's rounds of webhook deliveries against the real D1 in virtual time. Simulated are the queue (first in,
 * first out, with delays), its consumers, and the endpoints. D1 and the service's code take no virtual time: the clock
 * stops while a query is open, and advances once every running round waits for its endpoint.
 */

/** As in wrangler.toml. */
const CONSUMERS = 40;
const QUEUE = "stowage-webhooks";

export interface Scenario {
  /** Milliseconds since the epoch. Later than the end of the scenarios before, whose leases and rests are then over. */
  startsAt: number;
  seconds: number;
  /** Messages and delays count from this second on, when the webhooks no longer work in step. */
  countedFromSecond: number;
  /** Webhooks whose whole backlog is due at the start. The path of a URL is the response time in milliseconds. */
  backlogged: WebhookJob[];
  /** A webhook without a backlog. */
  fresh?: WebhookJob;
  /** Mean time between two events that the fresh webhook receives. */
  freshEverySeconds: number;
}

export interface Result {
  /** Messages of each webhook whose response arrived. */
  posts: Record<string, number>;
  /** From each event of the fresh webhook to its post. */
  freshMilliseconds: number[];
  /** The longest such time before it counts. */
  longestFreshAtStart: number;
}

/** Adds events to a team, each with a pending delivery to all of its webhooks. They are copies of its newest event. */
export async function addBacklog({ DB }: Env, teamId: string, count: number): Promise<void> {
  const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)";
  await DB.batch([
    DB.prepare(
      `insert into deliveries (webhook_id, seq, team_id, type, status, due_at, created_at) ${numbers}
       select w.id, (select max(seq) from events where team_id = ?1) + i, ?1, 'apikey.created', 'pending', 1, 1
       from n, webhooks w where w.team_id = ?1`,
    ).bind(teamId, count),
    DB.prepare(
      `insert into events ${numbers}
       select team_id, seq + i, 'apikey.created', created_at, actor, subject_id, subject_version, data, position + i
       from n, (select * from events where team_id = ?1 order by seq desc limit 1)`,
    ).bind(teamId, count),
  ]);
}

interface Timer {
  at: number;
  run: () => void;
}

export async function simulate(env: Env, scenario: Scenario): Promise<Result> {
  const { startsAt, seconds, countedFromSecond, backlogged, fresh, freshEverySeconds } = scenario;
  const endsAt = startsAt + seconds * 1000;
  let now = startsAt;
  let timers: Timer[] = [];
  const queue: WebhookJob[] = [];
  /** The number of unanswered posts of each running round. */
  const running = new Set<{ posts: number }>();
  const open = new Set<Promise<unknown>>();
  const result: Result = { posts: {}, freshMilliseconds: [], longestFreshAtStart: 0 };
  const isCounted = (time: number) => time >= startsAt + countedFromSecond * 1000;
  const failures: unknown[] = [];
  const at = (time: number, run: () => void) => timers.push({ at: time, run });

  const batch: D1Database["batch"] = (statements) => {
    const call = env.DB.batch(statements).finally(() => open.delete(call));
    open.add(call);
    return call as never;
  };
  const database = { prepare: (sql: string) => env.DB.prepare(sql), batch } as D1Database;
  const queueBinding = {
    sendBatch: async (messages: Iterable<MessageSendRequest<WebhookJob>>, options?: QueueSendBatchOptions) => {
      for (const { body } of messages) at(now + (options?.delaySeconds ?? 0) * 1000, () => queue.push(body));
    },
  } as unknown as Queue<WebhookJob>;

  const db = createDb(database, 0);
  const base: Deps = {
    ...readDeps(env, { waitUntil: () => undefined }),
    system: { ...realSystem, now: () => now },
    db,
    databases: new Map([[db.number, db]]),
    webhookJobs: createJobs(queueBinding),
    after: (work) => void work.catch((error) => failures.push(error)),
    log: (level, event, fields) => {
      if (level === "error") failures.push(new Error(`${event} ${String(fields?.cause)}`));
    },
  };

  /** Answers after the time in the path of the URL. */
  const senderOf = (job: WebhookJob, round: { posts: number }): Deps["sender"] => ({
    post: async (url, _, body) => {
      const durationMilliseconds = Number(new URL(url).pathname.slice(1));
      if (job.webhookId === fresh?.webhookId) {
        const createdAt = Date.parse(JSON.parse(body).timestamp);
        const delay = now - createdAt;
        if (isCounted(createdAt)) result.freshMilliseconds.push(delay);
        else result.longestFreshAtStart = Math.max(result.longestFreshAtStart, delay);
      }
      round.posts += 1;
      await new Promise<void>((resolve) => at(now + durationMilliseconds, resolve));
      round.posts -= 1;
      if (isCounted(now)) result.posts[job.webhookId] = (result.posts[job.webhookId] ?? 0) + 1;
      return { httpStatus: 200, error: null, retryAfter: null, body: "", durationMilliseconds };
    },
  });

  async function consume(body: WebhookJob): Promise<void> {
    const round = { posts: 0 };
    running.add(round);
    const deps = { ...base, sender: senderOf(body, round) };
    const retry = () => failures.push(new Error("A message was retried."));
    const message = { id: "1", timestamp: new Date(now), attempts: 1, body, ack: () => undefined, retry };
    const messages = { queue: QUEUE, messages: [message] } as unknown as MessageBatch;
    await receiveJobs(messages, base.log, jobMessages, (job) => handleJob(deps, QUEUE, job)).finally(() =>
      running.delete(round),
    );
  }

  /** Records an event that the fresh webhook receives, and the next ones. */
  function createEvents({ teamId, webhookId }: WebhookJob): void {
    const change = base.db.update(webhooks).set({ updatedAt: now }).where(eq(webhooks.id, webhookId));
    const event = newEvent(base, "apikey.created", SYSTEM, { teamId, id: webhookId });
    base.after(writeWithEvent(base, event, [change], { isIdempotent: false }));
    at(now + Math.ceil(Math.random() * 2 * freshEverySeconds * 1000), () => createEvents({ teamId, webhookId }));
  }

  /** Waits until no query is open, and until what followed from the last one has run. */
  async function settle(): Promise<void> {
    do {
      await Promise.allSettled(open);
      await scheduler.wait(0);
    } while (open.size > 0);
    if (failures.length > 0) throw failures[0];
    if ([...running].some(({ posts }) => posts === 0)) throw new Error("A round waits for something unknown.");
  }

  await env.DB.batch([
    env.DB.prepare(
      `update deliveries set status = 'pending', due_at = 1, attempt_log = '[]', attempt_count = 0
       where due_at is null and webhook_id in (select value from json_each(?))`,
    ).bind(JSON.stringify(backlogged.map(({ webhookId }) => webhookId))),
  ]);
  await enqueueWebhooks(base, backlogged);
  if (fresh) createEvents(fresh);
  while (now < endsAt) {
    await settle();
    if (queue.length > 0 && running.size < CONSUMERS) {
      for (const job of queue.splice(0, CONSUMERS - running.size)) {
        consume(job).catch((error) => failures.push(error));
      }
      continue;
    }
    // Without a timer, nothing is left to happen.
    now = Math.min(endsAt, ...timers.map((timer) => timer.at));
    const due = timers.filter((timer) => timer.at <= now);
    timers = timers.filter((timer) => timer.at > now);
    for (const { run } of due) run();
  }
  return result;
}
