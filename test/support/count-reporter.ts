import { relative } from "node:path";
import type { TestAnnotation } from "vitest";
import type { Reporter, TestCase, TestModule } from "vitest/node";

const SLOWEST_FILES = 10;

const relativePath = (module: TestModule) => relative(process.cwd(), module.moduleId);

/** Returns the milliseconds that a file took: loading it, its hooks, and its tests. */
function durationOf(module: TestModule): number {
  const { collectDuration, duration, environmentSetupDuration, prepareDuration, setupDuration } = module.diagnostic();
  return collectDuration + duration + environmentSetupDuration + prepareDuration + setupDuration;
}

/**
 * Prints test annotations, the slowest files, the tests that passed only on their second attempt, and at last
 * `N passed, N failed` for machines. A file that can't be loaded and a hook that throws count as failures.
 */
export default class CountReporter implements Reporter {
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
    const slowest = modules
      .map((module) => ({ file: relativePath(module), seconds: durationOf(module) / 1000 }))
      .sort((a, b) => b.seconds - a.seconds)
      .slice(0, SLOWEST_FILES)
      .map(({ file, seconds }) => `${seconds.toFixed(1).padStart(8)} s  ${file}`);
    // Printed on exit, after the summary of the default reporter.
    process.once("exit", () => {
      process.stdout.write(
        `Slowest files:\n${slowest.join("\n")}\n\n${retried.join("")}${passed} passed, ${failed} failed\n`,
      );
    });
  }
}
