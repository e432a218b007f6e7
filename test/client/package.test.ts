import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { newTeam, url } from "../support/team.ts";

/* Installs the packed client in a folder outside of the project. */

const root = join(import.meta.dirname, "../..");
const MAX_GZIP_BYTES = 8000;
const folder = mkdtempSync(join(tmpdir(), "stowage package "));
const installed = join(folder, "node_modules/stowage");
const bin = join(folder, "node_modules/.bin/stowage");
const run = promisify(execFile);

beforeAll(async () => {
  await run(process.execPath, [join(root, "src/dev/build-client.ts")]);
  const { stdout } = await run("npm", ["pack", join(root, "dist/client"), "--silent"], { cwd: folder });
  mkdirSync(installed, { recursive: true });
  await run("tar", ["-xzf", stdout.trim(), "-C", installed, "--strip-components=1"], { cwd: folder });
  const { bin: bins } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  mkdirSync(dirname(bin));
  symlinkSync(join(installed, bins.stowage), bin);
  // Dependencies that npm would install from the network.
  for (const name of ["tus-js-client", "commander", "@types/node", "undici-types"]) {
    mkdirSync(join(folder, "node_modules", name, ".."), { recursive: true });
    symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name), "junction");
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the package", () => {
  test("has only its two dependencies, and contains the files that it names", () => {
    const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    expect(Object.keys(manifest.dependencies)).toEqual(["commander", "tus-js-client"]);
    const { types, default: script } = manifest.exports["."];
    expect(Object.keys(manifest.exports["."])).toEqual(["types", "default"]);
    const documents = ["README.md", "CHANGELOG.md", "stowage.js.map", "command.js.map"];
    for (const path of [types, script, manifest.bin.stowage, ...documents])
      expect(readFileSync(join(installed, path))).toBeTruthy();
    const texts = readdirSync(join(installed, "types")).map((name) =>
      readFileSync(join(installed, "types", name), "utf8"),
    );
    expect(texts.join()).not.toMatch(/zod|hono|drizzle|\.\.\//);
  });

  const programs = (process.env.PATH ?? "").split(delimiter).map((path) => join(path, "node"));
  const nodes = new Set(
    [process.execPath, ...programs].filter((path) => existsSync(path)).map((path) => realpathSync(path)),
  );

  // Each Node of this machine, because developers run the tests with a newer one than the oldest supported one.
  test.each([...nodes])(
    "runs as a command and as a module with %s, and transfers small and large files",
    async (node) => {
      const { key } = await newTeam();
      const PATH = dirname(node) + delimiter + process.env.PATH;
      const env = { ...process.env, PATH, STOWAGE_URL: url, STOWAGE_KEY: key, XDG_STATE_HOME: folder, HOME: folder };
      const stowage = (...args: string[]) => run(bin, args, { cwd: folder, env });
      for (const [name, size] of [
        ["small.bin", 10_000],
        ["large.bin", 9_000_000],
      ] as const) {
        writeFileSync(join(folder, name), Buffer.alloc(size));
        const { stdout, stderr } = await stowage("upload", name, "--json");
        expect(stderr).toBe("");
        const { id } = JSON.parse(stdout);
        expect((await stowage("get", id, "-o", `got ${name}`, "--force")).stderr).toBe("");
        expect(readFileSync(join(folder, `got ${name}`)).length).toBe(size);
      }
      const program = `import { Stowage, StowageError, verifyMessage } from "stowage";
        const { files } = new Stowage({ url: process.env.STOWAGE_URL, key: process.env.STOWAGE_KEY });
        const { id } = await files.upload("small.bin");
        const { byteLength } = await (await files.download(id)).arrayBuffer();
        console.log(byteLength, StowageError.name, verifyMessage.name);`;
      const output = (await run(node, ["--input-type=module", "-e", program], { cwd: folder, env })).stdout;
      expect(output).toBe("10000 StowageError verifyMessage\n");
    },
  );

  test("runs under a strict content security policy, including tus-js-client", async () => {
    const { outputFiles } = await build({
      stdin: { contents: 'export * from "stowage"', resolveDir: folder },
      bundle: true,
      splitting: true,
      format: "esm",
      platform: "browser",
      outdir: folder,
      write: false,
    });
    const text = outputFiles.map(({ text }) => text).join("\n");
    expect(text).toContain("Tus-Resumable");
    expect(text).not.toMatch(
      /\beval\b|\bFunction\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write|importScripts/,
    );
  });

  test("has types for other programs, with and without DOM, which reject an unknown field", async () => {
    const program = (code: string) => `import { Stowage, StowageError } from "stowage";
      const stowage = new Stowage({ url: "https://stowage.example", key: "key" });
      export const size: number = (await stowage.files.get("1")).size;
      export const isOurs = (error: unknown) => error instanceof StowageError && error.code === "not_found";
      ${code}`;
    const check = async (code: string, lib = "es2023,dom,dom.iterable,dom.asynciterable", types = "") => {
      writeFileSync(join(folder, "program.mts"), program(code));
      const compiler = join(root, "node_modules/typescript/bin/tsc");
      const options = ["--noEmit", "--strict", "--target", "es2023", "--lib", lib];
      const modules = ["--module", "nodenext", "--skipLibCheck", "false", "--types", types];
      const { stdout } = await run(process.execPath, [compiler, ...options, ...modules, "program.mts"], {
        cwd: folder,
      }).catch((error) => error);
      return stdout;
    };
    expect(await check("await stowage.users.create({ email: 'a@example.com', password: '12345678' });")).toBe("");
    expect(
      await check("await stowage.users.create({ email: 'a@example.com', password: '12345678', nickname: '' });"),
    ).toMatch(/program\.mts.*nickname/);
    expect(await check("await stowage.files.delete('1');", "es2023", "node")).toBe("");
  });

  test(`has at most ${MAX_GZIP_BYTES} bytes in a browser, compressed, and no Node modules`, async () => {
    const result = await build({
      stdin: { contents: 'export * from "stowage"', resolveDir: folder },
      bundle: true,
      minify: true,
      format: "esm",
      platform: "browser",
      external: ["tus-js-client"],
      write: false,
    });
    const text = result.outputFiles[0]?.text ?? "";
    expect(text).not.toMatch(/from\s*"node:/);
    expect(gzipSync(text).length).toBeLessThanOrEqual(MAX_GZIP_BYTES);
  });
});
