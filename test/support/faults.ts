import { inject } from "vitest";
import { FAILURES, type Fault, MOMENTS, type ProxiedBindings } from "./bindings.ts";

const ERRORS = FAILURES.filter((failure) => failure !== "death");
const isExhaustive = inject("isExhaustive");

/**
 * The faults of the calls after `after`. `npm run test:all` returns every fault that leaves a different state. `npm test`
 * returns every death of the Worker, and one error for each call that changes something. Its kind and moment alternate, so
 * that six such calls in a row get every combination.
 */
export function selectFaults(bindings: ProxiedBindings, after = 0): Fault[] {
  const isSelected = ({ call, moment, failure }: Fault) =>
    failure === "death" ||
    (!bindings.idle.has(call) && failure === ERRORS[call % ERRORS.length] && moment === MOMENTS[call % MOMENTS.length]);
  return [...bindings.everyFault(after + 1)].filter((fault) => isExhaustive || isSelected(fault));
}

export interface FaultCounts {
  points: number;
  /** The calls that change something. */
  changes: number;
  runs: number;
}

export function countFaults({ calls, idle }: ProxiedBindings, after: number, faults: Fault[]): FaultCounts {
  const points = calls.length - after;
  return { points, changes: points - [...idle].filter((call) => call > after).length, runs: faults.length };
}

/** There are more runs than this: each error before each call, and each fault after a call that changes something. */
export const minRuns = ({ points, changes }: FaultCounts): number =>
  isExhaustive ? points * ERRORS.length + changes * FAILURES.length : 2 * changes;
