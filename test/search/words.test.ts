import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Cue } from "../../src/cues.ts";
import { CueTimes, findPlaces } from "../../src/places.ts";
import { excerptOf } from "../../src/search/excerpts.ts";
import { allOf } from "../../src/search/expressions.ts";
import type { IndexStore } from "../../src/search/index-store.ts";
import { partsOf } from "../../src/search/parts.ts";
import { Ranking } from "../../src/search/ranking.ts";
import { foldedWordsIn, marksOf, termsOf, wordsIn } from "../../src/words.ts";

const cueOf = (text: string, start: number, end = start + 5): Cue => ({ start, end, turns: [{ speaker: null, text }] });
const saidAt = (...cues: [text: string, start: number][]) => partsOf(cues.map(([text, start]) => cueOf(text, start)));

describe("The words of a search", () => {
  test.each<[string, string]>([
    ["night shift", '"night" AND "shift" *'],
    ["night night", '"night" *'],
    ["night a", '"night" AND "a"'],
    ['"night shift" gate', '"night shift" AND "gate" *'],
    ['gate "night shift"', '"gate" AND "night shift"'],
    ['"night shift', '"night" AND "shift" *'],
    ["O'Neill-Smith", '"o neill smith" *'],
    ["東京 塔", '"東 京" AND "塔"'],
    ['a"b"c', '"a" AND "b" AND "c"'],
    ['* " ( ) : ^ - + NEAR', '"near" *'],
  ])("%j are %s", (search, expression) => {
    expect(allOf(termsOf(search))).toBe(expression);
  });

  test("are letters and digits, whatever is searched", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 50 }), (search) => {
        for (const { words } of termsOf(search)) for (const word of words) expect(word).toMatch(/^[\p{L}\p{N}]+$/u);
      }),
    );
  });

  test("are found in a text that has them", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 30 }), fc.string({ maxLength: 10 }), (text, before) => {
        const terms = termsOf(text.replaceAll(/["“”„«»]/g, " "));
        const [part] = saidAt([`${before} ${text}`, 0]);
        const found = findPlaces(part?.words ?? "", new CueTimes(part?.times ?? new Uint32Array()), terms);
        expect(terms.length === 0 || found?.places.length).toBeTruthy();
        if (terms.length > 0) expect(marksOf(text, terms).length).toBeGreaterThan(0);
      }),
    );
  });

  test("are the same with and without their places", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 50 }), (text) => {
        expect(foldedWordsIn(text)).toEqual(wordsIn(text).map(({ word }) => word));
      }),
    );
  });

  test("stand where they are in the given text", () => {
    const text = "Ein ﬁnaler Straßen-Test ½";
    expect(wordsIn(text).map(({ word, start, end }) => [word, text.slice(start, end)])).toEqual([
      ["ein", "Ein"],
      ["finaler", "ﬁnaler"],
      ["strassen", "Straßen"],
      ["test", "Test"],
      ["1", "½"],
      ["2", "½"],
    ]);
  });
});

describe("A place", () => {
  const placesOf = (search: string, ...cues: [string, number][]) => {
    const [part] = saidAt(...cues);
    return findPlaces(part?.words ?? "", new CueTimes(part?.times ?? new Uint32Array()), termsOf(`${search} `));
  };
  const cuesOf = (found: ReturnType<typeof placesOf>) =>
    found?.places.map(({ firstCue, lastCue }) => [firstCue, lastCue]);

  test("has all words within 30 s", () => {
    expect(cuesOf(placesOf("night shift", ["night", 0], ["hm", 10], ["shift", 30]))).toEqual([[0, 2]]);
    // Further apart, it is that of the rarest word.
    const far = placesOf("night shift", ["night", 0], ["night hm", 10], ["shift", 41]);
    expect([cuesOf(far), (far?.score ?? 1) < 1]).toEqual([[[2, 2]], true]);
  });

  test("is the one in which they stand closest", () => {
    expect(cuesOf(placesOf("a b c", ["a", 0], ["b", 5], ["c b a", 10], ["hm", 15], ["b", 20]))).toEqual([[2, 2]]);
  });

  test("is found on both sides of a word", () => {
    expect(cuesOf(placesOf("x a b", ["a", 0], ["hm", 5], ["x", 10], ["hm", 15], ["b", 20]))).toEqual([[0, 4]]);
  });

  test("is found in cues that are out of order or overlap", () => {
    expect(cuesOf(placesOf("night shift", ["night", 0], ["shift", 0], ["hm", 0]))).toEqual([[0, 1]]);
  });

  test("is missing if a word is", () => {
    expect(placesOf("night gate", ["night", 0])).toBeNull();
  });
});

describe("A ranking", () => {
  test("reads at most 10 million characters for the scores, of the files whose words stand closest and the newest others", () => {
    const words = ` night shift ${"and so on ".repeat(100_000)}`;
    const idOf = (number: number) => `${number}`.padStart(24, "0");
    const files = Array.from({ length: 40 }, (_, i) => ({
      id: i,
      fileId: idOf(i),
      version: "1",
      length: words.length,
      ownFrom: 0,
    }));
    const read: number[] = [];
    const store = {
      candidates: (expression: string) => (expression.startsWith("NEAR") ? files.slice(0, 3) : files),
      wordsOf: (id: number) => {
        read.push(id);
        return words;
      },
      timesOf: () => Uint32Array.of(0, 5000, 0),
      textOf: () => ({ speakers: [], cues: [[0, 5, [-1, "night shift"]]] }),
    } as unknown as IndexStore;
    const page = { fileIds: null, after: null, limit: 2, matches: 3 };
    const found = new Ranking(store, termsOf("night shift ")).page(page);
    // One of the page is read once more, to count its places.
    const ranked = read.slice(0, -page.limit);
    expect(ranked.toSorted((a, b) => a - b)).toEqual([0, 1, 2, ...Array.from({ length: 6 }, (_, i) => 34 + i)]);
    expect(words.length * ranked.length).toBeLessThanOrEqual(10_000_000);
    expect([found.files.map(({ fileId }) => fileId), found.hasMore]).toEqual([[idOf(39), idOf(38)], true]);
  });
});

describe("The parts of a transcript", () => {
  test("are one, up to twenty hours of speech", () => {
    const cues = Array.from({ length: 20 * 720 }, (_, i) =>
      cueOf("about twelve words of six letters each fit in here", i * 5),
    );
    expect(partsOf(cues)).toHaveLength(1);
  });

  test("fit in a row of 2 MB, share 30 s, and have each cue once as their own", () => {
    const long = ["word ".repeat(1500), "漢".repeat(9000), "\ufdfa".repeat(9000), `${"x".repeat(30_000)} y`];
    const cues = Array.from({ length: 300 }, (_, i) => cueOf(long[i % 4] ?? "", i));
    const parts = partsOf(cues);
    expect(parts.length).toBeGreaterThan(2);
    const bytes = (text: string) => Buffer.byteLength(text);
    for (const { words, text, times } of parts) {
      expect(bytes(words)).toBeLessThan(1_800_000);
      expect(bytes(JSON.stringify(text)) + times.byteLength).toBeLessThan(1_900_000);
    }
    const own = parts.flatMap(({ text, ownFrom }) => text.cues.slice(ownFrom));
    const said = own.map(([, , ...turns]) => turns.map(([, text]) => text).join("")).join("");
    expect(said).toBe(cues.map(({ turns }) => turns[0]?.text).join(""));
  });
});

describe("What a match shows", () => {
  /** Cues of five seconds. A text that begins with a name and a colon has a speaker; an empty one is a pause. */
  const cuesOf = (...texts: string[]): Cue[] =>
    texts.flatMap((text, at) => {
      const [, speaker = null, words = text] = /^(\w+): (.*)$/.exec(text) ?? [];
      return text === "" ? [] : [{ start: 5 * at, end: 5 * at + 5, turns: [{ speaker, text: words }] }];
    });

  /** The matches of a search, with their marks in brackets. */
  function shown(search: string, cues: Cue[]): string[] {
    const [part] = partsOf(cues);
    if (!part) return [];
    const terms = termsOf(search);
    const places = findPlaces(part.words, new CueTimes(part.times), terms)?.places ?? [];
    return places.map(({ firstCue, lastCue }, at) => {
      const limits = {
        first: (places[at - 1]?.lastCue ?? -1) + 1,
        last: (places[at + 1]?.firstCue ?? cues.length) - 1,
      };
      const { startSeconds, endSeconds, turns } = excerptOf(
        part.text,
        { first: firstCue, last: lastCue },
        terms,
        limits,
      );
      const said = turns.map(({ speaker, text, marks }) => {
        const marked = marks.map(
          ([from, to], i) => `${text.slice(marks[i - 1]?.[1] ?? 0, from)}[${text.slice(from, to)}]`,
        );
        return `${speaker === null ? "" : `${speaker}: `}${marked.join("")}${text.slice(marks.at(-1)?.[1] ?? 0)}`;
      });
      return `${startSeconds}-${endSeconds} ${said.join(" / ")}`;
    });
  }

  test.each<[string, string, string[], string[]]>([
    [
      "a sentence that begins and ends in other cues",
      "cheaper",
      ["Good. The new gate is", "cheaper, and", "it opens faster. Good."],
      ["0-15 The new gate is [cheaper], and it opens faster."],
    ],
    [
      "the sentences of the words alone",
      "gate",
      ["begins here. The gate is old. It is", "green."],
      ["0-5 The [gate] is old."],
    ],
    ["a sentence until somebody else speaks", "gate", ["Ada: The gate", "Ben: is shut."], ["0-5 Ada: The [gate]"]],
    ["a sentence until a pause", "gate", ["so the", "", "", "gate is", "", "", "shut."], ["15-20 [gate] is"]],
    [
      "who says each word",
      "gate diver",
      ["Ada: The gate is", "Ada: shut.", "Ben: Who asked", "Ben: the diver?", "Ada: Me."],
      ["0-20 Ada: The [gate] is shut. / Ben: Who asked the [diver]?"],
    ],
    [
      "a phrase in two turns",
      '"is shut"',
      ["Ada: The gate is", "Ben: shut? Why?"],
      ["0-10 Ada: The gate [is] / Ben: [shut]?"],
    ],
    [
      "for each place its part of a sentence that has several",
      "gate",
      ["so the gate", "opens when the", "other gate shuts."],
      ["0-10 so the [gate] opens when the…", "5-15 …opens when the other [gate] shuts."],
    ],
    ["a sentence in Japanese", "東京", ["昨日。私は", "東京に行った。楽しい。"], ["0-10 私は [東京]に行った。"]],
  ])("is %s", (_, search, texts, expected) => {
    expect(shown(search, cuesOf(...texts))).toEqual(expected);
  });

  test("is shortened if the sentence is long, with an ellipsis", () => {
    const filler = Array(40).fill("and so on");
    const [text = ""] = shown("gate", cuesOf("Well,", ...filler, "the gate is", ...filler, "shut."));
    expect(text).toMatch(/^\d+-\d+ …(so on|on|and so on)( and so on)+ the \[gate\] is( and so on)+( and| and so)?…$/);
    expect(text.length).toBeLessThan(160);
  });

  test("is at most 402 characters long, which have a mark and divide no character", () => {
    const word = fc.constantFrom("gate", "lock", "and", "so.", "😀", "東京", "x".repeat(90), "😀".repeat(80), "Ada:");
    fc.assert(
      fc.property(fc.array(fc.array(word, { minLength: 1, maxLength: 30 }), { minLength: 1, maxLength: 8 }), (said) => {
        const cues = cuesOf(...said.map((words) => words.join(" ")));
        const [part] = partsOf(cues);
        for (const search of ["gate lock ", "gate ", '"gate lock"']) {
          const terms = termsOf(search);
          for (const { firstCue: first, lastCue: last } of findPlaces(
            part?.words ?? "",
            new CueTimes(part?.times ?? new Uint32Array()),
            terms,
          )?.places ?? []) {
            const { turns } = excerptOf(part?.text ?? { speakers: [], cues: [] }, { first, last }, terms, {
              first,
              last,
            });
            expect(turns.reduce((sum, { text }) => sum + text.length, 0)).toBeLessThanOrEqual(402);
            expect(turns.some(({ marks }) => marks.length > 0)).toBe(true);
            for (const { text, marks } of turns) {
              expect(text.isWellFormed()).toBe(true);
              for (const [from, to] of marks) expect(text.slice(from, to)).toMatch(/^(gate|lock|gate[^\p{L}]*lock)$/u);
            }
          }
        }
      }),
    );
  });
});
