import type { ByteStore } from "./byte-store.ts";
import type { Databases, Db } from "./db.ts";
import type { Jobs } from "./jobs.ts";
import { retrying } from "./retry.ts";
import { MINUTE, type System } from "./system.ts";

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
  databases: DatabaseState[];
}

export interface DatabaseState {
  number: number;
  /** Null if it does not respond. */
  bytes: number | null;
  /** When its recovery job last ended. Null in a new database, and if it does not respond. */
  recoveredAt: number | null;
}

/** Three times the interval of the cron trigger. */
export const MAX_RECOVERY_AGE_MILLISECONDS = 15 * MINUTE;

/** Whether the recovery job has stopped. A new database has had no time to run it. */
export const isOverdue = (recoveredAt: number | null, now: number): boolean =>
  recoveredAt !== null && now - recoveredAt > MAX_RECOVERY_AGE_MILLISECONDS;

interface Parts {
  system: System;
  databases: Databases;
  bytes: Pick<ByteStore, "head">;
  jobs: Pick<Jobs<never>, "check">;
  bulkJobs: Pick<Jobs<never>, "check">;
  waveformJobs: Pick<Jobs<never>, "check">;
  recoveryJobs: Pick<Jobs<never>, "check">;
}

/** Reads the state of a database, whose size D1 reports with every result. Fails without the migrations too. */
async function stateOf({ db, system }: { db: Db; system: System }): Promise<DatabaseState & { bytes: number }> {
  const query = () =>
    db.$client.batch<{ recovered_at: number }>([db.$client.prepare("select recovered_at from recovery where id = 1")]);
  const [result] = await retrying(system, query);
  return {
    number: db.number,
    bytes: result?.meta.size_after ?? 0,
    recoveredAt: result?.results[0]?.recovered_at ?? null,
  };
}

/** The size of a database in bytes. */
export const sizeOf = async (database: { db: Db; system: System }): Promise<number> => (await stateOf(database)).bytes;

/** Each isolate has one, which remembers the last result. */
export function createHealth({ system, databases, bytes, jobs, bulkJobs, waveformJobs, recoveryJobs }: Parts): Health {
  const nameOf = (number: number) => (databases.size === 1 ? "database" : `database ${number}`);
  const nameOfRecovery = (number: number) => (databases.size === 1 ? "recovery" : `recovery of database ${number}`);
  const states = new Map<number, DatabaseState>();
  const measure = async (db: Db) => void states.set(db.number, await stateOf({ db, system }));
  const checks: Record<string, () => Promise<unknown>> = {
    ...Object.fromEntries([...databases].map(([number, db]) => [nameOf(number), () => measure(db)])),
    bucket: () => bytes.head(NO_KEY),
    queue: () => jobs.check(),
    "bulk queue": () => bulkJobs.check(),
    "waveform queue": () => waveformJobs.check(),
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
      const measured = [...databases.keys()].map((number) => {
        const state = failing.includes(nameOf(number)) ? undefined : states.get(number);
        return state ?? { number, bytes: null, recoveredAt: null };
      });
      const overdue = measured.filter(({ recoveredAt }) => isOverdue(recoveredAt, system.now()));
      failing.push(...overdue.map(({ number }) => nameOfRecovery(number)));
      last = { checkedAt: system.now(), failing, databases: measured };
      startedAt = Number.NEGATIVE_INFINITY;
      return last;
    },
  };
}
