/**
 * `npm run build:client` builds client and CLI as an npm package in dist/client, or in the folder of the argument, and packs
 * it beside that folder. The library is `stowage.js`, for every runtime with `fetch`. Webhook endpoints have `webhooks.js`.
 * The upload element is `element.js`, for browsers. The CLI is `command.js`, for Node, with commander inside: the package has
 * no dependencies.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { build } from "esbuild";
import { operations } from "../service.ts";

const root = join(import.meta.dirname, "../..");
const source = join(root, "src/client");
const target = resolve(process.argv[2] ?? join(root, "dist/client"));
const { version, description } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });

const options = {
  outdir: target,
  bundle: true,
  format: "esm" as const,
  target: ["es2022", "node20.16"],
  // Not minified: an uncaught error in Node prints the line that threw it. Bundlers for browsers minify by themselves.
  legalComments: "none" as const,
};
await build({
  ...options,
  entryPoints: { stowage: join(source, "index.ts"), webhooks: join(source, "signatures.ts") },
  platform: "neutral",
});
// The recorder is loaded with the first recording.
await build({ ...options, entryPoints: { element: join(source, "element.ts") }, platform: "neutral", splitting: true });
await build({
  ...options,
  entryPoints: { command: join(source, "command/main.ts") },
  platform: "node",
  // The same at run time.
  alias: { "@commander-js/extra-typings": "commander" },
  // commander is CommonJS.
  banner: { js: 'import { createRequire } from "node:module";\nconst require = createRequire(import.meta.url);' },
});
chmodSync(join(target, "command.js"), 0o755);

const compiler = join(root, "node_modules/typescript/bin/tsc");
const declarations = [
  "--noEmit",
  "false",
  "--declaration",
  "--emitDeclarationOnly",
  "--stripInternal",
  "--declarationMap",
  "--rewriteRelativeImportExtensions",
];
execFileSync(process.execPath, [compiler, "-p", source, ...declarations, "--outDir", join(target, "types")], {
  stdio: "inherit",
});
rmSync(join(target, "types/command"), { recursive: true });

/** The samples of the API's reference, by class and method. */
const examples = new Map<string, string>();
for (const { sample } of Object.values(operations)) {
  if (!sample) continue;
  const [method = "", resource = "stowage"] = (/stowage\.([\w.]+)\(/.exec(sample)?.[1] ?? "").split(".").reverse();
  const key = `${resource.charAt(0).toUpperCase()}${resource.slice(1)}.${method}`;
  if (!examples.has(key)) examples.set(key, sample.replaceAll(/\s*\n\s*/g, " "));
}

/** Adds the samples to the comments of methods. Each line keeps its number, which declaration maps contain. */
function withExamples(declarations: string): string {
  const lines = declarations.split("\n");
  let owner = "";
  for (const [index, line] of lines.entries()) {
    owner = /^export declare class (\w+)/.exec(line)?.[1] ?? owner;
    const key = `${owner}.${/^ {4}(\w+)\(/.exec(line)?.[1]}`;
    const comment = lines[index - 1] ?? "";
    const example = examples.get(key);
    if (!example || !comment.endsWith("*/")) continue;
    lines[index - 1] = comment.replace(
      / ?\*\/$/,
      comment.includes("/**") ? ` @example ${example} */` : `* @example ${example} */`,
    );
    examples.delete(key);
  }
  return lines.join("\n");
}

// An editor goes to the source of a definition.
mkdirSync(join(target, "src"));
for (const name of readdirSync(join(target, "types"))) {
  const file = join(target, "types", name);
  const text = readFileSync(file, "utf8");
  const sourceName = name.replace(/\.d\.ts(\.map)?$/, ".ts");
  if (name.endsWith(".map"))
    writeFileSync(file, JSON.stringify({ ...JSON.parse(text), sources: [`../src/${sourceName}`] }));
  else {
    writeFileSync(file, withExamples(text));
    copyFileSync(join(source, sourceName), join(target, "src", sourceName));
  }
}

const manifest = {
  name: "stowage",
  version,
  description: `Client and CLI of Stowage: ${description}`,
  keywords: ["stowage", "upload", "audio", "recorder", "tus"],
  // Its owner has not chosen a license.
  license: "UNLICENSED",
  type: "module",
  engines: { node: ">=20.16" },
  files: ["*.js", "types", "src", "CHANGELOG.md", "commander.LICENSE"],
  exports: {
    ".": { types: "./types/index.d.ts", default: "./stowage.js" },
    "./webhooks": { types: "./types/signatures.d.ts", default: "./webhooks.js" },
    "./element": { types: "./types/element.d.ts", default: "./element.js" },
    "./package.json": "./package.json",
  },
  bin: { stowage: "command.js" },
  // Importing the element defines it.
  sideEffects: ["./element.js"],
};
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
for (const name of ["README.md", "CHANGELOG.md"]) copyFileSync(join(source, name), join(target, name));
copyFileSync(join(root, "node_modules/commander/LICENSE"), join(target, "commander.LICENSE"));
// npm sorts the files and fixes their times, so that the same files make the same bytes.
const packing = ["pack", target, "--pack-destination", dirname(target), "--ignore-scripts", "--silent"];
execFileSync("npm", packing, { stdio: "inherit", shell: process.platform === "win32" });
