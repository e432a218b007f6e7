/** Creates what `npm run dev` needs and keeps: secrets in .dev.vars, and a first API key. */
import { randomBytes } from "node:crypto";
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";

/** An error that the user can fix, shown without a stack trace. */
export class Refusal extends Error {}

/** Adds missing secrets to the file, and changes nothing else in it. */
export function prepareSecrets(file: string): { operatorToken: string; areKept: boolean } {
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  const present = parseEnv(text);
  const fresh = {
    MASTER_KEY: randomBytes(32).toString("base64"),
    OPERATOR_TOKEN: `stow_op_${randomBytes(24).toString("base64url")}`,
  };
  const missing = Object.entries(fresh).filter(([name]) => !present[name]);
  const lines = missing.map(([name, value]) => `${name}="${value}"\n`).join("");
  appendFileSync(file, text === "" || text.endsWith("\n") ? lines : `\n${lines}`, { mode: 0o600 });
  chmodSync(file, 0o600);
  return { operatorToken: present.OPERATOR_TOKEN || fresh.OPERATOR_TOKEN, areKept: missing.length === 0 };
}

interface ApiKey {
  id: string;
  teamId: string;
  key: string;
  expiresAt: string;
}

/** Returns the key of the last start, or a new key of the same team if it is invalid. The file holds only IDs. */
export async function ensureFirstKey(url: string, operatorToken: string, stateDir: string) {
  const keyFile = join(stateDir, "first-key.json");
  const headers = { Authorization: `Bearer ${operatorToken}`, "Content-Type": "application/json" };
  const last = existsSync(keyFile) ? JSON.parse(readFileSync(keyFile, "utf8")) : {};
  if (last.id) {
    const response = await fetch(`${url}/auth/v1/apikeys/${last.id}`, { headers });
    const { data } = (await response.json()) as { data?: ApiKey };
    if (data && Date.parse(data.expiresAt) > Date.now()) return { ...data, isKept: true };
  }
  const createKey = (teamId?: string) =>
    fetch(`${url}/auth/v1/apikeys`, { method: "POST", headers, body: JSON.stringify({ name: "First key", teamId }) });
  let response = await createKey(last.teamId);
  // The team was deleted.
  if (response.status === 404) response = await createKey();
  if (!response.ok) throw new Refusal(`The service responded ${response.status}: ${await response.text()}`);
  const { data } = (await response.json()) as { data: ApiKey };
  writeFileSync(keyFile, `${JSON.stringify({ id: data.id, teamId: data.teamId })}\n`);
  return { ...data, isKept: false };
}
