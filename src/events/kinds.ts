import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { Actor } from "../access/authorization.ts";
import type { Identified } from "../access/names.ts";
import { SCOPES } from "../access/scopes.ts";
import { EVENT_KINDS } from "../event-types.ts";
import { kindOf } from "./events.ts";

/** The present name of the subject of an event, of which none stores one. It reads one row, or two of a session and of a link. */
export function nameOfSubject({ type, ...subject }: Identified & Record<"type", SQLWrapper>) {
  const cases = EVENT_KINDS.map(({ name, nameOf }) => sql`when ${name} then ${nameOf(subject)}`);
  return sql<string | null>`case substr(${type}, 1, instr(${type}, '.') - 1) ${sql.join(cases, sql` `)} end`;
}

const KINDS = new Map(EVENT_KINDS.map((kind) => [kind.name, kind]));

/** Whether the caller gets the name of the subject of an event. */
export function mayNameSubject({ kind: caller, scopes }: Pick<Actor, "kind" | "scopes">, type: string): boolean {
  const { nameScope, isNamedToOperator } = KINDS.get(kindOf(type)) ?? {};
  if (nameScope === undefined) return true;
  return caller === "operator" ? isNamedToOperator === true : (scopes & SCOPES[nameScope]) !== 0;
}

/** Whether `MAX_TEAM_EVENTS` counts events of the type, in SQL. */
export const isCountedType = (type: SQL) => {
  const ranges = EVENT_KINDS.filter(({ isCounted }) => isCounted).map(
    // "/" follows "." in ASCII.
    ({ name }) => sql`${type} >= ${`${name}.`} and ${type} < ${`${name}/`}`,
  );
  return sql`(${sql.join(ranges, sql` or `)})`;
};
