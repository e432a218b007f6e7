import { format } from "sql-formatter";
import { nameOfStatement } from "../../src/platform/db.ts";
import type { Effects, RoundTrip } from "./bindings.ts";

/*
 * Writes down what an operation costs until its response, so that a person can read it: its calls of R2, its messages, and each
 * round trip to D1 with the names of its queries, their SQL, plans, and rows. The files in test/all/statements/ are reviewed as a diff.
 */

/** Longest line of a statement. */
const LINE_LENGTH = 110;

interface Line {
  text: string;
  children: Line[];
}

/** Puts what the formatter spreads over many lines on one, as long as it fits. */
function compact(formatted: string): string {
  const top: Line = { text: "", children: [] };
  const open = [top];
  for (const line of formatted.split("\n")) {
    const depth = (line.length - line.trimStart().length) / 2;
    const node = { text: line.trim(), children: [] };
    const parent = open[Math.min(depth, open.length - 1)] ?? top;
    // A closing parenthesis belongs to the line that opened it.
    (node.text.startsWith(")") ? (parent.children.at(-1) ?? parent) : parent).children.push(node);
    open.splice(Math.min(depth, open.length - 1) + 1, open.length, node);
  }
  const flat = ({ text, children }: Line): string =>
    [text, ...children.map(flat)].join(" ").replaceAll("( ", "(").replaceAll(" )", ")").trim();
  const lay = (line: Line, indent: string): string[] => {
    const whole = flat(line);
    if (indent.length + whole.length <= LINE_LENGTH || line.children.length === 0) return [indent + whole];
    const inner: string[] = [];
    for (const child of line.children) {
      const [first = "", ...rest] = lay(child, child.text.startsWith(")") ? indent : `${indent}  `);
      const last = inner.at(-1) ?? "";
      const isListed = last.endsWith(",") && !last.includes("(") && rest.length === 0;
      if (isListed && last.length + first.trim().length < LINE_LENGTH) inner.splice(-1, 1, `${last} ${first.trim()}`);
      else inner.push(first, ...rest);
    }
    return [indent + line.text, ...inner];
  };
  return top.children.flatMap((line) => lay(line, "")).join("\n");
}

/** Ids and times are parameters, but a few values are part of the text and differ between runs. */
const stable = (sql: string) => sql.replaceAll(/'[0-9a-f]{24}'/g, "'id'");

const countOf = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;

async function describeStatement({
  database,
  statement,
}: Pick<RoundTrip, "database"> & { statement: RoundTrip["statements"][0] }) {
  const { sql, parameters, rowsRead, rowsWritten } = statement;
  const { results } = await database
    .prepare(`explain query plan ${sql}`)
    .bind(...parameters)
    .all<{ detail: string }>();
  const name = nameOfStatement(statement.statement) || "the only query";
  const written = rowsWritten > 0 ? `, ${rowsWritten} written` : "";
  return [
    `-- ${name}: ${countOf(rowsRead, "row")} read${written}`,
    ...results.map(({ detail }) => `--   ${stable(detail)}`),
    `${compact(format(stable(sql).replaceAll('"', ""), { language: "sqlite", keywordCase: "lower", expressionWidth: LINE_LENGTH }))};`,
  ].join("\n");
}

/** Returns the text of an operation's file. */
export async function describeStatements(
  title: string,
  roundTrips: RoundTrip[],
  { r2, messages }: Pick<Effects, "r2" | "messages">,
): Promise<string> {
  const all = roundTrips.flatMap(({ statements }) => statements);
  const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);
  const head = [
    `-- ${title}`,
    ...(r2.length > 0 ? [`-- R2: ${r2.join(", ")}`] : []),
    ...(messages > 0 ? [`-- ${countOf(messages, "message")} to a queue`] : []),
    `-- ${countOf(roundTrips.length, "round trip")}, ${countOf(sum(all.map(({ rowsRead }) => rowsRead)), "row")} read, ${sum(all.map(({ rowsWritten }) => rowsWritten))} written`,
  ].join("\n");
  const trips = roundTrips.map(async ({ database, statements }, i) => {
    const described = statements.map((statement) => describeStatement({ database, statement }));
    return [`-- Round trip ${i + 1}`, ...(await Promise.all(described))].join("\n\n");
  });
  return `${[head, ...(await Promise.all(trips))].join("\n\n")}\n`;
}
