import * as z from "zod";
import { databaseOf } from "../access/databases.ts";
import type { Deps } from "../deps.ts";
import { fileHeld } from "../files/holds.ts";
import { listOperation, readOperation, writeOperation } from "../http/operation.ts";
import { describeRecord, fieldOf } from "../http/record.ts";
import {
  atLeastOneField,
  id,
  iso,
  MAX_NAME_LENGTH,
  name,
  nameFilter,
  pageQuery,
  pageRequest,
  timestamp,
} from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { trashUsage } from "../uploads/usage.routes.ts";
import { keyRecord } from "./keys.routes.ts";
import {
  createTeam,
  deleteTeam,
  FIRST_KEY,
  fetchTeam,
  listTeams,
  MAX_RETENTION_DAYS,
  TEAM_STATES,
  type Team,
  updateTeam,
} from "./teams.ts";
import { email } from "./users.routes.ts";

export const teamsTag = {
  name: "Teams",
  description: "The tenants of the service, which the operator manages.",
};

const quota = (what: string, setting: string) =>
  z
    .int()
    .nonnegative()
    .nullable()
    .meta({ description: `${what} that the team can store. Null: the service's setting \`${setting}\`.` });
const maxBytes = lazy(() => quota("Bytes", "MAX_TEAM_BYTES"));
const maxFiles = lazy(() => quota("Files", "MAX_TEAM_FILES"));

const notificationEmail = lazy(() =>
  email().nullable().meta({
    description:
      "An address that gets an email if a key of the team is about to expire, or the service disables one of its webhooks. Null: no one does.",
  }),
);

export const retentionDays = lazy(() =>
  z
    .int()
    .min(1)
    .max(MAX_RETENTION_DAYS)
    .nullable()
    .meta({ description: "Files are deleted this many days after their upload. Null: never." }),
);

const field = fieldOf<Team & { trashDays: number; sendsEmail: boolean }>();

const record = describeRecord({
  id: "Team",
  fields: {
    _id: field(id, "0193477be89f4d2e6b8a0000", (team) => team.id),
    name: field(
      () => z.string(),
      "Radio Lovelace",
      (team) => team.name,
    ),
    status: field(
      () => z.enum(TEAM_STATES),
      "active",
      (team) => team.status,
    ),
    maxBytes: field(maxBytes, 50_000_000_000, (team) => team.maxBytes),
    maxFiles: field(maxFiles, null, (team) => team.maxFiles),
    notificationEmail: field(notificationEmail, null, (team) => team.notificationEmail),
    database: field(
      () => z.int().nonnegative().meta({ description: "The number of the database that the team lives in." }),
      0,
      (team) => databaseOf(team.id),
    ),
    usage: field(
      () =>
        z
          .strictObject({ files: z.int(), bytes: z.int(), ...trashUsage() })
          .meta({ description: "Uploads in progress and the trash count." }),
      { files: 0, bytes: 0, trashFiles: 0, trashBytes: 0 },
      ({ files, bytes, trashFiles, trashBytes }) => ({ files, bytes, trashFiles, trashBytes }),
    ),
    retentionDays: field(retentionDays, null, (team) => team.retentionDays),
    trashDays: field(
      () =>
        z
          .int()
          .nonnegative()
          .meta({ description: "How long the service's trash keeps deleted files. 0: there is no trash." }),
      0,
      (team) => team.trashDays,
    ),
    sendsEmail: field(
      () => z.boolean().meta({ description: "Whether the service sends emails, such as invitations." }),
      false,
      (team) => team.sendsEmail,
    ),
    createdAt: field(timestamp, "2026-11-20T09:30:00.000Z", (team) => iso(team.createdAt)),
    updatedAt: field(timestamp, "2026-11-20T09:30:00.000Z", (team) => iso(team.updatedAt)),
    __v: field(
      () => z.int().nonnegative(),
      0,
      (team) => team.version,
    ),
  },
});
const { schema, example } = record;
const render = (team: Team, { deps: { settings, mailer } }: { deps: Deps }) =>
  record.render({ ...team, trashDays: settings.trashDays, sendsEmail: mailer !== null });

const create = writeOperation(
  "operator",
  {
    route: "POST /auth/v1/teams",
    tag: teamsTag,
    summary: "Create a team",
    sample: 'const { team, apiKey } = await stowage.teams.create({ name: "Radio Lovelace" });',
    description: `Also creates the team's first secret key, “${FIRST_KEY}”.`,
    body: () =>
      z.strictObject({
        name: name(1),
        maxBytes: maxBytes().optional(),
        maxFiles: maxFiles().optional(),
        notificationEmail: notificationEmail().optional(),
        database: z.int().nonnegative().optional().meta({
          description:
            "The number of the database that the team lives in, for ever. Default: the one with the most room.",
        }),
      }),
    bodyExample: { name: "Radio Lovelace", maxBytes: 50_000_000_000 },
    success: {
      description: "The new team and its first key.",
      schema: () => z.strictObject({ message: z.string(), data: schema(), apiKey: keyRecord.schema() }),
      example: { message: "Team created.", data: example, apiKey: { ...keyRecord.example, name: FIRST_KEY } },
    },
  },
  async ({ deps, actor, body }) => {
    const { team, key } = await createTeam(deps, actor, body);
    return { message: "Team created.", data: render(team, { deps }), apiKey: keyRecord.render(key) };
  },
);

const list = listOperation(
  "operator",
  {
    route: "GET /auth/v1/teams",
    tag: teamsTag,
    summary: "List teams",
    sample: 'for await (const team of stowage.teams.list({ status: "active" })) console.log(team.name);',
    description: "Newest first, or by name if `name` is given.",
    query: () =>
      pageQuery("teams").extend({
        status: z.enum(TEAM_STATES).optional(),
        name: nameFilter(MAX_NAME_LENGTH).optional().meta({ description: "A prefix of the name. Case-sensitive." }),
      }),
    success: { description: "A page of teams.", noun: "Teams", schema, example },
  },
  ({ deps, credential, query }) => listTeams(deps, credential, query, pageRequest(query)),
  render,
);

const get = readOperation(
  { scope: "files:read", also: "operator" },
  {
    route: "GET /auth/v1/teams/{id}",
    tag: teamsTag,
    summary: "Get team details",
    sample: "const { usage } = await stowage.teams.get(id);",
    description: "The operator can get any team, and a token with the scope `files:read` its own.",
    isHeavy: true,
    success: { description: "The team.", message: "Team found.", schema, example },
  },
  async ({ deps, credential, id }) => render(await fetchTeam(deps, credential, id), { deps }),
);

const update = writeOperation(
  "operator",
  {
    route: "PATCH /auth/v1/teams/{id}",
    tag: teamsTag,
    summary: "Update or suspend a team",
    sample: 'const team = await stowage.teams.update(id, { status: "suspended" });',
    description:
      "From the next request on, every token of a suspended team gets 403 `team_suspended`, and the team's links get 404. " +
      "An upload request that is in progress finishes. Signed URLs work until they expire. Files are processed as before. " +
      "Its webhooks wait: set `status` to `active` to resume the team, and they are sent the events in between.",
    body: () =>
      atLeastOneField(
        z.strictObject({
          name: name(1),
          status: z.enum(["active", "suspended"]),
          maxBytes: maxBytes(),
          maxFiles: maxFiles(),
          notificationEmail: notificationEmail(),
          retentionDays: retentionDays(),
        }),
      ),
    bodyExample: { status: "suspended" },
    success: {
      description: "The team.",
      message: "Team updated.",
      schema,
      example: { ...example, status: "suspended", __v: 1 },
    },
    errors: ["conflict"],
  },
  async ({ deps, actor, id, body }) => render(await updateTeam(deps, actor, id, body), { deps }),
);

const remove = writeOperation(
  "operator",
  {
    route: "DELETE /auth/v1/teams/{id}",
    tag: teamsTag,
    summary: "Delete a team",
    sample: "await stowage.teams.delete(id);",
    description:
      "Irreversible. A team with held files can't be deleted. From the next request on, the team's tokens get 401. Its files, users, keys, webhooks and events are deleted in the background. Until then the team is `deleting`; then it is not found.",
    success: {
      description: "The team, which is being deleted.",
      message: "Team is being deleted.",
      schema,
      example: { ...example, status: "deleting", __v: 1 },
    },
    errors: [fileHeld],
  },
  async ({ deps, actor, id }) => render(await deleteTeam(deps, actor, id), { deps }),
);

export const operations = {
  createTeam: create,
  listTeams: list,
  getTeam: get,
  updateTeam: update,
  deleteTeam: remove,
};
