import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Pixels between the button and its popover, and between the popover and the window's edge. */
const GAP = 4;
const MARGIN = 8;

export interface PopoverProps {
  /** The content of the button. */
  button: ComponentChildren;
  /** Names the button if its content doesn't. */
  label?: string;
  class?: string;
  role?: "menu";
  tabIndex?: number;
  children: (close: () => void) => ComponentChildren;
}

/**
 * A button that opens a popover. Escape and a click outside close it. Its content exists only while it is open. On a phone, a
 * menu is a sheet at the bottom, which leaves visible what it is about.
 */
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
      const isSheet = role !== undefined && matchMedia("(max-width: 44rem)").matches;
      shown.style.width = isSheet ? "auto" : "";
      const { width, height } = shown.getBoundingClientRect();
      const isBelow = at.bottom + GAP + height + MARGIN <= innerHeight || at.top < height;
      const isEnd = at.left + width + MARGIN > document.documentElement.clientWidth;
      const top = Math.max(MARGIN, isBelow ? at.bottom + GAP : at.top - GAP - height);
      const left = Math.max(MARGIN, isEnd ? at.right - width : at.left);
      shown.style.inset = isSheet ? `auto ${MARGIN}px ${MARGIN}px` : `${top}px auto auto ${left}px`;
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
        popovertarget={id}
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
