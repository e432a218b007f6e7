import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";
import { withTables } from "../tools/structure/document.ts";

const root = join(import.meta.dirname, "../..");
const documents = globSync("{*.md,{src,test}/**/*.md}", { cwd: root, exclude: ["**/node_modules/**"] });
const read = (path: string) => readFileSync(join(root, path), "utf8");
const proseOf = (path: string) => read(path).replaceAll(/```.*?```/gs, "");

/** The anchors that GitHub gives to the headings of a document. */
const anchorsOf = (path: string): string[] =>
  [...proseOf(path).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\d\- ]/gu, "")
      .replaceAll(" ", "-"),
  );

test.each(documents)("each link of %s leads to a file, and to a heading in it", (document) => {
  const links = [...proseOf(document).matchAll(/\]\(([^)]+)\)/g)].map(([, link = ""]) => link);
  const broken = links.filter((link) => {
    if (/^https?:/.test(link)) return false;
    const [path = "", anchor] = link.split("#");
    const target = path === "" ? document : normalize(join(dirname(document), path));
    if (!existsSync(join(root, target))) return true;
    return anchor !== undefined && !anchorsOf(target).includes(anchor);
  });
  expect(broken).toEqual([]);
});

test("the description of the code names only files and folders that exist", () => {
  const text = proseOf("src/README.md");
  const paths = [...text.matchAll(/`([a-z][\w./-]*(?:\/|\.(?:ts|tsx|jsonc|toml)))`/g)].map(([, path = ""]) => path);
  expect(paths.length).toBeGreaterThan(80);
  // A kind of file is shown by that of keys, which are in `accounts/`.
  const places = ["src", "src/accounts", ".", "src/client"];
  expect(paths.filter((path) => !places.some((place) => existsSync(join(root, place, path))))).toEqual([]);
});

test("the tables of operations and of tables are those of the code: `npm run structure -- --write` writes them", () => {
  const text = read("src/README.md");
  for (const row of ["| `links` |", "| `openLink` |"]) expect(text).toContain(row);
  expect(withTables(text)).toBe(text);
});
