import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { UserError } from "../user-error.ts";
import { RecordDialog } from "./dialog.tsx";
import { EVENT_LABELS, EVENT_TYPES, type EventType } from "./event-types.ts";
import { TextField, textOf } from "./form.tsx";

interface WebhookFormProps {
  /** The webhook to edit; undefined for a new one. */
  webhook?: Webhook;
  /** Saves and closes the form. */
  onSave: (fields: Pick<Webhook, "url" | "types" | "description">) => Promise<void>;
  onClose: () => void;
}

/** The form for creating and editing a webhook. */
export function WebhookForm({ webhook, onSave, onClose }: WebhookFormProps) {
  const [isAll, setAll] = useState(!webhook?.types);
  const save = (form: HTMLFormElement) => {
    const types = new FormData(form).getAll("type") as EventType[];
    if (!isAll && types.length === 0) throw new UserError("Select at least one event.");
    return onSave({ url: textOf(form, "url"), description: textOf(form, "description"), types: isAll ? null : types });
  };
  return (
    <RecordDialog noun="webhook" isNew={!webhook} onRun={save} onClose={onClose}>
      <TextField
        label="Endpoint URL"
        name="url"
        type="url"
        required
        defaultValue={webhook?.url ?? ""}
        hint="For example, https://example.com/webhooks/stowage"
      />
      <TextField label="Description" name="description" maxLength={200} defaultValue={webhook?.description ?? ""} />
      <fieldset class="choices">
        <legend>Events</legend>
        <label>
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> All
          events, including new ones added later
        </label>
        {!isAll &&
          EVENT_TYPES.map((type) => (
            <label key={type}>
              <input type="checkbox" name="type" value={type} defaultChecked={webhook?.types?.includes(type)} />{" "}
              {EVENT_LABELS[type]}
            </label>
          ))}
      </fieldset>
    </RecordDialog>
  );
}
