import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Scope, startServer } from "./server.ts";
import type { SpreadOperation, SpreadScenario } from "./spreading.ts";

/* How many reads, writes and uploads a second the service does with more and more databases. */

export const OPERATIONS: SpreadOperation[] = ["reads", "writes", "uploads"];
const DATABASES = [1, 2, 4, 8];
export interface SpreadRow {
  databases: number;
  rates: Record<SpreadOperation, number>;
}

export async function measureDatabases({ isQuick, log }: Scope): Promise<SpreadRow[]> {
  const server = await startServer();
  try {
    await server.migrate(Array.from({ length: Math.max(...DATABASES) }, (_, i) => `SPREAD_${i}`));
    const rows: SpreadRow[] = [];
    for (const databases of DATABASES) {
      const rates: Record<string, number> = {};
      for (const operation of OPERATIONS) {
        log(`databases: ${operation} with ${databases}`);
        const scenario: SpreadScenario = { databases, operation, milliseconds: isQuick ? 500 : 1000 };
        rates[operation] = (await server.control("spread", scenario)) as number;
      }
      rows.push({ databases, rates: rates as SpreadRow["rates"] });
    }
    return rows;
  } finally {
    await server.close();
  }
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [560, 320, 64, 84, 12, 44];
const COLORS: Record<SpreadOperation, string> = { reads: "#2563eb", writes: "#b45309", uploads: "#15803d" };
const [LOWEST, HIGHEST] = [50, 5000];

/** Writes the rates as a plot with logarithmic axes, on which an equal growth is a straight line. */
export function plotDatabases(rows: SpreadRow[]): void {
  const x = (databases: number) =>
    Math.round(LEFT + ((WIDTH - LEFT - RIGHT) * Math.log2(databases)) / Math.log2(Math.max(...DATABASES)));
  const y = (rate: number) =>
    Math.round(HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * Math.log(rate / LOWEST)) / Math.log(HIGHEST / LOWEST));
  const text = (left: number, top: number, words: string | number, more: string) =>
    `<text x="${left}" y="${top}" ${more}>${words}</text>`;
  const grid = [100, 200, 500, 1000, 2000, HIGHEST].flatMap((rate) => [
    `<path d="M${LEFT} ${y(rate)}H${WIDTH - RIGHT}" stroke="#e4e4e7"/>`,
    text(LEFT - 8, y(rate) + 4, rate.toLocaleString("en"), 'text-anchor="end"'),
  ]);
  const curves = OPERATIONS.flatMap((operation) => {
    const points = rows.map(({ databases, rates }) => [x(databases), y(rates[operation])] as const);
    const [right, top] = points.at(-1) ?? [0, 0];
    return [
      `<polyline points="${points.join(" ")}" fill="none" stroke="${COLORS[operation]}" stroke-width="2"/>`,
      ...points.map(([left, top]) => `<circle cx="${left}" cy="${top}" r="3" fill="${COLORS[operation]}"/>`),
      text(right + 10, top + 4, operation, `fill="${COLORS[operation]}"`),
    ];
  });
  const svg = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12" fill="#27272a" role="img" aria-label="Operations a second by the number of databases">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    ...grid,
    ...DATABASES.map((databases) => text(x(databases), HEIGHT - BOTTOM + 20, databases, 'text-anchor="middle"')),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "databases", 'text-anchor="middle"'),
    ...curves,
    "</svg>",
  ];
  writeFileSync(join(import.meta.dirname, "databases.svg"), `${svg.join("\n")}\n`);
}
