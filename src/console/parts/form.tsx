import { type ComponentChildren, type ComponentProps, createContext } from "preact";
import { useContext, useEffect, useId, useRef, useState } from "preact/hooks";
import { fieldErrors } from "../framework/errors.ts";
import { Failure } from "./failure.tsx";

/** The text of a form's field, trimmed. */
export const textOf = (form: HTMLFormElement, name: string): string =>
  String(new FormData(form).get(name) ?? "").trim();

/** A password of a form, as it was typed: spaces around it belong to it. Empty if the form has none. */
export const passwordOf = (form: HTMLFormElement, name = "password"): string =>
  String(new FormData(form).get(name) ?? "");

/** Saves the fields that the user has changed, so that others' changes of the rest stay. Without a change, nothing. */
export async function saveChanges<Fields extends object>(
  before: Fields,
  fields: Fields,
  save: (changes: Partial<Fields>) => Promise<unknown>,
): Promise<void> {
  const isChanged = ([name, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(before[name as keyof Fields]);
  const changes = Object.entries(fields).filter(isChanged);
  if (changes.length > 0) await save(Object.fromEntries(changes) as Partial<Fields>);
}

type Submit = (form: HTMLFormElement, submitter: HTMLElement | null) => void;

const submitHandler = (submit: Submit) => (event: SubmitEvent) => {
  event.preventDefault();
  submit(event.currentTarget as HTMLFormElement, event.submitter);
};

const FormError = createContext<unknown>(null);

interface FormProps {
  id?: string | undefined;
  class?: string;
  /** The error of the last submission. Each field shows its own part, and the first invalid field gets the focus. */
  error: unknown;
  onSubmit: Submit;
  /** The buttons, shown below the error. */
  end: ComponentChildren;
  children: ComponentChildren;
}

/** A form that calls the API. Each field has the name of the API's field, so that errors find it. */
export function Form({ id, class: className = "stack", error, onSubmit, end, children }: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  // An effect, because the fields render their errors first.
  useEffect(() => form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus(), [error]);
  return (
    <FormError.Provider value={error}>
      <form ref={form} id={id} class={className} onSubmit={submitHandler(onSubmit)}>
        {children}
        <Failure error={error} form={form.current} />
        {end}
      </form>
    </FormError.Provider>
  );
}

/** The parts that all fields share: a label, and below the input either its error or its hint. */
function useField({ label, name, hint }: { label: string; name: string; hint?: string | undefined }) {
  const id = useId();
  const [problem] = fieldErrors(useContext(FormError), name);
  const noteId = (problem ?? hint) ? `${id}-note` : undefined;
  return {
    attributes: { id, name, "aria-describedby": noteId, "aria-invalid": problem !== undefined || undefined },
    wrap: (input: ComponentChildren) => (
      <div class="field">
        <label for={id}>{label}</label>
        {input}
        {noteId && (
          <p id={noteId} class={problem ? "problem" : "hint"}>
            {problem ?? hint}
          </p>
        )}
      </div>
    ),
  };
}

type InputProps = Pick<
  ComponentProps<"input">,
  | "accept"
  | "autocomplete"
  | "defaultValue"
  | "max"
  | "maxLength"
  | "min"
  | "minLength"
  | "onInput"
  | "onKeyDown"
  | "pattern"
  | "placeholder"
  | "required"
  | "spellcheck"
  | "step"
  | "value"
> & {
  label: string;
  name: string;
  type?: "email" | "password" | "text" | "url" | "search" | "datetime-local" | "date" | "number" | "file";
  hint?: string;
  /** The id of a datalist with suggestions. */
  list?: string;
};

/** A labeled text input. */
export function TextField({ label, hint, ...input }: InputProps) {
  const { attributes, wrap } = useField({ label, name: input.name, hint });
  return wrap(<input autocomplete="off" {...attributes} {...(input as object)} />);
}

/** A field for a password or key, which is hidden unless the user wants to see it. */
export function SecretField(input: InputProps) {
  const [isShown, setShown] = useState(false);
  return (
    <>
      <TextField {...input} type={isShown ? "text" : "password"} spellcheck={false} required />
      <label class="quiet">
        <input type="checkbox" checked={isShown} onChange={() => setShown(!isShown)} /> Show what I type
      </label>
    </>
  );
}

interface SelectProps {
  label: string;
  name: string;
  hint?: string;
  /** The labels of the options by value. */
  options: Record<string, string>;
  /** The option that is chosen at first, if the form reads the field only when it is sent. */
  chosen?: string | undefined;
  /** The option that is chosen now, which `onChange` changes. */
  value?: string;
  onChange?: (value: string) => void;
}

/** A labeled list of options. */
export function SelectField({ label, name, hint, options, chosen, value, onChange }: SelectProps) {
  const { attributes, wrap } = useField({ label, name, hint });
  return wrap(
    <select {...attributes} value={value} onChange={(event) => onChange?.(event.currentTarget.value)}>
      {Object.entries(options).map(([option, text]) => (
        <option key={option} value={option} selected={option === (value ?? chosen)}>
          {text}
        </option>
      ))}
    </select>,
  );
}
