import type { Schemas } from "./api.ts";
import type { Call, List } from "./call.ts";
import { type CallOptions, type Filters, Resource } from "./connection.ts";

export type TrashFilters = Filters<"GET /docs/v1/trash">;

/** The deleted files that can be restored. Empty if the service has no trash. */
export class Trash extends Resource {
  /** Lists the files in the trash, the latest uploads first. */
  list(filters?: TrashFilters, options?: CallOptions): List<Schemas["TrashedFile"]> {
    return this.connection.list("GET /docs/v1/trash", { query: filters }, options);
  }

  /** Restores a file. Its links work again, unless they were revoked or have expired. */
  restore(id: string, options?: CallOptions): Call<Schemas["StoredFile"]> {
    return this.connection.json("POST /docs/v1/trash/{id}/restore", { id }, options);
  }

  /** Erases a file in the trash. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /docs/v1/trash/{id}", { id }, options);
  }

  /** Deletes each file of the team this many days after its upload; null: never. Needs a secret key or an admin. */
  setRetention(days: number | null, options?: CallOptions): Call<{ days: number | null }> {
    return this.connection.json("PUT /docs/v1/retention", { body: { days } }, options);
  }
}
