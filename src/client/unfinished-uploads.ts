import type { Schemas } from "./api.ts";
import type { CallOptions, Connection, Filters, List } from "./connection.ts";
import { cancelUpload, hasStatus } from "./upload.ts";

export type UnfinishedUploadFilters = Filters<"GET /docs/v1/uploads/resumable">;

/** Unfinished uploads. Each counts against the storage quota until it is finished, canceled, or expired. */
export class UnfinishedUploads {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Lists the uploads that hold quota and are not files yet, newest first: also form uploads, and canceled ones until their bytes are gone. */
  list(filters: UnfinishedUploadFilters = {}, options?: CallOptions): List<Schemas["UnfinishedUpload"]> {
    return this.#connection.list("GET /docs/v1/uploads/resumable", { query: filters, ...options });
  }

  /**
   * Cancels an upload, and deletes its bytes and quota reservation. Does nothing if it no longer exists.
   * @param upload its URL, or its id, which needs a secret key. If the upload is complete, the file stays, and
   *   the call fails with `forbidden`
   */
  async cancel(upload: string, options?: CallOptions): Promise<void> {
    const query = { unfinished: "true" as const };
    try {
      if (/[/.]/.test(upload)) await cancelUpload(this.#connection, upload, options);
      else await this.#connection.run("DELETE /docs/v1/uploads/{id}", { id: upload, query, ...options });
    } catch (error) {
      if (!hasStatus(error, 404, 410)) throw error;
    }
  }
}
