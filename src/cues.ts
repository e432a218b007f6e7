/*
 * The cues of a transcript, read from WebVTT (https://www.w3.org/TR/webvtt1/) as a browser reads them. Pure, and shared by the Worker
 * and the console.
 *
 * Tags have few rules, and are read here. Character references have many, and 2,231 names, which the package `entities` knows. No
 * parser does both: `vtt.js` and `VTTCue.getCueAsHTML()` need a DOM, which the Worker doesn't have. `media-captions` knows seven names.
 * `webvtt-parser` knows no hexadecimal numbers, and overflows the stack on nested tags. A page could decode references with the
 * parser of HTML, but its policy forbids that (`require-trusted-types-for`). Before version 7, `entities` throws on a number of 400 digits.
 */

import { decodeHTML } from "entities/decode";

/** The words of a speaker in a cue. */
export interface Turn {
  /** `null` if the cue names no one. */
  speaker: string | null;
  /** A line without markup. */
  text: string;
}

export interface Cue {
  /** Seconds. */
  start: number;
  end: number;
  /** At least one. */
  turns: Turn[];
}

const TIMESTAMP = String.raw`(?:(\d{2,6}):)?([0-5]\d):([0-5]\d)\.(\d{3})`;
/** Settings follow the times, such as `align:start`. */
const TIMING = new RegExp(String.raw`^${TIMESTAMP}[ \t]+-->[ \t]+${TIMESTAMP}(?:[ \t]+[^\s:]+:\S+)*[ \t]*$`);

const secondsOf = ([hours = "0", minutes, seconds, milliseconds]: string[]) =>
  (((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000 + Number(milliseconds)) / 1000;

/** The times of a cue in seconds, or null if the line isn't the times of a cue. */
export function timesOf(line: string): { start: number; end: number } | null {
  const times = TIMING.exec(line);
  return times && { start: secondsOf(times.slice(1, 5)), end: secondsOf(times.slice(5, 9)) };
}

/** A text with the tag that follows it, which ends with `>` or with the cue. */
const TEXT_AND_TAG = /([^<]*)(?:<([^>]*)>?)?/g;
/** The name, the classes, and the annotation, which is the name of a voice. */
const START_TAG = /^([^\t\n\f .]*)(?:\.[^\t\n\f ]*)?(?:[\t\n\f ](.*))?$/s;
/** The case of a name matters. Other tags, such as times, are ignored, and their text isn't. */
const NAMES = new Set(["c", "i", "b", "u", "ruby", "rt", "v", "lang"]);
/** Only character references can name control characters other than line breaks and tabs. */
const SPACES = /[ \p{Cc}]+/gu;
/** Not only white space and format characters, such as `&nbsp;` and `&lrm;`. */
const VISIBLE = /[^\s\p{Cf}]/u;
/** A letter, a digit or an emoji. Tools that know no name write `-`. */
const NAME = /[\p{L}\p{N}\p{So}]/u;

const lineOf = (text: string) => text.replaceAll(SPACES, " ").trim();

function voiceOf(annotation: string): { speaker: string | null } {
  const speaker = lineOf(decodeHTML(annotation));
  return { speaker: NAME.test(speaker) ? speaker : null };
}

/** The text of a cue by its voices. Takes linear time, and leaves out voices without visible text. */
export function turnsOf(cueText: string): Turn[] {
  let current = { name: "", voice: voiceOf("") };
  const outer: (typeof current)[] = [];
  const close = () => {
    current = outer.pop() ?? current;
  };
  const said: { voice: typeof current.voice; text: string }[] = [];
  for (const [, raw = "", tag = ""] of cueText.matchAll(TEXT_AND_TAG)) {
    const text = decodeHTML(raw);
    const [last, { voice }] = [said.at(-1), current];
    const isSame = voice === last?.voice || (voice.speaker !== null && voice.speaker === last?.voice.speaker);
    if (last && (isSame || !VISIBLE.test(text))) last.text += text;
    else said.push({ voice, text });
    if (tag === "/ruby" && current.name === "rt") close();
    if (tag === `/${current.name}`) close();
    const [, name = "", annotation = ""] = START_TAG.exec(tag) ?? [];
    if (!NAMES.has(name) || (name === "rt" && current.name !== "ruby")) continue;
    outer.push(current);
    current = { name, voice: name === "v" ? voiceOf(annotation) : voice };
  }
  return said
    .map(({ voice: { speaker }, text }) => ({ speaker, text: lineOf(text) }))
    .filter(({ text }) => VISIBLE.test(text));
}

/** Reads a text that `readTranscript` has stored. Its cues are in the order of their start. Cues without visible text are left out. */
export function parseCues(vtt: string): Cue[] {
  const cues: Cue[] = [];
  for (const block of vtt.replaceAll(/\r\n?/g, "\n").split(/\n{2,}/)) {
    const lines = block.split("\n");
    const at = lines.findIndex((line) => line.includes("-->"));
    const times = timesOf(lines[at] ?? "");
    if (!times) continue;
    const turns = turnsOf(lines.slice(at + 1).join("\n"));
    if (turns.length > 0) cues.push({ ...times, turns });
  }
  return cues;
}

/** The cue that is spoken: of overlapping ones the last that began. -1 if there is none. */
export function cueAt(cues: readonly Cue[], seconds: number): number {
  let [low, high] = [0, cues.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((cues[middle] as Cue).start <= seconds) low = middle + 1;
    else high = middle;
  }
  // A long cue may have begun before shorter ones that have ended.
  const from = Math.max(0, low - MAX_OVERLAPPING);
  for (let at = low - 1; at >= from; at--) if ((cues[at] as Cue).end > seconds) return at;
  return -1;
}
const MAX_OVERLAPPING = 20;
