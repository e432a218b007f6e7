import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Cue, parseCues, turnsOf } from "../src/cues.ts";
import { readTranscript } from "../src/transcripts/reading.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const stored = (vtt: string) => new TextDecoder().decode(readTranscript(encode(vtt), "WebVTT").bytes);
const read = (vtt: string) => parseCues(stored(vtt));
const vttOf = (...texts: string[]) =>
  ["WEBVTT", ...texts.map((text, at) => `00:0${at}.000 --> 00:0${at + 1}.000\n${text}`)].join("\n\n");
const textOf = ({ turns }: Cue) =>
  turns.map(({ speaker, text }) => (speaker === null ? text : `${speaker}: ${text}`)).join("\n");
/** The turns of a cue that the service accepts, as `speaker: text`. */
const said = (text: string) => read(vttOf(text, "the end")).map(textOf).slice(0, -1);

describe("The text of a cue", () => {
  test.each([
    ["no markup", "Good evening.", "Good evening."],
    ["two lines", "Good\nevening.", "Good evening."],
    ["references by name and number", "I&#39;m &quot;here&quot;, caf&eacute;", `I'm "here", café`],
    ["hexadecimal numbers", "&#xe9;&#XE9;&#x1F600;", "éé😀"],
    ["references without a semicolon", "&eacute &ampx &#39s &ltb", "é &x 's <b"],
    ["a name that begins with another", "&notin; &notit;", "∉ ¬it;"],
    ["a name of two characters", "&NotEqualTilde;", "≂̸"],
    ["unknown names, and what is no reference", "&unknown; & &; &# &#; &#x; R&B", "&unknown; & &; &# &#; &#x; R&B"],
    ["a reference to an ampersand", "&amp;lt; &amp;amp;lt;", "&lt; &amp;lt;"],
    ["a space that doesn't break", "4&nbsp;km", "4\u00a0km"],
    ["marks of direction", "&lrm;a&rlm;b", "\u200ea\u200fb"],
    ["numbers that are no character", "&#0; &#xd800; &#x110000;", "\ufffd \ufffd \ufffd"],
    ["a number of 400 digits", `&#${"9".repeat(400)}; &#x${"f".repeat(400)};`, "\ufffd \ufffd"],
    ["a number of Windows-1252", "it&#146;s", "it’s"],
    ["references to control characters", "a&#27;[31mb&#7;&#9;c&#13;&#10;d", "a [31mb c d"],
    ["a reference that a tag divides", "&am<b>p;lt;</b>", "&amp;lt;"],
    ["nested tags", "<b>a <i>b <u>c</u></i></b> d", "a b c d"],
    ["tags that aren't closed", "<i>a <b>b", "a b"],
    ["classes", "<c.yellow.bg_blue>a</c>", "a"],
    ["a language", "<lang en-GB>colour</lang> <lang>b</lang>", "colour b"],
    ["ruby", "<ruby>漢<rt>kan</rt>字<rt>ji</ruby>.", "漢kan字ji."],
    ["times", "<00:00.200>a <00:00:00.500>b<c> c</c>", "a b c"],
    ["unknown tags", "<font color=red>a</font> <B>b</B> <script>alert(1)</script> <V Ann>c", "a b alert(1) c"],
    ["tags without a name", "a<>b</>c<.d>e< f>g", "abceg"],
    ["a tag that doesn't end", "a <b", "a"],
    ["less than", "3 < 4 > 2", "3 2"],
    ["greater than", "a > b >> c", "a > b >> c"],
  ])("is read with %s", (_, text, expected) => {
    expect(said(text)).toEqual([expected]);
  });

  test.each([
    ["two voices", "<v Ann>Hi.</v>\n<v Ben>Hello.</v>", "Ann: Hi.\nBen: Hello."],
    ["voices that aren't closed", "<v Ann>Hi.\n<v Ben>Hello.\n<v Cy>Bye.", "Ann: Hi.\nBen: Hello.\nCy: Bye."],
    ["a voice in another one", "<v Ann>Hi <v Ben>Hello</v> there.", "Ann: Hi\nBen: Hello\nAnn: there."],
    ["a voice within other tags", "<i><v Ann>Hi, <b>you</b></v></i> all.", "Ann: Hi, you\nall."],
    ["text outside of a voice", "Music. <v Ann>Hi.</v> Applause.", "Music.\nAnn: Hi.\nApplause."],
    ["one voice twice", "<v Ann>Hi</v> <v Ann>there.</v>", "Ann: Hi there."],
    ["an end tag that ends nothing", "<v Ann>Hi</b>, <i>Ben</v>.", "Ann: Hi, Ben."],
    ["classes", "<v.loud.first Ann Lee>Hi.", "Ann Lee: Hi."],
    ["references in a name", "<v Ann &amp; &quot;Ben&#34; &gt;>Hi.", `Ann & "Ben" >: Hi.`],
    ["spaces in a name", "<v\tAnn \n Lee  >Hi.", "Ann Lee: Hi."],
    ["a name with a tag", "<v Ann <b>Hi.", "Ann <b: Hi."],
    ["a name of one digit", "<v 1>Hi.", "1: Hi."],
    ["a hyphen for a name", "<v ->Text</v>", "Text"],
    ["other signs for a name", "<v –>a</v><v.x ???>b</v><v ->c</v><v &nbsp;>d</v>", "a\nb\nc\nd"],
    ["no name", "<v>a</v><v >b</v><v.loud>c</v>", "a\nb\nc"],
    ["a voice that says nothing", "<v Ann></v><v Ben>&nbsp;</v><v Cy>Hi.", "Cy: Hi."],
  ])("is by %s", (_, text, expected) => {
    expect(said(text)).toEqual([expected]);
  });

  test.each(["", "<v Ann>", "<v Ann", "<b> </b>", "&nbsp;", "&lrm;&#8203;", "<00:00.500>", "<v Ann>&#27;"])(
    "is left out if nothing of it is visible: %s",
    (text) => {
      expect(said(text)).toEqual([]);
    },
  );

  test.each(["<", "<v", "<v ", "<v a>b", "<b>", "</b>", "&", "&#", "&#1", "&a", "&amp;", "\n", " "])(
    "is read in linear time if it is 2 MiB of %j",
    (part) => {
      const text = part.repeat((2 * 1024 * 1024) / part.length);
      // A quadratic reader takes hours.
      expect(turnsOf(text).every((turn) => turn.text.length <= text.length)).toBe(true);
    },
  );
});

describe("A transcript", () => {
  const BLOCKS = ["NOTE\na\nb", "NOTE a", "STYLE\n::cue{}", "REGION\nid:a"];
  const TEXTS = ["a", "a\nb", "<v Ann>a", "&lt;", "NOTE a", " a", "STYLE", "a--b", "\u2028a", "\u00a0a"];
  const [SETTINGS, NAMES] = [
    ["", " align:start", "\tline:0 position:5%"],
    ["", "1\n", " \n", "a - b\n"],
  ];
  const cue = fc.record({
    name: fc.constantFrom(...NAMES),
    hours: fc.constantFrom("", "00:", "100:"),
    settings: fc.constantFrom(...SETTINGS),
    text: fc.constantFrom(...TEXTS),
  });

  test("has the cues that were sent", () => {
    const transcripts = fc.record({
      mark: fc.constantFrom("", "\ufeff"),
      head: fc.constantFrom("WEBVTT", "WEBVTT a", "WEBVTT\nKind: captions"),
      blocks: fc.array(fc.constantFrom(...BLOCKS), { maxLength: 2 }),
      cues: fc.array(cue, { maxLength: 4 }),
      lineEnd: fc.constantFrom("\n", "\r\n", "\r"),
      gap: fc.constantFrom("\n\n", "\n\n\n"),
    });
    fc.assert(
      fc.property(transcripts, ({ mark, head, blocks, cues, lineEnd, gap }) => {
        fc.pre(cues.length > 0);
        const hours = cues.map((one) => one.hours).sort((a, b) => a.length - b.length);
        const written = cues.map(
          ({ name, settings, text }, at) =>
            `${name}${hours[at]}00:0${at}.250 --> ${hours[at]}00:0${at}.500${settings}\n${text}`,
        );
        const vtt = [head, ...blocks, ...written, ""].join(gap).replaceAll("\n", lineEnd);
        const seconds = { "": 0, "00:": 0, "100:": 360_000 } as Record<string, number>;
        const starts = cues.map((_, at) => (seconds[hours[at] ?? ""] ?? 0) + at + 0.25);
        expect(read(mark + vtt).map(({ start }) => start)).toEqual(starts);
      }),
    );
  });

  test("has spaces in place of control characters", () => {
    for (const wrong of ["\0", "\u001b", "\f", "\u0085"]) expect(said(`a${wrong}b`)).toEqual(["a b"]);
  });
});
