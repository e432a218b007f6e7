import { signal } from "@preact/signals";
import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { Form } from "../parts/form.tsx";
import { Announcements, announce, openDialogs } from "./announce.tsx";
import { lastUrl, navigate, path } from "./router.ts";
import { isExpired, session } from "./session.ts";
import { whilePaused } from "./store.ts";
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
    const { clientWidth, style } = document.documentElement;
    // Only for a scrollbar that takes room. Otherwise it would be a margin of the page.
    if (openDialogs.peek() === 0) style.scrollbarGutter = innerWidth > clientWidth ? "stable" : "auto";
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

/**
 * A dialog with one action. While the action runs, nothing but the end of the session closes it, so that its result is always
 * shown: it stays above the page that the user goes to.
 */
export function TaskDialog(props: TaskDialogProps) {
  const { title, action, isDangerous, isDisabled = false, onRun, onStop, onClose, children } = props;
  const { run, isRunning, error } = useTask();
  const own = useContext(OwnDialog);
  const close = () => (isRunning ? onStop?.() : onClose());
  const submit = (form: HTMLFormElement) =>
    run(async () => {
      own.isRunning = true;
      try {
        await onRun(form);
      } finally {
        own.isRunning = false;
      }
    });
  return (
    <Dialog title={title} onClose={close}>
      <Form
        error={error}
        onSubmit={submit}
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

interface OpenDialog {
  id: number;
  content: ComponentChildren;
  close: () => void;
  isRunning: boolean;
}

/** The dialog that a component is in. */
const OwnDialog = createContext({ isRunning: false });
/** The dialogs that are open, the latest last. */
const stack = signal<OpenDialog[]>([]);
let latestId = 0;

/**
 * Opens a dialog above the page, and above other dialogs. It closes if the session changes, and with the page unless its
 * action runs.
 * @param render gets the function that closes it with a result
 * @returns the result; undefined if the user dismisses it
 */
export function open<Result = void>(
  render: (close: (result?: Result) => void) => ComponentChildren,
): Promise<Result | undefined> {
  return new Promise((resolve) => {
    const id = ++latestId;
    const close = (result?: Result) => {
      stack.value = stack.peek().filter((one) => one.id !== id);
      resolve(result);
    };
    stack.value = [...stack.peek(), { id, content: render(close), close, isRunning: false }];
  });
}

/** Closes the dialogs of a page or a session that has ended. One whose action runs ends only with the session. */
function closeDialogs(): void {
  const hasSession = session.peek() !== null && !isExpired.peek();
  for (const { close, isRunning } of stack.peek()) if (!isRunning || !hasSession) close();
}

/** The place of all dialogs. */
export function Dialogs() {
  useEffect(() => {
    const ends = [path.subscribe(closeDialogs), session.subscribe(closeDialogs), isExpired.subscribe(closeDialogs)];
    return () => {
      for (const end of ends) end();
    };
  }, []);
  return (
    <>
      {stack.value.map((one) => (
        <OwnDialog.Provider key={one.id} value={one}>
          {one.content}
        </OwnDialog.Provider>
      ))}
    </>
  );
}

interface Question<Result> extends Pick<TaskDialogProps, "title" | "action" | "isDangerous"> {
  /** The consequences in full sentences, or the fields of a form. */
  text: ComponentChildren;
  /** Called by the button. If it throws, the dialog stays open and shows the error. */
  run: (form: HTMLFormElement) => Promise<Result> | Result;
  /** The announcement of the success. */
  done?: string | ((result: Result) => string);
}

/** Asks before an action, or for what it needs. @returns its result; undefined if the user cancels it */
export const ask = <Result,>({ text, run, done, ...labels }: Question<Result>): Promise<Result | undefined> =>
  open<Result>((close) => (
    <TaskDialog
      {...labels}
      onRun={async (form) => {
        const result = await run(form);
        close(result);
        if (done) announce(typeof done === "string" ? done : done(result));
      }}
      onClose={close}
    >
      {typeof text === "string" ? <p>{text}</p> : text}
    </TaskDialog>
  ));

/** Asks before an action that can't be undone. */
export const confirm = <Result,>(question: Question<Result>): Promise<Result | undefined> =>
  ask({ isDangerous: true, ...question });

/** Asks before a record is deleted by `run`, and leaves its page for the list. */
export const removeRecord = ({ id, run, ...question }: Question<unknown> & { id: string }): Promise<unknown> =>
  confirm({
    ...question,
    run: async (form) => {
      await whilePaused([id], async () => {
        await run(form);
        return [];
      });
      const page = `/${id}`;
      if (path.peek().endsWith(page)) navigate(lastUrl(path.peek().slice(0, -page.length) || "/"), { isGone: true });
    },
  });
