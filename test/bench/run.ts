import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { measureClient } from "./client.ts";
import { measureCuts } from "./cuts.ts";
import {
  countCosts,
  countGigabytes,
  type Extent,
  MEGABYTE,
  measureCompletion,
  measureGrowth,
  measureOverhead,
  measureStart,
} from "./measures.ts";
import { measureMemory } from "./memory.ts";
import { type Bill, monthly, PRICES, perMillion, total } from "./prices.ts";
import { ROOT, startServer } from "./server.ts";

/*
 * `npm run bench`: how close the service is to the bare platform, what it takes of memory and time, what it costs, and
 * how all that grows with data. `-- --quick` is for daily use; `-- --only overhead,growth` runs parts.
 */

const { values: options } = parseArgs({ options: { quick: { type: "boolean" }, only: { type: "string" } } });
const startedAt = Date.now();
const extent: Extent = {
  isQuick: options.quick === true,
  say: (what) => console.error(`${`${Math.round((Date.now() - startedAt) / 1000)} s`.padStart(6)}  ${what}`),
};
const isWanted = (part: string) => options.only === undefined || options.only.split(",").includes(part);

type Cell = string | number | null;
const round = (value: number, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** A Markdown table whose columns stand under each other. */
function table(title: string, header: string[], rows: Cell[][]): void {
  const lines = [header, ...rows].map((row) => row.map((cell) => String(cell ?? "")));
  const widths = header.map((_, column) => Math.max(3, ...lines.map((line) => line[column]?.length ?? 0)));
  const [first = [], ...rest] = lines.map((line) =>
    line.map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0))),
  );
  const rule = widths.map((width, column) => (column === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`));
  console.log(`\n${title}\n\n${[first, rule, ...rest].map((line) => `| ${line.join(" | ")} |`).join("\n")}`);
}

/** Of a month's reads: what a client does that shows a list, opens one of it, and plays it. */
const READS: [share: number, operation: string][] = [
  [0.5, "list 20 files"],
  [0.25, "get metadata"],
  [0.25, "get signed address"],
];
const MONTH = { teams: 1000, uploads: 1e6, uploadBytes: 5e6, reads: 10e6, cronRuns: 12 * 24 * 30 };
/** Of a file: 320 were measured, indexes included and without what is known of its audio. */
const ROW_BYTES = 700;

function sampleMonth(costs: Record<string, Bill>): Bill {
  const cost = (name: string) => costs[name] ?? {};
  const downloads: Bill = { r2ClassB: 1 };
  return total(
    [MONTH.uploads, cost("upload 5 MB, and its job")],
    ...READS.map(([share, name]): [number, Bill] => [share * MONTH.reads, cost(name)]),
    [0.25 * MONTH.reads, downloads],
    [MONTH.cronRuns, { requests: 1, logEvents: 2 }],
    [
      1,
      {
        r2Gigabytes: (MONTH.uploads * MONTH.uploadBytes) / 1e9,
        databaseGigabytes: (MONTH.uploads * ROW_BYTES) / 1e9,
      },
    ],
  );
}

const USES = ["rowsRead", "rowsWritten", "r2ClassA", "r2ClassB", "queueOperations"] as const;

function showCosts(costs: Record<string, Bill>): void {
  table(
    `Cost of a million of each, by prices of ${PRICES.date}, nothing included`,
    ["operation", "rows read", "rows written", "R2 A", "R2 B", "queue", "CPU ms *", "dollars"],
    Object.entries(costs).map(([name, bill]) => [
      name,
      ...USES.map((use) => round(bill[use] ?? 0, 1)),
      round(bill.cpuMilliseconds ?? 0, 1),
      round(perMillion(bill), 2),
    ]),
  );
  const lines = monthly(sampleMonth(costs));
  const sum = lines.reduce<number>((dollars, line) => dollars + line.dollars, PRICES.planPerMonth);
  table(
    "Sample month: 1,000 teams, 1 M uploads of 5 MB, 10 M reads (half lists, a quarter metadata, a quarter signed and opened)",
    ["item", "used", "dollars"],
    [
      ["Workers Paid plan", "", round(PRICES.planPerMonth, 2)],
      ...lines.map(({ item, use, dollars }) => [item, round(use), round(dollars, 2)]),
      ["together", "", round(sum, 2)],
    ],
  );
}

/** Of the price of a GB, too small to be read. */
const GIGABYTES = 1000;

function showGigabytes(rows: Awaited<ReturnType<typeof countGigabytes>>): void {
  table(
    `Cost of 1 GB by tus, job included, counted over a file of ${round((rows[0]?.bytes ?? 0) / MEGABYTE)} MB`,
    ["in chunks of", "requests", "rows read", "rows written", "R2 A", "R2 B", "queue", "CPU ms *", "dollars for 1,000"],
    rows.map(({ mebibytes, requests, cost }) => [
      `${mebibytes} MiB`,
      round(requests),
      ...USES.map((use) => round(cost[use] ?? 0)),
      round(cost.cpuMilliseconds ?? 0),
      round((perMillion(cost) / 1e6) * GIGABYTES, 2),
    ]),
  );
}

const results: Record<string, unknown> = {
  at: new Date().toISOString(),
  machine: `${cpus().length} cores, ${Math.round(totalmem() / 1e9)} GB, Node ${process.versions.node}`,
  quick: extent.isQuick,
};

if (isWanted("start")) {
  const start = measureStart(extent);
  results.start = start;
  table(
    "Size and start",
    ["", "measured", "goal"],
    [
      ["bundle, compressed", `${round(start.compressedKibibytes)} KiB`, `${start.goalKibibytes} KiB`],
      ["start-up, active CPU", `${round(start.startMilliseconds, 1)} ms`, `${start.goalMilliseconds} ms`],
    ],
  );
  console.log(
    `\nRun at the start: ${start.eagerPackages.join(", ")}.\nLoaded when needed: ${start.lazyPackages.join(", ")}.`,
  );
}

if (isWanted("memory")) {
  const memory = await measureMemory(extent);
  results.memory = memory;
  table(
    "Memory: by how much the runtime's process grew at most; R2, which locally is in it too, takes the bytes and drops them",
    ["", "grew by", "goal", "refused"],
    memory.map(({ name, growthMegabytes, goalMegabytes, uploads }) => [
      name,
      `${round(growthMegabytes)} MB`,
      goalMegabytes && `${goalMegabytes} MB`,
      uploads ? `${uploads.refused} of ${uploads.atOnce}` : "",
    ]),
  );
}

if (["overhead", "completion", "client", "cuts", "growth", "cost"].some(isWanted)) {
  const server = await startServer();
  try {
    if (isWanted("overhead")) {
      const overhead = await measureOverhead(server, extent);
      results.overhead = overhead;
      table(
        "Overhead: requests a second of the bare platform and of the service, by turns; medians",
        ["operation", "at once", "bare", "ours", "ratio", "least", "most", "goal", "CPU ms, bare", "ours *"],
        overhead.map((row) => [
          row.name,
          row.connections,
          ...[row.barePerSecond, row.oursPerSecond].map((rate) => round(rate, rate < 50 ? 2 : 0)),
          ...[row.ratio, row.least, row.most].map((value) => round(value, 2)),
          row.goal === null ? "" : round(row.goal, 2),
          ...[row.bareCpuMilliseconds, row.oursCpuMilliseconds].map((value) => round(value, 2)),
        ]),
      );
    }
    if (isWanted("completion")) {
      const completion = await measureCompletion(server, extent);
      results.completion = completion;
      table(
        `From an upload's answer to completed, of ${completion.files} files`,
        ["", "measured", "goal"],
        [
          ["median", `${round(completion.medianMilliseconds)} ms`, `${completion.goalMilliseconds} ms`],
          ["99 of 100", `${round(completion.p99Milliseconds)} ms`, `${completion.goalMilliseconds} ms`],
        ],
      );
    }
    if (isWanted("client")) {
      const client = await measureClient(server, extent);
      results.client = client;
      if (client === null) console.log("\nClient: not measured, since there is no curl.");
      else
        table(
          "Client: seconds of curl and of the built command, by turns; medians",
          ["uploads", "curl", "command", "ratio", "least", "most", "goal"],
          client.map(({ name, curlSeconds, commandSeconds, ratio, least, most, goal }) => [
            name,
            ...[curlSeconds, commandSeconds, ratio, least, most].map((value) => round(value, 2)),
            goal && round(goal, 2),
          ]),
        );
    }
    if (isWanted("cuts")) {
      const cuts = await measureCuts(server, extent);
      results.cuts = cuts;
      table(
        `What a cut costs: bytes of 20 MB that are sent again, of ${cuts[0]?.times} uploads each`,
        ["after", "median", "most", "goal"],
        cuts.map(({ name, ...bytes }) => [
          name,
          ...[bytes.medianBytes, bytes.mostBytes, bytes.goalBytes].map((count) => round(count)),
        ]),
      );
    }
    if (isWanted("cost")) {
      const costs = await countCosts(server, extent);
      results.costs = costs;
      results.month = monthly(sampleMonth(costs));
      showCosts(costs);
      const gigabytes = await countGigabytes(server, extent);
      results.gigabytes = gigabytes;
      showGigabytes(gigabytes);
      console.log("\n* At most: of the whole local process, which holds D1, R2 and the queue too.");
    }
    if (isWanted("growth")) {
      const growth = await measureGrowth(server, extent);
      results.growth = growth;
      const sizes = growth[0]?.sizes ?? [];
      table(
        "Growth: requests a second by rows in the table, all of one team, and the ratio to the smallest",
        ["operation", ...sizes.map(({ rows }) => `${round(rows)} rows`), ...sizes.slice(1).map(() => "ratio")],
        growth.map((row) => [
          row.name,
          ...row.sizes.map(({ perSecond }) => round(perSecond)),
          ...row.sizes.slice(1).map(({ ratio }) => round(ratio, 2)),
        ]),
      );
    }
  } finally {
    await server.close();
  }
}

mkdirSync(join(ROOT, ".wrangler"), { recursive: true });
const file = join(ROOT, ".wrangler/bench.json");
writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
extent.say(`done; the figures are in ${file}`);
