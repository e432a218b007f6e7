import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take longest: some compute, and some wait for the timeout of an endpoint or an upload that stalls. */
const LONGEST = [
  "test/e2e/kills.exhaustive.test.ts",
  "test/jobs/resumable-faults.test.ts",
  "test/jobs/crash-points.test.ts",
  "test/e2e/resumable.test.ts",
  "test/e2e/webhooks.test.ts",
];

/**
 * Starts the longest files first, so that no long file runs last, while the other workers are idle. All other files keep
 * their order, in which files of one project follow each other and share a Worker.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isFirst = ({ moduleId }: TestSpecification) => LONGEST.some((name) => moduleId.endsWith(name));
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))];
  }
}
