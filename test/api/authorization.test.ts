import { env } from "cloudflare:workers";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { createApp } from "../../src/app.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { sink, withBindings } from "../support/deps.ts";
import {
  call,
  compose,
  newTeam,
  newUser,
  OPERATOR,
  startWorker,
  type Team,
  withoutHashing,
  withoutLimits,
} from "../support/harness.ts";
import {
  mountedRoutes,
  newRecords,
  nounOf,
  PAGES,
  pathTo,
  type Records,
  type Route,
  requestFor,
  routes,
} from "../support/routes.ts";

/*
 * Every route × every credential × every kind of id. What is expected comes from the few rules below, which restate
 * decisions.md and know nothing of the code's own table of rights: a route that declares too much fails here. After them,
 * what a token is, and what is none.
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
  if (route.includes("/apikeys") || route.includes("/events")) return ["operator", "stranger", "owner"];
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
const withoutRequestId = (text: string) => text.replace(/"requestId":"[^"]+"/, '"requestId":"-"');

// The queue takes messages and delivers none: nothing but the request at hand can change a row.
const bindings = new ProxiedBindings();
const { effects } = bindings;
const bound = bindings.wrap({ DB: env.DB, BUCKET: env.BUCKET, JOBS: sink });
const worker = startWorker(compose((deps) => withBindings(deps, bound), withoutLimits, withoutHashing));

/** What the Worker has written so far: rows (D1 counts them), changes of objects, messages. */
const written = () => ({
  rows: effects.rowsWritten,
  objects: effects.r2.filter((operation) => !["head", "get", "list"].includes(operation)),
  messages: effects.messages,
});

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

function idsFor(route: Route, kind: IdKind): string[] {
  const noun = nounOf(route);
  if (kind === "own id") return [own[noun]];
  if (kind === "foreign id") return [foreign[noun]];
  // A record's id is known to the routes of its own kind only.
  if (kind === "unknown id") return [UNKNOWN_ID, own[noun === "users" ? "uploads" : "users"]];
  return kind === "no id" ? [""] : [...MALFORMED_IDS, own[noun].toUpperCase(), `${own[noun]}%20`];
}

/** The operator has to name the team whose events are asked for. */
const queryFor = (route: string, credential: Credential, kind: IdKind): string => {
  if (!route.includes("/events") || CREDENTIALS[credential] !== "operator") return "";
  return `?teamId=${(kind === "foreign id" ? bystander : mine).teamId}`;
};
const kindsOf = ({ path }: Route): readonly IdKind[] => (path.includes("{id}") ? IDS : ["no id"]);
const cells = new Set<string>();

describe.each(routes)("$name", (route) => {
  const { name, method } = route;

  test.each(Object.keys(CREDENTIALS) as Credential[])(
    "A caller with %s gets what the token allows.",
    async (credential) => {
      const token = tokens[credential];
      // Refusals first: what may succeed changes something.
      for (const kind of kindsOf(route).toReversed()) {
        const [status, code] = expected(name, credential, kind);
        const before = written();
        for (const id of idsFor(route, kind)) {
          const where = `${name} with ${credential}, ${kind} ${id}`;
          const trips = effects.trips;
          const path = pathTo(route, id) + queryFor(name, credential, kind);
          const answer = await worker.call(method, path, { ...requestFor(route), token });
          expect([answer.status, answer.code], where).toEqual([status, code]);
          if (status === 404) expect(withoutRequestId(answer.text), where).toBe(NOT_FOUND);
          expect(answer.headers.get("WWW-Authenticate"), where).toBe(status === 401 ? "Bearer" : null);
          const isReadable = !["no token", "a malformed token"].includes(credential);
          if (takers(name) !== "anyone" && !isReadable) expect(effects.trips, `${where} asked D1`).toBe(trips);
          // Of another team nothing is shown in any answer.
          if (credential === "another team's key") expect(answer.text, where).not.toContain(mine.teamId);
          if (status === 200 && method === "DELETE") {
            isUsedUp = true;
            break;
          }
        }
        if (status >= 400) expect(written(), `${name} with ${credential}, ${kind}`).toEqual(before);
        cells.add(`${name} | ${credential} | ${kind}`);
      }
    },
  );
});

describe("The matrix", () => {
  test("The matrix is run over every route that the Worker answers.", () => {
    const known = [...routes.map(({ name }) => name), ...PAGES];
    expect(mountedRoutes(createApp())).toEqual(known.sort());
  });

  test("The matrix has a cell for each route, credential and kind of id.", () => {
    const kinds = routes.flatMap((route) => kindsOf(route));
    expect(cells.size).toBe(Object.keys(CREDENTIALS).length * kinds.length);
  });
});

const authorized = (value: string, path = "/docs/v1/usage") => call("GET", path, { headers: { Authorization: value } });

describe("A token", () => {
  test("A token is not taken from the query, a cookie, a form or another header.", async () => {
    const { token } = mine;
    for (const name of ["token", "access_token", "key"]) {
      const { status, code } = await call("GET", `/docs/v1/usage?${name}=${token}`);
      expect([status, code]).toEqual([401, "token_missing"]);
    }
    expect((await call("GET", `/docs/v1/usage?authorization=Bearer%20${token}`)).code).toBe("token_missing");
    for (const name of ["Cookie", "X-Api-Key", "X-Auth-Token", "Proxy-Authorization", "X-Authorization", "Api-Key"]) {
      const { status } = await call("GET", "/docs/v1/usage", { headers: { [name]: `Bearer ${token}` } });
      expect(status, name).toBe(401);
    }
    const json = { name: "a", access_token: token };
    expect((await call("POST", "/auth/v1/apikeys", { json })).status).toBe(401);
  });

  test.each<[string, (token: string) => string]>([
    ["without a scheme", (token) => token],
    ["as Basic", (token) => `Basic ${btoa(`${token}:`)}`],
    ["as Basic in the clear", (token) => `Basic ${token}`],
    ["as Token", (token) => `Token ${token}`],
    ["as Digest", (token) => `Digest username="${token}"`],
    ["with something behind it", (token) => `Bearer ${token} x`],
    ["twice", (token) => `Bearer ${token}, Bearer ${token}`],
    ["after a bad one", (token) => `Bearer bad, Bearer ${token}`],
    ["before a bad one", (token) => `Bearer ${token},bad`],
    ["in quotes", (token) => `Bearer "${token}"`],
    ["as a parameter", (token) => `Bearer token=${token}`],
    ["with a colon", (token) => `Bearer: ${token}`],
    ["without a space", (token) => `Bearer${token}`],
    ["after a tab", (token) => `Bearer\t${token}`],
    ["in upper case", (token) => `Bearer ${token.toUpperCase()}`],
    ["percent-encoded", (token) => `Bearer ${token.replace("_", "%5F")}`],
    ["cut", (token) => `Bearer ${token.slice(0, -1)}`],
    ["doubled", (token) => `Bearer ${token}${token}`],
    ["with a zero in front", (token) => `Bearer 0${token}`],
    ["with a wildcard", (token) => `Bearer ${token.slice(0, -1)}%`],
    ["as its hash", () => "Bearer 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ["empty", () => "Bearer "],
    ["of 100,000 characters", () => `Bearer ${"a".repeat(100_000)}`],
    ["of 100,000 characters after a good one", (token) => `Bearer ${token}${"0".repeat(100_000)}`],
  ])("A token sent %s is refused with 401.", async (_, header) => {
    const { status, code, headers } = await authorized(header(mine.token));
    expect(status).toBe(401);
    expect(["token_missing", "token_invalid"]).toContain(code);
    expect(headers.get("WWW-Authenticate")).toBe("Bearer");
  });

  test("A token may follow the name of the scheme in any case, as HTTP has it.", async () => {
    for (const scheme of ["bearer", "BEARER", "BeArEr "])
      expect((await authorized(`${scheme} ${mine.token}`)).status).toBe(200);
  });

  test("Two Authorization headers authenticate nobody.", async () => {
    const headers = new Headers({ Authorization: `Bearer ${mine.token}` });
    headers.append("Authorization", `Bearer ${theirs.token}`);
    expect((await authorized(headers.get("Authorization") ?? "")).status).toBe(401);
  });

  test("A public key is not made a secret one by its prefix.", async () => {
    const forged = tokens["a public key"]?.replace("stow_pk_", "stow_sk_");
    expect((await call("GET", "/docs/v1/usage", { token: forged })).code).toBe("token_invalid");
  });

  test("The operator's token is whole or none, and is no token of the database.", async () => {
    for (const token of [OPERATOR.slice(0, -1), `${OPERATOR}0`, OPERATOR.toUpperCase(), ` ${OPERATOR.slice(1)}`]) {
      expect((await call("GET", "/auth/v1/apikeys", { token })).status).toBe(401);
    }
    const row = await env.DB.prepare("select count(*) as n from api_keys where token_hash = ?").bind(OPERATOR).first();
    expect(row).toEqual({ n: 0 });
  });

  test("Nobody is the operator where the operator's token is not set.", async () => {
    const bare = startWorker((deps) => ({ ...deps, settings: { ...deps.settings, operatorToken: null } }));
    const { status, code } = await bare.call("GET", "/auth/v1/apikeys", { token: OPERATOR });
    expect([status, code]).toEqual([401, "token_invalid"]);
  });

  test("Malformed, unknown, expired and revoked tokens are refused with the same bytes and headers.", async () => {
    const kinds = ["a malformed token", "an unknown token", "an expired token", "a revoked token"] as const;
    const answers = await Promise.all(kinds.map((kind) => call("GET", "/docs/v1/usage", { token: tokens[kind] })));
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 401]);
    expect(new Set(answers.map(({ text }) => withoutRequestId(text))).size).toBe(1);
    expect(new Set(answers.map(({ headers }) => [...headers.keys()].sort().join())).size).toBe(1);
  });

  test("The key of a login has the rights of a secret key, in its own team only.", async () => {
    const team = await newTeam();
    const user = await newUser(team);
    const json = { teamId: team.teamId, email: user.email, password: "correct horse battery" };
    const { key: token } = (await team.call("POST", "/auth/v1/login", { json })).body.data;
    expect((await team.call("GET", `/auth/v1/users/${user._id}`, { token })).status).toBe(200);
    expect((await team.call("GET", `/auth/v1/users/${foreign.users}`, { token })).status).toBe(404);
  });
});
