import { rm } from "node:fs/promises";
import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { Stowage, StowageError } from "../index.ts";
import type { Define } from "./command.ts";
import { configFile, listProfiles, readConfig, saveConfig, validateKey, validateUrl } from "./config.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";
import { Questions } from "./questions.ts";
import type { Table } from "./table.ts";

interface Profile {
  /** Null for the login without a name. */
  profile: string | null;
  url: string | undefined;
  isUsed: boolean;
}

const PROFILES: Table<Profile> = {
  fields: ({ profile, url, isUsed }) => [profile ?? "-", url ?? "", isUsed ? "used" : ""],
  columns: [
    ["Name", ({ profile }) => profile ?? "-"],
    ["URL", ({ url }) => url ?? ""],
    ["", ({ isUsed }) => (isUsed ? "used" : "")],
  ],
};

interface LoginOptions {
  team?: string;
  email?: string;
}

function isUnencrypted(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === "http:" && !/^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(hostname);
}

async function logIn(
  context: Context,
  [given]: [string | undefined],
  { team: teamId, email }: LoginOptions,
): Promise<void> {
  const { io, signal, results, options } = context;
  if ((email === undefined) !== (teamId === undefined)) throw new Failure("usage", "--team and --email go together.");
  const questions = new Questions(io);
  try {
    const url = validateUrl(
      given ?? options.url ?? (io.env.STOWAGE_URL || (await questions.ask("URL of the service")).trim()),
    );
    if (isUnencrypted(url)) await questions.warn(`${url} is not encrypted. Others on the network can read your key.`);
    let key: string;
    let sessionId: string | undefined;
    if (email !== undefined && teamId !== undefined) {
      const password = await questions.ask("Password", { isSecret: true });
      ({ key, id: sessionId } = await new Stowage({ url, key: null }).logIn({ teamId, email, password }, { signal }));
    } else {
      key = validateKey(options.key ?? (await questions.ask("API key", { isSecret: true })));
      await new Stowage({ url, key }).me({ signal });
    }
    const file = await saveConfig(io.env, { url, key, ...(sessionId !== undefined && { sessionId }) }, options.profile);
    results.print({ url, file }, [`Saved URL and key in ${file}`]);
  } finally {
    questions.close();
  }
}

/** Ends the session of a login, and deletes URL and key from this machine. An API key stays valid. */
async function logOut({ io, signal, results, options }: Context): Promise<void> {
  const file = configFile(io.env, options.profile);
  const { url, key, sessionId } = readConfig(io.env, options.profile);
  if (!url || !key) throw new Failure("usage", "Not logged in.");
  if (sessionId !== undefined) {
    await new Stowage({ url, key }).logOut({ signal }).catch((error) => {
      const isExpired = error instanceof StowageError && error.code === "token_invalid";
      if (!isExpired) throw error;
    });
  }
  await rm(file);
  results.print({ url, file, revoked: sessionId !== undefined }, [`Deleted URL and key from ${file}`]);
}

/** Changes the password of the user who is logged in. The user's other sessions end. */
async function changePassword({ io, stowage, results, call }: Context): Promise<void> {
  const questions = new Questions(io);
  try {
    const currentPassword = await questions.ask("Current password", { isSecret: true });
    const newPassword = await questions.ask("New password", { isSecret: true });
    await stowage.changePassword({ currentPassword, newPassword }, call);
    results.print({ changed: true }, ["Changed your password."]);
  } finally {
    questions.close();
  }
}

async function showIdentity(context: Context): Promise<void> {
  const { kind, teamId, role, scopes, expiresAt } = await context.stowage.me(context.call);
  context.results.printRecord({ url: context.stowage.url, kind, teamId, role, scopes, expiresAt });
}

export function addLoginCommands(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("login")
      .argument("[url]", "URL of the service")
      .option("--team <id>", "log in as a user of this team, for 12 hours")
      .option("--email <email>", "email address of the user"),
    {
      summary: "Save your URL and key on this machine",
      examples: [
        "stowage login https://stowage.example.workers.dev",
        "stowage login https://stowage.example.workers.dev < key.txt",
      ],
    },
    logIn,
  );
  define(
    program.command("logout"),
    { summary: "Delete your URL and key from this machine", examples: ["stowage logout --profile staging"] },
    logOut,
  );
  define(
    program.command("password"),
    {
      summary: "Change your password, after a login with --email; prompts for both, or reads them from stdin",
      examples: ["stowage password", "stowage password < passwords.txt"],
    },
    changePassword,
  );
  define(
    program.command("profiles"),
    { summary: "List the saved logins of this machine", examples: ["stowage profiles --json"] },
    async (context) => {
      const { io, options, results } = context;
      const found: Profile[] = [];
      for (const profile of listProfiles(io.env)) {
        try {
          const { url } = readConfig(io.env, profile);
          found.push({ profile: profile ?? null, url, isUsed: profile === options.profile });
        } catch (error) {
          await context.continueAfter(error, configFile(io.env, profile));
        }
      }
      await results.printList(found, PROFILES);
    },
  );
  define(
    program.command("whoami"),
    { summary: "Show the URL, and what your key may do", examples: ["stowage whoami --json"] },
    showIdentity,
  );
}
