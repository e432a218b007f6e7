import type { Deps } from "../deps.ts";

/* The interface that the domain's modules implement for the recovery job. */

/** The result of one batch of a step. */
export interface Batch {
  rows: number;
  /** Whether no later batch of this run would find anything. */
  isLast: boolean;
}

/** Work that the recovery job does in batches. It is idempotent, and may itself stop at any point. */
export interface RecoveryStep<Count extends string = string> {
  /** Its name in the log. */
  name: string;
  /** The count that `rows` of its batches add to. */
  count: Count;
  /** Whether users wait for it. */
  isUrgent: boolean;
  /** Starts the step for one run. Each call of the result does one batch of at most 100 D1 queries. */
  start(deps: Deps): () => Promise<Batch>;
}

/** A step whose last batch is the first with fewer than `limit` rows. */
export const newStep = <Count extends string>(
  name: string,
  count: Count,
  limit: number,
  runBatch: (deps: Deps) => Promise<number>,
  { isUrgent = false } = {},
): RecoveryStep<Count> => ({
  name,
  count,
  isUrgent,
  start: (deps) => async () => {
    const rows = await runBatch(deps);
    return { rows, isLast: rows < limit };
  },
});
