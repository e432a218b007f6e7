import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { TestModule, Vitest } from "vitest/node";
import { findGrowth, findOverrun, GOAL_SECONDS } from "./budget.ts";
import CountReporter from "./count-reporter.ts";
import type { Durations } from "./durations.ts";
import { sortLongestFirst } from "./sequencer.ts";

describe("The limit of a run", () => {
  const { fast, all } = GOAL_SECONDS;
  test.each([
    ["npm test within 1.5 times its goal", "fast", fast * 1.5, 1, true],
    ["npm test above 1.5 times its goal", "fast", fast * 1.5 + 1, 1, false],
    ["npm test on a machine that is twice as slow", "fast", fast * 3, 2, true],
    ["npm test above the limit of a machine that is twice as slow", "fast", fast * 3 + 1, 2, false],
    ["npm test on a machine that is twice as fast", "fast", fast * 1.5, 0.5, true],
    ["npm run test:all within 1.5 times its goal", "all", all * 1.5, 1, true],
    ["npm run test:all above 1.5 times its goal", "all", all * 1.5 + 1, 1, false],
  ] as const)("for %s", (_, mode, seconds, slowness, isFine) => {
    expect(findOverrun(mode, seconds, slowness, {}, {}) === null).toBe(isFine);
  });

  test("is explained by the three files that grew most against their record, new files included", () => {
    const recorded = { "a.test.ts": 10, "b.test.ts": 20, "c.test.ts": 30, "d.test.ts": 40 };
    const durations = { "a.test.ts": 15, "b.test.ts": 19, "c.test.ts": 60, "d.test.ts": 41, "new.test.ts": 8 };
    expect(findGrowth(durations, recorded)).toEqual([
      ["c.test.ts", 30],
      ["new.test.ts", 8],
      ["a.test.ts", 5],
    ]);
    const problem = findOverrun("fast", 1000, 1, durations, recorded);
    expect(problem).toBe(
      "The run took 1000 s, more than its 450 s. The files that grew most: c.test.ts by 30 s, new.test.ts by 8 s, a.test.ts by 5 s.",
    );
  });
});

describe("Longest first", () => {
  const file = (name: string, project = "node") => ({ moduleId: `/root/${name}`, project: { name: project } });
  test("starts unknown files of a project, then its longest, one project after another", () => {
    const files = [file("api", "workerd"), file("short"), file("model", "workerd"), file("new"), file("long")];
    const sorted = sortLongestFirst(files, "/root", { api: 5, short: 1, model: 60, long: 50 });
    expect(sorted.map(({ moduleId }) => moduleId)).toEqual(
      ["new", "long", "short", "model", "api"].map((name) => `/root/${name}`),
    );
  });
});

describe("The reporter", () => {
  /** A file with one passed test that took a minute. */
  const module = {
    moduleId: new URL("../api/a.test.ts", import.meta.url).pathname,
    ok: () => true,
    errors: () => [],
    children: {
      allSuites: () => [],
      allTests: () => [{ result: () => ({ state: "passed" }), fullName: "a" }],
    },
    diagnostic: () => ({
      collectDuration: 0,
      duration: 60_000,
      environmentSetupDuration: 0,
      prepareDuration: 0,
      setupDuration: 0,
    }),
  } as unknown as TestModule;

  /** Reports a run of that file. `slowness` is measured each time. @returns the output */
  async function report(mode: string, { slowness = [1], seconds = 1, checks = null as string | null } = {}) {
    const exitCode = process.exitCode;
    onTestFinished(() => {
      process.exitCode = exitCode;
    });
    const once = vi.spyOn(process, "once").mockReturnThis();
    let output = "";
    const kept: Durations = {};
    const reporter = new CountReporter({
      measureSlowness: async () => slowness.shift() ?? 1,
      runChecks: async () => checks,
      elapsed: () => seconds,
      readRecorded: () => ({}),
      keepLast: (_, durations) => void Object.assign(kept, durations),
      write: (text) => {
        output += text;
      },
    });
    await reporter.onInit({ vite: { config: { mode } }, config: {} } as unknown as Vitest);
    await reporter.onTestRunEnd([module], []);
    for (const [, atExit] of once.mock.calls) (atExit as () => void)();
    once.mockRestore();
    return { output, kept, exitCode: process.exitCode };
  }

  test("ends with the counts, and keeps the durations of a machine with slowness 1", async () => {
    const { output, kept } = await report("fast", { slowness: [2] });
    expect(output).toMatch(/\n1 passed, 0 failed\n$/);
    expect(kept).toEqual({ "test/api/a.test.ts": 30 });
  });

  test("fails the run if a check fails, and prints its output", async () => {
    const { output, exitCode } = await report("fast", { checks: 'error TS2322\nThe check "tsc -b" failed.\n' });
    expect(output).toMatch(/error TS2322\nThe check "tsc -b" failed\.\n1 passed, 1 failed\n$/);
    expect(exitCode).toBe(1);
  });

  test("fails a run that takes too long, and names the file", async () => {
    const { output, exitCode } = await report("fast", { seconds: 500, slowness: [1, 1] });
    expect(output).toMatch(
      /took 500 s, more than its 450 s\. .*: test\/api\/a\.test\.ts by 60 s\.\n1 passed, 1 failed\n$/,
    );
    expect(exitCode).toBe(1);
  });

  test("measures a machine again, whose speed may have changed since the start, before it fails the run", async () => {
    expect((await report("fast", { seconds: 500, slowness: [1, 1, 1, 2] })).output).toMatch(/1 passed, 0 failed\n$/);
  });

  test("runs no checks and limits no time if Vitest runs by itself", async () => {
    const { output } = await report("test", { seconds: 5000, checks: "failed" });
    expect(output).toMatch(/1 passed, 0 failed\n$/);
  });
});
