import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { findConfigProblems, readDeployConfig } from "../../src/dev/check-deploy.ts";
import { deploy, type Machine } from "../../src/dev/deployment.ts";
import { addEnvironment } from "../../src/dev/environment.ts";
import type { Refusal } from "../../src/dev/first-start.ts";
import { type WranglerResult, wranglerIn } from "../../src/dev/wrangler.ts";
import { ACCOUNT, CloudflareApi } from "../support/cloudflare.ts";
import { cloneProject } from "../support/server.ts";

// Each start of wrangler takes seconds, and much longer on a busy machine. The limit is for hangs.
vi.setConfig({ testTimeout: 900_000 });

type Change = [from: string | RegExp, to: string];
const root = join(import.meta.dirname, "../..");
const original = readFileSync(join(root, "wrangler.toml"), "utf8");
const folder = mkdtempSync(join(tmpdir(), "stowage deploy "));
afterAll(() => rmSync(folder, { recursive: true }));

/** Returns wrangler.toml with the changes. Each change must match. */
const changed = (changes: Change[]) =>
  changes.reduce((text, [from, to]) => {
    const result = text.replace(from, to);
    expect(result, `${from} is not in wrangler.toml`).not.toBe(text);
    return result;
  }, original);

const configOf = (text: string, environment?: string) => {
  const file = join(folder, "wrangler.toml");
  writeFileSync(file, text);
  return readDeployConfig(file, environment);
};
function problemsOf(changes: Change[], environment?: string): string[] {
  try {
    return findConfigProblems(configOf(changed(changes), environment));
  } catch (error) {
    return [(error as Refusal).message];
  }
}

describe("The configuration check", () => {
  const limit = (name: string) => new RegExp(`\\[\\[ratelimits\\]\\]\\nname = "${name}"[^[]*`);
  const cases: [what: string, changes: Change[], ...problems: string[]][] = [
    [
      "with the placeholder of a database id",
      [['database_name = "stowage"', '$&\ndatabase_id = "00000000-0000-0000-0000-000000000000"']],
      "The database_id of DB is a placeholder.",
    ],
    ["without a rate limit", [[limit("LOGIN_LIMIT"), ""]], "[[ratelimits]] needs LOGIN_LIMIT."],
    [
      "with two rate limits that share a namespace_id",
      [['namespace_id = "1002"', 'namespace_id = "1001"']],
      "Each rate limit needs its own namespace_id: limits that share one count together.",
    ],
    ["without the bucket", [[/\[\[r2_buckets\]\][^[]*/, ""]], "[[r2_buckets]] needs BUCKET."],
    ["without a setting", [[/MAX_TEAM_FILES = .*\n/, ""]], "[vars] needs MAX_TEAM_FILES."],
    ["with an empty setting", [[/(EVENT_DAYS) = .*/, '$1 = ""']], "[vars] needs EVENT_DAYS."],
    ["without a required secret", [['"MASTER_KEY", ', ""]], "[secrets] required needs MASTER_KEY."],
    [
      "with settings that the Worker rejects",
      [
        ["[vars]", '[vars]\nS3_ENDPOINT = "http://storage.example/bucket"'],
        [/MAX_UPLOAD_BYTES = .*/, 'MAX_UPLOAD_BYTES = "100 MB"'],
        [/S3_BUCKET = .*/, 'S3_BUCKET = "other"'],
      ],
      "MAX_UPLOAD_BYTES: Must be a whole number above 0.",
      "S3_ENDPOINT must be https:// and a host.",
      'S3_BUCKET must be "stowage-files", the bucket_name of BUCKET.',
    ],
    [
      "with a MAX_FILE_BYTES that R2 can't rewrite with one put",
      [[/MAX_FILE_BYTES = .*/, 'MAX_FILE_BYTES = "5368709120"']],
      "MAX_FILE_BYTES: Must be at most 5363466240, the largest object that R2 stores with one put.",
    ],
    [
      "that names another dead letter queue in the settings",
      [[/DEAD_LETTER_QUEUE = .*/, 'DEAD_LETTER_QUEUE = "stowage-dead"']],
      'DEAD_LETTER_QUEUE must be "stowage-jobs-dead", the dead_letter_queue of "stowage-jobs".',
    ],
    [
      "with a dead letter queue without consumer",
      [
        ['DEAD_LETTER_QUEUE = "stowage-jobs-dead"', 'DEAD_LETTER_QUEUE = "lost"'],
        [/^dead_letter.*/m, 'dead_letter_queue = "lost"'],
      ],
      'The dead letter queue "lost" needs a consumer.',
    ],
    [
      "without a dead letter queue",
      [[/^dead_letter.*\n/m, ""]],
      'The queue "stowage-jobs" needs a consumer with a dead_letter_queue.',
    ],
    [
      "with a webhook queue without consumer",
      [['binding = "WEBHOOKS"\nqueue = "stowage-webhooks"', 'binding = "WEBHOOKS"\nqueue = "lost"']],
      'The queue "lost" needs a consumer.',
    ],
    [
      "with the setting for local development",
      [["[vars]", '[vars]\nWEBHOOK_ALLOW_INSECURE = "true"']],
      "WEBHOOK_ALLOW_INSECURE is for local development only.",
    ],
    [
      "without a cron trigger",
      [[/^crons = .*/m, "crons = []"]],
      "[triggers] needs a cron: without it the recovery job never runs.",
    ],
  ];
  test.each(cases)("rejects a configuration %s", (_, changes, ...problems) => {
    expect(problemsOf(changes)).toEqual(problems);
  });

  test("accepts a complete configuration", () => {
    expect(problemsOf([])).toEqual([]);
  });

  test("rejects a secret among the settings, without showing it", () => {
    const inVars: Change = ["[vars]", '[vars]\nMASTER_KEY = "a-master-key"'];
    for (const changes of [[inVars], [inVars, ['required = ["MASTER_KEY", ', "required = ["]] satisfies Change[]]) {
      const problems = problemsOf([...changes]).join();
      expect(problems).toContain("MASTER_KEY");
      expect(problems).not.toContain("a-master-key");
    }
  });

  test("rejects an environment that lacks its own bindings", () => {
    const problems = problemsOf([[/$/, "\n[env.staging.vars]\n"]], "staging");
    for (const name of ["[[env.staging.d1_databases]] needs DB", "[env.staging.vars] needs S3_BUCKET"])
      expect(problems).toContain(`${name} (environments don't inherit it).`);
    for (const name of ["JOBS", "TOKEN_LIMIT", "MASTER_KEY"]) expect(problems.join()).toContain(`needs ${name} `);
  });

  test("reports a configuration that wrangler can't read", () => {
    expect(problemsOf([[/^main = .*/m, "main = 5"]]).join()).toMatch(/Expected "main" to be of type string/);
  });
});

describe("A new environment", () => {
  test("has its own resources and counters, and no custom domain or link host", () => {
    const text = addEnvironment(changed([["[vars]", '[vars]\nLINK_HOST = "links.example.com"']]), "staging");
    const [first, staging] = [configOf(text), configOf(text, "staging")];
    expect(findConfigProblems(staging)).toEqual([]);
    expect(staging).toMatchObject({
      name: "stowage-staging",
      routes: [],
      vars: { S3_BUCKET: "stowage-staging-files", DEAD_LETTER_QUEUE: "stowage-staging-jobs-dead" },
      d1_databases: [{ binding: "DB", database_name: "stowage-staging" }],
      r2_buckets: [{ bucket_name: "stowage-staging-files" }],
    });
    expect(staging.vars).not.toHaveProperty("LINK_HOST");
    expect(Object.keys(staging.vars)).toHaveLength(Object.keys(first.vars).length - 1);
    expect(staging.queues.consumers?.map(({ queue }) => queue).sort()).toEqual(
      ["jobs", "jobs-dead", "webhooks"].map((name) => `stowage-staging-${name}`),
    );
    const counters = [...first.ratelimits, ...staging.ratelimits].map(({ namespace_id }) => namespace_id);
    expect(new Set(counters).size).toBe(2 * first.ratelimits.length);
    expect(addEnvironment(text, "staging")).toBe(text);
  });

  test("is copied from the default one if others have hyphens in their names", () => {
    const text = addEnvironment(addEnvironment(original, "eu-west"), "staging");
    expect(findConfigProblems(configOf(text, "staging"))).toEqual([]);
    expect(text.match(/^\[\[env\.staging\.r2_buckets/gm)).toHaveLength(1);
  });
});

/** A machine without wrangler: its commands call the API in this process. */
class FakeMachine implements Machine {
  root = root;
  readonly home = mkdtempSync(join(folder, "home"));
  env: Record<string, string> = {};
  readonly lines: string[] = [];
  readonly api = new CloudflareApi();
  /** The teams of the service, each with its keys. */
  readonly teams: { _id: string; name: string; keys: object[] }[] = [];
  /** How many migrations ran; null before the database exists. */
  migrations = 0;
  calls = 0;
  /** The number of the call that fails, and whether it took effect. */
  fault: { call: number; moment: "before" | "after" } | undefined;

  /** The targets of the Worker, as wrangler reports them. */
  targets = ["https://stowage.acme.workers.dev", "schedule: */5 * * * *"];
  host = "stowage.acme.workers.dev";

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
    const name = args.find((arg) => arg.startsWith("stowage"));
    if (command === "whoami --json") return JSON.stringify({ accounts: this.api.call("GET /accounts") });
    if (command.startsWith("d1 create")) return JSON.stringify(this.api.call("POST /d1/database", { name }));
    if (command.startsWith("r2 bucket create")) return JSON.stringify(this.api.call("POST /r2/buckets", { name }));
    if (command.startsWith("queues create")) return JSON.stringify(this.api.call("POST /queues", { queue_name: name }));
    if (command === "secret list") {
      if (!this.api.secrets) throw new Error('Worker "stowage" not found.');
      return JSON.stringify(this.api.call("GET /workers/scripts/stowage/secrets"));
    }
    if (command === "d1 migrations apply DB --remote") {
      this.migrations += 1;
      return this.migrations > 1 ? "No migrations to apply!" : "";
    }
    expect(args[0]).toBe("deploy");
    const file = args[args.indexOf("--secrets-file") + 1] ?? "";
    if (args.includes("--secrets-file")) this.api.secrets = JSON.parse(readFileSync(file, "utf8"));
    const report = { type: "deploy", targets: this.targets };
    writeFileSync(env.WRANGLER_OUTPUT_FILE_PATH ?? "", `${JSON.stringify(report)}\n`);
    return "";
  }

  readonly fetch = async (input: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const failed = new Response("Bad gateway", { status: 502 });
    return this.#attempt(() => this.#respond(new URL(String(input)), init), failed);
  };

  #respond({ host, pathname, searchParams }: URL, { method = "GET", headers, body }: RequestInit): Response {
    expect(host).toBe(this.host);
    if (pathname === "/health") return Response.json({ status: true });
    expect(headers).toMatchObject({ Authorization: `Bearer ${this.api.secrets?.OPERATOR_TOKEN}` });
    if (pathname === "/auth/v1/teams") return Response.json({ data: this.teams });
    const keys = this.teams.flatMap((team) => team.keys) as { id: string; teamId: string }[];
    if (method === "GET" && pathname === "/auth/v1/apikeys") {
      return Response.json({ data: keys.filter(({ teamId }) => teamId === searchParams.get("teamId")) });
    }
    if (method === "GET") return Response.json({ data: keys.find(({ id }) => pathname.endsWith(id)) });
    const { name, teamId = `team-${this.teams.length}` } = JSON.parse(String(body));
    const key = { id: `key-${keys.length}`, teamId, name, key: "stow_sk_first", expiresAt: "2999-01-01T00:00:00.000Z" };
    const team = this.teams.find(({ _id }) => _id === teamId);
    if (team) team.keys.push(key);
    else this.teams.push({ _id: teamId, name, keys: [key] });
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
      isMigrated: this.migrations > 0,
      secrets: Object.keys(secrets ?? {}),
    };
  }
}

const COMPLETE = {
  databases: ["stowage"],
  buckets: ["stowage-files"],
  queues: ["stowage-jobs", "stowage-jobs-dead", "stowage-webhooks"],
  teams: [1],
  isMigrated: true,
  secrets: ["MASTER_KEY", "OPERATOR_TOKEN"],
};

describe("A deployment", () => {
  test("creates everything once, prints URL and key, and can be repeated", async () => {
    const machine = new FakeMachine();
    await deploy(machine, {});
    expect(machine.state).toEqual(COMPLETE);
    const text = machine.lines.join("\n");
    expect(text).toContain("Stowage runs at https://stowage.acme.workers.dev");
    expect(text).toContain("Your secret key: stow_sk_first");
    expect(text).not.toContain(machine.api.secrets?.MASTER_KEY);
    expect(JSON.parse(readFileSync(machine.secretsFile, "utf8"))).toEqual(machine.api.secrets);
    if (process.platform !== "win32") expect(statSync(machine.secretsFile).mode & 0o777).toBe(0o600);
    const { secrets } = machine.api;
    machine.lines.length = 0;
    await deploy(machine, {});
    expect(machine.state).toEqual(COMPLETE);
    expect(machine.api.secrets).toBe(secrets);
    expect(machine.lines.filter((line) => /created|generated|applied/.test(line))).toEqual([]);
    expect(machine.lines.join()).toContain("Your secret key: stow_sk_first");
  });

  test("continues after a failure of any call, without a duplicate or a lost secret", async () => {
    const faultless = new FakeMachine();
    await deploy(faultless, {});
    for (let call = 1; call <= faultless.calls; call++) {
      for (const moment of ["before", "after"] as const) {
        const machine = new FakeMachine();
        machine.fault = { call, moment };
        const first = await deploy(machine, {}).catch(({ message }: Error) => message);
        const kept = machine.api.secrets;
        // A failed health check is repeated at once.
        if (first !== undefined) {
          expect(first, `${moment} call ${call}`).toMatch(/^(A request failed|The service responded 502)/);
          expect(first).toMatch(/failed\. .*Then run `npm run deploy` again\.|Bad gateway/s);
          await deploy(machine, {});
        }
        expect(machine.state, `${moment} call ${call}`).toEqual(COMPLETE);
        if (kept) expect(machine.api.secrets).toBe(kept);
        expect(JSON.parse(readFileSync(machine.secretsFile, "utf8"))).toEqual(machine.api.secrets);
      }
    }
  });

  test("keeps the Worker's secrets if the machine has no secrets file", async () => {
    const machine = new FakeMachine();
    await deploy(machine, {});
    const { secrets } = machine.api;
    rmSync(machine.home, { recursive: true });
    await deploy(machine, {});
    expect(machine.api.secrets).toBe(secrets);
    expect(machine.state).toEqual(COMPLETE);
    expect(machine.lines.join()).toContain("on the machine that has the secrets file");
  });

  test("prints the service's host and not LINK_HOST, and takes no team whose name only begins alike", async () => {
    const machine = new FakeMachine();
    machine.root = mkdtempSync(join(folder, "root"));
    const text = changed([["[vars]", '[vars]\nLINK_HOST = "links.example.com"']]);
    writeFileSync(join(machine.root, "wrangler.toml"), text);
    machine.targets = ["links.example.com (custom domain)", "files.example.com (custom domain)"];
    machine.host = "files.example.com";
    machine.teams.push({ _id: "stranger", name: "First keynote", keys: [] });
    await deploy(machine, {});
    expect(machine.lines.join()).toContain("Stowage runs at https://files.example.com");
    expect(machine.state.teams).toEqual([0, 1]);
  });

  test("generates no secrets on a CI machine", async () => {
    const machine = new FakeMachine();
    machine.env = { CI: "true" };
    await expect(deploy(machine, {})).rejects.toThrow("Run it on your own machine.");
    expect(machine.api.secrets).toBe(null);
  });

  test.each([
    ["Authentication error [code: 10000]", "npx wrangler login"],
    ["it's necessary to set a CLOUDFLARE_API_TOKEN environment variable", "npx wrangler login"],
    ["Please enable R2 through the Cloudflare Dashboard. [code: 10042]", "Subscribe to R2"],
    ["CPU limits are not supported for the Free plan. [code: 100328]", "Subscribe to Workers Paid"],
    ["You need to register a workers.dev subdomain", "Open Workers in the dashboard once"],
    ["Internal error [code: 500]", "wait if Cloudflare has an outage"],
  ])("names the remedy for: %s", async (output, remedy) => {
    const machine = new FakeMachine();
    const wrangler = async () => ({ code: 1, stdout: "", output });
    await expect(deploy({ ...machine, wrangler, root }, {})).rejects.toThrow(remedy);
  });

  test("asks for the account if the login has several", async () => {
    const machine = new FakeMachine();
    const accounts = JSON.stringify({ accounts: ["a", "b"].map((id) => ({ id, name: `Account ${id}` })) });
    const wrangler = async () => ({ code: 0, stdout: accounts, output: accounts });
    await expect(deploy({ ...machine, wrangler, root }, {})).rejects.toThrow(
      /CLOUDFLARE_ACCOUNT_ID.*\n {2}a {2}Account a/s,
    );
  });
});

describe("npm run deploy", () => {
  let project: string;
  let api: CloudflareApi;
  beforeEach(async () => {
    project = cloneProject();
    api = new CloudflareApi();
    await api.start();
  });
  afterEach(() => {
    api.stop();
    rmSync(project, { recursive: true, maxRetries: 5 });
  });
  const env = () => ({
    ...process.env,
    CLOUDFLARE_ACCOUNT_ID: ACCOUNT,
    CLOUDFLARE_API_BASE_URL: api.url,
    CLOUDFLARE_API_TOKEN: "token",
    HOME: folder,
    WRANGLER_SEND_METRICS: "false",
    WRANGLER_WRITE_LOGS: "false",
    NO_COLOR: "1",
  });
  const run = (...args: string[]) =>
    new Promise<{ code: number | null; output: string }>((done) => {
      const options = { cwd: project, env: env() };
      const child = execFile(process.execPath, ["src/dev/deploy.ts", ...args], options, (_, stdout, stderr) =>
        done({ code: child.exitCode, output: stdout + stderr }),
      );
    });

  test("reports each problem of the configuration in a line, and unknown arguments, and shows its options", async () => {
    writeFileSync(join(project, "wrangler.toml"), changed([[/EVENT_DAYS = .*/, 'EVENT_DAYS = "0"']]));
    const { code, output } = await run();
    expect([code, output]).toEqual([1, expect.stringMatching(/^Not deployed\. .*:\n- EVENT_DAYS: .*\n$/)]);
    expect(await run("--var", "A:1")).toEqual({ code: 1, output: expect.stringContaining("Unknown option '--var'") });
    const wrongPlace = await run("--location", "mars", "--dry-run");
    expect(wrongPlace).toEqual({ code: 1, output: expect.stringContaining("--location must be one of weur, eeur") });
    const help = await run("--help");
    for (const option of ["--env NAME", "--location ", "--dry-run"]) {
      expect(help).toEqual({ code: 0, output: expect.stringContaining(option) });
      expect(readFileSync(join(root, "README.md"), "utf8")).toContain(`\`${option}`);
    }
    expect(api.requests).toEqual([]);
  });

  test("prints the plan and builds with --dry-run, and publishes no source maps of the console", async () => {
    const { code, output } = await run("--dry-run", "--env", "staging", "--location", "weur");
    expect(output).toMatch(
      /environment "staging" to add.*Bucket "stowage-staging-files": create if it is missing, in weur\n.*Nothing was changed\./s,
    );
    expect(code, output).toBe(0);
    expect(readFileSync(join(project, "wrangler.toml"), "utf8")).toBe(original);
    expect(api.requests).toEqual([]);
    const assets = readdirSync(join(project, ".wrangler/console/assets"));
    expect(assets.length).toBeGreaterThan(3);
    expect(assets.filter((name) => name.endsWith(".map"))).toEqual([]);
  });

  test("creates and deploys everything with the real wrangler, and finds it the next time", async () => {
    const service = new FakeMachine();
    const wrangler = wranglerIn(project, env());
    const { home, sleep, print, lines } = service;
    const fetch = async (url: string | URL | Request, init?: RequestInit) => {
      service.api.secrets = api.secrets;
      return service.fetch(url, init);
    };
    const machine = { root: project, home, env: {}, wrangler, fetch, sleep, print };
    await deploy(machine, { location: "weur" });
    const secrets = JSON.parse(readFileSync(service.secretsFile, "utf8"));
    expect(api.secrets).toEqual(secrets);
    expect([...api.databases.keys(), ...api.buckets]).toEqual(["stowage", "stowage-files"]);
    expect(api.crons).toEqual(["*/5 * * * *"]);
    expect([...api.consumers.keys()].sort()).toEqual([...api.queues.values()].sort());
    const { sql } = api.databases.get("stowage") ?? {};
    expect(sql?.prepare("select count(*) as count from api_keys").all()).toEqual([{ count: 0 }]);
    lines.length = 0;
    api.requests.length = 0;
    await deploy(machine, {});
    expect(lines.filter((line) => /created|generated|applied$/.test(line))).toEqual([]);
    expect(api.secrets).toEqual(secrets);
    expect(service.teams).toHaveLength(1);
    expect(api.unknown).toEqual([]);
  });
});
