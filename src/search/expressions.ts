import type { Term } from "../words.ts";

/** The terms as an expression of FTS5. A word has only letters and digits, so the quotes hold. */
export const expressionOf = ({ words, isPrefix }: Term): string => `"${words.join(" ")}"${isPrefix ? " *" : ""}`;
export const allOf = (terms: Term[]): string => terms.map(expressionOf).join(" AND ");
/** The terms close together. */
export const nearOf = (terms: Term[], maxWords: number): string =>
  terms.length === 1 ? allOf(terms) : `NEAR(${terms.map(expressionOf).join(" ")}, ${maxWords})`;
