import { Failure } from "../parts/failure.tsx";
import type { IconName } from "../parts/icon.tsx";
import { showFailure } from "./announce.tsx";
import { ScriptError } from "./errors.ts";
import { can, client, noteFailure, type Scope } from "./session.ts";
import { useTask } from "./task.ts";

/** An action of the user, stated once for menus, buttons, the selection bar, the palette, keys, and their help. */
export interface Action {
  label: string;
  icon?: IconName;
  /** Sessions without it don't see the action. */
  scope?: Scope;
  /** The keys that start it: on its page, or on the focused row. */
  keys?: string[];
  isDangerous?: boolean;
  isDisabled?: boolean;
  /** Does it, or asks for what it needs in a dialog. It says itself what it has done. */
  run: () => unknown;
}

export type Actions = (Action | false | null | undefined)[];

/** The actions that the session may use. */
export const allowed = (actions: Actions): Action[] =>
  actions.filter((action) => !!action).filter(({ scope }) => !scope || can(scope));

/** Starts an action. A failure is shown above the page. If a script is missing, nothing has begun, and a button tries again. */
export async function perform(action: Pick<Action, "run">): Promise<void> {
  const caller = client.peek();
  try {
    await action.run();
  } catch (error) {
    noteFailure(error, caller);
    const retry = () => {
      dismiss();
      void perform(action);
    };
    const dismiss = showFailure(
      <Failure error={error} onRetry={error instanceof ScriptError ? retry : undefined} isInRegion />,
    );
  }
}

/** The shortcuts of actions, for `addShortcuts`. */
export const shortcutsOf = (actions: Actions): Record<string, (event: KeyboardEvent) => void> =>
  Object.fromEntries(
    allowed(actions).flatMap((action) =>
      (action.keys ?? []).map((key) => [
        key,
        (event: KeyboardEvent) => {
          // The key must not reach what the action focuses.
          event.preventDefault();
          if (!action.isDisabled) void perform(action);
        },
      ]),
    ),
  );

interface ActionButtonProps {
  action: Action;
  class?: string;
}

/** An action as a button. It runs once at a time. Nothing if the session may not use it. */
export function ActionButton({ action, class: className = "" }: ActionButtonProps) {
  const { run, isRunning } = useTask();
  if (allowed([action]).length === 0) return null;
  return (
    <button
      type="button"
      class={`button ${className}`}
      aria-disabled={isRunning || action.isDisabled}
      onClick={() => !action.isDisabled && run(() => perform(action))}
    >
      {action.label}
    </button>
  );
}
