import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findDeployProblems, parseDeployArguments } from "../../src/dev/check-deploy.ts";
import { cloneProject } from "../support/server.ts";

type Change = [from: string | RegExp, to: string];
const original = readFileSync(join(import.meta.dirname, "../../wrangler.toml"), "utf8");
const folder = mkdtempSync(join(tmpdir(), "stowage deploy "));
afterAll(() => rmSync(folder, { recursive: true }));

/** Returns wrangler.toml with the changes. Each change must match. */
const changed = (changes: Change[]) =>
  changes.reduce((text, [from, to]) => {
    const result = text.replace(from, to);
    expect(result, `${from} is not in wrangler.toml`).not.toBe(text);
    return result;
  }, original);

/** Returns what `npm run deploy` complains about. */
function problemsOf(changes: Change[], ...args: string[]): string[] {
  const config = join(folder, "wrangler.toml");
  writeFileSync(config, changed(changes));
  return findDeployProblems(parseDeployArguments(["--config", config, ...args]));
}

const LOCAL_ONLY = "WEBHOOK_ALLOW_INSECURE is for local development only.";

describe("the deploy check", () => {
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

  test("reads --var values with colons, and several after one --var", () => {
    const endpoint = "S3_ENDPOINT:https://account.r2.cloudflarestorage.com";
    expect(problemsOf([], "--var", endpoint)).toEqual([]);
    expect(problemsOf([], `--var=${endpoint}`)).toEqual([]);
    expect(problemsOf([], "--var", endpoint, "EVENT_DAYS:0")).toEqual(["EVENT_DAYS: Must be a whole number above 0."]);
    expect(problemsOf([], "--var", "S3_ENDPOINT:https://host:443/path")).toEqual([
      "S3_ENDPOINT must be https:// and a host.",
    ]);
    for (const malformed of ["EVENT_DAYS", ":1"])
      expect(problemsOf([], "--var", malformed)).toEqual(["--var must be NAME:value."]);
  });

  test("rejects the setting for local development among arguments and secrets, unless it is empty", () => {
    expect(problemsOf([], "--var", "WEBHOOK_ALLOW_INSECURE:true")).toEqual([LOCAL_ONLY]);
    expect(problemsOf([], "--var", "WEBHOOK_ALLOW_INSECURE:")).toEqual([]);
    const file = join(folder, "secrets");
    writeFileSync(file, "WEBHOOK_ALLOW_INSECURE=true\n");
    expect(problemsOf([], "--secrets-file", file)).toEqual([LOCAL_ONLY]);
  });

  test("rejects a secrets file that is missing or holds an empty secret", () => {
    expect(problemsOf([], "--secrets-file", "nowhere")).toEqual(["The secrets file nowhere does not exist."]);
    const file = join(folder, "secrets");
    writeFileSync(file, "MASTER_KEY=\nOPERATOR_TOKEN=\n");
    const problems = [`MASTER_KEY is empty in ${file}.`, `OPERATOR_TOKEN is empty in ${file}.`];
    expect(problemsOf([], "--secrets-file", file)).toEqual(problems);
  });

  test("rejects an environment that is not defined, or lacks its own bindings", () => {
    expect(problemsOf([], "--env", "staging")).toEqual(['The configuration has no environment "staging".']);
    const problems = problemsOf([[/$/, "\n[env.staging.vars]\n"]], "--env", "staging");
    for (const name of ["[[env.staging.d1_databases]] needs DB", "[env.staging.vars] needs S3_BUCKET"])
      expect(problems).toContain(`${name} (environments don't inherit it).`);
    for (const name of ["JOBS", "TOKEN_LIMIT", "MASTER_KEY"]) expect(problems.join()).toContain(`needs ${name} `);
  });

  test("reports a configuration that wrangler can't read", () => {
    expect(problemsOf([[/^main = .*/m, "main = 5"]]).join()).toMatch(/Expected "main" to be of type string/);
  });
});

/** Runs the deploy command against a Cloudflare API that knows no database. */
describe("npm run deploy", () => {
  let project: string;
  let cloudflare: ReturnType<typeof createServer>;
  const requests: string[] = [];
  beforeAll(async () => {
    project = cloneProject();
    cloudflare = createServer((request, response) => {
      requests.push(`${request.method} ${request.url?.replace(/\?.*/, "")}`);
      response.writeHead(404, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ success: false, errors: [{ code: 7404, message: "Not found" }], result: null }));
    });
    await new Promise<void>((listening) => cloudflare.listen(0, "127.0.0.1", listening));
  });
  afterAll(() => {
    cloudflare?.close();
    rmSync(project, { recursive: true, maxRetries: 5 });
  });

  async function deploy(changes: Change[], ...args: string[]) {
    writeFileSync(join(project, "wrangler.toml"), changed(changes));
    requests.length = 0;
    const env = {
      ...process.env,
      CLOUDFLARE_ACCOUNT_ID: "account",
      CLOUDFLARE_API_BASE_URL: `http://127.0.0.1:${(cloudflare.address() as AddressInfo).port}`,
      CLOUDFLARE_API_TOKEN: "token",
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_HIDE_BANNER: "true",
      WRANGLER_WRITE_LOGS: "false",
      NO_COLOR: "1",
    };
    return new Promise<{ code: number; output: string }>((done) => {
      const options = { cwd: project, env };
      const child = execFile(process.execPath, ["src/dev/deploy.ts", ...args], options, (_, stdout, stderr) =>
        done({ code: child.exitCode ?? -1, output: stdout + stderr }),
      );
    });
  }

  test("reports each problem in a line and sends nothing to Cloudflare", async () => {
    const { code, output } = await deploy([], "--var", "EVENT_DAYS:0");
    expect(code).toBe(1);
    expect(output).toMatch(/^Not deployed:\n- EVENT_DAYS: .*\n$/);
    expect(requests).toEqual([]);
  });

  test("only builds with --dry-run, and publishes no source maps of the console", async () => {
    const { code, output } = await deploy([], "--dry-run");
    expect(output).toContain("--dry-run: exiting now.");
    expect(code).toBe(0);
    expect(requests).toEqual([]);
    const assets = readdirSync(join(project, ".wrangler/console/assets"));
    expect(assets.length).toBeGreaterThan(3);
    expect(assets.filter((name) => name.endsWith(".map"))).toEqual([]);
  });

  test("deploys nothing if the migrations can't be applied", async () => {
    const { code, output } = await deploy([]);
    expect(output).toContain("Run 'wrangler d1 create stowage' to create it.");
    expect(code).toBe(1);
    expect(requests).toEqual(["GET /accounts/account/d1/database/stowage"]);
  });
});
