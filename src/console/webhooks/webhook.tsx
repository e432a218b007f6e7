import { useState } from "preact/hooks";
import type { Webhook } from "../../client/index.ts";
import type { Action } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { Copyable } from "../parts/copy.tsx";
import { copyAsCurl } from "../parts/curl.tsx";
import { FactCard } from "../parts/facts.tsx";
import { RecordPage } from "../parts/record-page.tsx";
import { Time } from "../parts/values.tsx";
import { AttemptFacts, Deliveries, replay } from "./deliveries.tsx";
import { deleteWebhook, editWebhook, rotateSecret } from "./webhook-forms.tsx";
import type { Attempt } from "./webhook-health.tsx";
import { nameOfWebhook } from "./webhook-name.ts";
import { eventsOf } from "./webhooks.tsx";

const toggle = async ({ _id, status }: Webhook) => {
  const isEnabled = status === "enabled";
  await client.value.webhooks.update(_id, { status: isEnabled ? "disabled" : "enabled" });
  announce(isEnabled ? "Webhook disabled" : "Webhook enabled");
};

const actionsOf = (webhook: Webhook): Action[] => {
  const scope = "webhooks:write";
  return [
    { label: "Edit", icon: "edit", scope, run: () => editWebhook(webhook) },
    { label: "Replay", scope, run: () => replay(webhook, "since") },
    { label: "Rotate secret", icon: "refresh", scope, run: () => rotateSecret(webhook) },
    { label: webhook.status === "enabled" ? "Disable" : "Enable", scope, run: () => toggle(webhook) },
    copyAsCurl({ path: `/auth/v1/webhooks/${webhook._id}/deliveries` }),
    { label: "Delete", icon: "trash", scope, isDangerous: true, run: () => deleteWebhook(webhook) },
  ];
};

/** A webhook with its deliveries. */
export function WebhookPage({ id }: { id: string }) {
  const loaded = useData(["webhook", id], (signal) => client.value.webhooks.get(id, { signal }), {
    of: ["webhook"],
    on: ({ subject }) => subject.id === id,
    isPolled: true,
  });
  const [response, setResponse] = useState<Attempt | null>(null);
  const test = async () => {
    setResponse(null);
    setResponse(await client.value.webhooks.test(id));
  };
  return (
    <RecordPage
      noun="Webhook"
      list={{ href: href("/webhooks"), label: "Webhooks" }}
      of={loaded}
      titleOf={nameOfWebhook}
      subtitle={({ url }) => <bdi>{url}</bdi>}
      buttons={() => [{ label: "Send test event", scope: "webhooks:write", run: test }]}
      actions={actionsOf}
      scopes={["webhooks:write"]}
    >
      {(webhook) => (
        <>
          <div role="status" class="result">
            {response && (
              <div class="card stack">
                <AttemptFacts label="Test event:" attempt={response} />
              </div>
            )}
          </div>
          <Deliveries webhook={webhook} />
          <FactCard
            title="Webhook"
            facts={{
              "Endpoint URL": <bdi>{webhook.url}</bdi>,
              Events: eventsOf(webhook),
              Created: <Time at={webhook.createdAt} />,
              ID: <Copyable text={id} label="ID" />,
            }}
          />
        </>
      )}
    </RecordPage>
  );
}
