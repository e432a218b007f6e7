/**
 * `npm run dev` runs the whole service on this machine, without an account or the network. Data, secrets, and API key
 * survive restarts. PORT (8787) and STATE_DIR (.wrangler/state) set port and folder;
 * `npm run dev -- --var UPLOAD_IDLE_SECONDS:5` overrides a setting.
 */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { parseArgs, promisify } from "node:util";
import { StowageError } from "../client/index.ts";
import { ensureFirstKey, prepareSecrets } from "./first-start.ts";
import { findMissingMigrations } from "./migrations.ts";
import { messageOf, Refusal } from "./refusal.ts";

const root = join(import.meta.dirname, "../..");
const config = join(root, "wrangler.toml");
const port = process.env.PORT || "8787";
const url = `http://localhost:${port}`;
const stateDir = resolve(process.env.STATE_DIR || join(root, ".wrangler/state"));
const RECOVERY_MILLISECONDS = 5 * 60 * 1000;
const PARENT_POLL_MILLISECONDS = 250;
let stop: () => void = () => process.exit();

// Wrangler reads these when it is loaded. Otherwise it prints irrelevant warnings and uses the network.
Object.assign(process.env, {
  WRANGLER_LOG: "error",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_WRITE_LOGS: "false",
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
});
// The build of the pages adds the demonstration of the upload element, and writes to `console-dev`.
process.env.STOWAGE_DEMO = "true";

function fail(error: unknown): never {
  console.error(error instanceof Refusal || error instanceof StowageError ? messageOf(error) : error);
  process.exit(1);
}

async function checkPort(): Promise<void> {
  if (!/^\d{1,5}$/.test(port) || +port < 1 || +port > 65_535)
    throw new Refusal(`PORT is "${port}"; it must be 1 to 65535.`);
  const probe = createServer().listen(+port, "localhost");
  await once(probe, "listening").catch(({ code }) => {
    const problem = code === "EADDRINUSE" ? "is in use" : `can't be opened (${code})`;
    throw new Refusal(
      `Port ${port} ${problem}. Choose another one, and other data: PORT=8788 STATE_DIR=.wrangler/second npm run dev`,
    );
  });
  probe.close();
}

/** Returns whether the local databases have all migrations. Wrangler would take seconds to find out. */
function areMigrated(numbers: number[]): boolean {
  const folder = join(stateDir, "v3/d1/miniflare-D1DatabaseObject");
  if (!existsSync(folder)) return false;
  const files = readdirSync(folder).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name));
  // Only wrangler knows which of more databases are ours.
  if (files.length > numbers.length) return false;
  const missing = files.flatMap((file) =>
    findMissingMigrations(join(folder, file), join(root, "migrations"), stateDir, numbers),
  );
  return files.length === numbers.length && missing.length === 0;
}

/** @throws Refusal if the data in the state folder can't be used, or a migration fails */
async function migrate(): Promise<void> {
  // Imports wrangler, which must find its settings above.
  const { readDeployConfig } = await import("./check-deploy.ts");
  const { databaseBindings } = await import("../platform/db.ts");
  const bindings = readDeployConfig(config, undefined).d1_databases.map(({ binding }) => binding);
  const numbers = databaseBindings(Object.fromEntries(bindings.map((binding) => [binding, null])));
  if (areMigrated(numbers.map(([number]) => number))) return;
  const wrangler = join(root, "node_modules/wrangler/bin/wrangler.js");
  const env = { ...process.env, WRANGLER_LOG: "log" };
  for (const binding of bindings) {
    const args = ["d1", "migrations", "apply", binding, "--local", "--config", config, "--persist-to", stateDir];
    await promisify(execFile)(process.execPath, [wrangler, ...args], { env }).catch(({ stdout, stderr }) => {
      throw new Refusal(`${stdout}${stderr}Couldn't apply the migrations.`);
    });
  }
}

async function startWorker(vars: Record<string, string>, log: (level: string, line: string) => void): Promise<void> {
  const { unstable_DevEnv } = await import("wrangler");
  const wrangler = new unstable_DevEnv();
  wrangler.on("error", fail);
  // After a failed first build, wrangler would wait forever. After later ones, it waits for the next change.
  wrangler.on("buildFailed", () => fail(new Refusal("The build failed.")));
  const started = wrangler.startWorker({
    config,
    assets: join(root, ".wrangler/console-dev"),
    bindings: Object.fromEntries(Object.entries(vars).map(([name, value]) => [name, { type: "plain_text", value }])),
    dev: {
      server: { hostname: "localhost", port: +port },
      persist: stateDir,
      watch: true,
      inspector: false,
      structuredLogsHandler: ({ level = "", message = "" }) => log(level, message),
    },
  });
  await Promise.all([started, once(wrangler, "reloadComplete")]);
  wrangler.removeAllListeners("buildFailed");
  // Replace wrangler's own handlers, which exit with an error code.
  stop = () => void wrangler.teardown().finally(() => process.exit());
  for (const signal of ["SIGINT", "SIGTERM"]) process.removeAllListeners(signal).on(signal, stop);
}

/** Stops when npm exits: the shell between npm and this process does not forward signals. */
function stopWithNpm(): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    stop();
  }, PARENT_POLL_MILLISECONDS);
}

async function main(): Promise<void> {
  const { values, tokens } = parseArgs({
    options: { var: { type: "string", multiple: true } },
    strict: false,
    tokens: true,
  });
  for (const token of tokens) {
    if (token.kind === "option" && token.name !== "var") console.error(`Ignored the unknown option ${token.rawName}.`);
  }
  if (process.env.npm_lifecycle_event === "dev") stopWithNpm();
  await checkPort();
  const secrets = prepareSecrets(join(root, ".dev.vars"));
  const isDataKept = existsSync(join(stateDir, "v3/d1"));
  console.log(`Starting on port ${port} …`);
  await migrate();

  let isStarting = true;
  const vars = {
    S3_ENDPOINT: `${url}/cdn-cgi/local/r2/s3`,
    S3_ACCESS_KEY_ID: "local",
    S3_SECRET_ACCESS_KEY: "local-secret",
    WEBHOOK_ALLOW_INSECURE: "true",
    ...Object.fromEntries((values.var ?? []).map((pair) => String(pair).split(/:(.*)/s, 2))),
  };
  await startWorker(vars, (level, line) => (!isStarting || level === "error") && console.log(line));
  const { key, teamId, isKept } = await ensureFirstKey(url, secrets.operatorToken, stateDir);
  isStarting = false;

  const parts = { [`data in ${stateDir}`]: isDataKept, "secrets in .dev.vars": secrets.areKept, key: isKept };
  const which = (kept: boolean) => Object.keys(parts).filter((part) => parts[part] === kept);
  console.log(`
Stowage runs at ${url}

Console: ${url}/console
API reference: ${url}/reference
Upload element: ${url}/assets/demo.html

Your secret key: ${key}
Team ID: ${teamId}
Operator token: OPERATOR_TOKEN in .dev.vars

Upload a file from the project folder:

  curl -i -H "Authorization: Bearer ${key}" -F "file=@test/audio/tone-vbr.mp3" ${url}/docs/v1/uploads
`);
  if (which(false).length > 0) console.log(`Created: ${which(false).join(", ")}`);
  if (which(true).length > 0) console.log(`Kept: ${which(true).join(", ")}`);
  console.log("Press Ctrl-C to stop.");

  // The local runtime has no cron trigger.
  const recover = () => fetch(`${url}/cdn-cgi/local/scheduled`).catch(() => undefined);
  await recover();
  setInterval(recover, RECOVERY_MILLISECONDS);
}

await main().catch(fail);
