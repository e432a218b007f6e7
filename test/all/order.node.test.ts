import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { folderOf, readSource, serviceFiles } from "../tools/structure/sources.ts";

/**
 * The folders of the service, lowest first. The rules of a folder use those of the folders before it, and the tables of any. Folders of
 * one line don't use each other. src/README.md says what each has.
 */
const ORDER = [
  ["platform"],
  ["audio"],
  ["access"],
  ["events"],
  ["files"],
  ["uploads"],
  ["accounts"],
  ["waveforms"],
  ["trash", "folders", "links"],
  ["transcripts"],
  ["webhooks", "search"],
  ["upkeep"],
];
const rankOf = (folder: string) => ORDER.findIndex((folders) => folders.includes(folder));

/** What each file imports from other folders. */
function* importsAcross(): Generator<{ path: string; target: string }> {
  for (const path of serviceFiles()) {
    for (const [, from = ""] of readSource(path).matchAll(/ from "(\.[^"]+)";/g)) {
      const target = join(dirname(path), from);
      if (folderOf(target) !== folderOf(path)) yield { path, target };
    }
  }
}

/** The tables, and the types of events that stand beside them. */
const isTable = (path: string) => /\.schema\.ts$|event-types\.ts$/.test(path);
const isRule = (path: string) => folderOf(path) !== "" && folderOf(path) !== "http" && !path.endsWith(".routes.ts");

test("rules use those of lower folders, and tables of any", () => {
  const upward: string[] = [];
  const ranks = new Set<number>();
  for (const { path, target } of importsAcross()) {
    if (!isRule(path) || folderOf(target) === "" || isTable(target)) continue;
    const [own, used] = [rankOf(folderOf(path)), rankOf(folderOf(target))];
    ranks.add(own);
    if (own === -1 || used === -1 || used >= own) upward.push(`${path} imports ${target}`);
  }
  expect(upward).toEqual([]);
  // So that it has read them all: the two lowest folders use no other.
  expect(ranks.size).toBe(ORDER.length - 2);
});

test("the frame uses no capability", () => {
  const used = [...importsAcross()].filter(
    ({ path, target }) => folderOf(path) === "http" && rankOf(folderOf(target)) > rankOf("access"),
  );
  expect(used).toEqual([]);
});

test("only service.ts, event-types.ts, index.ts and deps.ts use several capabilities", () => {
  const naming = new Map<string, Set<string>>();
  for (const { path, target } of importsAcross()) {
    if (folderOf(path) !== "") continue;
    const known = naming.get(path) ?? new Set();
    if (rankOf(folderOf(target)) > rankOf("access")) naming.set(path, known.add(folderOf(target)));
  }
  const several = [...naming].filter(([, folders]) => folders.size > 1).map(([path]) => path);
  // deps.ts has the bindings of each.
  const allowed = ["deps.ts", "event-types.ts", "index.ts", "service.ts"];
  expect(several.filter((path) => !allowed.includes(path))).toEqual([]);
  expect(several).toContain("service.ts");
});
