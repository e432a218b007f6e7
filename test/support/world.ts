import { env } from "cloudflare:workers";
import { AsyncLocalStorage } from "node:async_hooks";
import { expect } from "vitest";
import { createApp } from "../../src/app.ts";
import { Bodies } from "../../src/platform/bodies.ts";
import { createDb, NO_DB } from "../../src/platform/db.ts";
import { receiveJobs } from "../../src/platform/jobs.ts";
import type { LogFields } from "../../src/platform/log.ts";
import type { Mailer } from "../../src/platform/mailer.ts";
import {
  type FileJob,
  type Job,
  jobMessages,
  type RecoveryJob,
  type WaveformJob,
} from "../../src/platform/messages.ts";
import type { Secrets } from "../../src/platform/secrets.ts";
import type { Reply } from "../../src/platform/sender.ts";
import { realSystem, type System } from "../../src/platform/system.ts";
import { handleJob, startRecovery } from "../../src/upkeep/consumer.ts";
import { type Recovered, recover } from "../../src/upkeep/recovery.ts";
import { STALL_CHECK_MILLISECONDS } from "../../src/uploads/appending.ts";
import { type Multipart, ProxiedBindings } from "./bindings.ts";
import { objectClasses } from "./capabilities.ts";
import { type Answer, type CallOptions, createCall, form, foundTeam, type Team } from "./client.ts";
import { ALL_DATABASES, DATABASES, nextDatabase } from "./databases.ts";
import { ACCEPTED_REPLY, type Change, type Deps, readDeps, type Settings, withBindings } from "./deps.ts";
import { OPERATOR } from "./harness.ts";
import { type Alarm, inObject, namespaceWith, type ObjectClass, type OpenObject, storageWith } from "./objects.ts";
import { hasUnfinished, interruptFile } from "./queries.ts";

/*
 * A `World` is everything outside of an invocation of the Worker: a clock that a test advances, and queues that deliver
 * when a test calls them. D1, R2 and the storage of objects are real. Each invocation can have its own `ProxiedBindings`,
 * which make a call fail or kill the invocation.
 */

/** The response when a binding fails. */
export const UNAVAILABLE = [503, "unavailable"] as const;

// One app and one Drizzle for all invocations, as in an isolate, because building routes and SQL takes longer than a request.
const dependencies = new WeakMap<object, Deps>();
const app = createApp((_, ctx) => dependencies.get(ctx) as Deps);
const currentDatabases = new AsyncLocalStorage<D1Database[]>();
const sharedDatabases = new Map(
  ALL_DATABASES.map((_, number) => {
    const prepare = (sql: string) => current(number).prepare(sql);
    const batch = (statements: D1PreparedStatement[]) => current(number).batch(statements);
    return [number, createDb({ prepare, batch } as D1Database, number)];
  }),
);

function current(number: number): D1Database {
  const database = currentDatabases.getStore()?.[number];
  if (!database) throw new Error("A query outside of an invocation.");
  return database;
}

/** The result of an invocation, or "dead" if the invocation died. */
export type Outcome<T> = T | "dead";

export interface LogLine extends LogFields {
  level: string;
  event: string;
}

/** A form with one file, as the bytes that a client sends. */
export interface Form {
  body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;
  contentType: string;
}

export async function encodeForm(
  name: string,
  bytes: Uint8Array<ArrayBuffer> | string,
): Promise<Form & { body: Uint8Array<ArrayBuffer> }> {
  const encoded = new Response(form(name, bytes));
  const contentType = encoded.headers.get("Content-Type") ?? "";
  return { contentType, body: new Uint8Array(await encoded.arrayBuffer()) };
}

/** A request that the service sends. */
export interface Post {
  url: string;
  headers: Record<string, string>;
  body: string;
  /** On the world's clock, in milliseconds. */
  at: number;
}

/** A Durable Object that was called. */
interface CalledObject extends Alarm {
  objectClass: ObjectClass;
  name: string;
  /** While its alarm runs. */
  open: OpenObject | null;
}

interface Invocation {
  bindings?: ProxiedBindings | undefined;
  change?: Change | undefined;
  /** A 500 is expected: the failure is our own. */
  isBug?: boolean;
}

/** Returns the result of an invocation that cannot die. */
export async function must<T>(outcome: Promise<Outcome<T>>): Promise<T> {
  const answer = await outcome;
  if (answer === "dead") throw new Error("The invocation died.");
  return answer;
}

export class World {
  /** The database of its teams. Each world has another one than the world before. */
  readonly database = nextDatabase();
  /** The databases that have teams of this world. */
  readonly databases = new Set<number>();
  readonly #startedAt = realSystem.now();
  /** How far the world's clock is ahead. It does not run, so that the duration of a test does not matter. */
  aheadMilliseconds = 0;
  /** File ids of the waiting messages, in the order they were sent. */
  messages: string[] = [];
  /** The teams of the files. */
  readonly #teams = new Map<string, string>();
  readonly lines: LogLine[] = [];
  /** Whether the connections of clients have stalled. */
  isStalled = false;
  /** The number of stall checks of requests. */
  stallChecks = 0;
  /** All multipart uploads that were created in R2. */
  readonly multiparts: Multipart[] = [];
  /** The Durable Objects that were called, by name. */
  readonly objects = new Map<string, CalledObject>();
  /** The messages in the queue of waveforms. */
  waveformMessages: WaveformJob[] = [];
  /** The messages in the queue of the recovery job. */
  recoveryMessages: RecoveryJob[] = [];
  /** The requests that the service sent, and the response to each. */
  readonly posts: Post[] = [];
  answer: (post: Post) => Partial<Reply> | Promise<Partial<Reply>> = () => ACCEPTED_REPLY;
  /** Replaces the secrets of the environment, so that a test can rotate them. */
  secrets: Secrets | undefined;
  /** Replaces settings of the environment. */
  settings: Partial<Settings> = {};

  readonly system: System = {
    ...realSystem,
    now: () => this.#startedAt + this.aheadMilliseconds,
    // The clock advances immediately, and other work gets its turn. The stall check waits, unless the connection stalls.
    sleep: async (milliseconds) => {
      if (milliseconds === STALL_CHECK_MILLISECONDS) this.stallChecks += 1;
      if (milliseconds === STALL_CHECK_MILLISECONDS && !this.isStalled) return new Promise<never>(() => undefined);
      this.aheadMilliseconds += Math.ceil(milliseconds);
      await realSystem.sleep(0);
    },
  };

  readonly queue = {
    send: async ({ fileId, teamId }: FileJob) => {
      this.messages.push(fileId);
      this.#teams.set(fileId, teamId);
    },
    sendBatch: async (batch: Iterable<MessageSendRequest<FileJob>>) => {
      for (const { body } of batch) await this.queue.send(body);
    },
  } as unknown as Queue<FileJob>;

  readonly waveformQueue = {
    sendBatch: async (batch: Iterable<MessageSendRequest<WaveformJob>>) => {
      for (const { body } of batch) this.waveformMessages.push(body);
    },
  } as unknown as Queue;

  readonly recoveryQueue = {
    sendBatch: async (batch: Iterable<MessageSendRequest<RecoveryJob>>) => {
      for (const { body } of batch) this.recoveryMessages.push(body);
    },
  } as unknown as Queue;

  /** The emails that were sent. */
  readonly mails: Parameters<Mailer["send"]>[0][] = [];
  mailer: Mailer = { send: async (mail) => void this.mails.push(mail) };

  /** Returns the dependencies of one invocation in the world's own database. `after` gets the promises of `waitUntil`. */
  deps(
    bindings = new ProxiedBindings(),
    after: (work: Promise<unknown>) => void = () => undefined,
    databases?: Deps["databases"],
  ): Deps {
    bindings.multiparts = this.multiparts;
    bindings.now = this.system.now;
    const read = readDeps(env, { waitUntil: after });
    const deps: Deps = {
      ...read,
      settings: { ...read.settings, ...this.settings },
      ...(this.secrets && { secrets: this.secrets }),
      system: this.system,
      // An invocation that dies takes its isolate with it.
      decoding: { endsAt: 0 },
      bodies: new Bodies(),
      log: (level, event, fields) => {
        // A dead invocation logs nothing.
        if (!bindings.isDead) this.lines.push({ level, event, ...fields });
      },
    };
    const sender: Deps["sender"] = {
      post: async (url, headers, body) => {
        const post = { url, headers, body, at: this.system.now() };
        this.posts.push(post);
        return { ...ACCEPTED_REPLY, ...(await this.answer(post)) };
      },
    };
    const queues = { JOBS: this.queue as Queue, WAVEFORMS: this.waveformQueue, RECOVERY: this.recoveryQueue };
    const bound = withBindings(deps, bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, ...queues }), databases);
    const sending: Deps = {
      ...bound,
      db: bound.databases.get(this.database) as Deps["db"],
      sender,
      mailer: this.mailer,
    };
    return objectClasses.reduce(
      (connected, objectClass) => objectClass.connect(connected, this.#namespaceOf(objectClass, bindings)),
      sending,
    );
  }

  #objectOf(objectClass: ObjectClass, name: string): CalledObject {
    const object = this.objects.get(name) ?? { objectClass, name, at: null, open: null };
    this.objects.set(name, object);
    return object;
  }

  /** The calls of an invocation to objects. An object whose alarm runs is the same one. */
  #namespaceOf(objectClass: ObjectClass, bindings: ProxiedBindings): DurableObjectNamespace {
    return namespaceWith(objectClass, (name, method, work) => {
      const object = this.#objectOf(objectClass, name);
      const call = () =>
        inObject(objectClass, name, ({ id, storage }) =>
          this.#invoke(new ProxiedBindings(), undefined, async (deps) => {
            if (object.open) return work(object.open);
            const open = objectClass.open(deps, { id, storage: storageWith(storage, object) });
            if (method !== objectClass.waits) return work(open);
            object.open = open;
            const result = work(open);
            await open.run().finally(() => {
              object.open = null;
            });
            return result;
          }),
        );
      return bindings.object(method, () => must(call()), objectClass.reads.includes(method));
    });
  }

  /** Runs the alarm of an object. The platform runs it again if the object dies before it has set the next one. */
  runAlarm(objectClass: ObjectClass, name: string, bindings = new ProxiedBindings()): Promise<Outcome<void>> {
    const object = this.#objectOf(objectClass, name);
    const afters: Promise<unknown>[] = [];
    return inObject(objectClass, name, async ({ id, storage }) => {
      object.at = null;
      const outcome = await this.#invoke(
        bindings,
        (work) => void afters.push(work),
        async (deps) => {
          const stored = storageWith(storage, object);
          const setAlarm = (at: number) => bindings.store("setAlarm", () => stored.setAlarm(at));
          const post: Deps["sender"]["post"] = (...message) =>
            bindings.object("post", () => deps.sender.post(...message));
          const open = objectClass.open(
            { ...deps, sender: { post } },
            { id, storage: { ...stored, setAlarm } as DurableObjectStorage },
          );
          object.open = open;
          // As the Worker does.
          await open.run().catch((cause) => {
            object.at = this.system.now() + objectClass.alarmFailed(deps, name, cause);
          });
          await Promise.all(afters);
        },
      );
      object.open = null;
      if (outcome === "dead") object.at ??= this.system.now();
      return outcome;
    });
  }

  /** The object whose alarm is due first. */
  get nextAlarm(): CalledObject | undefined {
    const set = [...this.objects.values()].filter(({ at }) => at !== null);
    return set.sort((a, b) => (a.at ?? 0) - (b.at ?? 0))[0];
  }

  /** Runs the alarms of objects that are due now, or within this time, each at its time. */
  async runAlarms(withinMilliseconds = 0): Promise<void> {
    const until = this.system.now() + withinMilliseconds;
    for (
      let next = this.nextAlarm;
      next && (next.at ?? 0) <= Math.max(until, this.system.now());
      next = this.nextAlarm
    ) {
      this.aheadMilliseconds += Math.max(0, (next.at ?? 0) - this.system.now());
      await must(this.runAlarm(next.objectClass, next.name));
    }
  }

  /** Sends one request, and awaits the work that continues after its response. */
  async ask(
    method: string,
    path: string,
    options: CallOptions = {},
    { bindings = new ProxiedBindings(), change = (deps) => deps, isBug = false }: Invocation = {},
  ): Promise<Outcome<Answer>> {
    const afters: Promise<unknown>[] = [];
    const after = (work: Promise<unknown>) => void afters.push(work);
    const ctx = { waitUntil: after, passThroughOnException: () => undefined, props: {} } as unknown as ExecutionContext;
    const send = createCall(async (request) => app.fetch(request, env, ctx));
    return this.#invoke(bindings, after, async (deps) => {
      dependencies.set(ctx, change(deps));
      const answer = await send(method, path, options);
      if (!isBug) expect(answer.status, "an error of a binding is not a bug").not.toBe(500);
      await Promise.all(afters);
      return answer;
    });
  }

  async #invoke<T>(
    bindings: ProxiedBindings,
    after: ((work: Promise<unknown>) => void) | undefined,
    work: (deps: Deps) => Promise<T>,
  ): Promise<Outcome<T>> {
    const deps = { ...this.deps(bindings, after, sharedDatabases), db: NO_DB };
    const databases = ALL_DATABASES.map((database) => bindings.database(database));
    const result = currentDatabases.run(databases, () => work(deps));
    const outcome = await Promise.race([result, bindings.death]);
    bindings.outcome = outcome;
    return outcome;
  }

  /** Sends one request without a fault. */
  readonly call = (method: string, path: string, options?: CallOptions): Promise<Answer> =>
    must(this.ask(method, path, options));

  /** Creates a team, by default in the world's own database. Its key has been used, so that no later request stores that. */
  async newTeam(database = this.database): Promise<Team> {
    const team = await foundTeam(this.call, OPERATOR, database);
    this.databases.add(database);
    expect((await team.call("GET", "/auth/v1/me")).status).toBe(200);
    return team;
  }

  async upload(team: Team, { body, contentType }: Form, headers: Record<string, string> = {}, invocation?: Invocation) {
    const length = body instanceof Uint8Array && { "Content-Length": String(body.byteLength) };
    const options = { token: team.token, body, headers: { "Content-Type": contentType, ...length, ...headers } };
    return this.ask("POST", "/docs/v1/uploads", options, invocation);
  }

  /** Uploads a file without a fault, and enqueues its message. @returns the file's id */
  async store(team: Team, name: string, bytes: Uint8Array<ArrayBuffer> | string): Promise<string> {
    const { status, id } = await must(this.upload(team, await encodeForm(name, bytes)));
    expect(status).toBe(200);
    return id;
  }

  /** Stores a file, and interrupts it in a state. @returns the file's id */
  async storeInterrupted(team: Team, state: string, dueInMilliseconds: number): Promise<string> {
    const id = await this.store(team, "note.txt", `left ${state}`);
    await this.interrupt(id, state, dueInMilliseconds);
    return id;
  }

  /** Changes a stored file as if its upload, job or deletion had died in that state. */
  async interrupt(id: string, state: string, dueInMilliseconds = 0): Promise<void> {
    this.messages = this.messages.filter((message) => message !== id);
    await interruptFile(id, state, this.system.now() + dueInMilliseconds);
  }

  /**
   * Delivers one message to a consumer. The caller may redeliver a message whose consumer died.
   * @returns the seconds after which the consumer wants the message again, or null if it acknowledged the message
   */
  deliver(fileId: string, bindings?: ProxiedBindings, queue = "stowage-jobs"): Promise<Outcome<number | null>> {
    return this.#handle({ fileId, teamId: this.#teams.get(fileId) ?? "" }, queue, bindings);
  }

  /** Delivers one message of a waveform, with the same result. */
  deliverWaveform(job: WaveformJob, bindings?: ProxiedBindings): Promise<Outcome<number | null>> {
    return this.#handle(job, "stowage-waveforms", bindings);
  }

  async #handle(body: Job, queue: string, bindings = new ProxiedBindings()): Promise<Outcome<number | null>> {
    let retrySeconds: number | null = null;
    const message = {
      id: "1",
      timestamp: new Date(this.system.now()),
      attempts: 1,
      body,
      ack: () => undefined,
      retry: (options?: QueueRetryOptions) => {
        retrySeconds = options?.delaySeconds ?? 0;
      },
    };
    const batch = { queue, messages: [message] } as unknown as MessageBatch;
    return this.#invoke(bindings, undefined, async (deps) => {
      await receiveJobs(batch, deps.log, jobMessages, (job) => handleJob(deps, queue, job));
      return retrySeconds;
    });
  }

  /** Delivers the waiting messages, and those that are sent in the meantime, and retries each after its delay. */
  async drain(): Promise<void> {
    for (let next = this.messages.shift(); next !== undefined; next = this.messages.shift()) {
      const retrySeconds = await this.deliver(next);
      if (typeof retrySeconds === "number") {
        this.aheadMilliseconds += retrySeconds * 1000;
        this.messages.push(next);
      }
    }
  }

  /** Delivers the messages of waveforms. */
  async drainWaveforms(): Promise<void> {
    for (let next = this.waveformMessages.shift(); next; next = this.waveformMessages.shift()) {
      if (typeof (await this.deliverWaveform(next)) === "number") this.waveformMessages.push(next);
    }
  }

  /**
   * Runs the recovery job in each database that has teams of this world, or in all if it has no team.
   * @returns the sums of the counts
   */
  async recover(bindings = new ProxiedBindings()): Promise<Outcome<Recovered>> {
    const sums: Record<string, number> = {};
    for (const database of this.databases.size > 0 ? this.databases : sharedDatabases.keys()) {
      const counts = await this.recoverIn(database, bindings);
      if (counts === "dead") return "dead";
      for (const [name, count] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + count;
    }
    return sums as Recovered;
  }

  /** Runs the recovery job until it doesn't ask for another run. @returns the counts of each run */
  async recoverFully(bindings = new ProxiedBindings()): Promise<Recovered[]> {
    const runs: Recovered[] = [];
    do {
      this.recoveryMessages = [];
      runs.push(await must(this.recover(bindings)));
    } while (this.recoveryMessages.length > 0);
    return runs;
  }

  /** Runs the cron trigger, which sends the messages of the recovery job. */
  triggerCron(bindings = new ProxiedBindings()): Promise<Outcome<void>> {
    return this.#invoke(bindings, undefined, startRecovery);
  }

  /** Delivers one message of the recovery job. */
  deliverRecovery(job: RecoveryJob, bindings?: ProxiedBindings): Promise<Outcome<number | null>> {
    return this.#handle(job, "stowage-recovery", bindings);
  }

  /** Runs the recovery job in one database. */
  recoverIn(database: number, bindings = new ProxiedBindings()): Promise<Outcome<Recovered>> {
    return this.#invoke(bindings, undefined, (deps) =>
      recover({ ...deps, db: deps.databases.get(database) as Deps["db"] }),
    );
  }

  async drainAll(): Promise<void> {
    await this.drain();
    await this.drainWaveforms();
    await this.runAlarms();
  }

  /** Lets days pass without faults, and runs the recovery job until nothing is unfinished. */
  async recoverAll(teamIds: string[]): Promise<void> {
    for (let day = 0; day < 10; day++) {
      this.aheadMilliseconds += 25 * 60 * 60 * 1000;
      await this.drainAll();
      await this.recover();
      await this.drainAll();
      if (!(await hasUnfinished(teamIds))) return;
    }
  }
}
