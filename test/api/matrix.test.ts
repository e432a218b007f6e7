import { env } from "cloudflare:workers";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { createApp } from "../../src/app.ts";
import { splitRoute } from "../../src/http/operation.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb } from "../../src/platform/db.ts";
import { createJobs, type Job } from "../../src/platform/jobs.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { operations as api } from "../support/contract.ts";
import { watch } from "../support/effects.ts";
import { form, newTeam, newUser, OPERATOR, PASSWORD, startWorker, type Team } from "../support/harness.ts";

/*
 * Every route × every credential × every kind of id. What is expected comes from the few rules below, which restate
 * decisions.md and know nothing of the code's own table of rights: a route that declares too much fails here.
 */

const CREDENTIALS = {
  "no token": "missing",
  "a malformed token": "invalid",
  "an unknown token": "invalid",
  "an expired token": "invalid",
  "a revoked token": "invalid",
  "a public key": "public",
  "the operator's token": "operator",
  "another team's key": "stranger",
  "the team's own key": "owner",
} as const;
type Credential = keyof typeof CREDENTIALS;

const IDS = ["own id", "foreign id", "unknown id", "malformed id"] as const;
type IdKind = (typeof IDS)[number] | "no id";

/** decisions.md, Tokens: which of them a route takes. */
function takers(route: string): readonly string[] | "anyone" {
  if (route === "POST /auth/v1/login") return "anyone";
  if (route.includes("/apikeys")) return ["operator", "stranger", "owner"];
  if (route === "POST /docs/v1/uploads") return ["public", "stranger", "owner"];
  return ["stranger", "owner"];
}

/** What is answered: the token is judged first, then the right, then whether the id is one of the caller's. */
function expected(route: string, credential: Credential, id: IdKind): [status: number, code?: string] {
  const caller = CREDENTIALS[credential];
  const taken = takers(route);
  if (taken === "anyone") return [401, "login_failed"]; // the example's user does not exist
  if (caller === "missing") return [401, "token_missing"];
  if (caller === "invalid") return [401, "token_invalid"];
  if (!taken.includes(caller)) return [403, "forbidden"];
  const sees = { owner: ["own id"], operator: ["own id", "foreign id"], stranger: [], public: [] }[caller];
  return id === "no id" || (sees as string[]).includes(id) ? [200] : [404, "not_found"];
}

const UNKNOWN_ID = "0193477be8a01f9c3ad5e7b2";
const MALFORMED_IDS = ["nonsense", "%00", "..%2f..", "%252e%252e", "'%20or%201=1--", "0".repeat(2000), "%ff", "%"];
const NOT_FOUND = '{"status":false,"message":"Not found.","code":"not_found","requestId":"-"}';

const routes = Object.entries(api).map(([route, operation]) => ({ route, ...splitRoute(route), operation }));

// The queue takes messages and delivers none: nothing but the request at hand can change a row.
const sink = { send: async () => {}, sendBatch: async () => {} } as unknown as Queue<Job>;
const { bindings, effects } = watch({ DB: env.DB, BUCKET: env.BUCKET, JOBS: sink as Queue });
const worker = startWorker((deps) => ({
  ...deps,
  db: createDb(bindings.DB),
  bytes: createByteStore(bindings.BUCKET, realSystem),
  jobs: createJobs(bindings.JOBS as Queue<Job>),
  limiter: {
    token: async () => true,
    address: async () => true,
    isRefused: () => false,
    authenticated: () => {},
    login: async () => true,
  },
}));

/** Everything there is: every row of every table, every object. */
async function everything(): Promise<unknown> {
  const tables = ["api_keys", "users", "files", "team_usage"].map((name) => env.DB.prepare(`select * from ${name}`));
  const rows = (await env.DB.batch(tables)).map(({ results }) => results);
  const { objects } = await env.BUCKET.list({ limit: 1000 });
  return { rows, objects: objects.map(({ key, etag, size }) => [key, etag, size]), messages: effects.messages };
}

interface Records {
  apikeys: string;
  users: string;
  uploads: string;
}

async function newRecords(team: Team): Promise<Records> {
  const email = `${crypto.randomUUID()}@canary.example`;
  // Stored as such: hashing is none of the matrix's business, and slow.
  const [key, upload] = await Promise.all([
    team.call("POST", "/auth/v1/apikeys", { json: { name: "record" } }),
    team.call("POST", "/docs/v1/uploads", { body: form("record.txt", "record") }),
  ]);
  const users = (id: string) =>
    env.DB.prepare("insert into users values (?1, ?2, '', '', ?3, ?3, 'no hash', 1, 1, 0)").bind(
      id,
      team.teamId,
      email,
    );
  const id = realSystem.now().toString(16).padStart(12, "0") + crypto.randomUUID().slice(-12);
  await users(id).run();
  return { apikeys: key.body.data.id, users: id, uploads: upload.headers.get("Location")?.split("/").at(-1) ?? "" };
}

let mine: Team;
let theirs: Team;
let bystander: Team;
let own: Records;
let foreign: Records;
let isUsedUp = false;
let tokens: Record<Credential, string | undefined>;

beforeAll(async () => {
  [mine, theirs, bystander] = await Promise.all([newTeam(worker), newTeam(worker), newTeam(worker)]);
  foreign = await newRecords(bystander);
  own = await newRecords(mine);
  const make = async (json: object) => (await mine.call("POST", "/auth/v1/apikeys", { json })).body.data;
  const [expired, revoked, page] = [
    await make({ name: "expired" }),
    await make({ name: "revoked" }),
    await make({ name: "page", isPublic: true }),
  ];
  await env.DB.prepare("update api_keys set expires_at = ? where id = ?").bind(Date.now(), expired.id).run();
  await mine.call("DELETE", `/auth/v1/apikeys/${revoked.id}`);
  tokens = {
    "no token": undefined,
    "a malformed token": `${mine.token.slice(0, -1)}${mine.token.endsWith("0") ? "1" : "0"}`,
    "an unknown token": newToken(realSystem, false),
    "an expired token": expired.key,
    "a revoked token": revoked.key,
    "a public key": page.key,
    "the operator's token": OPERATOR,
    "another team's key": theirs.token,
    "the team's own key": mine.token,
  };
});

// The cells that delete a record leave the next ones without.
afterEach(async () => {
  if (isUsedUp) [own, foreign] = [await newRecords(mine), await newRecords(bystander)];
  isUsedUp = false;
});

function idsFor(path: string, kind: IdKind): string[] {
  const records = path.split("/")[3] as keyof Records;
  if (kind === "own id") return [own[records]];
  if (kind === "foreign id") return [foreign[records]];
  // A record's id is known to the routes of its own kind only.
  if (kind === "unknown id") return [UNKNOWN_ID, own[records === "users" ? "uploads" : "users"]];
  return kind === "no id" ? [""] : [...MALFORMED_IDS, own[records].toUpperCase(), `${own[records]}%20`];
}

/** A request that is right in all but its token and id. */
function request({ route, operation }: (typeof routes)[number]) {
  if (operation.takesFile) return { body: form("sent.txt", "sent") };
  if (route === "POST /auth/v1/users") {
    return { json: { email: `${crypto.randomUUID()}@canary.example`, password: "canary-password" } };
  }
  return operation.bodyExample === undefined ? {} : { json: operation.bodyExample };
}

const cells = new Set<string>();

describe.each(routes)("$route", (one) => {
  const { route, method, path } = one;
  const kinds: readonly IdKind[] = path.includes("{id}") ? IDS : ["no id"];

  test.each(Object.keys(CREDENTIALS) as Credential[])("with %s", async (credential) => {
    const token = tokens[credential];
    // Refusals first: what may succeed changes something.
    for (const kind of [...kinds].reverse()) {
      const [status, code] = expected(route, credential, kind);
      const before = await everything();
      for (const id of idsFor(path, kind)) {
        const where = `${route} with ${credential}, ${kind} ${id}`;
        const trips = effects.trips;
        const answer = await worker.call(method, path.replace("{id}", id), { token, ...request(one) });
        expect([answer.status, answer.body?.code], where).toEqual([status, code]);
        if (status === 404) {
          expect(answer.text.replace(/"requestId":"[^"]+"/, '"requestId":"-"'), where).toBe(NOT_FOUND);
        }
        expect(answer.headers.get("WWW-Authenticate"), where).toBe(status === 401 ? "Bearer" : null);
        const isReadable = !["no token", "a malformed token"].includes(credential);
        if (takers(route) !== "anyone" && !isReadable) expect(effects.trips, `${where} asked D1`).toBe(trips);
        // Of another team nothing is shown in any answer.
        if (credential === "another team's key") expect(answer.text, where).not.toContain(mine.teamId);
        if (status === 200 && method === "DELETE") {
          isUsedUp = true;
          break;
        }
      }
      if (status >= 400) expect(await everything(), `${route} with ${credential}, ${kind}`).toEqual(before);
      cells.add(`${route} | ${credential} | ${kind}`);
    }
  });
});

describe("the matrix", () => {
  test("is run over every route that the Worker answers", () => {
    const mounted = createApp()
      .routes.filter(({ path }) => path !== "/*")
      .map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`);
    const known = [...routes.map(({ route }) => route), "GET /openapi.json"];
    expect([...new Set(mounted)].sort()).toEqual([...known].sort());
  });

  test("has a cell for each route, credential and kind of id", () => {
    const withId = routes.filter(({ path }) => path.includes("{id}")).length;
    expect(cells.size).toBe(Object.keys(CREDENTIALS).length * (withId * IDS.length + routes.length - withId));
  });
});

describe("a login's key", () => {
  test("has the rights of a secret key, in its own team only", async () => {
    const team = await newTeam();
    const user = await newUser(team);
    const json = { teamId: team.teamId, email: user.email, password: PASSWORD };
    const { body } = await team.call("POST", "/auth/v1/login", { json });
    const token = body.data.key;
    expect((await team.call("GET", `/auth/v1/users/${user._id}`, { token })).status).toBe(200);
    expect((await team.call("GET", `/auth/v1/users/${foreign.users}`, { token })).status).toBe(404);
  });
});

describe("a path", () => {
  test.each([...new Set(routes.map(({ path }) => path))])("%s takes only its methods, and names them", async (path) => {
    const taken = routes.filter((route) => route.path === path).map(({ method }) => method);
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"].filter((one) => !taken.includes(one))) {
      const { status, headers, body } = await mine.call(method, path.replace("{id}", mine.keyId));
      expect([status, body.code]).toEqual([405, "method_not_allowed"]);
      expect(headers.get("Allow")?.split(", ")).toEqual(expect.arrayContaining(taken));
    }
  });

  test.each([
    "/",
    "/auth/v1",
    "/docs/v1/uploads/",
    "/auth/v2/users",
    "/auth/v1/users/a/b",
    "/auth/v1//users",
    "/AUTH/v1/users",
    "/auth%2fv1/users",
    "/auth/v1/users;a=b",
  ])("%s that is not there is route_not_found", async (path) => {
    const { status, body } = await mine.call("GET", path);
    expect([status, body.code]).toEqual([404, "route_not_found"]);
  });
});
