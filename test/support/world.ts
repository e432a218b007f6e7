import { env } from "cloudflare:workers";
import { AsyncLocalStorage } from "node:async_hooks";
import { expect } from "vitest";
import { createApp } from "../../src/app.ts";
import { STALL_CHECK_MILLISECONDS } from "../../src/domain/files/appending.ts";
import { handleJob } from "../../src/domain/jobs.ts";
import { type Recovered, recover } from "../../src/domain/recovery.ts";
import { RUN_LIMITS } from "../../src/domain/run-budget.ts";
import { createDb } from "../../src/platform/db.ts";
import { type FileJob, type Job, receiveJobs, type WebhookJob } from "../../src/platform/jobs.ts";
import type { LogFields } from "../../src/platform/log.ts";
import type { Secrets } from "../../src/platform/secrets.ts";
import type { Reply } from "../../src/platform/sender.ts";
import { realSystem, type System } from "../../src/platform/system.ts";
import { type Multipart, ProxiedBindings } from "./bindings.ts";
import { type Answer, type CallOptions, createCall, form, foundTeam, type Team } from "./client.ts";
import { type Change, type Deps, readDeps, TAKEN, withBindings } from "./deps.ts";
import { OPERATOR } from "./harness.ts";
import { expectDelivered, expectTold, hasEnded, isHidden, toldQueries } from "./told.ts";

/*
 * A `World` is all that is outside of an invocation of the Worker: a clock that a test sets ahead, a queue that delivers
 * when a test says so. D1 and R2 are the real ones; each invocation may have them behind a `ProxiedBindings` of its own,
 * which fails a call or kills the invocation.
 */

/** What a client is answered when a binding fails for now, and for good. */
export const UNAVAILABLE = [503, "unavailable"] as const;
export const AFTER_PERMANENT_FAILURE = [500, "internal"] as const;

// One app and one Drizzle for all invocations, as in an isolate: building routes and SQL takes longer than a request.
const dependencies = new WeakMap<object, Deps>();
const app = createApp((_, ctx) => dependencies.get(ctx) as Deps);
const currentDatabase = new AsyncLocalStorage<D1Database>();
const sharedDb = createDb({
  prepare: (sql: string) => database().prepare(sql),
  batch: (statements: D1PreparedStatement[]) => database().batch(statements),
} as D1Database);

function database(): D1Database {
  const current = currentDatabase.getStore();
  if (!current) throw new Error("A query outside of an invocation.");
  return current;
}

/** What an invocation came to: its answer, or nothing where it died. */
export type Ended<T> = T | "dead";

export interface Line extends LogFields {
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

/** A message of a webhook, as it was posted. */
export interface Post {
  url: string;
  headers: Record<string, string>;
  body: string;
  /** On the world's clock, in milliseconds. */
  at: number;
}

/** A message of a webhook, and the time it arrives (milliseconds). */
export interface WebhookMessage extends WebhookJob {
  at: number;
}

interface Invocation {
  bindings?: ProxiedBindings | undefined;
  change?: Change | undefined;
}

/** For an invocation that can't die. */
export async function must<T>(ended: Promise<Ended<T>>): Promise<T> {
  const answer = await ended;
  if (answer === "dead") throw new Error("The invocation died.");
  return answer;
}

export class World {
  readonly #startedAt = realSystem.now();
  /** How far the world's clock has gone. It stands still otherwise: how long a test takes does not matter in it. */
  aheadMilliseconds = 0;
  /** File ids of the messages that wait to be delivered, in the order they were sent. */
  messages: string[] = [];
  /** The teams that they name. */
  readonly #teams = new Map<string, string>();
  readonly lines: Line[] = [];
  /** The lines of its clients have gone silent. */
  isSilent = false;
  /** How often requests have looked whether a line has. */
  looks = 0;
  /** All multipart uploads that were begun in R2. */
  readonly multiparts: Multipart[] = [];
  /** The messages in the queue of webhooks. */
  webhookMessages: WebhookMessage[] = [];
  /** The requests to webhook endpoints, and the response to each. */
  readonly posts: Post[] = [];
  answer: (post: Post) => Partial<Reply> | Promise<Partial<Reply>> = () => TAKEN;
  /** In place of the secrets of the environment, where a test rotates them. */
  secrets: Secrets | undefined;

  readonly system: System = {
    ...realSystem,
    now: () => this.#startedAt + this.aheadMilliseconds,
    // Time passes at once, and whatever else is under way gets its turn. A request that waits for bytes waits for them.
    sleep: async (milliseconds) => {
      if (milliseconds === STALL_CHECK_MILLISECONDS) this.looks += 1;
      if (milliseconds === STALL_CHECK_MILLISECONDS && !this.isSilent) return new Promise<never>(() => undefined);
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

  readonly webhookQueue = {
    sendBatch: async (batch: Iterable<MessageSendRequest<WebhookJob>>, options?: QueueSendBatchOptions) => {
      const at = this.system.now() + (options?.delaySeconds ?? 0) * 1000;
      for (const { body } of batch) this.webhookMessages.push({ ...body, at });
    },
  } as unknown as Queue;

  /** What one invocation depends on. Its `waitUntil` goes to `after`. */
  deps(bindings = new ProxiedBindings(), after: (work: Promise<unknown>) => void = () => undefined): Deps {
    bindings.multiparts = this.multiparts;
    bindings.now = this.system.now;
    const deps: Deps = {
      ...readDeps(env, { waitUntil: after }),
      ...(this.secrets && { secrets: this.secrets }),
      system: this.system,
      log: (level, event, fields) => {
        // Its own copy: what is dead says nothing either.
        if (!bindings.isDead) this.lines.push({ level, event, ...fields });
      },
    };
    const sender: Deps["sender"] = {
      post: async (url, headers, body) => {
        const post = { url, headers, body, at: this.system.now() };
        this.posts.push(post);
        return { ...TAKEN, ...(await this.answer(post)) };
      },
    };
    const { DB, BUCKET } = env;
    const queues = { JOBS: this.queue as Queue, WEBHOOKS: this.webhookQueue };
    return { ...withBindings(deps, bindings.wrap({ DB, BUCKET, ...queues })), sender };
  }

  /** One request, with all that goes on after its answer. */
  async ask(
    method: string,
    path: string,
    options: CallOptions = {},
    { bindings = new ProxiedBindings(), change = (deps) => deps }: Invocation = {},
  ): Promise<Ended<Answer>> {
    const afters: Promise<unknown>[] = [];
    const after = (work: Promise<unknown>) => void afters.push(work);
    const ctx = { waitUntil: after, passThroughOnException: () => undefined, props: {} } as unknown as ExecutionContext;
    const send = createCall(async (request) => app.fetch(request, env, ctx));
    return this.#invoke(bindings, after, async (deps) => {
      dependencies.set(ctx, change(deps));
      const answer = await send(method, path, options);
      if (!bindings.hasFailedPermanently) {
        expect(answer.status, "a transient failure of a binding is never a bug of ours").not.toBe(500);
      }
      await Promise.all(afters);
      return answer;
    });
  }

  #invoke<T>(
    bindings: ProxiedBindings,
    after: ((work: Promise<unknown>) => void) | undefined,
    work: (deps: Deps) => Promise<T>,
  ): Promise<Ended<T>> {
    const deps = { ...this.deps(bindings, after), db: sharedDb };
    const ended = currentDatabase.run(bindings.database(env.DB), () => work(deps));
    return Promise.race([ended, bindings.death]);
  }

  /** The same of an invocation that nothing happens to. */
  readonly call = (method: string, path: string, options?: CallOptions): Promise<Answer> =>
    must(this.ask(method, path, options));

  newTeam(): Promise<Team> {
    return foundTeam(this.call, OPERATOR);
  }

  async upload(team: Team, { body, contentType }: Form, headers: Record<string, string> = {}, invocation?: Invocation) {
    const length = body instanceof Uint8Array && { "Content-Length": String(body.byteLength) };
    const options = { token: team.token, body, headers: { "Content-Type": contentType, ...length, ...headers } };
    return this.ask("POST", "/docs/v1/uploads", options, invocation);
  }

  /** An upload that nothing happens to, and its message. @returns the file's id */
  async store(team: Team, name: string, bytes: Uint8Array<ArrayBuffer> | string): Promise<string> {
    const { status, id } = await must(this.upload(team, await encodeForm(name, bytes)));
    expect(status).toBe(200);
    return id;
  }

  /** A file with its bytes, left in a state, and due so long from now. */
  async leave(team: Team, state: string, dueInMilliseconds: number): Promise<string> {
    const id = await this.store(team, "note.txt", `left ${state}`);
    await this.turnBack(id, state, dueInMilliseconds);
    return id;
  }

  /** Makes a stored file what it would be had its upload, job or deletion stopped in that state. */
  async turnBack(id: string, state: string, dueInMilliseconds = 0): Promise<void> {
    this.messages = this.messages.filter((message) => message !== id);
    // What is being received knows nothing of its bytes; what is hidden has not been told of, or to its end.
    const unknown = state === "receiving" ? ", size_bytes = null, sha256 = null, etag = null" : "";
    const untold = state === "receiving" || state === "deleting";
    await env.DB.batch([
      env.DB.prepare(
        `update files set status = ?1, due_at = ?2, lease_ends_at = iif(?1 = 'processing', ?2, null)${unknown} where id = ?3`,
      ).bind(state, this.system.now() + dueInMilliseconds, id),
      env.DB.prepare("delete from events where subject_id = ? and ?").bind(id, Number(untold)),
    ]);
  }

  /**
   * Delivers one message to a consumer. Answers the seconds after which it wants the message again, null where it is
   * done with it. A message whose consumer died is for the caller to deliver again, or to forget.
   */
  deliver(fileId: string, bindings?: ProxiedBindings, queue = "stowage-jobs"): Promise<Ended<number | null>> {
    return this.#handle({ fileId, teamId: this.#teams.get(fileId) ?? "" }, queue, bindings);
  }

  /** Delivers one message of a webhook, with the same result. */
  deliverWebhook({ teamId, webhookId }: WebhookJob, bindings?: ProxiedBindings): Promise<Ended<number | null>> {
    return this.#handle({ teamId, webhookId }, "stowage-webhooks", bindings);
  }

  async #handle(body: Job, queue: string, bindings = new ProxiedBindings()): Promise<Ended<number | null>> {
    let again: number | null = null;
    const message = {
      id: "1",
      timestamp: new Date(this.system.now()),
      attempts: 1,
      body,
      ack: () => undefined,
      retry: (options?: QueueRetryOptions) => {
        again = options?.delaySeconds ?? 0;
      },
    };
    const batch = { queue, messages: [message] } as unknown as MessageBatch;
    return this.#invoke(bindings, undefined, async (deps) => {
      await receiveJobs(batch, deps.log, (job) => handleJob(deps, queue, job));
      return again;
    });
  }

  /** Delivers what waits, and what is sent meanwhile; what wants to be tried again is, after its delay. */
  async drain(): Promise<void> {
    for (let next = this.messages.shift(); next !== undefined; next = this.messages.shift()) {
      const again = await this.deliver(next);
      if (typeof again === "number") {
        this.aheadMilliseconds += again * 1000;
        this.messages.push(next);
      }
    }
  }

  /** Delivers the messages of webhooks, each at its time, until none is left. */
  async drainDeliveries(): Promise<void> {
    while (this.webhookMessages.length > 0) {
      const next = this.webhookMessages.reduce((first, message) => (message.at < first.at ? message : first));
      this.webhookMessages.splice(this.webhookMessages.indexOf(next), 1);
      this.aheadMilliseconds += Math.max(0, next.at - this.system.now());
      const again = await this.deliverWebhook(next);
      if (typeof again === "number") this.webhookMessages.push({ ...next, at: this.system.now() + again * 1000 });
    }
  }

  async recover(bindings = new ProxiedBindings(), limits = RUN_LIMITS): Promise<Ended<Recovered>> {
    return this.#invoke(bindings, undefined, (deps) => recover(deps, limits));
  }

  /** The bindings are well again and days go by, with recovery at work, until nothing is left to do. */
  async heal(teamIds: string[]): Promise<void> {
    for (let day = 0; day < 10; day++) {
      this.aheadMilliseconds += 25 * 60 * 60 * 1000;
      await this.drain();
      await this.drainDeliveries();
      await this.recover();
      await this.drain();
      await this.drainDeliveries();
      if (!(await hasUnfinished(teamIds))) return;
    }
  }
}

export interface Row {
  id: string;
  team_id: string;
  original_name: string;
  status: string;
  reserved_bytes: number;
  size_bytes: number | null;
  sha256: string | null;
  etag: string | null;
  failure_code: string | null;
  audio: string | null;
  idempotency_key: string | null;
  attempts: number;
  due_at: number | null;
  waveform_writing_since: number | null;
  version: number;
}

export const IN_TRANSIT = ["receiving", "pending", "processing", "deleting"];

export async function rowsOf(teamId: string): Promise<Row[]> {
  const { results } = await env.DB.prepare("select * from files where team_id = ? order by id").bind(teamId).all<Row>();
  return results;
}

async function hasUnfinished(teamIds: string[]): Promise<boolean> {
  for (let i = 0; i < teamIds.length; i += 90) {
    const some = teamIds.slice(i, i + 90);
    const teams = `team_id in (${some.map((_, at) => `?${at + 1}`).join()})`;
    const found = await env.DB.prepare(
      `select 1 from files where ${teams} and status in ('${IN_TRANSIT.join("','")}')
       union all select 1 from uploads where ${teams}
       union all select 1 from deliveries where ${teams} and due_at is not null limit 1`,
    )
      .bind(...some)
      .first();
    if (found) return true;
  }
  return false;
}

export async function sha256(bytes: ArrayBuffer | Uint8Array): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
}

/** SHA-256 by etag, which R2 takes from the bytes: each content, and each way to cut it into parts, is read once. */
const digests = new Map<string, string>();

async function digestOf(object: R2Object | undefined): Promise<string | undefined> {
  if (!object) return undefined;
  const known = digests.get(object.etag);
  if (known) return known;
  const stored = await env.BUCKET.get(object.key);
  if (!stored) return undefined;
  const digest = await sha256(await stored.arrayBuffer());
  digests.set(object.etag, digest);
  return digest;
}

type FileId = { file_id: string };

/** Everything that must hold of a team at any moment, whatever died; unless the test itself took bytes away. @returns its rows */
export async function expectSound(
  teamId: string,
  { whole = false, bytesLost = false, hasUploads = true, isDelivered = false } = {},
): Promise<Row[]> {
  // The objects first: whatever is there now has had its row before.
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  const of = (sql: string) => env.DB.prepare(sql).bind(teamId);
  const [found, uploads, parts, [usage], ...told] = (
    await env.DB.batch<Record<string, unknown>>([
      of("select * from files where team_id = ? order by id"),
      of("select file_id, offset_bytes, size_bytes from uploads where team_id = ?"),
      // A part tells no team: its upload does.
      env.DB.prepare("select * from upload_parts where file_id not in (select file_id from uploads)"),
      of("select files, bytes from team_usage where team_id = ?"),
      ...toldQueries(teamId),
    ])
  ).map(({ results }) => results) as [Row[], FileId[], object[], object[], ...unknown[][]];
  const rows: Row[] = found;
  expect(parts, "parts without an upload").toEqual([]);
  if (!hasUploads) expect(uploads, "uploads that are left").toEqual([]);
  const keyOf = (row: Row) => `${teamId}/${row.id}-${row.original_name}`;
  const withWaveform = rows.filter((row) => row.waveform_writing_since !== null);
  const keys = new Set([...rows.map(keyOf), ...withWaveform.map(({ id }) => `${teamId}/${id}/waveform`)]);
  const stashes = uploads.map((upload) => `${teamId}/${upload.file_id}.`);
  expect(
    objects.filter(({ key }) => !keys.has(key) && !stashes.some((prefix) => key.startsWith(prefix))),
    "objects without a row",
  ).toEqual([]);
  const bytes = rows.reduce((sum, row) => sum + row.reserved_bytes, 0);
  const counted = rows.filter((row) => row.reserved_bytes > 0).length;
  expect(usage ?? { files: 0, bytes: 0 }, "team_usage is the sum of the rows").toEqual({ files: counted, bytes });
  expectTold(rows, told);
  if (isDelivered) expectDelivered(told);
  for (const row of rows) {
    if (!hasEnded(row)) {
      expect(row.due_at, `a file ${row.status} has a fate`).not.toBeNull();
    }
    if (isHidden(row) || bytesLost) continue;
    const object = objects.find(({ key }) => key === keyOf(row));
    expect([object?.size, object?.etag], "a listed file has its bytes").toEqual([row.size_bytes, row.etag]);
    if (whole) expect(await digestOf(object), "a listed file has exactly its bytes").toBe(row.sha256);
  }
  return rows;
}

/** Every multipart upload of the team is over whose id its row knew: R2 itself gives up one that nobody knows of. */
async function expectNoMultipart({ multiparts }: World, teamId: string): Promise<void> {
  for (const { key, id, isKnown } of multiparts) {
    if (!isKnown || !key.startsWith(`${teamId}/`)) continue;
    const sent = env.BUCKET.resumeMultipartUpload(key, id).uploadPart(1, "x");
    await expect(sent, "the multipart upload is over").rejects.toThrow("(10024)");
  }
}

/** What must hold once the bindings are well and recovery has run: every row has come to an end. */
export async function expectSettled(
  teamId: string,
  { bytesLost = false, world }: { bytesLost?: boolean; world?: World } = {},
): Promise<Row[]> {
  // Where days have gone by, which only a world knows, uploads are forgotten too.
  const rows = await expectSound(teamId, {
    ...{ whole: true, bytesLost },
    ...(world && { hasUploads: false, isDelivered: true }),
  });
  if (world) await expectNoMultipart(world, teamId);
  expect(
    rows.filter((row) => !hasEnded(row)).map(({ status }) => status),
    "files without an end",
  ).toEqual([]);
  return rows;
}

/** The team's objects, rows and keys, gone: room for the next run. */
export async function forget(teamId: string): Promise<void> {
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  if (objects.length > 0) await env.BUCKET.delete(objects.map(({ key }) => key));
  await env.DB.batch(
    [
      "upload_parts where file_id in (select file_id from uploads where team_id = ?)",
      "uploads where team_id = ?",
      "files where team_id = ?",
      "api_keys where team_id = ?",
      "events where team_id = ?",
      "webhooks where team_id = ?",
      "deliveries where team_id = ?",
    ].map((rows) => env.DB.prepare(`delete from ${rows}`).bind(teamId)),
  );
}
