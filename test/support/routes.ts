import { api } from "../../src/app.ts";
import { type Operation, splitRoute } from "../../src/http/operation.ts";
import { type CallOptions, form, type Team } from "./client.ts";

/*
 * The one fixture that drives every route of the API: what the routes are, a record of each kind for them to act on, and
 * for each a request that is right in every way.
 */

export interface Route {
  /** As in `GET /auth/v1/users/{id}`. */
  name: string;
  method: string;
  path: string;
  operation: Operation;
}

/** Those of resumable uploads are asked in another way: api/resumable.test.ts has them. */
const isOfOthers = ({ path }: { path: string }) => !path.startsWith("/docs/v1/uploads/resumable");

export const routes: readonly Route[] = Object.values(api)
  .map(([name, operation]) => ({ name, ...splitRoute(name), operation }))
  .filter(isOfOthers);

export const routeNamed = (name: string): Route => {
  const found = routes.find((route) => route.name === name);
  if (!found) throw new Error(`There is no route ${name}.`);
  return found;
};

/** Those that take JSON, each with an example of it. */
export const jsonRoutes = routes
  .filter(({ operation }) => operation.body)
  .map((route) => ({ ...route, example: route.operation.bodyExample as object }));

/** Those that delete come last, so that the others find their records. */
export const deletionsLast = routes.toSorted((a, b) => Number(a.method === "DELETE") - Number(b.method === "DELETE"));

/** An id of each kind of record, by the word for it in the path. */
export interface Records {
  apikeys: string;
  users: string;
  uploads: string;
  events: string;
  webhooks: string;
  deliveries: string;
}
export type Noun = keyof Records;

export const nounOf = ({ path }: Pick<Route, "path">): Noun => path.split("/")[3] as Noun;
export const pathTo = (route: Pick<Route, "path">, id: string): string => route.path.replace("{id}", id);
export const pathIn = (route: Pick<Route, "path">, records: Records): string => pathTo(route, records[nounOf(route)]);

export const PASSWORD = "correct horse battery";
export const newEmail = () => `${crypto.randomUUID()}@canary.example`;

const makers: Record<Noun, (team: Team) => Promise<string>> = {
  apikeys: async (team) => (await team.call("POST", "/auth/v1/apikeys", { json: { name: "record" } })).body.data.id,
  users: async (team) =>
    (await team.call("POST", "/auth/v1/users", { json: { email: newEmail(), password: PASSWORD } })).body.data._id,
  events: async (team) => (await team.call("GET", "/auth/v1/events?limit=1")).body.data[0]._id,
  uploads: async (team) => {
    const { id } = await team.call("POST", "/docs/v1/uploads", { body: form("record.txt", "record") });
    const route = routeNamed("PUT /docs/v1/uploads/{id}/waveform");
    await team.call(route.method, pathTo(route, id), requestFor(route));
    return id;
  },
  webhooks: someWebhook,
  // A webhook is told of its own creation.
  deliveries: async (team) => {
    const { body } = await team.call("GET", `/auth/v1/webhooks/${await someWebhook(team)}/deliveries`);
    return body.data[0]._id;
  },
};

/** One that the team has already, where it has: it may have ten. */
async function someWebhook(team: Team): Promise<string> {
  const [known] = (await team.call("GET", "/auth/v1/webhooks")).body.data;
  if (known) return known._id;
  const { body } = await team.call("POST", "/auth/v1/webhooks", { json: { url: "https://hooks.canary.example/" } });
  return body.data._id;
}

/** A record of the kind that the route is about. */
export const newRecord = (team: Team, route: Pick<Route, "path">): Promise<string> => makers[nounOf(route)](team);

export async function newRecords(team: Team): Promise<Records> {
  const nouns = Object.keys(makers) as Noun[];
  const ids = await Promise.all(nouns.map(async (noun) => [noun, await makers[noun](team)]));
  return Object.fromEntries(ids) as Records;
}

/** A request that is right in all but its token and id: each about an email of its own. */
export function requestFor({ name, operation }: Route): CallOptions {
  if (operation.takesFile) return { body: form("sent.txt", "sent") };
  if (name === "POST /auth/v1/users") return { json: { email: newEmail(), password: PASSWORD } };
  return operation.bodyExample === undefined ? {} : { json: operation.bodyExample };
}

/** What the Worker answers that is no operation of the service: its description, and the pages for people. */
export const PAGES = ["GET /openapi.json", "GET /", "GET /console/*", "GET /reference", "GET /reference/"];

/** The routes that the app has mounted, as its router tells; without middleware and the answer to preflights. */
export function mountedRoutes(app: { routes: { method: string; path: string }[] }): string[] {
  const mounted = app.routes
    .filter((route) => route.method !== "ALL" && route.method !== "OPTIONS" && isOfOthers(route))
    .map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`);
  return [...new Set(mounted)].sort();
}
