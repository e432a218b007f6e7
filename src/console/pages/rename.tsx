import { useLayoutEffect, useRef } from "preact/hooks";
import type { StoredFile } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { Form, TextField, textOf } from "../parts/form.tsx";
import { useTask } from "../parts/task.ts";
import { client } from "../session.ts";

interface RenameProps {
  file: Pick<StoredFile, "_id" | "name">;
  onRenamed: () => void;
  onClose: () => void;
}

/** Edits the name of a file in its place. Enter saves, and Escape cancels. */
export function Rename({ file: { _id, name }, onRenamed, onClose }: RenameProps) {
  const { run, isRunning, error } = useTask();
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
        onRenamed();
      }
      onClose();
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
            <button type="button" class="button ghost" onClick={onClose}>
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
          onKeyDown={(event) => event.key === "Escape" && onClose()}
        />
      </Form>
    </div>
  );
}
