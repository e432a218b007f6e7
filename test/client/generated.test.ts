import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { newTeam, url } from "../support/team.ts";
import { exhaustive, isExhaustive } from "../support/tiers.ts";

const root = join(import.meta.dirname, "../..");
const generators = join(root, "test/generator");
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

/**
 * `STOWAGE_MAVEN=true npm run test:all` also tries these, which takes ten minutes: Maven loads the generator and its libraries from
 * Maven Central, and a run of the tests needs no network.
 */
const isTried = isExhaustive && process.env.STOWAGE_MAVEN === "true";

for (const [language, generator] of [
  ["java", "java, with the library native,"],
  ["kotlin", "kotlin"],
] as const) {
  test.runIf(isTried)(
    `openapi-generator's ${generator} makes classes by which a program uploads, lists, signs, transcribes and deletes a file, and reads a user and a key`,
    { timeout: 900_000 },
    async () => {
      const { key } = await newTeam();
      const folder = mkdtempSync(join(tmpdir(), "stowage-generated-"));
      onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
      const document = await (await fetch(`${url}/openapi.json`)).text();
      writeFileSync(join(folder, "openapi.json"), document);
      const { stdout } = await run(
        "mvn",
        [
          ...[
            "--quiet",
            "--file",
            join(generators, language, "pom.xml"),
            "compile",
            "exec:java",
            "-Dexec.mainClass=Use",
          ],
          ...[`-Ddocument=${join(folder, "openapi.json")}`, `-Dfolder=${folder}`, `-Dexec.args=${url} ${key}`],
        ],
        { maxBuffer: 2 ** 26 },
      );
      const last = stdout.trim().split("\n").at(-1) ?? "";
      expect(JSON.parse(last)).toEqual({
        folder: "a/b",
        isListed: true,
        content: "hello",
        language: "en",
        hasPeaks: false,
        isDeleted: true,
        missing: 404,
        email: "ada@example.com",
        isKey: true,
      });
    },
  );
}

exhaustive(
  "openapi-typescript generates types by which a program uploads, lists, signs and deletes a file, and reads a user",
  async () => {
    const { key } = await newTeam();
    // Inside of the project, where the program finds openapi-fetch.
    mkdirSync(join(root, ".wrangler"), { recursive: true });
    const folder = mkdtempSync(join(root, ".wrangler/generated-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const command = join(generators, "node_modules/.bin/openapi-typescript");
    await run(command, [`${url}/openapi.json`, "--output", join(folder, "api.ts")]);
    copyFileSync(join(generators, "use.ts"), join(folder, "use.ts"));
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
