import type { Deps } from "../../deps.ts";
import type { Actor, Credential } from "./authorization.ts";
import { type ApiKey, createKey, type NewKey } from "./keys.ts";
import { type NewTeam, newTeam, type Team } from "./teams.ts";

/** Creates a team and its first key, in one batch. @throws the errors of `createKey` */
export async function createTeam(
  deps: Deps,
  operator: Actor,
  credential: Credential,
  fields: NewTeam,
  key: NewKey = { name: fields.name, isPublic: false },
): Promise<{ team: Team; key: ApiKey }> {
  const [team, insertTeam] = newTeam(deps, fields);
  return {
    team: { ...team, apiKeys: 1 },
    key: await createKey(deps, operator, credential, { ...key, teamId: team.id }, [insertTeam]),
  };
}
