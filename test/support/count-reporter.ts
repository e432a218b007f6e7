import { relative } from "node:path";
import type { TestAnnotation } from "vitest";
import type { Reporter, TestCase, TestModule, Vitest } from "vitest/node";

const SLOWEST_FILES = 10;

/** The limits of a run, also on a machine three times slower than two free cores. Only CI enforces it. */
interface Budget {
  runSeconds: number;
  fileSeconds: number;
}
/** `npm test`. */
const BUDGET: Budget = { runSeconds: 1800, fileSeconds: 900 };
/** `npm run test:all`, whose job in CI is ended after 90 minutes. */
const EXHAUSTIVE_BUDGET: Budget = { runSeconds: 4800, fileSeconds: 2400 };
/** Tests of a run that may pass only on their second attempt. A slow machine can disturb a few, more are a flaw. */
const MAX_RETRIED = 3;

const relativePath = (module: TestModule) => relative(process.cwd(), module.moduleId);

/** Returns the milliseconds that a file took: loading it, its hooks, and its tests. */
function durationOf(module: TestModule): number {
  const { collectDuration, duration, environmentSetupDuration, prepareDuration, setupDuration } = module.diagnostic();
  return collectDuration + duration + environmentSetupDuration + prepareDuration + setupDuration;
}

/**
 * Prints test annotations, the slowest files, the tests that passed only on their second attempt, and at last
 * `N passed, N failed` for machines. A file that can't be loaded and a hook that throws count as failures. In CI, so does
 * whatever exceeds the budget.
 */
export default class CountReporter implements Reporter {
  #budget = BUDGET;

  onInit({ vite }: Vitest): void {
    if (vite.config.mode === "all") this.#budget = EXHAUSTIVE_BUDGET;
  }

  /** Annotations are counts: crash points, runs of a model, kills. */
  onTestCaseAnnotate(_: TestCase, { message }: TestAnnotation): void {
    process.stdout.write(`${message}\n`);
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    let passed = 0;
    let failed = errors.length;
    const retried: string[] = [];
    for (const module of modules) {
      failed += module.errors().length;
      for (const suite of module.children.allSuites()) failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        if (test.result().state === "passed") passed++;
        if (test.result().state === "failed") failed++;
        if (test.diagnostic()?.flaky) retried.push(`Passed on a retry: ${relativePath(module)} > ${test.fullName}\n`);
      }
    }
    const durations = modules
      .map((module) => ({ file: relativePath(module), seconds: durationOf(module) / 1000 }))
      .sort((a, b) => b.seconds - a.seconds);
    const slowest = durations
      .slice(0, SLOWEST_FILES)
      .map(({ file, seconds }) => `${seconds.toFixed(1).padStart(8)} s  ${file}`);
    const excesses = process.env.CI ? this.#excesses(durations, retried.length) : [];
    if (excesses.length > 0) process.exitCode = 1;
    failed += excesses.length;
    // Printed on exit, after the summary of the default reporter.
    process.once("exit", () => {
      process.stdout.write(
        `Slowest files:\n${slowest.join("\n")}\n\n${[...retried, ...excesses].join("")}${passed} passed, ${failed} failed\n`,
      );
    });
  }

  #excesses(durations: { file: string; seconds: number }[], retried: number): string[] {
    const { runSeconds, fileSeconds } = this.#budget;
    const total = performance.now() / 1000;
    return [
      ...durations
        .filter(({ seconds }) => seconds > fileSeconds)
        .map(({ file, seconds }) => `${file} took ${Math.round(seconds)} s, more than its ${fileSeconds} s.\n`),
      ...(total > runSeconds ? [`The run took ${Math.round(total)} s, more than its ${runSeconds} s.\n`] : []),
      ...(retried > MAX_RETRIED ? [`${retried} tests needed a second attempt, more than ${MAX_RETRIED}.\n`] : []),
    ];
  }
}
