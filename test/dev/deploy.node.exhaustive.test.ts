import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { deploy } from "../../src/dev/deployment.ts";
import { wranglerIn } from "../../src/dev/wrangler.ts";
import { CloudflareApi } from "../support/cloudflare.ts";
import { FakeMachine } from "../support/machine.ts";
import { cloneProject, replaceIn } from "../support/project.ts";

// Each start of wrangler takes seconds, and much longer on a busy machine. The limit is for hangs.
vi.setConfig({ testTimeout: 900_000 });

const root = join(import.meta.dirname, "../..");
const original = readFileSync(join(root, "wrangler.toml"), "utf8");

describe("A deployment with the real wrangler", () => {
  let project: string;
  let folder: string;
  let service: FakeMachine;
  let api: CloudflareApi;
  beforeEach(async () => {
    [project, folder] = [cloneProject(), mkdtempSync(join(tmpdir(), "stowage deploy "))];
    service = new FakeMachine(folder);
    api = new CloudflareApi();
    await api.start();
  });
  afterEach(() => {
    api.stop();
    for (const path of [project, folder]) rmSync(path, { recursive: true, maxRetries: 5 });
  });

  test("creates everything, and finds it the next time", async () => {
    const wrangler = wranglerIn(project, api.environment(folder));
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
    expect(api.placement).toEqual({ mode: "targeted", region: "aws:eu-west-2" });
    lines.length = 0;
    api.requests.length = 0;
    await deploy(machine, {});
    expect(lines.filter((line) => /created|generated|applied$/.test(line))).toEqual([]);
    expect(api.secrets).toEqual(secrets);
    expect(service.teams).toHaveLength(1);
    expect(api.placement).toEqual({ mode: "targeted", region: "aws:eu-west-2" });
    expect(api.unknown).toEqual([]);
  });

  test("deploys what Cloudflare's Deploy button prepared, in the environment of its build", async () => {
    // The button creates the bindings' resources under the names that the user enters, and a Worker with the secrets.
    const { uuid } = api.call("POST /d1/database", { name: "sound", primary_location_hint: "apac" }) as {
      uuid: string;
    };
    api.call("POST /r2/buckets", { name: "stowage-files" });
    for (const name of ["stowage-bulk", "stowage-jobs", "stowage-jobs-dead", "stowage-recovery", "stowage-waveforms"])
      api.call("POST /queues", { queue_name: name });
    const entered = { MASTER_KEY: "entered", OPERATOR_TOKEN: "entered" };
    api.secrets = entered;
    const config = readFileSync(join(project, "wrangler.toml"), "utf8");
    const name = 'database_name = "stowage"';
    expect(config).toContain(name);
    const named = config.replace(name, `database_name = "sound"\ndatabase_id = "${uuid}"`);
    writeFileSync(join(project, "wrangler.toml"), named);
    const { home, sleep, print, lines, fetch } = service;
    const ofBuild = { CI: "true", WORKERS_CI: "1" };
    const wrangler = wranglerIn(project, { ...api.environment(folder), ...ofBuild });
    await deploy({ root: project, home, env: ofBuild, wrangler, fetch, sleep, print }, {});
    expect(lines).toContain('Database "sound": kept');
    expect([...api.databases.keys(), ...api.buckets]).toEqual(["sound", "stowage-files"]);
    const queues = ["stowage-bulk", "stowage-jobs", "stowage-jobs-dead", "stowage-recovery", "stowage-waveforms"];
    expect([...api.queues.keys()].sort()).toEqual(queues);
    expect([...api.consumers.keys()].sort()).toEqual([...api.queues.values()].sort());
    const { sql } = api.databases.get("sound") ?? {};
    expect(sql?.prepare("select count(*) as count from api_keys").all()).toEqual([{ count: 0 }]);
    expect(api.placement).toEqual({ mode: "targeted", region: "aws:ap-southeast-1" });
    expect(api.secrets).toEqual(entered);
    expect(readdirSync(home)).toEqual([]);
    expect(api.unknown).toEqual([]);
  });
});

describe("npm run deploy", () => {
  let project: string;
  let folder: string;
  let api: CloudflareApi;
  beforeEach(async () => {
    [project, folder] = [cloneProject(), mkdtempSync(join(tmpdir(), "stowage deploy "))];
    api = new CloudflareApi();
    await api.start();
  });
  afterEach(() => {
    api.stop();
    for (const path of [project, folder]) rmSync(path, { recursive: true, maxRetries: 5 });
  });
  const run = (...args: string[]) => runWith({}, ...args);
  const runWith = (env: Record<string, string>, ...args: string[]) =>
    new Promise<{ code: number | null; output: string }>((done) => {
      const options = { cwd: project, env: { ...api.environment(folder), ...env } };
      const child = execFile(process.execPath, ["src/dev/deploy.ts", ...args], options, (_, stdout, stderr) =>
        done({ code: child.exitCode, output: stdout + stderr }),
      );
    });

  test("reports each problem of the configuration in a line, and unknown arguments, and shows its options", async () => {
    replaceIn(project, "wrangler.toml", /EVENT_DAYS = .*/g, 'EVENT_DAYS = "0"');
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
    // As after `npm run deploy --dry-run`, whose option never arrives.
    const swallowed = await runWith({ npm_config_dry_run: "true" });
    expect(swallowed).toEqual({ code: 1, output: expect.stringContaining("npm run deploy -- --dry-run") });
    expect(api.requests).toEqual([]);
  });

  test("prints the plan and builds with --dry-run, and publishes no source maps of the console", async () => {
    const { code, output } = await run("--dry-run", "--env", "staging", "--location", "weur");
    expect(output).toMatch(
      /environment "staging" to add.*Bucket "stowage-staging-files": to create, in weur\n.*Nothing was changed\./s,
    );
    expect(output).toContain("Placement: aws:eu-west-2, near the database in weur\n");
    expect(code, output).toBe(0);
    expect(readFileSync(join(project, "wrangler.toml"), "utf8")).toBe(original);
    expect(api.requests.filter((line) => !line.startsWith("GET "))).toEqual([]);
    const assets = readdirSync(join(project, ".wrangler/console/assets"));
    expect(assets.length).toBeGreaterThan(3);
    expect(assets.filter((name) => name.endsWith(".map"))).toEqual([]);
  });
});
