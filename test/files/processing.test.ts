import { createExecutionContext, createMessageBatch, getQueueResult } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { ALL_SCOPES } from "../../src/access/scopes.ts";
import { RangeSource } from "../../src/audio/range-source.ts";
import { deleteFile } from "../../src/files/deletion.ts";
import { failExhaustedFile, LEASE_MILLISECONDS, MAX_CLAIMS, processFile } from "../../src/files/processing.ts";
import worker from "../../src/index.ts";
import type { ByteStore, ObjectFacts } from "../../src/platform/byte-store.ts";
import { receiveJobs } from "../../src/platform/jobs.ts";
import { type FileJob, jobMessages } from "../../src/platform/messages.ts";
import { handleJob } from "../../src/upkeep/consumer.ts";
import { sample } from "../audio/samples.ts";
import { deathAt, ProxiedBindings } from "../support/bindings.ts";
import { patternOf } from "../support/bytes.ts";
import type { Team } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import type { Deps } from "../support/deps.ts";
import { newTeam, processed, queueing, upload } from "../support/harness.ts";
import { expectSettled } from "../support/invariants.ts";
import { type Row, rowsOf } from "../support/queries.ts";
import { Uploader } from "../support/uploader.ts";
import { must, World } from "../support/world.ts";

/* The queue consumer. Some tests deliver messages themselves instead of the queue. D1 and R2 are always the real ones. */

const UNKNOWN = "0193477be8a01f9c3ad5e7b2";
/** The requirement of an operation that any token may use. */
const NO_SCOPES = { scopes: 0, graceMilliseconds: 0 };
const UNKNOWN_JOB = { teamId: UNKNOWN, fileId: UNKNOWN };
const tone = sample("tone.m4a").bytes;

interface Stored {
  world: World;
  team: Team;
  id: string;
  job: FileJob;
  key: string;
  row(): Promise<Row>;
}

/** A file whose message has not been delivered. */
async function stored(bytes: Uint8Array<ArrayBuffer> | string = tone): Promise<Stored> {
  const world = new World();
  const team = await world.newTeam();
  const id = await world.store(team, "file", bytes);
  const row = async () => {
    const [found, ...others] = await rowsOf(team.teamId);
    if (!found || others.length > 0) throw new Error("The team has one file.");
    return found;
  };
  return { world, team, id, job: { teamId: team.teamId, fileId: id }, key: `${team.teamId}/${id}-file`, row };
}

/** Replaces some methods of the byte store. */
const withBytes = (deps: Deps, bytes: Partial<ByteStore>): Deps => ({ ...deps, bytes: { ...deps.bytes, ...bytes } });

/** A worker that pauses between its claim and its first read of the bytes. Then it sees the object that `head` returns. */
function paused(world: World, found?: () => ObjectFacts | null) {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const deps = world.deps();
  const head: ByteStore["head"] = async (key) => {
    reached.resolve();
    await gate.promise;
    return found ? found() : deps.bytes.head(key);
  };
  return { deps: withBytes(deps, { head }), reached: reached.promise, resume: () => gate.resolve() };
}

const unreachable = () => {
  throw new Error("R2 is unreachable.");
};

/** Returns the messages to retry with their delays, which `getQueueResult` does not report. */
function watchRetries(batch: MessageBatch): () => unknown[][] {
  const spies = batch.messages.map((message) => ({ id: message.id, spy: vi.spyOn(message, "retry") }));
  return () => spies.flatMap(({ id, spy }) => spy.mock.calls.map(([options]) => [id, options?.delaySeconds]));
}

describe("The real queue", () => {
  const description = expect.objectContaining({
    codec: "MPEG-4/AAC",
    tags: expect.objectContaining({ title: expect.any(String) }),
  });

  test("completes every file, describes audio, and serves each as its media type", async () => {
    const team = await newTeam(queueing);
    const expected = { "tone.m4a": description, "silent.mp4": null, "pixel.png": null };
    const complete = async ([name, audio]: [string, unknown]) => {
      const { bytes, mimeType, fileType } = sample(name);
      const file = await processed(team, await upload(team, name, bytes));
      expect(file).toMatchObject({ status: "completed", failure: null, mimeType, fileType, size: bytes.length });
      expect(file.processedAt).toEqual(expect.any(String));
      expect(file.audio).toEqual(audio);
      const object = await env.BUCKET.head(`${team.teamId}/${file.filename}`);
      expect(object?.httpMetadata?.contentType).toBe(mimeType);
    };
    await Promise.all(Object.entries(expected).map(complete));
  });

  test("fails a file that identifies as audio and is unreadable", async () => {
    const team = await newTeam(queueing);
    const file = await processed(team, await upload(team, "tone.m4a", tone.slice(0, 600)));
    expect(file).toMatchObject({ status: "failed", audio: null, failure: { code: "audio_unreadable" } });
  });
});

describe("A claim", () => {
  test("is won by one of two simultaneous workers", async () => {
    const { world, job, row } = await stored();
    const outcomes = await Promise.all([processFile(world.deps(), job), processFile(world.deps(), job)]);
    expect(outcomes.sort()).toEqual(["completed", "not_claimed"]);
    expect(await row()).toMatchObject({ status: "completed", attempts: 1 });
  });

  test("holds until its lease expires", async () => {
    const { world, job, row } = await stored();
    const slow = paused(world);
    const first = processFile(slow.deps, job);
    await slow.reached;
    const claimed = await row();
    expect(claimed).toMatchObject({ status: "processing", attempts: 1 });

    world.aheadMilliseconds += LEASE_MILLISECONDS - 60_000;
    expect(await processFile(world.deps(), job)).toBe("not_claimed");
    expect(await row()).toEqual(claimed);

    slow.resume();
    expect(await first).toBe("completed");
  });

  test.each([
    ["store its results", undefined, "not_claimed"],
    ["report missing bytes", () => null, "not_claimed"],
    ["return it to pending", unreachable, { retryAfterSeconds: 10 }],
  ])("passes to another worker when its lease expires, and the late worker cannot %s", async (_, found, outcome) => {
    const { world, job, row } = await stored();
    const slow = paused(world, found);
    const late = processFile(slow.deps, job);
    await slow.reached;
    world.aheadMilliseconds += LEASE_MILLISECONDS + 1;
    const other = paused(world);
    const second = processFile(other.deps, job);
    await other.reached;
    const claimed = await row();

    slow.resume();
    expect(await late).toEqual(outcome);
    expect(await row()).toEqual(claimed);
    other.resume();
    expect(await second).toBe("completed");
  });
});

test("The claim of a file whose bytes are read back is renewed, however long that takes", async () => {
  const world = new World();
  const team = await world.newTeam();
  const client = new Uploader(world, team, patternOf(1000));
  await must(client.create());
  await must(client.send(0, 1000));
  const job = { teamId: team.teamId, fileId: client.id };
  const deps = world.deps();
  const hash: ByteStore["hash"] = async (key, object, onProgress) => {
    for (let part = 0; part < 3; part++) {
      world.aheadMilliseconds += LEASE_MILLISECONDS - 60_000;
      await onProgress();
      expect(await processFile(world.deps(), job)).toBe("not_claimed");
    }
    return deps.bytes.hash(key, object, onProgress);
  };
  expect(await processFile(withBytes(deps, { hash }), job)).toBe("completed");
});

describe("A message", () => {
  test("changes nothing if it is a duplicate", async () => {
    const { world, job, row } = await stored();
    expect(await processFile(world.deps(), job)).toBe("completed");
    const ended = await row();
    expect(await processFile(world.deps(), job)).toBe("not_claimed");
    expect(await row()).toEqual(ended);
  });

  test("is acknowledged if the file is unknown", async () => {
    expect(await processFile(new World().deps(), UNKNOWN_JOB)).toBe("not_claimed");
    expect(await failExhaustedFile(new World().deps(), UNKNOWN_JOB)).toBe("not_claimed");
  });

  test.each(["completed", "failed"])("changes nothing if the file is %s", async (status) => {
    const { world, id, job, row } = await stored();
    await DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    const before = await row();
    expect(await processFile(world.deps(), job)).toBe("not_claimed");
    expect(await failExhaustedFile(world.deps(), job)).toBe("not_claimed");
    expect(await row()).toEqual(before);
  });

  test.for([
    "text",
    null,
    7,
    [],
    {},
    { fileId: UNKNOWN },
    { ...UNKNOWN_JOB, fileId: "short" },
    { ...UNKNOWN_JOB, more: true },
  ])("is logged and acknowledged if it violates the schema (%j)", async (body) => {
    const world = new World();
    const { log } = world.deps();
    const batch = createMessageBatch("stowage-jobs", [{ id: "a", timestamp: new Date(), attempts: 1, body }]);
    await receiveJobs(batch, log, jobMessages, (job) => handleJob(world.deps(), "stowage-jobs", job));
    const { explicitAcks, retryMessages } = await getQueueResult(batch, createExecutionContext());
    expect([explicitAcks, retryMessages]).toEqual([["a"], []]);
    expect(world.lines).toEqual([{ level: "error", event: "message_rejected", outcome: "acked" }]);
  });

  test("does not affect its batch if it always fails", async () => {
    const { world, job: good, row } = await stored();
    const message = (name: string, body: unknown, attempts = 1) => ({
      id: name,
      timestamp: new Date(),
      attempts,
      body,
    });
    const batch = createMessageBatch("stowage-jobs", [
      message("junk", { fileId: 1 }),
      message("poison", UNKNOWN_JOB, 3),
      message("good", good),
    ]);
    const retries = watchRetries(batch);
    await receiveJobs(batch, world.deps().log, jobMessages, async (job) => {
      if ("fileId" in job && job.fileId === UNKNOWN) throw new Error("poison");
      return handleJob(world.deps(), "stowage-jobs", job);
    });
    const { explicitAcks, ackAll, retryBatch } = await getQueueResult(batch, createExecutionContext());
    expect(explicitAcks.sort()).toEqual(["good", "junk"]);
    expect(retries()).toEqual([["poison", 40]]);
    expect([ackAll, retryBatch.retry]).toEqual([false, false]);
    expect(await row()).toMatchObject({ status: "completed" });
  });

  test.each(["stowage-jobs", "stowage-jobs-dead"])(
    "of %s is retried by a misconfigured Worker, which does not throw",
    async (queue) => {
      const batch = createMessageBatch<typeof UNKNOWN_JOB>(queue, [
        { id: "a", timestamp: new Date(), attempts: 1, body: UNKNOWN_JOB },
        { id: "b", timestamp: new Date(), attempts: 2, body: UNKNOWN_JOB },
      ]);
      const ctx = createExecutionContext();
      const retries = watchRetries(batch);
      await worker.queue(batch, {} as Env, ctx);
      expect((await getQueueResult(batch, ctx)).explicitAcks).toEqual([]);
      expect(retries()).toEqual([
        ["a", 10],
        ["b", 20],
      ]);
    },
  );
});

describe("A transient failure", () => {
  test("is retried with a growing delay", async () => {
    const { world, job, row } = await stored();
    const failing = withBytes(world.deps(), { head: unreachable });
    const delays: number[] = [];
    for (let attempt = 1; attempt <= 10; attempt++) {
      const outcome = await processFile(failing, job);
      if (typeof outcome === "string") throw new Error(outcome);
      delays.push(outcome.retryAfterSeconds);
      const { status, attempts, due_at } = await row();
      expect([status, attempts]).toEqual(["pending", attempt]);
      expect(due_at, "the recovery job waits for the retry").toBeGreaterThan(
        world.system.now() + outcome.retryAfterSeconds * 1000,
      );
    }
    expect(delays.slice(0, 7)).toEqual([10, 20, 40, 80, 160, 320, 640]);
    expect(delays.slice(7)).toEqual([900, 900, 900]);
    expect(await processFile(world.deps(), job)).toBe("completed");
  });

  test("a failure of R2 while audio is read does not count as damage", async () => {
    const { world, job, row } = await stored();
    const failing = withBytes(world.deps(), { read: unreachable });
    expect(await processFile(failing, job)).toEqual({ retryAfterSeconds: 10 });
    expect(await row()).toMatchObject({ status: "pending", failure_code: null });
  });

  test("a failure of D1 at the claim makes the queue retry the message", async () => {
    const { world, id } = await stored();
    const again = await world.deliver(id, new ProxiedBindings({ call: 1, moment: "before", failure: "outage" }));
    expect(again).toBe(10);
    expect(await world.deliver(id)).toBeNull();
  });
});

describe("A permanent failure", () => {
  test("is reported if the bytes are missing", async () => {
    const { world, team, id, job, key, row } = await stored();
    await env.BUCKET.delete(key);
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "bytes_missing", due_at: null });
    const { body } = await team.call("GET", `/docs/v1/uploads/${id}/metadata`);
    expect(body.data.failure).toEqual({ code: "bytes_missing", message: "The stored bytes are missing." });
  });

  test.each([
    ["of the same size", new Uint8Array(tone.length)],
    ["of another size", new Uint8Array(tone.length + 1)],
  ])("is reported if the bytes were replaced by others %s", async (_, bytes) => {
    const { world, job, key, row } = await stored();
    await env.BUCKET.put(key, bytes);
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "bytes_altered" });
  });

  test("has its own code and an error in the log if a parser throws", async () => {
    const { world, job, row } = await stored();
    const read = vi.spyOn(RangeSource.prototype, "read").mockRejectedValue(new TypeError("a bug"));
    const outcome = await processFile(world.deps(), job);
    read.mockRestore();
    expect(outcome).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "inspection_failed", due_at: null });
    expect(world.lines).toContainEqual(
      expect.objectContaining({ level: "error", event: "inspection_failed", fileId: job.fileId }),
    );
  });

  test("is reported without a retry if the file exhausts the work budget", async () => {
    const cluster = Buffer.concat([Buffer.from("1f43b675ff", "hex"), Buffer.from("ec80".repeat(8_000), "hex")]);
    const clusters = Buffer.concat([sample("tone-live.webm").bytes, ...Array(64).fill(cluster)]);
    const { world, job, row } = await stored(new Uint8Array(clusters));
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({
      failure_code: "audio_unreadable",
      failure_message: "The file is too complex to inspect.",
    });
  });

  test("is resolved by reprocessing once the bytes are back", async () => {
    const { world, team, id, key, row } = await stored();
    const original = await (await env.BUCKET.get(key))?.arrayBuffer();
    await env.BUCKET.delete(key);
    await world.drain();
    expect(await row()).toMatchObject({ status: "failed" });
    await env.BUCKET.put(key, original ?? null);
    await world.ask("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token });
    expect(await row()).toMatchObject({ status: "pending", failure_code: null, attempts: 0 });
    await world.drain();
    expect(await row()).toMatchObject({ status: "completed", failure_code: null });
  });
});

describe("The retries of a file", () => {
  /** R2 fails this attempt. */
  const outage = () => new ProxiedBindings({ binding: "R2", call: 1, moment: "before", failure: "permanent" });

  test("end in a failure if the message reaches the dead letter queue", async () => {
    const { world, id, row } = await stored();
    await world.deliver(id, outage());
    expect(await row()).toMatchObject({ status: "pending", attempts: 1 });
    expect(await world.deliver(id, undefined, "stowage-jobs-dead")).toBeNull();
    expect(await row()).toMatchObject({ status: "failed", failure_code: "retries_exhausted", due_at: null });
  });

  test("leave a file that was never claimed to the recovery job", async () => {
    const { world, id, row } = await stored();
    expect(await world.deliver(id, undefined, "stowage-jobs-dead")).toBeNull();
    expect(await row()).toMatchObject({ status: "pending", failure_code: null });
    expect((await row()).due_at).not.toBeNull();
  });

  test("retries from before a reprocessing do not count", async () => {
    const { world, team, id, row } = await stored();
    await world.deliver(id, outage());
    await world.deliver(id, undefined, "stowage-jobs-dead");
    await world.ask("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token });
    await world.deliver(id, undefined, "stowage-jobs-dead");
    expect(await row()).toMatchObject({ status: "pending", failure_code: null });
    await world.deliver(id);
    expect(await row()).toMatchObject({ status: "completed" });
  });

  test("do not affect a file that another worker has claimed, until its lease expires", async () => {
    const { world, job, row } = await stored();
    const slow = paused(world);
    const working = processFile(slow.deps, job);
    await slow.reached;
    const claimed = await row();
    expect(await failExhaustedFile(world.deps(), job)).toBe("not_claimed");
    expect(await row()).toEqual(claimed);

    world.aheadMilliseconds += LEASE_MILLISECONDS + 1;
    expect(await failExhaustedFile(world.deps(), job)).toBe("failed");
    const failed = await row();
    slow.resume();
    expect(await working).toBe("not_claimed");
    expect(await row()).toEqual(failed);
  });

  test("are limited if one worker after another dies", async () => {
    const { world, id, row } = await stored();
    let deaths = 0;
    while ((await row()).status !== "failed" && deaths < 100) {
      await world.deliver(id, deathAt("R2", "head", "after"));
      if ((await row()).status === "processing") deaths++;
      world.aheadMilliseconds += LEASE_MILLISECONDS + 1;
    }
    expect(deaths).toBe(MAX_CLAIMS);
    expect(await row()).toMatchObject({ failure_code: "retries_exhausted", attempts: MAX_CLAIMS, due_at: null });
  });
});

describe("A deletion", () => {
  const remove = async ({ world, team, id }: Stored) => {
    const after: Promise<unknown>[] = [];
    const deps = world.deps(undefined, (work) => void after.push(work));
    await deleteFile(
      deps,
      {
        kind: "secret",
        teamId: team.teamId,
        keyId: team.keyId,
        userId: null,
        scopes: ALL_SCOPES,
        ownerId: null,
        right: NO_SCOPES,
      },
      id,
    );
    await Promise.all(after);
  };

  test("during processing wins", async () => {
    const file = await stored();
    const slow = paused(file.world);
    const working = processFile(slow.deps, file.job);
    await slow.reached;
    await remove(file);
    slow.resume();
    // The bytes disappeared during the job, so it is retried, and then finds nothing.
    expect(["not_claimed", { retryAfterSeconds: 10 }]).toContainEqual(await working);
    expect(await processFile(file.world.deps(), file.job)).toBe("not_claimed");
    expect(await expectSettled(file.team.teamId)).toEqual([]);
  });

  test("a deletion before the message arrives leaves nothing to do", async () => {
    const file = await stored();
    await remove(file);
    expect(await processFile(file.world.deps(), file.job)).toBe("not_claimed");
    expect(await expectSettled(file.team.teamId)).toEqual([]);
  });
});

describe("The content type of a file", () => {
  const contentTypeOf = async (key: string) => (await env.BUCKET.head(key))?.httpMetadata?.contentType;
  /** Appends a free box of 9 MiB: then the file is too large for a single `put`. */
  function inParts(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
    const free = new Uint8Array(9 * 1024 * 1024);
    new DataView(free.buffer).setUint32(0, free.length);
    free.set([0x66, 0x72, 0x65, 0x65], 4);
    return new Uint8Array(Buffer.concat([bytes, free]));
  }
  const audioOnly = sample("tone-audio-only.mp4").bytes;

  test.each([
    ["one put", audioOnly],
    ["parts", inParts(audioOnly)],
  ])("is corrected if only the whole file shows that it is audio, stored in %s", async (_, bytes) => {
    const { world, team, key, row } = await stored(bytes);
    expect([await contentTypeOf(key), (await row()).size_bytes]).toEqual(["video/mp4", bytes.length]);
    await world.drain();
    expect(await contentTypeOf(key)).toBe("audio/mp4");
    const object = await env.BUCKET.head(key);
    expect(object?.httpMetadata?.contentDisposition).toContain("attachment");
    await expectSettled(team.teamId);
  });

  test("is detected again by reprocessing", async () => {
    const { world, team, id, key, row } = await stored();
    await world.drain();
    await DB.prepare("update files set mime_type = 'text/plain', file_type = 'text file' where id = ?").bind(id).run();
    const httpMetadata = { contentType: "text/plain" };
    const { etag } = await env.BUCKET.put(key, tone, { httpMetadata, sha256: (await row()).sha256 ?? "" });
    await DB.prepare("update files set etag = ? where id = ?").bind(etag, id).run();
    await team.call("POST", `/docs/v1/uploads/${id}/reprocess`);
    await world.drain();
    expect(await row()).toMatchObject({ status: "completed", mime_type: "audio/mp4", file_type: "audio file" });
    expect(await contentTypeOf(key)).toBe("audio/mp4");
  });

  test("is not corrected for a file that is deleted in the meantime", async () => {
    const { world, team, id, job, key } = await stored(inParts(audioOnly));
    const deps = world.deps();
    const setContentType: ByteStore["setContentType"] = async (...given) => {
      await deleteFile(
        world.deps(),
        {
          kind: "secret",
          teamId: team.teamId,
          keyId: team.keyId,
          userId: null,
          scopes: ALL_SCOPES,
          ownerId: null,
          right: NO_SCOPES,
        },
        id,
      );
      return deps.bytes.setContentType(...given);
    };
    await processFile(withBytes(deps, { setContentType }), job);
    expect(await env.BUCKET.head(key)).toBeNull();
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });

  test("is corrected by another worker if the first one dies between the bytes and the row", async () => {
    // Parts change the etag when the object is stored again.
    const { world, team, job, key, row } = await stored(inParts(audioOnly));
    const deps = world.deps();
    const reached = Promise.withResolvers<void>();
    const setContentType: ByteStore["setContentType"] = async (...given) => {
      await deps.bytes.setContentType(...given);
      reached.resolve();
      return new Promise(() => undefined);
    };
    void processFile(withBytes(deps, { setContentType }), job);
    await reached.promise;
    // The lease of a step of unknown length is as long as a consumer can run.
    world.aheadMilliseconds += 15 * 60_000 + 1;
    expect(await processFile(world.deps(), job)).toBe("completed");
    expect([(await row()).status, await contentTypeOf(key)]).toEqual(["completed", "audio/mp4"]);
    await expectSettled(team.teamId);
  });
});
