import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { StowageUpload } from "../../src/client/element.ts";
import { FormControl } from "../../src/client/element-control.ts";
import { GERMAN } from "../../src/client/element-german.ts";
import { RECORDER_TEXTS } from "../../src/client/element-recorder-texts.ts";
import { TEXTS } from "../../src/client/element-view.ts";

const ENGLISH: Record<string, string> = { ...TEXTS, ...RECORDER_TEXTS };
const readme = readFileSync(join(import.meta.dirname, "../../src/client/README.md"), "utf8");
const sectionOf = (heading: string) => readme.split(`### ${heading}\n`)[1]?.split("\n#")[0] ?? "";
const placesIn = (text = "") => (text.match(/\{\w+\}/g) ?? []).sort();

test("The attributes and properties of the upload element are in the table of the client's README", () => {
  const table = sectionOf("Attributes and properties of the upload element");
  const [attributes, properties] = [1, 2].map((column) =>
    table
      .split("\n")
      .flatMap((row) => [...(row.split("|")[column] ?? "").matchAll(/`([\w-]+)`/g)].map(([, name]) => name)),
  );
  const fields = [FormControl, StowageUpload].flatMap(({ prototype }) =>
    Object.entries(Object.getOwnPropertyDescriptors(prototype)),
  );
  const settable = fields.filter(([, { set }]) => set).map(([name]) => name);
  expect(settable.length).toBeGreaterThan(10);
  expect(properties).toEqual(expect.arrayContaining(settable));
  expect(attributes).toEqual(expect.arrayContaining(StowageUpload.observedAttributes));
});

describe("The texts of the upload element", () => {
  test("have the same names and places in German", () => {
    const german: Record<string, string> = GERMAN;
    expect(Object.keys(german).sort()).toEqual(Object.keys(ENGLISH).sort());
    for (const [name, text] of Object.entries(ENGLISH)) expect(placesIn(german[name]), name).toEqual(placesIn(text));
  });

  test("are those of the table in the client's README", () => {
    const rows = sectionOf("Texts of the upload element").matchAll(/^\| `(\w+)` \| (.*) \| (.*) \|$/gm);
    const shown = Object.fromEntries([...rows].map(([, name, english, german]) => [name, [english, german]]));
    const texts = Object.entries({ ...ENGLISH }).map(([name, text]) => [name, [text, Reflect.get(GERMAN, name)]]);
    expect(shown).toEqual(Object.fromEntries(texts));
  });
});
