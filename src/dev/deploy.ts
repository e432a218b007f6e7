/**
 * `npm run deploy` creates missing resources at Cloudflare, deploys, and prints URL and key. It needs only a login.
 *
 *   --env NAME       deploys an environment, and adds it to wrangler.toml if it is missing
 *   --location HINT  where to create database and bucket: weur, eeur, apac, oc, wnam, or enam
 *   --dry-run        prints the plan, and builds
 */
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { deploy } from "./deployment.ts";
import { Refusal } from "./first-start.ts";
import { wranglerIn } from "./wrangler.ts";

const root = join(import.meta.dirname, "../..");

try {
  const { values } = parseArgs({
    options: { env: { type: "string" }, location: { type: "string" }, "dry-run": { type: "boolean" } },
  });
  const home = join(homedir(), ".stowage");
  const machine = { root, home, env: process.env, wrangler: wranglerIn(root), fetch, sleep, print: console.log };
  await deploy(machine, { environment: values.env, location: values.location, isDryRun: values["dry-run"] });
} catch (error) {
  const isExpected = error instanceof Refusal || (error instanceof TypeError && "code" in error);
  console.error(isExpected ? (error as Error).message : error);
  process.exitCode = 1;
}
