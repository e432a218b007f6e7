import type { ComponentChildren, ComponentProps } from "preact";
import { type Inputs, useEffect, useId, useRef } from "preact/hooks";

/** The text of a form's field, without the white space around it. */
export const textOf = (form: HTMLFormElement, name: string): string =>
  String(new FormData(form).get(name) ?? "").trim();

/** What every form does when it is sent: nothing of the browser's own. */
export const onSubmit = (send: (form: HTMLFormElement) => void) => (event: SubmitEvent) => {
  event.preventDefault();
  send(event.currentTarget as HTMLFormElement);
};

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
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} autocomplete="off" {...(hint && { "aria-describedby": `${id}-hint` })} {...(input as object)} />
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
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
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} name={name} value={value} onChange={(event) => onChange?.(event.currentTarget.value)}>
        {children}
      </select>
    </div>
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
