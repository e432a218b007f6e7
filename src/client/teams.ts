import type { Api, Schemas } from "./api.ts";
import type { CallOptions, Connection, List } from "./connection.ts";

type TeamFilters = Omit<NonNullable<Api["GET /auth/v1/teams"]["query"]>, "cursor" | "page">;

/** Teams. They need the operator token, except that a secret key can get its own team. */
export class Teams {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Creates a team and its first secret key. */
  async create(
    team: Api["POST /auth/v1/teams"]["body"],
    { signal }: CallOptions = {},
  ): Promise<{ team: Schemas["Team"]; apiKey: Schemas["ApiKey"] }> {
    const { data, apiKey } = await this.#connection.call("POST /auth/v1/teams", { body: team, signal });
    return { team: data, apiKey };
  }

  /** Lists teams, newest first, or by name if `name` is given. */
  list(filters: TeamFilters = {}, { signal }: CallOptions = {}): List<Schemas["Team"]> {
    return this.#connection.list("GET /auth/v1/teams", { query: filters, signal });
  }

  async get(id: string, { signal }: CallOptions = {}): Promise<Schemas["Team"]> {
    return this.#connection.data("GET /auth/v1/teams/{id}", { id, signal });
  }

  /** Updates a team. With `status: "suspended"`, its tokens are rejected from the next request on. */
  async update(
    id: string,
    changes: Api["PATCH /auth/v1/teams/{id}"]["body"],
    { signal }: CallOptions = {},
  ): Promise<Schemas["Team"]> {
    return this.#connection.data("PATCH /auth/v1/teams/{id}", { id, body: changes, signal });
  }

  /** Deletes a team with everything that it has. Irreversible. The team stays visible as `deleting` for a while. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#connection.call("DELETE /auth/v1/teams/{id}", { id, signal });
  }
}
