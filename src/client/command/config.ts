import { chmod, mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { Failure } from "./failures.ts";

export interface Config {
  url: string;
  key: string;
}

const isWindows = process.platform === "win32";

/** The config file: address and key. */
export function configFile(): string {
  const windows = process.env.APPDATA || join(homedir(), "AppData", "Roaming");
  const unix = process.env.XDG_CONFIG_HOME || join(homedir(), ".config");
  return join(isWindows ? windows : unix, "stowage", "config.json");
}

/** What uploads leave behind, so that they can be resumed. */
export function stateFolder(): string {
  const windows = process.env.LOCALAPPDATA || join(homedir(), "AppData", "Local");
  const unix = process.env.XDG_STATE_HOME || join(homedir(), ".local", "state");
  return join(isWindows ? windows : unix, "stowage");
}

async function readConfig(): Promise<Partial<Config>> {
  const file = configFile();
  const found = await stat(file).catch(() => undefined);
  if (!found) return {};
  if (!isWindows && (found.mode & 0o077) !== 0) {
    throw new Failure("usage", `${file} can be read by others: run \`chmod 600 ${file}\`.`);
  }
  try {
    return JSON.parse(await readFile(file, "utf8")) as Partial<Config>;
  } catch (cause) {
    throw new Failure("usage", `${file} can't be read: ${(cause as Error).message}`);
  }
}

/** Address and key, from the environment before the config file. @throws `usage` where one is missing */
export async function loadConfig(): Promise<Config> {
  const { STOWAGE_URL, STOWAGE_KEY } = process.env;
  const kept = STOWAGE_URL && STOWAGE_KEY ? {} : await readConfig();
  const url = STOWAGE_URL || kept.url;
  // A key belongs to the address that it was kept with.
  const key = STOWAGE_KEY || (url === kept.url ? kept.key : undefined);
  if (!url) throw new Failure("usage", "No address: run `stowage login`, or set STOWAGE_URL and STOWAGE_KEY.");
  if (!key) throw new Failure("usage", `No key for ${url}: run \`stowage login\`, or set STOWAGE_KEY.`);
  return { url: checkedUrl(url), key };
}

export function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "https:" || url?.protocol === "http:") return text;
  throw new Failure("usage", `"${text}" is no address: it must begin with https:// or http://.`);
}

/** Keeps address and key where their owner alone can read them. */
export async function saveConfig(config: Config): Promise<string> {
  const file = configFile();
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${process.pid}.draft`;
  await writeFile(draft, `${JSON.stringify(config, null, 2)}\n`, { mode: 0o600 });
  await chmod(draft, 0o600);
  await rename(draft, file);
  return file;
}
