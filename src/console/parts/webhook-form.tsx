import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { EVENT_TYPES, EVENT_WORDS, type EventType } from "./event-types.ts";
import { Failure } from "./failure.tsx";
import { onSubmit, TextField, textOf } from "./form.tsx";
import { useTask } from "./task.ts";

interface WebhookFormProps {
  webhook?: Webhook;
  action: string;
  onSave: (wish: Pick<Webhook, "url" | "types" | "description">) => Promise<void>;
  onCancel?: () => void;
}

/** What a webhook is made of, or changed to. */
export function WebhookForm({ webhook, action, onSave, onCancel }: WebhookFormProps) {
  const { run, isRunning, error } = useTask();
  const [isAll, setAll] = useState(!webhook?.types);
  const save = (form: HTMLFormElement) =>
    run(() => {
      const types = new FormData(form).getAll("type") as EventType[];
      if (!isAll && types.length === 0) throw new Error("Choose one type of event at least.");
      return onSave({
        url: textOf(form, "url"),
        description: textOf(form, "description"),
        types: isAll ? null : types,
      });
    });
  return (
    <form class="stack" onSubmit={onSubmit(save)}>
      <TextField
        label="Address"
        name="url"
        type="url"
        required
        value={webhook?.url ?? ""}
        hint="Of your server, such as https://example.com/stowage."
      />
      <TextField label="Description" name="description" maxLength={200} value={webhook?.description ?? ""} />
      <fieldset class="choices">
        <legend>Events</legend>
        <label>
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> All, those
          of the future too
        </label>
        {!isAll &&
          EVENT_TYPES.map((type) => (
            <label key={type}>
              <input
                type="checkbox"
                name="type"
                value={type}
                defaultChecked={webhook?.types?.includes(type) ?? false}
              />{" "}
              {EVENT_WORDS[type]}
            </label>
          ))}
      </fieldset>
      <Failure error={error} />
      <div class="actions">
        {onCancel && (
          <button type="button" class="button" onClick={onCancel}>
            Cancel
          </button>
        )}
        <button type="submit" class="button primary" disabled={isRunning}>
          {action}
        </button>
      </div>
    </form>
  );
}
