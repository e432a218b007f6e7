import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icon.tsx";

/** Pixels between the button and its popover, and between the popover and the window's edge. */
const GAP = 4;
const MARGIN = 8;

interface PopoverProps {
  /** The content of the button. */
  button: ComponentChildren;
  /** Names the button if its content doesn't. */
  label?: string;
  class?: string;
  role?: "menu";
  tabIndex?: number;
  children: (close: () => void) => ComponentChildren;
}

/** A button that opens a popover. Escape and a click outside close it. Its content exists only while it is open. */
export function Popover({ button, label, class: className = "", role, tabIndex = 0, children }: PopoverProps) {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  const trigger = useRef<HTMLButtonElement>(null);
  const popover = useRef<HTMLDivElement>(null);
  const close = () => popover.current?.hidePopover();
  // Baseline browsers don't position popovers by their button yet. Its size is known once it is shown, before the paint.
  useLayoutEffect(() => {
    if (!isOpen) return;
    const frame = requestAnimationFrame(() => {
      const [at, shown] = [trigger.current?.getBoundingClientRect(), popover.current];
      if (!at || !shown) return;
      const { width, height } = shown.getBoundingClientRect();
      const isBelow = at.bottom + GAP + height + MARGIN <= innerHeight || at.top < height;
      const isEnd = at.left + width + MARGIN > document.documentElement.clientWidth;
      shown.style.top = `${Math.max(MARGIN, isBelow ? at.bottom + GAP : at.top - GAP - height)}px`;
      shown.style.left = `${Math.max(MARGIN, isEnd ? at.right - width : at.left)}px`;
      shown.querySelector<HTMLElement>(role ? "[role=menuitem]" : "input, select, button, a")?.focus();
    });
    return () => cancelAnimationFrame(frame);
  }, [isOpen]);
  return (
    <>
      <button
        ref={trigger}
        type="button"
        class={`button ${className}`}
        aria-label={label}
        title={label}
        tabIndex={tabIndex}
        aria-haspopup={role}
        aria-expanded={isOpen}
        {...{ popovertarget: id }}
      >
        {button}
      </button>
      <div
        ref={popover}
        id={id}
        class="popover"
        popover="auto"
        role={isOpen ? role : undefined}
        onBeforeToggle={(event) => setOpen((event as { newState?: string }).newState === "open")}
      >
        {isOpen && children(close)}
      </div>
    </>
  );
}

export interface MenuItem {
  label: string;
  icon?: IconName;
  isDangerous?: boolean;
  isDisabled?: boolean;
  onSelect: () => void;
}

export type MenuItems = (MenuItem | false | null | undefined)[];

interface MenuProps extends Pick<PopoverProps, "label" | "class" | "tabIndex"> {
  /** If it is a function, it is called when the menu opens. */
  items: MenuItems | (() => MenuItems);
  button?: ComponentChildren;
}

/** A menu of actions, by default behind three dots. Those that destroy something come last. */
export function Menu({ items, button = <Icon name="more" />, ...props }: MenuProps) {
  const itemsNow = () =>
    (typeof items === "function" ? items() : items)
      .filter((item) => item !== false && item !== null && item !== undefined)
      .sort((one, other) => Number(one.isDangerous ?? false) - Number(other.isDangerous ?? false));
  if (typeof items !== "function" && itemsNow().length === 0) return null;
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
          {itemsNow().map(({ label, icon, isDangerous, isDisabled, onSelect }) => (
            <button
              key={label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={isDangerous ? "danger" : undefined}
              aria-disabled={isDisabled}
              onClick={() => {
                if (isDisabled) return;
                close();
                onSelect();
              }}
            >
              {icon && <Icon name={icon} />}
              {label}
            </button>
          ))}
        </div>
      )}
    </Popover>
  );
}
