import type { ApiKey, User } from "../stowage.ts";
import { actionOf, type Command, type Context, dateOf, limited, passwordOf, removeEach, textOf } from "./command.ts";
import { Failure } from "./failures.ts";

const KEY_WIDTHS = [24, 7, 24];
const USER_WIDTHS = [24, 30];

/** A list never shows tokens: they would stay in the terminal's history. */
function printKey({ results }: Context, { key, ...rest }: ApiKey): void {
  const { id, isPublic, expiresAt, name } = rest;
  results.print(rest, [id, isPublic ? "public" : "secret", expiresAt, name], KEY_WIDTHS);
}

export const keys: Command = {
  summary: "List, create and revoke API keys",
  usage: ["keys [ls] [--limit N]", "keys create NAME [--public] [--expires DATE]", "keys rm ID..."],
  options: { public: { type: "boolean" }, expires: { type: "string" }, limit: { type: "string" } },
  meanings: { public: "a key that may upload, and nothing else", expires: "when it ends", limit: "so many at most" },
  examples: ["stowage keys", 'stowage keys create "Web player" --public', "stowage keys rm 0193477be8a01f9c3ad5e7b2"],
  async run(context) {
    const { action, rest } = actionOf(context, ["ls", "create", "rm"]);
    const { keys } = await context.connect();
    if (action === "ls") {
      for await (const key of limited(context, keys.list({}, context))) printKey(context, key);
    } else if (action === "create") {
      const [name] = rest;
      if (name === undefined) throw new Failure("usage", "Give the key a name.");
      const options = { name, isPublic: context.values.public === true, expiresAt: dateOf(context, "expires") };
      context.results.printRecord(await keys.create(options, context));
    } else await removeEach(context, rest, (id) => keys.delete(id, context), "revoked");
  },
};

/** The stored hash of the password is of no use to anybody here. */
function printUser({ results }: Context, { password, ...rest }: Omit<User, "__v">): void {
  results.print(rest, [rest._id, rest.email, `${rest.firstName} ${rest.lastName}`.trim()], USER_WIDTHS);
}

export const users: Command = {
  summary: "List, create, change and delete users",
  usage: [
    "users [ls] [--name PREFIX] [--email EMAIL] [--limit N]",
    "users create EMAIL [--first NAME] [--last NAME]    (the password is asked for, or read from stdin)",
    "users update ID [--email EMAIL] [--first NAME] [--last NAME] [--password]",
    "users rm ID...",
  ],
  options: {
    name: { type: "string" },
    email: { type: "string" },
    first: { type: "string" },
    last: { type: "string" },
    password: { type: "boolean" },
    limit: { type: "string" },
  },
  meanings: {
    name: "what first and last name, as one, begin with",
    email: "the whole of it",
    first: "first name",
    last: "last name",
    password: "ask for a new password",
    limit: "so many at most",
  },
  examples: ["stowage users --name Ada", "stowage users create ada@example.com --first Ada < password.txt"],
  async run(context) {
    const { action, rest } = actionOf(context, ["ls", "create", "update", "rm"]);
    const { users } = await context.connect();
    const names = { firstName: textOf(context, "first"), lastName: textOf(context, "last") };
    const email = textOf(context, "email");
    const [subject] = rest;
    if (action === "ls") {
      const found = users.list({ name: textOf(context, "name"), email }, context);
      for await (const user of limited(context, found)) printUser(context, user);
    } else if (action === "create") {
      if (subject === undefined) throw new Failure("usage", "Give the user's email.");
      const password = await passwordOf(context);
      printUser(context, await users.create({ email: subject, password, ...names }, context));
    } else if (action === "update") {
      if (subject === undefined) throw new Failure("usage", "Name the id of a user.");
      const password = context.values.password ? await passwordOf(context) : undefined;
      printUser(context, await users.update(subject, { email, password, ...names }, context));
    } else await removeEach(context, rest, (id) => users.delete(id, context));
  },
};
