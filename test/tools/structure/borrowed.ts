/**
 * The names that a rule borrows: the values that it uses of other folders, without types and `platform/`. A namespace counts by the members
 * that are used. Whoever changes a rule has to know each of them.
 */
import { folderOf, importsOf, readSource, root, serviceFiles, withoutComments } from "./sources.ts";

/** Folders that are not about the service's own things. */
const GROUND = ["platform", "audio", "http"];

/** Whether the file states rules: no routes, no tables, and not what puts the parts together. */
const isRule = (path: string) =>
  folderOf(path) !== "" && !GROUND.includes(folderOf(path)) && !/\.(routes|schema)\.ts$/.test(path);

/** The distinct names that a file uses of other folders. */
export function borrowedNames(path: string, source: string): string[] {
  const code = withoutComments(source);
  const names = importsOf(path, source)
    .filter(({ from }) => ![folderOf(path), "platform", ""].includes(folderOf(from)))
    .flatMap(({ from, values, namespace }) => {
      const members = namespace ? [...code.matchAll(new RegExp(`\\b${namespace}\\.(\\w+)`, "g"))] : [];
      return [...values, ...members.map(([, member = ""]) => member)].map((name) => `${folderOf(from)}:${name}`);
    });
  return [...new Set(names)];
}

/** Each rule file with the number of its borrowed names and of the folders that they come from, most first. */
export function countBorrowed(project = root) {
  const counts = serviceFiles(project)
    .filter(isRule)
    .map((path) => {
      const names = borrowedNames(path, readSource(path, project));
      return { path, names: names.length, folders: new Set(names.map((name) => name.split(":")[0])).size };
    });
  return counts.filter(({ names }) => names > 0).sort((a, b) => b.names - a.names || a.path.localeCompare(b.path));
}
