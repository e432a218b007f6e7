import type { Deps } from "../../src/deps.ts";
import { writeWithEvent } from "../../src/events/events.ts";
import { type Query, read, write } from "../../src/platform/db.ts";

const options = { isIdempotent: true, caller: null };

/** A batch has a name for each of its results. `tsc` checks that each line marked below is an error. */
export const batchesOf = (deps: Deps, one: Query<string[]>, another: Query<number[]>) => [
  // @ts-expect-error: a list has no names.
  read(deps, [one]),
  // @ts-expect-error: a list has no names.
  write(deps, [one, another], options),
  // @ts-expect-error: a list has no names.
  writeWithEvent(deps, [one, another] as const, options),
  read(deps, one),
  write(deps, { one, others: [another, another] }, options),
  writeWithEvent(deps, { one, another }, options),
];
