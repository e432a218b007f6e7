import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { hashSources, readHash } from "../tools/console/picture-sources.ts";

const root = join(import.meta.dirname, "../..");

describe("Pictures of the README", () => {
  test("show the console as its sources are now", async () => {
    expect(readHash(), "The pictures are older than the console. Run `npm run pictures`.").toBe(await hashSources());
  });

  test("exist in light and dark", () => {
    const shown = [...readFileSync(join(root, "README.md"), "utf8").matchAll(/"(src\/console\/pictures\/[^"]+)"/g)];
    const paths = shown.map(([, path = ""]) => path);
    expect(paths.length).toBeGreaterThan(0);
    for (const path of paths) {
      expect(existsSync(join(root, path)), path).toBe(true);
      const other = path.includes("-light.") ? path.replace("-light.", "-dark.") : path.replace("-dark.", "-light.");
      expect(paths).toContain(other);
    }
  });
});
