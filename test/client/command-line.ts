import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Readable, Writable } from "node:stream";
import { afterAll, expect } from "vitest";
import { run } from "../../src/client/command/cli.ts";
import { newTeam, url } from "../support/team.ts";

const program = join(import.meta.dirname, "../../src/client/command/main.ts");
const folders: string[] = [];
const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Four retries, as the library does by default. */
const RETRY_SECONDS = "2";

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface RunOptions {
  input?: string;
  env?: Record<string, string>;
  /** Formats the output for a terminal, without one. */
  isTerminal?: boolean;
  /** The width of that terminal. */
  columns?: number;
  /** Asks the questions of a terminal, too, which `input` answers. */
  isAsked?: boolean;
  signal?: AbortSignal;
}

interface StartOptions {
  /** Null leaves stdin open. */
  input?: string | null;
  env?: Record<string, string>;
  /** Runs on a pseudo-terminal, which merges both outputs. */
  isTerminal?: boolean;
  /** A shell script that runs the command as `"$@"`. */
  script?: string;
}

/** Arguments, as a list or separated by spaces. */
type Args = string | string[];
const listOf = (args: Args): string[] => (typeof args === "string" ? args.split(" ") : args);

/** A stream that collects its text. */
function sink(isTTY: boolean, columns = 100) {
  const chunks: Buffer[] = [];
  const writable = new Writable({
    write(chunk: Buffer, _, done) {
      chunks.push(chunk);
      done();
    },
  });
  return { stream: Object.assign(writable, { isTTY, columns }), text: () => Buffer.concat(chunks).toString() };
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** The `script` tool gives a program its own terminal. Its arguments differ on macOS. */
function onTerminal(command: string[]): string[] {
  if (process.platform === "darwin") return ["script", "-q", "/dev/null", ...command];
  return ["script", "-qec", command.map(quoted).join(" "), "/dev/null"];
}

/** A machine with its own home folder, which is also the working folder. */
export class Machine {
  readonly folder = mkdtempSync(join(tmpdir(), "stowage command "));
  readonly #env: Record<string, string>;

  constructor(key?: string, serviceUrl = url) {
    folders.push(this.folder);
    this.#env = {
      HOME: this.folder,
      XDG_CONFIG_HOME: this.path("config"),
      XDG_STATE_HOME: this.path("state"),
      STOWAGE_RETRY_SECONDS: RETRY_SECONDS,
      ...(key !== undefined && { STOWAGE_URL: serviceUrl, STOWAGE_KEY: key }),
    };
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** Writes a file, in a new folder if need be. @returns its path */
  write(name: string, content: string | Uint8Array): string {
    const path = this.path(name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    return path;
  }

  /** Starts the command as a process, for what needs one: signals, terminals, and broken pipes. */
  start(args: Args, { input = "", env = {}, isTerminal = false, script }: StartOptions = {}) {
    const [file = "", ...rest] = isTerminal
      ? onTerminal([process.execPath, program, ...listOf(args)])
      : script === undefined
        ? [process.execPath, program, ...listOf(args)]
        : ["sh", "-c", script, "sh", process.execPath, program, ...listOf(args)];
    const { STOWAGE_URL: _, STOWAGE_KEY: __, ...outer } = process.env;
    const child = spawn(file, rest, { cwd: this.folder, env: { ...outer, ...this.#env, ...env } });
    running.add(child);
    child.stdin.on("error", () => undefined);
    if (input !== null) child.stdin.end(input);
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    const ended = new Promise<Ended>((resolve) => {
      child.once("close", (code) => {
        running.delete(child);
        resolve({ code, stdout, stderr });
      });
    });
    return { child, ended, output: () => stdout };
  }

  /** Runs the command with --json, which must succeed. @returns the object that it prints */
  async json(args: Args, input = "") {
    const run = await this.run([...listOf(args), "--json"], { input });
    expect(run, String(args)).toMatchObject({ code: 0, stderr: "" });
    return run.stdout === "" ? undefined : JSON.parse(run.stdout);
  }

  /** Runs the command in this process. */
  async run(args: Args, options: RunOptions = {}): Promise<Ended> {
    const { input = "", env = {}, isTerminal = false, isAsked = false, columns } = options;
    const { signal = new AbortController().signal } = options;
    const stdin = Object.assign(Readable.from([input]), { isTTY: isAsked });
    const [stdout, stderr] = [sink(isTerminal, columns), sink(isTerminal, columns)];
    const io = {
      stdout: stdout.stream,
      stderr: stderr.stream,
      env: { ...this.#env, ...env },
      cwd: this.folder,
      signal,
    };
    const code = await run(listOf(args), { ...io, stdin });
    return { code, stdout: stdout.text(), stderr: stderr.text() };
  }
}

/** Creates a team, and a machine with its key. */
export async function newMachine() {
  const team = await newTeam();
  return { team, machine: new Machine(team.key) };
}

/** Expects that a command printed nothing but one line, on stderr. Without a message, any line will do. */
export function expectFailure({ code, stdout, stderr }: Ended, expected: number, message: string | RegExp = /./): void {
  expect({ code, stdout, stderr }).toEqual({
    code: expected,
    stdout: "",
    stderr: expect.stringMatching(/^stowage: .+\n$/),
  });
  const line = stderr.slice("stowage: ".length, -1);
  if (typeof message === "string") expect(line).toBe(message);
  else expect(line).toMatch(message);
}

export const linesOf = (text: string) => text.split(/\r?\n/).filter((line) => line !== "");
