import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { median } from "./overhead.ts";
import { ROOT, type Scope } from "./server.ts";

/* What an isolate does before its first request: it evaluates the bundle. */

const WRANGLER = join(ROOT, "node_modules/wrangler/bin/wrangler.js");
const run = promisify(execFile);

/** The packages that the service can't do without. */
const BASELINE = `
import * as drizzle from "drizzle-orm";
import * as d1 from "drizzle-orm/d1";
import * as tables from "drizzle-orm/sqlite-core";
import { Hono } from "hono";
import * as metadata from "music-metadata";
import * as z from "zod";
export default { fetch: () => Response.json([drizzle, d1, tables, Hono, metadata, z].map(Object.keys)) };
`;

interface Profile {
  nodes: {
    id: number;
    callFrame: { functionName: string; url: string; lineNumber: number };
    positionTicks?: { line: number; ticks: number }[];
  }[];
  samples: number[];
  timeDeltas: number[];
}

interface Bundle {
  path: string;
  code: string;
}

/** Bundles a Worker as a deployment does. */
async function bundle(path: string, config: string, ...options: string[]): Promise<Bundle> {
  await run(process.execPath, [WRANGLER, "deploy", "--dry-run", "--config", config, "--outfile", path, ...options], {
    cwd: ROOT,
    maxBuffer: 2 ** 26,
  });
  const bytes = readFileSync(path);
  const boundary = bytes.subarray(2, bytes.indexOf("\n")).toString().trim();
  const type = `multipart/form-data; boundary=${boundary}`;
  const parts = await new Response(bytes, { headers: { "Content-Type": type } }).formData();
  const { main_module: main } = JSON.parse(String(parts.get("metadata")));
  return { path, code: await (parts.get(main) as File).text() };
}

/** Starts an isolate of the local runtime under its profiler. */
async function profile({ path }: Bundle): Promise<Profile> {
  const outfile = `${path}.cpuprofile`;
  await run(process.execPath, [WRANGLER, "check", "startup", "--worker", path, "--outfile", outfile], { cwd: ROOT });
  return JSON.parse(readFileSync(outfile, "utf8"));
}

const isIdle = (name: string) => name === "(idle)";

/** The time in which the isolate worked, as `wrangler check startup` counts it. */
function activeMilliseconds({ nodes, samples, timeDeltas }: Profile): number {
  const idle = new Set(nodes.filter(({ callFrame }) => isIdle(callFrame.functionName)).map(({ id }) => id));
  return samples.reduce((sum, id, i) => sum + (idle.has(id) ? 0 : (timeDeltas[i] ?? 0)), 0) / 1000;
}

/** The package of each line of a bundle, or the folder of the service. Comments of esbuild name the file of what follows them. */
function modulesIn(code: string): string[] {
  let module = "the bundler";
  return code.split("\n").map((line) => {
    const [, path] = /^\s*(?:\/\/ |")((?:[\w.@+-]+\/)+[\w.@+-]+\.\w+)(?:"\(.*)?$/.exec(line) ?? [];
    const [, name] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path ?? "") ?? [];
    if (path) module = name ?? path.replace(/.*?(src\/[^/]+).*/, "$1");
    return module;
  });
}

/** The active milliseconds of each module, without those of the modules that it calls. */
function byModule({ nodes, samples, timeDeltas }: Profile, moduleOf: string[]): Map<string, number> {
  const modules = new Map<string, number>();
  const microseconds = new Map<number, number>();
  samples.forEach((id, i) => {
    microseconds.set(id, (microseconds.get(id) ?? 0) + (timeDeltas[i] ?? 0));
  });
  const add = (name: string, amount: number) => modules.set(name, (modules.get(name) ?? 0) + amount / 1000);
  for (const { id, callFrame, positionTicks = [] } of nodes) {
    const spent = microseconds.get(id) ?? 0;
    const { functionName, url, lineNumber } = callFrame;
    if (isIdle(functionName)) continue;
    const total = positionTicks.reduce((sum, { ticks }) => sum + ticks, 0);
    if (functionName.startsWith("(")) add(functionName, spent);
    else if (!url.endsWith("index.js")) add("the runtime's JavaScript", spent);
    else if (lineNumber < 0) add("compiling the bundle", spent);
    else if (total === 0) add(moduleOf[lineNumber] ?? "", spent);
    // The code outside of functions is one function to the profiler, so its lines tell the module.
    else for (const { line, ticks } of positionTicks) add(moduleOf[line - 1] ?? "", (spent * ticks) / total);
  }
  return modules;
}

/** Measures the start of the Worker and of one that only imports its largest packages, in turns. */
export async function measureStartup({ isQuick, log }: Scope) {
  const folder = mkdtempSync(join(tmpdir(), "stowage-startup-"));
  try {
    const config = join(ROOT, "wrangler.toml");
    const bare = join(folder, "wrangler.toml");
    const [date, flags] = ["compatibility_date", "compatibility_flags"].map(
      (name) => new RegExp(`^${name} = .*$`, "m").exec(readFileSync(config, "utf8"))?.[0],
    );
    symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"), "junction");
    writeFileSync(join(folder, "bare.ts"), BASELINE);
    writeFileSync(bare, `name = "bare"\nmain = "bare.ts"\nminify = true\n${date}\n${flags}\n`);
    const bundles = {
      ours: await bundle(join(folder, "ours.bundle"), config),
      bare: await bundle(join(folder, "bare.bundle"), bare),
      // Its lines tell the modules.
      readable: await bundle(join(folder, "readable.bundle"), config, "--minify=false"),
    };
    const moduleOf = modulesIn(bundles.readable.code);
    const times = { ours: [] as number[], bare: [] as number[] };
    const modules: Map<string, number>[] = [];
    for (let round = 0; round < (isQuick ? 3 : 5); round++) {
      for (const name of ["bare", "ours"] as const) times[name].push(activeMilliseconds(await profile(bundles[name])));
      modules.push(byModule(await profile(bundles.readable), moduleOf));
      log(`startup: ${JSON.stringify({ ours: times.ours.at(-1), bare: times.bare.at(-1) })}`);
    }
    const names = new Set(modules.flatMap((one) => [...one.keys()]));
    const ours = median(times.ours);
    return {
      kibibytes: { ours: bundles.ours.code.length / 1024, bare: bundles.bare.code.length / 1024 },
      milliseconds: { ours, bare: median(times.bare) },
      ratio: ours / median(times.bare),
      modules: [...names]
        .map((name) => ({ name, milliseconds: median(modules.map((one) => one.get(name) ?? 0)) }))
        .filter(({ milliseconds }) => milliseconds >= 0.5)
        .sort((a, b) => b.milliseconds - a.milliseconds),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
