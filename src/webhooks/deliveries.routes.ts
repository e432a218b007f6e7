import * as z from "zod";
import { EVENT_TYPE_NAMES } from "../event-types.ts";
import { recordedExample as eventExample, recordedSchema as eventSchema } from "../events/events.routes.ts";
import { listOperation, writeOperation } from "../http/operation.ts";
import { id, instant, isoOrNull, pageQuery, pageRequest, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import {
  type Delivery,
  listDeliveries,
  type Redelivery,
  redeliverEvent,
  replayEvents,
  webhookDisabled,
} from "./delivery-log.ts";
import { MAX_REPLAYED_EVENTS } from "./outbox.ts";
import { attemptExample, attemptSchema, renderAttempt, webhooksTag } from "./webhooks.routes.ts";

const deliverySchema = lazy(() =>
  z
    .strictObject({
      _id: id(),
      eventId: id(),
      type: z.enum(EVENT_TYPE_NAMES),
      event: eventSchema().nullable().meta({
        description: "Null without the scope `events:read`.",
      }),
      status: z.enum(["pending", "succeeded", "failed"]),
      attempts: z.array(attemptSchema()).meta({ description: "The latest ten attempts." }),
      nextAttemptAt: timestamp().nullable(),
    })
    .meta({ id: "Delivery" }),
);

function renderDelivery(delivery: Delivery): z.input<ReturnType<typeof deliverySchema>> {
  const { id: _id, event, attempts, nextAttemptAt, ...same } = delivery;
  return {
    _id,
    ...same,
    event: event as z.input<ReturnType<typeof eventSchema>> | null,
    attempts: attempts.map(renderAttempt),
    nextAttemptAt: isoOrNull(nextAttemptAt),
  };
}

const deliveryExample: z.input<ReturnType<typeof deliverySchema>> = {
  _id: "065c2f1a0b3c406e8a1c3e50",
  eventId: eventExample._id,
  type: eventExample.type,
  event: eventExample,
  status: "succeeded",
  attempts: [attemptExample],
  nextAttemptAt: null,
};

const redeliverySchema = lazy(() =>
  deliverySchema()
    .extend({
      attempt: attemptSchema().nullable().meta({ description: "Null if there was none within 20 s: it follows." }),
    })
    .meta({ id: "Redelivery" }),
);

function renderRedelivery({ attempt, ...delivery }: Redelivery): z.input<ReturnType<typeof redeliverySchema>> {
  return { ...renderDelivery(delivery), attempt: attempt && renderAttempt(attempt) };
}

const list = listOperation(
  "webhooks:read",
  {
    route: "GET /auth/v1/webhooks/{id}/deliveries",
    tag: webhooksTag,
    summary: "List a webhook's deliveries",
    sample: "for await (const delivery of stowage.webhooks.deliveries(id)) console.log(delivery.status);",
    description: "Newest first. Deliveries are kept for 30 days, and at most 10,000 of a webhook.",
    query: () =>
      pageQuery("deliveries")
        .omit({ page: true })
        .extend({
          status: z.enum(["pending", "succeeded", "failed", "failing", "waiting"]).optional().meta({
            description:
              "Only deliveries in this state. `failing`: the latest attempt failed, and another follows (`pending`) or not (`failed`). `waiting`: `pending`, and not `failing`.",
          }),
        }),
    // An index serves `failing`.
    isHeavy: ({ status }) => status !== undefined && status !== "failing",
    success: {
      description: "A page of deliveries.",
      noun: "Deliveries",
      schema: deliverySchema,
      example: deliveryExample,
    },
  },
  ({ deps, credential, id, query }) =>
    listDeliveries(deps, credential, id, { ...pageRequest(query), filter: query.status }),
  renderDelivery,
);

const replay = writeOperation(
  "webhooks:write",
  {
    route: "POST /auth/v1/webhooks/{id}/replay",
    tag: webhooksTag,
    summary: "Replay events",
    sample: "const { deliveries } = await stowage.webhooks.replay(id, { after: eventId });",
    description:
      "Sends the events after an event or an instant to the webhook again, also those that occurred while it was disabled. Messages keep their ids. " +
      `A call reads up to ${MAX_REPLAYED_EVENTS} events; if there may be more, \`next\` is the event to continue after.`,
    body: () =>
      z.strictObject({
        after: z
          .union([id(), instant()], {
            error: "Must be the ID of an event, or an ISO 8601 date-time with an offset or Z.",
          })
          .meta({ description: "The ID of an event, or an instant: what happened later is sent." }),
        failedOnly: z.boolean().default(false).meta({
          description: "Only deliveries whose latest attempt failed. Those that wait for a retry are due now.",
        }),
      }),
    isHeavy: true,
    bodyExample: { after: "065c2f1a0b3c402e6b8a0c13", failedOnly: true },
    success: {
      description: "How many deliveries are due.",
      message: ({ deliveries }) => `Deliveries due: ${deliveries}.`,
      schema: () => z.strictObject({ deliveries: z.int().nonnegative(), next: id().nullable() }),
      example: { deliveries: 3, next: null },
    },
    errors: [webhookDisabled],
  },
  ({ deps, actor, id, body }) => replayEvents(deps, actor, id, body),
);

const redeliver = writeOperation(
  "webhooks:write",
  {
    route: "POST /auth/v1/deliveries/{id}/redeliver",
    tag: webhooksTag,
    summary: "Redeliver an event",
    sample: "const delivery = await stowage.webhooks.redeliver(id);",
    description:
      "Makes one more attempt, with the same message id, before anything else that is due, and returns its result (`attempt`), which takes up to 15 s. It doesn't change when other deliveries, and this one if it fails, are sent next. Calls at once get the result of the same attempt.",
    isHeavy: true,
    success: {
      description: "The delivery, with the attempt.",
      message: ({ attempt }) => (attempt === null ? "Delivery due." : "Delivery attempted."),
      schema: redeliverySchema,
      example: { ...deliveryExample, attempt: attemptExample },
    },
    errors: [webhookDisabled],
  },
  async ({ deps, actor, id }) => renderRedelivery(await redeliverEvent(deps, actor, id)),
);

export const operations = {
  listDeliveries: list,
  replayEvents: replay,
  redeliver,
};
