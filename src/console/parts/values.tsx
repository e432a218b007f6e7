import { signal } from "@preact/signals";
import type { StoredFile } from "../../client/stowage.ts";
import { formatAge, formatDayHeading, formatExact, formatMoment, STATUS_LABELS } from "./format.ts";

const STATUS_CLASSES: Record<StoredFile["status"], string> = {
  pending: "busy",
  processing: "busy",
  completed: "good",
  failed: "bad",
};

export const StatusBadge = ({ status }: Pick<StoredFile, "status">) => (
  <span class={`badge ${STATUS_CLASSES[status]}`}>{STATUS_LABELS[status]}</span>
);

const TICK_MILLISECONDS = 20_000;
const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, TICK_MILLISECONDS);

interface TimeProps {
  at: string;
  /** Shows how long ago it was, if that is at most `maxDays`. */
  isRelative?: boolean;
  maxDays?: number;
}

/** A moment in the reader's time zone. */
export function Time({ at, isRelative = false, maxDays }: TimeProps) {
  const date = new Date(at);
  return (
    <time dateTime={at} title={formatExact(date)}>
      {isRelative ? formatAge(date, Math.max(now.value, Date.now()), maxDays) : formatMoment(date)}
    </time>
  );
}

/** The day of a moment, as a heading. */
export const Day = ({ at }: { at: string }) => <>{formatDayHeading(new Date(at), Math.max(now.value, Date.now()))}</>;

/** Whether a text has every word of a search, in any order and case. */
export const hasWords = (text: string, search: string): boolean =>
  wordsOf(search).every((word) => text.toLowerCase().includes(word));

const wordsOf = (search: string) => search.toLowerCase().split(/\s+/).filter(Boolean);

/** A text with the words of a search that it has. */
export function Marked({ text, search }: { text: string; search: string }) {
  const escaped = wordsOf(search).map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  if (escaped.length === 0) return <>{text}</>;
  // Each second part is a match.
  const parts = text.split(new RegExp(`(${escaped.join("|")})`, "iu"));
  return <>{parts.map((part, place) => (place % 2 === 1 ? <mark key={place}>{part}</mark> : part))}</>;
}
