/** Fails if `package-lock.json` has a package without a checksum, which a proxy or cache could replace unnoticed. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { findUnverified } from "./lock-check.ts";

const problems = findUnverified(JSON.parse(readFileSync(join(import.meta.dirname, "../../package-lock.json"), "utf8")));
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
