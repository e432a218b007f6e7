import type { Invariant } from "./capability-invariant.ts";
import type { ObjectClass } from "./objects.ts";
import { SEARCH_OBJECTS, searchInvariant } from "./search-objects.ts";
import { WEBHOOK_OBJECTS, webhookInvariant } from "./webhook-objects.ts";

/* The parts that single capabilities add to a `World`, as service.ts lists them for the service. */

/** The classes of Durable Objects. */
export const objectClasses: ObjectClass[] = [WEBHOOK_OBJECTS, SEARCH_OBJECTS];

export const invariants: Invariant[] = [webhookInvariant, searchInvariant];

/** Whether nothing is left to do in these teams, at most 90. */
export async function areFinished(teamIds: string[]): Promise<boolean> {
  for (const invariant of invariants) if (!(await invariant.isFinished(teamIds))) return false;
  return true;
}

/** Each invariant with its results, from those of the queries of all. */
export function withResults(results: unknown[][]): { invariant: Invariant; results: unknown[][] }[] {
  let end = 0;
  return invariants.map((invariant) => {
    const start = end;
    end += invariant.queries.length;
    return { invariant, results: results.slice(start, end) };
  });
}
