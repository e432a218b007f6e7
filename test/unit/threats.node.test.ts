import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const read = (path: string) => readFileSync(join(root, path), "utf8");

/** The tests of a file that THREATS.md names without its ending, such as `api/links`. */
function testsOf(name: string): string {
  const [folder = "", file] = name.split("/");
  const found = readdirSync(join(root, folder)).filter((path) => path.split(".")[0] === file);
  return found.map((path) => read(`${folder}/${path}`).replaceAll('\\"', '"')).join("\n");
}

test("each test that the list of threats names exists", () => {
  const missing: string[] = [];
  for (const [, name = "", titles = ""] of read("THREATS.md").matchAll(/`(\w+\/[\w-]+)` › ((?:`[^`]+`(?:, )?)+)/g)) {
    const tests = testsOf(name);
    // "…" replaces the rest of a title, or a value in it.
    const isNamed = (title: string) => title.split("…").every((piece) => tests.includes(piece.trim()));
    missing.push(
      ...[...titles.matchAll(/`([^`]+)`/g)].flatMap(([, title = ""]) => (isNamed(title) ? [] : `${name} › ${title}`)),
    );
  }
  expect(missing).toEqual([]);
});
