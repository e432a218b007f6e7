import type { ByteStore } from "./byte-store.ts";
import type { Databases, Db } from "./db.ts";
import type { Jobs } from "./jobs.ts";
import { retrying } from "./retry.ts";
import type { System } from "./system.ts";

/** One check per isolate and this time, however many requests arrive. */
export const HEALTH_CACHE_MILLISECONDS = 10_000;
/** Longer than the retries of a query. A binding that takes longer counts as failed. */
const HEALTH_TIMEOUT_MILLISECONDS = 5000;
const POLL_MILLISECONDS = 50;
/** No object has this key: all keys begin with the id of a team. */
const NO_KEY = "health";

export interface Health {
  /** Never throws. */
  check(): Promise<Checked>;
}

interface Checked {
  /** The names of the parts that do not respond. */
  failing: string[];
  /** The size of each database; null if it does not respond. */
  databases: { number: number; bytes: number | null }[];
}

interface Parts {
  system: System;
  databases: Databases;
  bytes: Pick<ByteStore, "head">;
  jobs: Pick<Jobs<never>, "check">;
  bulkJobs: Pick<Jobs<never>, "check">;
  webhookJobs: Pick<Jobs<never>, "check">;
  recoveryJobs: Pick<Jobs<never>, "check">;
}

/** The size of a database in bytes, as D1 reports it with every result. Fails without the migrations too. */
export async function sizeOf({ db, system }: { db: Db; system: System }): Promise<number> {
  const findNothing = () => db.$client.batch([db.$client.prepare("select id from teams where id = ''")]);
  const [result] = await retrying(system, findNothing);
  return result?.meta.size_after ?? 0;
}

/** Each isolate has one, which remembers the last result. */
export function createHealth({ system, databases, bytes, jobs, bulkJobs, webhookJobs, recoveryJobs }: Parts): Health {
  const nameOf = (number: number) => (databases.size === 1 ? "database" : `database ${number}`);
  const sizes = new Map<number, number>();
  const measure = async (db: Db) => void sizes.set(db.number, await sizeOf({ db, system }));
  const checks: Record<string, () => Promise<unknown>> = {
    ...Object.fromEntries([...databases].map(([number, db]) => [nameOf(number), () => measure(db)])),
    bucket: () => bytes.head(NO_KEY),
    queue: () => jobs.check(),
    "bulk queue": () => bulkJobs.check(),
    "webhook queue": () => webhookJobs.check(),
    "recovery queue": () => recoveryJobs.check(),
  };
  let last: (Checked & { checkedAt: number }) | undefined;
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
    async check() {
      for (;;) {
        if (last && system.now() - last.checkedAt < HEALTH_CACHE_MILLISECONDS) return last;
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
      const failing = names.filter((_, i) => results[i]);
      const measured = [...databases.keys()].map((number) => ({
        number,
        bytes: failing.includes(nameOf(number)) ? null : (sizes.get(number) ?? null),
      }));
      last = { checkedAt: system.now(), failing, databases: measured };
      startedAt = Number.NEGATIVE_INFINITY;
      return last;
    },
  };
}
