import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import type { WaveformJob } from "../../src/platform/messages.ts";
import { measureWaveform } from "../../src/waveforms/measuring.ts";
import { sample } from "../audio/samples.ts";
import { deathAt, outageOf, ProxiedBindings } from "../support/bindings.ts";
import { DB } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { dataOf, metadataOf, newKey, read, type Team } from "../support/harness.ts";
import { expectSettled } from "../support/invariants.ts";
import { objectBeside } from "../support/rows.ts";
import { DAY, HOUR } from "../support/time.ts";
import { must, World } from "../support/world.ts";

/* The queue that measures waveforms after processing. waveforms/peaks shows what it measures. */

const tone = sample("tone-vbr.mp3").bytes;
const path = (id: string) => `/docs/v1/uploads/${id}`;

interface Place {
  world: World;
  team: Team;
}

/** A completed file, whose waveform is not measured yet. */
async function completed({ world, team }: Place, bytes: Uint8Array<ArrayBuffer> = tone): Promise<string> {
  const id = await world.store(team, "tone", bytes);
  await world.drain();
  expect((await metadataOf(team, id)).status).toBe("completed");
  return id;
}

/** @returns the job of the only message that waits */
function takeJob({ world }: Place): WaveformJob {
  expect(world.waveformMessages).toHaveLength(1);
  return world.waveformMessages.shift() as WaveformJob;
}

const stateOf = async ({ team }: Place, id: string) => {
  const { status, hasWaveform, peaks } = await metadataOf(team, id);
  return { status, hasWaveform, hasPeaks: peaks !== null };
};
const rowOf = (id: string) =>
  DB.prepare("select attempts, due_at from measurements where file_id = ?").bind(id).first<{ due_at: number | null }>();
const objectOf = ({ team }: Place, id: string) => objectBeside(team.teamId, id, "waveform");
const channelsOf = async ({ team }: Place, id: string): Promise<number[][]> =>
  (await dataOf(team.call("GET", `${path(id)}/waveform`))).channels;
const setWaveform = ({ team }: Place, id: string) =>
  dataOf(team.call("PUT", `${path(id)}/waveform`, { json: { channels: [Array(16).fill(1)] } }));
const updatesOf = ({ team }: Place) => read(team, "/auth/v1/events?type=file.updated");

const UNMEASURED = { status: "completed", hasWaveform: false, hasPeaks: false };
const MEASURED = { status: "completed", hasWaveform: true, hasPeaks: true };

describe("An uploaded file", () => {
  test("is completed first, then gets its waveform, with an event", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    expect(await stateOf(place, id)).toEqual(UNMEASURED);
    const { __v } = await metadataOf(team, id);
    await world.drainWaveforms();
    expect(await stateOf(place, id)).toEqual(MEASURED);
    expect(await channelsOf(place, id)).toMatchObject([{ length: 1000 }]);
    expect(await updatesOf(place)).toMatchObject([
      {
        actor: { kind: "system" },
        subject: { id, version: __v + 1 },
        data: { fields: ["waveform"], status: "completed" },
      },
    ]);
    expect(await rowOf(id)).toEqual({ attempts: 1, due_at: null });
  });

  test("is completed if the message can't be sent, and the recovery job sends it", async ({ world, team }) => {
    const place = { world, team };
    const id = await world.store(team, "tone", tone);
    world.messages = [];
    expect(await world.deliver(id, new ProxiedBindings(outageOf("Queue")))).toBeNull();
    expect([await stateOf(place, id), world.waveformMessages]).toEqual([UNMEASURED, []]);
    await world.recover();
    expect(world.waveformMessages).toEqual([]);
    world.aheadMilliseconds += HOUR;
    expect(await must(world.recover())).toMatchObject({ waveforms: 1 });
    await world.drainWaveforms();
    expect(await stateOf(place, id)).toEqual(MEASURED);
    world.aheadMilliseconds += DAY;
    expect(await must(world.recover())).toMatchObject({ waveforms: 0 });
  });

  test.each([
    ["AAC", sample("tone.m4a").bytes],
    ["a video", sample("video.webm").bytes],
    ["text", Uint8Array.from([116, 101, 120, 116])],
  ])("with %s has no waveform, and nothing waits for one", async (_, bytes) => {
    const world = new World();
    const place = { world, team: await world.newTeam() };
    const id = await completed(place, bytes);
    expect([world.waveformMessages, await rowOf(id), await stateOf(place, id)]).toEqual([[], null, UNMEASURED]);
  });

  test("stays completed if its sound can't be decoded", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    await env.BUCKET.put(`${team.teamId}/${id}-tone`, new Uint8Array(tone.length));
    await world.drainWaveforms();
    expect([await stateOf(place, id), await rowOf(id)]).toEqual([UNMEASURED, { attempts: 1, due_at: null }]);
    expect(await objectOf(place, id)).toBeNull();
  });
});

describe("An attempt", () => {
  test("that kills its consumer is the only one, and the file stays without a waveform", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    const deaths: unknown[] = [];
    for (let hours = 0; hours < 10; hours++) {
      for (const job of world.waveformMessages.splice(0))
        deaths.push(await world.deliverWaveform(job, deathAt("R2", "get", "before")));
      world.aheadMilliseconds += HOUR;
      await world.recover();
    }
    expect(deaths).toEqual(["dead"]);
    expect([await stateOf(place, id), await rowOf(id)]).toEqual([UNMEASURED, { attempts: 1, due_at: null }]);
    await team.call("POST", `${path(id)}/reprocess`);
    await world.drain();
    await world.drainWaveforms();
    expect(await stateOf(place, id)).toEqual(MEASURED);
  });

  test("that fails is repeated twice", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    let attempts = 0;
    for (let hours = 0; hours < 10; hours++) {
      for (const job of world.waveformMessages.splice(0)) {
        attempts += 1;
        await world.deliverWaveform(job, new ProxiedBindings(outageOf("R2")));
      }
      world.aheadMilliseconds += HOUR;
      await world.recover();
    }
    expect([attempts, await rowOf(id)]).toEqual([3, { attempts: 3, due_at: null }]);
  });

  test("fails if R2 does, and another follows", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    const job = takeJob(place);
    expect(await world.deliverWaveform(job, new ProxiedBindings(outageOf("R2")))).toBeNull();
    expect(world.lines).toContainEqual(expect.objectContaining({ event: "waveform_postponed", attempts: 1 }));
    // The same message again finds another count.
    await world.deliverWaveform(job);
    expect(await stateOf(place, id)).toEqual(UNMEASURED);
    world.aheadMilliseconds += HOUR;
    await world.recover();
    expect(world.waveformMessages).toEqual([{ ...job, attempt: 1 }]);
    await world.drainWaveforms();
    expect(await stateOf(place, id)).toEqual(MEASURED);
  });

  test("waits while its isolate decodes another file, at most for as long as a consumer can run", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    const id = await completed(place);
    const job = takeJob(place);
    const gate = Promise.withResolvers<void>();
    const deps = world.deps();
    const read: typeof deps.bytes.read = async (...range) => {
      await gate.promise;
      return deps.bytes.read(...range);
    };
    const first = measureWaveform({ ...deps, bytes: { ...deps.bytes, read } }, job);
    // The queue counts its own retries, and would drop the message after twenty.
    expect(await measureWaveform(deps, job)).toBe("waiting");
    expect(world.waveformMessages).toEqual([job]);
    expect(deps.decoding.endsAt).toBe(world.system.now() + HOUR / 4);
    gate.resolve();
    expect([await first, deps.decoding.endsAt]).toEqual(["measured", 0]);
    expect(await measureWaveform(deps, job)).toBe("not_claimed");
    expect(await stateOf(place, id)).toEqual(MEASURED);
  });
});

describe("A waveform that a client sets", () => {
  test("before the service measures it stays", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    await setWaveform(place, id);
    await world.drainWaveforms();
    expect(await channelsOf(place, id)).toEqual([Array(16).fill(1)]);
    expect(await updatesOf(place)).toHaveLength(1);
  });

  test("replaces the measured one, and stays when the file is processed again", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    await world.drainWaveforms();
    await setWaveform(place, id);
    await team.call("POST", `${path(id)}/reprocess`);
    await world.drain();
    expect(world.waveformMessages).toEqual([]);
    expect(await channelsOf(place, id)).toEqual([Array(16).fill(1)]);
  });
});

describe("A waveform that a visitor sets", () => {
  test("is replaced by the measured one, but not by the visitor, and stays if the service can't measure it", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    const visitor = { ...team, token: (await newKey(team, { isPublic: true })).key };
    const set = (id: string) =>
      must(world.ask("PUT", `${path(id)}/waveform`, { ...visitor, json: { channels: [Array(16).fill(1)] } }));
    const [sound, text] = [await world.store(visitor, "tone", tone), await world.store(visitor, "a.txt", "text")];
    await world.drain();
    expect([(await set(sound)).status, (await set(text)).status]).toEqual([200, 200]);
    await world.drainWaveforms();
    expect(await channelsOf(place, sound)).toMatchObject([{ length: 1000 }]);
    expect(await channelsOf(place, text)).toEqual([Array(16).fill(1)]);
    expect((await set(sound)).code).toBe("forbidden");
    expect(await channelsOf(place, sound)).toMatchObject([{ length: 1000 }]);
  });
});

describe("Reprocessing", () => {
  test("measures again", async ({ world, team }) => {
    const place = { world, team };
    const id = await completed(place);
    await world.drainWaveforms();
    const measured = await channelsOf(place, id);
    const { key = "" } = (await objectOf(place, id)) ?? {};
    await env.BUCKET.put(key, Uint8Array.from([1, ...Array(16).fill(5)]));
    await team.call("POST", `${path(id)}/reprocess`);
    await world.drain();
    await world.drainWaveforms();
    expect(await channelsOf(place, id)).toEqual(measured);
  });

  test("of a batch fills in the waveforms of files that have none", async ({ world, team }) => {
    const place = { world, team };
    const ids = [await completed(place), await completed(place)];
    world.waveformMessages = [];
    await DB.prepare("delete from measurements where team_id = ?").bind(team.teamId).run();
    const { status } = await team.call("POST", "/docs/v1/uploads/batch", { json: { action: "reprocess", ids } });
    expect(status).toBe(200);
    await world.drain();
    await world.drainWaveforms();
    for (const id of ids) expect(await stateOf(place, id)).toEqual(MEASURED);
  });
});

describe("Deleting a file", () => {
  test("keeps its measured waveform in the trash, returns it, and erases it", async ({ world, team }) => {
    const place = { world, team };
    world.settings = { trashDays: 1 };
    const id = await completed(place);
    await world.drainWaveforms();
    const call = (method: string, to: string) => must(world.ask(method, to, { token: team.token }));
    await call("DELETE", path(id));
    expect(await objectOf(place, id)).not.toBeNull();
    await call("POST", `/docs/v1/trash/${id}/restore`);
    expect(await stateOf(place, id)).toEqual(MEASURED);
    await call("DELETE", `${path(id)}?permanent=true`);
    expect([await objectOf(place, id), await rowOf(id)]).toEqual([null, null]);
  });

  test("before it is measured leaves nothing, and from the trash it is measured once it returns", async ({
    world,
    team,
  }) => {
    const place = { world, team };
    world.settings = { trashDays: 10 };
    const id = await completed(place);
    const job = takeJob(place);
    const call = (method: string, to: string) => must(world.ask(method, to, { token: team.token }));
    await call("DELETE", path(id));
    await world.deliverWaveform(job);
    expect(await objectOf(place, id)).toBeNull();
    await call("POST", `/docs/v1/trash/${id}/restore`);
    world.aheadMilliseconds += HOUR;
    await world.recover();
    await world.drainWaveforms();
    expect(await stateOf(place, id)).toEqual(MEASURED);
    await call("DELETE", `${path(id)}?permanent=true`);
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});
