import { isExistingTeam } from "../access/authorization.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { read } from "../platform/db.ts";

/** Deletes the index of a team, and builds it again in the background. Can be repeated. @throws `not_found`, `unavailable` */
export async function rebuildIndex(deps: Deps, teamId: string): Promise<void> {
  const [team] = await read(deps, deps.db.select({ id: teams.id }).from(teams).where(isExistingTeam(teamId)));
  if (!team) throw new AppError("not_found");
  await deps.searchIndexes(teamId).rebuild();
}
