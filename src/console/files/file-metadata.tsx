import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { FileMetadata } from "../../client/index.ts";
import { announce } from "../framework/announce.tsx";
import { open, TaskDialog } from "../framework/dialog.tsx";
import { can, client } from "../framework/session.ts";
import { Facts } from "../parts/facts.tsx";
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

const isEmpty = ({ reference, metadata, deleteAfter }: FileMetadata) =>
  !reference && !deleteAfter && Object.keys(metadata).length === 0;

interface MetadataProps {
  file: FileMetadata;
}

/** The reference and the metadata that apps have set, which can be edited, as can the time of the deletion. */
export function Metadata({ file }: MetadataProps) {
  if (isEmpty(file)) return null;
  const { reference, deleteAfter } = file;
  const metadata: Record<string, unknown> = file.metadata;
  return (
    <section class="card stack" aria-labelledby="metadata">
      <header class="page-header">
        <h2 id="metadata">Metadata</h2>
        <EditButton file={file}>
          Edit<span class="visually-hidden"> metadata</span>
        </EditButton>
      </header>
      <Facts
        facts={{
          Reference: reference && <bdi>{reference}</bdi>,
          ...Object.fromEntries(Object.entries(metadata).map(([name, value]) => [name, <bdi>{shown(value)}</bdi>])),
          Deletion: deleteAfter && (
            <>
              Will be deleted on <Time at={deleteAfter} />
            </>
          ),
        }}
      />
    </section>
  );
}

/** Stands for the metadata of a file that has none. */
export const AddFields = (props: MetadataProps) =>
  isEmpty(props.file) ? <EditButton {...props}>Add fields</EditButton> : null;

const EditButton = ({ file, children }: MetadataProps & { children: ComponentChildren }) =>
  can("files:write") ? (
    <button
      type="button"
      class="button ghost link start"
      onClick={() => open((close) => <MetadataForm file={file} onClose={() => close()} />)}
    >
      {children}
    </button>
  ) : null;

/** Edits the reference, the time of the deletion, and a field in each row. A row without a name is removed. */
function MetadataForm({
  file: { _id, reference, deleteAfter, metadata },
  onClose,
}: MetadataProps & { onClose: () => void }) {
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
    announce("Metadata saved");
  };
  const change = (place: number, row: Partial<(typeof rows)[number]>) =>
    setRows(rows.map((one, at) => (at === place ? { ...one, ...row } : one)));
  return (
    <TaskDialog title="Edit metadata" action="Save" onRun={save} onClose={onClose}>
      <TextField
        label="Reference"
        name="reference"
        maxLength={128}
        spellcheck={false}
        defaultValue={reference ?? ""}
        hint="Your own ID of this file."
      />
      <TextField
        label="Delete on"
        name="deleteAfter"
        type="datetime-local"
        defaultValue={deletionBefore}
        hint="When the file is deleted. If empty, it is kept."
      />
      <fieldset class="key-values">
        <legend>Fields</legend>
        {rows.map(({ name, text }, place) => (
          <div key={place}>
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
