import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Scope, startServer } from "./server.ts";
import type { SpreadOperation, SpreadScenario } from "./spreading.ts";
import { control } from "./webhooks.ts";

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
        const scenario: SpreadScenario = { databases, operation, milliseconds: isQuick ? 500 : 2000 };
        rates[operation] = (await control(server, "spread", scenario)) as number;
      }
      rows.push({ databases, rates: rates as SpreadRow["rates"] });
    }
    return rows;
  } finally {
    await server.close();
  }
}

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [560, 300, 56, 40];
const COLORS: Record<SpreadOperation, string> = { reads: "#2563eb", writes: "#b45309", uploads: "#15803d" };

/** Writes the growth of each rate as a plot, next to the line of an equal growth. */
export function plotDatabases(rows: SpreadRow[]): void {
  const most = Math.max(...DATABASES);
  const x = (databases: number) => Math.round(LEFT + ((WIDTH - LEFT - 90) * databases) / most);
  const y = (times: number) => Math.round(HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 16) * times) / most);
  const text = (at: [number, number], words: string | number, more = "") =>
    `<text x="${at[0]}" y="${at[1]}" ${more}>${words}</text>`;
  const line = (points: [number, number][], more: string) =>
    `<polyline points="${points.map(([databases, times]) => `${x(databases)},${y(times)}`).join(" ")}" fill="none" ${more}/>`;
  const curves = OPERATIONS.map((operation, i) => {
    const first = rows[0]?.rates[operation] ?? 1;
    const points = rows.map(({ databases, rates }): [number, number] => [databases, rates[operation] / first]);
    const [end = [0, 0]] = points.slice(-1);
    const label = text(
      [x(end[0]) + 8, y(end[1]) + 14 * i - 4],
      `${operation} ${end[1].toFixed(1)}×`,
      `fill="${COLORS[operation]}"`,
    );
    return (
      line(points, `stroke="${COLORS[operation]}" stroke-width="2" stroke-dasharray="${["", "8 4", "2 3"][i]}"`) + label
    );
  });
  const svg = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12" role="img" aria-label="Rates by the number of databases">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    line(
      [
        [0, 0],
        [most, most],
      ],
      'stroke="#d4d4d8"',
    ),
    line(
      [
        [0, most],
        [0, 0],
        [most, 0],
      ],
      'stroke="#71717a"',
    ),
    ...DATABASES.map((databases) => text([x(databases), HEIGHT - BOTTOM + 18], databases, 'text-anchor="middle"')),
    ...DATABASES.map((times) => text([LEFT - 8, y(times) + 4], `${times}×`, 'text-anchor="end"')),
    text([x(most / 2), HEIGHT - 6], "databases", 'text-anchor="middle"'),
    ...curves,
    "</svg>",
  ];
  writeFileSync(join(import.meta.dirname, "databases.svg"), `${svg.join("\n")}\n`);
}
