import type { ByteStore } from "./byte-store.ts";
import { type Db, preparedQuery, read } from "./db.ts";
import type { Jobs } from "./jobs.ts";
import { apiKeys } from "./schema.ts";
import type { System } from "./system.ts";

/** One check per isolate and this time, however many requests arrive. */
export const HEALTH_CACHE_MILLISECONDS = 10_000;
/** Longer than the retries of a query. A binding that takes longer counts as failed. */
const HEALTH_TIMEOUT_MILLISECONDS = 5000;
const POLL_MILLISECONDS = 50;
/** No object has this key: all keys begin with the id of a team. */
const NO_KEY = "health";

export interface Health {
  /** The names of the parts that do not respond. Never throws. */
  failing(): Promise<string[]>;
}

interface Parts {
  system: System;
  db: Db;
  bytes: Pick<ByteStore, "head">;
  jobs: Pick<Jobs<never>, "check">;
  bulkJobs: Pick<Jobs<never>, "check">;
  webhookJobs: Pick<Jobs<never>, "check">;
}

/** Fails without the migrations too. */
const anyKey = preparedQuery((db) => db.select({ id: apiKeys.id }).from(apiKeys).limit(1));

/** Each isolate has one, which remembers the last result. */
export function createHealth({ system, db, bytes, jobs, bulkJobs, webhookJobs }: Parts): Health {
  const checks: Record<string, () => Promise<unknown>> = {
    database: () => read({ db, system }, [anyKey({})]),
    bucket: () => bytes.head(NO_KEY),
    queue: () => jobs.check(),
    "bulk queue": () => bulkJobs.check(),
    "webhook queue": () => webhookJobs.check(),
  };
  let last: { checkedAt: number; failing: string[] } | undefined;
  let startedAt = Number.NEGATIVE_INFINITY;

  const hasFailed = async (check: () => Promise<unknown>): Promise<boolean> => {
    try {
      await check();
      return false;
    } catch {
      return true;
    }
  };

  return {
    async failing() {
      for (;;) {
        if (last && system.now() - last.checkedAt < HEALTH_CACHE_MILLISECONDS) return last.failing;
        // Requests poll instead of sharing a promise: a request that runs the check may be canceled.
        if (system.now() - startedAt > HEALTH_TIMEOUT_MILLISECONDS) break;
        await system.sleep(POLL_MILLISECONDS);
      }
      startedAt = system.now();
      const names = Object.keys(checks);
      const timedOut = system.sleep(HEALTH_TIMEOUT_MILLISECONDS).then(() => true);
      const results = await Promise.all(
        Object.values(checks).map((check) => Promise.race([hasFailed(check), timedOut])),
      );
      last = { checkedAt: system.now(), failing: names.filter((_, i) => results[i]) };
      startedAt = Number.NEGATIVE_INFINITY;
      return last.failing;
    },
  };
}
