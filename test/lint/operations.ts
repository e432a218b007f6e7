import { joinOperations } from "../../src/http/operation.ts";
import { operations } from "../../src/service.ts";

const { listFiles, listUsers } = operations;

/** Two operations with the same id do not compile. `tsc` checks that the line marked below is an error. */
export const joined = [
  joinOperations({ listFiles }, { listUsers }),
  // @ts-expect-error: `listUsers` is in two lists.
  joinOperations({ listUsers }, { listFiles }, { listUsers }),
];
