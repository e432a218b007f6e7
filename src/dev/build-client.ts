/**
 * `npm run build:client` builds client and CLI as an npm package in dist/client. The library is `stowage.js`, for every
 * runtime with `fetch`. The upload element is `element.js`, for browsers. The CLI is `command.js`, for Node, with
 * commander inside: the package has no dependencies.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const root = join(import.meta.dirname, "../..");
const source = join(root, "src/client");
const target = join(root, "dist/client");
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
  entryPoints: { stowage: join(source, "package.ts"), element: join(source, "element.ts") },
  platform: "neutral",
});
await build({
  ...options,
  entryPoints: { command: join(source, "command/main.ts") },
  platform: "node",
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
  "--rewriteRelativeImportExtensions",
];
execFileSync(process.execPath, [compiler, "-p", source, ...declarations, "--outDir", join(target, "types")], {
  stdio: "inherit",
});
rmSync(join(target, "types/command"), { recursive: true });

const manifest = {
  name: "stowage",
  version,
  description: `Client and CLI of Stowage: ${description}`,
  type: "module",
  engines: { node: ">=20.16" },
  exports: {
    ".": { types: "./types/package.d.ts", default: "./stowage.js" },
    "./element": { types: "./types/element.d.ts", default: "./element.js" },
  },
  bin: { stowage: "command.js" },
  // Importing the element defines it.
  sideEffects: ["./element.js"],
};
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
for (const name of ["README.md", "CHANGELOG.md"]) copyFileSync(join(source, name), join(target, name));
copyFileSync(join(root, "node_modules/commander/LICENSE"), join(target, "commander.LICENSE"));
console.log(`Built dist/client: client and CLI ${version}. Install them in another project:

  npm pack ./dist/client
  npm install PATH/stowage-${version}.tgz`);
