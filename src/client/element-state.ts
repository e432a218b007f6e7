import type { Item } from "./element-files.ts";

/** The state of all files and the recorder, as `data-state` shows it. */
export type ElementState = Item["state"] | "empty" | "recording" | "recorded";

/** @param recording the state of the recorder, which comes before that of files */
export function stateOf(
  items: Iterable<Pick<Item, "state" | "code">>,
  recording: "recording" | "recorded" | undefined,
): ElementState {
  if (recording) return recording;
  const all = [...items];
  // What waits after a failure is not being sent.
  if (all.some(({ state, code }) => state === "sending" || (state === "waiting" && !code))) return "sending";
  const order = ["waiting", "failed", "stored", "completed"] as const;
  return order.find((one) => all.some(({ state }) => state === one)) ?? "empty";
}

/** Why a form with this state can't be submitted, as the name of a text. */
const PROBLEMS: Partial<Record<ElementState, string>> = {
  recording: "unsent",
  recorded: "unsent",
  sending: "busy",
  waiting: "busy",
  failed: "unresolved",
};
export const problemOf = (state: ElementState): string | undefined => PROBLEMS[state];
