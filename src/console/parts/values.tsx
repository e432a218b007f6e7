import { tabSignal } from "../framework/signals.ts";
import { formatAge, formatDayHeading, formatExact, formatMoment } from "./format.ts";

const TICK_MILLISECONDS = 20_000;
const now = tabSignal(Date.now());
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
