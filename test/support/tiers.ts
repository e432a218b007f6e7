import { inject, test } from "vitest";

/** Whether everything runs, as in `npm run test:all`. */
export const isExhaustive = inject("isExhaustive");

/** A test of `npm run test:all` alone. */
export const exhaustive = test.runIf(isExhaustive);
