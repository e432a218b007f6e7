/**
 * Takes a capability out of a copy of the project, and says what else breaks: `npm run take-out -- webhooks [--tests]`.
 *
 * It deletes the folders of the capability in `src/` and `test/`, and its names in the files that may name all capabilities. What then fails to
 * compile, or still has its identifiers, is what the rest of the service knows of it.
 */
import { spawnSync } from "node:child_process";
import { globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { copyProject } from "../copy.ts";
import { serviceFiles, withoutComments } from "./sources.ts";

interface Capability {
  /** The deleted files and folders. */
  paths: string[];
  /** Its identifiers and literals, in any case. */
  words: RegExp;
  /** Its operations, bindings, scopes and classes, by which the listing files name it. */
  names: RegExp;
  /** Tests that name one of these are about it. */
  tests: RegExp;
}

const CAPABILITIES: Record<string, Capability> = {
  webhooks: {
    paths: ["src/webhooks", "test/support/webhook-objects.ts"],
    words: /webhook|outbox|deliver(?!ed_at)/i,
    names: /webhook|deliver|outbox|replayEvents/i,
    tests: /webhook|outbox|deliver/i,
  },
  links: {
    paths: ["src/links", "src/transcripts/linked.ts", "src/transcripts/linked.routes.ts"],
    words: /\blinks?\b|\w+Links?\b|\blinks?[A-Z]/,
    names: /\b(create|list|revoke|describe|open)Links?\b|signFile|openTranscript|\blinks?\b|signing/,
    tests: /links?\b|share|signed/i,
  },
  folders: {
    paths: ["src/folders"],
    words: /folder_?change|FolderChange|\bfolders\b/,
    names: /Folder|changeFiles/,
    tests: /folder|batch/i,
  },
  trash: {
    paths: ["src/trash"],
    words: /\btrash(?!ed|_)\b|retention/i,
    names: /Trash|restoreFile|eraseFile|setRetention|holdFile|releaseFile|\btrash\b/,
    tests: /trash|retention|hold|restore/i,
  },
  search: {
    paths: ["src/search", "test/support/search-objects.ts", "test/tools/bench/search.ts"],
    words: /[sS]earch(?:Ind|Obj|Behind|Trans)|rebuildSearch|TeamIndex|\bSEARCH\b/,
    names: /Search(?:Ind|Obj|Trans)|searchIndexes|rebuildSearch|INDEX_|\bSEARCH\b|search-objects|searchInvariant/,
    tests: /src\/search|search-objects|\/transcripts\?search|searchTranscripts|searchBehindSince/,
  },
  transcripts: {
    paths: ["src/transcripts"],
    words: /transcript|webvtt|\bcues?\b/i,
    names: /transcript/i,
    tests: /transcript/i,
  },
  waveforms: {
    paths: ["src/waveforms", "src/audio/decoders"],
    words: /waveform|\bpeaks?\b|measurement|measurable/i,
    names: /waveform/i,
    tests: /waveform|peaks|measur/i,
  },
};

/** The files that may name all capabilities, and wrangler.toml. */
const LISTS = [
  "src/service.ts",
  "src/event-types.ts",
  "src/index.ts",
  "src/deps.ts",
  "src/access/scopes.ts",
  "test/support/capabilities.ts",
];

/** The names that an import clause brings, such as `webhooks` of `* as webhooks`. */
const localNames = (clause: string): string[] =>
  clause
    .replaceAll(/[{}]/g, "")
    .split(",")
    .map((part) => /(\w+)\s*$/.exec(part)?.[1] ?? "")
    .filter((name) => name !== "");

/** Removes the imports of deleted files, and the items, lines and classes that use them or name the capability. */
function removeNames(project: string, path: string, { names, paths }: Capability): void {
  const file = join(project, path);
  let source = readFileSync(file, "utf8");
  const removed: string[] = [];
  const imports = /^(?:import|export) ([^;]*?) from "(\.[^"]+)";\n/gms;
  source = source.replaceAll(imports, (statement, clause: string, target: string) => {
    const from = join("/", path, "..", target).slice(1);
    if (!paths.some((deleted) => from === deleted || from.startsWith(`${deleted}/`))) return statement;
    removed.push(...localNames(clause));
    return "";
  });
  const classes = /^(?:\/\*\*[^/]*?\*\/\n)?export class (\w+)[^{]*\{.*?^\}\n/gms;
  source = source.replaceAll(classes, (text, name: string) => (names.test(name) ? "" : text));
  // A property that is a line, or one of an object that stands on one line.
  for (const name of removed) source = source.replaceAll(new RegExp(`^ *\\[${name}\\]: [^\\n]*,\\n`, "gm"), "");
  for (const name of removed) source = source.replaceAll(new RegExp(`\\[${name}\\]: [^\\n]*?(?= \\}|$)`, "gm"), "");
  // An item of a list that stands on one line.
  for (const name of removed)
    source = source.replaceAll(new RegExp(`(?<=[\\[,] ?)\\b${name}\\b,? ?(?=[^\\n]*\\])`, "g"), "");
  const ofRemoved = removed.length === 0 ? /$^/ : new RegExp(`\\b(?:${removed.join("|")})\\b`);
  const withoutTexts = (line: string) => line.replaceAll(/"[^"]*"/g, "");
  const isGone = (line: string) =>
    ofRemoved.test(withoutTexts(line)) || (path !== "src/service.ts" && names.test(line));
  const lines = source.split("\n").filter((line) => /^\s*(\/?\*|\/\/)/.test(line) || !isGone(line));
  writeFileSync(file, lines.join("\n"));
}

/** Removes the bindings and queues that name the capability, each of which is a paragraph, and its classes from those of a migration. */
function removeBindings(project: string, { names }: Capability): void {
  const file = join(project, "wrangler.toml");
  const withoutClasses = (classes: string) =>
    classes.replaceAll(/"(\w+)",? ?/g, (text, name) => (names.test(name) ? "" : text));
  const source = readFileSync(file, "utf8").replaceAll(/(?<=^new_sqlite_classes = \[).*(?=\]$)/gm, withoutClasses);
  const paragraphs = source.split("\n\n");
  const isGone = (text: string) =>
    text.includes("[[") && (names.test(text.replaceAll(/^#.*$/gm, "")) || text.includes("classes = []"));
  writeFileSync(file, paragraphs.filter((text) => !isGone(text)).join("\n\n"));
}

/** Code in which identifiers and literals count, but no comments and no descriptions. */
const countedCode = (source: string): string =>
  withoutComments(source)
    .replaceAll(/\b(?:summary|description|message|reason)\b\s*[:(]\s*(?:"(?:[^"\\]|\\.)*"|`[^`]*`)/g, "")
    .replaceAll(/"[^"\n]* [^"\n]*"/g, "");

const [name = "", ...options] = process.argv.slice(2);
const capability = CAPABILITIES[name];
if (!capability) {
  console.error(`Name one of ${Object.keys(CAPABILITIES).join(", ")}.`);
  process.exit(2);
}
const project = copyProject();
try {
  for (const path of capability.paths) rmSync(join(project, path), { recursive: true });
  rmSync(join(project, "test", name), { recursive: true });
  for (const path of LISTS) removeNames(project, path, capability);
  removeBindings(project, capability);
  const unused = ["lint", "--write", "--unsafe", "--only=correctness/noUnusedImports", ...LISTS];
  spawnSync("node", ["node_modules/@biomejs/biome/bin/biome", ...unused], { cwd: project });

  const compiled = spawnSync("node", ["node_modules/typescript/bin/tsc", "-p", ".", "--pretty", "false"], {
    cwd: project,
    encoding: "utf8",
  });
  const broken = [...new Set([...compiled.stdout.matchAll(/^(src\/[^(]+)\(/gm)].map(([, path = ""]) => path))].sort();
  const others = (paths: string[]) => paths.filter((path) => !LISTS.includes(path));
  const naming = others(serviceFiles(project).map((path) => join("src", path))).filter((path) =>
    capability.words.test(countedCode(readFileSync(join(project, path), "utf8"))),
  );
  console.log(`${name}: ${others(broken).length} other files fail to compile: ${others(broken).join(", ")}`);
  const lists = broken.filter((path) => LISTS.includes(path));
  if (lists.length > 0) {
    console.log(`  Errors in listing files, which need a look: ${lists.join(", ")}`);
    console.log(
      compiled.stdout
        .split("\n")
        .filter((line) => lists.some((path) => line.startsWith(path)))
        .join("\n"),
    );
  }
  console.log(`${name}: ${naming.length} other files have its identifiers: ${naming.join(", ")}`);

  if (options.includes("--tests")) {
    const tests = globSync("test/**/*.test.ts", { cwd: project, exclude: ["test/{client,console,generator}/**"] });
    const about = tests.filter((path) => capability.tests.test(readFileSync(join(project, path), "utf8")));
    for (const path of about) rmSync(join(project, path));
    console.log(`${name}: ${about.length} of ${tests.length} files of tests are about it`);
    // Not the reporter of the project, which also runs the linter: a removed name may leave a line that is too short.
    const reporter = ["--reporter", "dot"];
    const run = ["vitest", "run", "--config", "test/vitest.config.ts", "--mode", "fast", "--project", "workerd"];
    process.exitCode = spawnSync("npx", [...run, ...reporter], { cwd: project, stdio: "inherit" }).status ?? 1;
  }
} finally {
  rmSync(project, { recursive: true, force: true });
}
