import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fold, foldedWords, foldWithOffsets, rangesOf } from "../src/folding.ts";

/** Characters that a case or a normalization changes, except for Hangul and Chinese. */
const CHANGING = Array.from({ length: 0x20000 }, (_, code) => String.fromCodePoint(code)).filter((one) =>
  /(?![\p{sc=Hangul}\p{sc=Han}])[\p{Changes_When_Casemapped}\p{Changes_When_NFKC_Casefolded}\p{M}]/u.test(one),
);

describe("A folded text", () => {
  test.each([
    ["CAFÉ", "cafe\u0301"],
    ["café", "cafe"],
    ["STRASSE", "Straße"],
    ["STRAẞE", "strasse"],
    ["ΣΊΣΥΦΟΣ", "σίσυφος"],
    ["ΣΑΣ ΣΑΣ", "σας σας"],
    ["İSTANBUL", "istanbul"],
    ["ISPARTA", "ısparta"],
    ["Việt Nam", "viet nam"],
    ["Йод ЁЛКА", "иод елка"],
    ["שָׁלוֹם", "שלום"],
    ["مُحَمَّد", "محمد"],
    ["أحمد", "احمد"],
    ["ﬁnal ﬃ", "FINAL FFI"],
    ["ｶﾞｷﾞ", "ガギ"],
    ["ＡＢＣ１", "abc1"],
    ["한국", "한국".normalize("NFD")],
    ["ｈé\u0323", "hẹ\u0301"],
    ["ſ", "S"],
    ["❤\ufe0f", "❤"],
    ["ดี", "ด"],
    ["हिन्दी", "हनद"],
  ])("is the same of %s and %s", (one, other) => {
    expect(fold(one)).toBe(fold(other));
  });

  test.each([
    ["đ", "d"],
    ["ø", "o"],
    ["각", "가"],
    ["日", "曰"],
  ])("differs of %s and %s, which are two letters", (one, other) => {
    expect(fold(one)).not.toBe(fold(other));
  });

  test("has no part of a Hangul syllable", () => {
    expect(fold("한국")).not.toContain(fold("하"));
  });

  test("is itself once folded, and the same in upper and lower case, for every character that has these", () => {
    // The Greek iota below a letter is a mark, which upper case makes a letter.
    const iota = /\u0345/;
    const wrong = CHANGING.filter((given) => {
      const folded = fold(given);
      if (fold(folded) !== folded) return true;
      const others = [given.toLowerCase(), given.normalize("NFD"), given.normalize("NFKC")];
      if (!iota.test(given.normalize("NFD"))) others.push(given.toUpperCase());
      return others.some((other) => fold(other) !== folded);
    });
    expect(wrong).toEqual([]);
  });

  const units = fc.constantFrom(..."aéßİſﬁς\u0301\u0323ガｶﾞ한각가한ㄱㅏ日❤\ufe0f\u{1f3b5} -");
  test("is that of its offsets, which cover the given text in order", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(units).map((all) => all.join("")),
          fc.string({ unit: "binary" }),
        ),
        (given) => {
          const { text, starts, ends } = foldWithOffsets(given);
          expect(text).toBe(fold(given));
          expect([starts.length, ends.length]).toEqual([text.length, text.length]);
          for (const [at, start] of starts.entries()) {
            expect(start).toBeLessThan(ends[at] ?? 0);
            expect(start).toBeGreaterThanOrEqual(starts[at - 1] ?? 0);
          }
        },
      ),
    );
  });
});

describe("Words", () => {
  test("are folded, and the same one counts once", () => {
    expect(foldedWords(" Ä a　Straße\u00a0STRASSE ")).toEqual(["a", "strasse"]);
    expect(foldedWords("\u0301 ´")).toEqual([]);
  });

  test.each([
    ["Café Straße", "cafe ss", "[Café] Stra[ß]e"],
    ["İstanbul ﬁsh", "İ FISH", "[İ]stanbul [ﬁsh]"],
    ["e\u0301te\u0301", "ETE", "[e\u0301te\u0301]"],
    ["banana", "ana nan", "b[anana]"],
    ["x.y", ".", "x[.]y"],
    ["none", "z", "none"],
    ["any", " ", "any"],
  ])("in %s of the search %s are %s", (text, search, shown) => {
    let [marked, last] = ["", 0];
    for (const [start, end] of rangesOf(text, search)) {
      marked += `${text.slice(last, start)}[${text.slice(start, end)}]`;
      last = end;
    }
    expect(marked + text.slice(last)).toBe(shown);
  });
});
