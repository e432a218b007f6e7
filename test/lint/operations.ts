import { joinOperations } from "../../src/http/operation.ts";
import { operations } from "../../src/service.ts";

const { listFiles, listLinks } = operations;

/** Two operations with the same id do not compile. `tsc` checks that the line marked below is an error. */
export const joined = [
  joinOperations({ listFiles }, { listLinks }),
  // @ts-expect-error: `listLinks` is in two lists.
  joinOperations({ listLinks }, { listFiles }, { listLinks }),
];
