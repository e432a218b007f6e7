import { Stowage } from "../stowage.ts";
import { type Command, type Context, textOf } from "./command.ts";
import { checkedKey, checkedUrl, saveConfig } from "./config.ts";
import { Failure } from "./failures.ts";
import { Questions } from "./questions.ts";
import { isForbidden } from "./verifier.ts";

/** A public key, or the operator's, may not ask this, and is good all the same. */
async function checkKey(url: string, key: string, signal: AbortSignal): Promise<void> {
  try {
    await new Stowage({ url, key }).usage({ signal });
  } catch (error) {
    if (!isForbidden(error)) throw error;
  }
}

/** Whether what is sent to the address can be read on its way. */
function isUnencrypted(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === "http:" && !/^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(hostname);
}

async function run(context: Context): Promise<void> {
  const { args, signal, results } = context;
  const questions = new Questions(signal);
  try {
    const url = checkedUrl(
      args[0] ?? (process.env.STOWAGE_URL || (await questions.ask("Address of the service")).trim()),
    );
    const email = textOf(context, "email");
    const teamId = textOf(context, "team");
    if ((email === undefined) !== (teamId === undefined)) throw new Failure("usage", "Give both --team and --email.");
    if (isUnencrypted(url)) await questions.warn(`${url} is not encrypted: the key can be read on its way.`);
    let key: string;
    if (email !== undefined && teamId !== undefined) {
      const password = await questions.ask("Password", { isSecret: true });
      key = (await new Stowage({ url }).logIn({ teamId, email, password }, { signal })).key;
    } else {
      key = checkedKey(await questions.ask("API key", { isSecret: true }));
      await checkKey(url, key, signal);
    }
    const file = await saveConfig({ url, key });
    results.print({ url, file }, [`Address and key are kept in ${file}`]);
  } finally {
    questions.close();
  }
}

export const login: Command = {
  summary: "Keep an address and a key on this machine",
  usage: ["login [URL]", "login [URL] --team ID --email EMAIL"],
  options: { team: { type: "string" }, email: { type: "string" } },
  meanings: { team: "log in as a user of this team, for 12 hours", email: "the user's email" },
  examples: ["stowage login https://stowage.example.workers.dev", "stowage login https://… < key.txt"],
  run,
};
