import { type SQLWrapper, sql } from "drizzle-orm";
import { apiKeys } from "../accounts/keys.schema.ts";
import { users } from "../accounts/users.schema.ts";

/**
 * The current name of the actor: of the user, or of the key if it has no user. Null once that is deleted. No record
 * stores it, so nothing has to be erased with a user.
 */
export function nameOfActor({ teamId, keyId, userId }: Record<"teamId" | "keyId" | "userId", SQLWrapper>) {
  const ofUser = sql`(select ${users.fullName} from ${users} where ${users.id} = ${userId} and ${users.teamId} = ${teamId})`;
  const ofKey = sql`(select ${apiKeys.name} from ${apiKeys} where ${apiKeys.id} = ${keyId} and ${apiKeys.teamId} = ${teamId})`;
  // Nested, because Drizzle omits the tables of the columns of a selected expression itself.
  return sql<string | null>`nullif(${sql`iif(${userId} is null, ${ofKey}, ${ofUser})`}, '')`;
}
