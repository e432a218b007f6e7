import { type Deps, readDeps } from "../../src/deps.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDatabases, createDb } from "../../src/platform/db.ts";
import type { HashQueue } from "../../src/platform/hash-queue.ts";
import { createHealth } from "../../src/platform/health.ts";
import { createJobs } from "../../src/platform/jobs.ts";
import type { Mailer } from "../../src/platform/mailer.ts";
import type { Reply, Sender } from "../../src/platform/sender.ts";

export type { Deps, Settings } from "../../src/deps.ts";
export { readDeps };

export type Change = (deps: Deps) => Deps;

export const compose =
  (...changes: Change[]): Change =>
  (deps) =>
    changes.reduce((changed, change) => change(changed), deps);

/** With the databases `DB`, `DB_1`, … */
type TestBindings = Pick<Env, "DB" | "BUCKET" | "JOBS"> & {
  BULK_JOBS?: Queue | undefined;
  WEBHOOKS?: Queue | undefined;
  RECOVERY?: Queue | undefined;
};

/** The response of a webhook endpoint that accepts everything. */
export const ACCEPTED_REPLY: Reply = {
  httpStatus: 200,
  error: null,
  retryAfter: null,
  body: "ok",
  durationMilliseconds: 1,
};
/** These send nothing, so that no request leaves the machine. */
const sender: Sender = { post: async () => ACCEPTED_REPLY };
const mailer: Mailer = { send: async () => {} };

/** No request looks whether the recovery job runs: the look would be another call to D1, now and then. */
export const UNWATCHED: Deps["recoveryChecks"] = { get: () => Number.POSITIVE_INFINITY, set: () => UNWATCHED as never };

/** Replaces D1, R2 and the queues of the dependencies. */
export function withBindings(deps: Deps, bindings: TestBindings): Deps {
  const { BUCKET, JOBS, BULK_JOBS = JOBS, WEBHOOKS = sink, RECOVERY = sink } = bindings;
  const parts = {
    databases: createDatabases(bindings),
    bytes: createByteStore(BUCKET, deps.system),
    jobs: createJobs(JOBS as never),
    bulkJobs: createJobs(BULK_JOBS as never),
    webhookJobs: createJobs(WEBHOOKS as never),
    recoveryJobs: createJobs(RECOVERY as never),
  };
  const health = createHealth({ ...deps, ...parts });
  return { ...deps, ...parts, health, recoveryChecks: UNWATCHED, sender, mailer };
}

/** Replaces each database. */
export function withDatabases(deps: Deps, replace: (database: D1Database, number: number) => D1Database): Deps {
  const replaced = [...deps.databases].map(([number, db]) => [number, createDb(replace(db.$client, number), number)]);
  const databases = new Map(replaced as [number, Deps["db"]][]);
  return { ...deps, databases, health: createHealth({ ...deps, databases }), recoveryChecks: UNWATCHED };
}

/** A queue that accepts messages and delivers none. */
export const sink = { send: async () => {}, sendBatch: async () => {}, metrics: async () => {} } as unknown as Queue;

const nowhere = { send: async () => {}, sendAll: async () => {}, check: async () => {} };
/** Discards messages, webhook requests and emails, for tests that need no processing. */
export const withoutJobs: Change = (deps) => ({
  ...deps,
  jobs: nowhere,
  bulkJobs: nowhere,
  webhookJobs: nowhere,
  recoveryJobs: nowhere,
  sender,
  mailer,
});

const HASH = `$scrypt$ln=14,r=8,p=5,keyid=00000000$${"a".repeat(22)}$${"b".repeat(43)}`;
/** Gives every password the same hash, without waiting: for tests that are not about hashing, which takes 0.1 s. */
export const withoutHashing: Change = (deps) => ({
  ...deps,
  hashQueue: { run: (_, hash) => hash() } as HashQueue,
  limiter: { ...deps.limiter, countPasswordHash: async () => true },
  secrets: { ...deps.secrets, hashPassword: async () => HASH },
});

export const withoutLimits: Change = (deps) => ({
  ...deps,
  limiter: {
    countRequest: async () => true,
    countUnauthenticated: async () => true,
    isBlocked: () => false,
    isAuthenticated: () => true,
    noteAuthenticated: () => {},
    noteRejected: () => {},
    countLateRequest: async () => true,
    countGuess: async () => true,
    takeLogin: async () => ({ giveBack: () => {} }),
    countLogin: async () => true,
    countFailedLogin: async () => true,
    isLoginBlocked: () => false,
    countExpensiveCall: async () => true,
    countPasswordHash: async () => true,
    countSearch: async () => true,
  },
});
