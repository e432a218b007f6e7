import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { EVENT_TYPES } from "../../src/event-types.ts";

const root = join(import.meta.dirname, "..");
const read = (path: string) => readFileSync(join(root, path), "utf8");

/** The tests of a file that THREATS.md names without its ending, such as `api/links`. */
function testsOf(name: string): string {
  const [folder = "", file] = name.split("/");
  const found = readdirSync(join(root, folder)).filter((path) => path.split(".")[0] === file);
  return found.map((path) => read(`${folder}/${path}`).replaceAll('\\"', '"')).join("\n");
}

test("each table, and each event, has a bound in the list of threats", () => {
  const [, bounds = ""] = /^## What callers insert$(.*?)^## /ms.exec(read("THREATS.md")) ?? [];
  const named = new Set([...bounds.matchAll(/`([a-z_.*]+)`/g)].map(([, name = ""]) => name));
  const tables = [...read("../migrations/0000_tables.sql").matchAll(/^CREATE TABLE `(\w+)`/gm)].map(
    ([, name = ""]) => name,
  );
  expect(tables.length).toBeGreaterThan(10);
  const kinds = EVENT_TYPES.map(({ name, kind }) => (kind.isCounted ? `${kind.name}.*` : name));
  expect([...tables, ...kinds].filter((name) => !named.has(name))).toEqual([]);
});

test("each test that the list of threats names exists", () => {
  const missing: string[] = [];
  for (const [, name = "", titles = ""] of read("THREATS.md").matchAll(/`(\w+\/[\w-]+)` › ((?:`[^`]+`(?:, )?)+)/g)) {
    const tests = testsOf(name);
    // "…" replaces the rest of a title, or a value in it.
    const isNamed = (title: string) => title.split("…").every((piece) => tests.includes(piece.trim()));
    missing.push(
      ...[...titles.matchAll(/`([^`]+)`/g)].flatMap(([, title = ""]) => (isNamed(title) ? [] : `${name} › ${title}`)),
    );
  }
  expect(missing).toEqual([]);
});
