import type { ComponentChildren } from "preact";
import { type Actions, allowed, perform } from "../framework/action.tsx";
import { hasCharacterKeys } from "../framework/keys.ts";
import { Icon } from "./icon.tsx";
import { Popover, type PopoverProps } from "./popover.tsx";

interface MenuProps extends Pick<PopoverProps, "label" | "class" | "tabIndex"> {
  items: Actions;
  button?: ComponentChildren;
}

/** A menu of actions, by default behind three dots. Those that destroy something come last. */
export function Menu({ items, button = <Icon name="more" />, ...props }: MenuProps) {
  const actions = allowed(items).sort(
    (one, other) => Number(one.isDangerous ?? false) - Number(other.isDangerous ?? false),
  );
  if (actions.length === 0) return null;
  const onKeyDown = (event: KeyboardEvent) => {
    const all = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=menuitem]")];
    const place = all.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: -1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    all.at(next % all.length)?.focus();
  };
  return (
    <Popover button={button} class="ghost" role="menu" {...props}>
      {(close) => (
        // biome-ignore lint/a11y/noStaticElementInteractions: the items have the focus.
        <div class="menu" onKeyDown={onKeyDown}>
          {actions.map((action) => (
            <button
              key={action.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={action.isDangerous ? "danger" : undefined}
              aria-disabled={action.isDisabled}
              onClick={() => {
                if (action.isDisabled) return;
                close();
                void perform(action);
              }}
            >
              {action.icon && <Icon name={action.icon} />}
              {action.label}
              {action.keys && hasCharacterKeys.value && (
                <span class="quiet wide-only" aria-hidden="true">
                  {action.keys[0]?.replace(/^[a-z]$/, (key) => key.toUpperCase())}
                </span>
              )}
            </button>
          ))}
        </div>
      )}
    </Popover>
  );
}
