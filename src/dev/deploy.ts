/**
 * `npm run deploy`: checks the configuration, applies the migrations, and deploys. Arguments go to `wrangler deploy`;
 * `--env` and `--config` apply to all three steps.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { findDeployProblems, parseDeployArguments } from "./check-deploy.ts";

function runWrangler(...command: string[]): void {
  const script = join(import.meta.dirname, "../../node_modules/wrangler/bin/wrangler.js");
  const { status } = spawnSync(process.execPath, [script, ...command], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}

const args = process.argv.slice(2);
const parsed = parseDeployArguments(args);
const problems = findDeployProblems(parsed);
if (problems.length > 0) {
  console.error(["Not deployed:", ...problems].join("\n- "));
  process.exit(1);
}
const { config, env, isDryRun } = parsed;
const target = [...(config ? ["--config", config] : []), ...(env ? ["--env", env] : [])];
if (!isDryRun) runWrangler("d1", "migrations", "apply", "DB", "--remote", ...target);
runWrangler("deploy", ...args);
