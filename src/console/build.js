/**
 * Builds the pages for people into .wrangler/console: what [assets] of wrangler.toml serves. Wrangler runs it before each
 * build of the Worker. Plain JavaScript, since the Node that runs wrangler may be one that knows no types.
 */
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";

const source = import.meta.dirname;
const target = join(source, "../../.wrangler/console");
/** The page `{name}.html` has the script `{name}.js` and the style `{name}.css` of its entry. */
const ENTRIES = { home: "styles/home.css", console: "main.tsx", reference: "reference/main.tsx" };

// Each page by itself: 1 kB less of the console than with files that it shares with the reference.
const builds = Object.entries(ENTRIES).map(([out, entry]) =>
  build({
    entryPoints: [{ in: join(source, entry), out }],
    outdir: join(target, "assets"),
    // A new content has a new name. They are kept for a day, not for ever, since so are 404s (headers.txt).
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    target: ["es2022", "chrome123", "firefox125", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
    conditions: ["browser"],
    alias: { "tus-js-client": join(source, "uploads/tus.ts") },
    minify: true,
    legalComments: "none",
    metafile: true,
  }),
);
const outputs = (await Promise.all(builds)).flatMap(({ metafile }) => Object.keys(metafile.outputs));

const built = outputs.map((path) => basename(path));
const nameOf = (page, extension) => built.find((name) => name.startsWith(`${page}-`) && name.endsWith(extension));
for (const page of Object.keys(ENTRIES)) {
  const html = readFileSync(join(source, `${page}.html`), "utf8").replace(
    /\/assets\/(\w+)(\.\w+)/g,
    (link, name, extension) => {
      const hashed = nameOf(name, extension);
      return hashed ? `/assets/${hashed}` : link;
    },
  );
  writeFileSync(join(target, `${page}.html`), html);
}
copyFileSync(join(source, "icon.svg"), join(target, "assets/icon.svg"));
copyFileSync(join(source, "headers.txt"), join(target, "_headers"));

// What earlier builds left goes last: a page that is being served may still name it.
for (const name of readdirSync(join(target, "assets"))) {
  if (name !== "icon.svg" && !built.includes(name)) rmSync(join(target, "assets", name));
}
