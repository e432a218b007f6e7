import { type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import type { ApiKey, Session, User } from "../index.ts";
import {
  addGroup,
  askPassword,
  choice,
  choices,
  type Define,
  EXPIRY_HINT,
  FILE_TYPES,
  IDS,
  LIMIT,
  limited,
  locate,
  parseBytes,
  parseCount,
  parseFileTypes,
  parseStart,
  ROLES,
  removeEach,
  SCOPES,
  TEAM,
  withDeletion,
} from "./command.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";
import { ageOf, type Table } from "./table.ts";

const isExpired = ({ expiresAt }: ApiKey) => Date.parse(expiresAt) <= Date.now();
const kindOf = ({ isPublic }: ApiKey) => (isPublic ? "public" : "secret");

const KEYS: Table<ApiKey> = {
  fields: (key) => [key.id, kindOf(key), key.expiresAt, key.name, ...(isExpired(key) ? ["expired"] : [])],
  columns: [
    ["Name", ({ name }) => name],
    ["Kind", kindOf],
    ["Last used", ({ lastUsedAt }) => ageOf(lastUsedAt, "never")],
    ["Expires", (key) => (isExpired(key) ? "expired" : ageOf(key.expiresAt))],
    ["ID", ({ id }) => id],
  ],
  // Lists don't show tokens, which would stay in the terminal's history.
  json: ({ key: _, ...rest }) => rest,
};

const ownerOf = ({ createdBy, userId }: Session) => (createdBy ? `key ${createdBy.keyId}` : `user ${userId}`);

const SESSIONS: Table<Session> = {
  fields: (session) => {
    const { _id, expiresAt, lastUsedAt, userAgent } = session;
    return [_id, ownerOf(session), expiresAt, lastUsedAt ?? "never used", userAgent ?? ""];
  },
  columns: [
    ["Device", ({ userAgent }) => userAgent ?? "-"],
    ["Last used", ({ lastUsedAt }) => ageOf(lastUsedAt, "never")],
    ["Expires", ({ expiresAt }) => ageOf(expiresAt)],
    ["Of", ownerOf],
    ["ID", ({ _id }) => _id],
  ],
};

type AnyUser = Omit<User, "__v">;
const fullNameOf = ({ firstName, lastName }: AnyUser) => `${firstName} ${lastName}`.trim();

const USERS: Table<AnyUser> = {
  fields: (user) => [user._id, user.role, user.email, fullNameOf(user)],
  columns: [
    ["Name", (user) => fullNameOf(user) || "-"],
    ["Email", ({ email }) => email],
    ["Role", ({ role }) => role],
    ["ID", ({ _id }) => _id],
  ],
  // Nobody can use the password hash here.
  json: ({ password: _, ...rest }) => rest,
};

export function addAccountCommands(program: CommandUnknownOpts, define: Define): void {
  addKeyCommands(program, define);
  addSessionCommands(program, define);
  addUserCommands(program, define);
}

const scopesOption = () => choices("--scopes <list>", "what the key may do, separated by commas", SCOPES);

function addKeyCommands(program: CommandUnknownOpts, define: Define): void {
  const keys = addGroup(program, "keys", "List, create, update, rotate, and revoke API keys.", [
    "stowage keys",
    'stowage keys create "Web player" --public',
  ]);
  define(
    keys
      .command("ls", { isDefault: true })
      .option(...LIMIT)
      .option(...TEAM),
    { summary: "List API keys, newest first" },
    async (context, _, { limit, team: teamId }) => {
      await context.results.printList(limited(limit, context.stowage.keys.list({ teamId }, context.call)), KEYS);
    },
  );
  define(
    keys
      .command("show")
      .argument("<id>", "ID of the key")
      .option("--reveal", "also show the key itself, which the event log records"),
    { ids: "keys", summary: "Show an API key" },
    async (context, [id], { reveal }) => {
      const { keys } = context.stowage;
      if (reveal) return context.results.printRecord(await keys.get(id, context.call));
      // Unlike the key itself, the list shows no token.
      for await (const { key: _, ...rest } of keys.list({}, context.call))
        if (rest.id === id) return context.results.printRecord(rest);
      throw new Failure("not_found", `${id}: Not found.`);
    },
  );
  define(
    keys
      .command("create")
      .argument("<name>", "label of the key")
      .addOption(scopesOption())
      .option("--public", "the key can only upload, and is safe in browser code")
      .option(
        "--max-file-bytes <size>",
        "size of the largest file that a public key may upload, such as 50MB",
        parseBytes,
      )
      .addOption(choice("--file-types <list>", "what a public key may upload", FILE_TYPES, parseFileTypes))
      .option("--expires <date>", `when the key expires (${EXPIRY_HINT})`, parseStart)
      .option(...TEAM),
    {
      summary: "Create an API key and show it (`keys ls` does not)",
      examples: ['stowage keys create "Application 42" --public --file-types audio --expires 2026-12-31'],
    },
    async (context, [name], { public: isPublic = false, scopes, expires, team: teamId, ...limits }) => {
      if (isPublic && scopes?.some((scope) => scope !== "files:upload"))
        throw new Failure("usage", "A public key can only upload. Leave out --scopes.");
      const isLimited = Object.keys(limits).length > 0;
      const key = { name, isPublic, scopes, expiresAt: expires, teamId, ...(isLimited && { limits }) };
      context.results.printRecord(await context.stowage.keys.create(key, context.call));
    },
  );
  define(
    keys
      .command("update")
      .argument("<id>", "ID of the key")
      .option("--name <name>", "new label")
      .addOption(scopesOption())
      .option("--expires <date>", `when the key expires, earlier than before (${EXPIRY_HINT})`, parseStart),
    { ids: "keys", summary: "Rename an API key, or reduce what it may do" },
    async (context, [id], { name, scopes, expires }) => {
      const changes = { name, scopes, expiresAt: expires };
      await context.results.printList([await context.stowage.keys.update(id, changes, context.call)], KEYS);
    },
  );
  define(
    keys
      .command("rotate")
      .argument("<id>", "ID of the key")
      .option("--overlap <seconds>", "how long the old key still works (default: 86400)", parseCount),
    {
      ids: "keys",
      summary: "Create a key in place of another and show it",
      examples: ["stowage keys rotate 0193477be8a01f9c3ad5e7b2 --overlap 3600"],
    },
    async (context, [id], { overlap }) => {
      const { keys } = context.stowage;
      context.results.printRecord(await keys.rotate(id, { overlapSeconds: overlap }, context.call));
      // Unlike the key itself, the list shows no token, which would be recorded. This key may lack the scope for it.
      const listed = await keys
        .list({}, context.call)
        .toArray()
        .catch(() => []);
      const old = listed.find((key) => key.id === id);
      if (old) context.notify(`The old key expires at ${old.expiresAt}.`);
    },
  );
  define(
    withDeletion(keys.command("rm").argument(...IDS)),
    { summary: "Revoke API keys", ids: "keys" },
    async (context, [ids], options) => {
      const words = { verb: "Revoke", noun: "API key", done: "revoked" };
      await removeEach(context, ids, words, options, (id) => context.stowage.keys.delete(id, context.call));
    },
  );
}

function addSessionCommands(program: CommandUnknownOpts, define: Define): void {
  const sessions = addGroup(program, "sessions", "List and end sessions.", [
    "stowage sessions",
    "stowage sessions rm 0193477c4f1b6a2d8e0c3b57",
  ]);
  define(
    sessions.command("ls", { isDefault: true }).option(...LIMIT),
    { summary: "List sessions, newest first" },
    async (context, _, { limit }) => {
      await context.results.printList(limited(limit, context.stowage.sessions.list({}, context.call)), SESSIONS);
    },
  );
  define(
    withDeletion(sessions.command("rm").argument(...IDS)),
    { summary: "End sessions", ids: "sessions" },
    async (context, [ids], options) => {
      const words = { verb: "End", noun: "session", done: "ended" };
      await removeEach(context, ids, words, options, (id) => context.stowage.sessions.delete(id, context.call));
    },
  );
}

const roleOption = (isNew: boolean) =>
  new Option(
    "--role <role>",
    `admin, member (files and events), contributor (only the files that the user uploads), or viewer (reads files and events)${isNew ? " (default: viewer)" : ""}`,
  ).choices(ROLES);

const USER = ["<user>", "ID or email address"] as const;

const findByEmail = async ({ stowage, call }: Context, email: string): Promise<User | undefined> =>
  (await stowage.users.list({ email }, call)).items[0];

/** @throws `not_found` */
async function findUser(context: Context, given: string): Promise<User> {
  if (!given.includes("@")) return context.stowage.users.get(given, context.call);
  const found = await findByEmail(context, given);
  if (!found) throw new Failure("not_found", `${given}: Not found.`);
  return found;
}

function addUserCommands(program: CommandUnknownOpts, define: Define): void {
  const users = addGroup(program, "users", "List, create, edit, and delete users.", [
    "stowage users --name Ada",
    "stowage users create ada@example.com --first Ada < password.txt",
    "stowage users invite grace@example.com",
  ]);
  define(
    users
      .command("ls", { isDefault: true })
      .option("--name <prefix>", "start of the full name")
      .option("--email <email>", "full email address")
      .option(...LIMIT),
    { summary: "List users" },
    async (context, _, { name, email, limit }) => {
      const found = context.stowage.users.list({ name, email }, context.call);
      await context.results.printList(limited(limit, found), USERS);
    },
  );
  define(
    users
      .command("create")
      .argument("<email>", "email address")
      .option("--first <name>", "first name")
      .option("--last <name>", "last name")
      .addOption(roleOption(true)),
    { summary: "Create a user; prompts for the password or reads it from stdin" },
    async (context, [email], { first, last, role }) => {
      const password = await askPassword(context);
      const user = { email, password, firstName: first, lastName: last, role };
      await context.results.printList([await context.stowage.users.create(user, context.call)], USERS);
    },
  );
  define(
    users.command("show").argument(...USER),
    { ids: "users", summary: "Show a user" },
    async (context, [given]) => {
      const { password: _, ...user } = await findUser(context, given);
      context.results.printRecord(user);
    },
  );
  define(
    users.command("export").argument(...USER),
    {
      ids: "users",
      summary: "Print what names a user, as JSON",
      examples: ["stowage users export ada@example.com > ada.json"],
    },
    async (context, [given]) => {
      const id = await locate(given, async (email) => (await findUser(context, email))._id);
      const exported = await context.stowage.users.export(id, context.call);
      context.results.printJson(exported);
    },
  );
  define(
    users
      .command("invite")
      .argument("<email>", "email address")
      .option("--first <name>", "first name of a new user")
      .option("--last <name>", "last name of a new user")
      .addOption(roleOption(true))
      .option("--send", "let the service send the link by email"),
    {
      summary: "Print a link with which a new or known user sets a password, once and within a day",
      examples: ["stowage users invite ada@example.com --role member"],
    },
    async (context, [email], { first, last, role, send }) => {
      const { users } = context.stowage;
      const known = await findByEmail(context, email);
      if (known && (first ?? last ?? role) !== undefined)
        throw new Failure("usage", `${email} is a user already. Leave out --first, --last, and --role.`);
      const user = { email, firstName: first, lastName: last, role };
      const { _id } = known ?? (await users.create(user, context.call));
      if (send) {
        await users.invite(_id, { email: true }, context.call);
        context.results.print({ _id, sent: true }, [_id, "sent"], [24]);
        return;
      }
      const { url, token, expiresAt } = await users.invite(_id, {}, context.call);
      context.results.print({ _id, url, token, expiresAt }, [url], []);
      if (!context.results.isJson) context.notify(`The link works once, until ${expiresAt}.`);
    },
  );
  define(
    users
      .command("update")
      .argument(...USER)
      .option("--email <email>", "new email address")
      .option("--first <name>", "new first name")
      .option("--last <name>", "new last name")
      .addOption(roleOption(false))
      .option("--password", "prompt for a new password, or read it from stdin"),
    { ids: "users", summary: "Edit a user" },
    async (context, [given], { email, first, last, role, password: isPasswordNew }) => {
      const id = await locate(given, async (known) => (await findUser(context, known))._id);
      const password = isPasswordNew ? await askPassword(context) : undefined;
      const changes = { email, password, firstName: first, lastName: last, role };
      await context.results.printList([await context.stowage.users.update(id, changes, context.call)], USERS);
    },
  );
  define(
    withDeletion(users.command("rm").argument("<users...>", USER[1])).option(
      "--keep-keys",
      "keep the API keys that they created",
    ),
    { summary: "Delete users, with their sessions and the API keys that they created", ids: "users" },
    async (context, [given], { keepKeys, ...options }) => {
      const find = async (user: string) => (await findUser(context, user))._id;
      const words = { verb: "Delete", noun: "user", done: "deleted", find };
      await removeEach(context, given, words, options, (id) =>
        context.stowage.users.delete(id, { keepKeys }, context.call),
      );
    },
  );
}
