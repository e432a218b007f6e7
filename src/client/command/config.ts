import { chmod, mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { Failure, failureAbout, failureOf } from "./failures.ts";

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
  const text = await readFile(file, "utf8").catch(failureAbout(file));
  try {
    const { url, key } = JSON.parse(text);
    if (typeof url === "string" && typeof key === "string") return { url, key };
  } catch {}
  // Not what is wrong with it: that would show a part of the key.
  throw new Failure("usage", `${file} is not what \`stowage login\` writes: run it again.`);
}

/** Address and key, from the environment before the config file. @throws `usage` where one is missing */
export async function loadConfig(): Promise<Config> {
  const { STOWAGE_URL, STOWAGE_KEY } = process.env;
  const kept = STOWAGE_URL && STOWAGE_KEY ? {} : await readConfig();
  const url = STOWAGE_URL || kept.url;
  // A key belongs to the address that it was kept with.
  const key = STOWAGE_KEY || (url?.replace(/\/+$/, "") === kept.url?.replace(/\/+$/, "") ? kept.key : undefined);
  if (!url) throw new Failure("usage", "No address: run `stowage login`, or set STOWAGE_URL and STOWAGE_KEY.");
  if (!key) throw new Failure("usage", `No key for ${url}: run \`stowage login\`, or set STOWAGE_KEY.`);
  return { url: checkedUrl(url), key: checkedKey(key) };
}

/** @throws `refused` where no header could carry it */
export function checkedKey(text: string): string {
  const key = text.trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new Failure("refused", "The key has characters that no key has: copy it again.");
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
  try {
    await writeFile(draft, `${JSON.stringify(config, null, 2)}\n`, { mode: 0o600 });
    await chmod(draft, 0o600);
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    throw failureOf(error, file);
  }
  return file;
}
