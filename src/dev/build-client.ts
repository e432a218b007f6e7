/** `npm run build:client` builds client and CLI as an npm package in dist/client, for Node 20 and browsers. */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const root = join(import.meta.dirname, "../..");
const source = join(root, "src/client");
const target = join(root, "dist/client");
/** Only the CLI loads commander. */
const DEPENDENCIES = ["commander", "tus-js-client"];
const { version, description, devDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });

await build({
  entryPoints: { stowage: join(source, "package.ts"), command: join(source, "command/main.ts") },
  outdir: target,
  bundle: true,
  // Shares common code between both entry points.
  splitting: true,
  format: "esm",
  platform: "neutral",
  target: ["es2022", "node20.16"],
  external: [...DEPENDENCIES, "node:*"],
  minify: true,
  sourcemap: true,
  // The names of error classes are public.
  keepNames: true,
  legalComments: "none",
});
chmodSync(join(target, "command.js"), 0o755);

const compiler = join(root, "node_modules/typescript/bin/tsc");
const options = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rewriteRelativeImportExtensions"];
execFileSync(process.execPath, [compiler, "-p", source, ...options, "--outDir", join(target, "types")], {
  stdio: "inherit",
});
rmSync(join(target, "types/command"), { recursive: true });

const manifest = {
  name: "stowage",
  version,
  description: `Client and CLI of Stowage: ${description}`,
  type: "module",
  engines: { node: ">=20.16" },
  exports: { ".": { types: "./types/package.d.ts", default: "./stowage.js" } },
  bin: { stowage: "command.js" },
  sideEffects: false,
  dependencies: Object.fromEntries(DEPENDENCIES.map((name) => [name, devDependencies[name]])),
};
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
for (const name of ["README.md", "CHANGELOG.md"]) copyFileSync(join(source, name), join(target, name));
console.log(`Built dist/client: client and CLI ${version}. Install them in another project:

  npm pack ./dist/client
  npm install PATH/stowage-${version}.tgz`);
