import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { StowageError } from "../client/index.ts";
import { CLIENT_KEYS } from "../http/pages.ts";
import { type DeployConfig, describeDrift, findConfigProblems, readDeployConfig } from "./check-deploy.ts";
import { addEnvironment, environmentsIn, linesOfEnvironment, setRegion } from "./environment.ts";
import { ensureFirstKey, newSecrets } from "./first-start.ts";
import { describePlacement, isReplaceable, locationOf, REGIONS } from "./placement.ts";
import { messageOf, Refusal } from "./refusal.ts";
import type { Wrangler, WranglerResult } from "./wrangler.ts";

/*
 * A deployment in steps. Each step recognizes the work of an earlier run, so a run that failed can be repeated. Resources are
 * created by name, and their names are unique in an account, so nothing is created twice.
 */

/** The machine that a deployment runs on. Tests replace it. */
export interface Machine {
  /** The project's folder. */
  root: string;
  /** The folder for secrets and the first key, outside the repository. */
  home: string;
  env: Record<string, string | undefined>;
  wrangler: Wrangler;
  fetch: typeof fetch;
  sleep(milliseconds: number): Promise<unknown>;
  print(line: string): void;
}

export interface DeployOptions {
  /** An environment of wrangler.toml. It is added if it is missing. */
  environment?: string | undefined;
  /** A location hint for the database and the bucket, such as `weur`. */
  location?: string | undefined;
  isDryRun?: boolean | undefined;
}

/** A new workers.dev host name takes some seconds to work. */
const START_MILLISECONDS = 90_000;
const POLL_MILLISECONDS = 2000;

const AGAIN = "Then run `npm run deploy` again. It continues where it stopped, and creates nothing twice.";
/** Remedies for errors of Cloudflare that a first deployment often meets. */
const REMEDIES: [RegExp, string][] = [
  [
    /not authenticated|not logged in|CLOUDFLARE_API_TOKEN environment variable|code: (10000|10001|7403|9106|9109)\]/i,
    "Run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN to a token with the permissions in src/OPERATIONS.md.",
  ],
  [/code: 10042\]|enable R2/i, "Subscribe to R2 in the dashboard (https://dash.cloudflare.com/?to=/:account/r2)."],
  [
    /code: 100328\]|paid plan/i,
    "Subscribe to Workers Paid (https://dash.cloudflare.com/?to=/:account/workers/plans): hashing a password takes 0.1 s of CPU.",
  ],
  [
    /required secrets have not been set/i,
    "Set MASTER_KEY and OPERATOR_TOKEN in the dashboard, under Settings > Variables and Secrets of the Worker.",
  ],
  [
    /\/health: 503/,
    "The Worker is deployed, but something fails: its log shows the cause. If MASTER_KEY or OPERATOR_TOKEN has the example value, replace it in the dashboard, under Settings > Variables and Secrets of the Worker.",
  ],
  [
    /workers\.dev subdomain/i,
    "Open Workers in the dashboard once, which registers a workers.dev subdomain (https://dash.cloudflare.com/?to=/:account/workers-and-pages).",
  ],
];

/** @returns an error with wrangler's output and the remedy */
function failure(step: string, output: string): Refusal {
  const [, remedy = "Fix the error above, or wait if Cloudflare has an outage."] =
    REMEDIES.find(([pattern]) => pattern.test(output)) ?? [];
  return new Refusal(`${output.trim()}\n\n${step} failed. ${remedy} ${AGAIN}`);
}

/** Whether Cloudflare's own CI runs it, as for repositories of the Deploy button. The dashboard holds their secrets. */
const isWorkersBuild = ({ env }: Machine): boolean => Boolean(env.WORKERS_CI);
const DASHBOARD_SECRETS = "Secrets: those in the dashboard";

/** Runs all steps. @throws Refusal with the remedy */
export async function deploy(machine: Machine, options: DeployOptions): Promise<void> {
  const { environment, location, isDryRun } = options;
  const { print, wrangler } = machine;
  if (location !== undefined && !Object.hasOwn(REGIONS, location))
    throw new Refusal(`--location must be one of ${Object.keys(REGIONS).join(", ")}.`);
  const { config, text, added } = configure(machine, options);
  const target = environment ? ["--env", environment] : [];
  const hint = location ? ["--location", location] : [];
  const account = await findAccount(machine, config);
  if (isDryRun) {
    if (added !== "")
      print(`wrangler.toml: environment "${environment}" to add:\n${added.trimEnd().replace(/^/gm, "+ ")}\n`);
    await printPlan(machine, config, options, account);
    return;
  }

  if (!account) throw new Refusal(NO_LOGIN);
  if (added !== "") {
    writeFileSync(join(machine.root, "wrangler.toml"), text);
    print(`wrangler.toml: environment "${environment}" added. Commit it`);
  }
  const run = inAccount(wrangler, account);
  const folder = join(machine.home, account.id, config.name);
  print(`Account: ${describeAccount(account)}`);

  const resources = resourcesOf(config);
  for (const { kind, name, create } of resources) {
    const { code, output } = await run([...create, ...(kind === "Queue" ? [] : hint)]);
    const isKept = code !== 0 && /already (exists|taken)/i.test(output);
    if (code !== 0 && !isKept) throw failure(`Creating the ${kind.toLowerCase()} "${name}"`, output);
    print(`${kind} "${name}": ${isKept ? "kept" : "created"}`);
  }

  print(await placeWorker(machine, config, options, run));

  const secretsFile = join(folder, "secrets.json");
  const secrets = isWorkersBuild(machine)
    ? { isNew: false, line: DASHBOARD_SECRETS }
    : await prepareSecrets(machine, secretsFile, await run(["secret", "list", ...target]));
  print(secrets.line);

  for (const { binding, database_name: name } of config.d1_databases) {
    const migrated = await run(["d1", "migrations", "apply", binding, "--remote", ...target]);
    if (migrated.code !== 0) throw failure(`Applying the migrations of "${name}"`, migrated.output);
    const done = /No migrations to apply/.test(migrated.output) ? "none to apply" : "applied";
    print(`Migrations${config.d1_databases.length === 1 ? "" : ` of "${name}"`}: ${done}`);
  }

  const linkHost = config.vars.LINK_HOST;
  const url = await upload((args, env) => run([...args, ...target], env), secrets.isNew ? secretsFile : null, linkHost);
  print(`Worker "${config.name}": deployed`);
  await keepClient(machine, config, run);
  await waitUntilHealthy(machine, url);
  print("Health: database, bucket and queues respond");
  print(`\nStowage runs at ${url}\n\nConsole: ${url}/console\nAPI reference: ${url}/reference\n`);
  if (isWorkersBuild(machine))
    print("Sign in to the console with the OPERATOR_TOKEN that you entered, and create the first team.");
  else await printAccess(machine, url, secretsFile, folder, config.d1_databases.length);
}

/**
 * Sets `[placement]` of wrangler.toml to the region of the database, which may differ from the location hint: the hint
 * applies only to new databases. Keeps any placement that no deployment sets.
 */
async function placeWorker(
  { root, wrangler }: Machine,
  config: DeployConfig,
  { environment, location }: DeployOptions,
  run: Wrangler = wrangler,
): Promise<string> {
  const { placement } = config;
  if (!isReplaceable(placement)) return `Placement: ${describePlacement(placement)}, as wrangler.toml says`;
  const asked = await askLocation(config, run);
  if (asked.code !== 0) throw failure("Reading the location of the database", asked.output);
  const actual = asked.location ?? location;
  const region = REGIONS[actual ?? ""];
  if (!region)
    return `Placement: ${describePlacement(placement)}, because D1 does not report the location of the database`;
  const isElsewhere = location && actual !== location;
  const where = `${region}, near the database in ${actual}${isElsewhere ? ", which can't be moved" : ""}`;
  if (placement?.region === region) return `Placement: ${where}`;
  const file = join(root, "wrangler.toml");
  writeFileSync(file, setRegion(readFileSync(file, "utf8"), region, environment));
  return `Placement: ${where}. Set in wrangler.toml: commit it`;
}

/** Asks D1 for the location of the database. It is null if D1 doesn't report it, or there is no database. */
async function askLocation(config: DeployConfig, run: Wrangler) {
  const name = config.d1_databases.find(({ binding }) => binding === "DB")?.database_name ?? "DB";
  const reply = await run(["d1", "execute", name, "--remote", "--json", "--command", "select 1"]);
  return { ...reply, location: reply.code === 0 ? locationOf(reply.stdout) : null };
}

/** Reads wrangler.toml with the environment, which may be missing, checks the result, and writes nothing. */
function configure({ root, print }: Machine, { environment }: DeployOptions) {
  const file = join(root, "wrangler.toml");
  if (environment && !/^[a-z0-9-]{1,30}$/.test(environment)) {
    throw new Refusal("--env must have 1 to 30 lower-case letters, digits or hyphens.");
  }
  const before = readFileSync(file, "utf8");
  const text = environment ? addEnvironment(before, environment) : before;
  const folder = mkdtempSync(join(tmpdir(), "stowage-"));
  try {
    const copy = join(folder, "wrangler.toml");
    writeFileSync(copy, text);
    const config = readDeployConfig(copy, environment);
    const problems = findConfigProblems(config);
    if (problems.length > 0) throw new Refusal(["Not deployed. Correct wrangler.toml:", ...problems].join("\n- "));
    const others = environment ? [undefined] : environmentsIn(text);
    for (const line of others.flatMap((other) => describeDrift(config, readDeployConfig(copy, other)))) print(line);
    return { config, text, added: environment ? linesOfEnvironment(before, environment) : "" };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Resource {
  kind: "Database" | "Bucket" | "Queue";
  name: string;
  create: string[];
  /** A command that changes nothing, and fails if the resource is missing. */
  find: string[];
}

function resourcesOf({ queues, d1_databases, r2_buckets }: DeployConfig): Resource[] {
  const { producers = [], consumers = [] } = queues;
  const queueNames = new Set([...producers, ...consumers].map(({ queue }) => queue));
  return [
    ...d1_databases.map(({ database_name: name }) => ({
      kind: "Database" as const,
      name,
      create: ["d1", "create", name],
      find: ["d1", "execute", name, "--remote", "--json", "--command", "select 1"],
    })),
    ...r2_buckets.map(({ bucket_name: name }) => ({
      kind: "Bucket" as const,
      name,
      create: ["r2", "bucket", "create", name],
      find: ["r2", "bucket", "lifecycle", "list", name],
    })),
    ...[...queueNames].map((name) => ({
      kind: "Queue" as const,
      name,
      create: ["queues", "create", name],
      find: ["queues", "info", name],
    })),
  ];
}

/** Cloudflare's answers about a database, a bucket or a queue that does not exist. */
const MISSING = /couldn't find|does(?: not|n't) exist|not found|code: (?:7404|10006|11000)\]/i;

async function planResource(resource: Resource, run: Wrangler, place: string): Promise<string> {
  const { code, output } = await run(resource.find);
  if (code === 0) return "exists";
  return MISSING.test(output) ? `to create${place}` : `unknown, because Cloudflare did not answer: ${lastLine(output)}`;
}

const lastLine = (output: string): string => output.trim().split("\n").at(-1) ?? "";

/** Prints what a deployment would do. Without a login, what exists is unknown. */
async function printPlan(
  machine: Machine,
  config: DeployConfig,
  { environment, location }: DeployOptions,
  account: Account | null,
): Promise<void> {
  const { home, print, wrangler } = machine;
  const target = environment ? ["--env", environment] : [];
  const run = account && inAccount(wrangler, account);
  print(`Account: ${account ? describeAccount(account) : "unknown, because you are not logged in"}`);
  for (const resource of resourcesOf(config)) {
    const place = location && resource.kind !== "Queue" ? `, in ${location}` : "";
    const plan = run ? await planResource(resource, run, place) : `create if it is missing${place}`;
    print(`${resource.kind} "${resource.name}": ${plan}`);
  }
  const secretsFile = join(home, account?.id ?? "ACCOUNT_ID", config.name, "secrets.json");
  const listed = run && (await run(["secret", "list", ...target]));
  const hasSecrets = listed && areDeployed(listed);
  if (isWorkersBuild(machine)) print(DASHBOARD_SECRETS);
  else if (hasSecrets) print(KEPT_SECRETS);
  else if (existsSync(secretsFile)) print(`Secrets: from ${secretsFile}`);
  else
    print(
      `Secrets: generate${listed && NO_WORKER.test(listed.output) ? "" : " if the Worker has none"}, into ${secretsFile}`,
    );
  print(`Placement: ${await planPlacement(config, location, run)}`);
  print("Migrations: apply the missing ones");
  const { code, output } = await wrangler(["deploy", "--dry-run", ...target]);
  if (code !== 0) throw failure("Building the Worker", output);
  print(`Worker "${config.name}": builds, deploy`);
  print(`First team: ${isWorkersBuild(machine) ? "create in the console" : "create if there is none"}`);
  print("Nothing was changed.");
}

async function planPlacement(
  config: DeployConfig,
  location: string | undefined,
  run: Wrangler | null,
): Promise<string> {
  if (!isReplaceable(config.placement)) return `${describePlacement(config.placement)}, as wrangler.toml says`;
  const actual = (run && (await askLocation(config, run)).location) ?? location;
  const region = REGIONS[actual ?? ""];
  return region ? `${region}, near the database in ${actual}` : "near the database. D1 did not report its location";
}

interface Account {
  id: string;
  /** Unknown if the id is set and the login is a token, which may not be allowed to read it. */
  name?: string | undefined;
}

const describeAccount = ({ id, name }: Account): string => (name ? `${name} (${id})` : id);

const inAccount =
  (wrangler: Wrangler, { id }: Account): Wrangler =>
  (args, env = {}) =>
    wrangler(args, { CLOUDFLARE_ACCOUNT_ID: id, ...env });

const NO_LOGIN =
  "Not logged in, so nothing was changed. Run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN to a token with the permissions in src/OPERATIONS.md.";

/** @returns null if not logged in */
async function findAccount({ env, wrangler }: Machine, config: DeployConfig): Promise<Account | null> {
  const known = env.CLOUDFLARE_ACCOUNT_ID || config.account_id;
  if (known && env.CLOUDFLARE_API_TOKEN) return { id: known };
  const { code, stdout, output } = await wrangler(["whoami", "--json"]);
  if (/"loggedIn":\s*false/.test(stdout)) return null;
  if (code !== 0) throw failure("Reading the account", output);
  const { accounts = [] } = JSON.parse(stdout) as { accounts?: { id: string; name: string }[] };
  if (known) return accounts.find(({ id }) => id === known) ?? { id: known };
  const [account, ...others] = accounts;
  if (!account) return null;
  if (others.length === 0) return account;
  const lines = accounts.map(({ id, name }) => `\n  ${id}  ${name}`).join("");
  throw new Refusal(`Your login has several accounts. Set CLOUDFLARE_ACCOUNT_ID to one of them:${lines}`);
}

/** Matches the error of `wrangler secret list` before the first deployment. */
const NO_WORKER = /Worker "[^"]*"(?: \(env: [^)]*\))? not found\./;

const KEPT_SECRETS = "Secrets: kept, as the Worker has them";
const areDeployed = ({ code, stdout }: WranglerResult): boolean => code === 0 && stdout.includes('"MASTER_KEY"');

/**
 * Secrets that the Worker has are never replaced: a new master key would make stored tokens unreadable. The file is
 * written before anything is deployed, and never overwritten.
 */
async function prepareSecrets({ env }: Machine, file: string, listed: WranglerResult) {
  if (areDeployed(listed)) return { isNew: false, line: KEPT_SECRETS };
  if (listed.code !== 0 && !NO_WORKER.test(listed.output)) throw failure("Listing the secrets", listed.output);
  if (existsSync(file)) return { isNew: true, line: `Secrets: from ${file}` };
  if (env.CI) {
    throw new Refusal(
      "The first deployment generates secrets, which a CI machine would lose. Run it on your own machine.",
    );
  }
  const secrets = newSecrets();
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, `${JSON.stringify(secrets, null, 2)}\n`, { mode: 0o600, flush: true });
  // Unlike a rename, a link fails if the file exists, and it appears with all its content.
  linkSync(draft, file);
  rmSync(draft);
  return { isNew: true, line: `Secrets: generated into ${file}. Keep a copy in a safe place` };
}

/** Deploys the Worker, the first time with its secrets. @returns its URL: a custom domain, or its workers.dev host */
async function upload(run: Wrangler, secretsFile: string | null, linkHost: unknown): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "stowage-"));
  const report = join(folder, "report");
  try {
    const args = secretsFile === null ? ["deploy"] : ["deploy", "--secrets-file", secretsFile];
    const { code, output } = await run(args, { WRANGLER_OUTPUT_FILE_PATH: report });
    if (code !== 0) throw failure("Deploying the Worker", output);
    const lines = readFileSync(report, "utf8").trim().split("\n");
    const { targets = [] } = lines.map((line) => JSON.parse(line)).find(({ type }) => type === "deploy") ?? {};
    const hosts = (targets as string[]).map((one) =>
      /^(?:https:\/\/)?([\w.-]+\.[a-z]+)(?: \(custom domain\))?$/.exec(one),
    );
    // The link host serves nothing but links.
    const names = hosts.flatMap((host) => host?.[1] ?? []).filter((name) => name !== linkHost);
    const [host] = [...names.filter((name) => !name.endsWith(".workers.dev")), ...names];
    if (!host)
      throw failure(
        "Finding the URL of the Worker",
        `${output}\nThe Worker has no workers.dev host and no custom domain.`,
      );
    return `https://${host}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Keeps the package of the deployed client in the bucket. Once the next deployment brings another one, the address of this
 * one still works in the lock files of those who installed it.
 */
async function keepClient({ root, print }: Machine, config: DeployConfig, run: Wrangler): Promise<void> {
  const folder = join(root, ".wrangler/console");
  const name = readdirSync(folder).find((file) => file.endsWith(".tgz")) ?? "";
  const bucket = config.r2_buckets.find(({ binding }) => binding === "BUCKET")?.bucket_name;
  const { code, output } = await run([
    ...["r2", "object", "put", `${bucket}/${CLIENT_KEYS}${name}`, "--file", join(folder, name)],
    ...["--content-type", "application/gzip", "--remote"],
  ]);
  if (code !== 0) throw failure("Storing the client's package", output);
  print(`Client: /${name}`);
}

async function waitUntilHealthy({ fetch, sleep }: Machine, url: string): Promise<void> {
  let problem = "";
  for (let waited = 0; waited < START_MILLISECONDS; waited += POLL_MILLISECONDS) {
    try {
      const response = await fetch(new URL("/health", url), { redirect: "error" });
      if (response.ok) return;
      problem = `${response.status} ${await response.text()}`;
    } catch (error) {
      problem = String(error);
    }
    await sleep(POLL_MILLISECONDS);
  }
  throw failure("Reaching the Worker", `${url}/health: ${problem}`);
}

/** Creates the first team, and prints how to use the service. */
async function printAccess(
  { fetch, print }: Machine,
  url: string,
  secretsFile: string,
  folder: string,
  databases: number,
): Promise<void> {
  if (!existsSync(secretsFile)) {
    print("The first deployment created the first team and key, on the machine that has the secrets file.");
    return;
  }
  const { OPERATOR_TOKEN } = JSON.parse(readFileSync(secretsFile, "utf8"));
  const { key, teamId } = await ensureFirstKey(url, OPERATOR_TOKEN, folder, fetch).catch((error: unknown) => {
    throw error instanceof StowageError ? failure("Creating the first key", messageOf(error)) : error;
  });
  print(`Your secret key: ${key}\nTeam ID: ${teamId}\nOperator token: OPERATOR_TOKEN in ${secretsFile}\n`);
  print(
    "Visitors of share pages see the name of the team. The operator renames it on the page Teams of the console.\n",
  );
  const token = `OPERATOR_TOKEN="$(node -p 'require("${secretsFile}").OPERATOR_TOKEN')"`;
  print(`Verify the deployment:\n\n  ${databases === 1 ? `STOWAGE_KEY=${key}` : token} npm run smoke -- ${url}\n`);
}
