import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

/*
 * Copies of the project, in which servers run. Their common parts are made once, by the first one that needs them, and kept
 * for the next run: the built pages, and a state with migrated databases. Making both takes seconds of CPU.
 */

const root = join(import.meta.dirname, "../..");
const cache = join(root, "node_modules/.cache/stowage-servers");
/** The sources of a kept folder. Its name is their hash. */
const SOURCES = ["src", "migrations", "wrangler.toml", "tsconfig.json", "package-lock.json"];
/** A run that started before the last edits may still copy from an older one. */
const KEPT = 3;
const POLL_MILLISECONDS = 50;

const run = promisify(execFile);

/** Copies the project as a fresh clone after `npm install`, without secrets and state. */
export function cloneProject(): string {
  const folder = mkdtempSync(join(tmpdir(), "stowage "));
  for (const name of ["src", "migrations", "test/audio", "wrangler.toml", "package.json", "tsconfig.json"]) {
    mkdirSync(join(folder, name, ".."), { recursive: true });
    cpSync(join(root, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"), "junction");
  return folder;
}

function hashSources(): string {
  const hash = createHash("sha256");
  for (const source of SOURCES) {
    const path = join(root, source);
    const names = statSync(path).isFile() ? [""] : readdirSync(path, { recursive: true, encoding: "utf8" }).sort();
    for (const file of names.map((name) => join(path, name))) {
      if (statSync(file).isFile()) hash.update(`${file}\0`).update(readFileSync(file));
    }
  }
  return hash.digest("hex").slice(0, 16);
}

/** Builds the pages and migrates a database, side by side. */
async function make(folder: string): Promise<void> {
  const project = cloneProject();
  try {
    const wrangler = join(root, "node_modules/wrangler/bin/wrangler.js");
    const env = { ...process.env, STOWAGE_DEMO: "true", WRANGLER_SEND_METRICS: "false", WRANGLER_WRITE_LOGS: "false" };
    await Promise.all([
      run(process.execPath, ["src/console/build.js"], { cwd: project, env }),
      run(process.execPath, [wrangler, "d1", "migrations", "apply", "DB", "--local"], { cwd: project, env }),
    ]);
    const unfinished = `${folder}-unfinished`;
    rmSync(unfinished, { recursive: true, force: true });
    for (const name of ["console-dev", "state"]) {
      cpSync(join(project, ".wrangler", name), join(unfinished, name), { recursive: true });
    }
    renameSync(unfinished, folder);
  } finally {
    rmSync(project, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Whether the process that holds the lock still runs. */
function isHeld(lock: string): boolean {
  try {
    return process.kill(Number(readFileSync(lock, "utf8")), 0);
  } catch {
    return false;
  }
}

/** Returns the shared folder, which one process makes while the others wait. */
async function made(): Promise<string> {
  const folder = join(cache, hashSources());
  const lock = `${folder}.lock`;
  mkdirSync(cache, { recursive: true });
  while (!existsSync(folder)) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" });
    } catch {
      if (!isHeld(lock)) rmSync(lock, { force: true });
      await sleep(POLL_MILLISECONDS);
      continue;
    }
    try {
      if (!existsSync(folder)) await make(folder);
    } finally {
      rmSync(lock, { force: true });
    }
    const others = readdirSync(cache).map((name) => join(cache, name));
    const newestFirst = others.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
    for (const old of newestFirst.slice(KEPT)) rmSync(old, { recursive: true, force: true });
  }
  return folder;
}

/**
 * Constants that no setting reaches, as tests have them. Replacing them in the copy of a server keeps the Worker itself free
 * of a switch that weakens it.
 */
const CONSTANTS: [file: string, from: string, to: string][] = [
  // 0.1 s of CPU for each password.
  ["src/platform/secrets.ts", "{ ln: 14, r: 8, p: 5 }", "{ ln: 4, r: 1, p: 1 }"],
];

/** @throws if the file does not contain `from` */
export function replaceIn(folder: string, name: string, from: string | RegExp, to: string): void {
  const file = join(folder, name);
  const text = readFileSync(file, "utf8");
  const replaced = text.replaceAll(from, to);
  if (replaced === text) throw new Error(`${name} does not contain ${from}.`);
  writeFileSync(file, replaced);
}

/**
 * Copies the project for a server that starts fast: with built pages, the constants of tests and migrated databases.
 * @param state replaces the empty databases
 */
export async function clonePreparedProject(state?: string): Promise<string> {
  const source = await made();
  const folder = cloneProject();
  cpSync(join(source, "console-dev"), join(folder, ".wrangler/console-dev"), { recursive: true });
  cpSync(state ?? join(source, "state"), join(folder, ".wrangler/state"), { recursive: true });
  for (const [file, from, to] of CONSTANTS) replaceIn(folder, file, from, to);
  // The pages are built.
  replaceIn(folder, "wrangler.toml", /^\[build\]\n(.+\n)+/gm, "");
  return folder;
}
