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
 * `STOWAGE_GENERATORS=true npm run test:all` also tries the generators of other languages, which takes five minutes, and needs
 * Java, Maven, Python and the network.
 */
const isTried = isExhaustive && process.env.STOWAGE_GENERATORS === "true";

/** What each program finds. */
const FOUND = {
  folder: "a/b",
  isListed: true,
  content: "hello",
  language: "en",
  hasPeaks: false,
  isDeleted: true,
  missing: 404,
  email: "ada@example.com",
  isKey: true,
};

/** A folder with the document of the service. */
async function newFolder(): Promise<{ folder: string; document: string }> {
  const folder = mkdtempSync(join(tmpdir(), "stowage-generated-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const document = join(folder, "openapi.json");
  writeFileSync(document, await (await fetch(`${url}/openapi.json`)).text());
  return { folder, document };
}

/** Generates a client and runs the program that uses it. @returns what it prints */
type Generate = (folder: string, document: string, key: string) => Promise<string>;

const withMaven =
  (language: string): Generate =>
  async (folder, document, key) => {
    const project = join(generators, language, "pom.xml");
    const goals = ["--quiet", "--file", project, "compile", "exec:java", "-Dexec.mainClass=Use"];
    const values = [`-Ddocument=${document}`, `-Dfolder=${folder}`, `-Dexec.args=${url} ${key}`];
    return (await run("mvn", [...goals, ...values], { maxBuffer: 2 ** 26 })).stdout;
  };

const withPython: Generate = async (folder, document, key) => {
  const bin = join(folder, "environment/bin");
  await run("python3", ["-m", "venv", join(folder, "environment")]);
  await run(join(bin, "pip"), ["install", "--quiet", "openapi-python-client==0.29.1"]);
  const output = ["--output-path", join(folder, "api"), "--meta", "none"];
  await run(join(bin, "openapi-python-client"), ["generate", "--path", document, ...output]);
  copyFileSync(join(generators, "python/use.py"), join(folder, "use.py"));
  return (await run(join(bin, "python"), [join(folder, "use.py"), url, key])).stdout;
};

test.runIf(isTried).for<[name: string, generate: Generate]>([
  ["openapi-generator's java, with the library native,", withMaven("java")],
  ["openapi-generator's kotlin", withMaven("kotlin")],
  ["openapi-python-client", withPython],
])(
  "%s makes classes by which a program uploads, lists, signs, transcribes and deletes a file, and reads a user and a key",
  { timeout: 900_000 },
  async ([, generate]) => {
    const [{ key }, { folder, document }] = await Promise.all([newTeam(), newFolder()]);
    const printed = await generate(folder, document, key);
    // Maven ends with a line that resets colors.
    expect(JSON.parse(printed.split("\n").findLast((line) => line.startsWith("{")) ?? "null")).toEqual(FOUND);
  },
);

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
