import { timesOf } from "../cues.ts";
import { invalidField } from "../errors.ts";

/*
 * Checks that a text is WebVTT (https://www.w3.org/TR/webvtt1/), without keeping its cues. `cues.ts` reads what is accepted here. It finds
 * the same cues, and has a meaning for any text of a cue, so only control characters are checked there.
 */

const EXAMPLE = "00:01.000 --> 00:04.000";

const [LINE_FEED, CARRIAGE_RETURN] = [10, 13];

/**
 * Yields each line with its number, and of successive empty lines only the first: a text may have two million. Reads the
 * characters itself, because regular expressions and arrays of lines take many times as long, and as much memory.
 */
function* linesOf(text: string): Generator<[line: string, number: number]> {
  let [start, number, wasEmpty] = [0, 1, false];
  for (let at = 0; at <= text.length; at++) {
    const code = text.charCodeAt(at);
    if (code !== LINE_FEED && code !== CARRIAGE_RETURN && at < text.length) continue;
    if (at > start || !wasEmpty) yield [text.slice(start, at), number];
    wasEmpty = at === start;
    if (code === CARRIAGE_RETURN && text.charCodeAt(at + 1) === LINE_FEED) at++;
    start = at + 1;
    number++;
  }
}

/** Takes the place of bytes that are not UTF-8. */
const REPLACED = "\ufffd";

/** Both decoders remove a byte order mark. */
function decode(bytes: Uint8Array): { text: string; isUtf8: boolean } {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes), isUtf8: true };
  } catch {
    return { text: new TextDecoder().decode(bytes), isUtf8: false };
  }
}

/** Control characters except tab. A terminal would obey them; no player shows them. */
const CONTROL = /(?!\t)\p{Cc}/u;

const isComment = (line: string) => /^NOTE(?:[ \t]|$)/.test(line);
const isStyle = (line: string) => /^(?:STYLE|REGION)[ \t]*$/.test(line);

/** @throws `invalid_input`, which names the first line that is wrong */
export function checkWebVtt(bytes: Uint8Array): void {
  const { text, isUtf8 } = decode(bytes);
  let current = 0;
  const fail = (problem: string) => invalidField("", `Line ${current}: ${problem}`);
  /** Between blocks, after the name of a cue, which its times must follow, or in a block until an empty line. */
  let place: "between" | "named" | "in a block" = "in a block";
  let lastStart = -1;
  for (const [line, number] of linesOf(text)) {
    current = number;
    if (!isUtf8 && line.includes(REPLACED)) throw fail("Must be UTF-8.");
    if (CONTROL.test(line)) throw fail("Must have no control characters except tabs.");
    const hasArrow = line.includes("-->");
    if (number === 1) {
      if (hasArrow || !/^WEBVTT(?:[ \t].*)?$/s.test(line)) throw fail("Must begin with `WEBVTT`.");
    } else if (line === "") {
      if (place === "named") throw fail(`Must be the times of a cue, such as \`${EXAMPLE}\`.`);
      place = "between";
    } else if (place === "in a block") {
      if (hasArrow) throw fail("Must have an empty line before the cue.");
    } else if (hasArrow) {
      const times = timesOf(line);
      if (!times) throw fail(`Must be the times of a cue, such as \`${EXAMPLE}\`.`);
      const { start, end } = times;
      if (end <= start) throw fail("Must end after it starts.");
      if (start < lastStart) throw fail("Must not start before the previous cue.");
      lastStart = start;
      place = "in a block";
    } else {
      if (place === "named") throw fail(`Must be the times of a cue, such as \`${EXAMPLE}\`.`);
      place = isComment(line) || (isStyle(line) && lastStart < 0) ? "in a block" : "named";
    }
  }
  if (place === "named") throw fail("Must be followed by the times of a cue.");
}
