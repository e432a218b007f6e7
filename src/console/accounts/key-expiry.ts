import type { ApiKey } from "../../client/index.ts";

export const DAY_MILLISECONDS = 86_400_000;
const SOON_MILLISECONDS = 7 * DAY_MILLISECONDS;

/** The milliseconds until a key expires. */
export const leftOf = ({ expiresAt }: ApiKey): number => Date.parse(expiresAt) - Date.now();
/** Whether a key has expired, or expires within a week. */
export const isSoon = (key: ApiKey): boolean => leftOf(key) < SOON_MILLISECONDS;
