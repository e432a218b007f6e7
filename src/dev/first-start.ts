/** Creates what `npm run dev` needs and keeps: secrets in .dev.vars, and a first API key. */
import { randomBytes } from "node:crypto";
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";

/** An error that the user can fix, shown without a stack trace. */
export class Refusal extends Error {}

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

/** The name of the first team and of its key. */
const FIRST_NAME = "First key";

/**
 * Returns the key of the last start, or a new key of the same team if it no longer works. No request returns a key again, so
 * the file holds it. If the file was lost, or never written, finds the team by its name.
 */
export async function ensureFirstKey(url: string, operatorToken: string, stateDir: string, fetch = globalThis.fetch) {
  const keyFile = join(stateDir, "first-key.json");
  const last: Partial<FirstKey> = existsSync(keyFile) ? JSON.parse(readFileSync(keyFile, "utf8")) : {};
  const call = (path: string, token: string, body?: object) =>
    fetch(`${url}/auth/v1/${path}`, {
      method: body ? "POST" : "GET",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
  const dataOf = async <T>(response: Response): Promise<T> => {
    if (!response.ok) throw new Refusal(`The service responded ${response.status}: ${await response.text()}`);
    return ((await response.json()) as { data: T }).data;
  };

  const { key, teamId: lastTeam } = last;
  if (key && lastTeam && (await call("me", key)).ok) return { key, teamId: lastTeam, isKept: true };
  // A prefix, so other teams may match. Names are sorted, so the exact one comes first.
  const teams = `teams?status=active&limit=1&name=${encodeURIComponent(FIRST_NAME)}`;
  const [found] = lastTeam ? [] : await dataOf<{ _id: string; name: string }[]>(await call(teams, operatorToken));
  const teamId = lastTeam ?? (found?.name === FIRST_NAME ? found._id : undefined);
  let response = await call("apikeys", operatorToken, { name: FIRST_NAME, teamId });
  // The team was deleted.
  if (response.status === 404) response = await call("apikeys", operatorToken, { name: FIRST_NAME });
  const created = await dataOf<FirstKey>(response);
  writeFileSync(keyFile, `${JSON.stringify({ teamId: created.teamId, key: created.key })}\n`, { mode: 0o600 });
  chmodSync(keyFile, 0o600);
  return { key: created.key, teamId: created.teamId, isKept: false };
}
