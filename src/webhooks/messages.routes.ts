import * as z from "zod";
import { EVENT_TYPE_NAMES } from "../event-types.ts";
import { recordedExample, recordedSchema } from "../events/events.routes.ts";
import { lazy } from "../lazy.ts";

export const messagesTag = {
  name: "Webhook messages",
  description: "The requests that the service sends to your server.",
};

/** The body that a webhook endpoint receives. */
const messageSchema = lazy(() => {
  const { _id, type, createdAt, ...common } = recordedSchema().shape;
  return z
    .strictObject({
      id: _id.meta({ description: "The id of the event. A test message has its own id." }),
      type: z
        .enum([...EVENT_TYPE_NAMES, "webhook.test"])
        .meta({ description: "`webhook.test` is sent on request, and is not in the event log." }),
      timestamp: createdAt.meta({ description: "When the event was recorded." }),
      ...common,
    })
    .meta({ id: "WebhookMessage", description: "An event, as it is sent to a webhook." });
});

const { _id: exampleId, createdAt: timestampExample, ...commonExample } = recordedExample;
const messageExample: z.input<ReturnType<typeof messageSchema>> = {
  id: exampleId,
  timestamp: timestampExample,
  ...commonExample,
};

/** A message, as OpenAPI describes webhooks: the service is the client. */
export const messages = {
  event: {
    operationId: "receiveEvent",
    tag: messagesTag,
    summary: "An event",
    description:
      "Sent to a webhook for each event of the team that has one of its `types`. Standard Webhooks 1.0 describes how to verify " +
      "the signature: compute it from the bytes of the body, before parsing them.",
    headers: {
      "webhook-id": "The `id` of the message, the same in each attempt. Ignore an id that you have already processed.",
      "webhook-timestamp":
        "When the attempt was made, in seconds since 1970. Reject a message that is older than 5 minutes.",
      "webhook-signature": "`v1,` and an HMAC-SHA256 in base64, or two of them with a space between after a rotation.",
    },
    schema: messageSchema,
    example: messageExample,
    responses: {
      "200": "The message was received, as with any other 2xx within 15 s.",
      "410": "The endpoint is gone. The webhook is disabled.",
      default: "The message is sent again later, up to ten times in all.",
    },
  },
};
