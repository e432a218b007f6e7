/** Reads the service's sources as text: enough for counting, because every import is one statement in the same form. */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

export const root = join(import.meta.dirname, "../../..");

/** Folders that are not part of the service: they use it over HTTP, or by its scripts. */
const OTHERS = ["client", "console", "dev"];

/** The TypeScript files of the service, from `src/`, such as `links/links.ts`. */
export const serviceFiles = (project = root): string[] =>
  globSync("**/*.ts", { cwd: join(project, "src") })
    .filter((path) => !OTHERS.includes(folderOf(path)) && !path.endsWith(".d.ts"))
    .sort();

export const readSource = (path: string, project = root): string => readFileSync(join(project, "src", path), "utf8");

/** The folder of a file; empty for one that lies directly in `src/`. */
export const folderOf = (path: string): string => (path.includes("/") ? path.slice(0, path.indexOf("/")) : "");

/** The code without comments. A string may contain `//`, so only comments that begin a line or follow a space count. */
export const withoutComments = (source: string): string =>
  source.replaceAll(/\/\*.*?\*\//gs, "").replaceAll(/(^|\s)\/\/.*$/gm, "$1");

export interface Import {
  /** The imported file, from `src/`. */
  from: string;
  /** The names of values. */
  values: string[];
  /** The name of `import * as name`. */
  namespace: string | null;
}

/** The imports of files of the project. */
export function importsOf(path: string, source: string): Import[] {
  const statements = source.matchAll(/^(?:import|export) (type )?([^;]*?) from "(\.[^"]+)";/gms);
  return [...statements].flatMap(([, isType, clause = "", target = ""]): Import[] => {
    if (isType) return [];
    const from = normalize(join(dirname(path), target));
    const namespace = /^\* as (\w+)$/.exec(clause.trim())?.[1] ?? null;
    const names = /\{([^}]*)\}/s.exec(clause)?.[1]?.split(",") ?? [];
    const values = names.map((name) => name.trim()).filter((name) => name !== "" && !name.startsWith("type "));
    return [{ from, namespace, values: values.map((name) => name.replace(/ as .*/, "")) }];
  });
}
