/**
 * Compares the bytes of a deployment with its databases, after one was restored to an earlier moment: `npm run reconcile --
 * URL [--remove]`. Prints a line for each difference, and exits with 1 if there are any, or with 2 if it can't compare.
 */
import { existsSync } from "node:fs";
import { loadEnvFile } from "node:process";
import { parseArgs } from "node:util";
import { Connection } from "../client/connection.ts";
import { messageOf } from "./refusal.ts";

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

function fetchPage(connection: Connection, after: string | undefined) {
  const body = { after, remove: values.remove === true };
  return connection.json("POST /auth/v1/reconciliation", { body, isIdempotent: true });
}

let differences = 0;
try {
  const connection = new Connection({ url, key: token });
  for (let after: string | null | undefined; after !== null; ) {
    const page: Awaited<ReturnType<typeof fetchPage>> = await fetchPage(connection, after);
    const { objects, files, next } = page;
    for (const { key, size, isRemoved } of objects) {
      const outcome = isRemoved ? ", removed" : values.remove ? ", kept for a day" : "";
      console.log(`bytes without a row${outcome}: ${key} (${size} bytes)`);
    }
    for (const { key } of files) console.log(`row without bytes: ${key}`);
    differences += objects.length + files.length;
    after = next;
  }
} catch (error) {
  console.error(messageOf(error));
  process.exit(2);
}
console.log(differences === 0 ? "All rows have bytes, and all bytes have a row." : `Differences: ${differences}.`);
process.exit(differences === 0 ? 0 : 1);
