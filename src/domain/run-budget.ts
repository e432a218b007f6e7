import type { System } from "../platform/system.ts";

/* The limits of one run of the recovery job, which all steps share. */

/** The most that a batch of work uses of each limit. */
export interface Cost {
  /** D1 queries. Each statement of a batch counts. */
  queries: number;
  /** Calls to R2 and to queues. */
  calls?: number;
  /** Rows that JavaScript handles. Rows that a statement only deletes do not count. */
  rows?: number;
}

export interface RunLimits extends Required<Cost> {
  milliseconds: number;
}

export const RUN_LIMITS: RunLimits = {
  /** D1 allows 1,000 queries per invocation. The margin covers retries after transient errors. */
  queries: 800,
  /** Workers allow 10,000 subrequests per invocation, D1 queries included. The margin covers retries. */
  calls: 8000,
  /** A cron invocation has 30 s of CPU. A row takes less than 0.2 ms, so these take at most 10 s. */
  rows: 50_000,
  /** The next run starts after 5 minutes. Two runs at once are correct, but repeat each other's reads. */
  milliseconds: 4 * 60 * 1000,
};

export class RunBudget {
  readonly #limits: RunLimits;
  readonly #used: Required<Cost> = { queries: 0, calls: 0, rows: 0 };
  readonly #system: System;
  readonly #endsAt: number;

  constructor(system: System, limits: RunLimits = RUN_LIMITS) {
    this.#system = system;
    this.#limits = limits;
    this.#endsAt = system.now() + limits.milliseconds;
  }

  /** Spends the cost of a batch. @returns false if it would exceed `share` of a limit, or if the time is up */
  spend({ queries, calls = 0, rows = 0 }: Cost, share: number): boolean {
    const cost = { queries, calls, rows };
    const names = ["queries", "calls", "rows"] as const;
    if (this.#system.now() >= this.#endsAt) return false;
    if (names.some((name) => this.#used[name] + cost[name] > this.#limits[name] * share)) return false;
    for (const name of names) this.#used[name] += cost[name];
    return true;
  }
}
