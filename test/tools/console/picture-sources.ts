import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

/* Which sources the pictures of the README show. `npm run pictures` takes them. */

const root = join(import.meta.dirname, "../../..");
export const PICTURES = join(root, "src/console/pictures");
const HASH = join(PICTURES, "sources.sha256");

/** The modules and styles of the console's pages, without those of the client. */
async function consoleSources(): Promise<string[]> {
  const { metafile } = await build({
    entryPoints: ["src/console/main.tsx"],
    absWorkingDir: root,
    outdir: "unused",
    write: false,
    bundle: true,
    format: "esm",
    splitting: true,
    jsx: "automatic",
    jsxImportSource: "preact",
    conditions: ["browser"],
    metafile: true,
    logLevel: "silent",
  });
  const modules = Object.keys(metafile.inputs).filter((path) => path.startsWith("src/console/"));
  return [...modules, "src/console/console.html"].sort();
}

/** SHA-256 in hex over the paths and the text of the sources. */
export async function hashSources(): Promise<string> {
  const hash = createHash("sha256");
  for (const path of await consoleSources()) hash.update(`${path}\0${readFileSync(join(root, path), "utf8")}\0`);
  return hash.digest("hex");
}

/** The hash of the sources that the pictures were taken of, or "" if there is none. */
export function readHash(): string {
  try {
    return readFileSync(HASH, "utf8").trim();
  } catch {
    return "";
  }
}

export const writeHash = (hash: string): void => writeFileSync(HASH, `${hash}\n`);
