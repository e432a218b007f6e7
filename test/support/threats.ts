/** A test that THREATS.md names, such as `links/links` › `Opening a link`. */
interface NamedTest {
  /** Its path under `test/` up to the first dot. */
  file: string;
  title: string;
}

/** Returns the tests that the text names. A file without titles, whose tests all show something, has none here. */
export function namedTests(threats: string): NamedTest[] {
  const names = threats.matchAll(/`((?:\w+\/)?[\w-]+)` › ((?:`[^`]+`(?:, )?)+)/g);
  return [...names].flatMap(([, file = "", titles = ""]) =>
    [...titles.matchAll(/`([^`]+)`/g)].map(([, title = ""]) => ({ file, title })),
  );
}

/** @param fullName - of a test, with those of its groups. In a title, "…" replaces the rest, or a value. */
const hasTitle = (fullName: string, title: string) =>
  title.split("…").every((piece) => fullName.includes(piece.trim()));

/**
 * Returns the named tests of which none has passed, of the files that ran.
 *
 * @param passed - the tests that passed, with paths from `test/`
 */
export function findUnshown(threats: string, passed: { path: string; fullName: string }[]): string[] {
  const byFile = Map.groupBy(passed, ({ path }) => path.split(".")[0]);
  return namedTests(threats)
    .filter(({ file, title }) => byFile.get(file)?.every(({ fullName }) => !hasTitle(fullName, title)))
    .map(({ file, title }) => `${file} › ${title}`);
}
