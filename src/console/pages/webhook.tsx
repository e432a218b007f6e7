import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { FactCard } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { useEvents, useLoaded } from "../parts/loading.ts";
import { Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { useTask } from "../parts/task.ts";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href, navigate } from "../router.ts";
import { can, client } from "../session.ts";
import { type Attempt, AttemptFacts, Deliveries } from "./deliveries.tsx";
import { eventsOf, WebhookStatus } from "./webhooks.tsx";

/** A webhook with its deliveries. */
export function WebhookPage({ id }: { id: string }) {
  const loaded = useLoaded((signal) => client.value.webhooks.get(id, { signal }), [id]);
  const { value: webhook, error, reload } = loaded;
  const [secret, setSecret] = useState<string | null>(null);
  useEvents(({ subject }) => subject.id === id, reload);
  const back = <a href={href("/webhooks")}>← Webhooks</a>;
  if (!webhook || isMissing(error)) return <Unloaded noun="Webhook" of={loaded} back={back} />;
  const { url, description, createdAt } = webhook;
  return (
    <Page
      title={description || new URL(url).host}
      back={back}
      actions={<WebhookStatus webhook={webhook} />}
      call={{ path: `/auth/v1/webhooks/${id}/deliveries` }}
    >
      <Failure error={error} onRetry={reload} />
      <MissingScopes scopes={["webhooks:write"]} />
      {can("webhooks:write") && <Actions webhook={webhook} onChanged={reload} onSecret={setSecret} />}
      <FactCard
        title="Webhook"
        facts={{
          "Endpoint URL": <bdi>{url}</bdi>,
          Events: eventsOf(webhook),
          Created: <Time at={createdAt} />,
          ID: <Copyable text={id} label="ID" />,
        }}
      />
      <Deliveries id={id} />
      {secret && (
        <Secret title="New signing secret" noun="secret" secret={secret} onClose={() => setSecret(null)}>
          <p>Use this signing secret to verify that requests come from Stowage. Update your server now.</p>
        </Secret>
      )}
    </Page>
  );
}

interface ActionsProps {
  webhook: Webhook;
  onChanged: () => void;
  onSecret: (secret: string) => void;
}

function Actions({ webhook, onChanged, onSecret }: ActionsProps) {
  const { run, isRunning, error } = useTask();
  const [response, setResponse] = useState<Attempt | null>(null);
  const [isEditing, setEditing] = useState(false);
  const { _id, url, status } = webhook;
  const { webhooks } = client.value;
  const isEnabled = status === "enabled";
  const test = () =>
    run(async () => {
      setResponse(null);
      setResponse(await webhooks.test(_id));
    });
  const toggle = () =>
    run(async () => {
      await webhooks.update(_id, { status: isEnabled ? "disabled" : "enabled" });
      announce(isEnabled ? "Webhook disabled" : "Webhook enabled");
      onChanged();
    });
  const rotate = () => {
    let revokeOld = false;
    confirmFirst({
      title: "Rotate signing secret?",
      text: (
        <>
          <p>Both secrets stay valid for 24 hours so you can update your server.</p>
          <label>
            <input
              type="checkbox"
              onChange={(event) => {
                revokeOld = event.currentTarget.checked;
              }}
            />{" "}
            Revoke the old secret immediately
          </label>
        </>
      ),
      action: "Rotate secret",
      isDangerous: false,
      onConfirm: async () => onSecret((await webhooks.rotateSecret(_id, { revokeOld })).secret),
    });
  };
  const remove = () =>
    confirmFirst({
      title: "Delete this webhook?",
      text: `${url} will stop receiving events, and its delivery log will be deleted.`,
      action: "Delete webhook",
      onConfirm: async () => {
        await webhooks.delete(_id);
        announce("Webhook deleted");
        navigate(href("/webhooks"));
      },
    });
  return (
    <>
      <Failure error={error} />
      <div>
        <div class="actions">
          <button type="button" class="button primary" aria-disabled={isRunning} onClick={test}>
            Send test event
          </button>
          <button type="button" class="button" onClick={() => setEditing(true)}>
            Edit
          </button>
          <button type="button" class="button" aria-disabled={isRunning} onClick={toggle}>
            {isEnabled ? "Disable" : "Enable"}
          </button>
          <button type="button" class="button" onClick={rotate}>
            Rotate secret
          </button>
          <button type="button" class="button danger" onClick={remove}>
            Delete
          </button>
        </div>
        <div role="status" class="result">
          {response && (
            <div class="card stack">
              <h2>Test response</h2>
              <AttemptFacts attempt={response} />
            </div>
          )}
        </div>
      </div>
      {isEditing && (
        <WebhookForm
          webhook={webhook}
          onSave={async (changes) => {
            await webhooks.update(_id, changes);
            setEditing(false);
            announce("Webhook updated");
            onChanged();
          }}
          onClose={() => setEditing(false)}
        />
      )}
    </>
  );
}
