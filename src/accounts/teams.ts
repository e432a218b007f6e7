import { and, eq, isNull, not, type SQL, sql } from "drizzle-orm";
import {
  type Actor,
  authorize,
  type Credential,
  isExistingTeam,
  isSecretKeyOrAdmin,
  readAs,
  type TeamActor,
  teamExists,
} from "../access/authorization.ts";
import { inDatabase, inDatabases, inEveryDatabase } from "../access/databases.ts";
import type { Deps } from "../deps.ts";
import { AppError, invalidField } from "../errors.ts";
import type { EventType } from "../events/event-type.ts";
import { actorOf, fieldsOf, operatorLogOf, recorded, writeWithEvent } from "../events/events.ts";
import { followersOf, wake } from "../events/followers.ts";
import { fileHeld, heldFileOf } from "../files/holds.ts";
import { type Batch, firstOf, hasRow, read } from "../platform/db.ts";
import { sizeOf } from "../platform/health.ts";
import { cutPage, listName, type Page, type PageRequest, pageById, pageByName } from "../platform/paging.ts";
import { newId } from "../platform/system.ts";
import { fetchOwnUsage } from "../uploads/quota.ts";
import { API_KEY_EVENTS, TEAM_EVENTS } from "./account-event-types.ts";
import { type ApiKey, keyOf, viewKey } from "./key-rows.ts";
import { apiKeys } from "./keys.schema.ts";
import { makeKey, type NewKey } from "./keys.ts";
import { teams } from "./teams.schema.ts";

/*
 * Teams, which the operator manages. A suspended team keeps everything, but none of its tokens is accepted. A deleted team
 * is `deleting` until the recovery job has deleted everything that it has (team-deletion.ts).
 */

/** Instants are milliseconds since the epoch. A quota that is null is that of the settings. */
export type Team = typeof teams.$inferSelect;
/** Ten years. */
export const MAX_RETENTION_DAYS = 3650;
export const TEAM_STATES = ["active", "suspended", "deleting"] as const;

export interface NewTeam {
  name: string;
  maxBytes?: number | null | undefined;
  maxFiles?: number | null | undefined;
  notificationEmail?: string | null | undefined;
  /** The number of the team's database, for ever. By default the one with the most room. */
  database?: number | undefined;
}

const isFull = ({ settings }: Deps, bytes: number): boolean => bytes >= settings.maxDatabaseBytes;

const storageFull = (message: string) => new AppError("storage_full", { message });

/** @throws `invalid_input` if the database isn't bound; `storage_full`; `unavailable` */
async function inNamedDatabase(deps: Deps, number: number): Promise<Deps> {
  const named = inDatabase(deps, number);
  if (!named) throw invalidField("database", `Not bound. Use one of ${[...deps.databases.keys()].join(", ")}.`);
  if (isFull(deps, await sizeOf(named))) throw storageFull(`Database ${number} takes no new teams.`);
  return named;
}

/** The database with the most room, of those that respond. @throws `storage_full`, `unavailable` */
async function inRoomiestDatabase(deps: Deps): Promise<Deps> {
  const asked = inDatabases(deps).map(async (there) => ({ there, bytes: await sizeOf(there) }));
  const answers = await Promise.allSettled(asked);
  const found = answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
  const [first] = found.filter(({ bytes }) => !isFull(deps, bytes)).sort((a, b) => a.bytes - b.bytes);
  if (first) return first.there;
  const failed = answers.find((answer) => answer.status === "rejected");
  throw failed ? failed.reason : storageFull("Every database is full. Add one, or delete teams.");
}

interface TeamChange {
  type: EventType;
  initiator: Actor;
  id: string;
  /** Holds while the change is still to be made. */
  where: SQL;
}

/** The creation or deletion of a team, with an event in its own log and one in that of the operator. */
function recordedInBoth<C extends Batch>(deps: Deps, { id, ...change }: TeamChange, query: C) {
  const inLog = (teamId: string) => ({
    ...change,
    subject: { teamId, id, version: sql`null` },
    reads: "before" as const,
  });
  return recorded(deps, inLog(id), recorded(deps, inLog(operatorLogOf(deps)), query));
}

/** In the event log, keys are actors, as people are. */
export const FIRST_KEY = "First key";

/**
 * Creates a team and its first key, in one batch.
 * @throws the errors of `makeKey`, `storage_full` if no database has room, and `invalid_input` for an unknown one
 */
export async function createTeam(
  given: Deps,
  operator: Actor,
  { name, maxBytes = null, maxFiles = null, notificationEmail = null, database }: NewTeam,
  keyFields: NewKey = { name: FIRST_KEY, isPublic: false },
): Promise<{ team: Team; key: ApiKey }> {
  const deps = await (database === undefined ? inRoomiestDatabase(given) : inNamedDatabase(given, database));
  const { db, system } = deps;
  const now = system.now();
  const team: Team = {
    id: newId(system, db.number),
    name,
    status: "active",
    maxBytes,
    maxFiles,
    files: 0,
    bytes: 0,
    trashFiles: 0,
    trashBytes: 0,
    notificationEmail,
    retentionDays: null,
    retentionBy: null,
    retentionReached: "",
    retentionDueAt: null,
    publicBytes: 0,
    unfinishedUploads: 0,
    visitorUploads: 0,
    apiKeys: 0,
    links: 0,
    folders: 0,
    eventsPurgedTo: 0,
    accountEventsUntil: 0,
    users: 0,
    admins: 0,
    createdAt: now,
    updatedAt: now,
    version: 0,
  };
  const { token, row } = makeKey(deps, operator, keyFields, team.id);
  const isNew = not(hasRow(teams, eq(teams.id, team.id)));
  const insert = db.insert(teams).values(team).onConflictDoNothing();
  const batch = {
    team: recordedInBoth(deps, { type: TEAM_EVENTS.created, initiator: operator, id: team.id, where: isNew }, insert),
    key: recorded(
      deps,
      { type: API_KEY_EVENTS.created, initiator: operator, subject: keyOf(row) },
      db.insert(apiKeys).values(row).onConflictDoNothing(),
    ),
  };
  await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
  return { team: { ...team, apiKeys: 1 }, key: viewKey(row, token) };
}

/** The operator reads any team, and a team its own. A caller with its own files sees what these take. @throws `not_found` */
export async function fetchTeam(
  deps: Deps,
  credential: Credential<{ scope: "files:read"; also: "operator" }>,
  id: string,
): Promise<Team> {
  const {
    actor,
    rows: [team],
  } = await readAs(deps, credential, ({ teamId }) => deps.db.select().from(teams).where(eq(teams.id, teamId)), id);
  if (team?.id !== id) throw new AppError("not_found");
  if (actor.kind === "operator" || actor.ownerId === null) return team;
  return { ...team, ...(await fetchOwnUsage(deps, actor)) };
}

export interface TeamFilters {
  status?: Team["status"] | undefined;
  /** A prefix of the name. */
  name?: string | undefined;
}

const inIdOrder = (a: Team, b: Team): number => (a.id < b.id ? -1 : 1);
/** As SQLite compares text: by its bytes in UTF-8. */
const inNameOrder = (a: Team, b: Team): number =>
  Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)) || inIdOrder(a, b);

/**
 * Lists the teams of all databases, newest first, or by name if `name` is given. Each database returns its teams up to the
 * page's end, because only their merge shows which of them are on the page.
 * @throws `invalid_input` for a cursor of another list
 */
export async function listTeams(
  deps: Deps,
  credential: Credential<"operator">,
  { status, name }: TeamFilters,
  request: PageRequest,
): Promise<Page<Team>> {
  await authorize(deps, credential);
  const list = listName("teams", { status, name });
  const page =
    name === undefined
      ? pageById(list, teams.id, "newest first", request)
      : pageByName(list, { name: teams.name, id: teams.id }, name, request);
  const found = await inEveryDatabase(deps, async (deps) => {
    const rows = await read(
      deps,
      deps.db
        .select()
        .from(teams)
        .where(and(status === undefined ? undefined : eq(teams.status, status), page.where))
        .orderBy(...page.orderBy)
        .limit(request.page * request.limit + 1),
    );
    return rows;
  });
  const merged = found.flat().sort(name === undefined ? (a, b) => inIdOrder(b, a) : inNameOrder);
  const rows = merged.slice((request.page - 1) * request.limit);
  return cutPage(list, request, rows, name === undefined ? undefined : (team) => team.name);
}

export interface TeamChanges extends Omit<NewTeam, "name" | "database"> {
  name?: string | undefined;
  status?: Exclude<Team["status"], "deleting"> | undefined;
  retentionDays?: number | null | undefined;
}

/**
 * Suspending takes effect with the next request of the team, and the next message of its followers, such as webhooks.
 * @throws `not_found`, `conflict` if the team is being deleted
 */
export async function updateTeam(deps: Deps, actor: Actor, id: string, changes: TeamChanges): Promise<Team> {
  const { db, system } = deps;
  const refusal = firstOf({
    conflict: eq(teams.status, "deleting"),
  });
  const type = changes.status === "suspended" ? TEAM_EVENTS.suspended : TEAM_EVENTS.updated;
  const update = db
    .update(teams)
    .set({
      ...changes,
      // A new rule applies to all files, also to those that were restored.
      ...(changes.retentionDays !== undefined && {
        retentionBy: changes.retentionDays === null ? null : actorOf(actor, deps.requestId),
        retentionReached: "",
        retentionDueAt: changes.retentionDays === null ? null : system.now(),
      }),
      updatedAt: system.now(),
      version: sql`${teams.version} + 1`,
    })
    .where(and(eq(teams.id, id), isNull(refusal)))
    .returning();
  const updated = { type, initiator: actor, subject: { teamId: id, id }, data: { fields: fieldsOf(changes) } };
  const batch = {
    update: recorded(deps, updated, update),
    found: db.select({ refusal }).from(teams).where(eq(teams.id, id)),
    followers: changes.status === undefined ? [] : followersOf(deps, id),
  };
  const {
    update: {
      change: [team],
    },
    found: [found],
    followers,
    // A caller that decides about retention has all scopes, or a secret key.
  } = await writeWithEvent(deps, batch, {
    isIdempotent: false,
    caller: actor,
    granted: actor.scopes,
  });
  if (!found) throw new AppError("not_found");
  if (!team) throw new AppError("conflict", { message: "The team is being deleted." });
  await wake(deps, followers, true);
  return team;
}

/**
 * Sets how long the team keeps its files. It applies to all of them.
 * @throws `forbidden` for any caller but a secret key or an admin that sees all files; `conflict`
 */
export async function setRetention(deps: Deps, actor: TeamActor, retentionDays: number | null): Promise<Team> {
  if (!isSecretKeyOrAdmin(actor)) {
    throw new AppError("forbidden", { message: "Only a secret key or an admin can set the retention of a team." });
  }
  return updateTeam(deps, actor, actor.teamId, { retentionDays });
}

/** From now on, the team's tokens are invalid. The recovery job deletes everything. Can be repeated. @throws `not_found`, `file_held` */
export async function deleteTeam(deps: Deps, operator: Actor, teamId: string): Promise<Team> {
  const { db, system } = deps;
  const held = heldFileOf(teamId);
  const isDeletable = sql`${teamExists(teamId)} and ${held} is null`;
  const update = db
    .update(teams)
    .set({ status: "deleting", updatedAt: system.now(), version: sql`${teams.version} + 1` })
    .where(and(isExistingTeam(teamId), isNull(held)));
  const deleted = { type: TEAM_EVENTS.deleted, initiator: operator, id: teamId, where: isDeletable };
  const batch = {
    update: recordedInBoth(deps, deleted, update),
    found: db
      .select({ team: teams, held: held.as("held") })
      .from(teams)
      .where(eq(teams.id, teamId)),
    followers: followersOf(deps, teamId),
  };
  const {
    found: [found],
    followers,
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
  if (!found) throw new AppError("not_found");
  if (found.held !== null && found.team.status !== "deleting") {
    throw new AppError(fileHeld, {
      message: `The team has held files, such as ${found.held}. Release them and retry.`,
    });
  }
  await wake(deps, followers, true);
  return found.team;
}
