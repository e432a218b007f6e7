/**
 * `npm run dev`: the whole service on this machine, without an account or the network.
 *
 * Makes what is missing (secrets in .dev.vars, the database, a first secret key), starts `wrangler dev`, prints how to
 * upload a file, and runs until it is stopped. Data, secrets and key are kept from one start to the next.
 *
 * In the environment: PORT (8787) and STATE_DIR (.wrangler/state). Arguments go on to wrangler:
 * `npm run dev -- --var UPLOAD_IDLE_SECONDS:5`.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseEnv } from "node:util";

const root = join(import.meta.dirname, "../..");
const port = process.env.PORT || "8787";
const stateDir = resolve(process.env.STATE_DIR || join(root, ".wrangler/state"));
const url = `http://localhost:${port}`;
const RECOVERY_MILLISECONDS = 5 * 60 * 1000;

/** What the person at the terminal can put right: told without a stack. */
class Refusal extends Error {}

function tell(error: unknown): void {
  console.error(error instanceof Refusal ? error.message : error);
  process.exitCode = 1;
}

async function checkPort(): Promise<void> {
  if (!/^\d{1,5}$/.test(port) || +port < 1 || +port > 65_535)
    throw new Refusal(`PORT is "${port}"; it must be 1 to 65535.`);
  const probe = createServer().listen(+port, "localhost");
  await once(probe, "listening").catch(({ code }) => {
    const why = code === "EADDRINUSE" ? "is in use" : `can't be opened (${code})`;
    throw new Refusal(`Port ${port} ${why}. Choose another one: PORT=8788 npm run dev`);
  });
  probe.close();
}

const secretsFile = join(root, ".dev.vars");

/** Adds the secrets that .dev.vars lacks, and touches nothing else in it. */
function prepareSecrets(): { operatorToken: string; areKept: boolean } {
  const text = existsSync(secretsFile) ? readFileSync(secretsFile, "utf8") : "";
  const present = parseEnv(text);
  const fresh = {
    MASTER_KEY: randomBytes(32).toString("base64"),
    OPERATOR_TOKEN: `stow_op_${randomBytes(24).toString("base64url")}`,
  };
  const missing = Object.entries(fresh).filter(([name]) => !present[name]);
  if (missing.length > 0) {
    const lines = missing.map(([name, value]) => `${name}="${value}"\n`).join("");
    appendFileSync(secretsFile, text === "" || text.endsWith("\n") ? lines : `\n${lines}`, { mode: 0o600 });
  }
  chmodSync(secretsFile, 0o600);
  return { operatorToken: present.OPERATOR_TOKEN || fresh.OPERATOR_TOKEN, areKept: missing.length === 0 };
}

/**
 * Runs wrangler. What it says is held back until it may speak: at the start it warns of what is meant to be so.
 * Its own line about a request is dropped, since the service logs one that tells more.
 */
function wrangler(...args: string[]) {
  const child = spawn(process.execPath, [join(root, "node_modules/wrangler/bin/wrangler.js"), ...args], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      // A third of a start is compiling wrangler: 20 MB of JavaScript.
      NODE_COMPILE_CACHE: join(root, "node_modules/.cache/wrangler"),
      ...process.env,
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_WRITE_LOGS: "false",
      // Its banner looks for a newer version, and the other for samples of request.cf, on the network.
      WRANGLER_HIDE_BANNER: "true",
      CLOUDFLARE_CF_FETCH_ENABLED: "false",
    },
  });
  let held: string[] | undefined = [];
  const speak = (showHeld: boolean) => {
    if (showHeld) for (const line of held ?? []) console.log(line);
    held = undefined;
  };
  for (const input of [child.stdout, child.stderr]) {
    createInterface({ input }).on("line", (line) => {
      if (line.startsWith("[wrangler:info]")) return;
      if (held) held.push(line);
      else console.log(line);
      // A build that fails leaves wrangler waiting for a better one, so this can't wait.
      if (line.includes("[ERROR]")) speak(true);
    });
  }
  return { child, speak };
}

async function migrate(): Promise<void> {
  const { child, speak } = wrangler("d1", "migrations", "apply", "DB", "--local", "--persist-to", stateDir);
  const [code] = await once(child, "close");
  if (code === 0) return;
  speak(true);
  throw new Refusal("The migrations could not be applied.");
}

/** Until the service answers; should wrangler end before, the whole process ends. */
async function answering(): Promise<void> {
  for (;;) {
    const answer = await fetch(`${url}/openapi.json`).catch(() => undefined);
    if (answer?.ok) return;
    if (answer) throw new Refusal(`The service answers ${answer.status}: ${await answer.text()}`);
    await sleep(100);
  }
}

/** The key of the last start, if it still opens. The file holds its id, never the token. */
async function firstKey(operatorToken: string): Promise<{ token: string; isKept: boolean }> {
  const keyFile = join(stateDir, "first-key.json");
  const headers = { Authorization: `Bearer ${operatorToken}`, "Content-Type": "application/json" };
  const keys = `${url}/auth/v1/apikeys`;
  let teamId: string | undefined;
  if (existsSync(keyFile)) {
    const last = JSON.parse(readFileSync(keyFile, "utf8"));
    teamId = last.teamId;
    const answer = await fetch(`${keys}/${last.id}`, { headers });
    const { data } = (await answer.json()) as { data?: { key: string; expiresAt: string } };
    if (data && Date.parse(data.expiresAt) > Date.now()) return { token: data.key, isKept: true };
    // Deleted, expired, or sealed under a MASTER_KEY that is lost: a new one of the same team.
  }
  const answer = await fetch(keys, { method: "POST", headers, body: JSON.stringify({ name: "First key", teamId }) });
  if (!answer.ok) throw new Refusal(`A first key could not be made: ${await answer.text()}`);
  const { data } = (await answer.json()) as { data: { id: string; teamId: string; key: string } };
  writeFileSync(keyFile, `${JSON.stringify({ id: data.id, teamId: data.teamId })}\n`);
  return { token: data.key, isKept: false };
}

/** `wrangler dev` runs no cron triggers, so recovery, which production runs every five minutes, is triggered here. */
async function recover(): Promise<void> {
  await fetch(`${url}/cdn-cgi/local/scheduled`).catch(() => undefined);
}

function greet(token: string, kept: Record<string, boolean>): void {
  const isWindows = process.platform === "win32";
  const quote = (text: string) => (isWindows ? `"${text}"` : `'${text.replaceAll("'", "'\\''")}'`);
  const sample = join(root, "test/audio/tone-vbr.mp3");
  // Without quotes of its own curl would cut the name at a comma or semicolon.
  const file = isWindows ? sample : `"${sample.replace(/["\\]/g, "\\$&")}"`;
  const curl = `curl -i -H ${quote(`Authorization: Bearer ${token}`)} -F ${quote(`file=@${file}`)} ${url}/docs/v1/uploads`;
  const which = (isKept: boolean) => Object.keys(kept).filter((name) => kept[name] === isKept);
  console.log(`
Stowage answers at ${url}, and describes itself at ${url}/openapi.json

Your secret key: ${token}

Upload a file:

  ${curl}
`);
  if (which(false).length > 0) console.log(`Made: ${which(false).join(", ")}`);
  if (which(true).length > 0) console.log(`Kept: ${which(true).join(", ")}`);
}

async function main(): Promise<void> {
  await checkPort();
  const { operatorToken, areKept } = prepareSecrets();
  const kept = { [`data in ${stateDir}`]: existsSync(join(stateDir, "v3/d1")), "secrets in .dev.vars": areKept };
  console.log(`Starting on port ${port} …`);
  await migrate();

  const vars = [
    `S3_ENDPOINT:${url}/cdn-cgi/local/r2/s3`,
    "S3_ACCESS_KEY_ID:local",
    "S3_SECRET_ACCESS_KEY:local-secret",
  ];
  const args = ["--port", port, "--persist-to", stateDir, ...vars.flatMap((pair) => ["--var", pair])];
  const quiet = ["--log-level", "info", "--show-interactive-dev-session=false"];
  const { child, speak } = wrangler("dev", ...args, ...quiet, ...process.argv.slice(2));
  let isStopping = false;
  const stop = () => {
    isStopping = true;
    child.kill();
  };
  process.on("SIGINT", stop).on("SIGTERM", stop);
  child.on("exit", async (code) => {
    if (!isStopping) {
      await sleep(200); // for its last words to come through
      speak(true);
      tell(new Refusal(`wrangler ended by itself (code ${code}).`));
    }
    process.exit();
  });
  try {
    await answering();
    const { token, isKept } = await firstKey(operatorToken);
    speak(false);
    greet(token, { ...kept, key: isKept });
    await recover();
    setInterval(recover, RECOVERY_MILLISECONDS);
  } catch (error) {
    if (isStopping) return;
    speak(true);
    tell(error);
    stop();
  }
}

await main().catch(tell);
