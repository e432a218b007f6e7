/**
 * Builds the web pages into .wrangler/console, which [assets] in wrangler.toml serves. Wrangler runs this before each build
 * of the Worker. `npm run dev` has its own folder, .wrangler/console-dev, so that a deployment leaves its pages alone. This is
 * plain JavaScript, because wrangler may run on a Node version that does not strip types.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, delimiter, join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";

const source = import.meta.dirname;
const root = join(source, "../..");
/** Other pages load the upload element from this path, which stays the same. */
const element = { in: join(source, "../client/element.ts"), out: "upload" };
const recorder = { in: join(source, "../client/element-sound.ts"), out: "upload-recorder" };
const german = { in: join(source, "../client/element-german.ts"), out: "upload-de" };
/** The element loads these from the service, whose URL it has. A script of another origin does not know its own URL. */
const laterOfService = {
  name: "later-of-service",
  setup({ onLoad }) {
    onLoad({ filter: /element-load\.ts$/ }, () => ({
      contents: `
        export const loadSound = (url) => import(url + "/assets/upload-recorder.js");
        export const loadGerman = (url) => import(url + "/assets/upload-de.js");
      `,
    }));
  },
};
/** The compiler checks the calls of the console, which so needs no check while it runs. */
const checkedArguments = {
  name: "checked-arguments",
  setup({ onLoad }) {
    onLoad({ filter: /arguments\.ts$/ }, () => ({ contents: "export function rejectSurplusArguments() {}" }));
  },
};
/** To esbuild, the styles of the element are a text, of which it removes no spaces. */
const compactStyles = {
  name: "compact-styles",
  setup({ onLoad }) {
    onLoad({ filter: /element-(view|recorder)\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replace(/STYLES = `[^`]*/, (styles) =>
        styles.replace(/\s*([{};,])\s*/g, "$1").replaceAll(": ", ":"),
      ),
      loader: "ts",
    }));
  },
};
/** `npm run dev` also serves a page that demonstrates it. */
const demo = join(source, "../dev/demo");
const hasDemo = process.env.STOWAGE_DEMO === "true";
const target = join(root, ".wrangler", hasDemo ? "console-dev" : "console");
/**
 * Makes each module that the console loads later import the console's entry point. So whatever the console loads first is
 * one chunk. By itself, esbuild makes a chunk of the modules that the same pages share: 28 scripts, most below 1 kB.
 */
const oneFirstChunk = {
  name: "one-first-chunk",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^\./ }, ({ kind, path, resolveDir }) =>
      kind === "dynamic-import" ? { path: join(resolveDir, path), namespace: "later" } : undefined,
    );
    onLoad({ filter: /./, namespace: "later" }, ({ path }) => ({
      contents: `export * from ${JSON.stringify(path)}; import ${JSON.stringify(join(source, "main.tsx"))};`,
      resolveDir: source,
    }));
  },
};
/**
 * Leaves the code that sends files out of the first script, although the client, which is in it, imports that code. The
 * script of uploads, the only one that sends files, has it and gives it to the client before it starts.
 */
const uploadsLater = {
  name: "uploads-later",
  setup({ onResolve, onLoad }) {
    const [uploads, sending] = [join(source, "uploads/uploading.ts"), join(source, "../client/upload.ts")];
    const [given, giving] = ["uploads-given", "uploads-giving"];
    onResolve({ filter: /^\.\/upload\.ts$/ }, ({ importer }) =>
      importer === join(source, "../client/files.ts") ? { path: sending, namespace: given } : undefined,
    );
    onLoad({ filter: /./, namespace: given }, () => ({
      contents: `
        let upload;
        export const give = (uploadFile) => { upload = uploadFile; };
        export const uploadFile = (...given) => upload(...given);
      `,
    }));
    onResolve({ filter: /^uploads-giv/ }, ({ path }) => ({ path: sending, namespace: path }));
    onLoad({ filter: /./, namespace: giving }, () => ({
      contents: `import { give } from "${given}"; import { uploadFile } from ${JSON.stringify(sending)}; give(uploadFile);`,
      resolveDir: source,
    }));
    onLoad({ filter: /uploading\.ts$/ }, ({ path }) =>
      path === uploads ? { contents: `import "${giving}";${readFileSync(path, "utf8")}`, loader: "ts" } : undefined,
    );
  },
};
/**
 * Packs the client as an npm package under a name with its hash, so that the address of each version stays the same. The
 * development server packs again only after a change of the client.
 * @returns the name of the file
 */
async function packClient() {
  const folder = `${target}-package`;
  const client = join(source, "../client");
  const timeOf = (path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const changedAt = Math.max(...readdirSync(client, { recursive: true }).map((name) => timeOf(join(client, name))));
  if (!hasDemo || timeOf(join(folder, "stowage/package.json")) < changedAt) {
    rmSync(folder, { recursive: true, force: true });
    // The project's own Node, which runs TypeScript.
    const PATH = `${join(root, "node_modules/.bin")}${delimiter}${process.env.PATH}`;
    const options = { env: { ...process.env, PATH }, shell: process.platform === "win32" };
    await promisify(execFile)("node", [join(root, "src/dev/build-client.ts"), join(folder, "stowage")], options);
  }
  const packed = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  const hash = createHash("sha256")
    .update(readFileSync(join(folder, packed)))
    .digest("hex")
    .slice(0, 12);
  const name = packed.replace("stowage", "client").replace(/\.tgz$/, `-${hash}$&`);
  const others = readdirSync(target).filter((other) => other.endsWith(".tgz"));
  for (const other of others) rmSync(join(target, other));
  copyFileSync(join(folder, packed), join(target, name));
  writeFileSync(join(target, "_redirects"), `/client.tgz /${name} 302\n`);
  return name;
}

/** The page `{name}.html`, or the rendered reference, gets `{name}.js` and `{name}.css` of its entry points. */
const ENTRIES = {
  home: { entryPoints: ["styles/home.css"] },
  console: {
    entryPoints: ["main.tsx", "styles/console.css"],
    format: "esm",
    splitting: true,
    plugins: [oneFirstChunk, uploadsLater],
  },
  share: { entryPoints: ["share.tsx", "styles/share.css"], format: "esm", splitting: true },
  reference: { entryPoints: ["reference/script.ts", "styles/reference.css"], format: "esm" },
};

const bundle = (entryPoints, { plugins = [], ...options }) =>
  build({
    entryPoints,
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
    // Leaves out the code of the client that only Node needs.
    define: { "globalThis.process": "undefined" },
    legalComments: "none",
    metafile: true,
    plugins: [checkedArguments, ...plugins],
    ...options,
  });
const builds = Object.entries(ENTRIES).map(([out, { entryPoints, ...options }]) =>
  bundle(
    entryPoints.map((entry) => ({ in: join(source, entry), out })),
    options,
  ),
);
// As a classic script, which pages of other origins may load without CORS.
builds.push(bundle([element], { format: "iife", entryNames: "[name]", plugins: [laterOfService, compactStyles] }));
// Browsers load it before they show a page only if the system forces its colors.
builds.push(bundle([{ in: join(source, "styles/forced-colors.css"), out: "forced-colors" }], {}));
builds.push(bundle([recorder, german], { format: "esm", entryNames: "[name]", plugins: [compactStyles] }));
if (hasDemo) builds.push(bundle([join(demo, "demo.js"), join(demo, "demo.css")], { entryNames: "[name]" }));
mkdirSync(target, { recursive: true });
const [client, ...bundled] = await Promise.all([packClient(), ...builds]);
const outputs = Object.assign({}, ...bundled.map(({ metafile }) => metafile.outputs));

const built = Object.keys(outputs).map((path) => basename(path));
const nameOf = (page, extension) => built.find((name) => name.startsWith(`${page}-`) && name.endsWith(extension));
/** Names the file of the client, which stays, in place of the address that redirects to it: in commands and links. */
const withClient = (text) =>
  text.replaceAll(/(https:\/\/(?:HOST|stowage\.example\.workers\.dev)|href=")\/client\.tgz/g, `$1/${client}`);
/** The script of a page, with links to those that it imports at once. The browser loads all of them in parallel. */
function linkScript(script) {
  const imports = Object.entries(outputs)
    .filter(([path]) => basename(path) === script)
    .flatMap(([, { imports }]) => imports.filter(({ kind }) => kind === "import-statement"))
    .map(({ path }) => `<link rel="modulepreload" href="/assets/${basename(path)}">`);
  return [`<script type="module" src="/assets/${script}"></script>`, ...imports].join("");
}
/** The common head of all pages. Not-found pages have the style of a link's page. */
function headOf(page) {
  const script = nameOf(page, ".js");
  return `<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/${nameOf(Object.hasOwn(ENTRIES, page) ? page : "share", ".css")}">
<link rel="stylesheet" href="/assets/${nameOf("forced-colors", ".css")}" media="(forced-colors: active)">
${script ? linkScript(script) : ""}`;
}

/** Renders the reference from the OpenAPI document. A program does it, because the document is made by the Worker's code. */
async function renderReference() {
  const program = `${target}-reference.js`;
  const contents = `
    import * as service from "../service.ts";
    import { describeApi } from "../http/openapi.ts";
    import { renderReference } from "./reference/page.tsx";
    export default renderReference(describeApi(service));
  `;
  await build({
    stdin: { contents, resolveDir: source, loader: "ts" },
    outfile: program,
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    external: ["*.wasm"],
  });
  return (await import(pathToFileURL(program).href)).default;
}

for (const page of [...Object.keys(ENTRIES), "gone", "not-found"]) {
  const template = page === "reference" ? renderReference() : readFileSync(join(source, `${page}.html`), "utf8");
  const html = withClient(await template).replace("<head>", `<head>${headOf(page)}`);
  writeFileSync(join(target, `${page}.html`), html);
}
// Under the same names in each build.
const copied = ["icon.svg", "pictures/files-light.webp", "pictures/files-dark.webp"];
for (const path of copied) {
  copyFileSync(join(source, path), join(target, "assets", basename(path)));
  built.push(basename(path));
}
// The documents of those who use the API, whose links lead to what the service serves, or to nothing.
const DOCUMENTS = { guide: "../GUIDE.md", client: "../client/README.md" };
const LINKS = { "client/README.md": "/client.md", "../GUIDE.md": "/guide.md", "../README.md": "/" };
for (const [name, path] of Object.entries(DOCUMENTS)) {
  const text = readFileSync(join(source, path), "utf8");
  const served = text.replaceAll(/\[([^\]]+)\]\((?!https?:|#|\/)([^)#]+)(#[^)]+)?\)/g, (_, label, to, anchor = "") =>
    Object.hasOwn(LINKS, to) ? `[${label}](${LINKS[to]}${anchor})` : label,
  );
  writeFileSync(join(target, `${name}.md`), withClient(served));
}
// With CORS, pages can also load the element as a module, or with a checksum. The recorder is a module.
let headers = `${readFileSync(join(source, "headers.txt"), "utf8").trim()}

/assets/upload.js
  Access-Control-Allow-Origin: *

/assets/upload-recorder.js
  Access-Control-Allow-Origin: *

/assets/upload-de.js
  Access-Control-Allow-Origin: *
`;
if (hasDemo) {
  copyFileSync(join(demo, "demo.html"), join(target, "assets/demo.html"));
  built.push("demo.html");
  headers += `
/assets/demo.html
  ! Content-Security-Policy
  Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'
`;
}
writeFileSync(join(target, "_headers"), headers);

// Files of earlier builds are deleted last, because a page that is being served may still refer to them.
for (const name of readdirSync(join(target, "assets"))) {
  if (!built.includes(name)) rmSync(join(target, "assets", name));
}
