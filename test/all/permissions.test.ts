import fc from "fast-check";
import { expect, test } from "vitest";
import { splitRoute } from "../../src/http/operation.ts";
import { operations } from "../../src/service.ts";
import { vttOf } from "../support/bytes.ts";
import {
  type Answer,
  compose,
  form,
  newKey,
  newMember,
  newTeam,
  OPERATOR,
  openSession,
  PASSWORD,
  startWorker,
  type Team,
  withoutHashing,
  withoutLimits,
  withSettings,
} from "../support/harness.ts";
import {
  type Actor,
  mayDo,
  type Operation,
  PERMISSIONS,
  type Permission,
  ROLES,
  SCOPES,
  type Target,
  VISITOR,
} from "../support/permissions.ts";
import { newEmail } from "../support/routes.ts";
import { isExhaustive } from "../support/tiers.ts";

/*
 * Random actors, operations and targets: the response agrees with the rules of support/permissions.ts. Set STOWAGE_SEED for
 * others.
 */

const RUNS = isExhaustive ? 200 : 20;
const worker = startWorker(compose(withSettings({ trashDays: 1 }), withoutHashing, withoutLimits));

const FILES = "/docs/v1/uploads";
const KEYS = "/auth/v1/apikeys";
const USERS = "/auth/v1/users";

/** The state that a file has, if it is the target. */
type State = "held" | "transcribed" | "trashed";
interface Request extends Operation {
  name: string;
  method: string;
  path: string;
  state?: State;
  json?: object;
}

const of = (
  id: keyof typeof operations,
  {
    query = "",
    ...more
  }: Partial<Pick<Request, "target" | "state" | "json" | "only" | "further">> & { query?: string } = {},
): Request => {
  const { method, path } = splitRoute(operations[id].route);
  return { ...(PERMISSIONS[id] as Permission), name: id + query, method, path: path + query, ...more };
};

const requests: Request[] = [
  of("uploadFile"),
  of("listFiles"),
  of("getFileMetadata", { target: "file" }),
  of("getFileStatus", { target: "file" }),
  of("signFile", { target: "file" }),
  of("createLink", { target: "file", json: {} }),
  of("updateFile", { target: "file", json: { tags: ["a"] } }),
  of("setWaveform", { target: "file", json: { channels: [Array(16).fill(1)] } }),
  of("deleteTranscript", { target: "file", state: "transcribed" }),
  of("deleteFile", { target: "file" }),
  of("deleteFile", { query: "?permanent=true", target: "file", further: ["files:erase"] }),
  of("holdFile", { target: "file", json: { reason: "r" } }),
  of("releaseFile", { target: "file", state: "held" }),
  of("listTrash"),
  of("restoreFile", { target: "file", state: "trashed" }),
  of("eraseFile", { target: "file", state: "trashed" }),
  of("getUsage"),
  of("listFolders"),
  of("setRetention", { json: { days: 30 } }),
  of("createUploadToken", { json: {} }),
  of("listUsers"),
  of("getUser", { target: "user" }),
  of("exportUser", { target: "user" }),
  of("createUser", { json: { email: "", password: PASSWORD } }),
  of("updateUser", { target: "user", json: { firstName: "Ada" } }),
  of("deleteUser", { target: "user" }),
  of("inviteUser", { target: "user", json: {} }),
  of("listApiKeys"),
  of("getApiKey", { target: "key" }),
  of("createApiKey", { json: { name: "made" } }),
  of("updateApiKey", { target: "key", json: { name: "new" } }),
  of("rotateApiKey", { target: "key", json: {} }),
  of("deleteApiKey", { target: "key" }),
  of("listSessions"),
  of("createSession"),
  of("getMe"),
  of("listEvents"),
  of("listWebhooks"),
  of("createWebhook", { json: { url: "https://hooks.example.com/" } }),
  of("listTeams"),
  of("createTeam", { json: { name: "made" } }),
  of("getTeam", { target: "team" }),
  of("updateTeam", { target: "team", json: { name: "new" } }),
];

/** An actor of a team, with its token. */
type Token = Actor & { token: string };

const someScopes = fc.subarray(SCOPES, { minLength: 1 });
const actors = fc.oneof(
  fc.record({ kind: fc.constantFrom("secret" as const, "session of a key" as const), scopes: someScopes }),
  fc.record({ kind: fc.constant("session of a user" as const), role: fc.constantFrom(...Object.keys(ROLES)) }),
  fc.record({ kind: fc.constantFrom("operator" as const, "public" as const) }),
  fc.record({ kind: fc.constant("upload token" as const), isDeleter: fc.boolean() }),
);
type ActorKind = typeof actors extends fc.Arbitrary<infer A> ? A : never;

async function newActor(team: Team, actor: ActorKind): Promise<Token> {
  switch (actor.kind) {
    case "operator":
      return { kind: "operator", scopes: [], role: null, token: OPERATOR };
    case "public":
      return { kind: "public", scopes: VISITOR, role: null, token: (await newKey(team, { isPublic: true })).key };
    case "upload token": {
      const { isDeleter } = actor;
      const json = { maxFiles: 100, canDelete: isDeleter };
      const { body } = await team.call("POST", "/docs/v1/uploadtokens", { json });
      return { kind: "upload token", scopes: VISITOR, role: null, isDeleter, token: body.data.token };
    }
    case "session of a user": {
      const { role } = actor;
      return { kind: "session", scopes: ROLES[role] ?? [], role, token: (await newMember(team, role)).token };
    }
    default: {
      const { key } = await newKey(team, { scopes: actor.scopes });
      if (actor.kind === "secret") return { kind: "secret", scopes: actor.scopes, role: null, token: key };
      return { kind: "session", scopes: actor.scopes, role: null, token: (await openSession(key)).key };
    }
  }
}

const targets = fc.record({
  team: fc.constantFrom("the actor's", "the actor's", "the actor's", "another", "unknown" as const),
  isOwn: fc.boolean(),
  scopes: someScopes,
  role: fc.constantFrom(...Object.keys(ROLES)),
});
type TargetKind = typeof targets extends fc.Arbitrary<infer T> ? T : never;

const upload = async ({ call }: Pick<Team, "call">, token: string): Promise<string> => {
  const { id, text } = await call("POST", FILES, { token, body: form("note.txt", crypto.randomUUID()) });
  expect(id, text).not.toBe("");
  return id;
};

/** Creates the target. @returns it with its id */
async function newTarget(team: Team, actor: Token, { target: kind, state }: Request, wanted: TargetKind) {
  const isActors = wanted.team === "the actor's";
  const owner = isActors ? team : await newTeam(worker);
  const canUpload = actor.kind !== "operator" && actor.scopes.includes("files:upload");
  const isOwn = isActors && canUpload && wanted.isOwn;
  const target = (id: string, scopes: string[] = []) => ({
    id: wanted.team === "unknown" ? "0193477be8a01f9c3ad5e000" : id,
    team: wanted.team,
    isOwn,
    scopes,
  });
  if (kind === "team") return target(owner.teamId);
  if (kind === "user") return target((await newMember(owner, wanted.role)).id, ROLES[wanted.role]);
  if (kind === "key") return target((await newKey(owner, { scopes: wanted.scopes })).id, wanted.scopes);
  const id = await upload(owner, isOwn ? actor.token : owner.token);
  if (state === "held") await owner.call("PUT", `${FILES}/${id}/hold`, { json: { reason: "r" } });
  const vtt = { body: vttOf("a"), headers: { "Content-Type": "text/vtt" } };
  if (state === "transcribed") await owner.call("PUT", `${FILES}/${id}/transcript`, vtt);
  if (state === "trashed") await owner.call("DELETE", `${FILES}/${id}`);
  return target(id);
}

/** Sends the operation, with the scopes or role of the target if it creates one. */
function send(team: Team, { token, kind }: Token, operation: Request, id: string, wanted: TargetKind): Promise<Answer> {
  const { method, path, json } = operation;
  const granted = { [KEYS]: { scopes: wanted.scopes }, [USERS]: { email: newEmail(), role: wanted.role } }[path];
  const isList = method === "GET" && (path === KEYS || path.endsWith("/events"));
  const query = kind === "operator" && isList ? `?teamId=${team.teamId}` : "";
  const body = method === "POST" && path === FILES ? { body: form("sent.txt", "sent") } : {};
  return team.call(method, path.replace("{id}", id) + query, {
    token,
    ...body,
    ...(json && { json: { ...json, ...(method === "POST" && granted) } }),
  });
}

const steps = fc.array(fc.tuple(fc.constantFrom(...requests), targets), { minLength: 6, maxLength: 6 });

test(`the responses to ${RUNS} random actors agree with the documented permissions`, async ({ annotate }) => {
  const counts: Record<string, number> = {};
  const property = fc.asyncProperty(actors, steps, async (given, chosen) => {
    const team = await newTeam(worker);
    // The last admin of a team can't be deleted by everyone.
    await newMember(team, "admin");
    const actor = await newActor(team, given);
    for (const [operation, wanted] of chosen) {
      const made = operation.target ? await newTarget(team, actor, operation, wanted) : undefined;
      const granted = operation.path === USERS ? (ROLES[wanted.role] ?? []) : wanted.scopes;
      const target: Target = made ?? { team: "the actor's", isOwn: false, scopes: granted };
      const expected = mayDo(actor, operation, target);
      const { status, code, text } = await send(team, actor, operation, made?.id ?? "", wanted);
      const found = status < 300 ? "yes" : code;
      expect(found, `${operation.name} by ${JSON.stringify(given)} on ${JSON.stringify(made)}: ${text}`).toBe(expected);
      counts[expected] = (counts[expected] ?? 0) + 1;
    }
  });
  await fc.assert(property, { numRuns: RUNS });
  await annotate(`responses: ${JSON.stringify(counts)}`);
  for (const outcome of ["yes", "forbidden", "insufficient_scope", "not_found"]) {
    expect(counts[outcome], outcome).toBeGreaterThan(RUNS / 4);
  }
}, 600_000);
