import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { clientComparisons } from "./client.ts";
import { measureCpu } from "./costs.ts";
import { measureDatabases, OPERATIONS, plotDatabases } from "./databases.ts";
import { measureFairness } from "./fairness.ts";
import { measureGrowth, SIZES } from "./growth.ts";
import { measureMemory } from "./memory.ts";
import { compare, overheadComparisons } from "./overhead.ts";
import { measurePeers } from "./peers.ts";
import { measurePhones } from "./phones.ts";
import { measureSearch } from "./search.ts";
import { type Scope, startServer } from "./server.ts";
import { measureStartup } from "./startup.ts";
import { printTable } from "./table.ts";
import { measureWaveforms } from "./waveforms.ts";
import { measureWebhooks } from "./webhooks.ts";

/* `npm run bench` compares the service with the bare platform: speed, memory and cost. */

const { values: options } = parseArgs({ options: { quick: { type: "boolean" }, only: { type: "string" } } });
const parts = options.only?.split(",") ?? [
  ...[
    "startup",
    "memory",
    "overhead",
    "client",
    "cost",
    "growth",
    "waveforms",
    "webhooks",
    "fairness",
    "phones",
    "search",
    "databases",
  ],
];
const startedAt = Date.now();
const scope: Scope = {
  isQuick: options.quick === true,
  log: (message) => console.error(`${`${Math.round((Date.now() - startedAt) / 1000)} s`.padStart(6)}  ${message}`),
};

const format = (value: number, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const formatRate = (rate: number) => format(rate, rate < 50 ? 2 : 0);

if (parts.includes("startup")) {
  const { kibibytes, milliseconds, ratio, modules } = await measureStartup(scope);
  printTable(
    "Start: milliseconds of CPU until an isolate can take its first request, and KiB of its bundle",
    ["", "ours", "bare", "ratio"],
    [
      ["CPU ms", format(milliseconds.ours), format(milliseconds.bare), format(ratio, 2)],
      ["KiB", format(kibibytes.ours), format(kibibytes.bare), null],
    ],
  );
  printTable(
    "Start: milliseconds by module, without those that it calls",
    ["module", "ms"],
    modules.map(({ name, milliseconds }) => [name, format(milliseconds, 1)]),
  );
}

if (parts.includes("memory")) {
  printTable(
    "Memory: growth of the runtime's process, in MB",
    ["", "ours", "bare", "goal", "rejected"],
    (await measureMemory(scope)).map(({ name, megabytes, bare, goalMegabytes, rejected }) => [
      name,
      format(megabytes),
      bare === null ? null : format(bare),
      goalMegabytes,
      rejected,
    ]),
  );
}

if (parts.includes("overhead") || parts.includes("client")) {
  const server = await startServer();
  const folder = mkdtempSync(join(tmpdir(), "stowage-bench-"));
  try {
    const comparisons = [
      ...(parts.includes("overhead") ? await overheadComparisons(server) : []),
      ...(parts.includes("client") ? await clientComparisons(server, folder) : []),
    ];
    printTable(
      "Overhead: requests per second of a baseline (a bare handler, or curl) and of the service",
      ["operation", "at once", "bare", "ours", "ratio", "least", "most", "goal"],
      (await compare(server, scope, comparisons)).map(({ name, connections, bare, ours, ratio, least, most, goal }) => [
        name,
        connections,
        ...[bare, ours].map(formatRate),
        ...[ratio, least, most].map((value) => format(value, 2)),
        goal,
      ]),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
    await server.close();
  }
}

if (parts.includes("cost")) {
  const server = await startServer();
  const milliseconds = await measureCpu(server, scope).finally(() => server.close());
  printTable(
    "Cost: milliseconds of CPU of the whole local process, with D1, R2 and the queue, for the table in OPERATIONS.md",
    ["operation", "CPU ms"],
    Object.entries(milliseconds).map(([name, cpu]) => [name, format(cpu, cpu < 50 ? 1 : 0)]),
  );
}

if (parts.includes("growth")) {
  const sizes = SIZES.map((size) => format(size));
  printTable(
    "Growth: rows read, and times the milliseconds of the smallest team, by the files of a team",
    ["operation", ...sizes.map((size) => `rows: ${size}`), ...sizes.slice(1).map((size) => `ms: ${size}`)],
    (await measureGrowth(scope)).map(({ name, rowsRead, ratios }) => [
      name,
      ...rowsRead.map((count) => format(count)),
      ...ratios.slice(1).map((ratio) => format(ratio, 2)),
    ]),
  );
}

if (parts.includes("waveforms")) {
  const { costs, waits, imported } = await measureWaveforms(scope);
  printTable(
    "Waveforms: CPU for an hour of stereo, dollars for a million hours, and growth of memory",
    ["format", "outcome", "CPU s *", "dollars", "MB"],
    costs.map(({ name, outcome, cpuSeconds, dollars, megabytes }) => [
      name,
      `${outcome}`,
      format(cpuSeconds, 1),
      format(dollars),
      format(megabytes),
    ]),
  );
  printTable(
    "Waveforms: milliseconds from the start of an upload until its file is completed",
    ["", "median", "longest"],
    waits.map(({ name, median, longest }) => [name, format(median), format(longest)]),
  );
  printTable(
    "Waveforms: an import of short files by the API",
    ["files", "uploaded in s", "measured by then", "all measured s later"],
    [
      [
        format(imported.files),
        format(imported.uploadSeconds, 1),
        format(imported.measuredBefore),
        format(imported.waitSeconds, 1),
      ],
    ],
  );
}

if (parts.includes("webhooks")) {
  const { rates, delays } = await measureWebhooks(scope);
  printTable(
    "Webhooks: messages a minute, by response time, alone and next to 300 webhooks that hang",
    ["endpoint", "alone", "under load"],
    rates.map(({ name, alone, underLoad }) => [name, format(alone, 1), format(underLoad, 1)]),
  );
  printTable(
    "Webhooks: seconds until a new event is sent to an endpoint of 0.2 s, next to the 300",
    ["", "seconds"],
    delays.map(({ name, seconds }) => [name, format(seconds, 1)]),
  );
}

if (parts.includes("fairness")) {
  const { waits, pendingBefore, pendingAfter } = await measureFairness(scope);
  printTable(
    "Fairness: seconds until a file is completed, alone and during the import of another team",
    ["", "median", "longest"],
    waits.map(({ name, median, longest }) => [name, format(median, 2), format(longest, 2)]),
  );
  console.log(`\nOf that import, ${pendingBefore} files were unprocessed before these, and ${pendingAfter} after.`);
}

if (parts.includes("phones")) {
  const rows = await measurePhones(scope);
  const listed = (counts: Record<string, number>) =>
    Object.entries(counts)
      .map(([name, count]) => `${name}: ${count}`)
      .join(", ") || "none";
  printTable(
    "An event day: phones that upload 300 kB at the same moment, of which a third gives up and one is hostile",
    ["phones", "honest", "stored", "median s", "longest s", "refused", "the hostile one"],
    rows.map(({ phones, honest, stored, median, longest, refusals, ofHostile }) => [
      ...[phones, honest, stored].map((value) => format(value)),
      ...[median, longest].map((value) => format(value, 1)),
      listed(refusals),
      listed(ofHostile),
    ]),
  );
  for (const { phones, first } of rows) console.log(`\nFirst refusal of ${phones}: ${first ?? "none"}`);
}

if (parts.includes("search")) {
  const { hours, seconds, bytes, results } = measureSearch(scope);
  printTable(
    `Search: an index of ${format(hours)} hours of transcripts, and a bare FTS5 table with the same words`,
    ["", "ours", "bare"],
    [
      ["CPU s to build", format(seconds.ours), format(seconds.bare)],
      ["MB", format(bytes.ours / 1e6), format(bytes.bare / 1e6)],
    ],
  );
  printTable(
    "Search: milliseconds of CPU for the first page of 20 files",
    ["query", "files that match", "ours", "bare"],
    results.map(({ name, files, ours, bare }) => [name, format(files), format(ours), format(bare)]),
  );
}

if (parts.includes("databases")) {
  const rows = await measureDatabases(scope);
  const [first] = rows;
  printTable(
    "Databases: operations a second, and how many times those with one database",
    ["databases", ...OPERATIONS, ...OPERATIONS.map((operation) => `${operation} ×`)],
    rows.map(({ databases, rates }) => [
      databases,
      ...OPERATIONS.map((operation) => format(rates[operation])),
      ...OPERATIONS.map((operation) => format(rates[operation] / (first?.rates[operation] ?? 1), 1)),
    ]),
  );
  plotDatabases(rows);
}

if (parts.includes("peers")) {
  const { names, rows } = await measurePeers(scope);
  printTable(
    "Peers: requests a second, medians of rounds in turns",
    ["operation", ...names],
    rows.map(({ name, rates }) => [name, ...names.map((peer) => formatRate(rates[peer] ?? Number.NaN))]),
  );
}
