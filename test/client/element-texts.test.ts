import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { GERMAN } from "../../src/client/element-german.ts";
import { RECORDER_TEXTS } from "../../src/client/element-recorder-texts.ts";
import { TEXTS } from "../../src/client/element-view.ts";

const ENGLISH: Record<string, string> = { ...TEXTS, ...RECORDER_TEXTS };
const placesIn = (text = "") => (text.match(/\{\w+\}/g) ?? []).sort();

describe("The texts of the upload element", () => {
  test("have the same names and places in German", () => {
    const german: Record<string, string> = GERMAN;
    expect(Object.keys(german).sort()).toEqual(Object.keys(ENGLISH).sort());
    for (const [name, text] of Object.entries(ENGLISH)) expect(placesIn(german[name]), name).toEqual(placesIn(text));
  });

  test("are those of the table in the client's README", () => {
    const readme = readFileSync(join(import.meta.dirname, "../../src/client/README.md"), "utf8");
    const rows = readme.matchAll(/^\| `(\w+)` \| (.*) \| (.*) \|$/gm);
    const shown = Object.fromEntries([...rows].map(([, name, english, german]) => [name, [english, german]]));
    const texts = Object.entries({ ...ENGLISH }).map(([name, text]) => [name, [text, Reflect.get(GERMAN, name)]]);
    expect(shown).toEqual(Object.fromEntries(texts));
  });
});
