import { useEffect, useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { EVENT_WORDS } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href } from "../router.ts";
import { client } from "../session.ts";

const REASONS = {
  requested: "Disabled",
  gone: "Disabled: its receiver said that it is gone",
  failing: "Disabled: no success for five days",
};

export function WebhookStatus({ webhook: { status, disabledReason } }: { webhook: Webhook }) {
  if (status === "enabled") return <span class="badge good">Enabled</span>;
  return <span class="badge bad">{REASONS[disabledReason ?? "requested"]}</span>;
}

export const wantedBy = ({ types }: Webhook): string => types?.map((type) => EVENT_WORDS[type]).join(", ") ?? "All";

export function Webhooks() {
  const webhooks = useLoaded((signal) => client.value.webhooks.list({ signal }), []);
  const [isMaking, setMaking] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  useEffect(() => onEvent(({ subject }) => subject.kind === "webhook" && webhooks.reload()), [webhooks.reload]);
  const create = (
    <button type="button" class="button primary" onClick={() => setMaking(true)}>
      Create webhook
    </button>
  );
  return (
    <Page title="Webhooks" actions={create}>
      <Failure error={webhooks.error} onRetry={webhooks.reload} />
      {webhooks.value?.length === 0 && (
        <Empty title="No webhooks yet">
          <p>
            A webhook tells a server of yours what happens here as it happens, such as that a file was processed: by a
            signed request for each event. Create one with the address of your server.
          </p>
        </Empty>
      )}
      {webhooks.value && webhooks.value.length > 0 && (
        <Table columns={["Address", "Events", "Status", "Created"]}>
          {webhooks.value.map((webhook) => (
            <tr key={webhook._id}>
              <th scope="row">
                <a href={href(`/webhooks/${webhook._id}`)}>{webhook.url}</a>
                {webhook.description && (
                  <p class="quiet">
                    <bdi>{webhook.description}</bdi>
                  </p>
                )}
              </th>
              <td data-label="Events">{wantedBy(webhook)}</td>
              <td data-label="Status">
                <WebhookStatus webhook={webhook} />
              </td>
              <td data-label="Created">
                <Time at={webhook.createdAt} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      <More of={{ items: webhooks.value, isLoading: webhooks.isLoading }} />
      {isMaking && (
        <WebhookForm
          onSave={async (wish) => {
            const made = await client.value.webhooks.create(wish);
            setMaking(false);
            setSecret(made.secret);
            webhooks.reload();
          }}
          onClose={() => setMaking(false)}
        />
      )}
      {secret && (
        <Secret title="Webhook created" what="secret" secret={secret} onClose={() => setSecret(null)}>
          <p>Your server verifies with it that a message is from here (Standard Webhooks).</p>
        </Secret>
      )}
    </Page>
  );
}
