import { describe, expect, test } from "vitest";
import { createFinder } from "../../src/console/sound/finding.ts";
import type { Cue } from "../../src/cues.ts";

/** Cues of five seconds. A text that begins with a name and a colon has a speaker. */
const cuesOf = (...texts: string[]): Cue[] =>
  texts.map((text, at) => {
    const [, speaker = null, words = text] = /^(\w+): (.*)$/.exec(text) ?? [];
    return { start: 5 * at, end: 5 * at + 5, turns: [{ speaker, text: words }] };
  });

/** The places that are found, each with what is marked in its cues. */
function found(search: string, ...texts: string[]): string[][] {
  const cues = cuesOf(...texts);
  const { places, placeOf } = createFinder(cues)(search);
  return places.map((place) =>
    cues.flatMap(({ turns }, at) => {
      if (!place.has(at)) return [];
      expect(placeOf.get(at)).toBe(place);
      const marked = turns.flatMap(({ speaker, text }, turn) => {
        const { speaker: inName = [], text: inText = [] } = place.marksOf(at)[turn] ?? {};
        return [
          ...inName.map(([from, to]) => speaker?.slice(from, to)),
          ...inText.map(([from, to]) => text.slice(from, to)),
        ];
      });
      return marked.join("|");
    }),
  );
}

const FLOOD = [
  "Ada: The lock has been closed since the",
  "flood of last November.",
  "Ben: Is there no line",
  "at all?",
];

describe("The search in a transcript", () => {
  test.each<[string, string, string[][]]>([
    [
      "a sentence that crosses cues",
      "closed since the flood of last November",
      [["The|closed|since|the", "flood|of|last|November"]],
    ],
    ["a phrase in quotes", '"last november"', [["last November"]]],
    ["a phrase in quotes that crosses cues", '"no line at all"', [["no line", "at all"]]],
    ["a phrase that crosses speakers", '"november is there"', [["November.", "Is there"]]],
    ["the beginning of the last word", "flo", [["flood"]]],
    ["the name of a speaker", "ben", [["Ben"]]],
    ["words of a speaker", "BEN line", [["Ben|line"]]],
    ["each of several places", "the", [["The|the"], ["there"]]],
    ["nothing without a word", '"..." ', []],
    ["nothing if a word is missing", "closed since the gate", []],
  ])("finds %s", (_, search, expected) => {
    expect(found(search, ...FLOOD)).toEqual(expected);
  });

  test("finds a word that is said and that is a name in both", () => {
    expect(found("ben", "Ada: Hello, Ben!", "How are you?", "Ben: Fine.")).toEqual([["Ben"], ["Ben"]]);
  });
});
