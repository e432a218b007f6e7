import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { FileMetadata } from "../../client/index.ts";
import { announce } from "../framework/announce.tsx";
import { open, TaskDialog } from "../framework/dialog.tsx";
import { can, client } from "../framework/session.ts";
import { TextField, textOf } from "../parts/form.tsx";
import { localMinute } from "../parts/format.ts";
import { Time } from "../parts/values.tsx";

/** A value of the metadata as the form shows it: text as it is, everything else as JSON. */
const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** The value of a field: JSON if it is valid, otherwise text. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The reference and the fields that apps have set, and the time of the deletion. */
export const metadataFacts = ({
  reference,
  deleteAfter,
  metadata,
}: FileMetadata): Record<string, ComponentChildren> => ({
  Reference: reference && <bdi>{reference}</bdi>,
  ...Object.fromEntries(
    Object.entries(metadata as Record<string, unknown>).map(([name, value]) => [name, <bdi>{shown(value)}</bdi>]),
  ),
  Deletion: deleteAfter && (
    <>
      Will be deleted on <Time at={deleteAfter} />
    </>
  ),
});

interface DetailsProps {
  file: FileMetadata;
}

export const EditDetails = ({ file }: DetailsProps) =>
  can("files:write") && (
    <button
      type="button"
      class="button ghost link"
      onClick={() => open((close) => <DetailsForm file={file} onClose={() => close()} />)}
    >
      Edit<span class="visually-hidden"> details</span>
    </button>
  );

/** Edits the reference, the time of the deletion, and a field in each row. A row without a name is removed. */
function DetailsForm({
  file: { _id, reference, deleteAfter, metadata },
  onClose,
}: DetailsProps & { onClose: () => void }) {
  const before = Object.entries(metadata as Record<string, unknown>).map(([name, value]) => ({
    name,
    text: shown(value),
  }));
  const deletionBefore = deleteAfter ? localMinute(deleteAfter) : "";
  const [rows, setRows] = useState([...before, { name: "", text: "" }]);
  const save = async (form: HTMLFormElement) => {
    const changes: Record<string, unknown> = {};
    for (const { name } of before) if (!rows.some((row) => row.name === name)) changes[name] = null;
    for (const { name, text } of rows) {
      // An unchanged value keeps its type.
      const isSame = before.some((row) => row.name === name && row.text === text);
      if (name && !isSame) changes[name] = parse(text);
    }
    const deletion = textOf(form, "deleteAfter");
    await client.value.files.update(_id, {
      // The field has no seconds.
      ...(deletion !== deletionBefore && { deleteAfter: deletion ? new Date(deletion).toISOString() : null }),
      reference: textOf(form, "reference") || null,
      ...(Object.keys(changes).length > 0 && { metadata: changes }),
    });
    onClose();
    announce("Details saved");
  };
  const change = (place: number, row: Partial<(typeof rows)[number]>) =>
    setRows(rows.map((one, at) => (at === place ? { ...one, ...row } : one)));
  return (
    <TaskDialog title="Edit details" action="Save" onRun={save} onClose={onClose}>
      <TextField
        label="Reference"
        name="reference"
        maxLength={128}
        spellcheck={false}
        defaultValue={reference ?? ""}
        hint="Your own ID of this file."
      />
      <TextField
        label="Delete automatically on"
        name="deleteAfter"
        type="datetime-local"
        defaultValue={deletionBefore}
        hint="When the file is deleted. If empty, it is kept."
      />
      <fieldset class="key-values">
        <legend>Fields</legend>
        {rows.map(({ name, text }, place) => (
          <div key={place} class="field">
            <input
              aria-label={`Name of field ${place + 1}`}
              placeholder="Name"
              value={name}
              spellcheck={false}
              onInput={({ currentTarget }) => change(place, { name: currentTarget.value })}
            />
            <input
              aria-label={`Value of field ${place + 1}`}
              placeholder="Value"
              value={text}
              onInput={({ currentTarget }) => change(place, { text: currentTarget.value })}
            />
          </div>
        ))}
        <button type="button" class="button ghost start" onClick={() => setRows([...rows, { name: "", text: "" }])}>
          Add field
        </button>
      </fieldset>
      <p class="quiet">Numbers, true, false, and JSON keep their types. To remove a field, clear its name.</p>
    </TaskDialog>
  );
}
