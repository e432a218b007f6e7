/**
 * Compares the bytes of a deployment with its databases, after one was restored to an earlier moment: `npm run reconcile --
 * URL [--remove]`. Prints a line for each difference, and exits with 1 if there are any, or with 2 if it can't compare.
 */
import { existsSync } from "node:fs";
import { loadEnvFile } from "node:process";
import { parseArgs } from "node:util";
import type { Api } from "../client/api.ts";
import { createClient } from "./service-client.ts";

const { values, positionals } = parseArgs({
  options: { remove: { type: "boolean", default: false } },
  allowPositionals: true,
  strict: false,
});
const [url] = positionals;
if (!process.env.OPERATOR_TOKEN && existsSync(".dev.vars")) loadEnvFile(".dev.vars");
const token = process.env.OPERATOR_TOKEN;
if (!url || positionals.length > 1 || !token || Object.keys(values).length > 1) {
  console.error("Usage: OPERATOR_TOKEN=… npm run reconcile -- https://HOST [--remove]");
  process.exit(2);
}

type Page = Api["POST /auth/v1/reconciliation"]["response"]["data"];

const client = createClient(url, token);

async function fetchPage(after: string | undefined): Promise<Page> {
  const json = { after, remove: values.remove };
  return (await client.call("POST", "/auth/v1/reconciliation", { json })).body.data;
}

let differences = 0;
try {
  for (let after: string | null | undefined; after !== null; ) {
    const { objects, files, next }: Page = await fetchPage(after);
    for (const { key, size, isRemoved } of objects) {
      const outcome = isRemoved ? ", removed" : values.remove ? ", kept for a day" : "";
      console.log(`bytes without a row${outcome}: ${key} (${size} bytes)`);
    }
    for (const { key } of files) console.log(`row without bytes: ${key}`);
    differences += objects.length + files.length;
    after = next;
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(2);
}
console.log(differences === 0 ? "All rows have bytes, and all bytes have a row." : `Differences: ${differences}.`);
process.exit(differences === 0 ? 0 : 1);
