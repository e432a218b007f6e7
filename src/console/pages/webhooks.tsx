import { useState } from "preact/hooks";
import type { Webhook } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { Code } from "../parts/connect.tsx";
import { EVENT_LABELS } from "../parts/event-types.ts";
import { ListTable } from "../parts/list-table.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { WebhookForm } from "../parts/webhook-form.tsx";
import { href } from "../router.ts";
import { can, client } from "../session.ts";
import { useList } from "../store.ts";
import { DayBars, HealthBadge } from "./webhook-health.tsx";

/** How a server checks a request of a webhook. */
const VERIFYING = `import { verifyMessage } from "stowage";

export async function POST(request) {
  const secret = process.env.WEBHOOK_SECRET;
  // Throws unless the service has sent the request.
  const message = await verifyMessage(await request.text(), request.headers, secret);
  return Response.json({ received: message.type });
}`;

export const eventsOf = ({ types }: Webhook): string =>
  types?.map((type) => EVENT_LABELS[type]).join(", ") ?? "All events";

export const nameOf = ({ description, url }: Webhook): string => description || new URL(url).host;

export function Webhooks() {
  const webhooks = useList("webhooks", (signal) => client.value.webhooks.list({ signal }), {
    on: ({ subject }) => subject.kind === "webhook",
    // The results of deliveries, which decide its health, are no events.
    isPolled: true,
  });
  const [isCreating, setCreating] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  const create = can("webhooks:write") && (
    <button type="button" class="button primary" onClick={() => setCreating(true)}>
      Create webhook
    </button>
  );
  return (
    <Page title="Webhooks" actions={create} call={{ path: "/auth/v1/webhooks" }}>
      <MissingScopes scopes={["webhooks:write"]} />
      <ListTable
        of={webhooks}
        empty={
          <Empty title="No webhooks yet">
            <p>
              Webhooks send a signed request to your server whenever something happens, such as a file finishing
              processing. Check the signature before you trust one:
            </p>
            <Code text={VERIFYING} label="sample" />
          </Empty>
        }
        label="Webhooks"
        keyOf={({ _id }) => _id}
        columns={[
          {
            id: "endpoint",
            label: "Endpoint",
            width: "minmax(0, 3.4fr)",
            cell: (webhook) => (
              <div class="two-lines">
                <a href={href(`/webhooks/${webhook._id}`)} title={webhook.url}>
                  <bdi>{nameOf(webhook)}</bdi>
                </a>
                <bdi class="quiet" title={webhook.url}>
                  {webhook.url}
                </bdi>
              </div>
            ),
          },
          {
            id: "events",
            label: "Events",
            width: "minmax(0, 2fr)",
            cell: (webhook) => <span title={eventsOf(webhook)}>{eventsOf(webhook)}</span>,
          },
          {
            id: "latest",
            label: "Last day",
            width: "7.5rem",
            card: "bare",
            cell: (webhook) => webhook.lastDay.hours.length > 0 && <DayBars webhook={webhook} />,
          },
          {
            id: "health",
            label: "Health",
            width: "minmax(5.5rem, 1fr)",
            card: "bare",
            cell: (webhook) => <HealthBadge webhook={webhook} />,
          },
        ]}
      />
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
