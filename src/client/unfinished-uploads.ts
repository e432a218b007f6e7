import type { Schemas } from "./api.ts";
import { type Call, callOf, type List } from "./call.ts";
import { type CallOptions, type Filters, Resource } from "./connection.ts";
import { cancelUpload, GONE } from "./upload-url.ts";

export type UnfinishedUploadFilters = Filters<"GET /docs/v1/uploads/resumable">;

/** Unfinished uploads. Each counts against the storage quota until it is finished, canceled, or expired. */
export class UnfinishedUploads extends Resource {
  /** Lists the uploads that hold quota and are not files yet, newest first: also form uploads, and canceled ones until their bytes are gone. */
  list(filters?: UnfinishedUploadFilters, options?: CallOptions): List<Schemas["UnfinishedUpload"]> {
    return this.connection.list("GET /docs/v1/uploads/resumable", { query: filters }, options);
  }

  /**
   * Cancels an upload, and deletes its bytes and quota reservation. Does nothing if it no longer exists.
   * @param upload its URL, or its id, which needs a secret key. If the upload is complete, the file stays, and
   *   the call fails with `forbidden`
   */
  cancel(upload: string, options?: CallOptions): Call<void> {
    if (/[/.]/.test(upload))
      return callOf((onResponse) => cancelUpload(this.connection, upload, { ...options, onResponse }));
    const input = { id: upload, query: { unfinished: true }, nullCodes: GONE };
    return this.connection.empty("DELETE /docs/v1/uploads/{id}", input, options);
  }
}
