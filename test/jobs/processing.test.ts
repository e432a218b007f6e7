import { createExecutionContext, createMessageBatch, getQueueResult } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { RangeSource } from "../../src/domain/audio/range-source.ts";
import { deleteFile } from "../../src/domain/files/files.ts";
import { giveUpFile, LEASE_MILLISECONDS, MAX_ATTEMPTS, processFile } from "../../src/domain/files/processing.ts";
import { handleJob } from "../../src/domain/jobs.ts";
import worker from "../../src/index.ts";
import type { ByteStore, ObjectFacts } from "../../src/platform/byte-store.ts";
import { type FileJob, receiveJobs } from "../../src/platform/jobs.ts";
import { sample, samples } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import type { Team } from "../support/client.ts";
import type { Deps } from "../support/deps.ts";
import { newTeam, processed, queueing, upload } from "../support/harness.ts";
import { Uploader } from "../support/uploader.ts";
import { expectSettled, type Row, rowsOf, World } from "../support/world.ts";

/*
 * The consumer: what becomes of a message, and of the file that it is about. Where the test delivers the messages
 * itself, the queue is its own; D1 and R2 are always the real ones.
 */

const UNKNOWN = "0193477be8a01f9c3ad5e7b2";
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

/** The same deps, with some of what they do to bytes replaced. */
const withBytes = (deps: Deps, bytes: Partial<ByteStore>): Deps => ({ ...deps, bytes: { ...deps.bytes, ...bytes } });

/** A worker that stands still between its claim and its first look at the bytes, and then gets to see what `look` says. */
function paused(world: World, look?: () => ObjectFacts | null) {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const deps = world.deps();
  const head: ByteStore["head"] = async (key) => {
    reached.resolve();
    await gate.promise;
    return look ? look() : deps.bytes.head(key);
  };
  return { deps: withBytes(deps, { head }), reached: reached.promise, goOn: () => gate.resolve() };
}

const away = () => {
  throw new Error("R2 is away.");
};

/** The messages that were to be retried, with their delays: `getQueueResult` tells of no delay. */
function watchRetries(batch: MessageBatch): () => unknown[][] {
  const spies = batch.messages.map((message) => ({ id: message.id, spy: vi.spyOn(message, "retry") }));
  return () => spies.flatMap(({ id, spy }) => spy.mock.calls.map(([options]) => [id, options?.delaySeconds]));
}

describe("Through the real queue", () => {
  test.each(samples.map((one) => [one.file, one] as const))(
    "The recording %s comes to be completed and described.",
    async (_, one) => {
      const team = await newTeam(queueing);
      const file = await processed(team, await upload(team, one.file, one.bytes));
      expect(file).toMatchObject({
        status: "completed",
        failure: null,
        mimeType: one.mimeType,
        fileType: one.fileType,
        size: one.bytes.length,
        processedAt: expect.any(String),
      });
      if (one.audio === null) {
        expect(file.audio).toBeNull();
      } else {
        const { durationSeconds, ...others } = one.audio;
        expect(file.audio).toMatchObject(others);
        expect(Math.abs(file.audio.durationSeconds - durationSeconds)).toBeLessThan(0.1);
        if (one.title) expect(file.audio.tags.title).toBe(one.title);
      }
    },
  );

  test("A file that is no audio is completed without a description.", async () => {
    const team = await newTeam(queueing);
    const file = await processed(team, await upload(team, "note.txt", "hello"));
    expect(file).toMatchObject({ status: "completed", fileType: "text file", audio: null, failure: null });
  });

  test("A file whose bytes call themselves audio and can't be read as such fails.", async () => {
    const team = await newTeam(queueing);
    const file = await processed(team, await upload(team, "tone.m4a", tone.slice(0, 600)));
    expect(file).toMatchObject({ status: "failed", audio: null, failure: { code: "audio_unreadable" } });
  });
});

describe("A claim", () => {
  test("A claim is won by one of two workers at once.", async () => {
    const { world, job, row } = await stored();
    const outcomes = await Promise.all([processFile(world.deps(), job), processFile(world.deps(), job)]);
    expect(outcomes.sort()).toEqual(["completed", "not ours"]);
    expect(await row()).toMatchObject({ status: "completed", attempts: 1 });
  });

  test("A claim holds until its lease runs out.", async () => {
    const { world, job, row } = await stored();
    const slow = paused(world);
    const first = processFile(slow.deps, job);
    await slow.reached;
    const claimed = await row();
    expect(claimed).toMatchObject({ status: "processing", attempts: 1 });

    world.aheadMilliseconds += LEASE_MILLISECONDS - 60_000;
    expect(await processFile(world.deps(), job)).toBe("not ours");
    expect(await row()).toEqual(claimed);

    slow.goOn();
    expect(await first).toBe("completed");
  });

  test.each([
    ["say what it found", undefined, "not ours"],
    ["say that the bytes are missing", () => null, "not ours"],
    ["put it back", away, { retryAfterSeconds: 10 }],
  ])("A claim whose lease has run out is another's, and the late worker can't %s.", async (_, look, outcome) => {
    const { world, job, row } = await stored();
    const slow = paused(world, look);
    const late = processFile(slow.deps, job);
    await slow.reached;
    world.aheadMilliseconds += LEASE_MILLISECONDS + 1;
    const other = paused(world);
    const second = processFile(other.deps, job);
    await other.reached;
    const claimed = await row();

    slow.goOn();
    expect(await late).toEqual(outcome);
    expect(await row()).toEqual(claimed);
    other.goOn();
    expect(await second).toBe("completed");
  });
});

describe("A message", () => {
  test("A message that comes again changes nothing.", async () => {
    const { world, job, row } = await stored();
    expect(await processFile(world.deps(), job)).toBe("completed");
    const ended = await row();
    expect(await processFile(world.deps(), job)).toBe("not ours");
    expect(await row()).toEqual(ended);
  });

  test("A message for a file that was never there is done with.", async () => {
    expect(await processFile(new World().deps(), UNKNOWN_JOB)).toBe("not ours");
    expect(await giveUpFile(new World().deps(), UNKNOWN_JOB)).toBe("not ours");
  });

  test.each(["receiving", "deleting", "completed", "failed"])(
    "A message for a file that is %s changes nothing.",
    async (status) => {
      const { world, id, job, row } = await stored();
      await env.DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
      const before = await row();
      expect(await processFile(world.deps(), job)).toBe("not ours");
      expect(await giveUpFile(world.deps(), job)).toBe("not ours");
      expect(await row()).toEqual(before);
    },
  );

  test.for(["text", null, 7, [], {}, { fileId: "short" }, { fileId: UNKNOWN, more: true }])(
    "A message that is not of our schema (%j) is logged and acked.",
    async (body) => {
      const world = new World();
      const { log } = world.deps();
      const batch = createMessageBatch("stowage-jobs", [{ id: "a", timestamp: new Date(), attempts: 1, body }]);
      await receiveJobs(batch, log, (job) => handleJob(world.deps(), "stowage-jobs", job));
      const { explicitAcks, retryMessages } = await getQueueResult(batch, createExecutionContext());
      expect([explicitAcks, retryMessages]).toEqual([["a"], []]);
      expect(world.lines).toEqual([{ level: "error", event: "message invalid", outcome: "acked" }]);
    },
  );

  test("A message that is poison takes none of its batch along.", async () => {
    const { world, id, row } = await stored();
    const message = (name: string, body: unknown, attempts = 1) => ({
      id: name,
      timestamp: new Date(),
      attempts,
      body,
    });
    const batch = createMessageBatch("stowage-jobs", [
      message("junk", { fileId: 1 }),
      message("poison", { fileId: UNKNOWN }, 3),
      message("good", { fileId: id }),
    ]);
    const retries = watchRetries(batch);
    await receiveJobs(batch, world.deps().log, async (job) => {
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
    "A message of %s is retried by a Worker that is set up wrongly, and nothing is thrown.",
    async (queue) => {
      const batch = createMessageBatch<{ fileId: string }>(queue, [
        { id: "a", timestamp: new Date(), attempts: 1, body: { fileId: UNKNOWN } },
        { id: "b", timestamp: new Date(), attempts: 2, body: { fileId: UNKNOWN } },
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

  test("A message is delivered to the Worker as it is deployed.", async () => {
    const { id, row } = await stored();
    const batch = createMessageBatch("stowage-jobs", [
      { id: "a", timestamp: new Date(), attempts: 1, body: { fileId: id } },
    ]);
    const ctx = createExecutionContext();
    await worker.queue(batch, env, ctx);
    expect((await getQueueResult(batch, ctx)).explicitAcks).toEqual(["a"]);
    expect(await row()).toMatchObject({ status: "completed" });
  });
});

describe("A transient failure", () => {
  test("A file is tried again after a transient failure, with a delay that grows.", async () => {
    const { world, job, row } = await stored();
    const failing = withBytes(world.deps(), { head: away });
    const delays: number[] = [];
    for (let attempt = 1; attempt <= 10; attempt++) {
      const outcome = await processFile(failing, job);
      if (typeof outcome === "string") throw new Error(outcome);
      delays.push(outcome.retryAfterSeconds);
      const { status, attempts, due_at } = await row();
      expect([status, attempts]).toEqual(["pending", attempt]);
      expect(due_at, "recovery waits for the retry").toBeGreaterThan(
        world.system.now() + outcome.retryAfterSeconds * 1000,
      );
    }
    expect(delays.slice(0, 7)).toEqual([10, 20, 40, 80, 160, 320, 640]);
    expect(delays.slice(7)).toEqual([900, 900, 900]);
    expect(await processFile(world.deps(), job)).toBe("completed");
  });

  test("A failure of R2 while audio is read is not taken for damage.", async () => {
    const { world, job, row } = await stored();
    const failing = withBytes(world.deps(), { read: away });
    expect(await processFile(failing, job)).toEqual({ retryAfterSeconds: 10 });
    expect(await row()).toMatchObject({ status: "pending", failure_code: null });
  });

  test("A failure of D1 at the claim has the message retried.", async () => {
    const { world, id } = await stored();
    const again = await world.deliver(id, new ProxiedBindings({ call: 1, moment: "before", failure: "outage" }));
    expect(again).toBe(10);
    expect(await world.deliver(id)).toBeNull();
  });
});

describe("A permanent failure", () => {
  test("A file whose bytes are missing fails.", async () => {
    const { world, team, id, job, key, row } = await stored();
    await env.BUCKET.delete(key);
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "bytes_missing", due_at: null });
    const { body } = await team.call("GET", `/docs/v1/uploads/${id}/metadata`);
    expect(body.data.failure).toEqual({ code: "bytes_missing", message: "The stored bytes are not there." });
  });

  test.each([
    ["as many others", new Uint8Array(tone.length)],
    ["one more", new Uint8Array(tone.length + 1)],
  ])("A file whose bytes are not those that were uploaded, but %s, fails.", async (_, bytes) => {
    const { world, job, key, row } = await stored();
    await env.BUCKET.put(key, bytes);
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "bytes_altered" });
  });

  test("A file of audio that can't be read fails.", async () => {
    const { world, job, row } = await stored(tone.slice(0, 600));
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "audio_unreadable", audio: null });
  });

  test("ends with its own failure and an error in the log if a parser throws", async () => {
    const { world, job, row } = await stored();
    const upTo = vi.spyOn(RangeSource.prototype, "upTo").mockRejectedValue(new TypeError("a bug"));
    const outcome = await processFile(world.deps(), job);
    upTo.mockRestore();
    expect(outcome).toBe("failed");
    expect(await row()).toMatchObject({ status: "failed", failure_code: "inspection_failed", due_at: null });
    expect(world.lines).toContainEqual(
      expect.objectContaining({ level: "error", event: "inspection_failed", fileId: job.fileId }),
    );
  });

  test("ends at once if the file exhausts the work budget", async () => {
    const cluster = Buffer.concat([Buffer.from("1f43b675ff", "hex"), Buffer.from("ec80".repeat(8_000), "hex")]);
    const clusters = Buffer.concat([sample("tone-live.webm").bytes, ...Array(64).fill(cluster)]);
    const { world, job, row } = await stored(new Uint8Array(clusters));
    expect(await processFile(world.deps(), job)).toBe("failed");
    expect(await row()).toMatchObject({
      failure_code: "audio_unreadable",
      failure_message: "The file is too complex to inspect.",
    });
  });

  test("A failed file is completed by a reprocessing, once the bytes are well.", async () => {
    const { world, team, id, key, row } = await stored();
    const sound = await (await env.BUCKET.get(key))?.arrayBuffer();
    await env.BUCKET.delete(key);
    await world.drain();
    expect(await row()).toMatchObject({ status: "failed" });
    await env.BUCKET.put(key, sound ?? null);
    await world.ask("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token });
    expect(await row()).toMatchObject({ status: "pending", failure_code: null, attempts: 0 });
    await world.drain();
    expect(await row()).toMatchObject({ status: "completed", failure_code: null });
  });
});

describe("Tries", () => {
  /** A try that R2 fails. */
  const away = () => new ProxiedBindings({ call: 2, moment: "before", failure: "permanent" });

  test("A file that waits for the next try fails when its tries are used up.", async () => {
    const { world, id, row } = await stored();
    await world.deliver(id, away());
    expect(await row()).toMatchObject({ status: "pending", attempts: 1 });
    expect(await world.deliver(id, undefined, "stowage-jobs-dead")).toBeNull();
    expect(await row()).toMatchObject({ status: "failed", failure_code: "retries_exhausted", due_at: null });
  });

  test("A file that was never looked at, since D1 was away, does not fail when its tries are used up: recovery enqueues it again.", async () => {
    const { world, id, row } = await stored();
    expect(await world.deliver(id, undefined, "stowage-jobs-dead")).toBeNull();
    expect(await row()).toMatchObject({ status: "pending", failure_code: null });
    expect((await row()).due_at).not.toBeNull();
  });

  test("A file does not fail by tries from before it was reprocessed.", async () => {
    const { world, team, id, row } = await stored();
    await world.deliver(id, away());
    await world.deliver(id, undefined, "stowage-jobs-dead");
    await world.ask("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token });
    await world.deliver(id, undefined, "stowage-jobs-dead");
    expect(await row()).toMatchObject({ status: "pending", failure_code: null });
    await world.deliver(id);
    expect(await row()).toMatchObject({ status: "completed" });
  });

  test("A file that another worker holds is left alone when its tries are used up, until the lease runs out.", async () => {
    const { world, job, row } = await stored();
    const slow = paused(world);
    const working = processFile(slow.deps, job);
    await slow.reached;
    const claimed = await row();
    expect(await giveUpFile(world.deps(), job)).toBe("not ours");
    expect(await row()).toEqual(claimed);

    world.aheadMilliseconds += LEASE_MILLISECONDS + 1;
    expect(await giveUpFile(world.deps(), job)).toBe("failed");
    const given = await row();
    slow.goOn();
    expect(await working).toBe("not ours");
    expect(await row()).toEqual(given);
  });

  test("A file over which worker after worker dies fails in the end.", async () => {
    const { world, id, row } = await stored();
    let deaths = 0;
    while ((await row()).status !== "failed" && deaths < 100) {
      await world.deliver(id, new ProxiedBindings({ call: 2, moment: "after", failure: "death" }));
      if ((await row()).status === "processing") deaths++;
      world.aheadMilliseconds += LEASE_MILLISECONDS + 1;
    }
    expect(deaths).toBe(MAX_ATTEMPTS);
    expect(await row()).toMatchObject({ failure_code: "retries_exhausted", attempts: MAX_ATTEMPTS, due_at: null });
  });
});

describe("A delete", () => {
  const remove = async ({ world, team, id }: Stored) => {
    const after: Promise<unknown>[] = [];
    const deps = world.deps(undefined, (work) => void after.push(work));
    await deleteFile(deps, { kind: "secret", teamId: team.teamId, keyId: UNKNOWN, userId: null }, id);
    await Promise.all(after);
  };

  test("A delete while the file is processed is the last word.", async () => {
    const file = await stored();
    const slow = paused(file.world);
    const working = processFile(slow.deps, file.job);
    await slow.reached;
    await remove(file);
    slow.goOn();
    // Its bytes went away under its hands: that is tried again, and finds nothing.
    expect(["not ours", { retryAfterSeconds: 10 }]).toContainEqual(await working);
    expect(await processFile(file.world.deps(), file.job)).toBe("not ours");
    expect(await expectSettled(file.team.teamId)).toEqual([]);
  });

  test("A delete before the message comes leaves it nothing to do.", async () => {
    const file = await stored();
    await remove(file);
    expect(await processFile(file.world.deps(), file.job)).toBe("not ours");
    expect(await expectSettled(file.team.teamId)).toEqual([]);
  });
});

describe("What is kept of a file", () => {
  test("The tags of a recording are kept in less than 16 KiB, of whatever number and length.", async () => {
    // An ID3v2.3 tag of 13 frames of 4,000 bytes each, before a real recording.
    const frame = (id: string) => {
      const text = new TextEncoder().encode(`\0${"\u00e9".repeat(2_000)}`);
      const head = new Uint8Array(10);
      head.set(new TextEncoder().encode(id));
      new DataView(head.buffer).setUint32(4, text.length);
      return Buffer.concat([head, text]);
    };
    const ids = "TIT2 TPE1 TALB TPE2 TCOM TCON TYER TRCK TPOS TBPM TSRC TCOP TXXX".split(" ");
    const frames = Buffer.concat(ids.map(frame));
    const size = [21, 14, 7, 0].map((shift) => (frames.length >> shift) & 0x7f);
    const header = Buffer.from([0x49, 0x44, 0x33, 3, 0, 0, ...size]);
    const { world, job, row } = await stored(
      new Uint8Array(Buffer.concat([header, frames, sample("tone-cbr.mp3").bytes])),
    );
    expect(await processFile(world.deps(), job)).toBe("completed");
    const { audio } = await row();
    expect(Object.keys(JSON.parse(audio ?? "{}").tags).length).toBeGreaterThan(3);
    expect(Buffer.byteLength(audio ?? "")).toBeLessThan(16 * 1024);
  });
});

describe("What is read of a file", () => {
  /** `head` bytes, and as many more as make `sizeBytes`, without anybody storing them. */
  async function describeLarge(head: Uint8Array, sizeBytes: number, at: (offset: number) => number) {
    const { world, id, job, row } = await stored(sample("tone.wav").bytes);
    await env.DB.prepare("update files set size_bytes = ? where id = ?").bind(sizeBytes, id).run();
    const { etag } = await row();
    const reads: number[] = [];
    const deps = withBytes(world.deps(), {
      head: async () => ({ sizeBytes, etag: etag ?? "", sha256: null, contentType: "audio/wav" }),
      read: async (_, offset, length) => {
        const bytes = Uint8Array.from({ length: Math.min(length, sizeBytes - offset) }, (_, i) =>
          offset + i < head.length ? (head[offset + i] ?? 0) : at(offset + i),
        );
        reads.push(bytes.length);
        return bytes;
      },
    });
    expect(await processFile(deps, job)).toBe("completed");
    return { audio: JSON.parse((await row()).audio ?? "null"), bytes: reads.reduce((a, b) => a + b, 0) };
  }

  test("A WAV of 100 MB costs less than 200 KB of reading.", async () => {
    const sizeBytes = 100_000_000;
    const head = sample("tone.wav").bytes.slice(0, 44);
    const view = new DataView(head.buffer);
    view.setUint32(4, sizeBytes - 8, true);
    view.setUint32(16, 16, true);
    head.set(new TextEncoder().encode("data"), 36);
    view.setUint32(40, sizeBytes - 44, true);
    const { audio, bytes } = await describeLarge(head, sizeBytes, () => 0);
    expect(audio).toMatchObject({ container: "WAVE", sampleRate: 16_000, channels: 1 });
    expect(audio.durationSeconds).toBeCloseTo((sizeBytes - 44) / 32_000, 0);
    expect(bytes).toBeLessThan(200_000);
  });
});

describe("What a file is served as", () => {
  const contentTypeOf = async (key: string) => (await env.BUCKET.head(key))?.httpMetadata?.contentType;
  /** The same recording with a free box of 9 MiB behind it: too large for one `put`. */
  function inParts(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
    const free = new Uint8Array(9 * 1024 * 1024);
    new DataView(free.buffer).setUint32(0, free.length);
    free.set([0x66, 0x72, 0x65, 0x65], 4);
    return new Uint8Array(Buffer.concat([bytes, free]));
  }
  const audioOnly = sample("tone-audio-only.mp4").bytes;

  test.each(samples.map((one) => [one.file, one] as const))(
    "A processed %s is served as the media type in its metadata.",
    async (_, one) => {
      const { world, team, id, key } = await stored(one.bytes);
      await world.drain();
      const { body } = await team.call("GET", `/docs/v1/uploads/${id}/metadata`);
      expect([body.data.status, await contentTypeOf(key)]).toEqual(["completed", body.data.mimeType]);
    },
  );

  test.each([
    ["one piece", audioOnly],
    ["parts", inParts(audioOnly)],
  ])(
    "A container that only as a whole turns out to be audio is served as audio, byte for byte the same, stored in %s.",
    async (_, bytes) => {
      const { world, team, key, row } = await stored(bytes);
      expect([await contentTypeOf(key), (await row()).size_bytes]).toEqual(["video/mp4", bytes.length]);
      await world.drain();
      expect(await contentTypeOf(key)).toBe("audio/mp4");
      const object = await env.BUCKET.head(key);
      expect(object?.httpMetadata?.contentDisposition).toContain("attachment");
      await expectSettled(team.teamId);
    },
  );

  test("Processing again detects the media type anew, and serves the file as that.", async () => {
    const { world, team, id, key, row } = await stored();
    await world.drain();
    await env.DB.prepare("update files set mime_type = 'text/plain', file_type = 'text file' where id = ?")
      .bind(id)
      .run();
    const httpMetadata = { contentType: "text/plain" };
    const { etag } = await env.BUCKET.put(key, tone, { httpMetadata, sha256: (await row()).sha256 ?? "" });
    await env.DB.prepare("update files set etag = ? where id = ?").bind(etag, id).run();
    await team.call("POST", `/docs/v1/uploads/${id}/reprocess`);
    await world.drain();
    expect(await row()).toMatchObject({ status: "completed", mime_type: "audio/mp4", file_type: "audio file" });
    expect(await contentTypeOf(key)).toBe("audio/mp4");
  });

  test("A file that is deleted while its bytes are stored under another type does not come back.", async () => {
    const { world, team, id, job, key } = await stored(inParts(audioOnly));
    const deps = world.deps();
    const setContentType: ByteStore["setContentType"] = async (...given) => {
      await deleteFile(world.deps(), { kind: "secret", teamId: team.teamId, keyId: team.keyId, userId: null }, id);
      return deps.bytes.setContentType(...given);
    };
    await processFile(withBytes(deps, { setContentType }), job);
    expect(await env.BUCKET.head(key)).toBeNull();
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });

  const resumed = async () => {
    const world = new World();
    const team = await world.newTeam();
    const client = new Uploader(world, team, audioOnly);
    await client.create(undefined, audioOnly.length);
    const row = async () => (await rowsOf(team.teamId))[0] as Row;
    const { id, teamId, key } = { id: client.id, ...team, key: `${team.teamId}/${client.id}-unnamed` };
    return { world, team, id, job: { teamId, fileId: id }, key, row };
  };

  test.each([
    ["a form", () => stored(inParts(audioOnly))],
    ["a resumable upload", resumed],
  ])(
    "A worker that dies between the bytes and the row of %s leaves a file that another completes.",
    async (_, make) => {
      const { world, team, job, key, row } = await make();
      const deps = world.deps();
      const reached = Promise.withResolvers<void>();
      const setContentType: ByteStore["setContentType"] = async (...given) => {
        await deps.bytes.setContentType(...given);
        reached.resolve();
        return new Promise(() => undefined);
      };
      void processFile(withBytes(deps, { setContentType }), job);
      await reached.promise;
      // The lease of a step of unknown length is as long as a consumer can live.
      world.aheadMilliseconds += 15 * 60_000 + 1;
      expect(await processFile(world.deps(), job)).toBe("completed");
      expect([(await row()).status, await contentTypeOf(key)]).toEqual(["completed", "audio/mp4"]);
      await expectSettled(team.teamId);
    },
  );
});
