import { execFile } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { cloneProject } from "../support/server.ts";

/** `npm run deploy` as it is run, on changed configurations. Cloudflare is a server here that knows no database. */
vi.setConfig({ testTimeout: 300_000 });

let folder: string;
let cloudflare: ReturnType<typeof createServer>;
const asked: string[] = [];
beforeAll(async () => {
  folder = cloneProject();
  cloudflare = createServer((request, response) => {
    asked.push(`${request.method} ${request.url?.replace(/\?.*/, "")}`);
    response.writeHead(404, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ success: false, errors: [{ code: 7404, message: "Not found" }], result: null }));
  });
  await new Promise<void>((listening) => cloudflare.listen(0, "127.0.0.1", listening));
});
afterAll(() => {
  cloudflare?.close();
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

type Change = [from: string | RegExp, to: string];
const READY: Change = ["ACCOUNT_ID", "0123456789abcdef0123456789abcdef"];
const original = readFileSync(join(import.meta.dirname, "../../wrangler.toml"), "utf8");

/** Runs it on wrangler.toml with the changes made, each of which has to find what it changes. */
async function deploy(changes: Change[], ...args: string[]) {
  const text = changes.reduce((text, [from, to]) => {
    const changed = text.replace(from, to);
    expect(changed, `${from} is not in wrangler.toml`).not.toBe(text);
    return changed;
  }, original);
  writeFileSync(join(folder, "wrangler.toml"), text);
  asked.length = 0;
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
    const options = { cwd: folder, env };
    const child = execFile(process.execPath, ["src/dev/deploy.ts", ...args], options, (_, stdout, stderr) =>
      done({ code: child.exitCode ?? -1, output: stdout + stderr }),
    );
  });
}

const refusal = (...problems: string[]) => ({
  code: 1,
  output: ["Not deployed:", ...problems, ""].join("\n- ").slice(0, -2),
});

describe("before Cloudflare is asked for anything, a configuration is refused", () => {
  const limit = (name: string) => new RegExp(`\\[\\[ratelimits\\]\\]\\nname = "${name}"[^[]*`);
  const cases: [what: string, changes: Change[], ...problems: string[]][] = [
    [
      "as it comes: with the placeholder of the account",
      [],
      "S3_ENDPOINT has the placeholder ACCOUNT_ID: `npx wrangler whoami` shows your account's id.",
    ],
    [
      "with the placeholder of a database's id",
      [READY, ['database_name = "stowage"', '$&\ndatabase_id = "00000000-0000-0000-0000-000000000000"']],
      "The database_id of DB is a placeholder.",
    ],
    ["without a rate limit", [READY, [limit("LOGIN_LIMIT"), ""]], "LOGIN_LIMIT is missing in [[ratelimits]]."],
    [
      "with two rate limits that count together",
      [READY, ['namespace_id = "1002"', 'namespace_id = "1001"']],
      "Rate limits of one namespace_id count together: each needs its own.",
    ],
    ["without the bucket", [READY, [/\[\[r2_buckets\]\][^[]*/, ""]], "BUCKET is missing in [[r2_buckets]]."],
    ["without a setting", [READY, [/MAX_TEAM_FILES = .*\n/, ""]], "MAX_TEAM_FILES is missing in [vars]."],
    ["with an empty setting", [READY, [/(S3_ENDPOINT) = .*/, '$1 = ""']], "S3_ENDPOINT is missing in [vars]."],
    ["without a required secret", [READY, ['"MASTER_KEY", ', ""]], "MASTER_KEY is missing in [secrets] required."],
    [
      "with settings that the Worker can't use",
      [
        [/S3_ENDPOINT = .*/, 'S3_ENDPOINT = "http://storage.example/bucket"'],
        [/MAX_UPLOAD_BYTES = .*/, 'MAX_UPLOAD_BYTES = "100 MB"'],
        [/S3_BUCKET = .*/, 'S3_BUCKET = "other"'],
      ],
      "MAX_UPLOAD_BYTES must be a number above 0.",
      "S3_ENDPOINT must be https:// and a host.",
      'S3_BUCKET must be "stowage-files", the bucket_name of BUCKET.',
    ],
    [
      "with another name of the dead letter queue in the settings",
      [READY, [/DEAD_LETTER_QUEUE = .*/, 'DEAD_LETTER_QUEUE = "stowage-dead"']],
      'DEAD_LETTER_QUEUE must be "stowage-jobs-dead", the dead_letter_queue of the consumer of "stowage-jobs".',
    ],
    [
      "with a dead letter queue that nobody consumes",
      [
        READY,
        ['DEAD_LETTER_QUEUE = "stowage-jobs-dead"', 'DEAD_LETTER_QUEUE = "lost"'],
        [/^dead_letter.*/m, 'dead_letter_queue = "lost"'],
      ],
      'The dead letter queue "lost" has no consumer.',
    ],
    [
      "without a dead letter queue",
      [READY, [/^dead_letter.*\n/m, ""]],
      'The queue "stowage-jobs" has no consumer with a dead_letter_queue.',
    ],
    [
      "with a queue of webhooks that nobody consumes",
      [READY, ['binding = "WEBHOOKS"\nqueue = "stowage-webhooks"', 'binding = "WEBHOOKS"\nqueue = "lost"']],
      'The queue "lost" has no consumer.',
    ],
    [
      "with what lets webhooks be sent to this machine",
      [READY, ["[vars]", '[vars]\nWEBHOOK_ALLOW_INSECURE = "true"']],
      "WEBHOOK_ALLOW_INSECURE is for local development only.",
    ],
    [
      "without recovery",
      [READY, [/^crons = .*/m, "crons = []"]],
      "There is no cron trigger: recovery would never run.",
    ],
  ];
  test.each(cases)("%s", async (_, changes, ...problems) => {
    expect(await deploy(changes)).toEqual(refusal(...problems));
    expect(asked).toEqual([]);
  });

  test("with a secret among the settings, and the secret is not shown", async () => {
    const inVars: Change = ["[vars]", '[vars]\nMASTER_KEY = "a-master-key"'];
    for (const changes of [[inVars], [inVars, ['required = ["MASTER_KEY", ', "required = ["]] satisfies Change[]]) {
      const { code, output } = await deploy([READY, ...changes]);
      expect(code).toBe(1);
      expect(output).toMatch(/^Not deployed:\n.*MASTER_KEY/s);
      expect(output).not.toContain("a-master-key");
      expect(asked).toEqual([]);
    }
  });

  test("with what lets webhooks be sent to this machine, among the arguments or the secrets", async () => {
    const problem = refusal("WEBHOOK_ALLOW_INSECURE is for local development only.");
    expect(await deploy([READY], "--var", "WEBHOOK_ALLOW_INSECURE:true")).toEqual(problem);
    const file = join(folder, "secrets");
    writeFileSync(file, "WEBHOOK_ALLOW_INSECURE=true\n");
    expect(await deploy([READY], "--secrets-file", file)).toEqual(problem);
  });

  test("for an environment that is not there, or has no bindings of its own", async () => {
    expect(await deploy([READY], "--env", "staging")).toEqual(
      refusal('There is no environment "staging" in the configuration.'),
    );
    const { code, output } = await deploy([READY, [/$/, "\n[env.staging.vars]\n"]], "--env", "staging");
    expect(code).toBe(1);
    for (const name of ["DB", "JOBS", "TOKEN_LIMIT", "S3_ENDPOINT", "MASTER_KEY"])
      expect(output).toMatch(
        new RegExp(`^- ${name} is missing in .*, and \\[env\\.staging\\] does not inherit it\\.$`, "m"),
      );
    expect(asked).toEqual([]);
  });

  test("that wrangler can't read", async () => {
    const { code, output } = await deploy([[/^main = .*/m, "main = 5"]]);
    expect(code).toBe(1);
    expect(output).toMatch(/^Not deployed:\n- .*Expected "main" to be of type string/s);
    expect(asked).toEqual([]);
  });
});

test("a complete configuration is built, and with --dry-run nothing else", async () => {
  const { code, output } = await deploy([READY], "--dry-run");
  expect(output).toContain("--dry-run: exiting now.");
  expect(code).toBe(0);
  expect(asked).toEqual([]);
});

test("where the migrations can't be applied nothing is deployed", async () => {
  const { code, output } = await deploy([READY]);
  expect(output).toContain("Run 'wrangler d1 create stowage' to create it.");
  expect(code).toBe(1);
  expect(asked).toEqual(["GET /accounts/account/d1/database/stowage"]);
});

test("A secrets file that is not there, or holds an empty secret, is refused before anything is done.", async () => {
  const missing = await deploy([READY], "--secrets-file", "nowhere");
  expect(missing).toEqual(refusal("There is no secrets file nowhere."));
  writeFileSync(join(folder, "secrets"), "MASTER_KEY=x\nS3_ACCESS_KEY_ID=\nS3_SECRET_ACCESS_KEY=\n");
  const empty = await deploy([READY], "--secrets-file", "secrets");
  const problems = ["S3_ACCESS_KEY_ID is empty in secrets.", "S3_SECRET_ACCESS_KEY is empty in secrets."];
  expect(empty).toEqual(refusal(...problems));
  expect(asked).toEqual([]);
});
