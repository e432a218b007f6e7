/**
 * `npm run deploy`: checks the configuration, applies the migrations, deploys. Arguments go to `wrangler deploy`; the
 * environment and the configuration file that they name are those of all three steps.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs, parseEnv } from "node:util";
import { unstable_readConfig } from "wrangler";
import { findProblems, LOCAL_SETTING } from "./check-deploy.ts";

const args = process.argv.slice(2);
const { values } = parseArgs({
  args,
  strict: false,
  options: {
    config: { type: "string", short: "c" },
    env: { type: "string", short: "e" },
    "dry-run": { type: "boolean" },
    "secrets-file": { type: "string" },
    var: { type: "string", multiple: true },
  },
});
const { config, env } = values as { config?: string; env?: string };

function readProblems(): string[] {
  try {
    const resolved = unstable_readConfig({ config, env }, { hideWarnings: true });
    const given = (values.var ?? []).map((pair) => String(pair).split(":"));
    const vars = { ...resolved.vars, ...Object.fromEntries(given) };
    return [...findProblems({ ...resolved, vars }), ...secretsProblems(resolved.secrets?.required ?? [])];
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}

/** A file with secrets may hold some of them: what it holds must not be empty. */
function secretsProblems(required: string[]): string[] {
  const file = values["secrets-file"];
  if (typeof file !== "string") return [];
  if (!existsSync(file)) return [`There is no secrets file ${file}.`];
  const text = readFileSync(file, "utf8");
  const secrets: Record<string, unknown> = text.trimStart().startsWith("{") ? JSON.parse(text) : parseEnv(text);
  const empty = required.filter((name) => secrets[name] === "").map((name) => `${name} is empty in ${file}.`);
  return LOCAL_SETTING in secrets ? [...empty, `${LOCAL_SETTING} is for local development only.`] : empty;
}

function wrangler(...command: string[]): void {
  const script = join(import.meta.dirname, "../../node_modules/wrangler/bin/wrangler.js");
  const { status } = spawnSync(process.execPath, [script, ...command], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}

const problems = readProblems();
if (problems.length > 0) {
  console.error(["Not deployed:", ...problems].join("\n- "));
  process.exit(1);
}
const target = [...(config ? ["--config", config] : []), ...(env ? ["--env", env] : [])];
if (!values["dry-run"]) wrangler("d1", "migrations", "apply", "DB", "--remote", ...target);
wrangler("deploy", ...args);
