import { and, eq, ne, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import {
  type BoundQuery,
  columnsFrom,
  hasRow,
  type Param,
  preparedQuery,
  read,
  rowOf,
  write,
} from "../../platform/db.ts";
import { teams } from "../../platform/schema.ts";
import { newId } from "../../platform/system.ts";
import { fieldsOf, newEvent, writeWithEvent } from "../events/events.ts";
import {
  cutPage,
  keyset,
  type ListPosition,
  listName,
  listPosition,
  nameKeyset,
  type Page,
  type PageRequest,
  pageOf,
} from "../paging.ts";
import { type Actor, authorize, authorizeRead, type Credential, teamRead } from "./authorization.ts";

/*
 * Teams, which the operator manages. A suspended team keeps everything, but none of its tokens is accepted. A deleted team
 * is `deleting` until the recovery job has deleted everything that it has (team-deletion.ts).
 */

/** Instants are milliseconds since the epoch. A quota that is null is that of the settings. */
export type Team = typeof teams.$inferSelect;
export const TEAM_STATES = ["active", "suspended", "deleting"] as const;

/** The team that the parameter names, unless it is being deleted. Every insert for a team requires it. */
export const isExistingTeam = (param: Param<{ teamId: string }>) =>
  and(eq(teams.id, param("teamId")), ne(teams.status, "deleting"));

/** The condition of an insert for a team. The team must also meet `condition`, if there is one. */
export const teamExists = (param: Param<{ teamId: string }>, condition?: SQL) =>
  hasRow(teams, and(isExistingTeam(param), condition));

export interface NewTeam {
  name: string;
  maxBytes?: number | null | undefined;
  maxFiles?: number | null | undefined;
}

const insertRow = preparedQuery((db, param: Param<Team>) =>
  db.insert(teams).values(rowOf(teams, param)).onConflictDoNothing(),
);

/** @returns the team, and the insert of its row */
export function newTeam(
  { system }: Deps,
  { name, maxBytes = null, maxFiles = null }: NewTeam,
): [Team, BoundQuery<unknown>] {
  const now = system.now();
  const team: Team = {
    id: newId(system),
    name,
    status: "active",
    maxBytes,
    maxFiles,
    files: 0,
    bytes: 0,
    publicBytes: 0,
    apiKeys: 0,
    links: 0,
    users: 0,
    admins: 0,
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  return [team, insertRow(team)];
}

const teamById = teamRead(teams.id, (db) => ({ query: db.select().from(teams).$dynamic() }));

/** The operator reads any team, and a team its own. @throws `not_found` */
export async function fetchTeam(
  deps: Deps,
  credential: Credential<"files:read or operator">,
  id: string,
): Promise<Team> {
  const [team] = await authorizeRead(deps, credential, teamById({}), id);
  if (team?.id !== id) throw new AppError("not_found");
  return team;
}

export interface TeamFilters {
  status?: Team["status"] | undefined;
  /** A prefix of the name. */
  name?: string | undefined;
}

/** Each combination has its own index. */
const pageOfTeams = (isByName: boolean, hasStatus: boolean) =>
  preparedQuery((db, param: Param<ListPosition & { status: string | null }>) => {
    const clauses = isByName ? nameKeyset(teams.name, teams.id, param) : keyset(teams.id, "newest first", param);
    const condition = hasStatus ? eq(teams.status, param("status")) : undefined;
    const { query, where } = pageOf(db.select().from(teams).$dynamic(), clauses, param, condition);
    return query.where(where);
  });
const BY_ID = { all: pageOfTeams(false, false), ofStatus: pageOfTeams(false, true) };
const BY_NAME = { all: pageOfTeams(true, false), ofStatus: pageOfTeams(true, true) };

/** Lists teams, newest first, or by name if `name` is given. @throws `invalid_input` for a cursor of another list */
export async function listTeams(
  deps: Deps,
  credential: Credential<"operator">,
  { status, name }: TeamFilters,
  request: PageRequest,
): Promise<Page<Team>> {
  await authorize(deps, credential);
  const list = listName("teams", { status, name });
  const position = listPosition(list, "newest first", name, request);
  const query = (name === undefined ? BY_ID : BY_NAME)[status === undefined ? "all" : "ofStatus"];
  const [rows] = await read(deps, [query({ ...position, status: status ?? null })]);
  return cutPage(list, request, rows, name === undefined ? undefined : (team) => team.name);
}

export interface TeamChanges extends Omit<NewTeam, "name"> {
  name?: string | undefined;
  status?: Exclude<Team["status"], "deleting"> | undefined;
}

/** Null leaves name and status unchanged. `has…` says whether to set a quota, because null is one of its values. */
type ChangeValues = Pick<Team, "maxBytes" | "maxFiles" | "updatedAt"> & {
  teamId: string;
  name: string | null;
  status: string | null;
  hasMaxBytes: number;
  hasMaxFiles: number;
};
const updateById = preparedQuery((db, param: Param<ChangeValues>) =>
  db
    .update(teams)
    .set({
      name: sql`coalesce(${param("name")}, ${teams.name})`,
      status: sql`coalesce(${param("status")}, ${teams.status})`,
      maxBytes: sql`iif(${param("hasMaxBytes")}, ${param("maxBytes")}, ${teams.maxBytes})`,
      maxFiles: sql`iif(${param("hasMaxFiles")}, ${param("maxFiles")}, ${teams.maxFiles})`,
      ...columnsFrom(param, "updatedAt"),
      version: sql`${teams.version} + 1`,
    })
    .where(isExistingTeam(param))
    .returning(),
);
const selectById = preparedQuery((db, param: Param<{ teamId: string }>) =>
  db
    .select()
    .from(teams)
    .where(eq(teams.id, param("teamId"))),
);

/** Suspending takes effect with the next request of the team. @throws `not_found`, `conflict` if the team is being deleted */
export async function updateTeam(deps: Deps, actor: Actor, id: string, changes: TeamChanges): Promise<Team> {
  const { name = null, status = null, maxBytes, maxFiles } = changes;
  const update = updateById({
    teamId: id,
    name,
    status,
    hasMaxBytes: Number(maxBytes !== undefined),
    maxBytes: maxBytes ?? null,
    hasMaxFiles: Number(maxFiles !== undefined),
    maxFiles: maxFiles ?? null,
    updatedAt: deps.system.now(),
  });
  const type = status === "suspended" ? "team.suspended" : "team.updated";
  const event = newEvent(deps, type, actor, { teamId: id, id }, { fields: fieldsOf(changes) });
  const queries = [update, selectById({ teamId: id })] as const;
  const [[team], [found]] = await writeWithEvent(deps, event, queries, { isIdempotent: false });
  if (!found) throw new AppError("not_found");
  if (!team) throw new AppError("conflict", { message: "The team is being deleted." });
  return team;
}

const markDeleting = preparedQuery((db, param: Param<{ teamId: string; updatedAt: number }>) =>
  db
    .update(teams)
    .set({ status: "deleting", ...columnsFrom(param, "updatedAt"), version: sql`${teams.version} + 1` })
    .where(isExistingTeam(param)),
);

/** From now on, the team's tokens are invalid. The recovery job deletes everything. Can be repeated. @throws `not_found` */
export async function deleteTeam(deps: Deps, teamId: string): Promise<Team> {
  const queries = [markDeleting({ teamId, updatedAt: deps.system.now() }), selectById({ teamId })] as const;
  const [, [team]] = await write(deps, queries, { isIdempotent: true });
  if (!team) throw new AppError("not_found");
  return team;
}
