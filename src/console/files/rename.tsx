import { useLayoutEffect, useRef } from "preact/hooks";
import type { StoredFile } from "../../client/index.ts";
import { announce } from "../framework/announce.tsx";
import { focusRow } from "../framework/focus.ts";
import { client } from "../framework/session.ts";
import { pageSignal } from "../framework/signals.ts";
import { useTask } from "../framework/task.ts";
import { Form, TextField, textOf } from "../parts/form.tsx";

/** The file whose name is being edited. */
export const renaming = pageSignal("");

/** Edits the name of a file in its place. Enter saves, and Escape cancels. */
export function Rename({ file: { _id, name } }: { file: Pick<StoredFile, "_id" | "name"> }) {
  const { run, isRunning, error } = useTask();
  const close = () => {
    renaming.value = "";
    const row = container.current?.closest("tr");
    if (row) setTimeout(() => focusRow(row));
  };
  const container = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const input = container.current?.querySelector("input");
    input?.focus();
    // Without its extension.
    input?.setSelectionRange(0, name.lastIndexOf(".") > 0 ? name.lastIndexOf(".") : name.length);
  }, []);
  const save = (form: HTMLFormElement) =>
    run(async () => {
      const changed = textOf(form, "name");
      if (changed !== name) {
        await client.value.files.update(_id, { name: changed });
        announce(`Renamed to ${changed}`);
      }
      close();
    });
  return (
    <div ref={container} class="rename">
      <Form
        class="actions"
        error={error}
        onSubmit={save}
        end={
          <>
            <button type="submit" class="button" aria-disabled={isRunning}>
              Save
            </button>
            <button type="button" class="button ghost" onClick={close}>
              Cancel
            </button>
          </>
        }
      >
        <TextField
          label={`New name of ${name}`}
          name="name"
          defaultValue={name}
          required
          spellcheck={false}
          onKeyDown={(event) => event.key === "Escape" && close()}
        />
      </Form>
    </div>
  );
}
