import { describe, expect } from "vitest";
import { operations } from "../../src/service.ts";
import { deathInLatePut, failureOfLatePut, outageOf, ProxiedBindings } from "../support/bindings.ts";
import type { CallOptions } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  dataOf,
  fieldsOf,
  metadataOf,
  newTeam,
  OPERATOR,
  read,
  rejected,
  sendText,
  type Team,
  upload,
} from "../support/harness.ts";
import { expectErased, expectSettled, expectSound } from "../support/invariants.ts";
import { objectBeside } from "../support/rows.ts";
import { MINUTE } from "../support/time.ts";
import { must, World } from "../support/world.ts";

/** The rounding error of a byte, as the description states it. */
const MAX_ERROR = 0.0045;
const FULL = 2000;
const BODY_BYTES = 128 * 1024;

const pathOf = (id: string) => `/docs/v1/uploads/${id}/waveform`;
const get = (team: Team, id: string) => team.call("GET", pathOf(id));
const put = (team: Team, id: string, channels: unknown) => team.call("PUT", pathOf(id), { json: { channels } });

const wave = (length: number, phase = 0) => Array.from({ length }, (_, i) => Math.sin(phase + i / 7));
/** Numbers close to zero that take as many characters as JavaScript ever writes. */
const tiny = (length: number) => Array.from({ length }, (_, i) => -1.2345678901234568e-300 * (1 + i / 3));

async function newFile(): Promise<{ team: Team; id: string }> {
  const team = await newTeam();
  return { team, id: await upload(team, "a.txt", "hello") };
}

const objectOf = ({ teamId }: { teamId: string }, id: string) => objectBeside(teamId, id, "waveform");

describe("A waveform", () => {
  test.each([
    ["one channel of 16 peaks", [wave(16)]],
    ["two channels of 2,000 peaks", [wave(FULL), wave(FULL, 1)]],
    ["two channels of 2,000 peaks with the longest numbers", [tiny(FULL), tiny(FULL)]],
    ["two different channels", [Array(16).fill(1), Array(16).fill(-1)]],
  ])(
    "a waveform of %s is stored with one byte per peak, and returned within its rounding error",
    async (_, channels) => {
      const { team, id } = await newFile();
      const stored = await dataOf(put(team, id, channels));
      const { body } = await get(team, id);
      expect([fieldsOf(body), body.data]).toEqual([["data", "message"], stored]);
      const found: number[][] = stored.channels;
      expect(found.map(({ length }) => length)).toEqual(channels.map(({ length }) => length));
      const errors = found.flatMap((peaks, i) => peaks.map((peak, at) => Math.abs(peak - (channels[i]?.[at] ?? 9))));
      expect(Math.max(...errors)).toBeLessThanOrEqual(MAX_ERROR);
      expect(Math.max(...found.flat().map(Math.abs))).toBeLessThanOrEqual(1);
      expect((await objectOf(team, id))?.size).toBe(1 + found.flat().length);
    },
  );

  test("keeps -1, 0, and 1 exactly, and every other peak within the error that the description states", async () => {
    const { team, id } = await newFile();
    const sent = Array.from({ length: FULL }, (_, i) => -1 + i / ((FULL - 1) / 2));
    const exact = [...[-1, -0, 0, 1, 1e-9, -1e-9], ...wave(FULL - 6)];
    const [found, ends]: number[][] = (await put(team, id, [sent, exact])).body.data.channels;
    const errors = sent.map((peak, i) => Math.abs(peak - (found?.[i] ?? 9)));
    expect(Math.max(...errors)).toBeLessThanOrEqual(MAX_ERROR);
    expect(Math.max(...errors)).toBeGreaterThan(MAX_ERROR - 0.0005);
    expect(ends?.slice(0, 6)).toEqual([-1, 0, 0, 1, 0, 0]);
    expect(found?.toSorted((a, b) => a - b)).toEqual(found);
    expect(operations.setWaveform.description).toContain(`${MAX_ERROR}`);
  });

  test("stays the same if it is read and set again", async () => {
    const { team, id } = await newFile();
    const all = Array.from({ length: 255 }, (_, i) => (i - 127) / 127);
    const first = (await put(team, id, [all])).body.data.channels;
    expect(new Set(first[0]).size).toBe(255);
    const object = await (await objectOf(team, id))?.bytes();
    expect((await put(team, id, first)).body.data.channels).toEqual(first);
    expect(await (await objectOf(team, id))?.bytes()).toEqual(object);
  });

  test("replaces a larger one", async () => {
    const { team, id } = await newFile();
    await put(team, id, [wave(FULL), wave(FULL)]);
    await put(team, id, [Array(16).fill(0.5)]);
    expect((await get(team, id)).body.data.channels).toEqual([Array(16).fill(0.504)]);
  });

  test("is stored whole if twenty are set at once", async () => {
    const { team, id } = await newFile();
    const answers = await atOnce(20, (i) => put(team, id, [Array(16 + i).fill(i / 20)]));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(answers.map(({ body }) => body.data)).toContainEqual((await get(team, id)).body.data);
  });

  test("appears in the metadata, in small in the list, and as an event, but not in the usage", async () => {
    const { team, id } = await newFile();
    const usage = () => read(team, "/docs/v1/usage");
    const [file, before] = [await metadataOf(team, id), await usage()];
    expect([file.hasWaveform, file.peaks]).toEqual([false, null]);
    await put(team, id, [wave(16)]);
    const { peaks, __v, updatedAt } = await metadataOf(team, id);
    expect([peaks.length, __v]).toEqual([56, file.__v + 1]);
    expect(await metadataOf(team, id)).toEqual({ ...file, hasWaveform: true, peaks, __v, updatedAt });
    const [event] = await read(team, "/auth/v1/events?type=file.updated");
    expect(event).toMatchObject({ subject: { id, version: __v }, data: { fields: ["waveform"], __v } });
    expect((await read(team, "/docs/v1/uploads"))[0].peaks).toEqual(peaks);
    expect((await read(team, "/docs/v1/uploads?search=a&sort=name"))[0].peaks).toEqual(peaks);
    expect(await usage()).toEqual({ ...before, events: before.events + 1 });
  });

  test.each([
    ["of 112 peaks as the mean of two", [Array.from({ length: 112 }, (_, i) => (i % 2 ? -0.5 : 0.25))], 37],
    ["of two channels as the louder one", [Array(56).fill(0.1), Array(56).fill(-1)], 99],
    ["of silence as zeros", [Array(2000).fill(0)], 0],
  ])("%s is shown in small", async (_, channels, level) => {
    const { team, id } = await newFile();
    await put(team, id, channels);
    expect((await metadataOf(team, id)).peaks).toEqual(Array(56).fill(level));
  });

  test("a waveform of 16 peaks, or of a file whose sound begins late, is shown in small at the same places", async () => {
    const { team, id } = await newFile();
    for (const length of [16, 58, 100, FULL]) {
      await put(team, id, [Array.from({ length }, (_, i) => (i < length / 2 ? 0 : 1))]);
      const { peaks } = await metadataOf(team, id);
      expect(peaks.slice(0, 27), `${length}`).toEqual(Array(27).fill(0));
      expect(peaks.slice(28), `${length}`).toEqual(Array(28).fill(99));
    }
  });

  test.each(["pending", "processing", "completed", "failed"])("may be set for a %s file", async (status) => {
    const { team, id } = await newFile();
    await DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    expect((await put(team, id, [wave(16)])).status).toBe(200);
    expect((await get(team, id)).status).toBe(200);
  });

  test("leaves no trace if R2 fails to store it, and then the one before stays", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const { token } = team;
    const fail = () =>
      world.ask(
        "PUT",
        pathOf(id),
        { token, json: { channels: [wave(20)] } },
        { bindings: new ProxiedBindings(outageOf("R2")) },
      );
    const state = async () => {
      const { hasWaveform, peaks } = await metadataOf(team, id);
      return { hasWaveform, peaks, channels: (await get(team, id)).body.data?.channels };
    };
    expect(await fail()).toMatchObject({ status: 503 });
    expect(await state()).toEqual({ hasWaveform: false, peaks: null, channels: undefined });
    const { channels } = await dataOf(put(team, id, [wave(16)]));
    const before = await state();
    expect(before).toMatchObject({ hasWaveform: true, channels });
    expect(await fail()).toMatchObject({ status: 503 });
    expect(await state()).toEqual(before);
  });

  test("outlives the reprocessing of its file, and the cleanup of its resumable upload", async () => {
    const { team, id } = await newFile();
    await put(team, id, [wave(16)]);
    await DB.prepare("update files set status = 'completed' where id = ?").bind(id).run();
    const before = (await get(team, id)).body;
    await team.call("POST", `/docs/v1/uploads/${id}/reprocess`);
    const world = new World();
    await world.deps().bytes.removeAll(`${team.teamId}/${id}.`);
    expect((await get(team, id)).body).toEqual(before);
  });
});

describe("A missing waveform", () => {
  test("responds 404", async () => {
    const { team, id } = await newFile();
    await rejected(team, 404, "not_found", () => get(team, id));
  });
});

describe("Deleting a file", () => {
  test("removes its waveform, and no other", async () => {
    const { team, id } = await newFile();
    const other = await upload(team, "b.txt", "world");
    await put(team, id, [wave(16)]);
    await put(team, other, [wave(20)]);
    await team.call("DELETE", `/docs/v1/uploads/${id}`);
    expect([(await get(team, id)).status, (await get(team, other)).status]).toEqual([404, 200]);
    expect([await objectOf(team, id), (await objectOf(team, other))?.size]).toEqual([null, 21]);
    await rejected(team, 404, "not_found", () => put(team, id, [wave(16)]));
  });

  test("leaves no waveform that was set at the same time", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const answers = await atOnce(20, (i) =>
      i === 10 ? team.call("DELETE", `/docs/v1/uploads/${id}`) : put(team, id, [wave(16)]),
    );
    for (const { status } of answers) expect([200, 404]).toContain(status);
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toEqual([]);
    expect(await objectOf(team, id)).toBeNull();
  });

  test("leaves no waveform whose Worker died while it was written", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    // The write reaches R2 only after the deletion has ended.
    const { bindings, reached, release } = deathInLatePut();
    const writing = world.ask("PUT", pathOf(id), { token: team.token, json: { channels: [wave(16)] } }, { bindings });
    await reached;
    expect((await team.call("DELETE", `/docs/v1/uploads/${id}`)).status).toBe(200);
    await expectSound(team.teamId);
    release();
    expect(await writing).toBe("dead");
    expect(await objectOf(team, id)).not.toBeNull();
    await world.recoverAll([team.teamId]);
    expect(await objectOf(team, id)).toBeNull();
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});

describe("A write that has failed", () => {
  test.for<[string, (team: Team, id: string) => [string, string, CallOptions?][]]>([
    ["deletion of the file", (_, id) => [["DELETE", `/docs/v1/uploads/${id}`]]],
    [
      "deletion of the file in a batch",
      (_, id) => [["POST", "/docs/v1/uploads/batch", { json: { action: "delete", ids: [id] } }]],
    ],
    [
      "erasure of the file from the trash",
      (_, id) => [
        ["DELETE", `/docs/v1/uploads/${id}`],
        ["DELETE", `/docs/v1/trash/${id}`],
      ],
    ],
    ["deletion of the team", ({ teamId }) => [["DELETE", `/auth/v1/teams/${teamId}`, { token: OPERATOR }]]],
  ])("leaves no waveform that R2 stores minutes after the %s", async ([name, requestsOf], { world, team }) => {
    if (name.includes("trash")) world.settings = { trashDays: 7 };
    const id = await world.store(team, "a.txt", "hello");
    const { bindings, store } = failureOfLatePut();
    const json = { channels: [wave(16)] };
    const failed = await must(world.ask("PUT", pathOf(id), { token: team.token, json }, { bindings }));
    expect(failed.code).toBe("unavailable");
    for (const [method, path, options] of requestsOf(team, id)) {
      expect((await must(world.ask(method, path, { token: team.token, ...options }))).status).toBe(200);
    }
    for (let run = 0; run < 2; run++) {
      world.aheadMilliseconds += 2 * MINUTE;
      await world.recoverFully();
    }
    await store();
    expect(await objectOf(team, id)).not.toBeNull();
    world.aheadMilliseconds += 15 * MINUTE;
    for (let run = 0; run < 2; run++) await world.recoverFully();
    if (name.includes("team")) await expectErased(team.teamId, world);
    else expect(await expectSettled(team.teamId, { world })).toEqual([]);
  });
});

describe("An invalid waveform", () => {
  const sixteen = Array(16).fill(0.5);
  const withPeak = (peak: unknown) => [...sixteen, peak];

  test.each<[string, unknown, string[]]>([
    ["no channel", [], ["channels"]],
    ["three channels", [sixteen, sixteen, sixteen], ["channels"]],
    ["2,001 peaks", [wave(FULL + 1)], ["channels.0"]],
    ["two channels of 15 peaks", [sixteen.slice(1), sixteen.slice(1)], ["channels.0", "channels.1"]],
    ["channels of 16 and 17 peaks", [sixteen, withPeak(0)], ["channels.1"]],
    ["channels of 17 and 16 peaks", [withPeak(0), sixteen], ["channels.1"]],
    ["a peak of -1.01 in the second channel", [withPeak(1), withPeak(-1.01)], ["channels.1.16"]],
    ["a peak just above 1", [withPeak(1 + Number.EPSILON)], ["channels.0.16"]],
    ["a null peak", [withPeak(null)], ["channels.0.16"]],
    ["a text as a peak", [withPeak("0.5")], ["channels.0.16"]],
    ["a text as a channel", ["0".repeat(16)], ["channels.0"]],
    ["a null channel", [sixteen, null], ["channels.1"]],
    ["peaks without a channel", sixteen, ["channels"]],
    ["null for all channels", null, ["channels"]],
  ])("a waveform with %s is rejected, and the previous one stays", async (_, channels, paths) => {
    const { team, id } = await newFile();
    await put(team, id, [wave(16)]);
    await rejected(team, 400, "invalid_input", () => put(team, id, channels), paths);
  });

  test.each([
    ["an infinite peak", `[[${sixteen},1e999]]`],
    ["60,000 nested lists", "[".repeat(60_000) + "]".repeat(60_000)],
  ])("with %s is rejected", async (_, channels) => {
    const { team, id } = await newFile();
    const send = () => sendText(team, "PUT", pathOf(id), `{"channels":${channels}}`);
    await rejected(team, 400, "invalid_input", send);
  });

  test("a waveform of 4,000 wrong peaks gets a hundred errors", async () => {
    const { team, id } = await newFile();
    const wrong = Array(FULL).fill(2);
    const { body } = await rejected(team, 400, "invalid_input", () => put(team, id, [wrong, wrong]));
    expect(body.errors).toHaveLength(100);
  });
});

test("the body of a waveform can have 128 KiB, more than the largest waveform needs", async () => {
  const { team, id } = await newFile();
  expect(JSON.stringify({ channels: [tiny(FULL), tiny(FULL)] }).length).toBeLessThan(BODY_BYTES);
  const body = JSON.stringify({ channels: [wave(16)] });
  expect((await sendText(team, "PUT", pathOf(id), body.padEnd(BODY_BYTES))).status).toBe(200);
  await rejected(team, 413, "body_too_large", () => sendText(team, "PUT", pathOf(id), body.padEnd(BODY_BYTES + 1)));
});
