import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { describe, expect, vi } from "vitest";
import { ALL_SCOPES } from "../../src/access/scopes.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import type { Chunk } from "../../src/platform/part.ts";
import { MERGED_BYTES } from "../../src/platform/part.ts";
import { handleJob } from "../../src/upkeep/consumer.ts";
import { STALL_CHECK_MILLISECONDS } from "../../src/uploads/appending.ts";
import { cancelUpload } from "../../src/uploads/unfinished.ts";
import { deathAt, type Fault, ProxiedBindings } from "../support/bindings.ts";
import { MEBIBYTE, patternOf, sha256 } from "../support/bytes.ts";
import type { Answer } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import type { Change, Deps } from "../support/deps.ts";
import { included, type Run, runEveryFault, type Scenario } from "../support/faults.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { expectSettled } from "../support/invariants.ts";
import { type Row, rowsOf } from "../support/queries.ts";
import { MINUTE } from "../support/time.ts";
import { offsetOf } from "../support/tus.ts";
import { SMALL_PART_BYTES, Uploader } from "../support/uploader.ts";
import { must, type Outcome, World } from "../support/world.ts";

/*
 * Crash points of resumable uploads. support/faults.ts says which faults run. After a fault, the client gets the offset
 * and resumes the upload. In the end, either the complete file exists or no file.
 *
 * R2 only assembles parts of at least 5 MiB, except the last. A scenario with several small parts does not assemble them:
 * it checks the bytes of the saved parts, and then cancels the upload.
 */

const small = patternOf(3000);
/** More than each upload can buffer without the memory budget. */
const medium = patternOf(250_000);
/** Two parts. */
const large = patternOf(5 * MEBIBYTE + 3000);
const digests = new Map(
  await Promise.all([small, medium, large].map(async (bytes) => [bytes, sha256(bytes)] as const)),
);

const status = (result: unknown) => (result === "dead" ? "dead" : (result as Answer).status);
const resume = (client: Uploader) => client.resume();
const create = (client: Uploader) => must(client.create());
/** A client without a response does not know its upload URL. */
const resumeIfCreated = async (client: Uploader, result: unknown) => status(result) === 201 && client.resume();
const sendSmall = async (client: Uploader, to: number) => {
  await create(client);
  await must(client.send(0, to));
};
const withoutMemory = async (client: Uploader) => {
  await create(client);
  client.hasNoMemory = true;
};

/** Sends all bytes. The Worker dies before it assembles them. */
async function sendUnassembled(client: Uploader): Promise<void> {
  await create(client);
  expect(await client.send(0, client.bytes.length, deathAt("R2", "complete", "before"))).toBe("dead");
}

/** Sends a part and a chunk. */
async function sendPartAndChunk(client: Uploader): Promise<void> {
  await client.createWithSmallParts();
  expect(status(await client.send(0, 1.5 * SMALL_PART_BYTES))).toBe(204);
}

/** The stored bytes are the sent ones, up to the reported offset. */
async function expectStoredPrefix({ id, bytes, reportedOffset, world }: Uploader): Promise<void> {
  const [[row], parts] = (
    await DB.batch<Record<string, string | number>>([
      DB.prepare("select offset_bytes, part_bytes, chunks, multipart_id from uploads where file_id = ?").bind(id),
      DB.prepare("select md5 from upload_parts where file_id = ? order by number").bind(id),
    ])
  ).map(({ results }) => results) as [[Record<string, string | number>], { md5: string }[]];
  const { offset_bytes: offset, part_bytes: partBytes } = row as { [column: string]: number };
  expect(offset).toBe(reportedOffset);
  const md5Of = (at: number) =>
    createHash("md5")
      .update(bytes.subarray(at * Number(partBytes), (at + 1) * Number(partBytes)))
      .digest("hex");
  expect(parts.map(({ md5 }) => md5)).toEqual(parts.map((_, at) => md5Of(at)));
  const inParts = parts.length * Number(partBytes);
  const chunks: Chunk[] = JSON.parse(String(row?.chunks ?? "[]"));
  const objects = await Promise.all(
    chunks.map(async ({ key, sizeBytes }) => {
      const object = await env.BUCKET.get(key, { range: { offset: 0, length: sizeBytes } });
      return new Uint8Array(object ? await object.arrayBuffer() : []);
    }),
  );
  const inChunks = Buffer.concat(objects);
  expect(inParts + inChunks.length, "the parts and chunks have the reported bytes").toBe(reportedOffset);
  expect(Buffer.compare(inChunks, bytes.subarray(inParts, reportedOffset)), "the bytes of the chunks").toBe(0);
  if (parts.length > 0) expect(world.multiparts.map((multipart) => multipart.id)).toContain(row?.multipart_id);
}

/** Gets the offset, sends some bytes, and cancels. */
async function resumeAndCancel(client: Uploader): Promise<void> {
  expect(status(await client.head())).toBe(200);
  const { reportedOffset } = client;
  await expectStoredPrefix(client);
  expect(status(await client.send(reportedOffset, reportedOffset + 100))).toBe(204);
  await expectStoredPrefix(client);
  expect(status(await client.ask("DELETE"))).toBe(204);
}

/** A body whose second half arrives after `sendRest()`. */
function slow(bytes: Uint8Array): { body: ReadableStream<Uint8Array>; sendRest: () => void; isRead: Promise<void> } {
  const gate = Promise.withResolvers<void>();
  const read = Promise.withResolvers<void>();
  const half = bytes.length >> 1;
  let pulls = 0;
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        pulls++;
        if (pulls === 1) return controller.enqueue(bytes.slice(0, half));
        read.resolve();
        await gate.promise;
        controller.enqueue(bytes.slice(half));
        controller.close();
      },
    },
    { highWaterMark: 0 },
  );
  return { body, sendRest: gate.resolve, isRead: read.promise };
}

/** The older request has sent half of its bytes when `newer` runs, and then sends the rest. The two never run at once. */
async function fencingOff(
  client: Uploader,
  from: number,
  older: ProxiedBindings | undefined,
  newer: () => Promise<unknown>,
): Promise<{ older: Outcome<Answer>; newer: unknown }> {
  const { body, sendRest, isRead } = slow(client.bytes.slice(from));
  const first = client.patch(from, body, {}, older);
  await Promise.race([isRead, first]);
  const second = await newer();
  sendRest();
  return { older: await first, newer: second };
}

/** The upload's file is hidden, and it counts against the quota until its bytes are gone. */
async function expectHeldQuota({ world, bytes, team: { teamId, token } }: Uploader): Promise<void> {
  expect(await rowsOf(teamId)).toMatchObject([{ status: "deleting", reserved_bytes: bytes.length }]);
  const { body } = await world.call("GET", "/docs/v1/usage", { token });
  expect(body.data).toMatchObject({ files: 1, bytes: bytes.length });
}

interface Upload
  extends Pick<Scenario<Uploader, unknown>, "isRecovery" | "onlyChanges" | "isRepresentative" | "isLong"> {
  bytes: Uint8Array<ArrayBuffer>;
  /** Creates the upload, by default. */
  prepare?(client: Uploader): Promise<unknown>;
  act(client: Uploader, bindings: ProxiedBindings): Promise<unknown>;
  /** The next requests of the client, unless it disconnects. */
  afterwards?(client: Uploader, result: unknown): Promise<unknown>;
  /** Whether the file exists in the end. Undefined if both are right, because the client got no response. */
  isKept: boolean | ((result: unknown) => boolean | undefined);
  /** Checks the result. */
  verify?(result: unknown, run: Run<Uploader, unknown>): void;
}

function scenarioOf({ bytes, prepare = create, act, afterwards, isKept, verify, ...rest }: Upload) {
  const scenario: Scenario<Uploader, unknown> = {
    ...rest,
    async prepare({ world, team }) {
      const client = new Uploader(world, team, bytes);
      await prepare(client);
      return client;
    },
    async act(client, bindings) {
      const result = await act(client, bindings);
      await afterwards?.(client, result);
      return result;
    },
    verify(rows, run) {
      verify?.(run.result, run);
      expectFile(rows, run.state, typeof isKept === "boolean" ? isKept : isKept(run.result));
    },
  };
  return scenario;
}

/** Either the complete file exists or no file. */
function expectFile(rows: Row[], { bytes, id }: Uploader, isKept: boolean | undefined): void {
  const kept = isKept ?? rows.length > 0;
  expect(rows.map((row) => [row.status, row.sha256, row.size_bytes, row.reserved_bytes])).toEqual(
    kept ? [["completed", digests.get(bytes), bytes.length, bytes.length]] : [],
  );
  if (isKept) expect(rows[0]?.id).toBe(id);
}

const recovery = {
  isRecovery: true,
  onlyChanges: true,
  act: ({ world }: Uploader, bindings: ProxiedBindings) => world.recover(bindings),
} as const;
/** Unless a fault kept the newer request from fencing it off, the older one saved nothing more. */
const expectFencedOff = (result: unknown, { fault }: Run<Uploader, unknown>) => {
  const { older } = result as { older: Outcome<Answer> };
  if (!fault) expect(older).toMatchObject({ status: 409, code: "offset_mismatch" });
};

const uploads: Record<string, Upload> = {
  "the creation of an upload": {
    bytes: small,
    prepare: async () => undefined,
    act: (client, bindings) => client.create(bindings),
    afterwards: resumeIfCreated,
    isKept: (result) => status(result) === 201,
  },
  "the creation of an upload with all of its bytes": {
    bytes: small,
    prepare: async () => undefined,
    act: (client, bindings) => client.create(bindings, small.length),
    afterwards: resumeIfCreated,
    isKept: (result) => status(result) === 201 || undefined,
  },
  "the request that sends the middle of a small file": {
    bytes: small,
    prepare: (client) => sendSmall(client, 1000),
    act: (client, bindings) => client.send(1000, 2000, bindings),
    afterwards: resume,
    isKept: true,
  },
  "the request that completes an upload of two parts": {
    isRepresentative: true,
    isLong: true,
    bytes: large,
    onlyChanges: true,
    prepare: (client) => sendSmall(client, 5 * MEBIBYTE + 1000),
    act: (client, bindings) => client.send(5 * MEBIBYTE + 1000, large.length, bindings),
    afterwards: resume,
    isKept: true,
  },
  "a request that sends the rest of a part, another part, and some of a third": {
    isRepresentative: true,
    bytes: small,
    prepare: sendPartAndChunk,
    act: (client, bindings) => client.send(1.5 * SMALL_PART_BYTES, 2.5 * SMALL_PART_BYTES, bindings),
    afterwards: resumeAndCancel,
    isKept: false,
  },
  "a request without memory that fills the first part and is interrupted in the second": {
    bytes: medium,
    async prepare(client) {
      await client.createWithSmallParts(100_000);
      await must(client.send(0, 80_000));
      client.hasNoMemory = true;
    },
    act: (client, bindings) => client.sendInterrupted(80_000, 180_000, bindings),
    afterwards: resumeAndCancel,
    isKept: false,
  },
  "the request that sends all of a file without memory": {
    bytes: medium,
    prepare: withoutMemory,
    act: (client, bindings) => client.send(0, medium.length, bindings),
    afterwards: resume,
    isKept: true,
  },
  "a request that stalls": {
    bytes: small,
    prepare: (client) => sendSmall(client, 1000),
    act: (client, bindings) => client.sendStalled(1000, 1500, 2000, bindings),
    afterwards: resume,
    isKept: true,
  },
  "a request that is fenced off before its first part is full": {
    bytes: small,
    prepare: (client) => client.createWithSmallParts(2 * SMALL_PART_BYTES),
    act: (client, bindings) => fencingOff(client, 0, bindings, () => must(client.send(0, 200))),
    verify: expectFencedOff,
    afterwards: resumeAndCancel,
    isKept: false,
  },
  "a request that is fenced off in a later part": {
    bytes: small,
    prepare: (client) => client.createWithSmallParts(),
    act: (client, bindings) =>
      fencingOff(client, 0, bindings, async () => {
        await must(client.head());
        return must(client.send(client.reportedOffset, client.reportedOffset + 200));
      }),
    verify: expectFencedOff,
    afterwards: resumeAndCancel,
    isKept: false,
  },
  "a request that fences off another": {
    isRepresentative: true,
    bytes: small,
    act: (client, bindings) => fencingOff(client, 0, undefined, () => client.send(0, 2000, bindings)),
    verify: expectFencedOff,
    afterwards: resume,
    isKept: true,
  },
  "HEAD of a complete upload that is not assembled": {
    bytes: large,
    prepare: sendUnassembled,
    act: (client, bindings) => client.head(bindings),
    afterwards: resume,
    isKept: true,
  },
  "the recovery job with a complete upload that is not assembled": {
    ...recovery,
    bytes: large,
    async prepare(client) {
      await sendUnassembled(client);
      client.world.aheadMilliseconds += 3 * MINUTE;
    },
    isKept: true,
  },
  "the recovery job with an expired upload": {
    ...recovery,
    bytes: small,
    async prepare(client) {
      await sendPartAndChunk(client);
      client.world.aheadMilliseconds += 25 * 60 * MINUTE;
    },
    isKept: false,
  },
  "the recovery job with an upload that was deleted while its Worker died": {
    ...recovery,
    bytes: small,
    async prepare(client) {
      await sendPartAndChunk(client);
      const dying = deathAt("R2", "uploadPart", "after");
      expect(await client.send(client.reportedOffset, small.length, dying)).toBe("dead");
      expect(status(await client.ask("DELETE"))).toBe(204);
      client.world.aheadMilliseconds += 20 * MINUTE;
    },
    isKept: false,
  },
  "the recovery job with an upload that finished a day ago": {
    ...recovery,
    bytes: small,
    async prepare(client) {
      await sendSmall(client, small.length);
      await client.world.drain();
      client.world.aheadMilliseconds += 25 * 60 * MINUTE;
    },
    isKept: true,
  },
  "DELETE of an upload": {
    bytes: small,
    prepare: sendPartAndChunk,
    act: (client, bindings) => client.ask("DELETE", {}, undefined, bindings),
    verify(result, { fault, bindings }) {
      const isRetried = fault?.failure === "transient" && bindings.calls[fault.call - 1]?.startsWith("D1");
      if (!fault || isRetried) expect(status(result)).toBe(204);
    },
    isKept: false,
  },
  "DELETE of an upload that another request is sending": {
    bytes: small,
    act: (client, bindings) =>
      fencingOff(client, 0, undefined, async () => {
        const deleted = await client.ask("DELETE", {}, undefined, bindings);
        if (status(deleted) === 204) await expectHeldQuota(client);
        return deleted;
      }),
    afterwards: (client) => client.ask("DELETE"),
    // If DELETE failed, the other request finished.
    isKept: (result) => status((result as { older: unknown }).older) === 204,
    verify(result) {
      const { older, newer } = result as { older: unknown; newer: unknown };
      if (status(newer) === 204) expect([404, 409]).toContain(status(older));
    },
  },
  "the revocation of the key that created an upload": {
    bytes: small,
    prepare: sendPartAndChunk,
    act: ({ world, team }, bindings) =>
      world.ask("DELETE", `/auth/v1/apikeys/${team.keyId}`, { token: team.token }, { bindings }),
    async afterwards({ team }, result) {
      if (status(result) !== 200) return;
      expect(await rowsOf(team.teamId)).toMatchObject([{ status: "deleting", reserved_bytes: small.length }]);
    },
    isKept: false,
  },
  "the deletion of the file of an upload": {
    bytes: small,
    prepare: (client) => sendSmall(client, small.length),
    act: ({ world, team, id }, bindings) =>
      world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }, { bindings }),
    afterwards: ({ world, team, id }) => world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }),
    isKept: false,
  },
  "processing the file of an upload": {
    bytes: small,
    async prepare(client) {
      await sendSmall(client, small.length);
      client.world.messages = client.world.messages.filter((message) => message !== client.id);
    },
    async act({ world, id }, bindings) {
      const again = await world.deliver(id, bindings);
      if (typeof again === "number") world.messages.push(id);
    },
    isKept: true,
  },
};

describe("A fault at any call", () => {
  test.for(included(Object.entries(uploads)))(
    "loses no byte and leaves no orphan in %s",
    { timeout: 600_000 },
    async ([name, upload], { annotate }) => {
      const { calls, ...counts } = await runEveryFault(scenarioOf(upload));
      await annotate(`crash points of ${name}: ${JSON.stringify(counts)} (${calls.join(", ")})`);
    },
  );
});

const expectKept = async ({ world, team }: Uploader, bytes: Uint8Array<ArrayBuffer>) => {
  for (let days = 0; days < 3; days++) await world.recoverAll([team.teamId]);
  const [row] = await rowsOf(team.teamId);
  expect([row?.status, row?.sha256]).toEqual(["completed", sha256(bytes)]);
};

test("A complete upload that is not assembled stays due soon after another request for it dies", async ({ world }) => {
  const client = new Uploader(world, await world.newTeam(), large);
  await sendUnassembled(client);
  expect(await client.send(large.length, large.length, deathAt("R2", "complete", "before"))).toBe("dead");
  world.aheadMilliseconds += 3 * 60 * 1000;
  await world.recover();
  expect(world.messages).toEqual([client.id]);
  await expectKept(client, large);
});

test("An incomplete upload is not assembled by a message for it", async ({ world }) => {
  const client = new Uploader(world, await world.newTeam(), small);
  await sendPartAndChunk(client);
  await handleJob(world.deps(), "stowage-jobs", { teamId: client.team.teamId, fileId: client.id });
  await resumeAndCancel(client);
});

describe("Small requests", () => {
  /** Counts the bytes that are written to R2 and read from it. */
  function counting() {
    const moved = { put: 0, got: 0 };
    const bucket = new Proxy(env.BUCKET, {
      get(target, name) {
        if (name === "put") {
          return (key: string, body: Uint8Array, options?: R2PutOptions) => {
            moved.put += body.byteLength;
            return target.put(key, body, options);
          };
        }
        if (name === "get") {
          return async (key: string, options?: R2GetOptions) => {
            moved.got += (options?.range as { length: number } | undefined)?.length ?? 0;
            return target.get(key, options);
          };
        }
        const value: unknown = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    const change: Change = (deps) => ({ ...deps, bytes: createByteStore(bucket, deps.system) });
    return { moved, change };
  }

  test("requests of one byte rewrite at most one merged chunk each, and lose nothing", async ({ world }) => {
    const client = new Uploader(world, await world.newTeam(), large);
    await create(client);
    const requests = 20;
    const to = 5 * MEBIBYTE - 1;
    const from = to - requests;
    await must(client.send(0, from));
    const { moved, change } = counting();
    for (let at = from; at < to; at++) {
      await must(client.patch(at, large.slice(at, at + 1), { "Content-Length": "1" }, undefined, change));
    }
    expect(client.reportedOffset).toBe(to);
    expect(moved.got).toBeLessThanOrEqual(requests * MERGED_BYTES);
    expect(moved.put).toBeLessThanOrEqual(moved.got + requests);
    const { objects } = await env.BUCKET.list({ prefix: `${client.team.teamId}/` });
    expect(objects).toHaveLength(2);
    await client.resume();
    await expectKept(client, large);
  });
});

describe("An upload without bytes", () => {
  test("expires after an hour", async ({ world }) => {
    const client = new Uploader(world, await world.newTeam(), small);
    await create(client);
    world.aheadMilliseconds += 59 * MINUTE;
    expect((await must(client.head())).status).toBe(200);
    world.aheadMilliseconds += 2 * MINUTE;
    expect((await must(client.head())).status).toBe(410);
    await world.recover();
    expect(await expectSettled(client.team.teamId, { world })).toEqual([]);
  });

  test("does not expire while its first request writes, and accepts no further request once it is due", async () => {
    const world = new World();
    const [writing, claiming] = await Promise.all(
      [1, 2].map(async () => new Uploader(world, await world.newTeam(), small)),
    );
    await create(writing!);
    await create(claiming!);
    world.aheadMilliseconds += 59 * MINUTE;
    const dying = () => new ProxiedBindings({ binding: "R2", call: 1, moment: "before", failure: "death" });
    expect(await claiming!.send(0, 100, dying())).toBe("dead");
    const { older } = await fencingOff(writing!, 0, undefined, async () => {
      world.aheadMilliseconds += 14 * MINUTE;
      expect((await must(claiming!.send(0, 100))).status).toBe(410);
      await world.recover();
    });
    expect(status(older)).toBe(204);
    world.aheadMilliseconds += 3 * MINUTE;
    expect((await must(claiming!.send(0, 100))).status).toBe(410);
  });
});

describe("A connection that stalls", () => {
  test.each([false, true])("loses no received bytes and can continue (without memory: %s)", async (hasNoMemory) => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), large);
    await must(client.create());
    client.hasNoMemory = hasNoMemory;
    const at = 5 * MEBIBYTE - 700;
    const bindings = new ProxiedBindings();
    await must(client.sendStalled(0, at, 5 * MEBIBYTE + 700, bindings));
    // One during the stall, one at the end.
    expect(bindings.calls.filter((call) => call === "R2 put")).toHaveLength(2);
    expect(await client.savedOffset()).toBe(5 * MEBIBYTE + 700);
    await client.resume();
    await expectKept(client, large);
  });

  test("completes the upload after its last byte, even if the body does not end", async ({ world }) => {
    const client = new Uploader(world, await world.newTeam(), small);
    await must(client.create());
    world.isStalled = true;
    let hasSent = false;
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          if (hasSent) return new Promise<void>(() => undefined);
          hasSent = true;
          return controller.enqueue(small.slice());
        },
      },
      { highWaterMark: 0 },
    );
    expect(offsetOf(await must(client.patch(0, body)))).toBe(small.length);
    await expectKept(client, small);
  });

  test.each([
    [1, 0],
    [4, 2],
  ])("a stall of %i checks after each of ten chunks is saved %i times before the end", async (checks, saves) => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), small);
    await must(client.create());
    const waiting: (() => void)[] = [];
    const sleep = () => new Promise<void>((resolve) => waiting.push(resolve));
    let chunkNumber = 0;
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          for (let passed = 0; chunkNumber > 0 && passed < checks; passed++) {
            await vi.waitUntil(async () => waiting.length > 0 || (await client.savedOffset()) === chunkNumber * 100, {
              timeout: 60_000,
            });
            waiting.shift()?.();
          }
          if (chunkNumber < 10) controller.enqueue(small.slice(chunkNumber * 100, chunkNumber * 100 + 100));
          else controller.close();
          chunkNumber += 1;
        },
      },
      { highWaterMark: 0 },
    );
    const bindings = new ProxiedBindings();
    const controlledSleep: Change = (deps) => ({ ...deps, system: { ...deps.system, sleep } });
    const answer = await must(client.patch(0, body, {}, bindings, controlledSleep));
    expect(offsetOf(answer)).toBe(1000);
    expect(bindings.calls.filter((call) => call === "R2 put")).toHaveLength(saves + 1);
  });
});

describe("Two requests for one upload", () => {
  test.each([
    ["before it puts its bytes", "before", false],
    ["after it has put its bytes", "after", false],
    ["after it has put its bytes, and the newer has not yet", "after", true],
  ] as const)("store the bytes of the newer one if the older one pauses %s", async (_, moment, isNewerLate) => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), small);
    await must(client.create());
    const pausing = (when: "before" | "after") => {
      const reached = Promise.withResolvers<void>();
      const gate = Promise.withResolvers<void>();
      const pause = async () => {
        reached.resolve();
        await gate.promise;
      };
      const change: Change = (deps) => {
        const put: Deps["bytes"]["put"] = async (...input) => {
          if (when === "before") await pause();
          const etag = await deps.bytes.put(...input);
          if (when === "after") await pause();
          return etag;
        };
        return { ...deps, bytes: { ...deps.bytes, put } };
      };
      return { reached: reached.promise, unpause: gate.resolve, change };
    };
    const other = small.map((byte) => byte ^ 1);
    const first = pausing(moment);
    const older = client.patch(0, other, {}, undefined, first.change);
    await first.reached;
    const second = pausing("before");
    const newer = client.patch(0, small, {}, undefined, second.change);
    if (isNewerLate) {
      await second.reached;
      first.unpause();
      await older;
    }
    second.unpause();
    expect((await must(newer)).status).toBe(204);
    first.unpause();
    expect(await must(older)).toMatchObject({ status: 409, code: "offset_mismatch" });
    await expectKept(client, small);
  });

  test.each<
    [string, (client: Uploader, bindings: ProxiedBindings, change: Change) => Promise<Outcome<Answer>>, number]
  >([
    // The newer one sends too much to merge it with the chunk of the older one.
    ["a chunk", (client, bindings, change) => client.sendInterrupted(0, 1000, bindings, change), MERGED_BYTES + 1000],
    [
      "the multipart id",
      (client, bindings, change) => client.patch(0, large.slice(), {}, bindings, change),
      5 * MEBIBYTE,
    ],
  ])("keep %s that the older one has saved without knowing it", async (_, act, to) => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), large);
    await must(client.create());
    // The third call to D1 saves. The pause is before its retry.
    const unanswered: Fault = { binding: "D1", call: 3, moment: "after", failure: "transient" };
    let pauses = 0;
    const sleep = async () => {
      pauses += 1;
      if (pauses === 1) await must(client.send(await client.savedOffset(), to));
    };
    const change: Change = (deps) => ({
      ...deps,
      system: { ...deps.system, sleep: (ms) => (ms === STALL_CHECK_MILLISECONDS ? deps.system.sleep(ms) : sleep()) },
    });
    expect(await must(act(client, new ProxiedBindings(unanswered), change))).toMatchObject({ status: 409 });
    expect(pauses).toBe(1);
    await client.resume();
    await expectKept(client, large);
  });

  test("end with the revocation of the key, even if the older one is still sending", async ({ world }) => {
    const client = new Uploader(world, await world.newTeam(), large);
    await create(client);
    const { keyId, token, teamId } = client.team;
    const { older } = await fencingOff(client, 0, undefined, () =>
      must(world.ask("DELETE", `/auth/v1/apikeys/${keyId}`, { token })),
    );
    expect(status(older)).toBe(401);
    expect(await rowsOf(teamId)).toEqual([]);
    world.aheadMilliseconds += 16 * MINUTE;
    await world.recover();
    expect(await expectSettled(teamId, { world })).toEqual([]);
  });

  test("keep the file if DELETE comes after its commit, and record no deletion", async ({ world, team }) => {
    const id = await world.store(team, "stored.txt", "stored");
    const actor = {
      kind: "secret" as const,
      teamId: team.teamId,
      keyId: team.keyId,
      userId: null,
      scopes: ALL_SCOPES,
      ownerId: null,
      right: { scopes: 0, graceMilliseconds: 0 },
    };
    await expect(cancelUpload(world.deps(), actor, id)).rejects.toMatchObject({ code: "forbidden" });
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });

  test("end with DELETE, even if the older one is still sending parts", async ({ world }) => {
    const client = new Uploader(world, await world.newTeam(), small);
    await client.createWithSmallParts();
    const { older } = await fencingOff(client, 0, undefined, () => must(client.ask("DELETE")));
    expect([404, 409]).toContain(status(older));
    await world.recoverAll([client.team.teamId]);
    expect(await expectSettled(client.team.teamId, { world })).toEqual([]);
  });
});
