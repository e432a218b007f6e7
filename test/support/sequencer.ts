import { relative } from "node:path";
import { BaseSequencer, type TestSpecification, type Vitest } from "vitest/node";
import { type Durations, modeOf, readExpected } from "./durations.ts";

interface Sortable {
  moduleId: string;
  project: { config: { isolate: boolean } };
}

/**
 * Sorts files by their expected durations, the longest first, so that no long file runs last, while the other workers are
 * idle. A file without one counts as the longest. Files that share a Worker follow one another, after all others, because
 * a Worker is kept only for the next file.
 */
export function sortLongestFirst<T extends Sortable>(files: T[], root: string, expected: Durations): T[] {
  const secondsOf = ({ moduleId }: T) =>
    expected[relative(root, moduleId).replaceAll("\\", "/")] ?? Number.MAX_SAFE_INTEGER;
  const isLast = ({ project }: T) => Number(!project.config.isolate);
  return files.toSorted((a, b) => isLast(a) - isLast(b) || secondsOf(b) - secondsOf(a));
}

export default class LongestFirst extends BaseSequencer {
  readonly #vitest: Vitest;

  constructor(vitest: Vitest) {
    super(vitest);
    this.#vitest = vitest;
  }

  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { root } = this.#vitest.config;
    return sortLongestFirst(await super.sort(files), root, readExpected(modeOf(this.#vitest.vite.config.mode)));
  }
}
