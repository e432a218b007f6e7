import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { url } from "../support/team.ts";

const program = join(import.meta.dirname, "../../src/client/command/main.ts");
const folders: string[] = [];
const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface RunOptions {
  /** Null leaves it open: whoever starts the command writes to it. */
  input?: string | null;
  env?: Record<string, string>;
  /** On a pseudo-terminal, which shows both outputs as one. */
  isTerminal?: boolean;
  /** What a shell does that runs the command as `"$@"`. */
  script?: string;
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** `script` gives a program a terminal of its own; it spells its arguments otherwise on macOS. */
function onTerminal(command: string[]): string[] {
  if (process.platform === "darwin") return ["script", "-q", "/dev/null", ...command];
  return ["script", "-qec", command.map(quoted).join(" "), "/dev/null"];
}

/** A machine of its own, with a home folder: what the command keeps there, and what it is run in. */
export class Machine {
  readonly folder = mkdtempSync(join(tmpdir(), "stowage command "));
  readonly #env: Record<string, string>;

  constructor(key?: string, serviceUrl = url) {
    folders.push(this.folder);
    this.#env = key === undefined ? {} : { STOWAGE_URL: serviceUrl, STOWAGE_KEY: key };
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  start(args: string[], { input = "", env = {}, isTerminal = false, script }: RunOptions = {}) {
    const [file = "", ...rest] = isTerminal
      ? onTerminal([process.execPath, program, ...args])
      : script === undefined
        ? [process.execPath, program, ...args]
        : ["sh", "-c", script, "sh", process.execPath, program, ...args];
    const home = { HOME: this.folder, XDG_CONFIG_HOME: this.path("config"), XDG_STATE_HOME: this.path("state") };
    const { STOWAGE_URL: _, STOWAGE_KEY: __, ...outer } = process.env;
    const child = spawn(file, rest, { cwd: this.folder, env: { ...outer, ...home, ...this.#env, ...env } });
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

  run(args: string[], options?: RunOptions): Promise<Ended> {
    return this.start(args, options).ended;
  }
}

export const linesOf = (text: string) => text.split(/\r?\n/).filter((line) => line !== "");
