/** Creates what `npm run dev` needs and keeps: secrets in .dev.vars, and a first API key. */
import { randomBytes } from "node:crypto";
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { Stowage, StowageError } from "../client/index.ts";

/** Secrets that a Worker can't do without. */
export const newSecrets = () => ({
  MASTER_KEY: randomBytes(32).toString("base64"),
  OPERATOR_TOKEN: `stow_op_${randomBytes(24).toString("base64url")}`,
});

/** Adds missing secrets to the file, and changes nothing else in it. */
export function prepareSecrets(file: string): { operatorToken: string; areKept: boolean } {
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  const present = parseEnv(text);
  const fresh = newSecrets();
  const missing = Object.entries(fresh).filter(([name]) => !present[name]);
  const lines = missing.map(([name, value]) => `${name}="${value}"\n`).join("");
  appendFileSync(file, text === "" || text.endsWith("\n") ? lines : `\n${lines}`, { mode: 0o600 });
  chmodSync(file, 0o600);
  return { operatorToken: present.OPERATOR_TOKEN || fresh.OPERATOR_TOKEN, areKept: missing.length === 0 };
}

interface FirstKey {
  teamId: string;
  key: string;
}

/** Whether the service finds what a token or an ID stands for. */
async function isFound(call: Promise<unknown>): Promise<boolean> {
  try {
    await call;
    return true;
  } catch (error) {
    if (error instanceof StowageError && (error.status === 401 || error.status === 404)) return false;
    throw error;
  }
}

/** The name of the first team. Visitors of its share pages see it. */
export const FIRST_TEAM = "My team";
const FIRST_KEY = "First key";

/**
 * Returns the key of the last start, or a new key of the same team if it no longer works. No request returns a key again, so
 * the file holds it. If the file was lost, or never written, finds the team by its name.
 */
export async function ensureFirstKey(url: string, operatorToken: string, stateDir: string, fetch = globalThis.fetch) {
  const keyFile = join(stateDir, "first-key.json");
  const last: Partial<FirstKey> = existsSync(keyFile) ? JSON.parse(readFileSync(keyFile, "utf8")) : {};
  // A deployment whose response is lost is repeated as a whole.
  const options = { url, fetch: (target: string, init: RequestInit) => fetch(target, init), maxRetries: 0 };
  const { keys, teams } = new Stowage({ ...options, key: operatorToken });

  const { key, teamId: lastTeam } = last;
  if (key && lastTeam && (await isFound(new Stowage({ ...options, key }).me())))
    return { key, teamId: lastTeam, isKept: true };
  const createKey = async (teamId: string): Promise<string> => (await keys.create({ name: FIRST_KEY, teamId })).key;
  const createTeam = async (): Promise<FirstKey> => {
    const { team, apiKey } = await teams.create({ name: FIRST_TEAM });
    return { teamId: team.id, key: apiKey.key };
  };
  // A prefix, so other teams may match. Names are sorted, so the exact one comes first.
  const filters = { status: "active", name: FIRST_TEAM, limit: 1 } as const;
  const [found] = lastTeam ? [] : (await teams.list(filters)).items;
  const named = found?.name === FIRST_TEAM ? found.id : undefined;
  const isDeleted = lastTeam !== undefined && !(await isFound(teams.get(lastTeam)));
  const teamId = isDeleted ? undefined : (lastTeam ?? named);
  const created = teamId ? { teamId, key: await createKey(teamId) } : await createTeam();
  writeFileSync(keyFile, `${JSON.stringify(created)}\n`, { mode: 0o600 });
  chmodSync(keyFile, 0o600);
  return { ...created, isKept: false };
}
