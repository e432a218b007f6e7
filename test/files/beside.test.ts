import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect, vi } from "vitest";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { deathAt, failureOfLatePut } from "../support/bindings.ts";
import { vttOf } from "../support/bytes.ts";
import type { Answer } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import type { Change } from "../support/deps.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { metadataOf, newKey, read, type Team } from "../support/harness.ts";
import { expectSettled, expectSound } from "../support/invariants.ts";
import { objectBeside } from "../support/rows.ts";
import { emptyStores } from "../support/stores.ts";
import { isExhaustive } from "../support/tiers.ts";
import { MINUTE } from "../support/time.ts";
import { must, World } from "../support/world.ts";

/* The objects beside a file: their rows, keys and bytes. waveforms/waveforms and transcripts/transcripts show what callers get. */

const UPLOADS = "/docs/v1/uploads";
const RUNS = isExhaustive ? 200 : 20;

const waveform = (peak: number) => ({ json: { channels: [Array(16).fill(peak)] } });
const vtt = (sizeBytes: number) => ({
  body: vttOf("a").padEnd(sizeBytes, "\n"),
  headers: { "Content-Type": "text/vtt" },
});
const keysOf = async ({ teamId }: Team, id: string) =>
  (await env.BUCKET.list({ prefix: `${teamId}/${id}/` })).objects.map(({ key }) => key);
const rowsOf = async (id: string) =>
  (await DB.prepare("select state from file_objects where file_id = ? order by state").bind(id).all()).results.map(
    ({ state }) => state,
  );

/** A write that has stored its object, and waits before it makes it current. */
async function heldWrite(world: World, team: Team, path: string, options: object) {
  const [stored, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const change: Change = (deps) => {
    const store: typeof deps.bytes.store = async (...of) => {
      await deps.bytes.store(...of);
      stored.resolve();
      await gate.promise;
    };
    return { ...deps, bytes: { ...deps.bytes, store } };
  };
  const answer = must(world.ask("PUT", path, { token: team.token, ...options }, { change }));
  // A write that is refused stores nothing.
  await Promise.race([stored.promise, answer]);
  return {
    finish: async (): Promise<Answer> => {
      gate.resolve();
      return answer;
    },
  };
}

const peaksOf = async (team: Team, id: string) => [
  (await read(team, `${UPLOADS}/${id}/waveform`)).channels[0][0],
  (await metadataOf(team, id)).peaks[0],
];

describe("Two writes of a waveform", () => {
  test("that store in one order and finish in the other leave the row and the object of the last to finish", async ({
    world,
    team,
  }) => {
    const id = await world.store(team, "a.txt", "hello");
    const path = `${UPLOADS}/${id}/waveform`;
    const first = await heldWrite(world, team, path, waveform(0));
    const second = await heldWrite(world, team, path, waveform(1));
    expect((await second.finish()).status).toBe(200);
    expect(await peaksOf(team, id)).toEqual([1, 99]);
    expect((await first.finish()).status).toBe(200);
    expect(await peaksOf(team, id)).toEqual([0, 0]);
    expect(await rowsOf(id)).toEqual(["current", "replaced"]);
  });

  test("of which the first to store dies leave those of the other", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const options = { token: team.token, ...waveform(0) };
    expect(
      await world.ask("PUT", `${UPLOADS}/${id}/waveform`, options, { bindings: deathAt("R2", "put", "after") }),
    ).toBe("dead");
    await world.call("PUT", `${UPLOADS}/${id}/waveform`, { token: team.token, ...waveform(1) });
    const late = { bindings: deathAt("R2", "put", "after") };
    expect(await world.ask("PUT", `${UPLOADS}/${id}/waveform`, options, late)).toBe("dead");
    expect(await peaksOf(team, id)).toEqual([1, 99]);
  });

  test("one of a visitor and one of the team leave that of the team, whoever finishes last", async ({
    world,
    team,
  }) => {
    const { key: token } = await newKey(team, { isPublic: true });
    for (const isVisitorLast of [true, false]) {
      const id = await world.store({ ...team, token }, "a.txt", "hello");
      const path = `${UPLOADS}/${id}/waveform`;
      const visitor = await heldWrite(world, { ...team, token }, path, waveform(0));
      const own = await heldWrite(world, team, path, waveform(1));
      const order = isVisitorLast ? [own, visitor] : [visitor, own];
      const codes = [(await order[0]?.finish())?.code, (await order[1]?.finish())?.code];
      expect(codes).toEqual(isVisitorLast ? [undefined, "forbidden"] : [undefined, undefined]);
      expect(await peaksOf(team, id)).toEqual([1, 99]);
      expect((await keysOf(team, id)).length, "the refused one deletes its object").toBe(isVisitorLast ? 1 : 2);
      await expectSound(team.teamId);
    }
  });
});

describe("A replaced object", () => {
  test("stays for 15 minutes, for requests that have read its row, and then is deleted with it", async ({
    world,
    team,
  }) => {
    const id = await world.store(team, "a.txt", "hello");
    const set = (bytes: number) =>
      world.call("PUT", `${UPLOADS}/${id}/transcript`, { token: team.token, ...vtt(bytes) });
    await set(100);
    const [key = ""] = await keysOf(team, id);
    await set(200);
    const minutesLater = async (minutes: number) => {
      world.aheadMilliseconds += minutes * MINUTE;
      await world.recoverFully();
      return (await env.BUCKET.head(key))?.size;
    };
    expect(await minutesLater(14)).toBe(100);
    expect(await minutesLater(1)).toBeUndefined();
    expect([await rowsOf(id), (await keysOf(team, id)).length]).toEqual([["current"], 1]);
    await expectSound(team.teamId);
  });
});

describe("A write that R2 does not answer", () => {
  test("is abandoned after 30 s, with 503", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const reached = Promise.withResolvers<void>();
    const put = () => {
      reached.resolve();
      return new Promise<never>(() => undefined);
    };
    const hanging = new Proxy(env.BUCKET, {
      get: (bucket, name) => (name === "put" ? put : Reflect.get(bucket, name)),
    });
    const change: Change = (deps) => ({ ...deps, bytes: createByteStore(hanging, deps.system) });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      let answer: Answer | undefined;
      const path = `${UPLOADS}/${id}/transcript`;
      const sent = must(world.ask("PUT", path, { token: team.token, ...vtt(100) }, { change })).then((got) => {
        answer = got;
      });
      await reached.promise;
      await vi.advanceTimersByTimeAsync(29_999);
      expect(answer).toBeUndefined();
      await vi.advanceTimersByTimeAsync(1);
      await sent;
      expect(answer?.code).toBe("unavailable");
    } finally {
      vi.useRealTimers();
    }
    expect(await rowsOf(id)).toEqual(["writing"]);
  });
});

describe("The deletion of a transcript", () => {
  test("deletes those before it at once, too, but not one that is being written", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const path = `${UPLOADS}/${id}/transcript`;
    for (const bytes of [100, 200]) await world.call("PUT", path, { token: team.token, ...vtt(bytes) });
    const held = await heldWrite(world, team, path, vtt(300));
    expect((await keysOf(team, id)).length).toBe(3);
    expect((await world.call("DELETE", path, { token: team.token })).status).toBe(200);
    expect([(await keysOf(team, id)).length, await rowsOf(id)]).toEqual([1, ["writing"]]);
    expect((await world.call("DELETE", path, { token: team.token })).code).toBe("not_found");
    expect((await held.finish()).status).toBe(200);
    expect((await metadataOf(team, id)).transcript.size).toBe(300);
    await expectSound(team.teamId);
  });

  test("finds none if that of another file is being deleted at the same moment", async ({ world, team }) => {
    const [id, other] = [await world.store(team, "a.txt", "a"), await world.store(team, "b.txt", "b")];
    expect((await team.call("PUT", `${UPLOADS}/${other}/transcript`, vtt(20))).status).toBe(200);
    const bindings = deathAt("R2", "delete", "before");
    const { token } = team;
    expect(await world.ask("DELETE", `${UPLOADS}/${other}/transcript`, { token }, { bindings })).toBe("dead");
    expect(await rowsOf(other)).toEqual(["replaced"]);
    expect((await team.call("DELETE", `${UPLOADS}/${id}/transcript`)).code).toBe("not_found");
  });
});

describe("A transcript of a file that is in the trash", () => {
  test("is shown there and after the restoration, also if it was being written when the file was deleted", async ({
    world,
    team,
  }) => {
    world.settings = { trashDays: 7 };
    const { token } = team;
    const id = await world.store(team, "a.txt", "hello");
    const held = await heldWrite(world, team, `${UPLOADS}/${id}/transcript`, vtt(100));
    await world.call("DELETE", `${UPLOADS}/${id}`, { token });
    const trashed = async () => (await must(world.ask("GET", "/docs/v1/trash", { token }))).body.data[0].hasTranscript;
    expect(await trashed()).toBe(false);
    expect((await held.finish()).status).toBe(200);
    expect(await trashed()).toBe(true);
    await expectSound(team.teamId);
    expect((await world.call("POST", `/docs/v1/trash/${id}/restore`, { token })).body.data.hasTranscript).toBe(true);
    await expectSound(team.teamId);
  });
});

describe("A write whose Worker died", () => {
  test("ends after 15 minutes: it can't finish, counts no more, and its object is deleted", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const held = await heldWrite(world, team, `${UPLOADS}/${id}/transcript`, vtt(1000));
    world.aheadMilliseconds += 15 * MINUTE;
    await world.recover();
    expect([(await read(team, "/docs/v1/usage")).bytes, await keysOf(team, id)]).toEqual([5, []]);
    expect((await held.finish()).code).toBe("unavailable");
    expect([await rowsOf(id), (await metadataOf(team, id)).transcript]).toEqual([[], null]);
    await expectSound(team.teamId);
  });

  test("leaves nothing that R2 stores later than that, because it is deleted once more after an hour", async ({
    world,
    team,
  }) => {
    const id = await world.store(team, "a.txt", "hello");
    const { bindings, store } = failureOfLatePut();
    const options = { token: team.token, ...vtt(1000) };
    expect((await must(world.ask("PUT", `${UPLOADS}/${id}/transcript`, options, { bindings }))).code).toBe(
      "unavailable",
    );
    world.aheadMilliseconds += 16 * MINUTE;
    await world.recoverFully();
    await store();
    expect(await objectBeside(team.teamId, id, "transcript")).not.toBeNull();
    world.aheadMilliseconds += 59 * MINUTE;
    await world.recoverFully();
    expect([(await keysOf(team, id)).length, await rowsOf(id)]).toEqual([1, ["replaced"]]);
    world.aheadMilliseconds += MINUTE;
    await world.recoverFully();
    expect([await keysOf(team, id), await rowsOf(id)]).toEqual([[], []]);
  });
});

/** The events of a file and the transcripts that are written for it. */
type Step =
  | { does: "begin"; bytes: number }
  | { does: "finish"; which: number }
  | { does: "delete the transcript" | "trash" | "restore" | "erase" | "wait" };

const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ does: fc.constant("begin" as const), bytes: fc.integer({ min: 50, max: 99 }) }) },
  { weight: 4, arbitrary: fc.record({ does: fc.constant("finish" as const), which: fc.nat(9) }) },
  ...(["delete the transcript", "trash", "restore", "erase", "wait"] as const).map((does) => ({
    weight: does === "erase" ? 1 : 2,
    arbitrary: fc.constant({ does }),
  })),
);

test(`The bytes of a team are the sum after each of ${RUNS} random histories of writes, trash and deletion`, async () => {
  const property = fc.asyncProperty(fc.array(steps, { minLength: 4, maxLength: 14 }), async (history) => {
    const world = new World();
    world.settings = { trashDays: 1 };
    const team = await world.newTeam();
    const id = await world.store(team, "a.txt", "hello");
    await world.drainAll();
    const writes: Awaited<ReturnType<typeof heldWrite>>[] = [];
    const ask = (method: string, path: string) => world.call(method, `/docs/v1/${path}`, { token: team.token });
    const finish = async (which: number) => {
      const [write] = writes.splice(which % Math.max(1, writes.length), 1);
      expect([undefined, 200, 404, 503]).toContain((await write?.finish())?.status);
    };
    for (const step of history) {
      if (step.does === "begin")
        writes.push(await heldWrite(world, team, `${UPLOADS}/${id}/transcript`, vtt(step.bytes)));
      else if (step.does === "finish") await finish(step.which);
      else if (step.does === "delete the transcript") await ask("DELETE", `uploads/${id}/transcript`);
      else if (step.does === "trash") await ask("DELETE", `uploads/${id}`);
      else if (step.does === "restore") await ask("POST", `trash/${id}/restore`);
      else if (step.does === "erase") await ask("DELETE", `uploads/${id}?permanent=true`);
      else {
        world.aheadMilliseconds += 16 * MINUTE;
        await world.recoverFully();
      }
      await expectSound(team.teamId);
    }
    while (writes.length > 0) await finish(0);
    await world.recoverAll([team.teamId]);
    await expectSettled(team.teamId, { world });
    await emptyStores();
  });
  await fc.assert(property, { numRuns: RUNS, seed: Number((env as { STOWAGE_SEED?: string }).STOWAGE_SEED ?? 1) });
});
