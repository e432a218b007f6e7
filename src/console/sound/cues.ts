/* The cues of WebVTT. The service has checked that they are valid and in the order of their start. */

import { foldedWords } from "../../folding.ts";

export interface Cue {
  /** Seconds. */
  start: number;
  end: number;
  /** Without the tags of WebVTT. Any other markup is text. */
  text: string;
}

const TIMING = /^(?:(\d+):)?(\d\d):(\d\d\.\d{3})[ \t]+-->[ \t]+(?:(\d+):)?(\d\d):(\d\d\.\d{3})/;
/** Tags for style, language and speakers, and times within a cue. */
const TAG = /<\/?(?:c|i|b|u|ruby|rt|v|lang)(?:[.\s][^<>]*)?>|<[\d:.]+>/g;
/** The name begins after the spaces, so that no text takes quadratic time. */
const SPEAKER = /^<v(?:\.[^\s<>]*)?[ \t]+([^\s<>][^<>]*)>/;
const ENTITIES: Record<string, string> = {
  "&amp;": "&",
  "&lt;": "<",
  "&gt;": ">",
  "&nbsp;": "\u00a0",
  "&lrm;": "\u200e",
  "&rlm;": "\u200f",
};

const secondsOf = (hours = "0", minutes = "0", seconds = "0") =>
  Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds);

/** The text of a cue, after its speaker. */
function plainOf(payload: string): string {
  const text = payload
    .replace(SPEAKER, "$1: ")
    .replaceAll(TAG, "")
    .replaceAll(/&(?:amp|lt|gt|nbsp|lrm|rlm);/g, (entity) => ENTITIES[entity] ?? entity);
  return text.replaceAll(/\s+/g, " ").trim();
}

export function parseCues(vtt: string): Cue[] {
  const cues: Cue[] = [];
  for (const block of vtt.replaceAll(/\r\n?/g, "\n").split(/\n{2,}/)) {
    const lines = block.split("\n");
    const at = lines.findIndex((line) => line.includes("-->"));
    const [, hours, minutes, seconds, ...end] = TIMING.exec(lines[at] ?? "") ?? [];
    if (seconds === undefined) continue;
    const text = plainOf(lines.slice(at + 1).join("\n"));
    if (text) cues.push({ start: secondsOf(hours, minutes, seconds), end: secondsOf(...end), text });
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

/** The cues whose folded texts contain every word, in their order. */
export function findCues(texts: readonly string[], query: string): number[] {
  const words = foldedWords(query);
  if (words.length === 0) return [];
  return texts.flatMap((text, at) => (words.every((word) => text.includes(word)) ? [at] : []));
}
