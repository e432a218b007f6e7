import * as z from "zod";
import type { Deps } from "../deps.ts";
import { EVENT_TYPE_NAMES } from "../event-types.ts";
import { inHours } from "../http/introduction.ts";
import { countOf, readOperation, writeOperation } from "../http/operation.ts";
import { creator, describeRecord, fieldOf } from "../http/record.ts";
import { atLeastOneField, id, iso, isoOrNull, text, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { MINUTE } from "../platform/system.ts";
import { ATTEMPT_ERRORS, type Attempt } from "./attempts.ts";
import { sendTestEvent } from "./posting.ts";
import { attemptsOfDay, FAILING_ATTEMPTS, isFailing } from "./retries.ts";
import { isEnabled } from "./webhook-rows.ts";
import {
  createWebhook,
  deleteWebhook,
  fetchWebhook,
  listWebhooks,
  MAX_WEBHOOKS,
  OLD_SECRET_MILLISECONDS,
  REPEAT_MILLISECONDS,
  rotateSecret,
  tooManyWebhooks,
  updateWebhook,
  type Webhook,
} from "./webhooks.ts";

export const webhooksTag = {
  name: "Webhooks",
  description: "Signed requests to your server for each event (Standard Webhooks 1.0), with retries.",
};

const type = lazy(() => z.enum(EVENT_TYPE_NAMES));

export const attemptSchema = lazy(() =>
  z
    .strictObject({
      at: timestamp(),
      httpStatus: z.int().nullable(),
      error: z.enum(ATTEMPT_ERRORS).nullable().meta({
        description: "`webhook_disabled` ends a delivery unsent.",
      }),
      durationMilliseconds: z.int().nonnegative(),
      responseBody: z.string().meta({
        description:
          "Up to 1 KiB. The delivery log keeps it for the latest attempt of a delivery if that failed; otherwise it is empty.",
      }),
    })
    .meta({ id: "Attempt" }),
);
export const renderAttempt = (attempt: Attempt): z.input<ReturnType<typeof attemptSchema>> => ({
  ...attempt,
  at: iso(attempt.at),
});
export const attemptExample: z.input<ReturnType<typeof attemptSchema>> = {
  at: "2026-11-20T09:41:00.000Z",
  httpStatus: 200,
  error: null,
  durationMilliseconds: 87,
  responseBody: "ok",
};

const attemptCounts = lazy(() => z.strictObject({ succeeded: z.int().nonnegative(), failed: z.int().nonnegative() }));

/** A webhook, and when it is shown. */
type SeenWebhook = Webhook & { now: number };
const field = fieldOf<SeenWebhook>();

const webhookRecord = describeRecord({
  id: "Webhook",
  fields: {
    _id: field(id, "0193477c0d2b4f6e8a1c3e50", (webhook) => webhook.id),
    teamId: field(id, "0193477be89f4d2e6b8a0000", (webhook) => webhook.teamId),
    url: field(
      () => z.string(),
      "https://hooks.example.com/stowage",
      (webhook) => webhook.url,
    ),
    types: field(
      () => z.array(type()).nullable().meta({ description: "Null for all types." }),
      ["file.completed", "file.failed"],
      ({ types }) => types && JSON.parse(types),
    ),
    description: field(
      () => z.string(),
      "Catalogue",
      (webhook) => webhook.description,
    ),
    status: field(
      () => z.enum(["enabled", "disabled"]),
      "enabled",
      (webhook) => (isEnabled(webhook) ? "enabled" : "disabled"),
    ),
    disabledReason: field(
      () =>
        z.enum(["requested", "gone", "failing", "creator_deleted", "creator_demoted"]).nullable().meta({
          description:
            "`gone`: it responded 410. `failing`: no success for five days. `creator_deleted`: the user who created it, or last changed its URL, secret or status, was deleted. `creator_demoted`: the user became a contributor.",
        }),
      null,
      (webhook) => webhook.disabledReason,
    ),
    createdBy: field(
      () => creator().meta({ description: "The key or session that created it, with its user." }),
      { keyId: "0193477be8a01f9c3ad5e7b2", userId: null },
      ({ keyId, userId }) => ({ keyId, userId }),
    ),
    changedBy: field(
      () =>
        creator().meta({
          description: "The key or session that last changed its URL, secret or status, or created it, with its user.",
        }),
      { keyId: "0193477be8a01f9c3ad5e7b2", userId: null },
      (webhook) => {
        const { keyId, userId } = JSON.parse(webhook.changedBy);
        return { keyId, userId };
      },
    ),
    createdAt: field(timestamp, "2026-11-20T09:40:00.000Z", (webhook) => iso(webhook.createdAt)),
    updatedAt: field(timestamp, "2026-11-20T09:40:00.000Z", (webhook) => iso(webhook.updatedAt)),
    __v: field(
      () => z.int().nonnegative(),
      0,
      (webhook) => webhook.version,
    ),
    health: field(
      () =>
        z.enum(["healthy", "failing", "disabled"]).meta({
          description: `\`failing\`: the latest ${FAILING_ATTEMPTS} attempts or more have failed.`,
        }),
      "healthy",
      (webhook) => (!isEnabled(webhook) ? "disabled" : isFailing(webhook) ? "failing" : "healthy"),
    ),
    failingSince: field(
      () =>
        timestamp().nullable().meta({ description: "The first failure since the last success. Null while healthy." }),
      null,
      (webhook) => isoOrNull(!isEnabled(webhook) || isFailing(webhook) ? webhook.failingSince : null),
    ),
    lastDay: field(
      () =>
        attemptCounts()
          .extend({
            hours: z
              .array(attemptCounts().extend({ startsAt: timestamp() }))
              .meta({ description: "By hour, oldest first, without the hours that had none." }),
          })
          .meta({ description: "Attempts in this hour and the 23 before. A failed one is repeated later." }),
      { succeeded: 12, failed: 0, hours: [{ startsAt: "2026-11-20T09:00:00.000Z", succeeded: 12, failed: 0 }] },
      renderLastDay,
    ),
    lastResult: field(
      () =>
        attemptSchema()
          .nullable()
          .meta({ description: "The latest attempt, without the response body of a success. Null before the first." }),
      attemptExample,
      ({ lastResult }) => lastResult && renderAttempt(lastResult),
    ),
  },
});
const { schema, example } = webhookRecord;

function renderLastDay({ now, ...webhook }: SeenWebhook) {
  const hours = attemptsOfDay(webhook.hours, now).map(([startsAt, succeeded, failed]) => ({
    startsAt: iso(startsAt),
    succeeded,
    failed,
  }));
  const total = (name: "succeeded" | "failed") => hours.reduce((sum, hour) => sum + hour[name], 0);
  return { succeeded: total("succeeded"), failed: total("failed"), hours };
}

const seen = <W extends Webhook>({ system }: Deps, webhook: W) => ({ ...webhook, now: system.now() });
const render = (deps: Deps, webhook: Webhook) => webhookRecord.render(seen(deps, webhook));

const newWebhookRecord = describeRecord({
  id: "NewWebhook",
  fields: {
    ...webhookRecord.fields,
    secret: fieldOf<{ secret: string }>()(
      () => z.string().meta({ description: "Signs every message (Standard Webhooks 1.0). No other request shows it." }),
      "whsec_c3Rvd2FnZSBleGFtcGxlIHNlY3JldCwgMzIgYnl0ZXM=",
      ({ secret }) => secret,
    ),
  },
});

/** The last label of a host name starts with a letter, which excludes IP addresses. */
const HOST = "([A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?\\.)+[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?";
const REST = "([/?#][!-~]*)?";
/** For local development, `WEBHOOK_ALLOW_INSECURE` also allows http, other ports and loopback. The domain decides. */
const URL_PATTERN = `^https?://(${HOST}|localhost|[0-9]+(\\.[0-9]+){3}|\\[[0-9a-f:]+\\])(:[1-9][0-9]*)?${REST}$`;
const MATCHING_URL = new RegExp(URL_PATTERN);

const fields = lazy(() =>
  z.strictObject({
    url: text(1, 2048)
      .refine((url) => MATCHING_URL.test(url), "Must be an https URL with a public host name, in ASCII.")
      .meta({
        pattern: URL_PATTERN,
        description:
          "An https URL on port 443 with a public host name, in ASCII. `.local`, `.internal` and `.localhost` names are rejected. A server started by `npm run dev` also accepts `http://localhost:PORT`.",
      }),
    types: z
      .array(type())
      .min(1)
      .max(EVENT_TYPE_NAMES.length)
      .nullable()
      .optional()
      .meta({ description: "Null for all types." }),
    description: text(0, 200),
  }),
);

const create = writeOperation(
  "webhooks:write",
  {
    route: "POST /auth/v1/webhooks",
    tag: webhooksTag,
    summary: "Create a webhook",
    sample: 'const { secret } = await stowage.webhooks.create({ url, types: ["file.completed"] });',
    description:
      "Posts each later event of the team, of the selected types, to the URL as `{id, type, timestamp, teamId, actor, subject, data}`. " +
      "Messages are signed according to Standard Webhooks 1.0: `webhook-id` is the event's id, and the same in every attempt; " +
      "`webhook-timestamp`; `webhook-signature`. Delivery is at least once, without a guaranteed order. A 2xx within 15 s " +
      "succeeds; otherwise there are up to ten attempts over 75 hours. A 410, or five days without a success, disables the " +
      "webhook. Events that occur while it is disabled are not sent, but can be replayed. It is disabled with the user who created it, or who last changed its URL, secret or status: if that user is deleted or becomes a `contributor`. It receives events even after the key that created it is revoked, so a caller with `webhooks:write` " +
      `can read everything that \`events:read\` shows, also later. A team can have at most ${MAX_WEBHOOKS} webhooks.`,
    body: () => fields().extend({ description: fields().shape.description.default("") }),
    bodyExample: { url: example.url, types: example.types, description: "Catalogue" },
    success: {
      description: "The webhook, with its secret.",
      message: "Webhook created.",
      schema: newWebhookRecord.schema,
      example: newWebhookRecord.example,
    },
    errors: [tooManyWebhooks],
  },
  async ({ deps, actor, body }) => {
    const { webhook, secret } = await createWebhook(deps, actor, body);
    return newWebhookRecord.render({ ...seen(deps, webhook), secret });
  },
);

const list = readOperation(
  "webhooks:read",
  {
    route: "GET /auth/v1/webhooks",
    tag: webhooksTag,
    summary: "List webhooks",
    sample: "for await (const webhook of stowage.webhooks.list()) console.log(webhook.url);",
    description: "Oldest first.",
    success: {
      description: "The webhooks.",
      message: countOf("Webhooks"),
      schema: () => z.array(schema()),
      example: [example],
    },
  },
  async ({ deps, credential }) => (await listWebhooks(deps, credential)).map((webhook) => render(deps, webhook)),
);

const get = readOperation(
  "webhooks:read",
  {
    route: "GET /auth/v1/webhooks/{id}",
    tag: webhooksTag,
    summary: "Get webhook details",
    sample: "const webhook = await stowage.webhooks.get(id);",
    success: { description: "The webhook.", message: "Webhook found.", schema, example },
  },
  async ({ deps, credential, id }) => render(deps, await fetchWebhook(deps, credential, id)),
);

const update = writeOperation(
  "webhooks:write",
  {
    route: "PATCH /auth/v1/webhooks/{id}",
    tag: webhooksTag,
    summary: "Update a webhook",
    sample: 'const webhook = await stowage.webhooks.update(id, { status: "enabled" });',
    description:
      "Enabling a webhook or changing its URL resets its failures. Disabling it ends its pending deliveries.",
    body: () => atLeastOneField(fields().extend({ status: schema().shape.status })),
    bodyExample: { status: "disabled" },
    success: {
      description: "The webhook.",
      message: "Webhook updated.",
      schema,
      example: { ...example, status: "disabled", disabledReason: "requested", __v: 1, health: "disabled" },
    },
  },
  async ({ deps, actor, id, body }) => render(deps, await updateWebhook(deps, actor, id, body)),
);

const remove = writeOperation(
  "webhooks:write",
  {
    route: "DELETE /auth/v1/webhooks/{id}",
    tag: webhooksTag,
    summary: "Delete a webhook",
    sample: "await stowage.webhooks.delete(id);",
    description: "Its pending deliveries are not sent.",
    // Each webhook sends by itself. This limit keeps a team from having more than ten that send at once.
    isHeavy: true,
    success: { description: "The webhook was deleted.", message: "Webhook deleted." },
  },
  async ({ deps, actor, id }) => {
    await deleteWebhook(deps, actor, id);
  },
);

const rotate = writeOperation(
  "webhooks:write",
  {
    route: "POST /auth/v1/webhooks/{id}/secret",
    tag: webhooksTag,
    summary: "Rotate a webhook's secret",
    sample: "const { secret } = await stowage.webhooks.rotateSecret(id);",
    description:
      `The previous secret also signs for ${inHours(OLD_SECRET_MILLISECONDS)}, unless it is revoked. If the response is lost, repeat the request: ` +
      `for ${REPEAT_MILLISECONDS / MINUTE} minutes, the same caller gets the same secret. \`revokeOld\` always creates a new one.`,
    body: () => z.strictObject({ revokeOld: z.boolean().default(false) }),
    isBodyOptional: true,
    bodyExample: { revokeOld: false },
    success: {
      description: "The webhook, with its new secret.",
      message: "Secret rotated.",
      schema: newWebhookRecord.schema,
      example: newWebhookRecord.example,
    },
    errors: ["conflict"],
  },
  async ({ deps, actor, id, body }) => {
    const { webhook, secret } = await rotateSecret(deps, actor, id, body);
    return newWebhookRecord.render({ ...seen(deps, webhook), secret });
  },
);

const test = writeOperation(
  "webhooks:write",
  {
    route: "POST /auth/v1/webhooks/{id}/test",
    tag: webhooksTag,
    summary: "Send a test event",
    sample: "const { httpStatus } = await stowage.webhooks.test(id);",
    description: "Sends a signed `webhook.test` event now, once. It is not in the event log.",
    isHeavy: true,
    success: {
      description: "The response of the endpoint.",
      message: "Test event sent.",
      schema: attemptSchema,
      example: attemptExample,
    },
  },
  async ({ deps, actor, id }) => renderAttempt(await sendTestEvent(deps, actor, id)),
);

export const operations = {
  createWebhook: create,
  listWebhooks: list,
  getWebhook: get,
  updateWebhook: update,
  deleteWebhook: remove,
  rotateWebhookSecret: rotate,
  testWebhook: test,
};
