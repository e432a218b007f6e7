/** `npm run deploy` creates missing resources at Cloudflare, deploys, and prints URL and key. It needs only a login. */
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { deploy } from "./deployment.ts";
import { Refusal } from "./refusal.ts";
import { wranglerIn } from "./wrangler.ts";

const USAGE = `Usage: npm run deploy -- [options]

Creates missing resources at Cloudflare, deploys, and prints URL and key. Log in first: npx wrangler login

Options:
  --env NAME       deploy a separate environment, and add it to wrangler.toml if it is missing
  --location HINT  where to create database and bucket, and to run the Worker: weur, eeur, apac, oc, wnam, or enam
  --dry-run        print the plan, and build
  --help           show this help`;

const root = join(import.meta.dirname, "../..");

try {
  if (process.env.npm_config_dry_run === "true")
    throw new Refusal("npm took --dry-run for itself. Nothing was changed. Write: npm run deploy -- --dry-run");
  const { values } = parseArgs({
    options: {
      env: { type: "string" },
      location: { type: "string" },
      "dry-run": { type: "boolean" },
      help: { type: "boolean" },
    },
  });
  const home = join(homedir(), ".stowage");
  const machine = { root, home, env: process.env, wrangler: wranglerIn(root), fetch, sleep, print: console.log };
  if (values.help) console.log(USAGE);
  else await deploy(machine, { environment: values.env, location: values.location, isDryRun: values["dry-run"] });
} catch (error) {
  const isExpected = error instanceof Refusal || (error instanceof TypeError && "code" in error);
  console.error(isExpected ? (error as Error).message : error);
  process.exitCode = 1;
}
