import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { chmod, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { Stowage } from "../index.ts";
import { Failure, failureOf } from "./failures.ts";

type Env = NodeJS.ProcessEnv;

export interface Config {
  url: string;
  key: string;
  /** The id of the session that `stowage login` created, which `stowage logout` ends. */
  sessionId?: string;
}

const isWindows = process.platform === "win32";

const homeOf = (env: Env) => env.HOME || homedir();

/** The config file holds URL and key. Each profile has its own. */
export function configFile(env: Env, profile?: string): string {
  const windows = env.APPDATA || join(homedir(), "AppData", "Roaming");
  const unix = env.XDG_CONFIG_HOME || join(homeOf(env), ".config");
  return join(isWindows ? windows : unix, "stowage", profile === undefined ? "config.json" : `config.${profile}.json`);
}

/** Lists the saved profiles. Undefined is the login without a name. */
export function listProfiles(env: Env): (string | undefined)[] {
  const folder = dirname(configFile(env));
  const names = existsSync(folder) ? readdirSync(folder).sort() : [];
  const found = names.map((name) => /^config(?:\.([\w-]+))?\.json$/.exec(name));
  return found.flatMap((match) => (match ? [match[1]] : []));
}

/** The state folder holds the journals of uploads. */
export function stateFolder(env: Env): string {
  const windows = env.LOCALAPPDATA || join(homedir(), "AppData", "Local");
  const unix = env.XDG_STATE_HOME || join(homeOf(env), ".local", "state");
  return join(isWindows ? windows : unix, "stowage");
}

/** The variable that moves the state folder. */
export const STATE_VARIABLE = isWindows ? "LOCALAPPDATA" : "XDG_STATE_HOME";

export function readConfig(env: Env, profile?: string): Partial<Config> {
  const file = configFile(env, profile);
  const found = statSync(file, { throwIfNoEntry: false });
  if (!found) return {};
  if (!isWindows && (found.mode & 0o077) !== 0) {
    throw new Failure("usage", `Other users can read ${file}. Run \`chmod 600 ${file}\`.`, { subject: file });
  }
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw failureOf(error, file);
  }
  try {
    const { url, key, sessionId } = JSON.parse(text);
    if (typeof url === "string" && typeof key === "string") return { url, key, sessionId };
  } catch {}
  // A parse error would show a part of the key.
  throw new Failure("usage", `${file} is damaged. Run \`stowage login\` again.`, { subject: file });
}

/** The URL as the client writes it; undefined if the text isn't a URL. */
function normalizeUrl(url: string): string | undefined {
  try {
    return new Stowage({ url, key: null }).url;
  } catch {
    return undefined;
  }
}

const isSameUrl = (one = "", other = "") => (normalizeUrl(one) ?? one) === (normalizeUrl(other) ?? other);

/**
 * Reads URL and key from the options, then from the environment, then from the config file. A profile replaces the
 * environment.
 * @throws `usage` if one is missing
 */
export function loadConfig(env: Env, options: Partial<Config> & { profile?: string }): Config {
  const { STOWAGE_URL, STOWAGE_KEY } = options.profile === undefined ? env : {};
  // A key is only for the URL that it was set or saved with.
  const isForUrl = !options.url || !STOWAGE_URL || isSameUrl(options.url, STOWAGE_URL);
  const givenKey = options.key || (isForUrl ? STOWAGE_KEY : undefined);
  const givenUrl = options.url || STOWAGE_URL;
  const saved = givenUrl && givenKey ? {} : readConfig(env, options.profile);
  const url = givenUrl || saved.url;
  const key = givenKey || (isSameUrl(url, saved.url) ? saved.key : undefined);
  if (!url) throw new Failure("usage", "No URL. Run `stowage login`, or set STOWAGE_URL and STOWAGE_KEY.");
  if (!key && STOWAGE_KEY && !isForUrl) throw new Failure("usage", "STOWAGE_KEY belongs to another URL. Use --key.");
  if (!key) throw new Failure("usage", `No key for ${url}. Run \`stowage login\`, or set STOWAGE_KEY.`);
  return { url: validateUrl(url), key: validateKey(key) };
}

/** @throws `rejected` if the key can't be sent in a header */
export function validateKey(text: string): string {
  const key = text.trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new Failure("rejected", "The key contains invalid characters. Copy it again.");
}

export function validateUrl(text: string): string {
  if (normalizeUrl(text) !== undefined) return text;
  throw new Failure("usage", `"${text}" is not a URL. It must start with https:// or http://.`);
}

/** Saves URL and key so that only their owner can read them. */
export async function saveConfig(env: Env, config: Config, profile?: string): Promise<string> {
  const file = configFile(env, profile);
  const draft = `${file}.${process.pid}.draft`;
  try {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    await writeFile(draft, `${JSON.stringify(config, null, 2)}\n`, { mode: 0o600 });
    await chmod(draft, 0o600);
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw failureOf(error, file);
  }
  return file;
}
