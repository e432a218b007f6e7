import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { Refusal } from "../refusal.ts";
import { TaskDialog } from "./dialog.tsx";
import { EVENT_TYPES, EVENT_WORDS, type EventType } from "./event-types.ts";
import { TextField, textOf } from "./form.tsx";

interface WebhookFormProps {
  /** The one that is changed; none for a new one. */
  webhook?: Webhook;
  /** Saves, and closes the form. */
  onSave: (wish: Pick<Webhook, "url" | "types" | "description">) => Promise<void>;
  onClose: () => void;
}

/** What a webhook is made of, or changed to. */
export function WebhookForm({ webhook, onSave, onClose }: WebhookFormProps) {
  const [isAll, setAll] = useState(!webhook?.types);
  const save = (form: HTMLFormElement) => {
    const types = new FormData(form).getAll("type") as EventType[];
    if (!isAll && types.length === 0) throw new Refusal("Choose one type of event at least.");
    return onSave({ url: textOf(form, "url"), description: textOf(form, "description"), types: isAll ? null : types });
  };
  return (
    <TaskDialog
      title={webhook ? "Change webhook" : "Create webhook"}
      action={webhook ? "Save" : "Create webhook"}
      onRun={save}
      onClose={onClose}
    >
      <TextField
        label="Address"
        name="url"
        type="url"
        required
        defaultValue={webhook?.url ?? ""}
        hint="Of your server, such as https://example.com/stowage."
      />
      <TextField label="Description" name="description" maxLength={200} defaultValue={webhook?.description ?? ""} />
      <fieldset class="choices">
        <legend>Events</legend>
        <label>
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> All,
          future ones too
        </label>
        {!isAll &&
          EVENT_TYPES.map((type) => (
            <label key={type}>
              <input type="checkbox" name="type" value={type} defaultChecked={webhook?.types?.includes(type)} />{" "}
              {EVENT_WORDS[type]}
            </label>
          ))}
      </fieldset>
    </TaskDialog>
  );
}
