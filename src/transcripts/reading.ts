import { timesOf, turnsOf } from "../cues.ts";
import { invalidField } from "../errors.ts";

/*
 * Reads a transcript as tools write it: WebVTT (https://www.w3.org/TR/webvtt1/) or SubRip, with times that only some players read, cues
 * that overlap, have no length or stand in another order, or without empty lines between them. What is valid WebVTT is stored as it was
 * sent. Anything else is rewritten as WebVTT that every player reads, with its cues in the order of their start.
 *
 * `cues.ts` reads what is stored here, in the Worker and in the console. No package reads what tools write: `media-captions` leaves out
 * cues of no length, and takes a cue without an empty line before it for text; `webvtt-parser`, of the W3C, knows no SubRip; neither
 * reads the times of Microsoft Teams (`0:0:13.540`).
 */

export const FORMATS = { "text/vtt": "WebVTT", "application/x-subrip": "SubRip" } as const;
export type Format = (typeof FORMATS)[keyof typeof FORMATS];

export interface ReadTranscript {
  /** Valid WebVTT. */
  bytes: Uint8Array;
  /** The cues with a text. */
  cues: number;
  /** Cues that no player shows: without a text, or without times that can be read. */
  skippedCues: number;
}

const EXAMPLE = "00:01.000 --> 00:04.000";
const ARROW = "-->";

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

const invalidLine = (number: number, problem: string) => invalidField("", `Line ${number}: ${problem}`);

/** Without a byte order mark. @throws `invalid_input`, which names the first line that is not UTF-8 */
function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    for (const [line, number] of linesOf(new TextDecoder().decode(bytes))) {
      if (line.includes(REPLACED)) throw invalidLine(number, "Must be UTF-8.");
    }
    throw invalidLine(1, "Must be UTF-8.");
  }
}

/** Control characters except tab. A terminal would obey them; no player shows them. */
const CONTROL = /(?!\t)\p{Cc}/gu;

const isComment = (line: string) => /^NOTE(?:[ \t]|$)/.test(line);
const isStyle = (line: string) => /^(?:STYLE|REGION)[ \t]*$/.test(line);
const isCounter = (line: string) => /^\s*\d+\s*$/.test(line);

interface ReadCue {
  start: number;
  end: number;
  settings: string;
  lines: string[];
}

/** Hours may have any number of digits, a fraction is optional, and a comma may stand before it. */
const LOOSE_TIME = String.raw`(?:(\d{1,6}):)?([0-5]?\d):([0-5]?\d)(?:[.,](\d{1,3})\d*)?`;
const LOOSE_TIMING = new RegExp(String.raw`^[ \t]*${LOOSE_TIME}[ \t]*-->[ \t]*${LOOSE_TIME}(?![\d:.,])(.*)$`);
const SETTING = /^[^\s:]+:\S+$/;
/** The longest valid line of times. The rest of a longer one is ignored. */
const MAX_TIMES_LENGTH = 500;

const secondsOf = ([hours = "0", minutes, seconds, fraction = ""]: (string | undefined)[]) =>
  (Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds) + Number(fraction.padEnd(3, "0")) / 1000;

/** The times of a cue as tools write them. Null if they can't be read. */
function looseTimesOf(line: string): Omit<ReadCue, "lines"> | null {
  const found = LOOSE_TIMING.exec(line.slice(0, MAX_TIMES_LENGTH));
  if (!found) return null;
  const settings = (found[9] ?? "").split(/[ \t]+/).filter((one) => SETTING.test(one) && !one.startsWith("region:"));
  return { start: secondsOf(found.slice(1, 5)), end: secondsOf(found.slice(5, 9)), settings: settings.join(" ") };
}

/** Where a line stands: in the lines after the first one, between blocks, after the name of a cue, or in a block of this kind. */
type Place = "header" | "between" | "named" | "cue" | "ignored";

class TranscriptReader {
  readonly cues: ReadCue[] = [];
  skippedCues = 0;
  /** The first cue that could not be read. */
  skippedLine: number | null = null;
  /** Whether the text is valid WebVTT so far. */
  isValid: boolean;
  #place: Place;
  #lastStart = -1;
  #nameLine = 0;

  constructor(format: Format) {
    this.isValid = format === "WebVTT";
    this.#place = format === "WebVTT" ? "header" : "between";
  }

  #skip(number: number): void {
    this.isValid = false;
    this.skippedCues++;
    this.skippedLine ??= number;
  }

  add(given: string, number: number): void {
    const line = given.replace(CONTROL, " ");
    if (line !== given) this.isValid = false;
    if (line.includes(ARROW)) this.#begin(line, number);
    else if (line.trim() === "" && (line === "" || this.#place !== "cue")) this.#endBlock(line);
    else this.#addToBlock(line, number);
  }

  #begin(line: string, number: number): void {
    const isBehindText = this.#place === "header" || this.#place === "cue" || this.#place === "ignored";
    if (isBehindText) this.isValid = false;
    const previous = this.cues.at(-1);
    // Without an empty line, the counter of SubRip stands below the text of the cue before.
    if (this.#place === "cue" && previous && isCounter(previous.lines.at(-1) ?? "")) previous.lines.pop();
    const times = looseTimesOf(line);
    if (!times) {
      this.#skip(number);
      this.#place = "ignored";
      return;
    }
    const { start, end } = times;
    if (!timesOf(line) || end <= start || start < this.#lastStart) this.isValid = false;
    this.#lastStart = start;
    this.cues.push({ ...times, lines: [] });
    this.#place = "cue";
  }

  #endBlock(line: string): void {
    if (line !== "") this.isValid = false;
    if (this.#place === "named") this.#skip(this.#nameLine);
    this.#place = "between";
  }

  #addToBlock(line: string, number: number): void {
    if (this.#place === "cue") this.cues.at(-1)?.lines.push(line);
    else if (this.#place === "named") {
      // A text behind an empty line, which belongs to no cue.
      this.#skip(this.#nameLine);
      this.#place = "ignored";
    } else if (this.#place === "between") {
      const isBlock = isComment(line) || isStyle(line);
      if (isStyle(line) && this.cues.length > 0) this.isValid = false;
      this.#place = isBlock ? "ignored" : "named";
      this.#nameLine = number;
    }
  }

  end(): void {
    this.#endBlock("");
  }
}

/** The length of a cue that states none, unless the next one begins before. */
const SHOWN_SECONDS = 2;

/** The cues in the order of their start, each with a length. */
function ordered(cues: ReadCue[]): ReadCue[] {
  const sorted = cues.toSorted((a, b) => a.start - b.start);
  let next = Number.POSITIVE_INFINITY;
  for (let at = sorted.length - 1; at >= 0; at--) {
    const cue = sorted[at] as ReadCue;
    const later = sorted[at + 1]?.start ?? next;
    if (later > cue.start) next = later;
    if (cue.end <= cue.start) sorted[at] = { ...cue, end: Math.min(cue.start + SHOWN_SECONDS, next) };
  }
  return sorted;
}

const digits = (number: number, length: number) => String(number).padStart(length, "0");

function timeOf(seconds: number): string {
  const milliseconds = Math.round(seconds * 1000);
  const [hours, minutes] = [Math.floor(milliseconds / 3_600_000), Math.floor(milliseconds / 60_000) % 60];
  const rest = `${digits(minutes, 2)}:${digits(Math.floor(milliseconds / 1000) % 60, 2)}.${digits(milliseconds % 1000, 3)}`;
  return hours === 0 ? rest : `${digits(hours, 2)}:${rest}`;
}

/** Tags that SubRip and WebVTT share. */
const SHARED_TAG = /^<\/?[ibu]>$/i;

/** A line of SubRip in WebVTT. Character references stay, because most tools write them. Other tags and `{\an8}` have no meaning. */
const fromSubRip = (line: string): string =>
  line
    .replaceAll(/\{\\[^{}]{0,100}\}/g, "")
    .replaceAll(/&(?!(?:#\d+|#x[\da-f]+|[a-z]+);)/gi, "&amp;")
    .replaceAll(/<[^<>]{0,200}>?/g, (tag) => {
      if (SHARED_TAG.test(tag)) return tag.toLowerCase();
      return /^<\/?[a-z]/i.test(tag) && tag.endsWith(">") ? "" : tag.replace("<", "&lt;");
    });

function write(cues: ReadCue[], format: Format): string {
  const blocks = cues.map(({ start, end, settings, lines }) => {
    const text = format === "SubRip" ? lines.map(fromSubRip) : lines;
    const isKept = format === "WebVTT" && settings !== "";
    const times = `${timeOf(start)} ${ARROW} ${timeOf(end)}${isKept ? ` ${settings}` : ""}`;
    // An empty line would end the cue.
    return [times, ...text.filter((line) => line.trim() !== "")].join("\n");
  });
  return `WEBVTT\n\n${blocks.join("\n\n")}\n`;
}

/**
 * @param stated null if the format follows from the text
 * @throws `invalid_input`, which names the first line that is wrong
 */
export function readTranscript(bytes: Uint8Array, stated: Format | null): ReadTranscript {
  const text = decode(bytes);
  const format = stated ?? (text.includes(ARROW) && !text.startsWith("WEBVTT") ? "SubRip" : "WebVTT");
  const reader = new TranscriptReader(format);
  for (const [line, number] of linesOf(text)) {
    if (number === 1 && format === "WebVTT") {
      if (line.includes(ARROW) || !/^WEBVTT(?:[ \t].*)?$/s.test(line)) {
        throw invalidLine(1, "Must begin with `WEBVTT`. Send SubRip as application/x-subrip.");
      }
      // A control character in the title.
      if (line.search(CONTROL) >= 0) reader.isValid = false;
    } else reader.add(line, number);
  }
  reader.end();
  const isShown = ({ lines }: ReadCue) =>
    turnsOf((format === "SubRip" ? lines.map(fromSubRip) : lines).join("\n")).length > 0;
  const shown = reader.cues.filter(isShown);
  if (shown.length === 0) {
    throw invalidLine(reader.skippedLine ?? 1, `Must have a cue with times, such as \`${EXAMPLE}\`, and a text.`);
  }
  return {
    bytes: reader.isValid ? bytes : new TextEncoder().encode(write(ordered(shown), format)),
    cues: shown.length,
    skippedCues: reader.skippedCues + reader.cues.length - shown.length,
  };
}
