import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import type { Identified } from "../access/names.ts";
import type { Scope } from "../access/scopes.ts";

/* The subject of an event, and the rules of its type. Each folder declares those of its records; event-types.ts lists them. */

/** A kind of record that has events, such as `file`. */
export interface EventKind {
  name: string;
  /** The present name of a record. Null once the record is gone. */
  nameOf(subject: Identified): SQLWrapper;
  /** The scope that gets the name elsewhere, too. By default, all who read events. The operator needs `isNamedToOperator`. */
  nameScope?: Scope;
  isNamedToOperator?: true;
  /**
   * `MAX_TEAM_EVENTS` counts its events. It doesn't count those of accounts: else somebody with files could push what they did to keys
   * and users out of the log.
   */
  isCounted?: true;
}

interface Properties {
  /** Where the event finds the version of its subject, after the change. By default, the rule that writes it gives the version. */
  version?: (subject: { teamId: string; id: string }) => SQL;
  /** It counts towards the account events of a day. The trigger `events_limited` names the same types. */
  isDaily?: true;
  /** It ends something, and a full database may end it without the event. */
  isOmittable?: true;
}

/** A subject that a follower of every team may follow, by events of any type. */
export type About = "transcript" | "waveform";

/** A type of event, such as `file.uploaded`. */
export interface EventType extends Properties {
  name: string;
  kind: EventKind;
}

/** Declares the types of a kind, by the last word of their names. */
export const eventTypesOf = <Word extends string>(kind: EventKind, types: Record<Word, Properties>) =>
  Object.fromEntries(
    Object.entries<Properties>(types).map(([word, properties]) => [
      word,
      { name: `${kind.name}.${word}`, kind, ...properties },
    ]),
  ) as Record<Word, EventType>;

/** The version in the row of the subject. */
export const versionIn =
  (table: SQLiteTable & Record<"id" | "version", SQLiteColumn>, teamColumn: SQLiteColumn) =>
  ({ teamId, id }: { teamId: string; id: string }) =>
    sql`(select ${table.version} from ${table} where ${teamColumn} = ${teamId} and ${table.id} = ${id})`;
