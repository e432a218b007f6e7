import type { Api, Schemas } from "./api.ts";
import type { Call, List } from "./call.ts";
import { type CallOptions, Resource } from "./connection.ts";

export type LinkInput = Api["POST /docs/v1/uploads/{id}/links"]["body"];

/** Download links, which work without a token until they expire or you delete them. */
export class Links extends Resource {
  /** Creates a link. Only this response contains its `url`. */
  create(fileId: string, link?: LinkInput, options?: CallOptions): Call<Schemas["NewLink"]> {
    return this.connection.json("POST /docs/v1/uploads/{id}/links", { id: fileId, body: link }, options);
  }

  /** Lists the links of a file, oldest first, without their URLs. */
  list(fileId: string, options?: CallOptions): List<Schemas["Link"]> {
    return this.connection.list("GET /docs/v1/uploads/{id}/links", { id: fileId }, options);
  }

  /** Revokes a link. It stops working with the next request. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /docs/v1/links/{id}", { id }, options);
  }
}
