import { useState } from "preact/hooks";
import type { EventType, Webhook } from "../../client/index.ts";
import { EVENT_TYPES, labelOf } from "../events/event-types.ts";
import { announce } from "../framework/announce.tsx";
import { ask, open, removeRecord, TaskDialog } from "../framework/dialog.tsx";
import { UserError } from "../framework/errors.ts";
import { client } from "../framework/session.ts";
import { NOUNS } from "../nouns.ts";
import { saveChanges, TextField, textOf } from "../parts/form.tsx";
import { showSecret } from "../parts/secret.tsx";

/* The dialogs that change webhooks. */

type Fields = Pick<Webhook, "url" | "types" | "description">;

export async function createWebhook(): Promise<void> {
  const created = await open<{ secret: string }>((close) => (
    <WebhookForm
      title="Create webhook"
      action="Create webhook"
      onSave={async (fields) => close(await client.value.webhooks.create(fields))}
      onClose={() => close()}
    />
  ));
  if (!created) return;
  const text = <p>Use this signing secret to verify that requests come from Stowage.</p>;
  await showSecret({ title: "Webhook created", noun: "secret", secret: created.secret, text });
}

export const editWebhook = (webhook: Webhook) =>
  open((close) => (
    <WebhookForm
      title="Edit webhook"
      action="Save"
      webhook={webhook}
      onSave={async (fields) => {
        await saveChanges<Fields>(webhook, fields, (changes) => client.value.webhooks.update(webhook._id, changes));
        close();
        announce("Webhook updated");
      }}
      onClose={() => close()}
    />
  ));

export async function rotateSecret({ _id }: Webhook): Promise<void> {
  const secret = await ask({
    title: "Rotate signing secret?",
    text: (
      <>
        <p>Both secrets stay valid for 24 hours so you can update your server.</p>
        <label>
          <input type="checkbox" name="revokeOld" /> Revoke the old secret immediately
        </label>
      </>
    ),
    action: "Rotate secret",
    run: async (form) => {
      const revokeOld = new FormData(form).has("revokeOld");
      return (await client.value.webhooks.rotateSecret(_id, { revokeOld })).secret;
    },
  });
  if (!secret) return;
  const text = <p>Use this signing secret to verify that requests come from Stowage. Update your server now.</p>;
  await showSecret({ title: "New signing secret", noun: "secret", secret, text });
}

export const deleteWebhook = ({ _id, url }: Webhook) =>
  removeRecord({
    id: _id,
    title: "Delete this webhook?",
    text: `${url} will stop receiving events, and its delivery log will be deleted.`,
    action: "Delete webhook",
    run: () => client.value.webhooks.delete(_id),
    done: "Webhook deleted",
  });

interface WebhookFormProps {
  title: string;
  action: string;
  webhook?: Webhook;
  onSave: (fields: Fields) => Promise<void>;
  onClose: () => void;
}

function WebhookForm({ webhook, onSave, onClose, ...labels }: WebhookFormProps) {
  const [isAll, setAll] = useState(!webhook?.types);
  const save = (form: HTMLFormElement) => {
    const types = new FormData(form).getAll("type") as EventType[];
    if (!isAll && types.length === 0) throw new UserError("Select at least one event.");
    return onSave({ url: textOf(form, "url"), description: textOf(form, "description"), types: isAll ? null : types });
  };
  return (
    <TaskDialog {...labels} onRun={save} onClose={onClose}>
      <TextField
        label="Endpoint URL"
        name="url"
        type="url"
        required
        defaultValue={webhook?.url ?? ""}
        hint="For example, https://example.com/webhooks/stowage"
      />
      <TextField label="Description" name="description" maxLength={200} defaultValue={webhook?.description ?? ""} />
      <label>
        <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> All events,
        including new ones added later
      </label>
      {!isAll &&
        Object.entries(NOUNS).map(([noun, { plural }]) => (
          <fieldset key={noun} class="choices">
            <legend>{plural}</legend>
            {EVENT_TYPES.filter((type) => type.startsWith(`${noun}.`)).map((type) => (
              <label key={type}>
                <input type="checkbox" name="type" value={type} defaultChecked={webhook?.types?.includes(type)} />{" "}
                {labelOf(type)}
              </label>
            ))}
          </fieldset>
        ))}
    </TaskDialog>
  );
}
