import { env } from "cloudflare:workers";
import { type Deps, readDeps as readRealDeps } from "../../src/deps.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDatabases, createDb, GUARD_NAME, nameOfStatement } from "../../src/platform/db.ts";
import type { HashQueue } from "../../src/platform/hash-queue.ts";
import { createHealth } from "../../src/platform/health.ts";
import { createJobs } from "../../src/platform/jobs.ts";
import type { Mailer } from "../../src/platform/mailer.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import type { Reply, Sender } from "../../src/platform/sender.ts";
import { realSystem } from "../../src/platform/system.ts";
import * as service from "../../src/service.ts";
import { objectClasses } from "./capabilities.ts";
import { promptObjects } from "./objects.ts";

export type { Deps, Settings } from "../../src/deps.ts";

/** A hash takes 0.1 ms of CPU. Tests about the real cost use `withRealHashing`. */
const CHEAP = { ln: 4, r: 1, p: 1 };
const cheapSecrets = loadSecrets(env.MASTER_KEY, realSystem, CHEAP);
/** The dependencies of a Worker, with cheap password hashes. Invalid settings fail as in the real one. */
export const readDeps = (bindings: Env, ctx: Pick<ExecutionContext, "waitUntil">): Deps => {
  const deps = readRealDeps(bindings, ctx, service);
  return { ...deps, ...(bindings.MASTER_KEY === env.MASTER_KEY && { secrets: cheapSecrets }) };
};

export type Change = (deps: Deps) => Deps;

export const compose =
  (...changes: Change[]): Change =>
  (deps) =>
    changes.reduce((changed, change) => change(changed), deps);

/** With the databases `DB`, `DB_1`, … */
type TestBindings = Pick<Env, "DB" | "BUCKET" | "JOBS"> & {
  BULK_JOBS?: Queue | undefined;
  WAVEFORMS?: Queue | undefined;
  RECOVERY?: Queue | undefined;
};

/** The response to a request of the service that is accepted. */
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

/** The dependencies of objects. Their calls to D1 belong to no request. */
function depsOfObjects(deps: Deps): Deps {
  const { databases } = readRealDeps(env, { waitUntil: () => {} }, service);
  return { ...deps, databases, sender, after: () => {} };
}

/** Namespaces of objects that work as soon as they are called, by binding. */
export const promptNamespaces = (deps: Deps) =>
  Object.fromEntries(
    objectClasses.map((objectClass) => [objectClass.binding, promptObjects(objectClass, depsOfObjects(deps))]),
  );

/** Replaces Durable Objects by those that work as soon as they are called. */
export const withObjects = (deps: Deps): Deps =>
  objectClasses.reduce(
    (connected, objectClass) => objectClass.connect(connected, promptObjects(objectClass, depsOfObjects(deps))),
    deps,
  );

/** No request looks whether the recovery job runs: the look would be another call to D1, now and then. */
export const UNWATCHED: Deps["recoveryChecks"] = { get: () => Number.POSITIVE_INFINITY, set: () => UNWATCHED as never };

/** One Drizzle for each database, as in an isolate, because building SQL takes longer than a request. */
const databasesOf = new WeakMap<TestBindings, Deps["databases"]>();

/** Replaces D1, R2 and the queues of the dependencies. */
export function withBindings(
  deps: Deps,
  bindings: TestBindings,
  databases = databasesOf.get(bindings) ?? createDatabases(bindings),
): Deps {
  databasesOf.set(bindings, databases);
  const { BUCKET, JOBS, BULK_JOBS = JOBS, WAVEFORMS = sink, RECOVERY = sink } = bindings;
  const parts = {
    databases,
    bytes: createByteStore(BUCKET, deps.system),
    jobs: createJobs(JOBS as never),
    bulkJobs: createJobs(BULK_JOBS as never),
    waveformJobs: createJobs(WAVEFORMS as never),
    recoveryJobs: createJobs(RECOVERY as never),
  };
  const health = createHealth({ ...deps, ...parts });
  return withObjects({ ...deps, ...parts, health, recoveryChecks: UNWATCHED, sender, mailer });
}

/** Replaces each database. */
export function withDatabases(deps: Deps, replace: (database: D1Database, number: number) => D1Database): Deps {
  const replaced = [...deps.databases].map(([number, db]) => [number, createDb(replace(db.$client, number), number)]);
  const databases = new Map(replaced as [number, Deps["db"]][]);
  return { ...deps, databases, health: createHealth({ ...deps, databases }), recoveryChecks: UNWATCHED };
}

type Batch = (statements: D1PreparedStatement[]) => Promise<D1Result[]>;

/** Replaces how a database sends its batches. */
export const withBatch = (database: D1Database, batch: Batch): D1Database =>
  ({ prepare: (sql: string) => database.prepare(sql), batch: batch as D1Database["batch"] }) as D1Database;

/** Loses the response to each write: D1 commits it, and responds too late. A write has more than two statements. */
export const losingResponses: Change = (deps) =>
  withDatabases(deps, (database) =>
    withBatch(database, async (statements) => {
      const results = await database.batch(statements);
      if (statements.length > 2) throw new Error("D1 did not respond within 8 s.");
      return results;
    }),
  );

/**
 * Does something else right before the first write of a Worker, after it has authorized the caller. The write for a caller begins
 * with its right, and one without a caller, such as of an invitation, has more than two statements. With `times`, also before the
 * next ones.
 */
export function beforeWrite(act: () => Promise<unknown>, times = 1): Change {
  let left = times;
  return (deps) =>
    withDatabases(deps, (database) =>
      withBatch(database, async (statements) => {
        const [first] = statements;
        const isForCaller = first && nameOfStatement(first) === GUARD_NAME;
        if ((isForCaller || statements.length > 2) && left > 0) {
          left--;
          await act();
        }
        return database.batch(statements);
      }),
    );
}

/** A queue that accepts messages and delivers none. */
export const sink = { send: async () => {}, sendBatch: async () => {}, metrics: async () => {} } as unknown as Queue;

const nowhere = { send: async () => {}, sendAll: async () => {}, check: async () => {} };
/** Discards messages, webhook requests and emails, for tests that need no processing. */
export const withoutJobs: Change = (deps) =>
  withObjects({
    ...deps,
    jobs: nowhere,
    bulkJobs: nowhere,
    waveformJobs: nowhere,
    recoveryJobs: nowhere,
    sender,
    mailer,
  });

/** The password hashes of the real Worker. */
export const withRealHashing: Change = (deps) => ({
  ...deps,
  secrets: readRealDeps(env, { waitUntil: () => {} }, service).secrets,
});

const HASH = `$scrypt$ln=14,r=8,p=5,keyid=00000000$${"a".repeat(22)}$${"b".repeat(43)}`;
/** Gives every password the same hash, without a queue and a limit: for tests that are not about hashing. */
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
    countUploadToken: async () => true,
    isUploadTokenBlocked: () => false,
    countPlaces: async () => true,
    countRefusal: async () => true,
    areRefusalsBlocked: () => false,
    noteRefused: () => {},
    refusedCaller: () => undefined,
    countOpening: async () => true,
    countUnauthenticated: async () => true,
    isBlocked: () => false,
    noteAuthenticated: () => {},
    noteRejected: () => {},
    exceededBy: () => null,
    countGuess: async () => true,
    takeLogin: async () => ({ giveBack: () => {} }),
    countLogin: async () => true,
    countFailedLogin: async () => true,
    isLoginBlocked: () => false,
    countPasswordHash: async () => true,
  },
});
