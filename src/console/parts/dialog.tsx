import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { path } from "../router.ts";
import { isExpired, session } from "../session.ts";
import { Announcements, openDialogs } from "./announce.tsx";
import { Form } from "./form.tsx";
import { useTask } from "./task.ts";

/** The element that had the focus before each dialog opened. */
const origins = new WeakMap<Element, Element>();

interface DialogProps {
  title: string;
  class?: string;
  /** Whether only screen readers read the title. */
  isTitleHidden?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog. Escape and its buttons close it, and the focus returns to its origin. */
export function Dialog({ title, class: className = "", isTitleHidden = false, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  // A layout effect, because after the paint the focused element may be gone.
  useLayoutEffect(() => {
    const dialog = element.current as HTMLDialogElement;
    let origin = document.activeElement ?? document.body;
    // A dialog may open another one and close before it.
    const outer = origin.closest("dialog");
    if (outer) origin = origins.get(outer) ?? origin;
    origins.set(dialog, origin);
    dialog.showModal();
    openDialogs.value++;
    return () => {
      dialog.close();
      openDialogs.value--;
      // After this update, the origin may no longer be on the page.
      queueMicrotask(() => {
        const next = origin.isConnected && origin !== document.body ? origin : document.querySelector("h1");
        (next as HTMLElement | null)?.focus();
      });
    };
  }, []);
  const close = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog
      ref={element}
      class={`dialog ${className}`}
      aria-labelledby={titleId}
      // Browsers close a dialog at the second Escape even if the first was prevented, so Escape must not reach them.
      onCancel={close}
      onKeyDown={(event) => event.key === "Escape" && close(event)}
    >
      <h2 id={titleId} class={isTitleHidden ? "visually-hidden" : ""}>
        {title}
      </h2>
      {children}
      <Announcements inDialog />
    </dialog>
  );
}

interface TaskDialogProps {
  title: string;
  /** The label of the button, such as "Delete file". */
  action: string;
  isDangerous?: boolean;
  /** Whether the button and Enter do nothing yet. */
  isDisabled?: boolean;
  /** Does the work and closes the dialog. If it throws, the dialog stays open and shows the error. */
  onRun: (form: HTMLFormElement) => Promise<void> | void;
  /** Ends the action soon. Without it, the action can't be stopped. */
  onStop?: () => void;
  onClose: () => void;
  children: ComponentChildren;
}

/** A dialog with one action. It can't be closed while the action runs, so that its result is always shown. */
export function TaskDialog(props: TaskDialogProps) {
  const { title, action, isDangerous, isDisabled = false, onRun, onStop, onClose, children } = props;
  const { run, isRunning, error } = useTask();
  const close = () => (isRunning ? onStop?.() : onClose());
  return (
    <Dialog title={title} onClose={close}>
      <Form
        error={error}
        onSubmit={(form) => run(async () => onRun(form))}
        end={
          <div class="actions">
            <button type="button" class="button" aria-disabled={isRunning && !onStop} onClick={close}>
              {isRunning && onStop ? "Stop" : "Cancel"}
            </button>
            <button
              type="submit"
              class={`button primary ${isDangerous ? "danger" : ""}`}
              disabled={isDisabled}
              aria-disabled={isRunning}
            >
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

interface RecordDialogProps extends Omit<TaskDialogProps, "title" | "action"> {
  /** The kind of record, such as "webhook". */
  noun: string;
  isNew: boolean;
}

/** The form of a record that is created or edited. */
export const RecordDialog = ({ noun, isNew, ...props }: RecordDialogProps) => (
  <TaskDialog title={`${isNew ? "Create" : "Edit"} ${noun}`} action={isNew ? `Create ${noun}` : "Save"} {...props} />
);

interface Confirmation extends Pick<TaskDialogProps, "title" | "action" | "isDangerous"> {
  /** The consequences, in full sentences. */
  text: ComponentChildren;
  onConfirm: (form: HTMLFormElement) => Promise<void> | void;
}

const confirmation = signal<Confirmation | null>(null);
const dismiss = () => {
  confirmation.value = null;
};

/** Asks for confirmation before an action that can't be undone. */
export function confirmFirst(asked: Confirmation): void {
  confirmation.value = asked;
}

/** The dialog of `confirmFirst`. It closes if the page or the session changes. */
export function ConfirmDialog() {
  useEffect(dismiss, [path.value, session.value, isExpired.value]);
  if (!confirmation.value) return null;
  const { text, onConfirm, isDangerous = true, ...labels } = confirmation.value;
  const confirm = async (form: HTMLFormElement) => {
    await onConfirm(form);
    dismiss();
  };
  return (
    <TaskDialog key={labels.title} {...labels} isDangerous={isDangerous} onRun={confirm} onClose={dismiss}>
      {typeof text === "string" ? <p>{text}</p> : text}
    </TaskDialog>
  );
}
