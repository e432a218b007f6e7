import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished } from "vitest";
import { newTeam, url } from "../support/team.ts";
import { exhaustive } from "../support/tiers.ts";

const root = join(import.meta.dirname, "../..");
const generator = join(root, "test/generator");
const run = promisify(execFile);

const COMPILER_OPTIONS = {
  strict: true,
  noEmit: true,
  module: "nodenext",
  target: "es2024",
  lib: ["es2024", "dom", "dom.iterable"],
  types: ["node"],
  allowImportingTsExtensions: true,
};

exhaustive(
  "openapi-typescript generates types by which a program uploads, lists, signs and deletes a file, and reads a user",
  async () => {
    const { key } = await newTeam();
    // Inside of the project, where the program finds openapi-fetch.
    mkdirSync(join(root, ".wrangler"), { recursive: true });
    const folder = mkdtempSync(join(root, ".wrangler/generated-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const command = join(generator, "node_modules/.bin/openapi-typescript");
    await run(command, [`${url}/openapi.json`, "--output", join(folder, "api.ts")]);
    copyFileSync(join(generator, "use.ts"), join(folder, "use.ts"));
    writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({ compilerOptions: COMPILER_OPTIONS, include: [folder] }),
    );
    await run(join(root, "node_modules/.bin/tsc"), ["-p", folder]);
    const { stdout } = await run(process.execPath, [join(folder, "use.ts"), url, key]);
    expect(JSON.parse(stdout)).toEqual({
      folder: "a/b",
      isListed: true,
      content: "hello",
      isDeleted: true,
      missing: "not_found",
      email: "ada@example.com",
    });
  },
);
