import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import type { Machine } from "../../src/dev/deployment.ts";
import type { WranglerResult } from "../../src/dev/wrangler.ts";
import { ACCOUNT, CloudflareApi } from "./cloudflare.ts";

const original = readFileSync(join(import.meta.dirname, "../../wrangler.toml"), "utf8");

/** A machine without wrangler: its commands call the API in this process. */
export class FakeMachine implements Machine {
  /** Only wrangler.toml: a deployment may write to it. */
  readonly root: string;
  readonly home: string;
  env: Record<string, string> = {};
  readonly lines: string[] = [];
  readonly api = new CloudflareApi();
  /** The teams of the service, each with its keys. */
  readonly teams: { _id: string; name: string; keys: { key: string }[] }[] = [];
  /** The bindings of the databases that are migrated. */
  readonly migrated = new Set<string>();
  calls = 0;
  /** The commands of wrangler. */
  readonly commands: string[] = [];
  /** The number of the call that fails, and whether it took effect. */
  fault: { call: number; moment: "before" | "after" } | undefined;

  /** The version of the client that the build packs, with its hash. */
  client = "1.0.0-0123456789ab";
  /** The objects that were put into the bucket, by bucket and key. */
  readonly objects = new Map<string, string>();

  /** The targets of the Worker, as wrangler reports them. */
  targets = ["https://stowage.acme.workers.dev", "schedule: */5 * * * *"];
  host = "stowage.acme.workers.dev";

  /**
   * @param folder will contain its root and its home
   * @param config its wrangler.toml
   */
  constructor(folder: string, config = original) {
    this.root = mkdtempSync(join(folder, "root"));
    this.home = mkdtempSync(join(folder, "home"));
    writeFileSync(join(this.root, "wrangler.toml"), config);
  }

  get config(): string {
    return readFileSync(join(this.root, "wrangler.toml"), "utf8");
  }

  readonly print = (line: string) => void this.lines.push(line);
  readonly sleep = async () => {};

  get secretsFile(): string {
    return join(this.home, ACCOUNT, "stowage/secrets.json");
  }

  async #attempt<T>(work: () => T, failed: T): Promise<T> {
    this.calls += 1;
    const { call, moment } = this.fault ?? {};
    if (call === this.calls && moment === "before") return failed;
    const result = work();
    return call === this.calls ? failed : result;
  }

  readonly wrangler = (args: string[], env: Record<string, string> = {}): Promise<WranglerResult> =>
    this.#attempt(() => this.#run(args, env), { code: 1, stdout: "", output: "A request failed. [code: 500]" });

  #run(args: string[], env: Record<string, string>): WranglerResult {
    try {
      const stdout = this.#output(args, env);
      return { code: 0, stdout, output: stdout };
    } catch (error) {
      return { code: 1, stdout: "", output: String(error) };
    }
  }

  #output(args: string[], env: Record<string, string>): string {
    const command = args.join(" ");
    this.commands.push(command);
    const name = args.find((arg) => arg.startsWith("stowage"));
    if (command === "whoami --json") return JSON.stringify({ accounts: this.api.call("GET /accounts") });
    if (command.startsWith("d1 create")) {
      const [, hint] = / --location (\w+)/.exec(command) ?? [];
      return JSON.stringify(this.api.call("POST /d1/database", { name, primary_location_hint: hint }));
    }
    if (command === `d1 execute ${name} --remote --json --command select 1`) {
      const database = this.api.databases.get(name ?? "");
      if (!database) throw new Error(`Couldn't find a D1 DB with name or binding '${name}' in your config or the API.`);
      return JSON.stringify(this.api.call(`POST /d1/database/${database.uuid}/query`, { sql: "select 1" }));
    }
    if (command.startsWith("r2 bucket lifecycle list")) return JSON.stringify(this.api.call(`GET /r2/buckets/${name}`));
    if (command.startsWith("queues info")) {
      if (!this.api.queues.has(name ?? "")) throw new Error(`Queue "${name}" does not exist.`);
      return "";
    }
    if (command.startsWith("r2 bucket create")) return JSON.stringify(this.api.call("POST /r2/buckets", { name }));
    if (command.startsWith("r2 object put")) {
      const bytes = readFileSync(args[args.indexOf("--file") + 1] ?? "");
      this.objects.set(name ?? "", bytes.toString());
      return "";
    }
    if (command.startsWith("queues create")) return JSON.stringify(this.api.call("POST /queues", { queue_name: name }));
    if (command.startsWith("secret list")) {
      if (!this.api.secrets) throw new Error('Worker "stowage" not found.');
      return JSON.stringify(this.api.call("GET /workers/scripts/stowage/secrets"));
    }
    const [, binding] = /^d1 migrations apply (\w+) --remote/.exec(command) ?? [];
    if (binding !== undefined) {
      if (this.migrated.has(binding)) return "No migrations to apply!";
      this.migrated.add(binding);
      return "";
    }
    expect(args[0]).toBe("deploy");
    if (args.includes("--dry-run")) return "";
    const file = args[args.indexOf("--secrets-file") + 1] ?? "";
    if (args.includes("--secrets-file")) this.api.secrets = JSON.parse(readFileSync(file, "utf8"));
    const pages = join(this.root, ".wrangler/console");
    rmSync(pages, { recursive: true, force: true });
    mkdirSync(pages, { recursive: true });
    writeFileSync(join(pages, `client-${this.client}.tgz`), this.client);
    const report = { type: "deploy", targets: this.targets };
    writeFileSync(env.WRANGLER_OUTPUT_FILE_PATH ?? "", `${JSON.stringify(report)}\n`);
    return "";
  }

  readonly fetch = async (input: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const failed = new Response("Bad gateway", { status: 502 });
    return this.#attempt(() => this.#respond(new URL(String(input)), init), failed);
  };

  #respond({ host, pathname }: URL, { method, headers, body }: RequestInit): Response {
    expect(host).toBe(this.host);
    if (pathname === "/health") return Response.json({ status: true });
    const authorization = new Headers(headers).get("Authorization");
    const keys = this.teams.flatMap((team) => team.keys);
    if (pathname === "/auth/v1/me") {
      const isKnown = keys.some(({ key }) => authorization === `Bearer ${key}`);
      return Response.json(isKnown ? { data: { kind: "secret" } } : {}, { status: isKnown ? 200 : 401 });
    }
    expect(authorization).toBe(`Bearer ${this.api.secrets?.OPERATOR_TOKEN}`);
    const key = { key: keys.length === 0 ? "stow_sk_first" : `stow_sk_${keys.length}` };
    if (pathname === "/auth/v1/teams") {
      if (method === "GET") return Response.json({ data: this.teams });
      const team = { _id: `team-${this.teams.length}`, name: JSON.parse(String(body)).name, keys: [key] };
      this.teams.push(team);
      return Response.json({ data: team, apiKey: key });
    }
    expect(pathname).toBe("/auth/v1/apikeys");
    const { teamId } = JSON.parse(String(body));
    this.teams.find(({ _id }) => _id === teamId)?.keys.push(key);
    return Response.json({ data: key });
  }

  /** Everything that a deployment creates. */
  get state() {
    const { databases, buckets, queues, secrets } = this.api;
    return {
      databases: [...databases.keys()],
      buckets: [...buckets],
      queues: [...queues.keys()].sort(),
      teams: this.teams.map(({ keys }) => keys.length),
      isMigrated: this.migrated.size === databases.size,
      secrets: Object.keys(secrets ?? {}),
    };
  }
}
