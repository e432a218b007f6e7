import { MinuteMemory } from "../platform/limit.ts";
import type { System } from "../platform/system.ts";
import type { CallerRow } from "./actor.ts";
import { AUTHENTICATED_MINUTES } from "./limiter.ts";

/** Less than 1 MB. A caller that is forgotten takes a round trip more. */
const MAX_CALLERS = 2000;

/**
 * The callers that this isolate has read from their rows in the last minutes, by the hashes of their tokens. Only `readAs` relies on them,
 * and returns nothing that the caller's row doesn't confirm.
 */
export const createCallers = (system: System) =>
  new MinuteMemory<CallerRow>(system, AUTHENTICATED_MINUTES, MAX_CALLERS);
export type Callers = ReturnType<typeof createCallers>;
