import type { ApiKey } from "../../client/index.ts";
import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { DAY_MILLISECONDS, isSoon, leftOf } from "./key-expiry.ts";

/** A key with a shorter life was meant to end. */
const LASTING_MILLISECONDS = 30 * DAY_MILLISECONDS;
/** As many as a team can have. */
const MAX_KEYS = 1000;

/** Whether a key expires soon that was meant to last, and that no newer key of its name has replaced. */
function needsReplacement(key: ApiKey, keys: ApiKey[]): boolean {
  const isLasting = Date.parse(key.expiresAt) - Date.parse(key.createdAt) > LASTING_MILLISECONDS;
  const isReplaced = keys.some(({ name, createdAt }) => name === key.name && createdAt > key.createdAt);
  return isSoon(key) && leftOf(key) > 0 && isLasting && !isReplaced;
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
