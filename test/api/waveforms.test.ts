import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { api } from "../../src/app.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { atOnce, call, fieldsOf, newTeam, refused, sendText, snapshot, type Team, upload } from "../support/harness.ts";
import { must, World } from "../support/world.ts";

/** What a byte can't tell of a peak, as the description states it. */
const MAX_ERROR = 0.0045;
const FULL = 2000;
const BODY_BYTES = 128 * 1024;

const pathOf = (id: string) => `/docs/v1/uploads/${id}/waveform`;
const get = (team: Team, id: string) => team.call("GET", pathOf(id));
const put = (team: Team, id: string, channels: unknown) => team.call("PUT", pathOf(id), { json: { channels } });

const wave = (length: number, phase = 0) => Array.from({ length }, (_, i) => Math.sin(phase + i / 7));
/** In numbers as long as JavaScript writes them, near to zero. */
const tiny = (length: number) => Array.from({ length }, (_, i) => -1.2345678901234568e-300 * (1 + i / 3));

async function newFile(): Promise<{ team: Team; id: string }> {
  const team = await newTeam();
  return { team, id: await upload(team, "a.txt", "hello") };
}

const rowsOf = async (id: string) =>
  (await env.DB.prepare("select * from waveforms where file_id = ?").bind(id).all<Record<string, unknown>>()).results;

describe("A waveform", () => {
  test.each([
    ["one channel of 16 peaks", [wave(16)]],
    ["two channels of 16 peaks", [wave(16), wave(16, 1)]],
    ["one channel of 2,000 peaks", [wave(FULL)]],
    ["two channels of 2,000 peaks", [wave(FULL), wave(FULL, 1)]],
    ["two channels of 2,000 peaks, as long as numbers get", [tiny(FULL), tiny(FULL)]],
    ["two channels that are not alike", [Array(16).fill(1), Array(16).fill(-1)]],
  ])("A waveform of %s is kept, and comes back as it was sent but for what a byte can't tell.", async (_, channels) => {
    const { team, id } = await newFile();
    const kept = await put(team, id, channels);
    expect(kept.status, kept.text).toBe(200);
    const { status, body } = await get(team, id);
    expect([status, fieldsOf(body), fieldsOf(body.data)]).toEqual([200, ["data", "message"], ["channels"]]);
    expect(body.data).toEqual(kept.body.data);
    const found: number[][] = body.data.channels;
    expect(found.map(({ length }) => length)).toEqual(channels.map(({ length }) => length));
    const errors = found.flatMap((peaks, i) => peaks.map((peak, at) => Math.abs(peak - (channels[i]?.[at] ?? 9))));
    expect(Math.max(...errors)).toBeLessThanOrEqual(MAX_ERROR);
    expect(Math.max(...found.flat().map(Math.abs))).toBeLessThanOrEqual(1);
  });

  test("Each peak between -1 and 1 comes back within the error that the description states; -1, 0 and 1 do unaltered.", async () => {
    const { team, id } = await newFile();
    const sent = Array.from({ length: FULL }, (_, i) => -1 + i / ((FULL - 1) / 2));
    const exact = [...[-1, -0, 0, 1, 1e-9, -1e-9], ...wave(FULL - 6)];
    const [found, ends]: number[][] = (await put(team, id, [sent, exact])).body.data.channels;
    const errors = sent.map((peak, i) => Math.abs(peak - (found?.[i] ?? 9)));
    expect(Math.max(...errors)).toBeLessThanOrEqual(MAX_ERROR);
    expect(Math.max(...errors)).toBeGreaterThan(MAX_ERROR - 0.0005);
    expect(ends?.slice(0, 6)).toEqual([-1, 0, 0, 1, 0, 0]);
    expect(found?.toSorted((a, b) => a - b)).toEqual(found);
    expect(api.setWaveform[1].description).toContain(`${MAX_ERROR}`);
  });

  test("A waveform that is read and set again stays as it is, whichever bytes it has.", async () => {
    const { team, id } = await newFile();
    const all = Array.from({ length: 255 }, (_, i) => (i - 127) / 127);
    const first = (await put(team, id, [all])).body.data.channels;
    expect(new Set(first[0]).size).toBe(255);
    const rows = await rowsOf(id);
    expect((await put(team, id, first)).body.data.channels).toEqual(first);
    expect(await rowsOf(id)).toEqual(rows);
  });

  test("A waveform takes a byte for each peak.", async () => {
    const { team, id } = await newFile();
    await put(team, id, [wave(FULL), wave(FULL)]);
    const size = env.DB.prepare(
      "select length(peaks) as bytes, typeof(peaks) as type from waveforms where file_id = ?",
    );
    expect(await size.bind(id).first()).toEqual({ bytes: 2 * FULL, type: "blob" });
  });

  test("A waveform takes the place of the one before, also of one with more channels and peaks.", async () => {
    const { team, id } = await newFile();
    await put(team, id, [wave(FULL), wave(FULL)]);
    await put(team, id, [Array(16).fill(0.5)]);
    expect((await get(team, id)).body.data.channels).toEqual([Array(16).fill(0.504)]);
    expect(await rowsOf(id)).toHaveLength(1);
  });

  test("Of twenty waveforms that are set at once one is kept whole.", async () => {
    const { team, id } = await newFile();
    const answers = await atOnce(20, (i) => put(team, id, [Array(16 + i).fill(i / 20)]));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    const kept = (await get(team, id)).body.data;
    expect(answers.map(({ body }) => body.data)).toContainEqual(kept);
  });

  test("Of a waveform only the metadata tells, that there is one: not the list, the usage, or an event.", async () => {
    const { team, id } = await newFile();
    const metadata = async () => (await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).body.data;
    const others = async () => {
      const paths = ["/docs/v1/uploads", "/docs/v1/usage", "/auth/v1/events"];
      return Promise.all(paths.map(async (path) => (await team.call("GET", path)).text));
    };
    const [file, before] = [await metadata(), await others()];
    expect(file.hasWaveform).toBe(false);
    expect((await put(team, id, [wave(16)])).status).toBe(200);
    expect(await metadata()).toEqual({ ...file, hasWaveform: true });
    expect(await others()).toEqual(before);
  });

  test.each(["pending", "processing", "completed", "failed"])("A file that is %s may be given one.", async (status) => {
    const { team, id } = await newFile();
    await env.DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    expect((await put(team, id, [wave(16)])).status).toBe(200);
    expect((await get(team, id)).status).toBe(200);
  });

  test("A file that is processed again keeps its waveform.", async () => {
    const { team, id } = await newFile();
    await put(team, id, [wave(16)]);
    await env.DB.prepare("update files set status = 'completed' where id = ?").bind(id).run();
    const before = (await get(team, id)).body;
    await team.call("POST", `/docs/v1/uploads/${id}/reprocess`);
    expect((await get(team, id)).body).toEqual(before);
  });
});

describe("Where there is none", () => {
  test("A file has no waveform until it is given one: 404, like a file that is not there.", async () => {
    const { team, id } = await newFile();
    await refused(team, 404, "not_found", () => get(team, id));
    await refused(team, 404, "not_found", () => get(team, "0193477be8a01f9c3ad5e7b2"));
    await refused(team, 404, "not_found", () => put(team, "0193477be8a01f9c3ad5e7b2", [wave(16)]));
  });

  test("The waveform of another team is neither shown nor replaced.", async () => {
    const { team, id } = await newFile();
    await put(team, id, [wave(16)]);
    const before = await snapshot(team.teamId);
    const stranger = await newTeam();
    await refused(stranger, 404, "not_found", () => get(stranger, id));
    await refused(stranger, 404, "not_found", () => put(stranger, id, [wave(20)]));
    expect(await snapshot(team.teamId)).toEqual(before);
  });

  test.each(["receiving", "deleting"])("A file that is %s takes none, and shows none.", async (status) => {
    const { team, id } = await newFile();
    await put(team, id, [wave(16)]);
    await env.DB.prepare("update files set status = 'deleting' where id = ?").bind(id).run();
    await env.DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    await refused(team, 404, "not_found", () => get(team, id));
    await refused(team, 404, "not_found", () => put(team, id, [wave(16)]));
  });

  test("A waveform is gone with its file, and that of another file stays.", async () => {
    const { team, id } = await newFile();
    const other = await upload(team, "b.txt", "world");
    await put(team, id, [wave(16)]);
    await put(team, other, [wave(20)]);
    await team.call("DELETE", `/docs/v1/uploads/${id}`);
    expect([(await get(team, id)).status, (await get(team, other)).status]).toEqual([404, 200]);
    expect([await rowsOf(id), (await rowsOf(other)).length]).toEqual([[], 1]);
    await refused(team, 404, "not_found", () => put(team, id, [wave(16)]));
  });

  test("A waveform is gone in the moment its file is hidden, however far the deletion then comes.", async () => {
    const world = new World();
    const team = await world.newTeam();
    const id = await world.store(team, "a.txt", "hello");
    await world.call("PUT", pathOf(id), { token: team.token, json: { channels: [wave(16)] } });
    expect(await rowsOf(id)).toHaveLength(1);
    const bindings = new ProxiedBindings({ call: 2, moment: "after", failure: "death" });
    expect(await world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }, { bindings })).toBe("dead");
    const { status } = (await env.DB.prepare("select status from files where id = ?").bind(id).first()) ?? {};
    expect([status, await rowsOf(id)]).toEqual(["deleting", []]);
    expect((await must(world.ask("GET", pathOf(id), { token: team.token }))).status).toBe(404);
  });

  test("Waveforms that are set while their file is deleted leave nothing.", async () => {
    const { team, id } = await newFile();
    const answers = await atOnce(20, (i) =>
      i === 10 ? team.call("DELETE", `/docs/v1/uploads/${id}`) : put(team, id, [wave(16)]),
    );
    for (const { status } of answers) expect([200, 404]).toContain(status);
    expect(await rowsOf(id)).toEqual([]);
  });
});

describe("A waveform that is none", () => {
  const sixteen = Array(16).fill(0.5);
  const withPeak = (peak: unknown) => [...sixteen, peak];

  test.each<[string, unknown, string[]]>([
    ["no channel", [], ["channels"]],
    ["three channels", [sixteen, sixteen, sixteen], ["channels"]],
    ["15 peaks", [sixteen.slice(1)], ["channels.0"]],
    ["2,001 peaks", [wave(FULL + 1)], ["channels.0"]],
    ["two channels of 15 peaks", [sixteen.slice(1), sixteen.slice(1)], ["channels.0", "channels.1"]],
    ["channels of 16 and 17 peaks", [sixteen, withPeak(0)], ["channels.1"]],
    ["channels of 17 and 16 peaks", [withPeak(0), sixteen], ["channels.1"]],
    ["a peak of 1.01", [withPeak(1.01)], ["channels.0.16"]],
    ["a peak of -1.01 in the second channel", [withPeak(1), withPeak(-1.01)], ["channels.1.16"]],
    ["a peak just above 1", [withPeak(1 + Number.EPSILON)], ["channels.0.16"]],
    ["a peak that is not a number, which JSON writes as null", [withPeak(Number.NaN)], ["channels.0.16"]],
    ["a peak that is a text", [withPeak("0.5")], ["channels.0.16"]],
    ["a peak that is a boolean", [withPeak(true)], ["channels.0.16"]],
    ["a peak that is a list", [withPeak([0.5])], ["channels.0.16"]],
    ["a channel that is a text", ["0".repeat(16)], ["channels.0"]],
    ["a channel that is an object", [{ length: 16 }], ["channels.0"]],
    ["a channel that is missing", [sixteen, null], ["channels.1"]],
    ["peaks without a channel", sixteen, ["channels"]],
    ["a text for all", "peaks", ["channels"]],
    ["null for all", null, ["channels"]],
  ])("A waveform with %s is refused, and the one before stays.", async (_, channels, paths) => {
    const { team, id } = await newFile();
    await put(team, id, [wave(16)]);
    const { body } = await refused(team, 400, "invalid_input", () => put(team, id, channels));
    const named = body.errors.map(({ path }: { path: string }) => path);
    expect([...new Set(named)].sort()).toEqual(paths.sort());
  });

  test.each([
    ["infinite", `{"channels":[[${sixteen},1e999]]}`, "invalid_input"],
    ["NaN as JavaScript writes it", `{"channels":[[${sixteen},NaN]]}`, "malformed_json"],
  ])("A waveform with a peak that is %s is refused.", async (_, text, code) => {
    const { team, id } = await newFile();
    await refused(
      team,
      400,
      code,
      () => sendText(team, "PUT", pathOf(id), text),
      code === "invalid_input" ? ["channels.0.16"] : undefined,
    );
  });

  test("A waveform with a field that is not known, or without channels, is refused by its name.", async () => {
    const { team, id } = await newFile();
    for (const [json, path] of [
      [{ channels: [sixteen], peaks: [] }, "peaks"],
      [{}, "channels"],
    ] as const) {
      await refused(team, 400, "invalid_input", () => team.call("PUT", pathOf(id), { json }), [path]);
    }
  });

  test("A waveform of 4,000 wrong peaks is answered with a hundred of them.", async () => {
    const { team, id } = await newFile();
    const wrong = Array(FULL).fill(2);
    const { body } = await refused(team, 400, "invalid_input", () => put(team, id, [wrong, wrong]));
    expect(body.errors).toHaveLength(100);
  });
});

describe("The body of a waveform", () => {
  const body = (length: number) => JSON.stringify({ channels: [wave(16)] }).padEnd(length);

  test("The largest waveform fits, and a body may have 128 KiB exactly.", async () => {
    const { team, id } = await newFile();
    const longest = JSON.stringify({ channels: [tiny(FULL), tiny(FULL)] });
    expect(longest.length).toBeGreaterThan(90_000);
    expect(longest.length).toBeLessThan(BODY_BYTES);
    expect((await sendText(team, "PUT", pathOf(id), body(BODY_BYTES))).status).toBe(200);
    await refused(team, 413, "body_too_large", () => sendText(team, "PUT", pathOf(id), body(BODY_BYTES + 1)));
  });

  test("A body of brackets alone, as deep as may be, is refused.", async () => {
    const { team, id } = await newFile();
    const half = (BODY_BYTES - 20) / 2;
    const text = `{"channels":${"[".repeat(half)}${"]".repeat(half)}}`;
    const { errors } = (await refused(team, 400, "invalid_input", () => sendText(team, "PUT", pathOf(id), text))).body;
    expect(errors.length).toBeGreaterThan(0);
  });
});

test("A page of another origin may set a waveform: a preflight lets PUT through.", async () => {
  const headers = { Origin: "https://app.example", "Access-Control-Request-Method": "PUT" };
  const preflight = await call("OPTIONS", pathOf("0193477be8a01f9c3ad5e7b2"), { headers });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("Access-Control-Allow-Methods")?.split(",")).toContain("PUT");
});
