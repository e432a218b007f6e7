import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { path } from "../router.ts";
import { hasEnded, session } from "../session.ts";
import { Form } from "./form.tsx";
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
  const close = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-labelledby={titleId}
      // Browsers let a second one close it, whatever is done here: Escape must not come that far.
      onCancel={close}
      onKeyDown={(event) => event.key === "Escape" && close(event)}
    >
      <h2 id={titleId}>{title}</h2>
      {children}
    </dialog>
  );
}

interface TaskDialogProps {
  title: string;
  /** The verb of what is done, such as "Delete file". */
  action: string;
  isDangerous?: boolean;
  /** Does it, with what was filled in, and closes the dialog. Where it throws, the dialog says why and stays. */
  onRun: (form: HTMLFormElement) => Promise<void> | void;
  onClose: () => void;
  children: ComponentChildren;
}

/** A dialog that does something. Meanwhile it can't be closed: how that ends would be told to nobody. */
export function TaskDialog({ title, action, isDangerous, onRun, onClose, children }: TaskDialogProps) {
  const { run, isRunning, error } = useTask();
  const close = () => isRunning || onClose();
  return (
    <Dialog title={title} onClose={close}>
      <Form
        error={error}
        onSend={(form) => run(async () => onRun(form))}
        end={
          <div class="actions">
            <button type="button" class="button" aria-disabled={isRunning} onClick={close}>
              Cancel
            </button>
            <button type="submit" class={`button ${isDangerous ? "danger" : "primary"}`} aria-disabled={isRunning}>
              {action}
            </button>
          </div>
        }
      >
        {children}
      </Form>
    </Dialog>
  );
}

interface Question extends Pick<TaskDialogProps, "title" | "action" | "isDangerous"> {
  /** What will be lost, in whole sentences. */
  text: ComponentChildren;
  onConfirm: () => Promise<void> | void;
}

const question = signal<Question | null>(null);
const forget = () => {
  question.value = null;
};

/** Asks before something is done that can't be taken back. */
export function askFirst(asked: Question): void {
  question.value = asked;
}

/** Where `askFirst` asks; there is one in the page. A question goes with the page, or the session, that it is of. */
export function Questions() {
  useEffect(forget, [path.value, session.value, hasEnded.value]);
  if (!question.value) return null;
  const { text, onConfirm, isDangerous = true, ...asked } = question.value;
  const confirm = async () => {
    await onConfirm();
    forget();
  };
  return (
    <TaskDialog key={asked.title} {...asked} isDangerous={isDangerous} onRun={confirm} onClose={forget}>
      {typeof text === "string" ? <p>{text}</p> : text}
    </TaskDialog>
  );
}
