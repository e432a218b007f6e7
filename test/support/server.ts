import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { parseEnv } from "node:util";
import { buildRequest, type Call, type CallOptions, createCall, foundTeam, type Team } from "./client.ts";
import { clonePreparedProject } from "./project.ts";

const running = new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of running) killGroup(child);
});

/** Signals the process and its children, wrangler and workerd. @returns whether any of them runs */
function killGroup({ pid }: ChildProcess, signal: NodeJS.Signals | 0 = "SIGKILL"): boolean {
  try {
    return process.kill(-(pid ?? Number.NaN), signal);
  } catch {
    return false;
  }
}

const TIMEOUT_MILLISECONDS = 250_000;

/** Like `vi.waitUntil`, which a global setup can't call. @throws `problem` after the timeout */
async function until(condition: () => boolean, problem: () => string): Promise<void> {
  const end = Date.now() + TIMEOUT_MILLISECONDS;
  while (!condition()) {
    if (Date.now() > end) throw new Error(problem());
    await sleep(50);
  }
}

export async function freePort(): Promise<string> {
  const probe = createServer();
  await new Promise<void>((listening) => probe.listen(0, "localhost", listening));
  const { port } = probe.address() as { port: number };
  await new Promise((closed) => probe.close(closed));
  return String(port);
}

/** Runs the script of `npm run dev`, without waiting for anything. */
export const runDev = (folder: string, env: Record<string, string>, args: string[] = []) =>
  run(process.execPath, ["src/dev/dev.ts", ...args], folder, env);

/** Runs `npm run dev` itself, without waiting for anything. */
export const runNpmDev = (folder: string, env: Record<string, string>) => run("npm", ["run", "dev"], folder, env);

/** Returns whether any process of the child's group still runs. */
export const isGroupAlive = (child: ChildProcess): boolean => killGroup(child, 0);

function run(file: string, args: string[], cwd: string, env: Record<string, string>) {
  // Its own process group, so that no test leaves anything running.
  const child = spawn(file, args, {
    cwd,
    // The tests may themselves run under npm, which the server must not mistake for its own.
    env: { ...process.env, npm_lifecycle_event: "", ...env },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const exited = new Promise<number | null>((done) => child.once("exit", done));
  return { child, exited, output: () => output };
}

export interface TestTeam extends Team {
  /** Sends a request without reading the response. */
  send(method: string, path: string, options?: CallOptions): Promise<Response>;
  /** Returns a signed URL of the file. */
  sign(id: string, expiresIn?: number): Promise<string>;
}

export class Server {
  readonly folder: string;
  readonly #port: string;
  readonly #args: string[];
  readonly #env: Record<string, string>;
  #run: ReturnType<typeof runDev>;

  private constructor(folder: string, port: string, args: string[], env: Record<string, string>) {
    this.folder = folder;
    this.#port = port;
    this.#args = args;
    this.#env = env;
    this.#run = this.#start();
  }

  /** Starts a server of the test's own, by default on a prepared copy. Arguments are those of `npm run dev`. */
  static async start(
    args: string[] = [],
    env: Record<string, string> = {},
    { port, folder }: { port?: string; folder?: string } = {},
  ): Promise<Server> {
    const server = new Server(folder ?? (await clonePreparedProject()), port ?? (await freePort()), args, env);
    await server.#ready();
    return server;
  }

  get url(): string {
    return `http://localhost:${this.#port}`;
  }

  /** The output since the last start. */
  get output(): string {
    return this.#run.output();
  }

  get operatorToken(): string {
    return parseEnv(readFileSync(join(this.folder, ".dev.vars"), "utf8")).OPERATOR_TOKEN ?? "";
  }

  /** Stops it like Ctrl-C. @throws if a process is left over */
  async stop(): Promise<void> {
    if (!running.has(this.#run.child)) return;
    this.#run.child.kill("SIGTERM");
    const code = await this.#run.exited;
    const isEmpty = () => !killGroup(this.#run.child, 0);
    await until(isEmpty, () => "A process of the server is left over.").finally(() => killGroup(this.#run.child));
    running.delete(this.#run.child);
    if (code !== 0) throw new Error(`The server ended with code ${code}:\n${this.output}`);
  }

  /** Kills all its processes at once, like a power failure. */
  async kill(): Promise<void> {
    killGroup(this.#run.child);
    await until(
      () => !killGroup(this.#run.child, 0),
      () => "The server can't be killed.",
    );
    running.delete(this.#run.child);
  }

  /** Starts it again on the same port and state. */
  async restart(): Promise<void> {
    this.#run = this.#start();
    await this.#ready();
  }

  /** Stops it and deletes its folder. */
  async remove(): Promise<void> {
    await this.stop().finally(() => rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 }));
  }

  /** Runs the recovery job, and waits for its end. */
  async recover(): Promise<void> {
    const runs = () => this.output.split('"recovery_finished"').length;
    const before = runs();
    const answer = await fetch(`${this.url}/cdn-cgi/local/scheduled`);
    if (!answer.ok) throw new Error(`Recovery answered ${answer.status}: ${await answer.text()}`);
    await until(
      () => runs() > before,
      () => "The recovery job did not run.",
    );
  }

  /** Runs SQL on the local files of D1 or of R2. */
  sql(store: "D1Database" | "R2Bucket", statement: string): Record<string, unknown>[] {
    const folder = join(this.folder, `.wrangler/state/v3/${store.slice(0, 2).toLowerCase()}/miniflare-${store}Object`);
    const [file, ...others] = readdirSync(folder).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name));
    if (!file || others.length > 0) throw new Error(`Of ${store} there is not one file in ${folder}.`);
    // A running server may be writing.
    const database = new DatabaseSync(join(folder, file), { timeout: 10_000 });
    try {
      return database.prepare(statement).all();
    } finally {
      database.close();
    }
  }

  /** Sends a request to the server. */
  get call(): Call {
    return createCall(fetch, this.url);
  }

  async newTeam(): Promise<TestTeam> {
    const team = await foundTeam(this.call, this.operatorToken);
    return {
      ...team,
      send: (method, path, options) => fetch(buildRequest(method, path, { token: team.token, ...options }, this.url)),
      sign: async (id, expiresIn = 3600) =>
        (await team.call("GET", `/docs/v1/uploads/${id}?expiresIn=${expiresIn}`)).body.signedUrl,
    };
  }

  #start() {
    return runDev(this.folder, { ...this.#env, PORT: this.#port, STATE_DIR: "" }, this.#args);
  }

  /** Waits for the log line of the first recovery job, the last line of a start. */
  async #ready(): Promise<void> {
    const { exited, output } = this.#run;
    let code: number | null | undefined;
    exited.then((ended) => {
      code = ended;
    });
    const isReady = () => {
      if (code !== undefined) throw new Error(`The server ended with code ${code}:\n${output()}`);
      return output().includes('"event":"recovery_finished"');
    };
    await until(isReady, () => `The server is not ready:\n${output()}`);
  }
}
