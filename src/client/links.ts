import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection } from "./connection.ts";

type LinkOptions = CallOptions & Api["POST /docs/v1/uploads/{id}/links"]["body"];

/** Download links, which work without a token until they expire or you revoke them. */
export class Links {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Creates a link. Only this response contains its `url`. */
  async create(fileId: string, { signal, ...body }: LinkOptions = {}): Promise<Schemas["NewLink"]> {
    return this.#connection.data("POST /docs/v1/uploads/{id}/links", { id: fileId, body, signal });
  }

  /** Lists the links of a file, oldest first, without their URLs. */
  async list(fileId: string, { signal }: CallOptions = {}): Promise<Schemas["Link"][]> {
    return this.#connection.data("GET /docs/v1/uploads/{id}/links", { id: fileId, signal });
  }

  /** Revokes a link. It stops working with the next request. */
  async revoke(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /docs/v1/links/{id}", { id, signal });
  }
}
