import * as z from "zod";
import { EVENT_KIND_NAMES, EVENT_TYPE_NAMES } from "../event-types.ts";
import { listOperation, readOperation } from "../http/operation.ts";
import { cursorOf, DEFAULT_LIMIT, id, instant, pageLimit, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { fetchEvent, listEvents } from "./event-log.ts";

export const eventsTag = {
  name: "Events",
  description: "The event log of a team. Kept for 30 days, unless the service is set otherwise.",
};

const eventId = lazy(() => id().meta({ example: "0660cfb2c9a8682e6b8a0c13" }));

const recordedActor = lazy(() =>
  z.strictObject({
    kind: z.enum(["secret", "public", "session", "upload", "operator", "user", "system"]).meta({
      description:
        "The kind of token (`upload`: an upload token, of which the IDs are those of its issuer), `user` for a login itself, or `system` for the service.",
    }),
    keyId: id().nullable(),
    userId: id()
      .nullable()
      .meta({ description: "Set for a login, and for actions of sessions and of the keys that they created." }),
    requestId: z.string().nullable(),
  }),
);

const recordedSubject = lazy(() =>
  z.strictObject({
    kind: z.enum(EVENT_KIND_NAMES),
    id: id(),
    version: z.int().nonnegative().nullable(),
  }),
);

const eventSchema = lazy(() =>
  z
    .strictObject({
      _id: eventId().meta({ description: "IDs sort in commit order." }),
      teamId: id(),
      type: z.enum(EVENT_TYPE_NAMES),
      createdAt: timestamp(),
      actor: recordedActor().extend({
        name: z.string().nullable().meta({
          description:
            "The first and last name of the user, or the name of a key without a user, as it is now. Null once it is deleted.",
        }),
      }),
      subject: recordedSubject().extend({
        name: z
          .string()
          .nullable()
          .meta({
            description:
              "The name of the record as it is now: of a session that of its user or key, of a webhook its description, or the host of its URL, and of a link its own, or that of its file. " +
              "Null once the record is deleted. A file that is deleted or in the trash has its original name. The name of a file needs `files:read`, without which it is the original one, that of the team `files:read`, of a link `files:download`, and of a webhook `webhooks:read`.",
          }),
      }),
      data: z.record(z.string(), z.unknown()).meta({
        description:
          "For files, the metadata at that time, without `path`, `tags` of the audio, and what the team has set except `reference`; `file.uploaded` also names the `uploadTokenId` if there is one, and " +
          "`file.updated` also names the changed `fields`. For links, the id and the `fileId`. For other records, ids and the names of changed fields, and for `apikey.expiring` the `expiresAt` of the key.",
      }),
    })
    .meta({ id: "Event" }),
);

export { eventSchema, example as eventExample };

/** An event as it is recorded, for those who may not know the names of others. */
export const recordedSchema = lazy(() =>
  eventSchema().extend({ actor: recordedActor(), subject: recordedSubject() }).meta({ id: "RecordedEvent" }),
);

export type EventBody = z.input<ReturnType<typeof eventSchema>>;
const example: EventBody = {
  _id: "0660cfb2c9a8682e6b8a0c13",
  teamId: "0193477be89f4d2e6b8a0c13",
  type: "user.updated",
  createdAt: "2026-11-20T09:33:01.000Z",
  actor: {
    kind: "secret",
    keyId: "0193477be8a01f9c3ad5e7b2",
    userId: null,
    name: "Backend",
    requestId: "0b6f0a60-6d3c-4f0e-9b53-0d3e1d6c2a11",
  },
  subject: { kind: "user", id: "0193477c0a5e2b7f4d1c8e90", version: 1, name: "Ada Lovelace" },
  data: { _id: "0193477c0a5e2b7f4d1c8e90", fields: ["email"] },
};

const { name: _, ...actor } = example.actor;
const { name: __, ...subject } = example.subject;
export const recordedExample: z.input<ReturnType<typeof recordedSchema>> = { ...example, actor, subject };

const teamId = lazy(() =>
  id().optional().meta({
    description:
      "Operator tokens only. Without it, the operator gets the creations and deletions of all teams, also of those that are gone.",
  }),
);

/** A filtered list counts like the pages that have the events it examines. */

const list = listOperation(
  { scope: "events:read", also: "operator" },
  {
    route: "GET /auth/v1/events",
    tag: eventsTag,
    summary: "List events",
    sample: 'for await (const event of stowage.events.follow({ type: "file.completed" })) console.log(event);',
    description:
      "Events of the team, newest first, or oldest first with `order=asc`. To catch up without gaps, pass the last event's id as " +
      "`after`. Sessions that end because their user was deleted or got a new password have no events. Neither have the API keys " +
      "that are revoked with a deleted user: `user.deleted` lists their ids in `data.revokedKeyIds`. A login may hash the password " +
      "again. That `user.updated` has the actor `system`, and ends no session. With `type`, `subject` or `actor`, a page may be " +
      "short and still have a `Link`, and the request is heavy.",
    query: () =>
      z.object({
        limit: pageLimit(),
        cursor: cursorOf("events"),
        order: z.enum(["asc", "desc"]).optional().meta({ description: "Default `desc`, newest first." }),
        type: z
          .enum([...EVENT_TYPE_NAMES, ...EVENT_KIND_NAMES])
          .optional()
          .meta({ description: "Only events of this type, or of this kind of record." }),
        subject: id().optional().meta({ description: "Only events of the record with this id, such as a file's." }),
        actor: id().optional().meta({ description: "Only events caused by the user or the key with this id." }),
        after: eventId().optional().meta({ description: "Only events after this event id." }),
        before: eventId().optional().meta({ description: "Only events before this event id." }),
        createdAfter: instant().optional(),
        createdBefore: instant().optional(),
        teamId: teamId(),
      }),
    isHeavy: ({ type, subject, actor }) => (type ?? subject ?? actor) !== undefined,
    success: { description: "A page of events.", noun: "Events", schema: eventSchema, example },
    errors: ["not_found"],
  },
  ({ deps, credential, query: { limit = DEFAULT_LIMIT, order = "desc", ...filters } }) =>
    listEvents(deps, credential, { limit, order, ...filters }),
  (event) => event as EventBody,
);

const get = readOperation(
  { scope: "events:read", also: "operator" },
  {
    route: "GET /auth/v1/events/{id}",
    tag: eventsTag,
    summary: "Get an event",
    sample: "const event = await stowage.events.get(id);",
    query: () => z.object({ teamId: teamId() }),
    success: {
      description: "The event.",
      message: "Event found.",
      schema: eventSchema,
      example,
    },
  },
  async ({ deps, credential, id, query: { teamId } }) => (await fetchEvent(deps, credential, id, teamId)) as EventBody,
);

export const operations = {
  listEvents: list,
  getEvent: get,
};
