import type { Schemas } from "./api.ts";
import type { Call, CallOptions, Connection, Filters, List } from "./connection.ts";

/** The deleted files that can be restored. Empty if the service has no trash. */
export class Trash {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Lists the files in the trash, the latest uploads first. */
  list(filters: Filters<"GET /docs/v1/trash"> = {}, options?: CallOptions): List<Schemas["TrashedFile"]> {
    return this.#connection.list("GET /docs/v1/trash", { query: filters, ...options });
  }

  /** Restores a file. Its links stay revoked. */
  restore(id: string, options?: CallOptions): Call<Schemas["File"]> {
    return this.#connection.data("POST /docs/v1/trash/{id}/restore", { id, ...options });
  }

  /** Erases a file in the trash. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.#connection.run("DELETE /docs/v1/trash/{id}", { id, ...options });
  }

  /** Deletes each file of the team this many days after its upload; null: never. Needs a secret key or an admin. */
  setRetention(days: number | null, options?: CallOptions): Call<{ days: number | null }> {
    return this.#connection.data("PUT /docs/v1/retention", { body: { days }, ...options });
  }
}
