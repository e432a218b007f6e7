/**
 * Builds the web pages into .wrangler/console, which [assets] in wrangler.toml serves. Wrangler runs this before each build
 * of the Worker. It is plain JavaScript, because wrangler may run on a Node version that does not strip types.
 */
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";

const source = import.meta.dirname;
const target = join(source, "../../.wrangler/console");
/** The page `{name}.html` has the script `{name}.js` and the stylesheet `{name}.css` of its entry points. */
const ENTRIES = {
  home: { entryPoints: ["styles/home.css"] },
  console: { entryPoints: ["main.tsx"], format: "esm", splitting: true },
  // A page with an opaque origin can't load modules, which need its origin's permission.
  reference: { entryPoints: ["reference.js", "styles/reference.css"], format: "iife" },
};

const builds = Object.entries(ENTRIES).map(([out, { entryPoints, ...options }]) =>
  build({
    entryPoints: entryPoints.map((entry) => ({ in: join(source, entry), out })),
    outdir: join(target, "assets"),
    // Changed content has a new name. Files are cached for a day and not forever, because 404s are too (headers.txt).
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    bundle: true,
    target: ["es2022", "chrome123", "firefox125", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
    conditions: ["browser"],
    minify: true,
    legalComments: "none",
    metafile: true,
    ...options,
  }),
);
const outputs = Object.assign({}, ...(await Promise.all(builds)).map(({ metafile }) => metafile.outputs));

const built = Object.keys(outputs).map((path) => basename(path));
/** Links to the scripts that a script imports at once. With them, the browser loads all of them in parallel. */
const preloads = (script) =>
  Object.entries(outputs)
    .filter(([path]) => basename(path) === script)
    .flatMap(([, { imports }]) => imports.filter(({ kind }) => kind === "import-statement"))
    .map(({ path }) => `<link rel="modulepreload" href="/assets/${basename(path)}">`)
    .join("");
const nameOf = (page, extension) => built.find((name) => name.startsWith(`${page}-`) && name.endsWith(extension));
for (const page of Object.keys(ENTRIES)) {
  const html = readFileSync(join(source, `${page}.html`), "utf8")
    .replace(/\/assets\/(\w+)(\.\w+)/g, (link, name, extension) => {
      const hashed = nameOf(name, extension);
      return hashed ? `/assets/${hashed}` : link;
    })
    .replace("</head>", `${preloads(nameOf(page, ".js"))}</head>`);
  writeFileSync(join(target, `${page}.html`), html);
}
copyFileSync(join(source, "icon.svg"), join(target, "assets/icon.svg"));
copyFileSync(join(source, "headers.txt"), join(target, "_headers"));

// Files of earlier builds are deleted last, because a page that is being served may still refer to them.
for (const name of readdirSync(join(target, "assets"))) {
  if (name !== "icon.svg" && !built.includes(name)) rmSync(join(target, "assets", name));
}
