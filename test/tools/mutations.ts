/**
 * Breaks one condition at a time in the rules, in a copy of the project, and names the first test that notices:
 * `npm run mutations -- [--seed 1] [--count 20] [--from 0] [--only links/links.ts]`. `--from` resumes an interrupted run.
 * A mutation that survives shows what no test checks.
 */
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { parseAst } from "vitest/node";
import { copyProject } from "./copy.ts";

const FOLDERS =
  "access accounts events files folders links search transcripts trash uploads upkeep waveforms webhooks".split(" ");
/** What may notice a change of any rule, in this order. */
const FOR_ALL = ["model", "permissions", "rights", "crash-points", "orders", "authorization", "outages", "fuzz"];
/** Its statements change with all SQL, so it would notice what nobody checks. */
const SNAPSHOTS = "test/all/costs.test.ts";
/** After this, something waits forever. */
const MAX_MILLISECONDS = 8 * 60_000;

interface Mutation {
  path: string;
  start: number;
  end: number;
  replacement: string;
}

interface Node {
  type: string;
  start: number;
  end: number;
  [name: string]: unknown;
}
const isNode = (value: unknown): value is Node => typeof (value as Node | null)?.type === "string";

const BOUNDARIES: Record<string, string> = { "<": "<=", "<=": "<", ">": ">=", ">=": ">" };
/** In SQL: what replaces each match. */
const IN_SQL: [pattern: RegExp, replacement: (found: string) => string][] = [
  [/(?<= )[<>]=?(?= |$)/g, (operator) => BOUNDARIES[operator] as string],
  [/\b(and|or)\b/g, (word) => (word === "and" ? "or" : "and")],
  [/\bnot (?!null|in\b)/g, () => ""],
  [/\bis null\b/g, () => "is not null"],
  [/\bis not null\b/g, () => "is null"],
];

/** The changes of one node: where, and to what. */
function changesOf(node: Node, source: string): Omit<Mutation, "path">[] {
  const textOf = ({ start, end }: Node) => source.slice(start, end);
  const swap = (at: Node, replacement: string) => ({ start: at.start, end: at.end, replacement });
  const without = (items: Node[], i: number) => {
    const [item, next, previous] = [items[i] as Node, items[i + 1], items[i - 1]];
    return { start: next || !previous ? item.start : previous.end, end: next?.start ?? item.end, replacement: "" };
  };
  switch (node.type) {
    case "IfStatement":
    case "ConditionalExpression":
      return [swap(node.test as Node, `!(${textOf(node.test as Node)})`)];
    case "LogicalExpression":
      return node.operator === "??" ? [] : [node.left, node.right].map((side) => swap(node, textOf(side as Node)));
    case "CallExpression": {
      const items = node.arguments as Node[];
      if (!/^(and|or)$/.test(textOf(node.callee as Node)) || items.length < 2) return [];
      return items.map((_, i) => without(items, i));
    }
    case "BinaryExpression": {
      const operator = BOUNDARIES[node.operator as string];
      return operator ? [swap(node, `${textOf(node.left as Node)} ${operator} ${textOf(node.right as Node)}`)] : [];
    }
    case "Literal":
      return typeof node.value === "number" ? [swap(node, String(node.value + 1))] : [];
    case "ExpressionStatement":
      return (node.expression as Node).type === "AwaitExpression" ? [swap(node, ";")] : [];
    case "VariableDeclarator": {
      const { id, init } = node as unknown as { id: Node; init: Node | null };
      if (id.name !== "batch" || init?.type !== "ObjectExpression") return [];
      return (init.properties as Node[]).map((_, i, all) => without(all, i));
    }
    case "TaggedTemplateExpression": {
      if (textOf(node.tag as Node) !== "sql") return [];
      return ((node.quasi as Node).quasis as Node[]).flatMap((text) =>
        IN_SQL.flatMap(([pattern, replace]) =>
          [...textOf(text).matchAll(pattern)].map(({ 0: found, index }) => {
            const start = text.start + index;
            return { start, end: start + found.length, replacement: replace(found) };
          }),
        ),
      );
    }
    default:
      return [];
  }
}

function mutationsOf(path: string, source: string): Mutation[] {
  const found: Mutation[] = [];
  const visit = (node: Node) => {
    found.push(...changesOf(node, source).map((change) => ({ path, ...change })));
    for (const value of Object.values(node).flat()) if (isNode(value)) visit(value);
  };
  visit(parseAst(source, { lang: "ts" }) as unknown as Node);
  return found;
}

const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    count: { type: "string", default: "20" },
    from: { type: "string", default: "0" },
    only: { type: "string" },
  },
});
const project = copyProject();
process.once("exit", () => rmSync(project, { recursive: true, force: true }));
process.once("SIGINT", () => process.exit(130));
const readSource = (path: string) => readFileSync(join(project, "src", path), "utf8");
const seed = values.seed ?? execFileSync("git", ["rev-parse", "HEAD"], { encoding: "utf8" }).trim();
/** The same number for the same seed and place. */
const random = (place: number, below: number) =>
  createHash("sha256").update(`${seed}/${place}`).digest().readUIntBE(0, 6) % below;

/** Takes mutations from one folder after the other. */
function choose(count: number): Mutation[] {
  const inFolders = FOLDERS.map((folder) =>
    globSync(`${folder}/*.ts`, { cwd: join(project, "src") })
      .filter((path) => !/\.(routes|schema)\.ts$/.test(path) && (values.only ?? path) === path)
      .sort()
      .flatMap((path) => mutationsOf(path, readSource(path))),
  ).filter((all) => all.length > 0);
  const first = random(-1, inFolders.length);
  return Array.from({ length: count }, (_, i) => {
    const all = inFolders[(first + i) % inFolders.length] as Mutation[];
    return all.splice(random(i, all.length), 1);
  }).flat();
}

/** Runs a program in the copy. @returns its output if it fails or waits forever */
function failureOf(...args: string[]): Promise<string | null> {
  return new Promise((resolve) => {
    const env = { ...process.env, NO_COLOR: "1" };
    const child = spawn(process.execPath, args, { cwd: project, env, timeout: MAX_MILLISECONDS });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
    child.on("close", (code) => resolve(code === 0 ? null : output));
  });
}

/** The tests that may notice, cheapest first: the one of the same name, its folder, those of all rules, and those that name the folder. */
function stagesFor(path: string): string[][] {
  const files = globSync("test/**/*.test.ts", { cwd: project })
    .filter((file) => !/^test\/(client|console|generator)\/|\.(node|browser|exhaustive)\./.test(file))
    .filter((file) => file !== SNAPSHOTS);
  const folder = dirname(path);
  const beside = `test/${folder}/${basename(path)}`.replace(/ts$/, "test.ts");
  const stages = [
    [beside],
    files.filter((file) => dirname(file) === `test/${folder}`),
    FOR_ALL.map((name) => `test/all/${name}.test.ts`),
    files.filter((file) => readFileSync(join(project, file), "utf8").includes(`src/${folder}/`)),
  ];
  const isNew = (file: string, i: number) => files.includes(file) && !stages.slice(0, i).flat().includes(file);
  return stages.map((stage, i) => stage.filter((file) => isNew(file, i))).filter((stage) => stage.length > 0);
}

/** @returns what notices the change that the copy now has; null if nothing does */
async function findNoticing(path: string): Promise<string | null> {
  if (await failureOf("node_modules/typescript/bin/tsc", "-p", ".", "--noEmit")) return "the compiler";
  for (const files of stagesFor(path)) {
    const options = ["--config", "test/vitest.config.ts", "--mode", "one", "--project", "workerd", "--bail", "1"];
    const output = await failureOf("node_modules/vitest/vitest.mjs", "run", ...options, ...files, "--reporter", "dot");
    if (output !== null) return /FAIL .*?(test\/.{0,200})/.exec(output)?.[1] ?? "a run that fails or never ends";
  }
  return null;
}

const oneLine = (text: string) => text.replaceAll(/\s+/g, " ").trim().replaceAll("|", "\\|");
console.log(`Seed ${seed}\n\n| Mutation | Before | After | Noticed by |\n|---|---|---|---|`);
for (const { path, start, end, replacement } of choose(Number(values.count)).slice(Number(values.from))) {
  const source = readSource(path);
  const line = source.slice(0, start).split("\n").length;
  writeFileSync(join(project, "src", path), source.slice(0, start) + replacement + source.slice(end));
  const noticing = (await findNoticing(path)) ?? "**SURVIVED**";
  writeFileSync(join(project, "src", path), source);
  const [before, after] = [source.slice(start, end), replacement].map((text) => `\`${oneLine(text)}\``);
  console.log(`| ${path}:${line} | ${before} | ${after} | ${oneLine(noticing)} |`);
}
