import { DAY_SECONDS, formatDay, formatDuration, LOCALE, oneDecimal, relative } from "../../client/format.ts";
import type { StoredFile } from "../../client/index.ts";

/* Numbers, durations, and dates, and the words for values of the API. */

const integer = new Intl.NumberFormat(LOCALE);

export { formatAge, formatBytes } from "../../client/format.ts";
export { formatDuration, LOCALE };

export const TYPE_LABELS: Record<StoredFile["fileType"], string> = {
  "audio file": "Audio",
  "video file": "Video",
  "image file": "Image",
  "document file": "Document",
  "text file": "Text",
  "archive file": "Archive",
  "other file": "Other",
};

export const formatCount = (count: number): string => integer.format(count);

/** A count with its noun: "1 file", "2,000 files". */
export const countOf = (count: number, noun: string, plural = `${noun}s`): string =>
  `${formatCount(count)} ${count === 1 ? noun : plural}`;

/** A moment of a recording to a tenth of a second, such as "0:04" or "0:04.5". */
export function formatTenths(seconds: number): string {
  const tenths = Math.round(seconds * 10);
  const whole = formatDuration(Math.floor(tenths / 10));
  return tenths % 10 === 0 ? whole : `${whole}.${tenths % 10}`;
}

/** A remaining time in its largest unit, such as "14 s left" or "3 min left". */
export function formatRemaining(seconds: number): string {
  if (seconds < 60) return `${formatCount(Math.ceil(seconds))} s left`;
  if (seconds < 3600) return `${formatCount(Math.round(seconds / 60))} min left`;
  return `${oneDecimal.format(seconds / 3600)} h left`;
}

/** The share of a whole, rounded down, so that 100% means complete; "<1%" if it is small but not zero. */
export function formatPercent(part: number, whole: number): string {
  const percent = whole > 0 ? Math.floor((part / whole) * 100) : 0;
  return percent === 0 && part > 0 ? "<1%" : `${percent}%`;
}

/** A long duration in words, such as "4 h 12 min" or "16 min". */
export function formatHours(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  return [hours > 0 && `${formatCount(hours)} h`, minutes % 60 > 0 && `${minutes % 60} min`].filter(Boolean).join(" ");
}

const dateTime = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(LOCALE, { dateStyle: "full", timeStyle: "long" });

/** A moment to the minute. */
export const formatMoment = (at: Date): string => dateTime.format(at);
/** A moment to the second, with its time zone. */
export const formatExact = (at: Date): string => exact.format(at);

/** A day as a heading: "Today", "Yesterday", or as `formatDay` has it. */
export function formatDayHeading(at: Date, now: number): string {
  const noon = (date: Date) => new Date(date).setHours(12, 0, 0, 0);
  const days = Math.round((noon(at) - noon(new Date(now))) / (DAY_SECONDS * 1000));
  if (days !== 0 && days !== -1) return formatDay(at, now);
  const text = relative.format(days, "day");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** An instant as a field of type `datetime-local` has it, in the reader's time zone and to the minute. */
export function localMinute(instant: string): string {
  const date = new Date(instant);
  date.setMinutes(date.getMinutes() - date.getTimezoneOffset());
  return date.toISOString().slice(0, 16);
}

/** A secret as lists show it: enough to recognize it. The API may have masked it already. */
export const mask = (secret: string): string =>
  secret.includes("…") ? secret : `${secret.slice(0, 12)}…${secret.slice(-4)}`;
