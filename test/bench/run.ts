import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { measureClient } from "./client.ts";
import { countCosts, measureCompletion, measureGrowth, measureOverhead, measureStart, type Scope } from "./measures.ts";
import { measureMemory } from "./memory.ts";
import { type Bill, dollarsPerMillion, monthlyBill, PRICES, sumBills } from "./prices.ts";
import { ROOT, startServer } from "./server.ts";

/* `npm run bench` compares the service with the bare platform: speed, memory, cost, and growth with the data. */

const { values: options } = parseArgs({ options: { quick: { type: "boolean" }, only: { type: "string" } } });
const startedAt = Date.now();
const scope: Scope = {
  isQuick: options.quick === true,
  log: (message) => console.error(`${`${Math.round((Date.now() - startedAt) / 1000)} s`.padStart(6)}  ${message}`),
};
const isWanted = (part: string) => options.only === undefined || options.only.split(",").includes(part);

type Cell = string | number | null;
const format = (value: number, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const formatRate = (rate: number) => format(rate, rate < 50 ? 2 : 0);

/** Prints a Markdown table with aligned columns. */
function printTable(title: string, header: string[], rows: Cell[][]): void {
  const lines = [header, ...rows].map((row) => row.map((cell) => String(cell ?? "")));
  const widths = header.map((_, column) => Math.max(3, ...lines.map((line) => line[column]?.length ?? 0)));
  const pad = (cell: string, column: number) =>
    column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0);
  const rule = widths.map((width, column) => (column === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`));
  const [first = [], ...rest] = lines.map((line) => line.map(pad));
  console.log(`\n${title}\n\n${[first, rule, ...rest].map((line) => `| ${line.join(" | ")} |`).join("\n")}`);
}

const MONTH = { uploads: 1e6, uploadBytes: 5e6, reads: 10e6, cronRuns: 12 * 24 * 30 };
/** Half of a month's reads list files; the rest get metadata or a signed URL, which is then opened. */
const READ_FRACTIONS: [fraction: number, operation: string][] = [
  [0.5, "list 20 files"],
  [0.25, "get metadata"],
  [0.25, "get signed URL"],
];
/** A file's row with its indexes; 320 bytes were measured without audio metadata. */
const ROW_BYTES = 700;

function sampleMonth(costs: Record<string, Bill>): Bill {
  const cost = (name: string) => costs[name] ?? {};
  const { uploads, uploadBytes, reads, cronRuns } = MONTH;
  const stored = { r2Gigabytes: (uploads * uploadBytes) / 1e9, databaseGigabytes: (uploads * ROW_BYTES) / 1e9 };
  return sumBills(
    [uploads, cost("upload 5 MB and process it")],
    ...READ_FRACTIONS.map(([fraction, name]): [number, Bill] => [fraction * reads, cost(name)]),
    [0.25 * reads, { r2ClassB: 1 }],
    [cronRuns, { requests: 1, logEvents: 1 }],
    [1, stored],
  );
}

function printCosts(costs: Record<string, Bill>): void {
  const uses = ["rowsRead", "rowsWritten", "r2ClassA", "r2ClassB", "queueOperations", "cpuMilliseconds"] as const;
  printTable(
    `Dollars for a million of each operation, by the prices of ${PRICES.date}, without the plan's allowance`,
    ["operation", "rows read", "rows written", "R2 A", "R2 B", "queue", "CPU ms *", "dollars"],
    Object.entries(costs).map(([name, bill]) => [
      name,
      ...uses.map((use) => format(bill[use] ?? 0, 1)),
      format(dollarsPerMillion(bill), 2),
    ]),
  );
  console.log("\n* Upper bound: CPU of the whole local process, with D1, R2 and the queue.");
  const lines = monthlyBill(sampleMonth(costs));
  const sum = lines.reduce((total, { dollars }) => total + dollars, PRICES.planPerMonth as number);
  printTable(
    "Sample month: 1 M uploads of 5 MB, all kept, and 10 M reads",
    ["item", "used", "dollars"],
    [
      ["Workers Paid plan", "", format(PRICES.planPerMonth, 2)],
      ...lines.map(({ item, usage, dollars }) => [item, format(usage), format(dollars, 2)]),
      ["total", "", format(sum, 2)],
    ],
  );
}

const results: Record<string, unknown> = {
  at: new Date().toISOString(),
  machine: `${cpus().length} cores, ${Math.round(totalmem() / 1e9)} GB, Node ${process.versions.node}`,
  isQuick: scope.isQuick,
};

if (isWanted("start")) {
  const start = measureStart(scope);
  results.start = start;
  printTable(
    "Size and start",
    ["", "measured", "goal"],
    [
      ["bundle, compressed", `${format(start.compressedKibibytes)} KiB`, "250 KiB"],
      ["start, active CPU", `${format(start.startMilliseconds, 1)} ms`, "50 ms"],
    ],
  );
}

if (isWanted("memory")) {
  const memory = await measureMemory(scope);
  results.memory = memory;
  printTable(
    "Memory: growth of the runtime's process, in MB",
    ["", "growth", "goal", "rejected"],
    memory.map(({ name, growthMegabytes, goalMegabytes, rejected }) => [
      name,
      format(growthMegabytes),
      goalMegabytes,
      rejected,
    ]),
  );
}

if (["overhead", "completion", "client", "growth", "cost"].some(isWanted)) {
  const server = await startServer();
  try {
    if (isWanted("overhead")) {
      const overhead = await measureOverhead(server, scope);
      results.overhead = overhead;
      printTable(
        "Overhead: requests per second of a bare handler and of the service",
        ["operation", "at once", "bare", "ours", "ratio", "least", "most", "goal"],
        overhead.map(({ name, connections, baseline, measured, ratio, least, most, goal }) => [
          name,
          connections,
          ...[baseline, measured].map(formatRate),
          ...[ratio, least, most].map((value) => format(value, 2)),
          goal,
        ]),
      );
    }
    if (isWanted("completion")) {
      const { files, median, p99 } = await measureCompletion(server, scope);
      results.completion = { files, median, p99 };
      const rows = Object.entries({ median, p99 }).map(([name, value]) => [name, `${format(value)} ms`, "1,000 ms"]);
      printTable(`From the upload's response to completed, ${files} files`, ["", "measured", "goal"], rows);
    }
    if (isWanted("client")) {
      const client = await measureClient(server, scope);
      results.client = client;
      if (client === null) console.log("\nClient: not measured, because curl is not installed.");
      else {
        printTable(
          "CLI: seconds of curl and of the built command",
          ["uploads", "curl", "command", "ratio", "least", "most", "goal"],
          client.map(({ name, baseline, measured, ratio, least, most, goal }) => [
            name,
            ...[1 / baseline, 1 / measured, ratio, least, most].map((value) => format(value, 2)),
            goal,
          ]),
        );
      }
    }
    if (isWanted("cost")) {
      const costs = await countCosts(server, scope);
      results.costs = costs;
      printCosts(costs);
    }
    if (isWanted("growth")) {
      const growth = await measureGrowth(server, scope);
      results.growth = growth;
      printTable(
        "Growth: requests per second by the number of rows of one team",
        ["operation", ...(growth[0]?.sizes ?? []).map(({ rows }) => `${format(rows)} rows`)],
        growth.map(({ name, sizes }) => [name, ...sizes.map(({ perSecond }) => format(perSecond))]),
      );
    }
  } finally {
    await server.close();
  }
}

mkdirSync(join(ROOT, ".wrangler"), { recursive: true });
const file = join(ROOT, ".wrangler/bench.json");
writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
scope.log(`done; the figures are in ${file}`);
