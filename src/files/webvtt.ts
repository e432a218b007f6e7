import { invalidField } from "../errors.ts";

/* Checks that a text is WebVTT (https://www.w3.org/TR/webvtt1/), without keeping its cues. What a cue contains is not checked. */

const TIMESTAMP = String.raw`(?:(\d{2,6}):)?([0-5]\d):([0-5]\d)\.(\d{3})`;
/** Settings follow the times, such as `align:start`. */
const TIMING = new RegExp(String.raw`^${TIMESTAMP}[ \t]+-->[ \t]+${TIMESTAMP}(?:[ \t]+[^\s:]+:\S+)*[ \t]*$`);
const EXAMPLE = "00:01.000 --> 00:04.000";

function millisecondsOf([hours = "0", minutes, seconds, milliseconds]: string[]): number {
  return ((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000 + Number(milliseconds);
}

/** Yields one line at a time: an array of two million empty lines would take many times the memory of the text. */
function* linesOf(text: string): Generator<string> {
  const end = /\r\n|\n|\r/g;
  let start = 0;
  for (let found = end.exec(text); found; found = end.exec(text)) {
    yield text.slice(start, found.index);
    start = end.lastIndex;
  }
  yield text.slice(start);
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

const isComment = (line: string) => /^NOTE(?:[ \t]|$)/.test(line);
const isStyle = (line: string) => /^(?:STYLE|REGION)[ \t]*$/.test(line);

/** @throws `invalid_input`, which names the first line that is wrong */
export function checkWebVtt(bytes: Uint8Array): void {
  const { text, isUtf8 } = decode(bytes);
  let number = 0;
  const fail = (problem: string) => invalidField("", `Line ${number}: ${problem}`);
  /** Between blocks, after the name of a cue, which its times must follow, or in a block until an empty line. */
  let place: "between" | "named" | "in a block" = "in a block";
  let lastStart = -1;
  for (const line of linesOf(text)) {
    number++;
    if (!isUtf8 && line.includes(REPLACED)) throw fail("Must be UTF-8.");
    const hasArrow = line.includes("-->");
    if (number === 1) {
      if (hasArrow || !/^WEBVTT(?:[ \t].*)?$/s.test(line)) throw fail("Must begin with `WEBVTT`.");
    } else if (line === "") {
      if (place === "named") throw fail(`Must be the times of a cue, such as \`${EXAMPLE}\`.`);
      place = "between";
    } else if (place === "in a block") {
      if (hasArrow) throw fail("Must have an empty line before the cue.");
    } else if (hasArrow) {
      const times = TIMING.exec(line);
      if (!times) throw fail(`Must be the times of a cue, such as \`${EXAMPLE}\`.`);
      const [start, end] = [millisecondsOf(times.slice(1, 5)), millisecondsOf(times.slice(5, 9))];
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
