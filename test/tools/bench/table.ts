type Cell = string | number | null;

/** Prints a Markdown table with aligned columns. */
export function printTable(title: string, header: string[], rows: Cell[][]): void {
  const lines = [header, ...rows].map((row) => row.map((cell) => String(cell ?? "")));
  const widths = header.map((_, column) => Math.max(3, ...lines.map((line) => line[column]?.length ?? 0)));
  const pad = (cell: string, column: number) =>
    column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0);
  const rule = widths.map((width, column) => (column === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`));
  const [first = [], ...rest] = lines.map((line) => line.map(pad));
  console.log(`\n${title}\n\n${[first, rule, ...rest].map((line) => `| ${line.join(" | ")} |`).join("\n")}`);
}
