/**
 * `npm run check` runs all static checks side by side, and prints the output of those that fail. A run of the tests starts
 * it, too. `--fast` leaves out what only shows that `src/` compiles without the types of the tests: the project `test`
 * includes `src/`.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");
const bin = (path: string) => join(root, "node_modules", path);

const isFast = process.argv.includes("--fast");
const PROJECTS = [
  ...(isFast ? [] : ["."]),
  "test",
  "src/client",
  "src/console",
  "test/client",
  "test/support/browser",
  "test/console",
  "test/tools/console",
];
const TYPES = ["src/env.d.ts", "--include-runtime=false", "--strict-vars=false"];
const CHECKS: Record<string, string[]> = {
  "biome check": [bin("@biomejs/biome/bin/biome"), "check", "."],
  "tsc -b": [bin("typescript/bin/tsc"), "-b", "--singleThreaded", ...PROJECTS],
  "client types": [join(root, "src/dev/client-types.ts"), "--check"],
  "wrangler types": [bin("wrangler/bin/wrangler.js"), "types", ...TYPES, "--check"],
  "lock file": [join(root, "src/dev/check-lock.ts")],
  migrations: [join(root, "src/dev/check-migrations.ts")],
};

/** @returns whether it passed */
function check(name: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd: root, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      if (error) process.stderr.write(`${stdout}${stderr}\nThe check "${name}" failed.\n`);
      resolve(!error);
    });
  });
}

const passed = await Promise.all(Object.entries(CHECKS).map(([name, args]) => check(name, args)));
process.exitCode = passed.every(Boolean) ? 0 : 1;
