import { relative } from "node:path";
import { BaseSequencer, type TestSpecification, type Vitest } from "vitest/node";
import { type Durations, modeOf, readExpected } from "./durations.ts";

interface Sortable {
  moduleId: string;
  project: { name: string };
}

/** In this order. The files of a project follow one another, because a process is kept only for its next file. */
const PROJECTS = ["node", "client", "browser", "workerd"];

/**
 * Sorts the files of each project by their expected durations, the longest first, so that no long file runs last, while
 * the other workers are idle. A file without one counts as the longest.
 */
export function sortLongestFirst<T extends Sortable>(files: T[], root: string, expected: Durations): T[] {
  const secondsOf = ({ moduleId }: T) =>
    expected[relative(root, moduleId).replaceAll("\\", "/")] ?? Number.MAX_SAFE_INTEGER;
  const turnOf = ({ project }: T) => PROJECTS.indexOf(project.name);
  return files.toSorted((a, b) => turnOf(a) - turnOf(b) || secondsOf(b) - secondsOf(a));
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
