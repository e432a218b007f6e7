import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { measurePeaks } from "../../src/audio/decoders/measure.ts";
import type { inspectFile } from "../../src/audio/inspect.ts";
import type { Budget } from "../../src/audio/range-source.ts";
import { reader } from "./build.ts";
import { worstFiles } from "./worst.ts";

/*
 * The cost of a file is charged before it is spent: the work of the worst files that we know, of each format, follows from the CPU
 * time that they take. In Node, because the clock of workerd doesn't advance while code runs.
 */

const root = join(import.meta.dirname, "../..");
const ORDINARY = [
  "notes.flac",
  "notes.oga",
  "notes.mp3",
  "notes.mp2",
  "notes.ogg",
  "notes.opus",
  "notes.webm",
  "notes.wav",
];
/** The most runs of a file, of which the fastest counts: another program may take the core's caches. */
const MAX_RUNS = 4;
/** The work after which an inspection yields, and the most that one step adds to it. */
const PAUSE_WORK = 20e6;
const MAX_STEP_WORK = 60e6;
/** The charges are those of a slow core, and the CPU time of a busy one varies. The faults that this finds are larger. */
const MAX_RATIO = 4;
/** What a run costs that no file can enlarge, such as loading the decoder. */
const FIXED_WORK = 40e6;
const MAX_WORK = 200e6;

interface Service {
  measurePeaks: typeof measurePeaks;
  inspectFile: typeof inspectFile;
  Budget: typeof Budget;
}

const folder = mkdtempSync(join(tmpdir(), "stowage-worst-"));
let service: Service;
let ordinary = 0;
/** What the budget saw: all units, those since the last pause, and the most between two pauses. */
const charged = { units: 0, since: 0, longest: 0 };

beforeAll(async () => {
  const outfile = join(folder, "measure.mjs");
  await build({
    stdin: {
      contents: ["decoders/measure", "inspect", "range-source"]
        .map((name) => `export * from "./${name}.ts";`)
        .join("\n"),
      resolveDir: join(root, "src/audio"),
      loader: "ts",
    },
    outfile,
    bundle: true,
    format: "esm",
    platform: "node",
    absWorkingDir: root,
    logLevel: "silent",
    nodePaths: [join(root, "node_modules")],
    plugins: [
      {
        name: "wasm",
        setup: ({ onLoad }) =>
          onLoad({ filter: /\.wasm$/ }, ({ path }) => ({
            contents: `import { readFileSync } from "node:fs"; export default new WebAssembly.Module(readFileSync(${JSON.stringify(path)}));`,
          })),
      },
    ],
  });
  service = (await import(/* @vite-ignore */ outfile)) as Service;
  const { charge, pause } = service.Budget.prototype;
  service.Budget.prototype.charge = function (units) {
    charged.units += units;
    charged.since += units;
    charged.longest = Math.max(charged.longest, charged.since);
    charge.call(this, units);
  };
  service.Budget.prototype.pause = function () {
    charged.since = 0;
    return pause.call(this);
  };
  ordinary = await unitCost();
});
afterAll(() => rmSync(folder, { recursive: true }));

type Facts = Parameters<typeof measurePeaks>[2];

/** Measures a file once. @returns the CPU time of a unit, what was charged, and the peaks */
async function cost(bytes: Uint8Array, facts: Facts) {
  Object.assign(charged, { units: 0, since: 0, longest: 0 });
  const before = process.cpuUsage();
  const peaks = await service.measurePeaks(reader(bytes).read, bytes.length, facts, MAX_WORK);
  const { user, system } = process.cpuUsage(before);
  return { ...charged, nanoseconds: ((user + system) * 1000) / (charged.units + FIXED_WORK), peaks };
}

/** The highest CPU time of a unit in ordinary files, of all formats, once their decoders are compiled. */
async function unitCost(): Promise<number> {
  const costs: number[] = [];
  for (const name of ORDINARY) {
    const bytes = new Uint8Array(readFileSync(join(root, "test/audio/notes", name)));
    const { audio } = await service.inspectFile(reader(bytes).read, bytes.length);
    await cost(bytes, audio!);
    costs.push((await cost(bytes, audio!)).nanoseconds);
  }
  return Math.max(...costs);
}

describe("One of the worst files", () => {
  const files = worstFiles();

  test.each(files)("costs about what is charged, and pauses in between: $name", async ({ bytes, facts, isRefused }) => {
    let ratio = Number.POSITIVE_INFINITY;
    for (let run = 0; run < MAX_RUNS && ratio > MAX_RATIO; run++) {
      const { nanoseconds, units, longest, peaks } = await cost(bytes, { ...facts, durationSeconds: null });
      ratio = Math.min(ratio, nanoseconds / ordinary);
      expect(longest).toBeLessThan(PAUSE_WORK + MAX_STEP_WORK);
      // Before anything is decoded.
      if (isRefused) expect([peaks, units < PAUSE_WORK]).toEqual([null, true]);
    }
    expect(ratio).toBeLessThan(MAX_RATIO);
  });

  test.each(["Opus", "Vorbis", "FLAC", "MPEG audio", "WAV", "AIFF", "WebM", "MP4", "Ogg"])("is of %s", (format) => {
    expect(files.filter(({ name }) => name.startsWith(`${format}, `)).length).toBeGreaterThan(0);
  });
});
