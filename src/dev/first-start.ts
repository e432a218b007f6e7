/** What `npm run dev` makes once and keeps: secrets in .dev.vars, and a first secret key. */
import { randomBytes } from "node:crypto";
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";

/** What the person at the terminal can put right: shown without a stack. */
export class Refusal extends Error {}

/** Adds the secrets that the file lacks, and changes nothing else in it. */
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

/** The key of the last start if it is still good, else a new one of the same team. The file holds ids, never the key. */
export async function firstKey(url: string, operatorToken: string, stateDir: string) {
  const keyFile = join(stateDir, "first-key.json");
  const headers = { Authorization: `Bearer ${operatorToken}`, "Content-Type": "application/json" };
  const last = existsSync(keyFile) ? JSON.parse(readFileSync(keyFile, "utf8")) : {};
  if (last.id) {
    const answer = await fetch(`${url}/auth/v1/apikeys/${last.id}`, { headers });
    const { data } = (await answer.json()) as { data?: ApiKey };
    if (data && Date.parse(data.expiresAt) > Date.now()) return { ...data, isKept: true };
  }
  const body = JSON.stringify({ name: "First key", teamId: last.teamId });
  const answer = await fetch(`${url}/auth/v1/apikeys`, { method: "POST", headers, body });
  if (!answer.ok) throw new Refusal(`The service answers ${answer.status}: ${await answer.text()}`);
  const { data } = (await answer.json()) as { data: ApiKey };
  writeFileSync(keyFile, `${JSON.stringify({ id: data.id, teamId: data.teamId })}\n`);
  return { ...data, isKept: false };
}
