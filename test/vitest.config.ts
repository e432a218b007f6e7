import { existsSync, readFileSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { cloudflareTest, readD1Migrations } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";
import { hideRuntimeNoise } from "./support/noise.ts";
import LongestFirst from "./support/sequencer.ts";

const root = join(import.meta.dirname, "..");
const support = (file: string) => join(root, "test/support", file);

/**
 * The stores of the local runtime sync every write, so they are faster in memory. A container often has only 64 MB there,
 * or may not run programs from it, which the browser and the command line need.
 */
const MEMORY = "/dev/shm";
const MIN_MEMORY_BYTES = 4e9;
function hasMemory(): boolean {
  if (!existsSync(MEMORY) || !existsSync("/proc/mounts")) return false;
  const mount = readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .find((line) => line.includes(` ${MEMORY} `));
  const { bavail, bsize } = statfsSync(MEMORY);
  return mount !== undefined && !mount.includes("noexec") && bavail * bsize >= MIN_MEMORY_BYTES;
}
if (!process.env.TMPDIR && hasMemory()) process.env.TMPDIR = MEMORY;

// The processes of tests, and the servers that they start, load the same code many times.
process.env.NODE_COMPILE_CACHE ??= join(root, "node_modules/.cache/compiled");

hideRuntimeNoise();

/** A name says where its test runs: `links.browser.test.ts`. Without a word, that is the Worker, and the client's folder. */
const ENDING = ".{test,exhaustive.test}.{ts,tsx}";

/** Only a test that hangs may reach these: a machine may be slow and busy. */
const timeouts = { testTimeout: 300_000, hookTimeout: 300_000 };
/**
 * `npm test` leaves out the files named `*.exhaustive.test.ts`, and other files may do less where `isExhaustive` is
 * false. `npm run test:all` runs everything.
 */
export default defineConfig(async ({ mode }) => {
  const isExhaustive = mode === "all";
  const shared = {
    ...timeouts,
    // Files of a project share processes or Workers, because to start one takes longer than many files.
    isolate: false,
    provide: { isExhaustive, isSuite: isExhaustive || mode === "fast" },
    exclude: isExhaustive ? [] : ["test/**/*.exhaustive.test.ts"],
  };
  return {
    root,
    test: {
      // One more than the cores of a small machine: while one test waits, another one runs. Each worker loads all modules again.
      maxWorkers: 3,
      sequence: { sequencer: LongestFirst },
      silent: "passed-only" as const,
      reporters: ["default", support("count-reporter.ts")],
      projects: [
        {
          root,
          plugins: [
            cloudflareTest({
              wrangler: { configPath: join(root, "wrangler.toml") },
              miniflare: {
                // Two databases besides the one of wrangler.toml: the fixtures spread teams over all three.
                d1Databases: { DB_1: "stowage-1", DB_2: "stowage-2" },
                bindings: {
                  TEST_MIGRATIONS: await readD1Migrations(join(root, "migrations")),
                  MASTER_KEY: btoa("0123456789abcdef0123456789abcdef"),
                  OPERATOR_TOKEN: "operator-token-of-the-test-suite-0123456789",
                  STOWAGE_MODEL_RUNS: process.env.STOWAGE_MODEL_RUNS ?? (isExhaustive ? "200" : "4"),
                  // The same random cases in each run. Another seed looks for failures in other cases.
                  STOWAGE_SEED: process.env.STOWAGE_SEED ?? "1",
                  S3_ENDPOINT: "https://account.r2.cloudflarestorage.com",
                  S3_ACCESS_KEY_ID: "local",
                  S3_SECRET_ACCESS_KEY: "local-secret",
                },
              },
            }),
          ],
          test: {
            name: "workerd",
            include: ["test/**/*.test.ts"],
            // It empties the stores before each file.
            setupFiles: ["test/setup.ts"],
            ...shared,
            exclude: [...shared.exclude, "test/{client,console,generator}/**", `test/**/*.{node,browser}${ENDING}`],
          },
        },
        {
          root,
          test: {
            ...shared,
            name: "node",
            // Some replace modules.
            isolate: true,
            include: [`test/**/*.node${ENDING}`],
          },
        },
        {
          root,
          test: {
            ...shared,
            name: "client",
            include: ["test/client/*.test.ts"],
            exclude: [...shared.exclude, `test/**/*.{node,browser}${ENDING}`],
            globalSetup: [support("shared-servers.ts")],
            setupFiles: [support("await-servers.ts")],
          },
        },
        {
          root,
          test: {
            ...shared,
            name: "browser",
            include: [`test/**/*.browser${ENDING}`],
            // The servers start in parallel with the browser, which must be there before the first page.
            globalSetup: [support("shared-servers.ts"), support("shared-browser.ts")],
            setupFiles: [support("await-servers.ts")],
          },
        },
      ],
    },
  };
});
