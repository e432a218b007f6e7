import { type SQLWrapper, sql } from "drizzle-orm";
import { apiKeys } from "../accounts/keys.schema.ts";
import { users } from "../accounts/users.schema.ts";

/* The current names of users and keys, each null once its record is deleted. No other record stores one, so nothing has to be erased with a user. */

/** Names a record in SQL. */
export type Identified = Record<"teamId" | "id", SQLWrapper>;

/** Null also for a user without a name. */
export const nameOfUser = ({ teamId, id }: Identified) =>
  sql<
    string | null
  >`(select nullif(${users.fullName}, '') from ${users} where ${users.id} = ${id} and ${users.teamId} = ${teamId})`;

export const nameOfKey = ({ teamId, id }: Identified) =>
  sql<
    string | null
  >`(select ${apiKeys.name} from ${apiKeys} where ${apiKeys.id} = ${id} and ${apiKeys.teamId} = ${teamId})`;

/** The name of the user, or of the key if it has no user. */
export function nameOfActor({ teamId, keyId, userId }: Record<"teamId" | "keyId" | "userId", SQLWrapper>) {
  const [ofUser, ofKey] = [nameOfUser({ teamId, id: userId }), nameOfKey({ teamId, id: keyId })];
  // Nested, because Drizzle omits the tables of the columns of a selected expression itself.
  return sql<string | null>`${sql`iif(${userId} is null, ${ofKey}, ${ofUser})`}`;
}
