import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { TestAnnotation } from "vitest";
import type { Reporter, TestCase, TestModule, Vitest } from "vitest/node";
import { findOverrun } from "./budget.ts";
import { measureSlowness } from "./calibration.ts";
import { type Durations, keepLast, type Mode, modeOf, readRecorded } from "./durations.ts";
import { findUnshown } from "./threats.ts";

const SLOWEST_FILES = 10;
/** How often the speed of the machine is measured again before a run that took too long fails. */
const MEASUREMENTS = 3;

const root = join(import.meta.dirname, "../..");
const relativePath = (module: TestModule) => relative(root, module.moduleId).replaceAll("\\", "/");

/** Returns the milliseconds that a file took: loading it, its hooks, and its tests. */
function durationOf(module: TestModule): number {
  const { collectDuration, duration, environmentSetupDuration, prepareDuration, setupDuration } = module.diagnostic();
  return collectDuration + duration + environmentSetupDuration + prepareDuration + setupDuration;
}

/** Runs `npm run check`, or in `npm test` its fast part. @returns its output if it fails, or null */
const runChecks = (mode: Mode): Promise<string | null> =>
  new Promise((resolve) => {
    const script = join(root, "src/dev/check.ts");
    execFile(
      process.execPath,
      mode === "fast" ? [script, "--fast"] : [script],
      { cwd: root, maxBuffer: 2 ** 26 },
      (error, stdout, stderr) => resolve(error ? stdout + stderr : null),
    );
  });

/** The effects and inputs of a run, which a test replaces. */
const OUTSIDE = {
  measureSlowness,
  runChecks,
  keepLast,
  readRecorded,
  readThreats: () => readFileSync(join(root, "test/THREATS.md"), "utf8"),
  /** Seconds since the start of the process. */
  elapsed: () => performance.now() / 1000,
  write: (text: string) => void process.stdout.write(text),
};

/**
 * Runs the static checks in parallel with the tests. Prints test annotations, the slowest files, the tests of THREATS.md
 * that did not pass, why the run fails besides failed tests, and at last `N passed, N failed` for machines. A file that can't
 * be loaded, a hook that throws, and whatever exceeds the budget count as failures.
 */
export default class CountReporter implements Reporter {
  readonly #outside: typeof OUTSIDE;
  #mode: Mode = "fast";
  /** Whether this is `npm test` or `npm run test:all`, and not Vitest itself. */
  #isSuite = false;
  #hasAllTests = true;
  #slowness = 1;
  #checks: Promise<string | null> = Promise.resolve(null);

  constructor(outside: Partial<typeof OUTSIDE> = {}) {
    this.#outside = { ...OUTSIDE, ...outside };
  }

  async onInit({ vite, config }: Vitest): Promise<void> {
    const { mode } = vite.config;
    this.#mode = modeOf(mode);
    this.#isSuite = mode === "all" || mode === "fast";
    this.#hasAllTests = config.testNamePattern === undefined;
    if (!this.#isSuite) return;
    this.#slowness = await this.#outside.measureSlowness();
    this.#checks = this.#outside.runChecks(this.#mode);
  }

  /** Annotations are counts: crash points, runs of a model, kills. */
  onTestCaseAnnotate(_: TestCase, { message }: TestAnnotation): void {
    this.#outside.write(`${message}\n`);
  }

  async onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): Promise<void> {
    let passed = 0;
    let failed = errors.length;
    const passedTests: { path: string; fullName: string }[] = [];
    for (const module of modules) {
      failed += module.errors().length;
      for (const suite of module.children.allSuites()) failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        if (test.result().state === "passed") {
          passed++;
          passedTests.push({ path: relativePath(module).slice("test/".length), fullName: test.fullName });
        }
        if (test.result().state === "failed") failed++;
      }
    }
    const durations = modules
      .map((module) => ({ file: relativePath(module), seconds: durationOf(module) / 1000, isFine: module.ok() }))
      .sort((a, b) => b.seconds - a.seconds);
    const slowest = durations
      .slice(0, SLOWEST_FILES)
      .map(({ file, seconds }) => `${seconds.toFixed(1).padStart(8)} s  ${file}`);
    const checks = await this.#checks;
    const problems = this.#isSuite
      ? [await this.#findOverrun(durations), checks, ...this.#findUnshownThreats(passedTests)].filter(
          (one) => one !== null,
        )
      : [];
    if (problems.length > 0) process.exitCode = 1;
    failed += problems.length;
    const scale = Math.max(1, this.#slowness);
    const kept = durations.filter(({ isFine }) => isFine && this.#hasAllTests);
    this.#outside.keepLast(
      this.#mode,
      Object.fromEntries(kept.map(({ file, seconds }): [string, number] => [file, seconds / scale])),
    );
    const lines = [
      "Slowest files:",
      ...slowest,
      "",
      ...(this.#isSuite ? [`The machine is ${this.#slowness.toFixed(2)} times as slow as the goals assume.`] : []),
      ...problems.map((problem) => problem.trimEnd()),
      `${passed} passed, ${failed} failed`,
    ];
    // Printed on exit, after the summary of the default reporter.
    process.once("exit", () => this.#outside.write(`${lines.join("\n")}\n`));
  }

  /** In a run of all tests, each one that THREATS.md names must have passed. */
  #findUnshownThreats(passed: { path: string; fullName: string }[]): string[] {
    if (this.#mode !== "all" || !this.#hasAllTests) return [];
    return findUnshown(this.#outside.readThreats(), passed).map(
      (title) => `THREATS.md names a test that has not passed: ${title}`,
    );
  }

  async #findOverrun(durations: { file: string; seconds: number }[]): Promise<string | null> {
    const seconds = this.#outside.elapsed();
    const find = () => {
      const scale = Math.max(1, this.#slowness);
      const scaled: Durations = Object.fromEntries(durations.map(({ file, seconds }) => [file, seconds / scale]));
      return findOverrun(this.#mode, seconds, this.#slowness, scaled, this.#outside.readRecorded(this.#mode));
    };
    // It may have become busy after the start, and the speed of a virtual machine varies within seconds.
    for (let again = 0; again < MEASUREMENTS && find() !== null; again++)
      this.#slowness = Math.max(this.#slowness, await this.#outside.measureSlowness());
    return find();
  }
}
