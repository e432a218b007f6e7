import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { describe, expect, test, vi } from "vitest";
import { STALL_CHECK_MILLISECONDS } from "../../src/domain/files/appending.ts";
import { deleteFile } from "../../src/domain/files/files.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { type Chunk, MERGED_BYTES } from "../../src/platform/part.ts";
import { FAILURES, type Fault, ProxiedBindings } from "../support/bindings.ts";
import type { Answer } from "../support/client.ts";
import type { Change, Deps } from "../support/deps.ts";
import { emptyStores } from "../support/stores.ts";
import { offsetOf } from "../support/tus.ts";
import { patternOf, Uploader } from "../support/uploader.ts";
import { type Ended, expectSettled, must, rowsOf, sha256, World } from "../support/world.ts";

/*
 * Every crash point of a resumable upload: each scenario runs once in peace, and then again for each call that it makes
 * to D1, R2 and the Queue, with that call failing or the Worker dying over it, before and, where that leaves another
 * state, after the call took effect. Then the client does what clients do: it asks how far the upload has come, and goes
 * on. Then days go by with recovery at work, and there must be the whole file or nothing, and nothing else.
 *
 * R2 puts parts together only if they have 5 MiB. A scenario that needs parts and not their end has small ones, and ends
 * by what proves that those which were saved are of the right bytes.
 */

const MEBIBYTE = 1024 * 1024;
const SMALL_PART_BYTES = 1000;
const MINUTE = 60_000;

const small = patternOf(3000);
/** More than each upload has in memory in any case. */
const medium = patternOf(250_000);
/** Two parts. */
const large = patternOf(5 * MEBIBYTE + 3000);
const digests = new Map(
  await Promise.all([small, medium, large].map(async (bytes) => [bytes, await sha256(bytes)] as const)),
);

interface Scenario {
  bytes: Uint8Array<ArrayBuffer>;
  prepare?(client: Uploader): Promise<unknown>;
  act(client: Uploader, bindings: ProxiedBindings): Promise<unknown>;
  /** What the client does next; nothing where it went away. */
  afterwards?(client: Uploader, result: unknown): Promise<unknown>;
  /** Whether the file is to be there at the end; undefined where it may be, of a client that was told nothing. */
  isKept: boolean | ((result: unknown) => boolean | undefined);
  /** It acts on rows of every team. */
  alone?: true;
}

interface Run {
  client: Uploader;
  where: string;
  result: unknown;
}

async function runOnce(scenario: Scenario, world: World, fault?: Fault): Promise<[Run, ProxiedBindings]> {
  const client = new Uploader(world, await world.newTeam(), scenario.bytes);
  if (scenario.prepare) await scenario.prepare(client);
  const bindings = new ProxiedBindings(...(fault ? [fault] : []));
  const result = await scenario.act(client, bindings);
  const call = fault ? bindings.calls[fault.call - 1] : "";
  const where = fault ? `${fault.failure} ${fault.moment} call ${fault.call}, ${call}` : "in peace";
  try {
    await scenario.afterwards?.(client, result);
  } catch (error) {
    throw new Error(`${where}: ${(error as Error).message}`, { cause: error });
  }
  return [{ client, where, result }, bindings];
}

/** The file with all of its bytes, or nothing; and nothing else. */
async function expectEnded({ client }: Run, isKept: boolean | undefined): Promise<void> {
  const { world, team, bytes, id } = client;
  const rows = await expectSettled(team.teamId, { world });
  const kept = isKept ?? rows.length > 0;
  expect(rows.map((row) => [row.status, row.sha256, row.size_bytes, row.reserved_bytes])).toEqual(
    kept ? [["completed", digests.get(bytes), bytes.length, bytes.length]] : [],
  );
  if (isKept) expect(rows[0]?.id).toBe(id);
}

async function settle(scenario: Scenario, world: World, runs: Run[]): Promise<void> {
  await world.heal(runs.map(({ client }) => client.team.teamId));
  for (const run of runs) {
    const { isKept } = scenario;
    try {
      await expectEnded(run, typeof isKept === "boolean" ? isKept : isKept(run.result));
    } catch (error) {
      throw new Error(`${run.where}: ${(error as Error).message}`, { cause: error });
    }
  }
  await emptyStores();
}

async function everyPoint(scenario: Scenario): Promise<{ calls: string[]; changes: number; runs: number }> {
  let world = new World();
  const [first, peace] = await runOnce(scenario, world);
  await settle(scenario, world, [first]);
  world = new World();
  let open: Run[] = [];
  let runs = 0;
  for (const fault of peace.everyFault()) {
    const [run, bindings] = await runOnce(scenario, world, fault);
    expect(bindings.calls[fault.call - 1], "the scenario repeats itself").toBe(peace.calls[fault.call - 1]);
    open.push(run);
    runs++;
    if (scenario.alone) {
      await settle(scenario, world, open);
      open = [];
      world = new World();
    }
  }
  await settle(scenario, world, open);
  const { calls, idle } = peace;
  return { calls, changes: calls.length - idle.size, runs };
}

const status = (result: unknown) => (result === "dead" ? "dead" : (result as Answer).status);
const resume = (client: Uploader) => client.resume();
const begin = (client: Uploader) => must(client.create());
/** A client that was told nothing does not know where its upload is. */
const resumeIfCreated = async (client: Uploader, result: unknown) => status(result) === 201 && client.resume();

/** Whole, and not put together: the Worker died before. */
async function whole(client: Uploader): Promise<void> {
  await begin(client);
  const dying = new ProxiedBindings({ binding: "R2", call: 4, moment: "before", failure: "death" });
  expect(await client.send(0, client.bytes.length, dying)).toBe("dead");
  expect(dying.calls.at(-1)).toBe("R2 complete");
}

async function beginInSmallParts(client: Uploader, partBytes = SMALL_PART_BYTES): Promise<void> {
  await begin(client);
  const { id } = client;
  await env.DB.prepare("update uploads set part_bytes = ? where file_id = ?").bind(partBytes, id).run();
}

/** A part and a stash. */
async function half(client: Uploader): Promise<void> {
  await beginInSmallParts(client);
  expect(status(await client.send(0, 1.5 * SMALL_PART_BYTES))).toBe(204);
}

/** What the row says is stored is stored, and is what was sent. */
async function expectBeginning({ id, bytes, reportedOffset, world }: Uploader): Promise<void> {
  const [[row], parts] = (
    await env.DB.batch<Record<string, string | number>>([
      env.DB.prepare(
        "select offset_bytes, part_bytes, partial_part as chunks, multipart_id from uploads where file_id = ?",
      ).bind(id),
      env.DB.prepare("select md5 from upload_parts where file_id = ? order by number").bind(id),
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
  expect(inParts + inChunks.length, "parts and chunks are what was reported").toBe(reportedOffset);
  expect(Buffer.compare(inChunks, bytes.subarray(inParts, reportedOffset)), "the bytes of the chunks").toBe(0);
  if (parts.length > 0) expect(world.multiparts.map((multipart) => multipart.id)).toContain(row?.multipart_id);
}

/** The client asks, sends some more, and gives up. */
async function goOnAndGiveUp(client: Uploader): Promise<void> {
  expect(status(await client.head())).toBe(200);
  const { reportedOffset } = client;
  await expectBeginning(client);
  expect(status(await client.send(reportedOffset, reportedOffset + 100))).toBe(204);
  await expectBeginning(client);
  expect(status(await client.ask("DELETE"))).toBe(204);
}

const age = async (client: Uploader) => {
  client.world.aheadMilliseconds += 25 * 60 * MINUTE;
};

/** A body that comes halfway, and goes on when it is told to. */
function slow(bytes: Uint8Array): { body: ReadableStream<Uint8Array>; goOn: () => void; isRead: Promise<void> } {
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
  return { body, goOn: gate.resolve, isRead: read.promise };
}

/** An older request has come halfway when `newer` is sent; then it goes on. The two never run at the same time. */
async function overtaking(
  client: Uploader,
  from: number,
  older: ProxiedBindings | undefined,
  newer: () => Promise<unknown>,
): Promise<{ older: Ended<Answer>; newer: unknown }> {
  const { body, goOn, isRead } = slow(client.bytes.slice(from));
  const first = client.patch(from, body, {}, older);
  await Promise.race([isRead, first]);
  const second = await newer();
  goOn();
  return { older: await first, newer: second };
}

const scenarios: [string, Scenario][] = [
  [
    "the begin of an upload",
    {
      bytes: small,
      act: (client, bindings) => client.create(bindings),
      afterwards: resumeIfCreated,
      isKept: (result) => status(result) === 201,
    },
  ],
  [
    "the begin of an upload with its first bytes",
    {
      bytes: small,
      act: (client, bindings) => client.create(bindings, 1000),
      afterwards: resumeIfCreated,
      isKept: (result) => status(result) === 201,
    },
  ],
  [
    "the begin of an upload with all of its bytes",
    {
      bytes: small,
      act: (client, bindings) => client.create(bindings, small.length),
      afterwards: resumeIfCreated,
      isKept: (result) => status(result) === 201 || undefined,
    },
  ],
  [
    "the request that sends all of a small file",
    {
      bytes: small,
      prepare: begin,
      act: (client, bindings) => client.send(0, small.length, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "the request that sends the middle of a small file",
    {
      bytes: small,
      async prepare(client) {
        await begin(client);
        await must(client.send(0, 1000));
      },
      act: (client, bindings) => client.send(1000, 2000, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "the request that completes an upload of two parts",
    {
      bytes: large,
      async prepare(client) {
        await begin(client);
        await must(client.send(0, 5 * MEBIBYTE + 1000));
      },
      act: (client, bindings) => client.send(5 * MEBIBYTE + 1000, large.length, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request that sends the rest of a part, another part, and some of a third",
    {
      bytes: small,
      prepare: half,
      act: (client, bindings) => client.send(1.5 * SMALL_PART_BYTES, 2.5 * SMALL_PART_BYTES, bindings),
      afterwards: goOnAndGiveUp,
      isKept: false,
    },
  ],
  [
    "a request whose line breaks",
    {
      bytes: small,
      async prepare(client) {
        await begin(client);
        await must(client.send(0, 1000));
      },
      act: (client, bindings) => client.cut(1000, 2000, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request that fills the first part, and whose line breaks in the second",
    {
      bytes: small,
      async prepare(client) {
        await beginInSmallParts(client);
        await must(client.send(0, 500));
      },
      act: (client, bindings) => client.cut(500, 1.5 * SMALL_PART_BYTES, bindings),
      afterwards: goOnAndGiveUp,
      isKept: false,
    },
  ],
  [
    "a request that finds no memory",
    {
      bytes: medium,
      async prepare(client) {
        await beginInSmallParts(client, 100_000);
        await must(client.send(0, 80_000));
      },
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.send(80_000, 180_000, bindings);
      },
      afterwards: goOnAndGiveUp,
      isKept: false,
    },
  ],
  [
    "a request that finds no memory and whose line breaks",
    {
      bytes: medium,
      prepare: begin,
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.cut(0, 200_000, bindings);
      },
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "the request that sends all of a file and finds no memory",
    {
      bytes: medium,
      prepare: begin,
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.send(0, medium.length, bindings);
      },
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request whose line goes silent",
    {
      bytes: small,
      async prepare(client) {
        await must(client.create());
        await must(client.send(0, 1000));
      },
      act: (client, bindings) => client.silent(1000, 1500, 2000, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request that finds no memory and whose line goes silent",
    {
      bytes: medium,
      prepare: (client) => must(client.create()),
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.silent(0, 100_000, 200_000, bindings);
      },
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request that is overtaken before its first part is full",
    {
      bytes: small,
      prepare: (client) => beginInSmallParts(client, 2 * SMALL_PART_BYTES),
      act: (client, bindings) => overtaking(client, 0, bindings, () => must(client.send(0, 200))),
      afterwards: goOnAndGiveUp,
      isKept: false,
    },
  ],
  [
    "a request that is overtaken within a later part",
    {
      bytes: small,
      prepare: beginInSmallParts,
      act: (client, bindings) =>
        overtaking(client, 0, bindings, async () => {
          await must(client.head());
          return must(client.send(client.reportedOffset, client.reportedOffset + 200));
        }),
      afterwards: goOnAndGiveUp,
      isKept: false,
    },
  ],
  [
    "a request that overtakes another",
    {
      bytes: small,
      prepare: begin,
      act: (client, bindings) => overtaking(client, 0, undefined, () => client.send(0, 2000, bindings)),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "HEAD that finds an upload whole and not put together",
    {
      bytes: large,
      prepare: whole,
      act: (client, bindings) => client.head(bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "recovery that finds an upload whole and not put together",
    {
      bytes: large,
      alone: true,
      async prepare(client) {
        await whole(client);
        client.world.aheadMilliseconds += 3 * MINUTE;
      },
      act: ({ world }, bindings) => world.recover(bindings),
      isKept: true,
    },
  ],
  [
    "recovery that finds an upload expired",
    {
      bytes: small,
      alone: true,
      async prepare(client) {
        await half(client);
        await age(client);
      },
      act: ({ world }, bindings) => world.recover(bindings),
      isKept: false,
    },
  ],
  [
    "recovery that finds an upload deleted while its Worker died",
    {
      bytes: small,
      alone: true,
      async prepare(client) {
        await half(client);
        const dying = new ProxiedBindings({ binding: "R2", call: 2, moment: "after", failure: "death" });
        expect(await client.send(client.reportedOffset, small.length, dying)).toBe("dead");
        expect(status(await client.ask("DELETE"))).toBe(204);
        client.world.aheadMilliseconds += 20 * MINUTE;
      },
      act: ({ world }, bindings) => world.recover(bindings),
      isKept: false,
    },
  ],
  [
    "recovery that forgets an upload which ended a day ago",
    {
      bytes: small,
      alone: true,
      async prepare(client) {
        await begin(client);
        await must(client.send(0, small.length));
        await client.world.drain();
        await age(client);
      },
      act: ({ world }, bindings) => world.recover(bindings),
      isKept: true,
    },
  ],
  [
    "DELETE of an upload",
    {
      bytes: small,
      prepare: half,
      act: (client, bindings) => client.ask("DELETE", {}, undefined, bindings),
      isKept: false,
    },
  ],
  [
    "DELETE of an upload that another request still sends",
    {
      bytes: small,
      prepare: begin,
      act: (client, bindings) => overtaking(client, 0, undefined, () => client.ask("DELETE", {}, undefined, bindings)),
      afterwards: (client) => client.ask("DELETE"),
      // Where DELETE failed, the other came to its end.
      isKept: (result) => status((result as { older: unknown }).older) === 204,
    },
  ],
  [
    "the revocation of the key that created an upload",
    {
      bytes: small,
      prepare: half,
      act: ({ world, team }, bindings) =>
        world.ask("DELETE", `/auth/v1/apikeys/${team.keyId}`, { token: team.token }, { bindings }),
      async afterwards({ team }, result) {
        if (status(result) !== 200) return;
        expect(await rowsOf(team.teamId)).toMatchObject([{ status: "deleting", reserved_bytes: 0 }]);
      },
      isKept: false,
    },
  ],
  [
    "the deletion of a file that came by an upload",
    {
      bytes: small,
      async prepare(client) {
        await begin(client);
        await must(client.send(0, small.length));
      },
      act: ({ world, team, id }, bindings) =>
        world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }, { bindings }),
      async afterwards({ world, team, id }) {
        await world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token });
      },
      isKept: false,
    },
  ],
  [
    "processing a file that came by an upload",
    {
      bytes: small,
      async prepare(client) {
        await begin(client);
        await must(client.send(0, small.length));
        client.world.messages = client.world.messages.filter((message) => message !== client.id);
      },
      async act({ world, id }, bindings) {
        const again = await world.deliver(id, bindings);
        if (typeof again === "number") world.messages.push(id);
      },
      isKept: true,
    },
  ],
];

test("An upload that is whole and not put together stays soon due when a client asks for it again in vain.", async () => {
  const world = new World();
  const client = new Uploader(world, await world.newTeam(), large);
  await whole(client);
  const dying = new ProxiedBindings({ binding: "R2", call: 1, moment: "before", failure: "death" });
  expect(await client.send(large.length, large.length, dying)).toBe("dead");
  world.aheadMilliseconds += 3 * 60 * 1000;
  await world.recover();
  expect(world.messages).toEqual([client.id]);
  await expectKept(client, large);
});

describe("Whatever fails or dies", () => {
  test.for(scenarios)(
    "Whatever fails or dies at whichever call, nothing is lost and nothing is left of %s.",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) => {
      const { calls, changes, runs } = await everyPoint(scenario);
      await annotate(
        `crash points of ${name}: ${calls.length} calls, ${changes} of them change something, ${runs} runs passed (${calls.join(", ")})`,
      );
      expect(runs).toBeGreaterThan(calls.length * (FAILURES.length - 1) + changes * FAILURES.length);
    },
  );
});

const expectKept = async ({ world, team }: Uploader, bytes: Uint8Array<ArrayBuffer>) => {
  for (let days = 0; days < 3; days++) await world.heal([team.teamId]);
  const [row] = await rowsOf(team.teamId);
  expect([row?.status, row?.sha256]).toEqual(["completed", await sha256(bytes)]);
};

describe("Small requests", () => {
  /** Counts the bytes that go to R2 and come from it. */
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

  test.each([1, 1000])("of %i bytes rewrite no more than a merged chunk each, and lose nothing", async (size) => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), large);
    await begin(client);
    const requests = 20;
    const to = 5 * MEBIBYTE - 1;
    const from = to - requests * size;
    await must(client.send(0, from));
    const { moved, change } = counting();
    for (let sent = 0; sent < requests; sent++) {
      const at = from + sent * size;
      const body = large.slice(at, at + size);
      await must(client.patch(at, body, { "Content-Length": `${size}` }, undefined, change));
    }
    expect(client.reportedOffset).toBe(to);
    expect(moved.got).toBeLessThanOrEqual(requests * MERGED_BYTES);
    expect(moved.put).toBeLessThanOrEqual(moved.got + requests * size);
    const { objects } = await env.BUCKET.list({ prefix: `${client.team.teamId}/` });
    expect(objects).toHaveLength(2);
    await client.resume();
    await expectKept(client, large);
  });
});

describe("An upload without a byte", () => {
  test("expires after an hour.", async () => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), small);
    await begin(client);
    world.aheadMilliseconds += 59 * MINUTE;
    expect((await must(client.head())).status).toBe(200);
    world.aheadMilliseconds += 2 * MINUTE;
    expect((await must(client.head())).status).toBe(410);
    await world.recover();
    expect(await expectSettled(client.team.teamId, { world })).toEqual([]);
  });

  test("does not expire while its first request writes, and by further claims after 15 minutes at the latest.", async () => {
    const world = new World();
    const [writing, claiming] = await Promise.all(
      [1, 2].map(async () => new Uploader(world, await world.newTeam(), small)),
    );
    await begin(writing!);
    await begin(claiming!);
    world.aheadMilliseconds += 59 * MINUTE;
    const dying = () => new ProxiedBindings({ binding: "R2", call: 1, moment: "before", failure: "death" });
    expect(await claiming!.send(0, 100, dying())).toBe("dead");
    const { older } = await overtaking(writing!, 0, undefined, async () => {
      world.aheadMilliseconds += 14 * MINUTE;
      expect(await claiming!.send(0, 100, dying())).toBe("dead");
      await world.recover();
    });
    expect(status(older)).toBe(204);
    world.aheadMilliseconds += 3 * MINUTE;
    expect((await must(claiming!.send(0, 100))).status).toBe(410);
  });
});

describe("A line that goes silent", () => {
  test.each([false, true])(
    "A line that goes silent costs nothing that came before, and may go on (without memory: %s).",
    async (hasNoMemory) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), large);
      await must(client.create());
      client.hasNoMemory = hasNoMemory;
      const at = 5 * MEBIBYTE - 700;
      const bindings = new ProxiedBindings();
      await must(client.silent(0, at, 5 * MEBIBYTE + 700, bindings));
      // In the silence, and at the end.
      expect(bindings.calls.filter((call) => call === "R2 put")).toHaveLength(2);
      expect(await client.savedOffset()).toBe(5 * MEBIBYTE + 700);
      await client.resume();
      await expectKept(client, large);
    },
  );

  test("A line that goes silent after the last byte, with a body that does not end, ends the upload.", async () => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), small);
    await must(client.create());
    world.isSilent = true;
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
  ])(
    "A client whose line pauses for %i looks after each of ten pieces costs %i stashes besides the one at its end.",
    async (looks, stashes) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), small);
      await must(client.create());
      const waiting: (() => void)[] = [];
      const sleep = () => new Promise<void>((resolve) => waiting.push(resolve));
      let piece = 0;
      const body = new ReadableStream<Uint8Array>(
        {
          async pull(controller) {
            for (let passed = 0; piece > 0 && passed < looks; passed++) {
              await vi.waitUntil(async () => waiting.length > 0 || (await client.savedOffset()) === piece * 100);
              waiting.shift()?.();
            }
            if (piece < 10) controller.enqueue(small.slice(piece * 100, piece * 100 + 100));
            else controller.close();
            piece += 1;
          },
        },
        { highWaterMark: 0 },
      );
      const bindings = new ProxiedBindings();
      const patience: Change = (deps) => ({ ...deps, system: { ...deps.system, sleep } });
      const answer = await must(client.patch(0, body, {}, bindings, patience));
      expect(offsetOf(answer)).toBe(1000);
      expect(bindings.calls.filter((call) => call === "R2 put")).toHaveLength(stashes + 1);
    },
  );
});

describe("Of two requests for one upload", () => {
  test.each([
    ["before it puts its bytes", "before", false],
    ["after it has put its bytes", "after", false],
    ["after it has put its bytes, and the newer has not yet", "after", true],
  ] as const)(
    "Of two requests with different bytes for one upload the newer wins, where the older stands still %s.",
    async (_, moment, isNewerLate) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), small);
      await must(client.create());
      const standing = (when: "before" | "after") => {
        const reached = Promise.withResolvers<void>();
        const gate = Promise.withResolvers<void>();
        const stand = async () => {
          reached.resolve();
          await gate.promise;
        };
        const change: Change = (deps) => {
          const put: Deps["bytes"]["put"] = async (...given) => {
            if (when === "before") await stand();
            const etag = await deps.bytes.put(...given);
            if (when === "after") await stand();
            return etag;
          };
          return { ...deps, bytes: { ...deps.bytes, put } };
        };
        return { reached: reached.promise, goOn: gate.resolve, change };
      };
      const other = small.map((byte) => byte ^ 1);
      const first = standing(moment);
      const older = client.patch(0, other, {}, undefined, first.change);
      await first.reached;
      const second = standing("before");
      const newer = client.patch(0, small, {}, undefined, second.change);
      if (isNewerLate) {
        await second.reached;
        first.goOn();
        await older;
      }
      second.goOn();
      expect((await must(newer)).status).toBe(204);
      first.goOn();
      expect(await must(older)).toMatchObject({ status: 409, code: "offset_mismatch" });
      await expectKept(client, small);
    },
  );

  test.each<[string, (client: Uploader, bindings: ProxiedBindings, change: Change) => Promise<Ended<Answer>>, number]>([
    ["the stash", (client, bindings, change) => client.cut(0, 1000, bindings, change), 2000],
    [
      "R2's id of the parts",
      (client, bindings, change) => client.patch(0, large.slice(), {}, bindings, change),
      5 * MEBIBYTE,
    ],
  ])(
    "Of two requests for one upload the older, which does not know that it has saved %s, leaves that to the newer.",
    async (_, act, to) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), large);
      await must(client.create());
      // Its third call to D1 is the one that saves, and the pause is before it tries that again.
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
    },
  );

  test.each([small, large])(
    "Of two requests for one upload of $length bytes the newer goes on, and the older saves nothing.",
    async (bytes) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), bytes);
      await begin(client);
      await must(client.send(0, 500));
      const { older } = await overtaking(client, 500, undefined, () => must(client.send(500, 700)));
      expect(older).toMatchObject({ status: 409, code: "offset_mismatch" });
      expect(offsetOf(await must(client.head()))).toBe(700);
      await client.resume();
      await world.heal([client.team.teamId]);
      await expectEnded({ client, where: "", result: null }, true);
    },
  );

  test.each([small, large])(
    "Of two requests for one upload of $length bytes, DELETE wins over the one that still sends.",
    async (bytes) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), bytes);
      await begin(client);
      const { older, newer } = await overtaking(client, 0, undefined, async () => {
        const deleted = await must(client.ask("DELETE"));
        expect(await rowsOf(client.team.teamId)).toMatchObject([{ status: "deleting", reserved_bytes: 0 }]);
        const { body } = await client.world.call("GET", "/docs/v1/usage", { token: client.team.token });
        expect(body.data).toMatchObject({ files: 0, bytes: 0 });
        return deleted;
      });
      expect(status(newer)).toBe(204);
      expect([404, 409]).toContain(status(older));
      await world.heal([client.team.teamId]);
      await expectEnded({ client, where: "", result: null }, false);
    },
  );

  test("Of two requests for one upload, the revocation of its key wins over the one that still sends.", async () => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), large);
    await begin(client);
    const { keyId, token, teamId } = client.team;
    const { older } = await overtaking(client, 0, undefined, () =>
      must(world.ask("DELETE", `/auth/v1/apikeys/${keyId}`, { token })),
    );
    expect([404, 409]).toContain(status(older));
    world.aheadMilliseconds += 16 * MINUTE;
    await world.recover();
    expect(await expectSettled(teamId, { world })).toEqual([]);
  });

  test("Of two requests for one upload, DELETE does not win over the one that has stored the file, and tells of no end.", async () => {
    const world = new World();
    const team = await world.newTeam();
    const id = await world.store(team, "stored.txt", "stored");
    const actor = { kind: "secret" as const, teamId: team.teamId, keyId: team.keyId, userId: null };
    // What DELETE does once it has read that the upload is not finished.
    await expect(deleteFile(world.deps(), actor, id, { isReceiving: true })).rejects.toMatchObject({
      code: "not_found",
    });
    await world.heal([team.teamId]);
    expect(await expectSettled(team.teamId)).toMatchObject([{ id, status: "completed" }]);
  });

  test.each([1, 2, 3, 4])(
    "A DELETE is answered 204 also where the answer of the database's call %i was lost.",
    async (call) => {
      const world = new World();
      const client = new Uploader(world, await world.newTeam(), small);
      await client.create(undefined, 100);
      const fault: Fault = { binding: "D1", call, moment: "after", failure: "transient" };
      expect(status(await client.ask("DELETE", {}, undefined, new ProxiedBindings(fault)))).toBe(204);
    },
  );

  test("Of two requests for one upload, DELETE wins over the one that still sends its parts.", async () => {
    const world = new World();
    const client = new Uploader(world, await world.newTeam(), small);
    await beginInSmallParts(client);
    const { older } = await overtaking(client, 0, undefined, () => must(client.ask("DELETE")));
    expect([404, 409]).toContain(status(older));
    await world.heal([client.team.teamId]);
    await expectEnded({ client, where: "", result: null }, false);
  });
});
