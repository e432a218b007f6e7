import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { EVENT_LABELS } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { useEvents, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href } from "../router.ts";
import { can, client } from "../session.ts";

const REASONS = {
  requested: "Disabled",
  gone: "Disabled: endpoint returned 410 Gone",
  failing: "Disabled: failing for 5 days",
};

export function WebhookStatus({ webhook: { status, disabledReason } }: { webhook: Webhook }) {
  if (status === "enabled") return <span class="badge good">Enabled</span>;
  return <span class="badge bad">{REASONS[disabledReason ?? "requested"]}</span>;
}

export const eventsOf = ({ types }: Webhook): string =>
  types?.map((type) => EVENT_LABELS[type]).join(", ") ?? "All events";

export function Webhooks() {
  const webhooks = useLoaded((signal) => client.value.webhooks.list({ signal }), []);
  const [isCreating, setCreating] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  useEvents(({ subject }) => subject.kind === "webhook", webhooks.reload);
  const create = can("webhooks:write") && (
    <button type="button" class="button primary" onClick={() => setCreating(true)}>
      Create webhook
    </button>
  );
  return (
    <Page title="Webhooks" actions={create} call={{ path: "/auth/v1/webhooks" }}>
      <MissingScopes scopes={["webhooks:write"]} />
      <Failure error={webhooks.error} onRetry={webhooks.reload} />
      {webhooks.value?.length === 0 && (
        <Empty title="No webhooks yet">
          <p>
            Webhooks send a signed request to your server whenever something happens, such as a file finishing
            processing.
          </p>
          {create}
        </Empty>
      )}
      {webhooks.value && webhooks.value.length > 0 && (
        <Table columns={["Endpoint URL", "Events", "Status", "Created"]}>
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
              <td data-label="Events">{eventsOf(webhook)}</td>
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
      {isCreating && (
        <WebhookForm
          onSave={async (fields) => {
            const created = await client.value.webhooks.create(fields);
            setCreating(false);
            setSecret(created.secret);
            webhooks.reload();
          }}
          onClose={() => setCreating(false)}
        />
      )}
      {secret && (
        <Secret title="Webhook created" noun="secret" secret={secret} onClose={() => setSecret(null)}>
          <p>Use this signing secret to verify that requests come from Stowage.</p>
        </Secret>
      )}
    </Page>
  );
}
