import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Those that compute for the longest. */
const COMPUTING = ["test/jobs/resumable-faults.test.ts", "test/jobs/crash-points.test.ts"];

/**
 * Vitest goes from one project to the next, and those of pages and servers mostly wait: what computes for the longest
 * is done meanwhile. All else keeps its order, in which files of one project follow each other and share a Worker.
 */
export default class ComputingFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isFirst = ({ moduleId }: TestSpecification) => COMPUTING.some((name) => moduleId.endsWith(name));
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))];
  }
}
