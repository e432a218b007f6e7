import type { StoredFile } from "../../client/index.ts";

/* Numbers, durations, and dates, and the words for values of the API. */

/** The texts are English, so numbers and dates are, too, in the reader's variety of it. */
export const LOCALE = navigator.languages.find((language) => /^en(-[A-Z]{2})?$/.test(language)) ?? "en";
const integer = new Intl.NumberFormat(LOCALE);
const oneDecimal = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 1 });
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"];

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

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.95 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${oneDecimal.format(value)} ${BYTE_UNITS[unit]}`;
}

/** A duration as a clock shows it, such as "1:02:07" or "0:04". */
export function formatDuration(seconds: number): string {
  const total = Math.round(seconds);
  const parts = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  const shown = parts[0] === 0 ? parts.slice(1) : parts;
  return shown.map((part, place) => (place === 0 ? String(part) : String(part).padStart(2, "0"))).join(":");
}

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

const relative = new Intl.RelativeTimeFormat(LOCALE, { numeric: "auto" });
const dayOfYear = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric" });
const date = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium" });
const dateTime = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(LOCALE, { dateStyle: "full", timeStyle: "long" });
const DAY_SECONDS = 86_400;
const RELATIVE_DAYS = 7;

/** A moment to the minute. */
export const formatMoment = (at: Date): string => dateTime.format(at);
/** A moment to the second, with its time zone. */
export const formatExact = (at: Date): string => exact.format(at);

/** A day, such as "Nov 23", with its year if that is not the present one. */
const formatDay = (at: Date, now: number): string =>
  (at.getFullYear() === new Date(now).getFullYear() ? dayOfYear : date).format(at);

/** A day as a heading: "Today", "Yesterday", or as `formatDay` has it. */
export function formatDayHeading(at: Date, now: number): string {
  const noon = (date: Date) => new Date(date).setHours(12, 0, 0, 0);
  const days = Math.round((noon(at) - noon(new Date(now))) / (DAY_SECONDS * 1000));
  if (days !== 0 && days !== -1) return formatDay(at, now);
  const text = relative.format(days, "day");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The distance of a moment, such as "2 hours ago" or "in 4 minutes"; its day if that is more than `maxDays`. */
export function formatAge(at: Date, now: number, maxDays = RELATIVE_DAYS): string {
  const seconds = (at.getTime() - now) / 1000;
  const age = Math.abs(seconds);
  if (seconds <= 0 && age < 45) return "just now";
  if (age < 60) return relative.format(Math.ceil(seconds), "second");
  if (age < 3600) return relative.format(Math.round(seconds / 60), "minute");
  if (age < DAY_SECONDS) return relative.format(Math.round(seconds / 3600), "hour");
  if (age < maxDays * DAY_SECONDS) return relative.format(Math.round(seconds / DAY_SECONDS), "day");
  return formatDay(at, now);
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
