import type { TestAnnotation } from "vitest";
import type { Reporter, TestCase, TestModule } from "vitest/node";

/**
 * Shows what tests annotate, and ends the run with one line that a machine can read: `N passed, N failed`. A file that
 * can't be loaded is a failure, and so is a set-up that fails before its tests.
 */
export default class CountReporter implements Reporter {
  /** What a test counted: crash points, runs of the model and their seed, kills. */
  onTestCaseAnnotate(_: TestCase, { message }: TestAnnotation): void {
    process.stdout.write(`${message}\n`);
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    let passed = 0;
    let failed = errors.length;
    for (const module of modules) {
      failed += module.errors().length;
      for (const suite of module.children.allSuites()) failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        if (test.result().state === "passed") passed++;
        if (test.result().state === "failed") failed++;
      }
    }
    // After the default reporter's own summary.
    process.once("exit", () => process.stdout.write(`${passed} passed, ${failed} failed\n`));
  }
}
