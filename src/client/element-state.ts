import { type Item, isFinal, isLeaving, isStored, isTake, type Uploads } from "./upload-state.ts";

/* What the upload element shows of its uploads, as pure functions. */

/** The state of all files and the recorder, as `data-state` shows it. */
export type ElementState =
  | "empty"
  | "recording"
  | "recorded"
  | "sending"
  | "waiting"
  | "failed"
  | "stored"
  | "completed";

type Shown = Pick<Item<unknown>, "key" | "state" | "error">;

/** A file that needs to be chosen again has failed, for a form. */
export const shownState = ({ state }: Shown) => (state === "interrupted" ? "failed" : state);
/** An upload that waits after a failure is not being sent. */
const isSending = ({ state, error }: Shown) => state === "sending" || (state === "waiting" && error === null);

/** The files of the list. */
export const filesOf = <T extends Shown>(items: Iterable<T>): T[] =>
  [...items].filter((item) => !isTake(item) && !isLeaving(item));

/** The recording in progress, or else the first one that is neither sent nor canceled. */
export function takeOf<T extends Shown>(items: Iterable<T>): T | undefined {
  const takes = [...items].filter(isTake);
  return takes.find(({ state }) => state === "recording") ?? takes[0];
}

export function stateOf(items: Iterable<Shown>): ElementState {
  const all = [...items];
  const take = takeOf(all);
  if (take) return take.state as ElementState;
  const files = filesOf(all);
  if (files.some(isSending)) return "sending";
  const order = ["waiting", "failed", "stored", "completed"] as const;
  return order.find((state) => files.some((item) => shownState(item) === state)) ?? "empty";
}

/** The ids that the form submits. */
export const idsOf = ({ items }: Uploads<unknown>): string[] =>
  filesOf(items.values()).flatMap((item) => (item.id !== undefined && isStored(item) ? [item.id] : []));

/** The parts of the element that can show a problem. */
export interface Offered {
  /** Whether there is a button that chooses files. */
  hasChooser: boolean;
  /** Whether there is one that records. */
  hasRecorder: boolean;
  isRequired: boolean;
  /** Whether the form waits for what is not uploaded yet. */
  isDeferred?: boolean;
}

export interface Blocker {
  flag: "customError" | "valueMissing";
  text: string;
  /** Where the browser shows it: the key of a file, or a part. Without one, it would not submit the form, silently. */
  anchor: string;
}

/** Why the form can't be submitted, and which button solves it. */
export function blockerOf(uploads: Uploads<unknown>, offered: Offered): Blocker | undefined {
  const items = [...uploads.items.values()];
  const state = stateOf(items);
  const add = offered.hasChooser ? "chooser" : offered.hasRecorder ? "recorder" : "panel";
  const custom = (text: string, anchor?: string): Blocker => ({ flag: "customError", text, anchor: anchor ?? add });
  const isUnfinished = !["empty", "failed", "stored", "completed"].includes(state);
  if (isUnfinished && offered.isDeferred) return undefined;
  if (state === "recording" || state === "recorded") return custom("unsent", "take");
  if (isUnfinished)
    return custom("busy", filesOf(items).find((item) => ["sending", "waiting"].includes(item.state))?.key);
  if (state === "failed") {
    const failed = filesOf(items).find((item) => shownState(item) === "failed");
    return custom(failed && isFinal(failed) ? "refused" : "unresolved", failed?.key);
  }
  if (!offered.isRequired || idsOf(uploads).length > 0) return undefined;
  const text = !offered.hasChooser ? "requiredRecording" : offered.hasRecorder ? "requiredEither" : "required";
  return { flag: "valueMissing", text, anchor: add };
}
