import { expect, test } from "vitest";
import { COMMON_ERRORS, errorOf } from "../../src/errors.ts";
import { operations } from "../../src/service.ts";
import { readSource, serviceFiles, withoutComments } from "../tools/structure/sources.ts";

/** The codes that the folders define. */
const defined = serviceFiles().flatMap((path) =>
  [...withoutComments(readSource(path)).matchAll(/\berrorCode\(\s*"(\w+)"/g)].map(([, code = ""]) => code),
);

test("each error of a folder has a code of its own, and an operation that names it", () => {
  const kinds = Object.values(operations).flatMap(({ errors = [], retryableFailure = [] }) =>
    errors.concat(retryableFailure),
  );
  const named = new Set(kinds.map((kind) => errorOf(kind).code));
  const common = COMMON_ERRORS.map(({ code }) => code);
  expect(defined.length).toBeGreaterThan(20);
  expect(defined.filter((code, i) => common.includes(code) || defined.indexOf(code) !== i)).toEqual([]);
  expect(defined.filter((code) => !named.has(code))).toEqual([]);
});
