import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { LOOK_MILLISECONDS } from "../../src/domain/files/appending.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { MemoryBudget } from "../../src/platform/part.ts";
import { realSystem } from "../../src/platform/system.ts";
import { FAILURES, type Fault, MOMENTS, ProxiedBindings } from "../support/bindings.ts";
import type { Answer, Team } from "../support/client.ts";
import type { Change, Deps } from "../support/deps.ts";
import { idOf, locationOf, offsetOf, RESUMABLE, tusHeaders } from "../support/tus.ts";
import { type Ended, forget, must, type Row, rowsOf, sha256, World } from "../support/world.ts";

/*
 * Every crash point of a resumable upload: each scenario runs once in peace, and then again for each call that it makes
 * to D1, R2 and the Queue, with that call failing or the Worker dying over it, before and after the call took effect.
 * Then the client does what clients do: it asks how far the upload has come, and goes on. Then days go by with recovery
 * at work, and there must be the whole file or nothing, and nothing else.
 */

const MEBIBYTE = 1024 * 1024;
const small = Uint8Array.from({ length: 3000 }, (_, i) => i % 251);
/** Two parts. */
const large = Uint8Array.from({ length: 5 * MEBIBYTE + 3000 }, (_, i) => i % 251);
const digests = new Map(await Promise.all([small, large].map(async (bytes) => [bytes, await sha256(bytes)] as const)));

/** A client of one upload. Its offsets never fall, or it fails. */
class Client {
  readonly world: World;
  readonly team: Team;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The isolate has no memory left for parts. */
  hasNoMemory = false;
  path = "";
  id = "";
  told = 0;

  constructor(world: World, team: Team, bytes: Uint8Array<ArrayBuffer>) {
    this.world = world;
    this.team = team;
    this.bytes = bytes;
  }

  async ask(
    method: string,
    headers: Record<string, string>,
    body?: Uint8Array | ReadableStream<Uint8Array>,
    bindings?: ProxiedBindings,
    other?: Change,
  ): Promise<Ended<Answer>> {
    const path = method === "POST" ? RESUMABLE : this.path;
    const options = {
      token: this.team.token,
      headers: tusHeaders(headers),
      ...(body && { body: body as Uint8Array<ArrayBuffer> }),
    };
    const proxied = bindings ?? new ProxiedBindings();
    const starved = (deps: Deps) => ({
      ...deps,
      bytes: createByteStore(proxied.bucket(env.BUCKET), deps.system, new MemoryBudget(0)),
    });
    const change = this.hasNoMemory ? starved : other;
    const answer = await this.world.ask(method, path, options, { bindings: proxied, change });
    if (answer !== "dead" && answer.headers.has("Upload-Offset")) {
      expect(offsetOf(answer), "an offset that was told does not fall").toBeGreaterThanOrEqual(this.told);
      this.told = offsetOf(answer);
    }
    return answer;
  }

  async create(bindings?: ProxiedBindings): Promise<Ended<Answer>> {
    const answer = await this.ask("POST", { "Upload-Length": `${this.bytes.length}` }, undefined, bindings);
    if (answer !== "dead" && answer.status === 201) [this.path, this.id] = [locationOf(answer), idOf(answer)];
    return answer;
  }

  send(from: number, to: number, bindings?: ProxiedBindings): Promise<Ended<Answer>> {
    const body = this.bytes.slice(from, to);
    return this.patch(from, body, { "Content-Length": `${body.length}` }, bindings);
  }

  /** The line breaks at `to`. */
  cut(from: number, to: number, bindings?: ProxiedBindings, change?: Change): Promise<Ended<Answer>> {
    const body = this.bytes.slice(from, to);
    let hasSent = false;
    const broken = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (hasSent) controller.error(new Error("Network connection lost."));
        else controller.enqueue(body);
        hasSent = true;
      },
    });
    return this.patch(from, broken, { "Content-Length": `${this.bytes.length - from}` }, bindings, change);
  }

  /** The line goes silent at `at`, goes on once that is saved, and breaks at `to`. */
  async silent(from: number, at: number, to: number, bindings = new ProxiedBindings()): Promise<Ended<Answer>> {
    const pieces = [this.bytes.slice(from, at), this.bytes.slice(at, to)];
    let isOver = false;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const { looks } = this.world;
          // One that has failed reads the body and throws it away: it looks for no silence, and saves nothing.
          for (let turns = 0; turns < 20 && this.world.looks === looks; turns++) await realSystem.sleep(0);
          if (pieces.length === 1 && this.world.looks === looks) isOver = true;
          while (pieces.length === 1 && !isOver && !bindings.isDead && (await this.savedOffset()) < at) {
            await realSystem.sleep(1);
          }
          const piece = pieces.shift();
          if (piece) controller.enqueue(piece);
          else controller.error(new Error("Network connection lost."));
        },
      },
      { highWaterMark: 0 },
    );
    this.world.isSilent = true;
    return this.patch(from, body, {}, bindings).finally(() => {
      this.world.isSilent = false;
      isOver = true;
    });
  }

  async savedOffset(): Promise<number> {
    const row = await env.DB.prepare("select offset_bytes from uploads where file_id = ?").bind(this.id).first();
    return Number(row?.offset_bytes);
  }

  patch(
    from: number,
    body: Uint8Array | ReadableStream<Uint8Array>,
    headers = {},
    bindings?: ProxiedBindings,
    change?: Change,
  ) {
    const all = { "Upload-Offset": `${from}`, "Content-Type": "application/offset+octet-stream", ...headers };
    return this.ask("PATCH", all, body, bindings, change);
  }

  /** Goes on from where the upload stands until it is complete. */
  async resume(): Promise<void> {
    for (let tries = 0; tries < 5; tries++) {
      const answer = await must(this.ask("HEAD", {}));
      expect(answer.status).toBe(200);
      if (this.told === this.bytes.length) return;
      const { status, text } = await must(this.send(this.told, this.bytes.length));
      expect(status, text).toBe(204);
    }
    throw new Error("The upload does not come to its end.");
  }
}

interface Scenario {
  bytes: Uint8Array<ArrayBuffer>;
  prepare?(client: Client): Promise<unknown>;
  act(client: Client, bindings: ProxiedBindings): Promise<unknown>;
  /** What the client does next; nothing where it went away. */
  afterwards?(client: Client, result: unknown): Promise<unknown>;
  /** Whether the file is to be there at the end. */
  isKept: boolean | ((result: unknown) => boolean);
  /** It acts on rows of every team. */
  alone?: true;
  /** Fewer, of a scenario that moves many bytes and is gone through in full elsewhere. */
  failures?: (typeof FAILURES)[number][];
}

interface Run {
  client: Client;
  where: string;
  result: unknown;
  /** R2's ids of multipart uploads that the rows knew. */
  multipart: { key: string; id: string }[];
}

const knownMultipart = async ({ teamId }: Team) => {
  const { results } = await env.DB.prepare(
    `select f.team_id || '/' || f.id || '-' || f.original_name as key, u.multipart_id as id
     from uploads u join files f on f.id = u.file_id where u.team_id = ? and u.multipart_id is not null`,
  )
    .bind(teamId)
    .all<{ key: string; id: string }>();
  return results;
};

async function runOnce(scenario: Scenario, world: World, fault?: Fault): Promise<[Run, ProxiedBindings]> {
  const team = await world.newTeam();
  const client = new Client(world, team, scenario.bytes);
  if (scenario.prepare) await scenario.prepare(client);
  const bindings = new ProxiedBindings(...(fault ? [fault] : []));
  const result = await scenario.act(client, bindings);
  const multipart = await knownMultipart(team);
  const call = fault ? bindings.calls[fault.call - 1] : "";
  const where = fault ? `${fault.failure} ${fault.moment} call ${fault.call}, ${call}` : "in peace";
  try {
    await scenario.afterwards?.(client, result);
  } catch (error) {
    throw new Error(`${where}: ${(error as Error).message}`, { cause: error });
  }
  return [{ client, where, result, multipart: [...multipart, ...(await knownMultipart(team))] }, bindings];
}

const read = new Set<string>();

/** The file with all of its bytes, or nothing; and nothing else. */
async function expectSettled({ client, multipart }: Run, isKept: boolean): Promise<void> {
  const { team, bytes, id } = client;
  const rows: Row[] = await rowsOf(team.teamId);
  expect(rows.map((row) => [row.id, row.status, row.sha256, row.reserved_bytes])).toEqual(
    isKept ? [[id, "completed", digests.get(bytes), bytes.length]] : [],
  );
  const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/` });
  expect(objects.map(({ key, size }) => [key, size])).toEqual(
    isKept ? [[`${team.teamId}/${id}-unnamed`, bytes.length]] : [],
  );
  const [object] = objects;
  // R2 makes the etag of the bytes: each content is read once.
  if (object && !read.has(object.etag)) {
    const stored = await env.BUCKET.get(object.key);
    expect(await sha256(await stored!.arrayBuffer())).toBe(digests.get(bytes));
    read.add(object.etag);
  }
  const of = (sql: string) => env.DB.prepare(sql).bind(team.teamId);
  const [uploads, parts, usage] = await env.DB.batch([
    of("select * from uploads where team_id = ?"),
    of(
      "select upload_parts.* from upload_parts left join uploads using (file_id) where uploads.team_id is null or uploads.team_id = ?",
    ),
    of("select files, bytes from team_usage where team_id = ?"),
  ]);
  expect([uploads?.results, parts?.results], "rows of uploads and of parts").toEqual([[], []]);
  const counted = usage?.results[0] ?? { files: 0, bytes: 0 };
  expect(counted).toEqual({ files: rows.length, bytes: isKept ? bytes.length : 0 });
  for (const { key, id: multipartId } of multipart) {
    const upload = env.BUCKET.resumeMultipartUpload(key, multipartId);
    await expect(upload.uploadPart(1, "x"), "the multipart upload is over").rejects.toThrow("10024");
  }
}

async function settle(scenario: Scenario, world: World, runs: Run[]): Promise<void> {
  for (let days = 0; days < 3; days++) await world.heal(runs.map(({ client }) => client.team.teamId));
  for (const run of runs) {
    const { isKept } = scenario;
    try {
      await expectSettled(run, typeof isKept === "boolean" ? isKept : isKept(run.result));
    } catch (error) {
      throw new Error(`${run.where}: ${(error as Error).message}`, { cause: error });
    } finally {
      await forget(run.client.team.teamId);
      await env.DB.prepare("delete from uploads where team_id = ?").bind(run.client.team.teamId).run();
    }
  }
}

async function everyPoint(scenario: Scenario): Promise<{ calls: string[]; runs: number }> {
  let world = new World();
  const [first, { calls }] = await runOnce(scenario, world);
  await settle(scenario, world, [first]);
  world = new World();
  let open: Run[] = [];
  let runs = 0;
  for (let call = 1; call <= calls.length; call++) {
    for (const moment of MOMENTS) {
      for (const failure of scenario.failures ?? FAILURES) {
        const [run, bindings] = await runOnce(scenario, world, { call, moment, failure });
        expect(bindings.calls[call - 1], "the scenario repeats itself").toBe(calls[call - 1]);
        open.push(run);
        runs++;
        if (scenario.alone) {
          await settle(scenario, world, open);
          open = [];
          world = new World();
        }
      }
    }
  }
  await settle(scenario, world, open);
  return { calls, runs };
}

const status = (result: unknown) => (result === "dead" ? "dead" : (result as Answer).status);
const resume = (client: Client) => client.resume();

/** Whole, and not put together: the Worker died before. */
async function whole(client: Client): Promise<void> {
  await must(client.create());
  const dying = new ProxiedBindings({ binding: "R2", call: 4, moment: "before", failure: "death" });
  expect(await client.send(0, client.bytes.length, dying)).toBe("dead");
  expect(dying.calls.at(-1)).toBe("R2 complete");
}

/** A part and a stash. */
async function half(client: Client): Promise<void> {
  await must(client.create());
  await must(client.send(0, 5 * MEBIBYTE + 1000));
}

const age = async (client: Client) => {
  client.world.aheadMilliseconds += 25 * 60 * 60 * 1000;
};

const scenarios: [string, Scenario][] = [
  [
    "the begin of an upload",
    {
      bytes: small,
      act: (client, bindings) => client.create(bindings),
      afterwards: async (client, result) => status(result) === 201 && client.resume(),
      isKept: (result) => status(result) === 201,
    },
  ],
  [
    "the request that sends all of a small file",
    {
      bytes: small,
      prepare: (client) => must(client.create()),
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
        await must(client.create());
        await must(client.send(0, 1000));
      },
      act: (client, bindings) => client.send(1000, 2000, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "the request that completes a part and the upload",
    {
      failures: ["transient", "death"],
      bytes: large,
      async prepare(client) {
        await must(client.create());
        await must(client.send(0, 2 * MEBIBYTE));
      },
      act: (client, bindings) => client.send(2 * MEBIBYTE, large.length, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request whose line breaks",
    {
      bytes: small,
      async prepare(client) {
        await must(client.create());
        await must(client.send(0, 1000));
      },
      act: (client, bindings) => client.cut(1000, 2000, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request that finds no memory",
    {
      bytes: large,
      failures: ["transient", "death"],
      async prepare(client) {
        await must(client.create());
        await must(client.send(0, 4 * MEBIBYTE));
      },
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.send(4 * MEBIBYTE, 5 * MEBIBYTE + 1000, bindings);
      },
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "a request that finds no memory and whose line breaks",
    {
      bytes: small,
      prepare: (client) => must(client.create()),
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.cut(0, 1000, bindings);
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
      bytes: small,
      failures: ["transient", "death"],
      prepare: (client) => must(client.create()),
      act(client, bindings) {
        client.hasNoMemory = true;
        return client.silent(0, 500, 2000, bindings);
      },
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "HEAD that finds an upload whole and not put together",
    {
      failures: ["transient", "death"],
      bytes: large,
      prepare: whole,
      act: (client, bindings) => client.ask("HEAD", {}, undefined, bindings),
      afterwards: resume,
      isKept: true,
    },
  ],
  [
    "recovery that finds an upload whole and not put together",
    {
      failures: ["transient", "death"],
      bytes: large,
      alone: true,
      async prepare(client) {
        await whole(client);
        client.world.aheadMilliseconds += 3 * 60 * 1000;
      },
      act: ({ world }, bindings) => world.recover(bindings),
      isKept: true,
    },
  ],
  [
    "recovery that finds an upload expired",
    {
      bytes: large,
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
    "DELETE of an upload",
    {
      bytes: large,
      prepare: half,
      act: (client, bindings) => client.ask("DELETE", {}, undefined, bindings),
      isKept: false,
    },
  ],
  [
    "the deletion of a file that came by an upload",
    {
      bytes: small,
      async prepare(client) {
        await must(client.create());
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
        await must(client.create());
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
  const client = new Client(world, await world.newTeam(), large);
  await whole(client);
  const dying = new ProxiedBindings({ binding: "R2", call: 1, moment: "before", failure: "death" });
  expect(await client.send(large.length, large.length, dying)).toBe("dead");
  world.aheadMilliseconds += 3 * 60 * 1000;
  await world.recover();
  expect(await rowsOf(client.team.teamId)).toMatchObject([{ status: "pending" }]);
  await expectKept(client, large);
});

describe("Whatever fails or dies", () => {
  test.for(scenarios)(
    "Whatever fails or dies at whichever call, nothing is lost and nothing is left of %s.",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) => {
      const { calls, runs } = await everyPoint(scenario);
      await annotate(`crash points of ${name}: ${calls.length} calls, ${runs} runs passed (${calls.join(", ")})`);
      expect(runs).toBe(calls.length * MOMENTS.length * (scenario.failures ?? FAILURES).length);
    },
  );
});

const expectKept = async ({ world, team }: Client, bytes: Uint8Array<ArrayBuffer>) => {
  for (let days = 0; days < 3; days++) await world.heal([team.teamId]);
  const [row] = await rowsOf(team.teamId);
  expect([row?.status, row?.sha256]).toEqual(["completed", await sha256(bytes)]);
};

describe("A line that goes silent", () => {
  test.each([false, true])(
    "A line that goes silent costs nothing that came before, and may go on (without memory: %s).",
    async (hasNoMemory) => {
      const world = new World();
      const client = new Client(world, await world.newTeam(), large);
      await must(client.create());
      client.hasNoMemory = hasNoMemory;
      const at = 5 * MEBIBYTE - 700;
      const bindings = new ProxiedBindings();
      await must(client.silent(0, at, 5 * MEBIBYTE + 700, bindings));
      // In the silence, and at the end.
      const puts = bindings.calls.filter((call) => call === "R2 put").length;
      expect(puts).toBe(hasNoMemory ? 3 : 2);
      expect(await client.savedOffset()).toBe(5 * MEBIBYTE + 700);
      await client.resume();
      await expectKept(client, large);
    },
  );

  test("A line that goes silent after the last byte, with a body that does not end, ends the upload.", async () => {
    const world = new World();
    const client = new Client(world, await world.newTeam(), small);
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
      const client = new Client(world, await world.newTeam(), small);
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
      const client = new Client(world, await world.newTeam(), small);
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

  test.each<[string, (client: Client, bindings: ProxiedBindings, change: Change) => Promise<Ended<Answer>>, number]>([
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
      const client = new Client(world, await world.newTeam(), large);
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
        system: { ...deps.system, sleep: (ms) => (ms === LOOK_MILLISECONDS ? deps.system.sleep(ms) : sleep()) },
      });
      expect(await must(act(client, new ProxiedBindings(unanswered), change))).toMatchObject({ status: 409 });
      expect(pauses).toBe(1);
      await client.resume();
      await expectKept(client, large);
    },
  );

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

  test.each([small, large])(
    "Of two requests for one upload of $length bytes the newer goes on, and the older saves nothing.",
    async (bytes) => {
      const world = new World();
      const client = new Client(world, await world.newTeam(), bytes);
      await must(client.create());
      await must(client.send(0, 500));
      const { body, goOn, isRead } = slow(bytes.slice(500));
      const older = client.patch(500, body);
      await isRead;
      await must(client.send(500, 700));
      goOn();
      expect(await must(older)).toMatchObject({ status: 409, code: "offset_mismatch" });
      expect(offsetOf(await must(client.ask("HEAD", {})))).toBe(700);
      await client.resume();
      for (let days = 0; days < 3; days++) await world.heal([client.team.teamId]);
      await expectSettled({ client, where: "", result: null, multipart: [] }, true);
    },
  );

  test.each([small, large])(
    "Of two requests for one upload of $length bytes, DELETE wins over the one that still sends.",
    async (bytes) => {
      const world = new World();
      const client = new Client(world, await world.newTeam(), bytes);
      await must(client.create());
      const { body, goOn, isRead } = slow(bytes);
      const older = client.patch(0, body);
      await isRead;
      expect((await must(client.ask("DELETE", {}))).status).toBe(204);
      expect(await rowsOf(client.team.teamId)).toMatchObject([{ status: "deleting", reserved_bytes: 0 }]);
      goOn();
      expect([404, 409]).toContain((await must(older)).status);
      for (let days = 0; days < 3; days++) await world.heal([client.team.teamId]);
      await expectSettled({ client, where: "", result: null, multipart: [] }, false);
    },
  );
});
