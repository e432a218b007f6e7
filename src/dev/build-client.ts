/**
 * `npm run build:client`: the client and the command as an npm package in dist/client, for plain Node 20 and browsers.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const root = join(import.meta.dirname, "../..");
const source = join(root, "src/client");
const target = join(root, "dist/client");
const { version, description, dependencies, devDependencies } = JSON.parse(
  readFileSync(join(root, "package.json"), "utf8"),
);

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });

await build({
  entryPoints: { stowage: join(source, "package.ts"), command: join(source, "command/main.ts") },
  outdir: target,
  bundle: true,
  // What both have in common is there once.
  splitting: true,
  format: "esm",
  platform: "neutral",
  target: ["es2022", "node20.16"],
  external: ["tus-js-client", "node:*"],
  minify: true,
  // Names of classes are those of errors.
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
  description: `Client and command line of Stowage: ${description}`,
  type: "module",
  engines: { node: ">=20.16" },
  exports: { ".": { types: "./types/package.d.ts", default: "./stowage.js" } },
  bin: { stowage: "command.js" },
  sideEffects: false,
  dependencies: {
    "tus-js-client": (dependencies ?? devDependencies)["tus-js-client"] ?? devDependencies["tus-js-client"],
  },
};
writeFileSync(join(target, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
copyFileSync(join(source, "README.md"), join(target, "README.md"));
