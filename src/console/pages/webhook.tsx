import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { FactCard } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { Menu } from "../parts/menu.tsx";
import { Breadcrumbs, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { useTask } from "../parts/task.ts";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href, navigate } from "../router.ts";
import { can, client } from "../session.ts";
import { useData, whilePaused } from "../store.ts";
import { AttemptFacts, Deliveries, type ReplayKind } from "./deliveries.tsx";
import type { Attempt } from "./webhook-health.tsx";
import { eventsOf, nameOf } from "./webhooks.tsx";

/** A webhook with its deliveries. */
export function WebhookPage({ id }: { id: string }) {
  const loaded = useData(`webhook ${id}`, (signal) => client.value.webhooks.get(id, { signal }), {
    on: ({ subject }) => subject.id === id,
    isPolled: true,
  });
  const { value: webhook, error, reload } = loaded;
  const [secret, setSecret] = useState<string | null>(null);
  const { run, isRunning, error: failure } = useTask();
  const [response, setResponse] = useState<Attempt | null>(null);
  const [isEditing, setEditing] = useState(false);
  const [replay, setReplay] = useState<ReplayKind | null>(null);
  const list = { href: href("/webhooks"), label: "Webhooks" };
  if (!webhook || isMissing(error))
    return <Unloaded noun="Webhook" of={loaded} back={<a href={list.href}>Back to webhooks</a>} />;
  const { url, createdAt, status } = webhook;
  const { webhooks } = client.value;
  const isEnabled = status === "enabled";
  const test = () =>
    run(async () => {
      setResponse(null);
      setResponse(await webhooks.test(id));
    });
  const toggle = () =>
    run(async () => {
      await webhooks.update(id, { status: isEnabled ? "disabled" : "enabled" });
      announce(isEnabled ? "Webhook disabled" : "Webhook enabled");
      reload();
    });
  return (
    <Page
      title={nameOf(webhook)}
      back={<Breadcrumbs links={[list]} />}
      subtitle={<bdi>{url}</bdi>}
      call={{ path: `/auth/v1/webhooks/${id}/deliveries` }}
      actions={
        can("webhooks:write") && (
          <>
            <button type="button" class="button" aria-disabled={isRunning} onClick={test}>
              Send test event
            </button>
            <Menu
              label="Actions for this webhook"
              items={[
                { label: "Edit", icon: "edit", onSelect: () => setEditing(true) },
                { label: "Replay…", onSelect: () => setReplay("since") },
                { label: "Rotate secret", icon: "refresh", onSelect: () => rotateSecret(id, setSecret) },
                { label: isEnabled ? "Disable" : "Enable", onSelect: () => void toggle() },
                { label: "Delete", icon: "trash", isDangerous: true, onSelect: () => remove(webhook) },
              ]}
            />
          </>
        )
      }
    >
      <Failure error={error} onRetry={reload} />
      <Failure error={failure} />
      <MissingScopes scopes={["webhooks:write"]} />
      <div role="status" class="result">
        {response && (
          <div class="card stack">
            <h2>Test response</h2>
            <AttemptFacts attempt={response} />
          </div>
        )}
      </div>
      <Deliveries webhook={webhook} onChanged={reload} replay={replay} onReplay={setReplay} />
      <FactCard
        title="Webhook"
        facts={{
          "Endpoint URL": <bdi>{url}</bdi>,
          Events: eventsOf(webhook),
          Created: <Time at={createdAt} />,
          ID: <Copyable text={id} label="ID" />,
        }}
      />
      {isEditing && (
        <WebhookForm
          webhook={webhook}
          onSave={async (changes) => {
            await webhooks.update(id, changes);
            setEditing(false);
            announce("Webhook updated");
            reload();
          }}
          onClose={() => setEditing(false)}
        />
      )}
      {secret && (
        <Secret title="New signing secret" noun="secret" secret={secret} onClose={() => setSecret(null)}>
          <p>Use this signing secret to verify that requests come from Stowage. Update your server now.</p>
        </Secret>
      )}
    </Page>
  );
}

function rotateSecret(id: string, onSecret: (secret: string) => void): void {
  confirmFirst({
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
    isDangerous: false,
    onConfirm: async (form) => {
      const revokeOld = new FormData(form).has("revokeOld");
      onSecret((await client.value.webhooks.rotateSecret(id, { revokeOld })).secret);
    },
  });
}

function remove({ _id, url }: Webhook): void {
  confirmFirst({
    title: "Delete this webhook?",
    text: `${url} will stop receiving events, and its delivery log will be deleted.`,
    action: "Delete webhook",
    onConfirm: async () => {
      await whilePaused([_id], async () => {
        await client.value.webhooks.delete(_id);
        return [];
      });
      announce("Webhook deleted");
      navigate(href("/webhooks"));
    },
  });
}
