import type { ApiKey } from "../../client/index.ts";
import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";

const DAY_MILLISECONDS = 86_400_000;
const SOON_DAYS = 7;
/** A key with a shorter life was meant to end. */
const LASTING_DAYS = 30;
/** As many as a team can have. */
const MAX_KEYS = 1000;

/** Whether a key expires soon that was meant to last, and that no newer key of its name has replaced. */
function needsReplacement({ name, createdAt, expiresAt }: ApiKey, keys: ApiKey[]): boolean {
  const [left, life] = [Date.now(), Date.parse(createdAt)].map(
    (from) => (Date.parse(expiresAt) - from) / DAY_MILLISECONDS,
  );
  if (left === undefined || life === undefined) return false;
  const isSoon = left > 0 && left < SOON_DAYS;
  return isSoon && life > LASTING_DAYS && !keys.some((other) => other.name === name && other.createdAt > createdAt);
}

/** Warns on every page of keys that expire soon. */
export function KeyNotice() {
  const load = (signal: AbortSignal) => client.value.keys.list({}, { signal }).toArray({ limit: MAX_KEYS });
  const { value: keys = [] } = useData(["expiring keys"], load, { of: ["apikey"] });
  const count = keys.filter((key) => needsReplacement(key, keys)).length;
  if (count === 0) return null;
  return (
    <p class="notice">
      {count === 1 ? "An API key expires within a week." : `${count} API keys expire within a week.`}
      <a href={href("/keys")}>Rotate {count === 1 ? "it" : "them"}</a>
    </p>
  );
}
