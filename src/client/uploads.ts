import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection, List } from "./connection.ts";
import type { StowageError } from "./errors.ts";
import { pathOf } from "./file-upload.ts";

type UploadFilters = Omit<NonNullable<Api["GET /docs/v1/uploads/resumable"]["query"]>, "cursor" | "page">;

/** Unfinished uploads. Each counts against the storage quota until it is finished, canceled, or expired. */
export class Uploads {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Lists the team's unfinished uploads, newest first. */
  list(filters: UploadFilters = {}, { signal }: CallOptions = {}): List<Schemas["UnfinishedUpload"]> {
    return this.#connection.list("GET /docs/v1/uploads/resumable", { query: filters, signal });
  }

  /**
   * Cancels an upload, and deletes its bytes and quota reservation. Does nothing if it no longer exists.
   * @param upload its URL, or its id, which needs a secret key. If the upload is complete, the file stays, and
   *   the call fails with `forbidden`
   */
  async cancel(upload: string, { signal }: CallOptions = {}): Promise<void> {
    try {
      if (/[/.]/.test(upload)) {
        const headers = { "Tus-Resumable": "1.0.0" };
        await this.#connection.send(pathOf(upload), { method: "DELETE", headers, signal }, () => {});
      } else
        await this.#connection.call("DELETE /docs/v1/uploads/{id}", {
          id: upload,
          query: { unfinished: "true" },
          signal,
        });
    } catch (error) {
      if (![404, 410].includes((error as StowageError).status)) throw error;
    }
  }
}
