import type { Context } from "hono";
import * as z from "zod";
import { DEFAULT_ROLE, ROLE_NAMES } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { EXPORTED_EVENTS } from "../events/event-log.ts";
import { recordedExample, recordedSchema } from "../events/events.routes.ts";
import type { AppEnv } from "../http/app-env.ts";
import { readOperation, writeOperation } from "../http/operation.ts";
import { describeRecord, fieldOf } from "../http/record.ts";
import {
  atLeastOneField,
  id,
  iso,
  name,
  nameFilter,
  nextLinkHeader,
  pageQuery,
  pageRequest,
  setNextLink,
  text,
  timestamp,
} from "../http/validation.ts";
import { expectedVersions, ifMatch, setEtag, versionHeaders } from "../http/versions.ts";
import { lazy } from "../lazy.ts";
import { grouped } from "../numbers.ts";
import { exportUser, type UserExport } from "./export.ts";
import {
  DEFAULT_INVITATION_SECONDS,
  emailNotConfigured,
  inviteUser,
  MAX_INVITATION_SECONDS,
  MIN_INVITATION_SECONDS,
} from "./invitations.ts";
import { keyRecord } from "./keys.routes.ts";
import { MAX_MAILS, MAX_TEAM_MAILS } from "./mails.ts";
import { renderSession, sessionExample, sessionSchema } from "./sessions.routes.ts";
import {
  createUser,
  deleteUser,
  emailTaken,
  fetchUser,
  hasPassword,
  lastAdmin,
  listAllUsers,
  listUsers,
  MAX_LISTED_USERS,
  MAX_TEAM_USERS,
  type User,
  updateUser,
} from "./users.ts";

export const usersTag = {
  name: "Users",
  description: "People in a team, who sign in with an email and password.",
};

const field = fieldOf<User>();

/** Creation answers without `__v`. Every other field belongs here. */
const newUserRecord = describeRecord({
  id: "CreatedUser",
  fields: {
    _id: field(id, "0193477bf1c07e5d9a0b4c28", (user) => user.id),
    teamId: field(id, "0193477be89f4d2e6b8a0c13", (user) => user.teamId),
    firstName: field(
      () => z.string(),
      "Ada",
      (user) => user.firstName,
    ),
    lastName: field(
      () => z.string(),
      "Lovelace",
      (user) => user.lastName,
    ),
    email: field(
      () => z.string(),
      "ada@example.com",
      (user) => user.email,
    ),
    password: field(
      () => z.string().meta({ description: "A hash. The submitted password is never returned." }),
      "$scrypt$ln=14,r=8,p=5,keyid=5f0c9a3e$Y2hhbmdlIG1lIHBsZWFzZQ$uYk8q1l0oXo4V7q5b5zM2o3n1rQ0v6T8m0d9c2b1a0A",
      (user) => user.password,
    ),
    hasPassword: field(
      () => z.boolean().meta({ description: "Whether the user can log in. False until an invitation is accepted." }),
      true,
      hasPassword,
    ),
    role: field(
      () => z.enum(ROLE_NAMES),
      "admin",
      (user) => user.role,
    ),
    createdAt: field(timestamp, "2026-11-20T09:31:00.000Z", (user) => iso(user.createdAt)),
    updatedAt: field(timestamp, "2026-11-20T09:31:00.000Z", (user) => iso(user.updatedAt)),
  },
});
const { schema, example, render } = describeRecord({
  id: "User",
  fields: {
    ...newUserRecord.fields,
    __v: field(
      () => z.int().nonnegative(),
      0,
      (user) => user.version,
    ),
  },
});

// RFC 5321 without quoted local parts, and with Unicode in them (RFC 6531); the domain is ASCII.
const LOCAL = String.raw`[^\s@"(),:;<>\[\]\\.\p{C}]+(?:\.[^\s@"(),:;<>\[\]\\.\p{C}]+)*`;
const LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const email = lazy(() =>
  z
    .string()
    .trim()
    .max(254, "Must have at most 254 characters.")
    .regex(new RegExp(`^(?=[^@]{1,64}@)${LOCAL}@(?:${LABEL}\\.)+${LABEL}$`, "u"), "Must be an email address.")
    .meta({ format: "email" }),
);
const password = lazy(() => text(8, 256));

export { email, password };

export const role = lazy(() => z.enum(ROLE_NAMES));
/** Two names of 100 characters and a space. */
const MAX_FULL_NAME_LENGTH = 201;

const create = writeOperation(
  "users:write",
  {
    route: "POST /auth/v1/users",
    tag: usersTag,
    summary: "Create a user",
    sample: 'const user = await stowage.users.create({ email, password, role: "member" });',
    description: `A team can have at most ${grouped(MAX_TEAM_USERS)} users. Your scopes must cover those of the role.`,
    body: () =>
      z.strictObject({
        firstName: name(0).default(""),
        lastName: name(0).default(""),
        email: email(),
        password: password().optional().meta({
          description: "Without it, the user cannot log in until an invitation is accepted.",
        }),
        role: role()
          .optional()
          .meta({ description: `Default \`${DEFAULT_ROLE}\`.` }),
      }),
    bodyExample: {
      firstName: "Ada",
      lastName: "Lovelace",
      email: "ada@example.com",
      password: "correct horse battery",
    },
    success: {
      description: "The new user.",
      message: "User created.",
      schema: newUserRecord.schema,
      example: newUserRecord.example,
      headers: versionHeaders,
    },
    errors: [emailTaken, "quota_exceeded"],
  },
  async ({ c, deps, actor, body }) => {
    const user = await createUser(deps, actor, body);
    setEtag(c, user);
    return newUserRecord.render(user);
  },
);

const list = readOperation(
  "users:read",
  {
    route: "GET /auth/v1/users",
    tag: usersTag,
    summary: "List users",
    sample: 'for await (const user of stowage.users.list({ name: "Ada" })) console.log(user.email);',
    description: `Returns one page if any parameter is given, and otherwise all users. A team with more than ${grouped(MAX_LISTED_USERS)} users must send \`limit\`: without it, the response is 400. Oldest first, or by name with \`name\`.`,
    query: () =>
      pageQuery("users").extend({
        email: email().optional().meta({ description: "The whole email, in any case." }),
        name: nameFilter(MAX_FULL_NAME_LENGTH)
          .optional()
          .meta({ description: "A prefix of first and last name, joined by a space. Case-sensitive." }),
      }),
    success: {
      description: "The users.",
      schema: () => z.array(schema()),
      example: [example],
      headers: nextLinkHeader,
    },
  },
  async ({ c, deps, credential, query }) => {
    const isPaged = Object.values(query).some((value) => value !== undefined);
    if (isPaged) {
      const { items, next } = await listUsers(deps, credential, query, pageRequest(query));
      setNextLink(c, next);
      return items.map(render);
    }
    return (await listAllUsers(deps, credential)).map(render);
  },
);

const get = readOperation(
  "users:read",
  {
    route: "GET /auth/v1/users/{id}",
    tag: usersTag,
    summary: "Get user details",
    sample: "const user = await stowage.users.get(id);",
    success: { description: "The user.", message: "User found.", schema, example, headers: versionHeaders },
  },
  async ({ c, deps, credential, id }) => {
    const user = await fetchUser(deps, credential, id);
    setEtag(c, user);
    return render(user);
  },
);

const update = writeOperation(
  "users:write",
  {
    route: "PATCH /auth/v1/users/{id}",
    tag: usersTag,
    summary: "Update a user",
    sample: 'const user = await stowage.users.update(id, { lastName: "King" }, { version: 0 });',
    description:
      "A new password revokes the user's sessions. " +
      "A new role applies to them from the next request, and not to the API keys that the user created, except that those of a `contributor` see only the user's files, and lose the scopes that the role lacks, also if it changes again. " +
      "The webhooks of a user who becomes a `contributor` are disabled. " +
      "Your scopes must cover those of the old and the new role. Only a secret key can demote the last admin.",
    body: () =>
      atLeastOneField(
        z.strictObject({
          firstname: name(0),
          lastname: name(0),
          firstName: name(0),
          lastName: name(0),
          email: email(),
          password: password(),
          role: role(),
        }),
      )
        .refine((changes) => changes.firstname === undefined || changes.firstName === undefined, {
          path: ["firstname"],
          message: "Sent twice: as firstname and as firstName.",
        })
        .refine((changes) => changes.lastname === undefined || changes.lastName === undefined, {
          path: ["lastname"],
          message: "Sent twice: as lastname and as lastName.",
        })
        .meta({
          minProperties: 1,
          not: { anyOf: [{ required: ["firstname", "firstName"] }, { required: ["lastname", "lastName"] }] },
        }),
    bodyExample: { lastname: "King" },
    requestHeaders: ifMatch,
    success: {
      description: "The user, without a wrapper.",
      schema,
      example: { ...example, lastName: "King", updatedAt: "2026-11-20T09:32:00.000Z", __v: 1 },
      headers: versionHeaders,
    },
    errors: [emailTaken, lastAdmin, "version_mismatch"],
  },
  async ({ c, deps, actor, id, body }) => {
    const { firstname, lastname, ...rest } = body;
    const changes = {
      ...rest,
      ...(firstname === undefined ? {} : { firstName: firstname }),
      ...(lastname === undefined ? {} : { lastName: lastname }),
    };
    const user = await updateUser(deps, actor, id, changes, expectedVersions(c.req.header("If-Match")));
    setEtag(c, user);
    return render(user);
  },
);

const remove = writeOperation(
  "users:write",
  {
    route: "DELETE /auth/v1/users/{id}",
    tag: usersTag,
    summary: "Delete a user",
    sample: "await stowage.users.delete(id);",
    description:
      "Also ends the user's sessions, and revokes the API keys created with them, whatever their scopes, unless `keepKeys` is true. " +
      "A kept key has no user, and sees all files of the team. Cancels the unfinished uploads of both. " +
      "Disables the webhooks that the user created, unless `keepKeys` is true. " +
      "Deletes the folders that the user created as a contributor, but not the files in them. " +
      "Download links that the user created stay until they expire or are revoked. " +
      "Your scopes must cover those of the user's role. Only a secret key can delete the last admin.",
    query: () =>
      z.object({
        keepKeys: z
          .enum(["true", "false"])
          .optional()
          .meta({ description: "Keeps the API keys that the user created. Default `false`." }),
      }),
    requestHeaders: ifMatch,
    success: { description: "The user was deleted.", message: "User deleted." },
    errors: [lastAdmin, "version_mismatch"],
  },
  async ({ c, deps, actor, id, query }) => {
    const versions = expectedVersions(c.req.header("If-Match"));
    await deleteUser(deps, actor, id, { versions, keepKeys: query.keepKeys === "true" });
  },
);

export const invitationTokenExample = "stow_in_0193477bf1c07e5d9a0b4c28.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567";

/**
 * The console's page. The token is in the fragment, which browsers send to no server. A request chooses its own host, which
 * must not become that of a link that somebody else gets by email.
 */
export const invitationUrl = (c: Context<AppEnv>) => (token: string) =>
  new URL(`/console/invitation#${token}`, c.get("deps").settings.publicUrl ?? c.req.url).href;

const invite = writeOperation(
  "users:write",
  {
    route: "POST /auth/v1/users/{id}/invitations",
    tag: usersTag,
    summary: "Invite a user, or let them reset their password",
    sample: "const { url, token } = await stowage.users.invite(id);",
    description:
      "Returns a link with which the person sets the user's password, once, until it expires. " +
      "It ends earlier with a newer one, and if the email, the role or the password changes. " +
      "It works only while you could still create it: " +
      "not after your user is deleted or loses the scopes, or your key is deleted. " +
      "A rotated key's successor counts as the key. Whoever has the link can log in as the user: hand it over safely. " +
      "A page of your own can take the `token`, and send it to `POST /auth/v1/invitations/accept`. " +
      "Your scopes must cover those of the user's role. With `email`, the service sends the link to the user instead: " +
      `at most one email in five minutes to a user and a mailbox, ${MAX_TEAM_MAILS} a day for a team, and ${grouped(MAX_MAILS)} for the service (429).`,
    body: () =>
      z.strictObject({
        email: z.boolean().default(false).meta({ description: "Sends the link by email instead of returning it." }),
        expiresIn: z
          .int()
          .min(MIN_INVITATION_SECONDS)
          .max(MAX_INVITATION_SECONDS)
          .default(DEFAULT_INVITATION_SECONDS)
          .meta({ description: "Seconds until the invitation expires." }),
      }),
    isHeavy: true,
    isBodyOptional: true,
    bodyExample: { email: false, expiresIn: 604_800 },
    success: {
      description: "The invitation. Its token is shown only in this response.",
      message: "User invited.",
      schema: () =>
        z.union([
          z
            .strictObject({
              url: z.url().meta({ description: "The page of the console that accepts it." }),
              token: z.string(),
              expiresAt: timestamp(),
            })
            .meta({ id: "Invitation" }),
          z
            .strictObject({ sent: z.literal(true).meta({ description: "The link was sent by email." }) })
            .meta({ id: "SentInvitation" }),
        ]),
      example: {
        url: `https://stowage.example.com/console/invitation#${invitationTokenExample}`,
        token: invitationTokenExample,
        expiresAt: "2026-11-21T09:31:00.000Z",
      },
    },
    errors: [emailNotConfigured, "rate_limited"],
  },
  async ({ c, deps, actor, id, body: { email, expiresIn: expiresInSeconds } }) => {
    const urlOf = invitationUrl(c);
    const { token, expiresAt } = await inviteUser(deps, actor, id, {
      email: email ? { urlOf } : null,
      expiresInSeconds,
    });
    return email ? { sent: true as const } : { url: urlOf(token), token, expiresAt: iso(expiresAt) };
  },
);

const exportSchema = lazy(() =>
  z
    .strictObject({
      // The export is for the person, who does not need the hash.
      user: schema().omit({ password: true }).meta({ id: "ExportedUser" }),
      sessions: z.array(sessionSchema()),
      keys: z
        .array(keyRecord.schema())
        .meta({ description: "The API keys that the user created, with masked tokens." }),
      events: z.array(recordedSchema()).meta({
        description: `Those by the user or about the user, oldest first, among the latest ${grouped(EXPORTED_EVENTS)} of the team.`,
      }),
      hasOlderEvents: z.boolean().meta({
        description:
          "The team has older events. The list of events finds those of the user, by `actor` and by `subject`.",
      }),
    })
    .meta({ id: "UserExport" }),
);

const withoutPassword = <T extends { password: string }>({ password: _, ...user }: T) => user;

const exportData = readOperation(
  "users:read",
  {
    route: "GET /auth/v1/users/{id}/export",
    tag: usersTag,
    summary: "Export a user",
    sample: "const { user, sessions, keys, events } = await stowage.users.export(id);",
    description: `Everything that names the person, for their right of access: streamed, so a response that ends early is incomplete. Files and links belong to the team. Also needs the scopes \`events:read\` and \`keys:read\`.`,
    success: {
      description: "The user, and what the user has done.",
      message: "User exported.",
      schema: exportSchema,
      example: {
        user: withoutPassword(example),
        sessions: [sessionExample],
        keys: [{ ...keyRecord.example, key: "stow_sk_4fTq…Qx9Z" }],
        events: [recordedExample],
        hasOlderEvents: false,
      },
    },
    isHeavy: true,
  },
  async ({ c, deps, credential, id }) => {
    const exported = await exportUser(deps, credential, id);
    return c.body(streamOf(deps, exportedJson(exported)), 200, { "Content-Type": "application/json" });
  },
);

async function* exportedJson({ user, sessions, keys, events, hasOlderEvents }: UserExport): AsyncGenerator<string> {
  yield `{"message":"User exported.","data":{"user":${JSON.stringify(withoutPassword(render(user)))}`;
  yield* jsonList("sessions", sessions, renderSession);
  yield* jsonList("keys", keys, keyRecord.render);
  yield* jsonList("events", events, (event) => event);
  yield `,"hasOlderEvents":${hasOlderEvents}}}`;
}

async function* jsonList<T>(name: string, items: AsyncIterable<T>, render: (item: T) => object) {
  yield `,"${name}":[`;
  let separator = "";
  for await (const item of items) {
    yield separator + JSON.stringify(render(item));
    separator = ",";
  }
  yield "]";
}

const streamOf = ({ log }: Deps, chunks: AsyncGenerator<string>) =>
  new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await chunks.next().catch((cause) => {
        log("error", "export_failed", { cause });
        throw cause;
      });
      if (done) controller.close();
      else controller.enqueue(new TextEncoder().encode(value));
    },
    async cancel() {
      await chunks.return(undefined);
    },
  });

export const operations = {
  createUser: create,
  listUsers: list,
  getUser: get,
  updateUser: update,
  deleteUser: remove,
  inviteUser: invite,
  exportUser: exportData,
};
