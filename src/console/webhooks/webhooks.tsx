import type { Webhook } from "../../client/index.ts";
import { useWebhooks } from "../data.ts";
import { labelOf } from "../events/event-types.ts";
import { href } from "../framework/router.ts";
import type { PageProps } from "../framework/script.tsx";
import { Code } from "../parts/connect.tsx";
import { ListPage } from "../parts/list-page.tsx";
import { Empty } from "../parts/page.tsx";
import { DayBars, HealthBadge } from "./webhook-health.tsx";
import { nameOfWebhook } from "./webhook-name.ts";

/** How a server checks a request of a webhook. */
const VERIFYING = `import { verifyMessage } from "stowage/webhooks";

export async function POST(request) {
  const secret = process.env.WEBHOOK_SECRET;
  // Throws unless the service has sent the request.
  const message = await verifyMessage(await request.text(), request.headers, secret);
  return Response.json({ received: message.type });
}`;

export const eventsOf = ({ types }: Webhook): string => types?.map(labelOf).join(", ") ?? "All events";

/** Failing webhooks come first. */
const rankOf = ({ health }: Webhook) => Number(health !== "failing");

export function Webhooks({ create }: PageProps) {
  const webhooks = useWebhooks();
  return (
    <ListPage
      title="Webhooks"
      main={create}
      scopes={["webhooks:write"]}
      of={{ ...webhooks, items: webhooks.items?.toSorted((a, b) => rankOf(a) - rankOf(b)) }}
      empty={
        <Empty title="No webhooks yet">
          <p>
            Webhooks send a signed request to your server whenever something happens, such as a file finishing
            processing. Check the signature before you trust one:
          </p>
          <Code text={VERIFYING} label="sample" />
        </Empty>
      }
      keyOf={({ _id }) => _id}
      columns={[
        {
          id: "endpoint",
          label: "Endpoint",
          width: "minmax(0, 3.4fr)",
          cell: (webhook) => (
            <div class="two-lines">
              <a href={href(`/webhooks/${webhook._id}`)} title={webhook.url}>
                <bdi>{nameOfWebhook(webhook)}</bdi>
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
          card: "bare",
          cell: (webhook) => <span title={eventsOf(webhook)}>{eventsOf(webhook)}</span>,
        },
        {
          id: "latest",
          label: "Last day",
          width: "11rem",
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
  );
}
