import type { Deps } from "../deps.ts";
import { createDb } from "../platform/db.ts";

/* The limits of one run of the recovery job, which all steps share. Each call that spends from a limit counts it. */

export interface RunLimits {
  /** D1 queries. Each statement of a batch counts. */
  queries: number;
  /** Calls to R2, to queues, and to the objects of webhooks. */
  calls: number;
  /** Rows that D1 returns to JavaScript. */
  rows: number;
  milliseconds: number;
}

export const RUN_LIMITS: RunLimits = {
  /** D1 allows 1,000 queries per invocation. The margin covers the last batch, of at most 100. */
  queries: 800,
  /** Workers allow 10,000 subrequests per invocation, D1 queries included. The margin covers the last batch. */
  calls: 8000,
  /** An invocation has 300 s of CPU, see wrangler.toml. A row takes less than 0.2 ms, so these take at most 10 s. */
  rows: 50_000,
  /** The next run starts after 5 minutes. Two runs at once are correct, but repeat each other's reads. */
  milliseconds: 4 * 60 * 1000,
};

/** R2 deletes up to this many objects in one call. */
const DELETED_OBJECTS = 1000;
/** A queue takes up to this many messages in one call. */
const SENT_MESSAGES = 100;

/** Counts what a run spends: its `deps` have D1, R2, the queues and the objects wrapped in counters. */
export class Budget {
  readonly deps: Deps;
  readonly #spent = { queries: 0, calls: 0, rows: 0 };
  readonly #limits: RunLimits;
  readonly #endsAt: number;

  constructor(deps: Deps, limits: RunLimits) {
    this.#limits = limits;
    this.#endsAt = deps.system.now() + limits.milliseconds;
    const { bytes, jobs, bulkJobs, waveformJobs, outboxes } = deps;
    const count = (calls: number) => {
      this.#spent.calls += calls;
    };
    const countMessages = (queue: typeof jobs | typeof waveformJobs) => ({
      ...queue,
      sendAll(messages: never[], delaySeconds?: number) {
        count(Math.ceil(messages.length / SENT_MESSAGES));
        return queue.sendAll(messages, delaySeconds);
      },
    });
    this.deps = {
      ...deps,
      db: createDb(this.#countingQueries(deps.db.$client), deps.db.number),
      bytes: {
        ...bytes,
        abort(...upload) {
          count(1);
          return bytes.abort(...upload);
        },
        remove(keys) {
          count(Math.ceil(keys.length / DELETED_OBJECTS));
          return bytes.remove(keys);
        },
        removeAll(prefix) {
          // A list and a deletion.
          count(2);
          return bytes.removeAll(prefix);
        },
      },
      jobs: countMessages(jobs) as typeof jobs,
      bulkJobs: countMessages(bulkJobs) as typeof bulkJobs,
      waveformJobs: countMessages(waveformJobs) as typeof waveformJobs,
      outboxes(key) {
        count(1);
        return outboxes(key);
      },
    };
  }

  #countingQueries(client: D1Database): D1Database {
    const batch = async (statements: D1PreparedStatement[]) => {
      this.#spent.queries += statements.length;
      const results = await client.batch(statements);
      for (const { results: rows } of results) this.#spent.rows += rows.length;
      return results;
    };
    return { prepare: (text: string) => client.prepare(text), batch } as D1Database;
  }

  /** Whether the run may start another batch of a step that can use `share` of the limits. */
  allowsBatch(share: number): boolean {
    const { queries, calls, rows } = this.#spent;
    const limits = this.#limits;
    return (
      this.deps.system.now() < this.#endsAt &&
      queries < limits.queries * share &&
      calls < limits.calls * share &&
      rows < limits.rows * share
    );
  }
}
