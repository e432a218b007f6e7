/* Sizes, durations and times for people, as the console and the CLI show them. */

/** The texts are English, so numbers and dates are, too, in the reader's variety of it. Node 20 does not know it. */
export const LOCALE = globalThis.navigator?.languages.find((language) => /^en(-[A-Z]{2})?$/.test(language)) ?? "en";
export const oneDecimal = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 1 });
export const relative = new Intl.RelativeTimeFormat(LOCALE, { numeric: "auto" });
const dayOfYear = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric" });
const date = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium" });
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"];
export const DAY_SECONDS = 86_400;
const RELATIVE_DAYS = 7;

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

/** A day, such as "Nov 23", with its year if that is not the present one. */
export const formatDay = (at: Date, now: number): string =>
  (at.getFullYear() === new Date(now).getFullYear() ? dayOfYear : date).format(at);

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
