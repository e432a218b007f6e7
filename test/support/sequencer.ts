import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that need the most CPU time. */
const COMPUTING = ["test/jobs/resumable-faults.test.ts", "test/jobs/crash-points.test.ts"];

/**
 * Starts the files that need the most CPU time first: the tests of pages and servers, which run at the same time, mostly wait.
 * All other files keep their order, in which files of one project follow each other and share a Worker.
 */
export default class ComputingFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isFirst = ({ moduleId }: TestSpecification) => COMPUTING.some((name) => moduleId.endsWith(name));
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))];
  }
}
