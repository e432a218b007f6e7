import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { describeDrift, findConfigProblems, readDeployConfig } from "../../src/dev/check-deploy.ts";
import { deploy } from "../../src/dev/deployment.ts";
import { addEnvironment, setRegion } from "../../src/dev/environment.ts";
import { REGIONS } from "../../src/dev/placement.ts";
import type { Refusal } from "../../src/dev/refusal.ts";
import type { Wrangler } from "../../src/dev/wrangler.ts";
import { ACCOUNT } from "../support/cloudflare.ts";
import { FakeMachine } from "../support/machine.ts";

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
    [
      "with a misnamed database",
      [['binding = "DB"', '$&\ndatabase_name = "first"\n\n[[d1_databases]]\nbinding = "DB_01"']],
      "DB_01: Databases are DB, DB_1, DB_2, … up to DB_999.",
    ],
    ["without a rate limit", [[limit("LOGIN_LIMIT"), ""]], "[[ratelimits]] needs LOGIN_LIMIT."],
    [
      "with two rate limits that share a namespace_id",
      [['namespace_id = "730212"', 'namespace_id = "730211"']],
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
      "with emails but no sender",
      [[/$/, '\n[[send_email]]\nname = "EMAIL"\n']],
      "[[send_email]] EMAIL and the setting EMAIL_FROM need each other.",
      "[[send_email]] EMAIL needs the setting PUBLIC_URL.",
    ],
    [
      "with emails but no PUBLIC_URL",
      [
        ["[vars]", '[vars]\nEMAIL_FROM = "accounts@example.com"'],
        [/$/, '\n[[send_email]]\nname = "EMAIL"\n'],
      ],
      "[[send_email]] EMAIL needs the setting PUBLIC_URL.",
    ],
    [
      "with a sender but no emails",
      [["[vars]", '[vars]\nEMAIL_FROM = "accounts@example.com"']],
      "[[send_email]] EMAIL and the setting EMAIL_FROM need each other.",
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
      'DEAD_LETTER_QUEUE must be "stowage-jobs-dead", the dead_letter_queue of "stowage-bulk".',
    ],
    [
      "with a dead letter queue without consumer",
      [
        ['DEAD_LETTER_QUEUE = "stowage-jobs-dead"', 'DEAD_LETTER_QUEUE = "lost"'],
        [/^dead_letter.*/gm, 'dead_letter_queue = "lost"'],
      ],
      'The dead letter queue "lost" needs a consumer.',
    ],
    [
      "without a dead letter queue",
      [[/^dead_letter.*\n/m, ""]],
      'The queue "stowage-jobs" needs a consumer with a dead_letter_queue.',
    ],
    [
      "with a recovery queue without consumer",
      [['binding = "RECOVERY"\nqueue = "stowage-recovery"', 'binding = "RECOVERY"\nqueue = "lost"']],
      'The queue "lost" needs a consumer.',
    ],
    [
      "without the objects of webhooks",
      [['name = "WEBHOOKS"\n', 'name = "OTHER"\n']],
      "[[durable_objects.bindings]] needs WEBHOOKS.",
    ],
    [
      "without the migration that creates the class of objects",
      [['new_sqlite_classes = ["WebhookObject", "SearchObject"]', 'new_sqlite_classes = ["SearchObject"]']],
      "[[migrations]] must create the class WebhookObject by new_sqlite_classes.",
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
    for (const name of ["JOBS", "LIGHT_LIMIT", "MASTER_KEY"]) expect(problems.join()).toContain(`needs ${name} `);
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
      ["bulk", "jobs", "jobs-dead", "recovery", "waveforms"].map((name) => `stowage-staging-${name}`),
    );
    const counters = [...first.ratelimits, ...staging.ratelimits].map(({ namespace_id }) => namespace_id);
    expect(new Set(counters).size).toBe(2 * first.ratelimits.length);
    expect(addEnvironment(text, "staging")).toBe(text);
  });

  test("sends emails if the default one does", () => {
    const changes: Change[] = [
      ["[vars]", '[vars]\nEMAIL_FROM = "accounts@example.com"\nPUBLIC_URL = "https://files.example.com"'],
      [/$/, '\n[[send_email]]\nname = "EMAIL"\n'],
    ];
    const staging = configOf(addEnvironment(changed(changes), "staging"), "staging");
    expect(findConfigProblems(staging)).toEqual([]);
    expect(staging.send_email).toEqual([{ name: "EMAIL" }]);
  });

  test("leaves the text before it as it is, with its comments, and is read however the TOML is written", () => {
    const written = changed([
      [/\[placement\]\nmode = "smart"/, 'placement = { mode = "smart" } # for now'],
      ['crons = ["*/5 * * * *"]', 'crons = [\n  "*/5 * * * *", # often\n]'],
      ['TRASH_DAYS = "0"', "'TRASH_DAYS' = '0' # none"],
      ["[[r2_buckets]]", "[[ r2_buckets ]] # bytes"],
    ]);
    // A key of the top level stands before the first table.
    const [line = ""] = /^placement = .*$/m.exec(written) ?? [];
    const text = written.replace(`${line}\n`, "").replace(/^name = /m, `${line}\n$&`);
    const added = addEnvironment(text, "staging");
    expect(added.startsWith(text.trimEnd())).toBe(true);
    const staging = configOf(added, "staging");
    expect(findConfigProblems(staging)).toEqual([]);
    expect(staging).toMatchObject({ placement: { mode: "smart" }, vars: { TRASH_DAYS: "0" } });
    expect(staging.r2_buckets).toMatchObject([{ bucket_name: "stowage-staging-files" }]);
    const placed = setRegion(setRegion(added, "aws:eu-west-2", undefined), "aws:us-west-1", "staging");
    expect(configOf(placed).placement).toEqual({ region: "aws:eu-west-2" });
    expect(configOf(placed, "staging").placement).toEqual({ region: "aws:us-west-1" });
    for (const comment of ["# for now", "# often", "# none", "# bytes"]) expect(placed).toContain(comment);
    expect(placed.match(/^\s*#/gm)).toEqual(added.match(/^\s*#/gm));
  });

  test("is copied from the default one if others have hyphens in their names", () => {
    const text = addEnvironment(addEnvironment(original, "eu-west"), "staging");
    expect(findConfigProblems(configOf(text, "staging"))).toEqual([]);
    expect(text.match(/^\[\[env\.staging\.r2_buckets/gm)).toHaveLength(1);
  });
});

const COMPLETE = {
  databases: ["stowage"],
  buckets: ["stowage-files"],
  queues: ["stowage-bulk", "stowage-jobs", "stowage-jobs-dead", "stowage-recovery", "stowage-waveforms"],
  teams: [1],
  isMigrated: true,
  secrets: ["MASTER_KEY", "OPERATOR_TOKEN"],
};

describe("A deployment", () => {
  test("creates everything once, prints URL and key, and can be repeated", async () => {
    const machine = new FakeMachine(folder);
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

  test("creates and migrates each database of wrangler.toml, also one that is added later", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, {});
    for (const number of [1, 2]) {
      const block = `[[d1_databases]]\nbinding = "DB_${number}"\ndatabase_name = "stowage-${number}"\n`;
      writeFileSync(join(machine.root, "wrangler.toml"), `${machine.config}\n${block}`);
      machine.lines.length = 0;
      await deploy(machine, {});
      expect(machine.lines).toContain(`Database "stowage-${number}": created`);
      expect(machine.lines).toContain(`Migrations of "stowage-${number}": applied`);
      expect(machine.lines).toContain('Migrations of "stowage": none to apply');
    }
    expect(machine.state).toEqual({ ...COMPLETE, databases: ["stowage", "stowage-1", "stowage-2"] });
    expect(machine.lines.join("\n")).toMatch(/OPERATOR_TOKEN="\$\(.*\)" npm run smoke/);
  });

  test("continues after a failure of any call, without a duplicate team or a lost secret", async () => {
    const faultless = new FakeMachine(folder);
    await deploy(faultless, {});
    for (let call = 1; call <= faultless.calls; call++) {
      for (const moment of ["before", "after"] as const) {
        const machine = new FakeMachine(folder);
        machine.fault = { call, moment };
        const first = await deploy(machine, {}).catch(({ message }: Error) => message);
        const kept = machine.api.secrets;
        // A failed health check is repeated at once.
        if (first !== undefined) {
          expect(first, `${moment} call ${call}`).toMatch(/^(A request failed|.* It responded 502\.|Can't reach )/);
          expect(first).toMatch(/failed\. .*Then run `npm run deploy` again\./s);
          await deploy(machine, {});
        }
        // The last call creates the first key. If its response is lost, the key is unknown, and the team gets another one.
        const teams = moment === "after" && call === faultless.calls ? [2] : [1];
        expect(machine.state, `${moment} call ${call}`).toEqual({ ...COMPLETE, teams });
        if (kept) expect(machine.api.secrets).toBe(kept);
        expect(JSON.parse(readFileSync(machine.secretsFile, "utf8"))).toEqual(machine.api.secrets);
      }
    }
  });

  test("keeps the Worker's secrets if the machine has no secrets file", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, {});
    const { secrets } = machine.api;
    rmSync(machine.home, { recursive: true });
    await deploy(machine, {});
    expect(machine.api.secrets).toBe(secrets);
    expect(machine.state).toEqual(COMPLETE);
    expect(machine.lines.join()).toContain("on the machine that has the secrets file");
  });

  test("prints the service's host and not LINK_HOST, and takes no team whose name only begins alike", async () => {
    const machine = new FakeMachine(folder, changed([["[vars]", '[vars]\nLINK_HOST = "links.example.com"']]));
    machine.targets = ["links.example.com (custom domain)", "files.example.com (custom domain)"];
    machine.host = "files.example.com";
    machine.teams.push({ _id: "stranger", name: "My team mates", keys: [] });
    await deploy(machine, {});
    expect(machine.lines.join()).toContain("Stowage runs at https://files.example.com");
    expect(machine.state.teams).toEqual([0, 1]);
  });

  test.each<[string | undefined, string]>([
    ["weur", "aws:eu-west-2"],
    ["oc", "aws:ap-southeast-2"],
    // D1 chose.
    [undefined, "aws:us-east-1"],
  ])("with --location %s places the Worker near its database: %s", async (location, region) => {
    const machine = new FakeMachine(folder);
    await deploy(machine, { location });
    const place = location ?? "enam";
    expect([...machine.api.databases.values()]).toMatchObject([{ region: place.toUpperCase() }]);
    const line = `Placement: ${region}, near the database in ${place}`;
    expect(machine.lines).toContain(`${line}. Set in wrangler.toml: commit it`);
    expect(configOf(machine.config).placement).toEqual({ region });
    // Everything else is as it was.
    expect(machine.config.replace(`region = "${region}"`, 'mode = "smart"')).toBe(original);
    await deploy(machine, {});
    expect(machine.lines).toContain(line);
  });

  test("uses the regions that the operations manual lists", () => {
    const manual = readFileSync(join(root, "src/OPERATIONS.md"), "utf8");
    const listed = [...manual.matchAll(/^\| `(\w+)` \| `(aws:[\w-]+)` \|$/gm)].map(([, hint, region]) => [
      hint,
      region,
    ]);
    expect(Object.fromEntries(listed)).toEqual(REGIONS);
  });

  test("places the Worker where the database is, and not where --location would create one", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, { location: "apac" });
    await deploy(machine, { location: "weur" });
    expect(machine.lines).toContain("Placement: aws:ap-southeast-1, near the database in apac, which can't be moved");
    expect(configOf(machine.config).placement).toEqual({ region: "aws:ap-southeast-1" });
  });

  test("plans the location of the database and the region of the Worker, and writes nothing", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, { isDryRun: true, location: "weur" });
    await deploy(machine, { isDryRun: true });
    expect(machine.lines).toContain('Database "stowage": to create, in weur');
    expect(machine.lines.filter((line) => line.startsWith("Placement"))).toEqual([
      "Placement: aws:eu-west-2, near the database in weur",
      "Placement: near the database. D1 did not report its location",
    ]);
    machine.api.call("POST /d1/database", { name: "stowage", primary_location_hint: "wnam" });
    await deploy(machine, { isDryRun: true });
    expect(machine.lines).toContain("Placement: aws:us-west-1, near the database in wnam");
    expect(machine.config).toBe(original);
  });

  test("plans, with a login, which account it is, what exists and what it will create", async () => {
    const machine = new FakeMachine(folder);
    machine.api.call("POST /queues", { queue_name: "stowage-jobs" });
    await deploy(machine, { isDryRun: true });
    const before = machine.lines.splice(0);
    expect(before).toEqual(
      expect.arrayContaining([
        `Account: Ada's account (${ACCOUNT})`,
        'Database "stowage": to create',
        'Bucket "stowage-files": to create',
        'Queue "stowage-jobs": exists',
        'Queue "stowage-bulk": to create',
        `Secrets: generate, into ${machine.secretsFile}`,
        "Nothing was changed.",
      ]),
    );
    expect(machine.state).toMatchObject({ databases: [], buckets: [], queues: ["stowage-jobs"], secrets: [] });
    await deploy(machine, {});
    machine.lines.length = 0;
    await deploy(machine, { isDryRun: true });
    expect(machine.lines.filter((line) => /^(Database|Bucket|Queue)/.test(line))).toEqual([
      ...['Database "stowage": exists', 'Bucket "stowage-files": exists'],
      ...["jobs", "bulk", "waveforms", "recovery", "jobs-dead"].map((name) => `Queue "stowage-${name}": exists`),
    ]);
    expect(machine.lines).toContain("Secrets: kept, as the Worker has them");
  });

  test("plans, without knowing what exists, if Cloudflare does not say", async () => {
    const machine = new FakeMachine(folder);
    const wrangler: Wrangler = async (args, env) =>
      /^(r2|queues)/.test(args[0] ?? "")
        ? { code: 1, stdout: "", output: "A request failed.\nInternal error [code: 500]" }
        : machine.wrangler(args, env);
    await deploy({ ...machine, wrangler }, { isDryRun: true });
    expect(machine.lines).toContain(
      'Bucket "stowage-files": unknown, because Cloudflare did not answer: Internal error [code: 500]',
    );
  });

  test("plans the lines that an environment adds to wrangler.toml", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, { environment: "staging", isDryRun: true });
    const [plan = ""] = machine.lines;
    expect(plan).toMatch(/^wrangler\.toml: environment "staging" to add:\n\+ # The environment "staging"/);
    const added = plan
      .split("\n")
      .slice(1)
      .filter((line) => line !== "")
      .map((line) => line.replace(/^\+ ?/, ""));
    expect(`${original.trimEnd()}\n\n${added.join("\n")}\n`).toBe(addEnvironment(original, "staging"));
    expect(machine.config).toBe(original);
  });

  test("without a login says how to log in before it writes anything, and plans what it can", async () => {
    const machine = new FakeMachine(folder);
    const wrangler: Wrangler = async (args, env) =>
      args[0] === "whoami"
        ? { code: 1, stdout: '{"loggedIn":false}', output: '{"loggedIn":false}' }
        : machine.wrangler(args, env);
    const loggedOut = { ...machine, wrangler };
    for (const env of [{}, { CLOUDFLARE_ACCOUNT_ID: ACCOUNT }]) {
      const deploying = deploy({ ...loggedOut, env }, { environment: "staging" });
      await expect(deploying).rejects.toThrow(/^Not logged in, so nothing was changed\. Run `npx wrangler login`/);
    }
    expect([machine.config, machine.commands]).toEqual([original, []]);
    await deploy(loggedOut, { isDryRun: true });
    expect(machine.lines).toContain("Account: unknown, because you are not logged in");
    expect(machine.lines).toContain('Database "stowage": create if it is missing');
    expect(machine.commands).toEqual(["deploy --dry-run"]);
  });

  test("keeps the package of each deployed client in the bucket", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, {});
    machine.client = "1.1.0-ba9876543210";
    await deploy(machine, {});
    expect(machine.lines).toContain("Client: /client-1.1.0-ba9876543210.tgz");
    expect([...machine.objects]).toEqual([
      ["stowage-files/stowage/client-1.0.0-0123456789ab.tgz", "1.0.0-0123456789ab"],
      ["stowage-files/stowage/client-1.1.0-ba9876543210.tgz", "1.1.0-ba9876543210"],
    ]);
  });

  test("needs no list of accounts if the account and an API token are set", async () => {
    const machine = new FakeMachine(folder);
    machine.env = { CLOUDFLARE_ACCOUNT_ID: ACCOUNT, CLOUDFLARE_API_TOKEN: "token" };
    await deploy(machine, {});
    expect(machine.lines).toContain(`Account: ${ACCOUNT}`);
    expect(machine.commands).not.toContain("whoami --json");
  });

  test("names the settings that differ between environments, in both directions and without their values", async () => {
    const text = addEnvironment(original, "staging")
      .replace(
        'TRASH_DAYS = "0"',
        'TRASH_DAYS = "30"\nEMAIL_FROM = "accounts@example.com"\nPUBLIC_URL = "https://staging.example.com"',
      )
      .replace("[[d1_databases]]", '[[send_email]]\nname = "EMAIL"\n\n$&')
      .replace("limit = 10,", "limit = 20,");
    const machine = new FakeMachine(folder, text);
    const settings = "EMAIL_FROM (only there), [[send_email]] EMAIL (only there)";
    await deploy(machine, { environment: "staging", isDryRun: true });
    expect(machine.lines[0]).toBe(
      `Note: settings differ from the default environment: TRASH_DAYS, [[ratelimits]] LOGIN_LIMIT, ${settings}`,
    );
    machine.lines.length = 0;
    await deploy(machine, { isDryRun: true });
    expect(machine.lines[0]).toBe(
      'Note: settings differ from the environment "staging": TRASH_DAYS, EMAIL_FROM (only here), [[send_email]] EMAIL (only here), [[ratelimits]] LOGIN_LIMIT',
    );
    expect(machine.lines.join()).not.toContain("accounts@example.com");
    const [first, staging] = [
      configOf(addEnvironment(original, "staging")),
      configOf(addEnvironment(original, "staging"), "staging"),
    ];
    expect([...describeDrift(first, staging), ...describeDrift(staging, first)]).toEqual([]);
  });

  test("calls the first team by a name that visitors may see, and says who can change it", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, {});
    expect(machine.teams.map(({ name }) => name)).toEqual(["My team"]);
    expect(machine.lines.join("\n")).toContain("The operator renames it on the page Teams of the console.");
  });

  test("keeps a placement that somebody chose, and the default one if D1 does not report the location of the database", async () => {
    const chosen = changed([['mode = "smart"', 'region = "gcp:europe-west9"']]);
    const machine = new FakeMachine(folder, chosen);
    await deploy(machine, { location: "weur" });
    expect(machine.lines).toContain("Placement: gcp:europe-west9, as wrangler.toml says");
    expect(machine.config).toBe(chosen);
    const silent = new FakeMachine(folder);
    silent.api.isRegionReported = false;
    await deploy(silent, {});
    expect(silent.lines).toContain("Placement: smart, because D1 does not report the location of the database");
    expect(silent.config).toBe(original);
  });

  test("places an environment near its own database", async () => {
    const machine = new FakeMachine(folder);
    await deploy(machine, { location: "weur" });
    machine.host = "stowage-staging.acme.workers.dev";
    machine.targets = [`https://${machine.host}`];
    await deploy(machine, { environment: "staging", location: "oc" });
    expect(configOf(machine.config).placement).toEqual({ region: "aws:eu-west-2" });
    expect(configOf(machine.config, "staging").placement).toEqual({ region: "aws:ap-southeast-2" });
  });

  test("by Workers Builds needs no secrets file, creates no team, and says how to begin", async () => {
    const machine = new FakeMachine(folder);
    machine.env = { CI: "true", WORKERS_CI: "1" };
    await deploy(machine, { isDryRun: true });
    expect(machine.lines).toContain("Secrets: those in the dashboard");
    expect(machine.lines).toContain("First team: create in the console");
    const entered = { MASTER_KEY: "entered", OPERATOR_TOKEN: "entered" };
    machine.api.secrets = entered;
    await deploy(machine, {});
    expect(machine.state).toEqual({ ...COMPLETE, teams: [] });
    expect(machine.api.secrets).toBe(entered);
    expect(existsSync(machine.secretsFile)).toBe(false);
    const text = machine.lines.join("\n");
    expect(text).toContain("Console: https://stowage.acme.workers.dev/console");
    expect(text).toContain("Sign in to the console with the OPERATOR_TOKEN that you entered");
    // The database that Cloudflare created may have another name.
    expect(machine.commands).toContain("d1 migrations apply DB --remote");
  });

  test("names the secrets if the Worker rejects their example values", async () => {
    const machine = new FakeMachine(folder);
    machine.env = { CI: "true", WORKERS_CI: "1" };
    machine.api.secrets = {};
    const fetch = async () => Response.json({ code: "unavailable" }, { status: 503 });
    await expect(deploy({ ...machine, fetch, wrangler: machine.wrangler }, {})).rejects.toThrow(
      /stowage\.acme\.workers\.dev\/health: 503 .*MASTER_KEY or OPERATOR_TOKEN has the example value/s,
    );
  });

  test("generates no secrets on a CI machine", async () => {
    const machine = new FakeMachine(folder);
    machine.env = { CI: "true" };
    await expect(deploy(machine, {})).rejects.toThrow("Run it on your own machine.");
    expect(machine.api.secrets).toBe(null);
  });

  test.each([
    ["Authentication error [code: 10000]", "npx wrangler login"],
    ["it's necessary to set a CLOUDFLARE_API_TOKEN environment variable", "npx wrangler login"],
    ["Please enable R2 through the Cloudflare Dashboard. [code: 10042]", "Subscribe to R2"],
    ["CPU limits are not supported for the Free plan. [code: 100328]", "Subscribe to Workers Paid"],
    ["The following required secrets have not been set: MASTER_KEY", "Settings > Variables and Secrets"],
    ["You need to register a workers.dev subdomain", "Open Workers in the dashboard once"],
    ["Internal error [code: 500]", "wait if Cloudflare has an outage"],
  ])("names the remedy for: %s", async (output, remedy) => {
    const machine = new FakeMachine(folder);
    const wrangler = async () => ({ code: 1, stdout: "", output });
    await expect(deploy({ ...machine, wrangler }, {})).rejects.toThrow(remedy);
  });

  test("asks for the account if the login has several", async () => {
    const machine = new FakeMachine(folder);
    const accounts = JSON.stringify({ accounts: ["a", "b"].map((id) => ({ id, name: `Account ${id}` })) });
    const wrangler = async () => ({ code: 0, stdout: accounts, output: accounts });
    await expect(deploy({ ...machine, wrangler }, {})).rejects.toThrow(/CLOUDFLARE_ACCOUNT_ID.*\n {2}a {2}Account a/s);
  });
});

describe("The Deploy button", () => {
  const text = (name: string) => readFileSync(join(root, name), "utf8");
  const { vars, secrets, d1_databases, r2_buckets, queues } = configOf(original);

  test("creates every queue, because each has a producer", () => {
    const { producers = [], consumers = [] } = queues;
    const used = consumers.flatMap(({ queue, dead_letter_queue: dead }) => [queue, ...(dead ? [dead] : [])]);
    expect([...new Set(used)].sort()).toEqual(producers.map(({ queue }) => queue).sort());
  });

  test("asks for every required secret", () => {
    expect(Object.keys(parseEnv(text(".dev.vars.example"))).sort()).toEqual([...(secrets?.required ?? [])].sort());
  });

  test("describes every secret, setting and resource that it asks for", () => {
    const resources = [...d1_databases, ...r2_buckets, ...(queues.producers ?? [])].map(({ binding }) => binding);
    const asked = [...(secrets?.required ?? []), ...Object.keys(vars), ...resources];
    const described = JSON.parse(text("package.json")).cloudflare.bindings;
    expect(Object.keys(described).sort()).toEqual(asked.sort());
    for (const { description } of Object.values<{ description: string }>(described)) expect(description).toMatch(/\.$/);
  });
});
