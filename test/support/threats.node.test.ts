import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { EVENT_TYPES } from "../../src/event-types.ts";
import { findUnshown, namedTests } from "./threats.ts";

const root = join(import.meta.dirname, "..");
const read = (path: string) => readFileSync(join(root, path), "utf8");

describe("The list of threats", () => {
  test("has a bound for each table, and each event", () => {
    const [, bounds = ""] = /^## What callers insert$(.*?)^## /ms.exec(read("THREATS.md")) ?? [];
    const named = new Set([...bounds.matchAll(/`([a-z_.*]+)`/g)].map(([, name = ""]) => name));
    const tables = [...read("../migrations/0000_tables.sql").matchAll(/^CREATE TABLE `(\w+)`/gm)].map(
      ([, name = ""]) => name,
    );
    expect(tables.length).toBeGreaterThan(10);
    const kinds = EVENT_TYPES.map(({ name, kind }) => (kind.isCounted ? `${kind.name}.*` : name));
    expect([...tables, ...kinds].filter((name) => !named.has(name))).toEqual([]);
  });

  // Whether its tests pass, the reporter says after a run of all of them.
  test("names files of tests that exist", () => {
    const files = new Set(globSync("**/*.test.{ts,tsx}", { cwd: root }).map((path) => path.split(".")[0]));
    const named = namedTests(read("THREATS.md"));
    expect(named.length).toBeGreaterThan(100);
    expect(named.filter(({ file }) => !files.has(file))).toEqual([]);
  });
});

describe("A named test", () => {
  const threats = "| Guessing | `links/links` › `Opening a link`, `counts … and no other` | 404 |";
  const path = "links/links.test.ts";
  const group = { path, fullName: "Opening a link > returns the file" };

  test("is shown by one that passed, of its group or with the pieces of its title", () => {
    expect(findUnshown(threats, [group, { path, fullName: "A link > counts 3, and no other" }])).toEqual([]);
  });

  test("is not shown by one of another file", () => {
    const other = { path: "links/links.browser.test.ts", fullName: "A page" };
    const elsewhere = { path: "links/signed-urls.test.ts", fullName: "counts 3, and no other" };
    expect(findUnshown(threats, [group, other, elsewhere])).toEqual(["links/links › counts … and no other"]);
  });

  test("of a file that did not run is not missed", () => {
    expect(findUnshown(threats, [])).toEqual([]);
  });
});
