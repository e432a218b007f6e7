import type { Api, Schemas } from "./api.ts";
import type { Call, List } from "./call.ts";
import { type CallOptions, type Filters, Resource } from "./connection.ts";

export type TeamFilters = Filters<"GET /auth/v1/teams">;
export type TeamInput = Api["POST /auth/v1/teams"]["body"];
export type TeamChanges = Api["PATCH /auth/v1/teams/{id}"]["body"];

/** Teams. They need the operator token, except that a secret key can get its own team. */
export class Teams extends Resource {
  /** Creates a team and its first secret key. */
  create(team: TeamInput, options?: CallOptions): Call<{ team: Schemas["Team"]; apiKey: Schemas["ApiKey"] }> {
    const input = { body: team };
    return this.connection.json("POST /auth/v1/teams", input, options, ({ data, apiKey }) => ({ team: data, apiKey }));
  }

  /** Lists teams, newest first, or by name if `name` is given. */
  list(filters?: TeamFilters, options?: CallOptions): List<Schemas["Team"]> {
    return this.connection.list("GET /auth/v1/teams", { query: filters }, options);
  }

  /** Returns a team, with its usage and quotas. */
  get(id: string, options?: CallOptions): Call<Schemas["Team"]> {
    return this.connection.json("GET /auth/v1/teams/{id}", { id }, options);
  }

  /** Updates a team. With `status: "suspended"`, its tokens are rejected from the next request on. */
  update(id: string, changes: TeamChanges, options?: CallOptions): Call<Schemas["Team"]> {
    return this.connection.json("PATCH /auth/v1/teams/{id}", { id, body: changes }, options);
  }

  /** Deletes the index of what is said in a team's transcripts, and builds it again in the background. */
  rebuildSearch(id: string, options?: CallOptions): Call<void> {
    const input = { id, isIdempotent: true };
    return this.connection.empty("POST /auth/v1/teams/{id}/search/rebuild", input, options);
  }

  /** Deletes a team with everything that it has. Irreversible. The team stays visible as `deleting` for a while. */
  delete(id: string, options?: CallOptions): Call<void> {
    return this.connection.empty("DELETE /auth/v1/teams/{id}", { id }, options);
  }
}
