import { env } from "cloudflare:workers";
import { type Operation, splitRoute } from "../../src/http/operation.ts";
import { operations } from "../../src/service.ts";
import { type CallOptions, form, PASSWORD, type Team } from "./client.ts";
import { moveToTrash } from "./harness.ts";

export { PASSWORD };

/*
 * The fixture for tests of every route: the routes of the API, a record of each kind, and a valid request for each.
 */

export interface Route {
  /** As in `GET /auth/v1/users/{id}`. */
  name: string;
  method: string;
  path: string;
  operation: Operation;
}

const allRoutes: readonly Route[] = Object.values(operations).map((operation) => ({
  name: operation.route,
  ...splitRoute(operation.route),
  operation,
}));

const isOfUpload = ({ method, path }: Pick<Route, "method" | "path">) =>
  path.startsWith("/docs/v1/uploads/resumable/") || (path === "/docs/v1/uploads/resumable" && method === "POST");

/**
 * Routes of tus need its headers, opening a link no token, and logging out and changing the own password a session. They
 * have their own tests, and those of tus also have their own matrix of callers.
 */
const isOfOthers = (route: Route) =>
  isOfUpload(route) ||
  route.operation.hasSecretPath === true ||
  ["/auth/v1/logout", "/auth/v1/me/password"].includes(route.path) ||
  route.method === "OPTIONS";

export const routes: readonly Route[] = allRoutes.filter((route) => !isOfOthers(route));
/** The routes that create a resumable upload, and that need its upload URL. */
export const uploadRoutes: readonly Route[] = allRoutes.filter(isOfUpload);

export const routeNamed = (name: string): Route => {
  const found = routes.find((route) => route.name === name);
  if (!found) throw new Error(`There is no route ${name}.`);
  return found;
};

/** The routes with a JSON body, and an example of it. */
export const jsonRoutes = routes
  .filter(({ operation }) => operation.body)
  .map((route) => ({ ...route, example: route.operation.bodyExample as object }));

/** Deletions come last, so that the other routes find their records. */
export const deletionsLast = routes.toSorted((a, b) => Number(a.method === "DELETE") - Number(b.method === "DELETE"));

/** An id of each kind of record, by its name in the path. */
export interface Records {
  apikeys: string;
  sessions: string;
  teams: string;
  users: string;
  uploads: string;
  events: string;
  webhooks: string;
  deliveries: string;
  links: string;
  /** A file in the trash. */
  trash: string;
}
export type Noun = keyof Records;

export const nounOf = ({ path }: Pick<Route, "path">): Noun => path.split("/")[3] as Noun;
export const pathTo = (route: Pick<Route, "path">, id: string): string => route.path.replace("{id}", id);
export const pathIn = (route: Pick<Route, "path">, records: Records): string => pathTo(route, records[nounOf(route)]);

export const newEmail = () => `${crypto.randomUUID()}@canary.example`;

const makers: Record<Noun, (team: Team, route?: Pick<Route, "name">) => Promise<string>> = {
  apikeys: async (team) => (await team.call("POST", "/auth/v1/apikeys", { json: { name: "record" } })).body.data.id,
  sessions: async (team) => (await team.call("POST", "/auth/v1/sessions")).body.data.id,
  /** Another team, which may be suspended or deleted. */
  teams: async (team) =>
    (await team.call("POST", "/auth/v1/teams", { json: { name: "record" }, token: env.OPERATOR_TOKEN })).body.data._id,
  users: async (team) =>
    (await team.call("POST", "/auth/v1/users", { json: { email: newEmail(), password: PASSWORD } })).body.data._id,
  events: async (team) => (await team.call("GET", "/auth/v1/events?limit=1")).body.data[0]._id,
  /** With a waveform and a transcript, unless the route needs less. */
  uploads: async (team, route) => {
    const { id } = await team.call("POST", "/docs/v1/uploads", { body: form("record.txt", "record") });
    const isWhole = !route || route.name === "DELETE /docs/v1/uploads/{id}";
    for (const kind of ["waveform", "transcript"]) {
      const put = routes.find(({ name }) => name === `PUT /docs/v1/uploads/{id}/${kind}`);
      if (!put || (!isWhole && !route.name.endsWith(`/${kind}`))) continue;
      await team.call(put.method, pathTo(put, id), requestFor(put));
    }
    return id;
  },
  webhooks: someWebhook,
  links: async (team) => {
    const { id } = await team.call("POST", "/docs/v1/uploads", { body: form("linked.txt", "linked") });
    return (await team.call("POST", `/docs/v1/uploads/${id}/links`, { json: {} })).body.data._id;
  },
  trash: async (team) => {
    const { id } = await team.call("POST", "/docs/v1/uploads", { body: form("trashed.txt", "trashed") });
    // As if the service had a trash.
    await moveToTrash(team, id);
    return id;
  },
  deliveries: async (team) => {
    const path = `/auth/v1/webhooks/${await someWebhook(team)}`;
    await team.call("PATCH", path, { json: { description: "record" } });
    return (await team.call("GET", `${path}/deliveries`)).body.data[0]._id;
  },
};

/** Returns a webhook of the team that receives all events, and creates one only if there is none: a team may have ten. */
async function someWebhook(team: Team): Promise<string> {
  const { data } = (await team.call("GET", "/auth/v1/webhooks")).body;
  const known = data.find(({ types }: { types: string[] | null }) => types === null);
  if (known) return known._id;
  const { body } = await team.call("POST", "/auth/v1/webhooks", { json: { url: "https://hooks.canary.example/" } });
  return body.data._id;
}

/** The operator token if the route needs it; otherwise the team's secret key. */
export const tokenFor = ({ path }: Pick<Route, "path">, team: Team): string =>
  /^\/auth\/v1\/(teams|reconciliation)/.test(path) ? env.OPERATOR_TOKEN : team.token;

/** Creates a record of the route's kind. */
export const newRecord = (team: Team, route: Pick<Route, "name" | "path">): Promise<string> =>
  makers[nounOf(route)](team, route);

/** The kinds of record that routes have. */
const NOUNS = [...new Set(routes.filter(({ path }) => path.includes("{id}")).map(nounOf))];

/** Creates a record of each kind, or of those. */
export async function newRecords(team: Team, nouns: Noun[] = NOUNS): Promise<Records> {
  const ids = await Promise.all(nouns.map(async (noun) => [noun, await makers[noun](team)]));
  return Object.fromEntries(ids) as Records;
}

/** A valid request except for token and id, with a new email each time. */
export function requestFor({ name, operation }: Route): CallOptions {
  if (operation.takesFile) return { body: form("sent.txt", "sent") };
  const [type, body] = Object.entries(operation.takesBytes ?? {})[0] ?? [];
  if (type && body) return { body, headers: { "Content-Type": type } };
  if (name === "POST /auth/v1/users") return { json: { email: newEmail(), password: PASSWORD } };
  return operation.bodyExample === undefined ? {} : { json: operation.bodyExample };
}

/** Routes of the Worker that are not API operations: the OpenAPI document, the health check, and the pages. */
export const PAGES = [
  "GET /openapi.json",
  "GET /llms.txt",
  "GET /reference.md",
  "GET /guide.md",
  "GET /client.md",
  "GET /client.tgz",
  "GET /{name}{client-[\\w.-]+\\.tgz}",
  "GET /reference/{page}{\\w+\\.md}",
  "GET /health",
  "GET /",
  "GET /console/*",
  "GET /reference",
  "GET /reference/",
  "GET /share/{link}",
  "GET /embed/{link}",
];

/** The routes in the app's router, without middleware, preflights, and those that have their own tests. */
export function mountedRoutes(app: { routes: { method: string; path: string }[] }): string[] {
  const others = new Set(allRoutes.filter(isOfOthers).map(({ name }) => name));
  const mounted = app.routes
    .filter(({ method }) => method !== "ALL" && method !== "OPTIONS")
    .map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`)
    .map((name) => name.replace("{link}{[^/]+\\.[^/]+}", "{id}.{secret}"))
    .filter((name) => !others.has(name));
  return [...new Set(mounted)].sort();
}
