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

interface ApiKey {
  id: string;
  teamId: string;
  name: string;
  key: string;
  expiresAt: string;
}

/** The name of the first team and of its key. */
const FIRST_NAME = "First key";

/**
 * Returns the key of the last start, or a new key of the same team if it is invalid. The file holds only IDs. If it was
 * lost, or never written, finds the team and its key by their name.
 */
export async function ensureFirstKey(url: string, operatorToken: string, stateDir: string, fetch = globalThis.fetch) {
  const keyFile = join(stateDir, "first-key.json");
  const headers = { Authorization: `Bearer ${operatorToken}`, "Content-Type": "application/json" };
  const find = async <T>(path: string): Promise<T | undefined> => {
    const response = await fetch(`${url}/auth/v1/${path}`, { headers });
    if (response.status === 404) return undefined;
    if (!response.ok) throw new Refusal(`The service responded ${response.status}: ${await response.text()}`);
    return ((await response.json()) as { data: T }).data;
  };
  const createKey = (teamId?: string) =>
    fetch(`${url}/auth/v1/apikeys`, { method: "POST", headers, body: JSON.stringify({ name: FIRST_NAME, teamId }) });

  const last = existsSync(keyFile) ? JSON.parse(readFileSync(keyFile, "utf8")) : {};
  // A prefix, so other teams may match. Names are sorted, so the exact one comes first.
  const teams = last.teamId
    ? []
    : await find<{ _id: string; name: string }[]>(`teams?status=active&limit=1&name=${FIRST_NAME}`);
  const team = teams?.find(({ name }) => name === FIRST_NAME);
  const teamId = last.teamId ?? team?._id;
  const keys = last.id
    ? [await find<ApiKey>(`apikeys/${last.id}`)]
    : team && (await find<ApiKey[]>(`apikeys?teamId=${teamId}`));
  // A key that was encrypted with another master key is listed without its token.
  const isUsable = (one: ApiKey | undefined) => one?.key && Date.parse(one.expiresAt) > Date.now();
  let key = keys?.find((one) => isUsable(one) && (last.id || one?.name === FIRST_NAME));
  const isKept = key !== undefined;
  if (!key) {
    let response = await createKey(teamId);
    // The team was deleted.
    if (response.status === 404) response = await createKey();
    if (!response.ok) throw new Refusal(`The service responded ${response.status}: ${await response.text()}`);
    key = ((await response.json()) as { data: ApiKey }).data;
  }
  writeFileSync(keyFile, `${JSON.stringify({ id: key.id, teamId: key.teamId })}\n`);
  return { ...key, isKept };
}
