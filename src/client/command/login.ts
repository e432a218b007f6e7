import type { Command } from "commander";
import { Stowage } from "../stowage.ts";
import type { Define } from "./command.ts";
import { saveConfig, validateKey, validateUrl } from "./config.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";
import { Questions } from "./questions.ts";
import { isForbidden } from "./verifier.ts";

interface LoginOptions {
  team?: string;
  email?: string;
}

/** Public keys and the operator token may not read the usage, but are valid. */
async function checkKey(url: string, key: string, signal: AbortSignal): Promise<void> {
  try {
    await new Stowage({ url, key }).usage({ signal });
  } catch (error) {
    if (!isForbidden(error)) throw error;
  }
}

function isUnencrypted(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === "http:" && !/^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(hostname);
}

async function logIn(context: Context, [given]: string[], { team: teamId, email }: LoginOptions): Promise<void> {
  const { io, signal, results } = context;
  if ((email === undefined) !== (teamId === undefined)) throw new Failure("usage", "--team and --email go together.");
  const questions = new Questions(io);
  try {
    const url = validateUrl(given ?? (io.env.STOWAGE_URL || (await questions.ask("URL of the service")).trim()));
    if (isUnencrypted(url)) await questions.warn(`${url} is not encrypted. Others on the network can read your key.`);
    let key: string;
    if (email !== undefined && teamId !== undefined) {
      const password = await questions.ask("Password", { isSecret: true });
      key = (await new Stowage({ url }).logIn({ teamId, email, password }, { signal })).key;
    } else {
      key = validateKey(await questions.ask("API key", { isSecret: true }));
      await checkKey(url, key, signal);
    }
    const file = await saveConfig(io.env, { url, key });
    results.print({ url, file }, [`Saved URL and key in ${file}`]);
  } finally {
    questions.close();
  }
}

export function addLoginCommand(program: Command, define: Define): void {
  define<LoginOptions>(
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
}
