import type { Api, Schemas } from "./api.ts";
import type { Call, List } from "./call.ts";
import { type CallOptions, type Filters, Resource } from "./connection.ts";
import type { RecordedEvent } from "./events.ts";

export type WebhookInput = Api["POST /auth/v1/webhooks"]["body"];
export type WebhookChanges = Api["PATCH /auth/v1/webhooks/{id}"]["body"];
export type Replay = Omit<ReplayBody, "after"> & { after: string | Date };
export type ReplayResult = Api["POST /auth/v1/webhooks/{id}/replay"]["response"]["data"];
export type DeliveryFilters = Filters<"GET /auth/v1/webhooks/{id}/deliveries">;
/** A message to an endpoint, with its event. */
export type Delivery = Omit<Schemas["Delivery"], "event"> & { event: RecordedEvent | null };
/** A delivery that was sent again, with the attempt. It is null if there was none within 20 s: it follows. */
export type Redelivery = Delivery & Pick<Schemas["Redelivery"], "attempt">;
type ReplayBody = Api["POST /auth/v1/webhooks/{id}/replay"]["body"];
type Webhook = Schemas["Webhook"];

/** Endpoints that receive the team's events. */
export class Webhooks extends Resource {
  /** Creates a webhook. Only this response and that of `rotateSecret` contain the signing secret. */
  create(webhook: WebhookInput, options?: CallOptions): Call<Schemas["NewWebhook"]> {
    return this.connection.json("POST /auth/v1/webhooks", { body: webhook }, options);
  }

  /** Lists the team's webhooks, oldest first. */
  list(options?: CallOptions): List<Webhook> {
    return this.connection.list("GET /auth/v1/webhooks", {}, options);
  }

  /** Returns a webhook, with its health. */
  get(id: string, options?: CallOptions): Call<Webhook> {
    return this.connection.json("GET /auth/v1/webhooks/{id}", { id }, options);
  }

  /** Changes the given fields. With `status: "enabled"`, a disabled webhook receives messages again. */
  update(id: string, changes: WebhookChanges, options?: CallOptions): Call<Webhook> {
    return this.connection.json("PATCH /auth/v1/webhooks/{id}", { id, body: changes }, options);
  }

  /** Deletes a webhook with its deliveries. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /auth/v1/webhooks/{id}", { id }, options);
  }

  /**
   * Rotates the signing secret. The old secret stays valid for 24 hours unless `revokeOld` is set. If the response is lost, repeat
   * the call: for 10 minutes, the same caller gets the same secret, unless `revokeOld` is set.
   */
  rotateSecret(
    id: string,
    params?: { revokeOld?: boolean | undefined },
    options?: CallOptions,
  ): Call<Schemas["NewWebhook"]> {
    const input = { id, body: params, isIdempotent: !params?.revokeOld };
    return this.connection.json("POST /auth/v1/webhooks/{id}/secret", input, options);
  }

  /** Sends a `webhook.test` event now. @returns the result of the attempt */
  test(id: string, options?: CallOptions): Call<Schemas["Attempt"]> {
    return this.connection.json("POST /auth/v1/webhooks/{id}/test", { id }, options);
  }

  /** Lists the webhook's deliveries, newest first. */
  deliveries(id: string, filters?: DeliveryFilters, options?: CallOptions): List<Delivery> {
    const input = { id, query: filters };
    return this.connection.list("GET /auth/v1/webhooks/{id}/deliveries", input, options) as List<Delivery>;
  }

  /** Redelivers an event now, with the same message id. @returns the delivery, with the result of the attempt */
  redeliver(deliveryId: string, options?: CallOptions): Call<Redelivery> {
    const input = { id: deliveryId };
    return this.connection.json("POST /auth/v1/deliveries/{id}/redeliver", input, options) as Call<Redelivery>;
  }

  /**
   * Resends the events after `after`, the ID of an event or an instant.
   * @returns the number of deliveries, and `next` to continue if there are more
   */
  replay(id: string, replay: Replay, options?: CallOptions): Call<ReplayResult> {
    return this.connection.json("POST /auth/v1/webhooks/{id}/replay", { id, body: replay as ReplayBody }, options);
  }
}
