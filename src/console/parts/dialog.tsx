import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { Failure } from "./failure.tsx";
import { useTask } from "./task.ts";

/** Where the focus was before each dialog. */
const origins = new WeakMap<Element, Element>();

/** A modal dialog. Escape and its buttons close it; the focus goes back to where it came from. */
export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  // Not after the paint: what had the focus may be gone by then.
  useLayoutEffect(() => {
    const dialog = element.current as HTMLDialogElement;
    let origin = document.activeElement ?? document.body;
    // One dialog may lead to another, and be closed before it.
    const outer = origin.closest("dialog");
    if (outer) origin = origins.get(outer) ?? origin;
    origins.set(dialog, origin);
    dialog.showModal();
    return () => {
      dialog.close();
      const next = origin.isConnected && origin !== document.body ? origin : document.querySelector("h1");
      (next as HTMLElement | null)?.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id={titleId}>{title}</h2>
      {children}
    </dialog>
  );
}

interface Question {
  title: string;
  /** What will be lost, in whole sentences. */
  text: ComponentChildren;
  /** The verb of what is done, such as "Delete file". */
  action: string;
  isDangerous?: boolean;
  /** Does it. Where it throws, the dialog says why and stays. */
  onConfirm: () => Promise<void> | void;
}

const question = signal<Question | null>(null);

/** Asks before something is done that can't be taken back. */
export function askFirst(asked: Question): void {
  question.value = asked;
}

/** Where `askFirst` asks; there is one in the page. */
export function Questions() {
  const asked = question.value;
  return asked && <Confirmation key={asked.title} {...asked} />;
}

function Confirmation({ title, text, action, isDangerous = true, onConfirm }: Question) {
  const { run, isRunning, error } = useTask();
  const close = () => {
    question.value = null;
  };
  return (
    <Dialog title={title} onClose={close}>
      <div class="stack">
        {typeof text === "string" ? <p>{text}</p> : text}
        <Failure error={error} />
        <div class="actions">
          <button type="button" class="button" onClick={close}>
            Cancel
          </button>
          <button
            type="button"
            class={isDangerous ? "button danger" : "button primary"}
            aria-disabled={isRunning}
            onClick={() =>
              run(async () => {
                await onConfirm();
                close();
              })
            }
          >
            {action}
          </button>
        </div>
      </div>
    </Dialog>
  );
}
