import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { PICTURE_NAMES, PICTURES } from "../tools/console/picture-names.ts";

test("the README shows each picture that `npm run pictures` takes, in light and dark, and no other", () => {
  const readme = readFileSync(join(import.meta.dirname, "../../README.md"), "utf8");
  const shown = [...readme.matchAll(/"src\/console\/pictures\/([^"]+)"/g)].map(([, file]) => file);
  const taken = PICTURE_NAMES.flatMap((name) => [`${name}-dark.webp`, `${name}-light.webp`]).sort();
  expect(shown.sort()).toEqual(taken);
  expect(readdirSync(PICTURES).sort()).toEqual(taken);
});
