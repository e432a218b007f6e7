import type { Effects } from "./bindings.ts";

/**
 * Cloudflare's list prices in US dollars (Workers Paid plan), as documented on PRICES.date. `included` is the plan's
 * monthly allowance.
 */
export const PRICES = {
  date: "2026-12-01",
  planPerMonth: 5,
  // https://developers.cloudflare.com/workers/platform/pricing/
  requests: { perMillion: 0.3, included: 10e6 },
  cpuMilliseconds: { perMillion: 0.02, included: 30e6 },
  logGigabytes: { perMillion: 0.25e6, included: 50 },
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
/** Usage of each priced item. */
export type Bill = Partial<Record<Item, number>>;

const CLASS_A = ["put", "createMultipartUpload", "uploadPart", "complete", "list"];
const CLASS_B = ["get", "head"];

/** Our line for a request, measured locally. Cloudflare's own for each invocation is turned off in wrangler.toml. */
const LOG_LINE_BYTES = 246;

/** Converts counted effects to billed items. Each queue message is billed three times: write, read, delete. */
export function billOf(effects: Pick<Effects, "rowsRead" | "rowsWritten" | "r2" | "messages">, requests: number): Bill {
  const countR2 = (names: string[]) => effects.r2.filter((name) => names.includes(name)).length;
  return {
    requests,
    logGigabytes: (requests * LOG_LINE_BYTES) / 1e9,
    rowsRead: effects.rowsRead,
    rowsWritten: effects.rowsWritten,
    r2ClassA: countR2(CLASS_A),
    r2ClassB: countR2(CLASS_B),
    queueOperations: 3 * effects.messages,
  };
}

const items = (bill: Bill) => Object.entries(bill) as [Item, number][];

/** Sums bills, each multiplied by a factor. */
export function sumBills(...parts: [factor: number, bill: Bill][]): Bill {
  const sum: Bill = {};
  for (const [factor, bill] of parts) {
    for (const [item, usage] of items(bill)) sum[item] = (sum[item] ?? 0) + factor * usage;
  }
  return sum;
}

/** The price of a million such operations beyond the plan's allowance. */
export const dollarsPerMillion = (bill: Bill): number =>
  items(bill).reduce((sum, [item, usage]) => sum + usage * PRICES[item].perMillion, 0);

/** The price of a month's use beyond the plan's allowance, for each item. */
export const monthlyDollars = (month: Bill) => {
  const beyond = ([item, usage]: [Item, number]) =>
    (Math.max(0, usage - PRICES[item].included) * PRICES[item].perMillion) / 1e6;
  return Object.fromEntries(items(month).map((entry) => [entry[0], beyond(entry)])) as Record<Item, number>;
};
