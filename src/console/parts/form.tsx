import { type ComponentChildren, type ComponentProps, createContext } from "preact";
import { type Inputs, useContext, useEffect, useId, useRef } from "preact/hooks";
import { Failure, problemsOf } from "./failure.tsx";

/** The text of a form's field, without the white space around it. */
export const textOf = (form: HTMLFormElement, name: string): string =>
  String(new FormData(form).get(name) ?? "").trim();

const onSubmit = (send: (form: HTMLFormElement) => void) => (event: SubmitEvent) => {
  event.preventDefault();
  send(event.currentTarget as HTMLFormElement);
};

const FormError = createContext<unknown>(null);

interface FormProps {
  class?: string;
  /** How it failed: each field says what is wrong with it, and the first has the focus. */
  error: unknown;
  onSend: (form: HTMLFormElement) => void;
  /** Its buttons, below what failed. */
  end: ComponentChildren;
  children: ComponentChildren;
}

/** A form that sends something, and nothing of the browser's own. A field's name is that of the service's. */
export function Form({ class: kind = "stack", error, onSend, end, children }: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  // Once the fields have heard of it, which may be after this is drawn.
  useEffect(() => form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus(), [error]);
  return (
    <FormError.Provider value={error}>
      <form ref={form} class={kind} onSubmit={onSubmit(onSend)}>
        {children}
        <Failure error={error} form={form.current} />
        {end}
      </form>
    </FormError.Provider>
  );
}

/** What any field has: its label, and below it what was refused, and a hint. */
function useField({ label, name, hint }: { label: string; name: string; hint?: string | undefined }) {
  const id = useId();
  const notes = problemsOf(useContext(FormError), name);
  const noteId = hint || notes.length > 0 ? `${id}-notes` : undefined;
  return {
    attributes: { id, name, "aria-describedby": noteId, "aria-invalid": notes.length > 0 || undefined },
    wrap: (input: ComponentChildren) => (
      <div class="field">
        <label for={id}>{label}</label>
        {input}
        {noteId && (
          <div id={noteId}>
            {notes.map((note) => (
              <p key={note} class="problem">
                {note}
              </p>
            ))}
            {hint && <p class="hint">{hint}</p>}
          </div>
        )}
      </div>
    ),
  };
}

type InputProps = Pick<
  ComponentProps<"input">,
  | "autocomplete"
  | "defaultValue"
  | "max"
  | "maxLength"
  | "min"
  | "minLength"
  | "onInput"
  | "placeholder"
  | "required"
  | "spellcheck"
  | "value"
> & {
  label: string;
  name: string;
  type?: "email" | "password" | "text" | "url" | "search" | "datetime-local" | "date" | "number";
  hint?: string;
};

/** One line of text with its label. `defaultValue` is what it holds at first; `value` replaces what was typed. */
export function TextField({ label, hint, ...input }: InputProps) {
  const { attributes, wrap } = useField({ label, name: input.name, hint });
  return wrap(<input autocomplete="off" {...attributes} {...(input as object)} />);
}

/** One of several, with its label. */
export function SelectField({
  label,
  name,
  value,
  onChange,
  children,
}: {
  label: string;
  name: string;
  value?: string;
  onChange?: (value: string) => void;
  children: ComponentChildren;
}) {
  const { attributes, wrap } = useField({ label, name });
  return wrap(
    <select {...attributes} value={value} onChange={(event) => onChange?.(event.currentTarget.value)}>
      {children}
    </select>,
  );
}

/** The filters of a list. They show what the address says, whatever was typed before it changed. */
export function FilterForm({
  values,
  onFilter,
  children,
}: {
  values: Inputs;
  onFilter: (form: HTMLFormElement) => void;
  children: ComponentChildren;
}) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => form.current?.reset(), values);
  return (
    <form ref={form} class="filters" onSubmit={onSubmit(onFilter)}>
      {children}
    </form>
  );
}
