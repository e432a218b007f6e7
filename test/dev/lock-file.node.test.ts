import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { findUnverified } from "../../src/dev/lock-check.ts";

const read = (name: string) => JSON.parse(readFileSync(join(import.meta.dirname, "../..", name), "utf8"));

describe("The lock file", () => {
  const integrity = "sha512-49CycTz1";
  const resolved = "https://registry.npmjs.org/hono/-/hono-4.13.19.tgz";

  test("has a checksum of each package, and names no unusual registry", () => {
    expect(findUnverified(read("package-lock.json"))).toEqual([]);
  });

  test.each([
    ["has no checksum", {}, 1],
    ["has a weak checksum", { integrity: "sha1-Zm9v" }, 1],
    ["is fixed to another registry", { integrity, resolved: "https://npm.example.com/hono.tgz" }, 1],
    ["has a checksum", { integrity, resolved }, 0],
    ["is part of the project", { link: true, resolved: "test/generator" }, 0],
  ])("counts a package that %s", (_, entry, problems) => {
    for (const path of ["node_modules/hono", "node_modules/wrangler/node_modules/hono"]) {
      expect(findUnverified({ packages: { [path]: entry } })).toHaveLength(problems);
    }
  });

  test("is of exact versions of the direct dependencies", () => {
    const { dependencies, devDependencies } = read("package.json");
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) {
      expect(version, name).toMatch(/^(npm:@?[\w/-]+@)?\d+\.\d+\.\d+$/);
    }
  });
});
