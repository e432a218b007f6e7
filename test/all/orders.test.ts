import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { WaveformJob } from "../../src/platform/messages.ts";
import { fingerprint } from "../../src/platform/secrets.ts";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { patternOf, sha256, vttOf } from "../support/bytes.ts";
import type { Answer, CallOptions } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import { type Change, withoutHashing } from "../support/deps.ts";
import type { Place } from "../support/faults.ts";
import { newSession, OPERATOR } from "../support/harness.ts";
import {
  type ActOutcome,
  chooseBy,
  describeOrder,
  everyOrder,
  type Invoke,
  interleave,
  type Race,
  raceAlone,
  runEveryOrder,
} from "../support/orders.ts";
import { newEmail, PASSWORD } from "../support/routes.ts";
import { isExhaustive } from "../support/tiers.ts";
import { DAY, MINUTE } from "../support/time.ts";
import { Uploader } from "../support/uploader.ts";
import { createEvent, type Hook, newHook, runAlarmOf, statusesOf } from "../support/webhooks.ts";
import { encodeForm, must } from "../support/world.ts";

/* Every order of two invocations, and random orders of more. support/orders.ts says which orders run. */

type Act<S> = Race<S>["acts"][number];
type Settled<S> = NonNullable<Race<S>["verifySettled"]>;
type Request = [method: string, path: string, options?: CallOptions];

/** The error code, or the status. */
const outcomeOf = ({ code, status }: Answer): ActOutcome => code ?? status;

/** Hashes passwords quickly, with salts, because an invitation ends when the hash changes. */
const withoutPasswords: Change = (deps) => {
  const { secrets, ...changed } = withoutHashing(deps);
  const salt = () => crypto.randomUUID().replaceAll("-", "").slice(0, 22);
  const hashPassword = async (password: string) =>
    `$scrypt$ln=14,r=8,p=5,keyid=00000000$${salt()}$${fingerprint(password).slice(0, 43)}`;
  const verifyPassword = async (password: string, hash: string | null) =>
    hash?.endsWith(fingerprint(password).slice(0, 43)) ?? false;
  return { ...changed, secrets: { ...secrets, hashPassword, verifyPassword } };
};

/** One request, by the team's key unless it names another token. */
const request =
  <S>(of: (state: S, place: Place) => Request): Act<S> =>
  async (state, bindings, place) => {
    const [method, path, options] = of(state, place);
    const { world, team } = place;
    return outcomeOf(
      await must(world.ask(method, path, { token: team.token, ...options }, { bindings, change: withoutPasswords })),
    );
  };

/** Sends a request before the race. @returns the data of the response */
async function given({ world, team }: Place, ...[method, path, options]: Request) {
  const asked = world.ask(method, path, { token: team.token, ...options }, { change: withoutPasswords });
  const { status, body, text } = await must(asked);
  expect(status, text).toBe(200);
  return body?.data ?? body;
}

const FILES = "/docs/v1/uploads";
const KEYS = "/auth/v1/apikeys";
const HOOKS = "/auth/v1/webhooks";
const USERS = "/auth/v1/users";
const fileOf = async ({ world, team }: Place) => {
  const id = await world.store(team, "note.txt", "note");
  await world.drain();
  return id;
};
const inService =
  <S>(trashDays: number, prepare: (place: Place) => Promise<S>) =>
  (place: Place) => {
    place.world.settings = { trashDays };
    return prepare(place);
  };
const newUser = async (place: Place, role = "member"): Promise<string> =>
  (await given(place, "POST", USERS, { json: { email: newEmail(), password: PASSWORD, role } }))._id;

const eventTypes = async ({ teamId }: Place["team"]): Promise<string[]> =>
  (
    await DB.prepare("select type from events where team_id = ? order by seq").bind(teamId).all<{ type: string }>()
  ).results.map(({ type }) => type);
/** Asserts that no event of the first type follows one of the second. */
const expectNoneAfter = async (team: Place["team"], type: string, end: string) => {
  const types = await eventTypes(team);
  const ended = types.indexOf(end);
  if (ended >= 0) expect(types.slice(ended), `${type} after ${end}`).not.toContain(type);
};

const bytes = patternOf(3000);
const digest = sha256(bytes);
async function begun({ world, team }: Place): Promise<Uploader> {
  const client = new Uploader(world, team, bytes);
  await must(client.create());
  return client;
}
/** Another client of the same upload. */
function copyOf(client: Uploader): Uploader {
  const copy = new Uploader(client.world, client.team, client.bytes);
  [copy.path, copy.id] = [client.path, client.id];
  return copy;
}
const sending: Act<Uploader> = async (client, bindings) =>
  outcomeOf(await must(copyOf(client).send(0, bytes.length, bindings)));
const cancelingUrl: Act<Uploader> = async (client, bindings) =>
  outcomeOf(await must(copyOf(client).ask("DELETE", {}, undefined, bindings)));
const asking: Act<Uploader> = async (client, bindings) => outcomeOf(await must(copyOf(client).head(bindings)));

const expectComplete: Settled<Uploader> = (rows, { state }) =>
  expect(rows).toMatchObject([{ id: state.id, status: "completed", sha256: digest }]);
const expectFileIf =
  (...outcomes: string[]): Settled<unknown> =>
  (rows, raced) =>
    expect(rows).toHaveLength(outcomes.includes(raced.outcomes.join(" ")) ? 1 : 0);

/** A form upload of a file with this text. */
const uploading =
  <S>(text: string, headers: Record<string, string> = {}, token?: (state: S) => string): Act<S> =>
  async (state, bindings, { world, team }) => {
    const form = await encodeForm("note.txt", text);
    const uploader: Place["team"] = token ? { ...team, token: token(state) } : team;
    return outcomeOf(await must(world.upload(uploader, form, headers, { bindings })));
  };
/** The call of this number to a method of D1 takes effect, and fails. */
const withoutResponse =
  <S>(method: string, call: number, act: Act<S>): Act<S> =>
  (state, bindings, place) => {
    const failing = new ProxiedBindings({ binding: "D1", method, call, moment: "after", failure: "permanent" });
    failing.sendInTurn = bindings.sendInTurn;
    return act(state, failing, place);
  };
/** Deletes the file that it finds, in any state. */
const deletingAny: Act<unknown> = async (_, bindings, { world, team }) => {
  const database = bindings.database(DB);
  const row = await database
    .prepare("select file_id as id from uploads where team_id = ?1 union all select id from files where team_id = ?1")
    .bind(team.teamId)
    .first<{ id: string }>();
  const path = `${FILES}/${row?.id ?? "none"}`;
  return outcomeOf(await must(world.ask("DELETE", path, { token: team.token }, { bindings })));
};

async function webhookWithEvent(place: Place): Promise<Hook> {
  const hook = await newHook(place.team, { types: null });
  await createEvent(place.team);
  return hook;
}
const deliveringTo: Act<Hook> = async (hook, bindings, { world }) => {
  await must(runAlarmOf(world, hook, bindings));
  return "sent";
};

const hold = (id: string): Request => ["PUT", `${FILES}/${id}/hold`, { json: { reason: "evidence" } }];
const erase = (id: string): Request => ["DELETE", `${FILES}/${id}?permanent=true`];
const trashed = async (place: Place) => {
  const id = await fileOf(place);
  await given(place, "DELETE", `${FILES}/${id}`);
  return id;
};
/** A completed file whose waveform is due to be measured. */
async function unmeasured({ world, team }: Place): Promise<WaveformJob> {
  const fileId = await world.store(team, "tone.wav", sample("tone.wav").bytes);
  await world.drain();
  return { teamId: team.teamId, fileId, attempt: 0 };
}
const measuring: Act<WaveformJob> = async (job, bindings, { world }) => {
  const again = await must(world.deliverWaveform(job, bindings));
  return again === null ? "done" : "again";
};
/** A file that a public key uploaded. */
async function fileOfVisitor(place: Place): Promise<{ id: string; token: string }> {
  const { key: token } = await newKey(place, { isPublic: true });
  return { token, id: await place.world.store({ ...place.team, token }, "note.txt", "note") };
}
/** A processed file that an upload token uploaded, which may delete it. */
async function fileOfDeleter(place: Place): Promise<{ id: string; token: string }> {
  const { token } = await given(place, "POST", "/docs/v1/uploadtokens", { json: { canDelete: true } });
  const id = await place.world.store({ ...place.team, token }, "tone.wav", sample("tone.wav").bytes);
  await place.world.drain();
  return { token, id };
}
/** The deletion of a file by its upload token, and what the team does to it: either finds nothing of the other. */
const deletedByVisitor = (touch: (file: string) => Request): Race<{ id: string; token: string }> => ({
  prepare: fileOfDeleter,
  acts: [
    request(({ id, token }) => ["DELETE", `${FILES}/${id}`, { token }]),
    request(({ id }) => touch(`${FILES}/${id}`)),
  ],
  outcomes: ["200 not_found", "forbidden 200"],
  verifySettled: expectFileIf("forbidden 200"),
});
const waveform = (peak: number) => ({ json: { channels: [Array(16).fill(peak)] } });
/** Sets a transcript whose text is its language. */
const settingTranscript = (language: string): Act<string> =>
  request((id) => [
    "PUT",
    `${FILES}/${id}/transcript?language=${language}`,
    { body: vttOf(language), headers: { "Content-Type": "text/vtt" } },
  ]);
/** The stored text is the one that the row describes, or there is neither, and the quota counts it. */
async function expectOneTranscript({ team, state }: { team: Place["team"]; state: string }): Promise<void> {
  const answer = await team.call("GET", `${FILES}/${state}/transcript`);
  expect([200, 404]).toContain(answer.status);
  const text = answer.status === 200 ? answer.text : null;
  if (text !== null) expect(text).toBe(vttOf(answer.headers.get("Content-Language") ?? ""));
  const row = await DB.prepare("select reserved_bytes from files where id = ?").bind(state).first();
  expect(row).toEqual({ reserved_bytes: "note".length + (text?.length ?? 0) });
}
const revoke = (id: string): Request => ["DELETE", `${KEYS}/${id}`];
const rotate = (id: string): Request => ["POST", `${KEYS}/${id}/rotate`, { json: {} }];
const rotateAtOnce = (id: string): Request => ["POST", `${KEYS}/${id}/rotate`, { json: { overlapSeconds: 0 } }];
const newKey = (place: Place, json: object = {}): Promise<{ id: string; key: string }> =>
  given(place, "POST", KEYS, { json: { name: "key", ...json } });
const readFile = (place: Place, id: string) => given(place, "GET", `${FILES}/${id}/metadata`);
const keysWith = async ({ teamId }: Place["team"], where: string) =>
  (await DB.prepare(`select id from api_keys where team_id = ? and ${where}`).bind(teamId).all()).results;

/** The second rotation is a repetition of the first one, and returns the same new key. */
async function expectOneRotation({
  team,
  state: { id },
}: {
  team: Place["team"];
  state: { id: string };
}): Promise<void> {
  expect(await keysWith(team, `origin_id = '${id}'`)).toHaveLength(1);
  expect((await eventTypes(team)).filter((type) => type === "apikey.rotated")).toHaveLength(1);
}

/** Two admins with a session each. They are the only ones of their team. */
async function twoAdmins(place: Place): Promise<{ ids: string[]; tokens: string[] }> {
  const ids = [await newUser(place, "admin"), await newUser(place, "admin")];
  return { ids, tokens: await Promise.all(ids.map((id) => newSession(place.team, id))) };
}
const demoting = (who: 0 | 1): Act<Awaited<ReturnType<typeof twoAdmins>>> =>
  request(({ ids, tokens }) => ["PATCH", `${USERS}/${ids[who]}`, { token: tokens[1 - who], json: { role: "viewer" } }]);

const invited = async (place: Place) => {
  const id = await newUser(place);
  return { id, token: (await given(place, "POST", `${USERS}/${id}/invitations`, { json: {} })).token as string };
};
type Invited = Awaited<ReturnType<typeof invited>>;
const accepting: Act<Invited> = request(({ token }) => [
  "POST",
  "/auth/v1/invitations/accept",
  { token: undefined, json: { token, password: PASSWORD } },
]);

const inFolder = async (place: Place) => {
  const id = await fileOf(place);
  await given(place, "PATCH", `${FILES}/${id}`, { json: { folder: "old" } });
  return id;
};
const moving: Act<unknown> = request(() => ["PATCH", "/docs/v1/folders", { json: { folder: "old", to: "new" } }]);
const deletingFolder: Act<unknown> = request(() => ["POST", "/docs/v1/folders/delete", { json: { folder: "old" } }]);
/** Uploads into the folder that is moved. */
const uploadingInto: Act<unknown> = async (_, bindings, { world, team }) => {
  const body = new FormData();
  body.append("properties", JSON.stringify({ folder: "old" }));
  body.append("file", new File(["second"], "second.txt"));
  return outcomeOf(await must(world.ask("POST", FILES, { token: team.token, body }, { bindings })));
};
const folderOf = async (id: string) => DB.prepare("select folder from files where id = ?").bind(id).first("folder");
const changesOf = ({ teamId }: Place["team"]) =>
  DB.prepare("select count(*) as n from folder_changes where team_id = ?").bind(teamId).first("n");

const newAccount = async (place: Place): Promise<{ _id: string; email: string }> =>
  given(place, "POST", USERS, { json: { email: newEmail(), password: PASSWORD } });
const loggingIn: Act<{ email: string }> = request(({ email }, { team: { teamId } }) => [
  "POST",
  "/auth/v1/login",
  { token: undefined, json: { teamId, email, password: PASSWORD } },
]);
const expectNoSession = async ({ team }: Place) => expect(await keysWith(team, "kind = 'session'")).toEqual([]);
const recovering: Act<unknown> = async (_, bindings, { world }) => {
  await must(world.recoverIn(world.database, bindings));
  return "done";
};

const HOOK = { url: "https://hooks.example.com/in" };
/** What an admin changes, and the deletion of that admin. Nothing changes after it, and no webhook of theirs stays enabled. */
const withLeaver = (
  change: (state: { hook: string }) => Request,
): Race<{ id: string; token: string; hook: string }> => ({
  async prepare(place) {
    const id = await newUser(place, "admin");
    const token = await newSession(place.team, id);
    const { _id: hook } = await given({ ...place, team: { ...place.team, token } }, "POST", HOOKS, { json: HOOK });
    return { id, token, hook };
  },
  acts: [
    request(({ token, ...state }) => {
      const [method, path, options] = change(state);
      return [method, path, { token, ...options }];
    }),
    request(({ id }) => ["DELETE", `${USERS}/${id}`]),
  ],
  outcomes: ["200 200", "token_invalid 200"],
  async verify({ team }) {
    for (const type of ["webhook.created", "webhook.updated", "team.updated"])
      await expectNoneAfter(team, type, "user.deleted");
    const enabled = DB.prepare("select count(*) as n from followers where team_id = ?");
    expect(await enabled.bind(team.teamId).first("n"), "enabled webhooks").toBe(0);
  },
});

// biome-ignore lint/suspicious/noExplicitAny: races of every state.
const races: Record<string, Race<any>> = {
  "a form upload and its deletion": {
    prepare: async () => null,
    acts: [uploading("note"), deletingAny],
    outcomes: ["200 200", "200 not_found", "not_found 200"],
    verifySettled: expectFileIf("200 not_found"),
  },
  "a form upload whose commit takes effect without a response, and its deletion to the trash": {
    isLikeAnother: true,
    prepare: inService(7, async () => ({ restored: [] as string[] })),
    acts: [withoutResponse("batch", 3, uploading("note")), deletingAny],
    outcomes: ["unavailable 200", "unavailable not_found"],
    async verify({ world, team, state }) {
      const { body } = await must(world.ask("GET", "/docs/v1/trash", { token: team.token }));
      for (const { _id } of body.data) {
        const { status } = await must(world.ask("POST", `/docs/v1/trash/${_id}/restore`, { token: team.token }));
        expect(status).toBe(200);
        await world.drain();
        expect(await DB.prepare("select status from files where id = ?").bind(_id).first("status")).toBe("completed");
        state.restored.push(_id);
      }
    },
    verifySettled: (rows, { state }) => expect(rows.map(({ id }) => id)).toEqual(state.restored),
  },
  "a resumable upload's last request and its cancellation": {
    prepare: begun,
    acts: [sending, cancelingUrl],
    outcomes: ["204 forbidden", "not_found 204"],
    verifySettled: expectFileIf("204 forbidden"),
  },
  "a resumable upload's last request and its deletion": {
    prepare: begun,
    acts: [sending, request(({ id }: Uploader) => ["DELETE", `${FILES}/${id}`])],
    outcomes: ["204 200", "not_found 200"],
    verifySettled: expectFileIf(),
  },
  "two requests of a resumable upload": {
    isSymmetric: true,
    prepare: begun,
    acts: [sending, sending],
    outcomes: ["204 204", "204 offset_mismatch", "offset_mismatch 204"],
    verifySettled: expectComplete,
  },
  "a request of a resumable upload and a request for its offset": {
    isLikeAnother: true,
    prepare: begun,
    acts: [sending, asking],
    outcomes: ["204 200"],
    verifySettled: expectComplete,
  },
  "a visitor's deletion of a file, and a link to it": deletedByVisitor((file) => [
    "POST",
    `${file}/links`,
    { json: {} },
  ]),
  "a visitor's deletion of a file, and a transcript of it": {
    isLikeAnother: true,
    ...deletedByVisitor((file) => [
      "PUT",
      `${file}/transcript`,
      { body: vttOf("a"), headers: { "Content-Type": "text/vtt" } },
    ]),
  },
  "two changes of a file's metadata": {
    isSymmetric: true,
    prepare: fileOf,
    acts: ["a", "b"].map((name) =>
      request((id) => ["PATCH", `${FILES}/${id}`, { json: { metadata: { [name]: 1 }, tags: [name] } }]),
    ),
    outcomes: ["200 200"],
    async verify({ state, ...place }) {
      const { metadata, tags } = await readFile(place, state);
      expect(metadata).toEqual({ a: 1, b: 1 });
      const { results } = await DB.prepare("select tag from file_tags where file_id = ?").bind(state).all();
      expect(results).toEqual(tags.map((tag: string) => ({ tag })));
    },
  },
  "two changes of a user that expect the same version": {
    isSymmetric: true,
    prepare: newUser,
    acts: ["Ada", "Grace"].map((firstName) =>
      request((id) => ["PATCH", `${USERS}/${id}`, { headers: { "If-Match": '"0"' }, json: { firstName } }]),
    ),
    outcomes: ["200 version_mismatch", "version_mismatch 200"],
  },
  "the rotation and the revocation of a key": {
    prepare: newKey,
    acts: [request(({ id }) => rotate(id)), request(({ id }) => revoke(id))],
    outcomes: ["200 200", "not_found 200"],
    verify: ({ team }) => expectNoneAfter(team, "apikey.rotated", "apikey.revoked"),
  },
  "two rotations of a key": {
    isSymmetric: true,
    prepare: newKey,
    acts: [request(({ id }) => rotate(id)), request(({ id }) => rotate(id))],
    outcomes: ["200 200"],
    verify: expectOneRotation,
  },
  "two rotations of a key without an overlap": {
    isLikeAnother: true,
    isSymmetric: true,
    prepare: newKey,
    acts: [request(({ id }) => rotateAtOnce(id)), request(({ id }) => rotateAtOnce(id))],
    outcomes: ["200 200"],
    verify: expectOneRotation,
  },
  "the creation of a key by a key and the revocation of that": {
    prepare: newKey,
    acts: [
      request(({ key: token }) => ["POST", KEYS, { token, json: { name: "made" } }]),
      request(({ id }) => revoke(id)),
    ],
    outcomes: ["200 200", "token_invalid 200"],
    verify: ({ team, outcomes }) =>
      outcomes[0] === 200 ? expectNoneAfter(team, "apikey.created", "apikey.revoked") : undefined,
  },
  "the creation of a session by a key and the revocation of that": {
    prepare: newKey,
    acts: [request(({ key: token }) => ["POST", "/auth/v1/sessions", { token }]), request(({ id }) => revoke(id))],
    outcomes: ["200 200", "token_invalid 200"],
    async verify({ team }) {
      expect(await keysWith(team, "kind = 'session'")).toEqual([]);
    },
  },
  "the upload of a key and its revocation": {
    prepare: newKey,
    acts: [uploading("note", {}, ({ key }: { key: string }) => key), request(({ id }) => revoke(id))],
    outcomes: ["200 200", "token_invalid 200"],
    verify: ({ team }) => expectNoneAfter(team, "file.uploaded", "apikey.revoked"),
  },
  "a hold and a deletion": {
    prepare: fileOf,
    acts: [request((id) => hold(id)), request((id) => ["DELETE", `${FILES}/${id}`])],
    outcomes: ["200 file_held", "not_found 200"],
    verifySettled: expectFileIf("200 file_held"),
  },
  "a hold and a deletion in a service with a trash": {
    isLikeAnother: true,
    prepare: inService(1, fileOf),
    acts: [request((id) => hold(id)), request((id) => ["DELETE", `${FILES}/${id}`])],
    // A file in the trash can be held, too, and stays there.
    outcomes: ["200 200", "200 file_held"],
    verifySettled(rows, { outcomes }) {
      const isTrashed = outcomes[1] === 200;
      expect(rows.map((row) => [row.hold !== null, row.trashed_at !== null])).toEqual([[true, isTrashed]]);
    },
  },
  "a hold and a deletion of many files": {
    isLikeAnother: true,
    prepare: fileOf,
    acts: [
      request((id) => hold(id)),
      request((id) => ["POST", `${FILES}/batch`, { json: { action: "delete", ids: [id] } }]),
    ],
    outcomes: ["200 200", "not_found 200"],
    async verify({ team, outcomes }) {
      expect((await eventTypes(team)).includes("file.deleted")).toBe(outcomes[0] !== 200);
    },
  },
  "a hold and the deletion of its folder": {
    isLikeAnother: true,
    prepare: inFolder,
    acts: [request((id) => hold(id)), deletingFolder],
    outcomes: ["200 200", "not_found 200"],
    verifySettled: expectFileIf("200 200"),
  },
  "a hold and the deletion of the team": {
    prepare: fileOf,
    acts: [
      request((id) => hold(id)),
      request((_, { team }) => ["DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR }]),
    ],
    outcomes: ["200 file_held", "token_invalid 200"],
  },
  "two deletions": {
    isSymmetric: true,
    prepare: fileOf,
    acts: [request((id) => ["DELETE", `${FILES}/${id}`]), request((id) => ["DELETE", `${FILES}/${id}`])],
    // A deletion can be repeated while the first one is deleting the bytes.
    outcomes: ["200 200", "200 not_found", "not_found 200"],
  },
  "the return of a file from the trash and its erasure": {
    prepare: inService(1, trashed),
    acts: [
      request((id) => ["POST", `/docs/v1/trash/${id}/restore`]),
      request((id) => ["DELETE", `/docs/v1/trash/${id}`]),
    ],
    outcomes: ["200 not_in_trash", "not_found 200"],
    verifySettled: expectFileIf("200 not_in_trash"),
  },
  "two returns of a file from the trash": {
    isSymmetric: true,
    prepare: inService(1, trashed),
    acts: [0, 1].map(() => request((id) => ["POST", `/docs/v1/trash/${id}/restore`])),
    outcomes: ["200 not_in_trash", "not_in_trash 200"],
    verifySettled: expectFileIf("200 not_in_trash", "not_in_trash 200"),
  },
  "the processing of a file and its deletion": {
    async prepare({ world, team }) {
      const id = await world.store(team, "note.txt", "note");
      world.messages = world.messages.filter((message) => message !== id);
      return id;
    },
    acts: [
      async (id, bindings, { world }) => ((await must(world.deliver(id, bindings))) === null ? "done" : "again"),
      request((id) => ["DELETE", `${FILES}/${id}`]),
    ],
    outcomes: ["again 200", "done 200"],
    verifySettled: expectFileIf(),
  },
  "the processing of a file and its reprocessing": {
    isLikeAnother: true,
    async prepare({ world, team }) {
      const id = await world.store(team, "note.txt", "note");
      world.messages = world.messages.filter((message) => message !== id);
      return id;
    },
    acts: [
      async (id, bindings, { world }) => ((await must(world.deliver(id, bindings))) === null ? "done" : "again"),
      request((id) => ["POST", `${FILES}/${id}/reprocess`]),
    ],
    outcomes: ["done 200"],
    verifySettled: (rows) => expect(rows).toMatchObject([{ status: "completed" }]),
  },
  "a form upload and the deletion of its team": {
    isTeamDeleted: true,
    prepare: async () => null,
    acts: [
      uploading("note"),
      request((_, { team }) => ["DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR }]),
    ],
    outcomes: ["200 200", "token_invalid 200"],
  },
  "a resumable upload's last request and the deletion of its team": {
    isLikeAnother: true,
    isTeamDeleted: true,
    prepare: begun,
    acts: [sending, request((_, { team }) => ["DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR }])],
    outcomes: ["204 200", "token_invalid 200"],
  },
  "the alarm of a webhook and its disabling": {
    prepare: webhookWithEvent,
    acts: [deliveringTo, request(({ _id }: Hook) => ["PATCH", `${HOOKS}/${_id}`, { json: { status: "disabled" } }])],
    outcomes: ["sent 200"],
    async verifySettled(_, { state, world, team, order }) {
      // An alarm that begins after the response to the change sends nothing.
      const isAfter = order.findIndex(({ by }) => by === 0) > order.findLastIndex(({ by }) => by === 1);
      const posts = world.posts.filter(({ body }) => JSON.parse(body).teamId === team.teamId);
      if (isAfter) expect(posts).toEqual([]);
      const status = await DB.prepare(
        "select iif(disabled_reason is null, 'enabled', 'disabled') as status from webhooks where id = ?",
      )
        .bind(state._id)
        .first("status");
      expect(status).toBe("disabled");
      expect(await statusesOf(state)).not.toHaveProperty("pending");
    },
  },
  "the move of a folder and an upload into it": {
    prepare: inFolder,
    acts: [moving, uploadingInto],
    outcomes: ["200 200"],
    async verifySettled(rows, { state, team }) {
      expect(rows).toHaveLength(2);
      expect(await folderOf(state)).toBe("new");
      expect(await changesOf(team)).toBe(0);
    },
  },
  "the move of a folder and its deletion": {
    prepare: inFolder,
    acts: [moving, deletingFolder],
    outcomes: ["200 200"],
    async verifySettled(_, { team }) {
      expect(await changesOf(team)).toBe(0);
    },
  },
  "the move of a folder and a move of its file": {
    isLikeAnother: true,
    prepare: inFolder,
    acts: [moving, request((id) => ["PATCH", `${FILES}/${id}`, { json: { folder: "third" } }])],
    outcomes: ["200 200"],
    async verifySettled(_, { state, team }) {
      expect(await folderOf(state)).toBe("third");
      expect(await changesOf(team)).toBe(0);
    },
  },
  "two acceptances of an invitation": {
    isSymmetric: true,
    prepare: invited,
    acts: [accepting, accepting],
    outcomes: ["200 token_invalid", "token_invalid 200"],
    async verify({ team }) {
      expect(await keysWith(team, "kind = 'session'")).toHaveLength(1);
    },
  },
  "the acceptance of an invitation and a change of its user's role": {
    prepare: invited,
    acts: [accepting, request(({ id }: Invited) => ["PATCH", `${USERS}/${id}`, { json: { role: "admin" } }])],
    outcomes: ["200 200", "token_invalid 200"],
  },
  "a login and a change of the password": {
    prepare: newAccount,
    acts: [loggingIn, request(({ _id }) => ["PATCH", `${USERS}/${_id}`, { json: { password: `${PASSWORD}!` } }])],
    outcomes: ["200 200", "login_failed 200"],
    verify: expectNoSession,
  },
  "the demotions of the last two admins by each other": {
    isSymmetric: true,
    prepare: twoAdmins,
    acts: [demoting(0), demoting(1)],
    outcomes: ["200 insufficient_scope", "insufficient_scope 200"],
    async verify({ team }) {
      const { results } = await DB.prepare("select role from users where team_id = ?").bind(team.teamId).all();
      expect(results).toContainEqual({ role: "admin" });
    },
  },
  "two uploads with the same Idempotency-Key": {
    isSymmetric: true,
    prepare: async () => null,
    acts: [uploading("note", { "Idempotency-Key": "once" }), uploading("note", { "Idempotency-Key": "once" })],
    outcomes: ["200 200", "200 idempotency_in_progress", "idempotency_in_progress 200"],
    verifySettled: (rows) => expect(rows).toHaveLength(1),
  },
  "two uploads with an upload token for one file": {
    isSymmetric: true,
    prepare: (place) => given(place, "POST", "/docs/v1/uploadtokens", { json: {} }),
    acts: [0, 1].map((i) => uploading(`note ${i}`, {}, ({ token }: { token: string }) => token)),
    outcomes: ["200 upload_limit_reached", "upload_limit_reached 200"],
    verifySettled: (rows) => expect(rows).toHaveLength(1),
  },
  "the expiry of a file in the trash and its return": {
    isRecovery: true,
    prepare: inService(1, async (place) => {
      const id = await trashed(place);
      place.world.aheadMilliseconds += DAY + MINUTE;
      return id;
    }),
    acts: [recovering, request((id) => ["POST", `/docs/v1/trash/${id}/restore`])],
    outcomes: ["done 200", "done not_found"],
    verifySettled: expectFileIf("done 200"),
  },
  "the retention of a file and a hold": {
    isRecovery: true,
    async prepare(place) {
      const id = await fileOf(place);
      const deleteAfter = new Date(place.world.system.now() + MINUTE).toISOString();
      await given(place, "PATCH", `${FILES}/${id}`, { json: { deleteAfter } });
      place.world.aheadMilliseconds += 2 * MINUTE;
      return id;
    },
    acts: [recovering, request((id) => hold(id))],
    outcomes: ["done 200", "done not_found"],
    verifySettled: expectFileIf("done 200"),
  },
  "the expiry of a resumable upload and its last request": {
    isRecovery: true,
    async prepare(place) {
      const client = await begun(place);
      place.world.aheadMilliseconds += 2 * DAY;
      return client;
    },
    acts: [recovering, sending],
    outcomes: ["done not_found", "done upload_expired"],
    verifySettled: expectFileIf(),
  },
  "the recovery job and a delivery": {
    isRecovery: true,
    async prepare(place) {
      const hook = await webhookWithEvent(place);
      place.world.aheadMilliseconds += 16 * MINUTE;
      return hook;
    },
    acts: [recovering, deliveringTo],
    outcomes: ["done sent"],
  },
  "a link of a file and its deletion": {
    prepare: fileOf,
    acts: [
      request((id) => ["POST", `${FILES}/${id}/links`, { json: {} }]),
      request((id) => ["DELETE", `${FILES}/${id}`]),
    ],
    outcomes: ["200 200", "not_found 200"],
    verifySettled: expectFileIf(),
  },
  "an event and the alarm of its webhook": {
    prepare: webhookWithEvent,
    acts: [deliveringTo, request(() => ["POST", KEYS, { json: { name: "event" } }])],
    outcomes: ["sent 200"],
    verifySettled: async (_, { state }) => expect(await statusesOf(state)).toMatchObject({ succeeded: 2 }),
  },
  "two moves of a folder": {
    isSymmetric: true,
    prepare: inFolder,
    acts: ["new", "other"].map((to) => request(() => ["PATCH", "/docs/v1/folders", { json: { folder: "old", to } }])),
    outcomes: ["200 200"],
    async verifySettled(_, { state, team }) {
      expect(["new", "other"]).toContain(await folderOf(state));
      expect(await changesOf(team)).toBe(0);
    },
  },
  "two uploads of a team with a place for one": {
    isSymmetric: true,
    async prepare(place) {
      const json = { maxFiles: 1 };
      return given(place, "PATCH", `/auth/v1/teams/${place.team.teamId}`, { token: OPERATOR, json });
    },
    acts: ["first", "second"].map((text) => uploading(text)),
    outcomes: ["200 file_limit_reached", "file_limit_reached 200"],
    verifySettled: (rows) => expect(rows).toHaveLength(1),
  },
  "two users with the same email": {
    isSymmetric: true,
    prepare: async () => newEmail(),
    acts: [0, 1].map(() => request((email) => ["POST", USERS, { json: { email, password: PASSWORD } }])),
    outcomes: ["200 email_taken", "email_taken 200"],
  },
  "a login and the deletion of its user": {
    prepare: newAccount,
    acts: [loggingIn, request(({ _id }) => ["DELETE", `${USERS}/${_id}`])],
    outcomes: ["200 200", "login_failed 200"],
    verify: expectNoSession,
  },
  "the creation of a key by a user and the deletion of that": {
    prepare: async (place) => {
      const id = await newUser(place, "admin");
      return { id, token: await newSession(place.team, id) };
    },
    acts: [
      request(({ token }) => ["POST", KEYS, { token, json: { name: "key" } }]),
      request(({ id }) => ["DELETE", `${USERS}/${id}`]),
    ],
    outcomes: ["200 200", "token_invalid 200"],
    async verify({ team, state }) {
      expect(await keysWith(team, `user_id = '${state.id}'`)).toEqual([]);
    },
  },
  "the creation of a key by a user and their demotion": {
    prepare: async (place) => {
      const id = await newUser(place, "admin");
      return { id, token: await newSession(place.team, id) };
    },
    acts: [
      request(({ token }) => ["POST", KEYS, { token, json: { name: "key" } }]),
      request(({ id }) => ["PATCH", `${USERS}/${id}`, { json: { role: "viewer" } }]),
    ],
    outcomes: ["200 200", "insufficient_scope 200"],
    async verify({ team, outcomes }) {
      if (outcomes[0] === 200) await expectNoneAfter(team, "apikey.created", "user.updated");
    },
  },
  "the creation of a webhook and the deletion of its user": withLeaver(() => ["POST", HOOKS, { json: HOOK }]),
  "the enabling of a webhook and the deletion of its user": {
    isLikeAnother: true,
    ...withLeaver(({ hook }) => ["PATCH", `${HOOKS}/${hook}`, { json: { status: "enabled" } }]),
  },
  "a new secret of a webhook and the deletion of its user": {
    isLikeAnother: true,
    ...withLeaver(({ hook }) => ["POST", `${HOOKS}/${hook}/secret`]),
  },
  "the retention of a team and the deletion of its admin": {
    isLikeAnother: true,
    ...withLeaver(() => ["PUT", "/docs/v1/retention", { json: { days: 30 } }]),
  },
  "a waveform that is measured, and one that a client sets": {
    prepare: unmeasured,
    acts: [measuring, request(({ fileId }) => ["PUT", `${FILES}/${fileId}/waveform`, waveform(1)])],
    outcomes: ["done 200"],
    async verify({ team, state: { fileId } }) {
      const { channels } = (await team.call("GET", `${FILES}/${fileId}/waveform`)).body.data;
      expect(channels, "that of the client").toEqual([Array(16).fill(1)]);
    },
  },
  "two waveforms that a visitor sets": {
    isLikeAnother: true,
    isSymmetric: true,
    prepare: fileOfVisitor,
    acts: [1, -1].map((peak) =>
      request(({ id, token }) => ["PUT", `${FILES}/${id}/waveform`, { ...waveform(peak), token }]),
    ),
    outcomes: ["200 forbidden", "forbidden 200"],
    async verify({ team, state: { id }, outcomes }) {
      const { channels } = (await team.call("GET", `${FILES}/${id}/waveform`)).body.data;
      expect(channels, "the first one").toEqual([Array(16).fill(outcomes[0] === 200 ? 1 : -1)]);
    },
  },
  "two messages to measure a waveform": {
    isSymmetric: true,
    prepare: unmeasured,
    acts: [measuring, measuring],
    outcomes: ["done done"],
    async verify({ state: { fileId } }) {
      const row = await DB.prepare("select attempts, due_at from measurements where file_id = ?").bind(fileId).first();
      expect(row).toEqual({ attempts: 1, due_at: null });
    },
  },
  "a waveform of a file and its deletion": {
    prepare: fileOf,
    acts: [
      request((id) => ["PUT", `${FILES}/${id}/waveform`, waveform(1)]),
      request((id) => ["DELETE", `${FILES}/${id}`]),
    ],
    outcomes: ["200 200", "not_found 200"],
    verifySettled: expectFileIf(),
  },
  "two transcripts of a file": {
    isSymmetric: true,
    prepare: fileOf,
    acts: ["aa", "bb"].map(settingTranscript),
    outcomes: ["200 200"],
    verify: expectOneTranscript,
  },
  "a transcript of a file and the deletion of one": {
    isLikeAnother: true,
    async prepare(place) {
      const id = await fileOf(place);
      await settingTranscript("aa")(id, new ProxiedBindings(), place);
      return id;
    },
    acts: [settingTranscript("bb"), request((id) => ["DELETE", `${FILES}/${id}/transcript`])],
    outcomes: ["200 200"],
    verify: expectOneTranscript,
  },
  "a transcript of a file and its deletion": {
    prepare: fileOf,
    acts: [settingTranscript("aa"), request((id) => ["DELETE", `${FILES}/${id}`])],
    outcomes: ["200 200", "not_found 200"],
    verifySettled: expectFileIf(),
  },
};

/** Sets of acts on the same record. A random part of a set happens at once. */
// biome-ignore lint/suspicious/noExplicitAny: acts on every state.
const crowds: Record<string, { prepare: Race<any>["prepare"]; acts: Record<string, Act<any>> }> = {
  "a file": {
    prepare: inService(1, inFolder),
    acts: {
      change: request((id) => ["PATCH", `${FILES}/${id}`, { json: { metadata: { a: 1 }, tags: ["a"] } }]),
      tag: request((id) => ["POST", `${FILES}/batch`, { json: { action: "tag", ids: [id], tags: ["b"] } }]),
      move: moving,
      "delete the folder": deletingFolder,
      hold: request((id) => hold(id)),
      release: request((id) => ["DELETE", `${FILES}/${id}/hold`]),
      delete: request((id) => ["DELETE", `${FILES}/${id}`]),
      "erase the file": request((id) => erase(id)),
      restore: request((id) => ["POST", `/docs/v1/trash/${id}/restore`]),
      "erase it from the trash": request((id) => ["DELETE", `/docs/v1/trash/${id}`]),
      share: request((id) => ["POST", `${FILES}/${id}/links`, { json: {} }]),
      "set the transcript": settingTranscript("aa"),
      "delete the transcript": request((id) => ["DELETE", `${FILES}/${id}/transcript`]),
      "set the waveform": request((id) => ["PUT", `${FILES}/${id}/waveform`, waveform(1)]),
      reprocess: request((id) => ["POST", `${FILES}/${id}/reprocess`]),
      process: async (id, bindings, { world }) => `${await must(world.deliver(id, bindings))}`,
    },
  },
  "a resumable upload": {
    prepare: inService(1, begun),
    acts: {
      send: sending,
      "send again": sending,
      "send a part": async (client, bindings) => outcomeOf(await must(copyOf(client).send(0, 1000, bindings))),
      ask: asking,
      cancel: cancelingUrl,
      delete: request(({ id }: Uploader) => ["DELETE", `${FILES}/${id}`]),
      process: async ({ id }: Uploader, bindings, { world }) => `${await must(world.deliver(id, bindings))}`,
    },
  },
  "a user": {
    async prepare(place) {
      const { _id, email } = await newAccount(place);
      await given(place, "PATCH", `${USERS}/${_id}`, { json: { role: "admin" } });
      const invitation = await given(place, "POST", `${USERS}/${_id}/invitations`, { json: {} });
      const token = await newSession(place.team, _id);
      const key = await newKey({ ...place, team: { ...place.team, token } });
      return { _id, id: _id, email, token: invitation.token, session: token, key };
    },
    acts: {
      accept: accepting,
      "log in": loggingIn,
      demote: request(({ id }) => ["PATCH", `${USERS}/${id}`, { json: { role: "viewer" } }]),
      "change the password": request(({ id }) => ["PATCH", `${USERS}/${id}`, { json: { password: `${PASSWORD}!` } }]),
      delete: request(({ id }) => ["DELETE", `${USERS}/${id}`]),
      "create a key": request(({ session }) => ["POST", KEYS, { token: session, json: { name: "made" } }]),
      rotate: request(({ session, key }) => ["POST", `${KEYS}/${key.id}/rotate`, { token: session, json: {} }]),
      revoke: request(({ key }) => revoke(key.id)),
      "open a session": request(({ key }) => ["POST", "/auth/v1/sessions", { token: key.key }]),
      "log out": request(({ session }) => ["POST", "/auth/v1/logout", { token: session }]),
      invite: request(({ id }) => ["POST", `${USERS}/${id}/invitations`, { json: {} }]),
    },
  },
};

/** `npm test` leaves out the races with the recovery job, which take the longest, and those that others stand for. */
const included = Object.entries(races).filter(
  ([, { isRecovery, isLikeAnother }]) => isExhaustive || (!isRecovery && !isLikeAnother),
);

describe("Every order with few switches", () => {
  test.for(included)(
    "of the calls of %s keeps every acknowledged change",
    { timeout: 600_000 },
    async ([name, race], { annotate }) =>
      void (await annotate(`orders of ${name}: ${JSON.stringify(await runEveryOrder(race))}`)),
  );
});

describe("A random order of the calls", () => {
  const RUNS = isExhaustive ? 60 : 15;
  const included = Object.entries(crowds).slice(0, isExhaustive ? undefined : 1);

  test.for(included)(
    "of three or more acts on %s keeps every acknowledged change",
    { timeout: 600_000 },
    async ([, { prepare, acts }], { annotate }) => {
      const seen = new Set<string>();
      const names = fc.subarray(Object.keys(acts), { minLength: 3, maxLength: 5 });
      const property = fc.asyncProperty(names, fc.scheduler(), async (chosen, scheduler) => {
        const race: Race<unknown> = { prepare, acts: chosen.map((name) => acts[name] as Act<unknown>) };
        const { outcomes } = await raceAlone(race, chooseBy(scheduler));
        for (const [i, outcome] of outcomes.entries()) seen.add(`${chosen[i]}: ${outcome}`);
      });
      await fc.assert(property, { numRuns: RUNS });
      await annotate(`outcomes of ${RUNS} orders: ${[...seen].sort().join(", ")}`);
      // Each act took place. A few runs need not choose every one.
      if (!isExhaustive) return;
      expect(new Set([...seen].map((outcome) => outcome.split(":")[0]))).toEqual(new Set(Object.keys(acts)));
    },
  );
});

/** A counter that two invocations read, then write. */
function countingIn(reads: boolean) {
  let stored = 0;
  const bucket = {
    get: async () => ({ stored }),
    put: async (_: string, value: number) => {
      stored = value;
    },
  } as unknown as R2Bucket;
  const increment: Invoke<void> = async (bindings) => {
    const proxied = bindings.bucket(bucket);
    const found = reads ? ((await proxied.get("counter")) as unknown as { stored: number }).stored : stored;
    await proxied.put("counter", (found + 1) as never);
    if (!reads) await proxied.put("counter", (found + 2) as never);
  };
  return { increment, read: () => stored };
}

describe("The scheduler", () => {
  test("runs each order of two reads and writes, of which four lose an update", async () => {
    const found: Record<string, number> = {};
    await everyOrder(async (choose) => {
      const { increment, read } = countingIn(true);
      const { order } = await interleave([increment, increment], choose);
      found[describeOrder(order)] = read();
      return { order };
    }, 2);
    expect(found).toEqual({
      "1 R2 get, 1 R2 put, 2 R2 get, 2 R2 put": 2,
      "1 R2 get, 2 R2 get, 1 R2 put, 2 R2 put": 1,
      "1 R2 get, 2 R2 get, 2 R2 put, 1 R2 put": 1,
      "2 R2 get, 1 R2 get, 1 R2 put, 2 R2 put": 1,
      "2 R2 get, 1 R2 get, 2 R2 put, 1 R2 put": 1,
      "2 R2 get, 2 R2 put, 1 R2 get, 1 R2 put": 2,
    });
  });

  test.each([
    [2, 6],
    [0, 2],
    [1, 4],
  ])("with at most %d switches runs %i orders of two writes each", async (maxSwitches, expected) => {
    const orders = new Set<string>();
    const runs = await everyOrder(async (choose) => {
      const { increment } = countingIn(false);
      const { order } = await interleave([increment, increment], choose);
      orders.add(describeOrder(order));
      return { order };
    }, maxSwitches);
    expect([runs, orders.size]).toEqual([expected, expected]);
  });

  test("runs the orders of the example in support/orders.ts, as they stand there", async () => {
    const orders: string[] = [];
    await everyOrder(async (choose) => {
      const { increment } = countingIn(true);
      const { order } = await interleave([increment, increment], choose);
      orders.push(order.map(({ by, name }) => `${by + 1}${name === "R2 get" ? "a" : "b"}`).join(" "));
      return { order };
    }, 1);
    expect(orders).toEqual(["1a 1b 2a 2b", "1a 2a 2b 1b", "2a 1a 1b 2b", "2a 2b 1a 1b"]);
  });

  test("reports the order in which a race fails", async () => {
    const race: Race<{ read: () => number }> = {
      prepare: async () => countingIn(true),
      acts: [0, 1].map(() => async (state, bindings) => {
        await (state as ReturnType<typeof countingIn>).increment(bindings);
        return 200;
      }),
      verify: ({ state }) => expect(state.read()).toBe(2),
    };
    const order = "in the order 1 R2 get, 2 R2 get, ";
    await expect(runEveryOrder(race)).rejects.toThrow(order);
  });
});
