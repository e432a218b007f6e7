import type { Effects } from "../support/bindings.ts";

/**
 * Cloudflare's list prices in US dollars, Workers Paid plan, as its documentation stated them on PRICES.date.
 * `included` is what the plan gives an account each month.
 */
export const PRICES = {
  date: "2026-11-21",
  planPerMonth: 5,
  // https://developers.cloudflare.com/workers/platform/pricing/
  requests: { perMillion: 0.3, included: 10e6 },
  cpuMilliseconds: { perMillion: 0.02, included: 30e6 },
  /** Workers Logs. From December 2026 on, Cloudflare Observability has prices of its own. */
  logEvents: { perMillion: 0.6, included: 20e6 },
  // https://developers.cloudflare.com/d1/platform/pricing/
  rowsRead: { perMillion: 0.001, included: 25e9 },
  rowsWritten: { perMillion: 1, included: 50e6 },
  databaseGigabytes: { perMillion: 0.75e6, included: 5 },
  // https://developers.cloudflare.com/r2/pricing/
  r2ClassA: { perMillion: 4.5, included: 1e6 },
  r2ClassB: { perMillion: 0.36, included: 10e6 },
  r2Gigabytes: { perMillion: 0.015e6, included: 10 },
  // https://developers.cloudflare.com/queues/platform/pricing/
  queueOperations: { perMillion: 0.4, included: 1e6 },
} as const;

type Item = Exclude<keyof typeof PRICES, "date" | "planPerMonth">;
/** How much of each priced thing is used. */
export type Bill = Partial<Record<Item, number>>;

// R2's names for these are PutObject, CreateMultipartUpload, ..., GetObject, HeadObject; deleting and aborting are free.
const CLASS_A = ["put", "createMultipartUpload", "uploadPart", "complete", "list"];
const CLASS_B = ["get", "head"];

/** What counted effects are billed as. A message is written, read and deleted. */
export function bill(effects: Effects, invocations: number, cpuMilliseconds: number): Bill {
  const r2 = (names: string[]) => effects.r2.filter((name) => names.includes(name)).length;
  return {
    requests: invocations,
    cpuMilliseconds,
    // The platform's own event of each invocation, and our line.
    logEvents: 2 * invocations,
    rowsRead: effects.rowsRead,
    rowsWritten: effects.rowsWritten,
    r2ClassA: r2(CLASS_A),
    r2ClassB: r2(CLASS_B),
    queueOperations: 3 * effects.messages,
  };
}

const items = (bill: Bill) => Object.entries(bill) as [Item, number][];

/** So many of each bill, added up. */
export function total(...parts: [times: number, bill: Bill][]): Bill {
  const sum: Bill = {};
  for (const [times, bill] of parts) for (const [item, use] of items(bill)) sum[item] = (sum[item] ?? 0) + times * use;
  return sum;
}

const dollars = (item: Item, use: number) => (use * PRICES[item].perMillion) / 1e6;

/** Of a million such operations, with nothing included: what one more costs once the plan's share is used up. */
export const perMillion = (bill: Bill): number =>
  items(bill).reduce((sum, [item, use]) => sum + dollars(item, use * 1e6), 0);

/** What each item of a month costs above what the plan includes. */
export const monthly = (bill: Bill) =>
  items(bill).map(([item, use]) => ({ item, use, dollars: dollars(item, Math.max(0, use - PRICES[item].included)) }));
