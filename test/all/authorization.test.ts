import { env } from "cloudflare:workers";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { splitRoute } from "../../src/http/operation.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { databaseOf, newId, newToken, realSystem } from "../../src/platform/system.ts";
import { operations } from "../../src/service.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { DATABASES, DB } from "../support/databases.ts";
import { sink, withBindings } from "../support/deps.ts";
import {
  type Answer,
  type Change,
  call,
  compose,
  newKey,
  newMember,
  newSession,
  newTeam,
  OPERATOR,
  snapshot,
  startWorker,
  type Team,
  withoutHashing,
  withoutLimits,
  withoutRequestId,
} from "../support/harness.ts";
import {
  type Actor,
  mayDo,
  type Operation,
  PERMISSIONS,
  type Permission,
  ROLES,
  SCOPES,
  scopesOf,
  VISITOR,
  WITHOUT_PERMISSION,
} from "../support/permissions.ts";
import {
  type Noun,
  newRecord,
  newRecords,
  nounOf,
  pathTo,
  type Records,
  type Route,
  requestFor,
  routes,
  uploadRoutes,
} from "../support/routes.ts";
import { isExhaustive } from "../support/tiers.ts";
import { create as createUpload } from "../support/tus.ts";
import { newUploadToken } from "../support/visitors.ts";

/*
 * Every route × every credential × every kind of id. The expectations come from support/permissions.ts, which
 * restates the documented permissions independently of the code: a route that allows too much fails here. Tests of the token itself
 * follow.
 */

const CREDENTIALS = {
  "no token": "missing",
  "a malformed token": "invalid",
  "an unknown token": "invalid",
  "an expired token": "invalid",
  "a revoked token": "invalid",
  "a public key": "public",
  "an upload token": "public",
  "the operator token": "operator",
  "another team's key": "stranger",
  "a contributor of the team": "limited",
  "the team's own key": "owner",
} as const;
type Credential = keyof typeof CREDENTIALS;

/** A request, and what it spends. */

const IDS = ["own id", "another team's id", "unknown id", "malformed id"] as const;
type IdKind = (typeof IDS)[number] | "no id";

/** The response to the example of a route that needs no token. The example's user and invitation do not exist. */
const PUBLIC: Record<string, [status: number, code?: string]> = {
  "POST /auth/v1/login": [401, "login_failed"],
  "POST /auth/v1/invitations/describe": [401, "token_invalid"],
  "POST /auth/v1/invitations/accept": [401, "token_invalid"],
  "POST /auth/v1/password/forgot": [200],
};

const idOf = new Map(Object.entries(operations).map(([id, { route }]) => [route as string, id]));
const targetOf = ({ path }: Pick<Route, "path">): Operation["target"] => {
  const [, , , noun = ""] = path.split("/");
  if (!/\{\w+\}/.test(path)) return undefined;
  return ["uploads", "trash", "links"].includes(noun) ? "file" : "other";
};
/** Without a trash, as here, these erase files. */
const ERASING = ["deleteFile", "deleteFolder", "setRetention"];
/** An operation with its permission. */
const operationOf = (id: string, route: Pick<Route, "path">): Operation => ({
  ...(PERMISSIONS[id] as Permission),
  ...(ERASING.includes(id) && { further: ["files:erase"] }),
  target: targetOf(route),
});

/** The callers of the tokens that the service accepts. */
const ACTORS: Partial<Record<(typeof CREDENTIALS)[Credential], Actor>> = {
  operator: { kind: "operator", scopes: [], role: null },
  stranger: { kind: "secret", scopes: SCOPES, role: null },
  owner: { kind: "secret", scopes: SCOPES, role: null },
  limited: { kind: "session", scopes: ROLES.contributor ?? [], role: "contributor" },
};
const STATUSES: Record<string, number> = { forbidden: 403, insufficient_scope: 403, not_found: 404 };
const responseOf = (outcome: string): [status: number, code?: string] =>
  outcome === "yes" ? [200] : [STATUSES[outcome] ?? 0, outcome];

/** The expected response. The service checks the token first, then the permission, then whether the id is the caller's. */
function expected(route: Route, credential: Credential, id: IdKind): [status: number, code?: string] {
  const caller = CREDENTIALS[credential];
  if (PUBLIC[route.name]) return PUBLIC[route.name] as [number, string];
  if (caller === "missing") return [401, "token_missing"];
  if (caller === "invalid") return [401, "token_invalid"];
  const kind = credential === "an upload token" ? "upload token" : "public";
  const actor = ACTORS[caller] ?? { kind, scopes: VISITOR, role: null };
  const isKnown = id === "own id" || id === "another team's id";
  // The record of a team is another team.
  const isOwn = caller !== "stranger" && id === "own id" && nounOf(route) !== "teams";
  const team = isOwn ? "the actor's" : isKnown ? "another" : "unknown";
  return responseOf(mayDo(actor, operationOf(idOf.get(route.name) ?? "", route), { team, isOwn: false, scopes: [] }));
}

const UNKNOWN_ID = "0193477be8a01f9c3ad5e7b2";
const MALFORMED_IDS = ["nonsense", "%00", "..%2f..", "%252e%252e", "'%20or%201=1--", "0".repeat(2000), "%ff", "%"];
const NOT_FOUND = { status: false, message: "Not found.", code: "not_found", requestId: expect.any(String) };
// The queue accepts messages and delivers none, so only the request under test can change a row.
const bindings = new ProxiedBindings();
const { effects } = bindings;
const bound = bindings.wrap({ ...DATABASES, BUCKET: env.BUCKET, JOBS: sink });
const NOTHING_SPENT = { light: 0, heavy: 0, passwords: 0 };
let spent = { ...NOTHING_SPENT };
function spend(limit: keyof typeof spent): Promise<boolean> {
  spent[limit] += 1;
  return Promise.resolve(true);
}
const counting: Change = (deps) => ({
  ...deps,
  limiter: {
    ...deps.limiter,
    countRequest: (_, isHeavy) => spend(isHeavy ? "heavy" : "light"),
    countRefusal: (_, __, limit) => spend(limit.endsWith("heavy") ? "heavy" : "light"),
    countPasswordHash: () => spend("passwords"),
  },
});
const worker = startWorker(compose((deps) => withBindings(deps, bound), withoutLimits, withoutHashing, counting));

/** Returns the Worker's writes so far: rows (counted by D1), changes of objects, and messages. */
const written = () => ({
  rows: effects.rowsWritten,
  objects: effects.r2.filter((operation) => !["head", "get", "list"].includes(operation)),
  messages: effects.messages,
});

let mine: Team;
let theirs: Team;
let bystander: Team;
let own: Records;
let others: Records;
/** The kinds of records that the test has deleted. */
let deleted: Noun[] = [];
let tokens: Record<Credential, string | undefined>;
let expiredSession: string;

beforeAll(async () => {
  [mine, theirs, bystander] = await Promise.all([newTeam(worker), newTeam(worker), newTeam(worker)]);
  others = await newRecords(bystander);
  own = await newRecords(mine);
  const [expired, revoked, page] = [await newKey(mine), await newKey(mine), await newKey(mine, { isPublic: true })];
  await DB.prepare("update api_keys set expires_at = ? where id = ?").bind(Date.now(), expired.id).run();
  await mine.call("DELETE", `/auth/v1/apikeys/${revoked.id}`);
  expiredSession = await newSession(mine, (await newMember(mine, "admin")).id);
  await DB.prepare("update api_keys set expires_at = ? where token_hash = ?")
    .bind(Date.now(), fingerprint(expiredSession))
    .run();
  tokens = {
    "no token": undefined,
    "a malformed token": `${mine.token.slice(0, -1)}${mine.token.endsWith("0") ? "1" : "0"}`,
    "an unknown token": newToken(realSystem, "secret", 0),
    "an expired token": expired.key,
    "a revoked token": revoked.key,
    "a public key": page.key,
    "an upload token": (await newUploadToken(mine)).token,
    "the operator token": OPERATOR,
    "another team's key": theirs.token,
    "a contributor of the team": (await newMember(mine, "contributor")).token,
    "the team's own key": mine.token,
  };
});

// A successful DELETE leaves the next requests without a record, and a restored file is not in the trash.
afterEach(async () => {
  Object.assign(own, await newRecords(mine, deleted));
  Object.assign(others, await newRecords(bystander, deleted));
  deleted = [];
});

function idsFor(route: Route, kind: IdKind, credential: Credential): string[] {
  const noun = nounOf(route);
  if (kind === "own id") return [own[noun]];
  if (kind === "another team's id") return [others[noun]];
  // The id of a record of another kind is unknown, too.
  if (kind === "unknown id") return [UNKNOWN_ID, own[noun === "users" ? "uploads" : "users"]];
  if (kind === "no id") return [""];
  const malformed = [...MALFORMED_IDS, own[noun].toUpperCase(), `${own[noun]}%20`];
  if (isExhaustive) return malformed;
  // One shows that the id is not read before the token. With the team's own key, each route gets three of them.
  const first = routes.indexOf(route);
  return credential === "the team's own key"
    ? [0, 3, 6].map((i) => malformed[(first + i) % malformed.length] as string)
    : malformed.slice(0, 1);
}

/** The operator must name the team whose events or keys it requests. */
const queryFor = (route: string, credential: Credential, kind: IdKind): string => {
  if (!/\/events|^GET .*\/apikeys$/.test(route) || CREDENTIALS[credential] !== "operator") return "";
  return `?teamId=${(kind === "another team's id" ? bystander : mine).teamId}`;
};
/** The deliveries of a deleted webhook are gone, too. */
const deletedBy = (route: Route): Noun[] =>
  nounOf(route) === "webhooks" ? ["webhooks", "deliveries"] : [nounOf(route)];

/** A caller who may not call the route is refused before the id is read, which `npm test` shows with two kinds. */
function kindsOf(route: Route, credential: Credential): readonly IdKind[] {
  if (!route.path.includes("{id}")) return ["no id"];
  const isRefused = [401, 403].includes(expected(route, credential, "own id")[0]);
  return isRefused && !isExhaustive ? ["own id", "malformed id"] : IDS;
}

/** Tokens that the database doesn't accept are refused in one place. In `npm test`, each route gets one of them. */
const UNACCEPTED: readonly Credential[] = ["an unknown token", "an expired token", "a revoked token"];
const credentialsFor = (route: Route) =>
  (Object.keys(CREDENTIALS) as Credential[]).filter(
    (one) => isExhaustive || !UNACCEPTED.includes(one) || one === UNACCEPTED[routes.indexOf(route) % UNACCEPTED.length],
  );

describe.each(routes)("$name", (route) => {
  const { name, method } = route;

  test.each(credentialsFor(route))("allows a caller with %s only what the token permits", async (credential) => {
    const token = tokens[credential];
    // Errors first, because a success may change records.
    for (const kind of kindsOf(route, credential).toReversed()) {
      const [status, code] = expected(route, credential, kind);
      const before = written();
      for (const id of idsFor(route, kind, credential)) {
        const where = `${name} with ${credential}, ${kind} ${id}`;
        const trips = effects.trips;
        const path = pathTo(route, id) + queryFor(name, credential, kind);
        spent = { ...NOTHING_SPENT };
        const answer = await worker.call(method, path, { ...requestFor(route), token });
        expect([answer.status, answer.code], where).toEqual([status, code]);
        if (status === 404) expect(answer.body, where).toEqual(NOT_FOUND);
        if (status === 401 || status === 403) {
          // A login with a token is the request of a backend, and counts for it even if the login fails.
          const isCounted = status === 403 || (code === "login_failed" && spent.light === 1);
          expect(spent.light + spent.heavy, where).toBe(isCounted ? 1 : 0);
          expect(spent.passwords, where).toBe(0);
        }
        const challenge = answer.headers.get("WWW-Authenticate");
        if (code === "insufficient_scope")
          expect(challenge, where).toMatch(/^Bearer error="insufficient_scope", scope="/);
        else expect(challenge, where).toBe(status === 401 ? "Bearer" : null);
        const isReadable = !["no token", "a malformed token"].includes(credential);
        if (!PUBLIC[name] && !isReadable) expect(effects.trips, `${where} queried D1`).toBe(trips);
        if (CREDENTIALS[credential] === "limited") {
          for (const noun of ["uploads", "trash", "links", "apikeys", "sessions"] as const) {
            expect(answer.text, where).not.toContain(own[noun]);
          }
        }
        // No response reveals anything about another team.
        if (credential === "another team's key") expect(answer.text, where).not.toContain(mine.teamId);
        if (status === 200 && (method === "DELETE" || name.endsWith("/restore"))) {
          deleted = deletedBy(route);
          break;
        }
      }
      if (status >= 400) expect(written(), `${name} with ${credential}, ${kind}`).toEqual(before);
    }
  });
});

describe("A heavy request", () => {
  const FILE = "/docs/v1/uploads/0193477c0a5e2b7f4d1c8e90";
  const HOOK = "/auth/v1/webhooks/0193477c0a5e2b7f4d1c8e90";
  const USER = "/auth/v1/users/0193477c0a5e2b7f4d1c8e90";

  test.each([
    ["GET /docs/v1/uploads?search=a", "heavy"],
    ["GET /docs/v1/uploads?tag=a&folder=b", "heavy"],
    ["GET /docs/v1/uploads?tag=a", "light"],
    ["GET /docs/v1/uploads?limit=100", "light"],
    ["GET /docs/v1/uploads?limit=50&page=3", "heavy"],
    ["GET /docs/v1/uploads?limit=50&page=0", "light"],
    ["GET /docs/v1/uploads/resumable?limit=100&page=2", "heavy"],
    ["GET /docs/v1/trash?limit=100&page=2", "heavy"],
    ["GET /auth/v1/users", "light"],
    ["GET /auth/v1/users?limit=100&page=2", "heavy"],
    ["GET /auth/v1/apikeys?limit=100&page=2", "heavy"],
    ["GET /auth/v1/sessions?limit=100&page=2", "heavy"],
    ["GET /auth/v1/events", "light"],
    ["GET /auth/v1/events?type=file", "heavy"],
    ["GET /docs/v1/usage", "heavy"],
    [`GET ${USER}/export`, "heavy"],
    [`POST ${USER}/invitations`, "heavy"],
    ["POST /docs/v1/uploads/batch", "heavy"],
    [`POST ${FILE}/reprocess`, "heavy"],
    ["PATCH /docs/v1/folders", "heavy"],
    ["POST /docs/v1/folders/delete", "heavy"],
    [`POST ${HOOK}/replay`, "heavy"],
    [`POST ${HOOK}/test`, "heavy"],
    [`DELETE ${HOOK}`, "heavy"],
    [`GET ${HOOK}/deliveries`, "light"],
    [`GET ${HOOK}/deliveries?status=failing`, "light"],
    [`GET ${HOOK}/deliveries?status=failed`, "heavy"],
    ["POST /auth/v1/deliveries/0193477c0a5e2b7f4d1c8e90/redeliver", "heavy"],
    ["POST /auth/v1/users", "light"],
  ] as const)("counts once, and no other does, whatever the response: %s is %s", async (request, limit) => {
    const [method = "", path = ""] = request.split(" ");
    spent = { ...NOTHING_SPENT };
    const { status } = await worker.call(method, path, { token: mine.token, ...(method !== "GET" && { json: {} }) });
    expect(status).not.toBe(401);
    expect(status).not.toBe(405);
    expect(spent).toEqual({ ...NOTHING_SPENT, [limit]: 1 });
  });

  // The index of a contributor's files serves no other filter.
  test.each([
    ["tag=a", "heavy"],
    ["reference=a", "heavy"],
    ["status=completed", "heavy"],
    ["fileType=audio+file", "heavy"],
    ["name=a", "light"],
    ["folder=a", "light"],
    ["limit=100", "light"],
  ] as const)(
    "is the list of a contributor that examines files, also if the team's is not: ?%s is %s",
    async (query, limit) => {
      spent = { ...NOTHING_SPENT };
      const token = tokens["a contributor of the team"];
      expect((await worker.call("GET", `/docs/v1/uploads?${query}`, { token })).status).toBe(200);
      expect(spent).toEqual({ ...NOTHING_SPENT, [limit]: 1 });
    },
  );
});

/** The parts of an upload's URL that a caller knows. */
const URLS = ["the upload URL", "a wrong secret", "another upload's secret", "another team's URL", "no URL"] as const;
const TUS = { "Tus-Resumable": "1.0.0" };
const APPENDING = { ...TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream" };

describe.each(uploadRoutes)("$name", (route) => {
  const isCreation = !route.path.includes("{upload}");
  const isRead = route.method === "HEAD";
  const begin = async (team: Team): Promise<string> => {
    const { headers } = await createUpload(team.call, 10);
    return headers.get("Location")?.split("/").at(-1) ?? "";
  };
  const send = (path: string, token: string | undefined): Promise<Answer> => {
    const body = { headers: APPENDING, body: new Uint8Array(5) };
    const override = { headers: { ...APPENDING, "X-HTTP-Method-Override": "PATCH" }, body: new Uint8Array(5) };
    if (isCreation) return worker.call("POST", path, { token, headers: { ...TUS, "Upload-Length": "10" } });
    const options = { POST: override, PATCH: body }[route.method] ?? { headers: TUS };
    return worker.call(route.method, path, { token, ...options });
  };

  test.each([...(Object.keys(CREDENTIALS) as Credential[]), "an expired session" as const])(
    "allows a caller with %s only what the token and the upload URL permit",
    async (credential) => {
      const caller = credential === "an expired session" ? "invalid" : CREDENTIALS[credential];
      const token = credential === "an expired session" ? expiredSession : tokens[credential];
      const [upload, another, stranger] = await Promise.all([begin(mine), begin(mine), begin(bystander)]);
      const [id, secret = ""] = upload.split(".");
      const urls = {
        "the upload URL": upload,
        "a wrong secret": `${id}.${secret.replace(/^./, (first) => (first === "0" ? "1" : "0"))}`,
        "another upload's secret": `${id}.${another.split(".")[1]}`,
        "another team's URL": stranger,
        "no URL": id ?? "",
      };
      const rejection = {
        missing: [401, "token_missing"],
        invalid: [401, "token_invalid"],
        operator: [403, "forbidden"],
      }[caller as string];
      for (const kind of isCreation ? (["no URL"] as const) : URLS.toReversed()) {
        const where = `${route.name} with ${credential} and ${kind}`;
        const isOwn =
          kind === "the upload URL" &&
          !["stranger", "limited"].includes(caller) &&
          // Its issuer is another key.
          credential !== "an upload token";
        const success = isCreation ? 201 : isRead ? 200 : 204;
        const [status, code] = rejection ?? (isCreation || isOwn ? [success] : [404, "not_found"]);
        const before = written();
        const answer = await send(route.path.replace("{upload}", urls[kind]), token);
        expect([answer.status, isRead ? code : answer.code], where).toEqual([status, code]);
        if (status !== success) expect(written(), where).toEqual(before);
      }
      // A public key can have 20 unfinished uploads.
      for (const url of [upload, another]) {
        await mine.call("DELETE", `/docs/v1/uploads/resumable/${url}`, { headers: TUS });
      }
    },
  );
});

/** The first scope that the example of an operation grants to a new key, or to a new user. */
const GRANTED: Record<string, string[]> = { createApiKey: ["files:upload"], createUser: ["files:read"] };
/** The response to an example that lacks what this caller must state. */
const INCOMPLETE: Record<string, [status: number, code: string]> = {
  "listApiKeys by the operator token": [400, "invalid_input"],
  "createResumableUpload by a team": [400, "invalid_input"],
};

const key = (scopes: string[]): Actor => ({ kind: "secret", scopes, role: null });
const session = (scopes: string[], role: string | null = null): Actor => ({ kind: "session", scopes, role });
const CALLERS: Record<string, Actor> = {
  ...Object.fromEntries(SCOPES.map((scope) => [`a key with ${scope}`, key([scope])])),
  ...Object.fromEntries(
    SCOPES.map((scope) => [`a key without ${scope}`, key(SCOPES.filter((other) => other !== scope))]),
  ),
  "a key without scopes": key([]),
  ...Object.fromEntries(
    Object.entries(ROLES).map(([role, scopes]) => [`a session of a user: ${role}`, session(scopes, role)]),
  ),
  "a session of a deleted user": session([]),
  "a session of a key with users:read": session(["users:read"]),
  "a public key": { kind: "public", scopes: VISITOR, role: null },
  "the operator token": { kind: "operator", scopes: [], role: null },
};

describe("Scopes", () => {
  const tokenOf: Record<string, string> = {};
  let team: Team;

  beforeAll(async () => {
    team = await newTeam(worker);
    const newRow = async (
      caller: string,
      kind: "secret" | "public" | "session",
      scopes: number | null,
      role: string | null,
    ) => {
      const token = newToken(realSystem, kind, databaseOf(team.teamId));
      tokenOf[caller] = token;
      const id = newId(realSystem, databaseOf(team.teamId));
      await DB.batch([
        DB.prepare(
          `insert into api_keys (id, team_id, uuid, name, kind, scopes, token_hash, user_id, lifetime_milliseconds, created_at, expires_at)
           values (?1, ?2, ?7, ?3, ?4, ?5, ?6, iif(?5 is null, ?1, null), 1, 1, 4e12)`,
        ).bind(id, team.teamId, caller, kind, scopes, fingerprint(token), crypto.randomUUID()),
        DB.prepare(
          `insert into users (id, team_id, first_name, last_name, email, email_key, password, role, created_at, updated_at)
           select ?1, ?2, '', '', ?1 || '@b.de', ?1 || '@b.de', '', ?3, 1, 1 where ?3 is not null`,
        ).bind(id, team.teamId, role),
      ]);
    };
    // The last scope that was added has the highest bit.
    const bits = [...SCOPES.filter((scope) => scope !== "files:erase"), "files:erase"];
    const maskOf = (scopes: readonly string[]) => scopes.reduce((mask, scope) => mask | (1 << bits.indexOf(scope)), 0);
    for (const [caller, { kind, scopes, role }] of Object.entries(CALLERS)) {
      if (kind === "operator" || kind === "upload token") continue;
      const isOfUser = role !== null || caller.includes("deleted");
      await newRow(caller, kind, isOfUser ? null : maskOf(scopes), role);
    }
    tokenOf["the operator token"] = OPERATOR;
  });

  test("are named for every operation", () => {
    expect([...Object.keys(PERMISSIONS), ...WITHOUT_PERMISSION].sort()).toEqual(Object.keys(operations).sort());
  });

  // Those for any token have their own tests.
  const ofScopes = Object.entries(operations).filter(([id]) => typeof PERMISSIONS[id]?.scope === "string");

  test.each(ofScopes)("decide who may call %s", async (operationId, { route: name }) => {
    const route = { name, ...splitRoute(name), operation: operations[operationId as keyof typeof operations] };
    const operation = operationOf(operationId, route);
    const path = route.path.replace(/\{\w+\}/, UNKNOWN_ID);
    const headers = { "Tus-Resumable": "1.0.0" };
    // In `npm test`, the key that has all other scopes stands for the keys that have one of them.
    const isOmitted = (caller: string) => {
      const [, relation, scope] = /^a key (with|without) (\S+:\S+)$/.exec(caller) ?? [];
      if (scope === undefined || scopesOf(operation).includes(scope)) return false;
      // What else the input needs differs, so a key that lacks another scope says nothing of this one.
      return relation === "without" || !isExhaustive;
    };
    const granted = GRANTED[operationId] ?? [];
    const target = { team: operation.target ? "unknown" : "the actor's", isOwn: true, scopes: granted } as const;
    for (const [caller, actor] of Object.entries(CALLERS).filter(([caller]) => !isOmitted(caller))) {
      const where = `${operationId} by ${caller}`;
      const before = written();
      const isOperator = actor.kind === "operator";
      const query = isOperator && name.includes("/events") ? `?teamId=${team.teamId}` : "";
      const answer = await worker.call(route.method, path + query, {
        ...requestFor(route),
        ...(path.includes("/resumable") && { headers }),
        token: tokenOf[caller],
      });
      const outcome = mayDo(actor, operation, target);
      const incomplete = outcome === "yes" && INCOMPLETE[`${operationId} by ${isOperator ? caller : "a team"}`];
      const [status, code] = incomplete || responseOf(outcome);
      // A response to HEAD has no code.
      const seen = [answer.status, route.method === "HEAD" ? code : answer.code];
      expect(seen, `${where}: ${answer.text}`).toEqual([status, code]);
      const missing = [...scopesOf(operation), ...granted].find((scope) => !actor.scopes.includes(scope));
      const challenge = code === "insufficient_scope" ? `Bearer error="insufficient_scope", scope="${missing}"` : null;
      expect(answer.headers.get("WWW-Authenticate"), where).toBe(challenge);
      if (status === 403) expect(written(), where).toEqual(before);
    }
  });
});

/** Routes that change something for a caller with a token. */
const writes = routes.filter(
  ({ method, operation: { access } }) => method !== "GET" && access !== null && access !== "operator",
);

describe("A write by a token that this isolate knows", () => {
  // The tests above have left so many events in `mine` that to compare all rows would take longer than the requests.
  let team: Team;
  let records: Records;
  beforeAll(async () => {
    team = await newTeam(worker);
    // At once, each record that needs a webhook would make one.
    await newRecords(team, ["webhooks"]);
    records = await newRecords(team);
  });

  const state = async () => ({ team: await snapshot(team.teamId), ...written() });
  /** Changes of a token, in this order, with the response from then on. */
  const CHANGES: [sql: string, status: number, code: string][] = [
    ["update api_keys set scopes = 0 where token_hash = ?1", 403, "insufficient_scope"],
    ["update teams set status = 'suspended' where id = ?2", 403, "team_suspended"],
    ["update api_keys set expires_at = 1 where token_hash = ?1", 401, "token_invalid"],
  ];

  test.each(writes)("checks the token first, in a separate round trip: $name", async (route) => {
    const isDeletion = route.method === "DELETE";
    const { key: token } = await newKey(team);
    const run = (sql: string) =>
      DB.prepare(`${sql} and (?1 <> '' or ?2 <> '')`).bind(fingerprint(token), team.teamId).run();
    const introduce = () => worker.call("GET", "/auth/v1/me", { token });
    const newPath = async () => {
      if (!route.path.includes("{id}")) return route.path;
      return pathTo(route, isDeletion ? await newRecord(team, route) : records[nounOf(route)]);
    };

    const path = await newPath();
    await introduce();
    const [calls, queries] = [bindings.calls.length, bindings.queries.length];
    const success = await worker.call(route.method, path, { ...requestFor(route), token });
    expect(success.status, success.text).toBe(200);
    expect(bindings.calls[calls], "nothing precedes the first batch").toBe("D1 batch");
    const first = bindings.queries.slice(queries).find(({ parameters }) => parameters.length > 0);
    expect(first?.sql, "the batch reads the token").toMatch(/^select "api_keys"\."id"/);
    expect(first?.parameters).toContain(fingerprint(token));

    const needsScope = route.operation.access !== "any token";
    const changes = needsScope ? CHANGES : CHANGES.slice(1);
    // In `npm test`, each route gets one of them: the token is read in one place.
    const which = writes.indexOf(route) % changes.length;
    for (const [sql, status, code] of isExhaustive ? changes : [changes[which]!]) {
      for (const json of route.operation.body ? [{}, { json: { unknown: 1 } }] : [{}]) {
        const path = await newPath();
        await introduce();
        await run(sql);
        const before = await state();
        const answer = await worker.call(route.method, path, { ...requestFor(route), ...json, token });
        expect([answer.status, answer.code], `${sql}: ${answer.text}`).toEqual([status, code]);
        expect(await state(), sql).toEqual(before);
        await run("update teams set status = 'active' where id = ?2");
      }
    }
    if (isDeletion) Object.assign(records, await newRecords(team, deletedBy(route)));
  });
});

const authorized = (value: string, path = "/docs/v1/usage") => call("GET", path, { headers: { Authorization: value } });

describe("A token", () => {
  test("is not read from the query, a cookie, a form or another header", async () => {
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
    ["with text after it", (token) => `Bearer ${token} x`],
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
    ["shortened", (token) => `Bearer ${token.slice(0, -1)}`],
    ["doubled", (token) => `Bearer ${token}${token}`],
    ["with a zero in front", (token) => `Bearer 0${token}`],
    ["with a wildcard", (token) => `Bearer ${token.slice(0, -1)}%`],
    ["as its hash", () => "Bearer 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ["empty", () => "Bearer "],
    ["of 100,000 characters", () => `Bearer ${"a".repeat(100_000)}`],
    ["of 100,000 characters after a good one", (token) => `Bearer ${token}${"0".repeat(100_000)}`],
  ])("is rejected with 401 if it is sent %s", async (_, header) => {
    const { status, code, headers } = await authorized(header(mine.token));
    expect(status).toBe(401);
    expect(["token_missing", "token_invalid"]).toContain(code);
    expect(headers.get("WWW-Authenticate")).toBe("Bearer");
  });

  test("can follow the scheme name in any case", async () => {
    for (const scheme of ["bearer", "BEARER", "BeArEr "])
      expect((await authorized(`${scheme} ${mine.token}`)).status).toBe(200);
  });

  test("is rejected if there are two Authorization headers", async () => {
    const headers = new Headers({ Authorization: `Bearer ${mine.token}` });
    headers.append("Authorization", `Bearer ${theirs.token}`);
    expect((await authorized(headers.get("Authorization") ?? "")).status).toBe(401);
  });

  test("is rejected if it is a public key with the prefix of a secret key", async () => {
    const forged = tokens["a public key"]?.replace("stow_pk_", "stow_sk_");
    expect((await call("GET", "/docs/v1/usage", { token: forged })).code).toBe("token_invalid");
  });

  test("is rejected if it is part of the operator token, which is not stored in the database", async () => {
    for (const token of [OPERATOR.slice(0, -1), `${OPERATOR}0`, OPERATOR.toUpperCase(), ` ${OPERATOR.slice(1)}`]) {
      expect((await call("GET", "/auth/v1/apikeys", { token })).status).toBe(401);
    }
    const row = await DB.prepare("select count(*) as n from api_keys where token_hash = ?").bind(OPERATOR).first();
    expect(row).toEqual({ n: 0 });
  });

  test("is never the operator token if none is set", async () => {
    const bare = startWorker((deps) => ({ ...deps, settings: { ...deps.settings, operatorToken: null } }));
    const { status, code } = await bare.call("GET", "/auth/v1/apikeys", { token: OPERATOR });
    expect([status, code]).toEqual([401, "token_invalid"]);
  });

  test("is rejected with the same bytes and headers whether malformed, unknown, expired or revoked", async () => {
    const kinds = ["a malformed token", "an unknown token", "an expired token", "a revoked token"] as const;
    const answers = await Promise.all(kinds.map((kind) => call("GET", "/docs/v1/usage", { token: tokens[kind] })));
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 401]);
    expect(new Set(answers.map(({ text }) => withoutRequestId(text))).size).toBe(1);
    expect(new Set(answers.map(({ headers }) => [...headers.keys()].sort().join())).size).toBe(1);
  });
});
