/* Totals for each day of the usage chart. Pure, so that they are tested without a browser. */

export const CHART_DAYS = 30;

export interface Sized {
  _id: string;
  createdAt: string;
  size: number;
}

export interface Day {
  /** Midnight in the reader's time zone. */
  start: Date;
  count: number;
  bytes: number;
}

function midnight(time: number, daysEarlier = 0): Date {
  const date = new Date(time);
  date.setHours(0, 0, 0, 0);
  date.setDate(date.getDate() - daysEarlier);
  return date;
}

/** The last 30 days in the reader's time zone, oldest first, with the uploads of each. Older uploads are left out. */
export function dailyTotals(uploads: Sized[], now: number): Day[] {
  const days = Array.from({ length: CHART_DAYS }, (_, place) => ({
    start: midnight(now, CHART_DAYS - 1 - place),
    count: 0,
    bytes: 0,
  }));
  const byStart = new Map(days.map((day) => [day.start.getTime(), day]));
  for (const { createdAt, size } of uploads) {
    const day = byStart.get(midnight(Date.parse(createdAt)).getTime());
    if (!day) continue;
    day.count++;
    day.bytes += size;
  }
  return days;
}
