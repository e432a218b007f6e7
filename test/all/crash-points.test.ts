import { env } from "cloudflare:workers";
import { describe, expect } from "vitest";
import type { WaveformJob } from "../../src/platform/messages.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { sample } from "../audio/samples.ts";
import { deathAt, failureOfLatePut, ProxiedBindings } from "../support/bindings.ts";
import { patternOf, sha256, vttOf } from "../support/bytes.ts";
import type { Answer, CallOptions, Team } from "../support/client.ts";
import { ALL_DATABASES, DB } from "../support/databases.ts";
import { type Change, withoutHashing } from "../support/deps.ts";
import { expectSameAsOthers, included, type Place, type Run, runEveryFault, type Scenario } from "../support/faults.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { metadataOf, newSession, OPERATOR, snapshot } from "../support/harness.ts";
import { expectErased, expectSettled } from "../support/invariants.ts";
import { type Row, rowsOf } from "../support/queries.ts";
import { newEmail, PASSWORD } from "../support/routes.ts";
import { objectBeside } from "../support/rows.ts";
import { streamOf } from "../support/streams.ts";
import { isExhaustive } from "../support/tiers.ts";
import { DAY, MINUTE } from "../support/time.ts";
import { SMALL_PART_BYTES, Uploader } from "../support/uploader.ts";
import { createEvent, eventsOf, type Hook, idOf, newHook, runAlarmOf, statusesOf } from "../support/webhooks.ts";
import { encodeForm, type Form, must, type Outcome, UNAVAILABLE, World } from "../support/world.ts";

/* Crash points of everything but resumable uploads. support/faults.ts says which faults run. */

type Response = Outcome<Answer>;
/** A request whose response is checked, and the first peak of the waveform, or the status, that a later GET found. */
type Seen = { outcome: Response; found: number };
type AnyRun = Run<unknown, unknown>;

const status = (outcome: Response) => (outcome === "dead" ? "dead" : outcome.status);

/** The responses that a fault allows in addition to the one without a fault. */
function failureStatuses({ fault }: AnyRun): (number | "dead")[] {
  if (!fault) return [];
  if (fault.failure === "death") return ["dead"];
  return [UNAVAILABLE[0]];
}
const expectResponse = (outcome: Response, expected: number, run: AnyRun) =>
  expect([expected, ...failureStatuses(run)]).toContain(status(outcome));

const ask = (
  { world, team: { token } }: Place,
  method: string,
  path: string,
  options = {},
  bindings?: ProxiedBindings,
) => world.ask(method, path, { token, ...options }, { bindings });

/** Creates a record, and does not hash its password. */
const post = async ({ world, team: { token } }: Place, path: string, json: object) =>
  (await must(world.ask("POST", path, { token, json }, { change: withoutHashing }))).body.data;

const tone = sample("tone.m4a").bytes;
const zeros = new Uint8Array(8 * 1024 * 1024 + 1000);
/** Processing detects another type than the upload did, and stores it with the object. */
const audioOnly = sample("tone-audio-only.mp4").bytes;

const sent = async (bytes: Uint8Array<ArrayBuffer>) => ({
  form: await encodeForm("tone.m4a", bytes),
  digest: sha256(bytes),
});
type Sent = Awaited<ReturnType<typeof sent>>;

/**
 * After 200 the file exists. Otherwise it does not, unless its Worker died, or the response of the commit was lost and the
 * rollback could not reach D1. It is never incomplete.
 */
function verifyUpload(rows: Row[], { digest }: Sent, outcome: Response, run: AnyRun, canExist = false): void {
  const isLostCommit = run.call === "D1 batch" && run.fault?.failure === "outage";
  if (status(outcome) === 200) expect(rows).toHaveLength(1);
  else if (status(outcome) === "dead" || isLostCommit || canExist) expect(rows.length).toBeLessThanOrEqual(1);
  else expect(rows, `response ${status(outcome)}`).toEqual([]);
  for (const row of rows) expect([row.sha256, row.status]).toEqual([digest, "completed"]);
  // A write that failed may still be in flight, so the row stays until the recovery job has deleted the object.
  if (run.fault?.failure === "permanent" && /^R2 (put|uploadPart)$/.test(run.call)) {
    expect(run.rows).toMatchObject([{ status: "deleting" }]);
  }
}

function uploading(bytes: Uint8Array<ArrayBuffer>): Scenario<Sent, Response> {
  const state = sent(bytes);
  return {
    prepare: () => state,
    act: ({ form }, bindings, { world, team }) => world.upload(team, form, {}, { bindings }),
    verify: (rows, run) => verifyUpload(rows, run.state, run.result, run),
  };
}

/** The files of a team that an upload token does not count. */
const uncountedFiles = (teamId: string) =>
  DB.prepare(
    `select count(*) as files from files where team_id = ?
     and not exists (select 1 from uploads where team_id = files.team_id and file_id = id and upload_token_id is not null)`,
  )
    .bind(teamId)
    .first("files");

/** The upload token counts each file that it stored. */
const uploadingWithLimits: Scenario<Sent & { page: Team }, { response: Response; uncounted: unknown }> = {
  async prepare(place) {
    const json = { maxFiles: 1 };
    const { body } = await must(ask(place, "POST", "/docs/v1/uploadtokens", { json }));
    return { ...(await sent(tone)), page: { ...place.team, token: body.data.token } };
  },
  async act({ page, form }, bindings, { world, team }) {
    const response = await world.upload(page, form, {}, { bindings });
    return { response, uncounted: await uncountedFiles(team.teamId) };
  },
  verify(rows, run) {
    verifyUpload(rows, run.state, run.result.response, run);
    expect(run.result.uncounted).toBe(0);
  },
};

/** The client always retries with the same key. */
const uploadingWithKey: Scenario<Sent, { first: Response; second: Answer }> = {
  prepare: () => sent(tone),
  async act({ form }, bindings, { world, team }) {
    const headers = { "Idempotency-Key": "once" };
    const first = await world.upload(team, form, headers, { bindings });
    return { first, second: await must(world.upload(team, form, headers)) };
  },
  verify(rows, { state, result: { first, second } }) {
    // If the first request died, it may still be in progress for the second.
    expect([200, 409, UNAVAILABLE[0]]).toContain(second.status);
    if (second.status !== 200) expect(second.headers.get("Retry-After")).not.toBeNull();
    if (first !== "dead" && first.status === 200) expect(second.id).toBe(first.id);
    expect(rows).toHaveLength(status(first) === 200 || second.status === 200 ? 1 : 0);
    for (const row of rows) expect([row.sha256, row.status]).toEqual([state.digest, "completed"]);
  },
};

const rollingBack: Scenario<Sent, Response> = {
  ...uploading(tone),
  firstFault: (calls) => ({ call: calls.lastIndexOf("D1 batch") + 1, moment: "after", failure: "permanent" }),
  verify(rows, run) {
    if (status(run.result) === 200) expect(run.fault).toBeUndefined();
    // If the rollback ends before it hides the row, the complete file stays.
    verifyUpload(rows, run.state, run.result, run, run.fault !== undefined);
  },
};

/** The response is this rejection or reports the fault, and no file exists. */
function rejected(prepare: () => Promise<Form>, answer: number, change?: Change): Scenario<Form, Response> {
  return {
    prepare,
    act: (form, bindings, { world, team }) => world.upload(team, form, {}, { bindings, change }),
    verify(rows, run) {
      expectResponse(run.result, answer, run);
      // If a store failed, one of its writes may still be in flight, so the row stays until the recovery job.
      const isCleanedUp = !run.fault || (run.fault.failure === "transient" && status(run.result) === answer);
      if (isCleanedUp) expect(run.rows, "rows after the response").toEqual([]);
      expect(rows).toEqual([]);
    },
  };
}

const truncated = async (): Promise<Form> => {
  const { body, contentType } = await encodeForm("note.txt", "note ".repeat(100));
  return { body: body.slice(0, -20), contentType };
};
const nineMebibytes = encodeForm("zeros.bin", new Uint8Array(9 * 1024 * 1024));
/** A stream has no Content-Length, so the Worker counts the bytes. The limit is reached after the first part. */
const tooLarge = async (): Promise<Form> => {
  const { body, contentType } = await nineMebibytes;
  const chunks = Array.from({ length: 37 }, (_, i) => body.slice(i * 256 * 1024, (i + 1) * 256 * 1024));
  return { body: streamOf(...chunks), contentType };
};
const smallLimit: Change = (deps) => ({ ...deps, settings: { ...deps.settings, maxUploadBytes: 8.5 * 1024 * 1024 } });

function processing(bytes: Uint8Array<ArrayBuffer>, end: string): Scenario<string, void> {
  return {
    bytesLost: end === "bytes_missing",
    async prepare({ world, team }) {
      const id = await world.store(team, "file", bytes);
      world.messages = world.messages.filter((message) => message !== id);
      if (end === "bytes_missing") await env.BUCKET.delete(`${team.teamId}/${id}-file`);
      return id;
    },
    async act(id, bindings, { world }) {
      const again = await world.deliver(id, bindings);
      // The message of a dead Worker is lost. The recovery job must find the file.
      if (typeof again === "number") world.messages.push(id);
    },
    async verify(rows, { state, team }) {
      expect(rows.map((row) => row.failure_code ?? row.status)).toEqual([end]);
      expect(rows[0]?.audio !== null).toBe(end === "completed");
      const object = await env.BUCKET.head(`${team.teamId}/${state}-file`);
      const isStored = end === "completed";
      expect([object?.etag, object?.httpMetadata?.contentType]).toEqual(
        isStored ? [rows[0]?.etag, "audio/mp4"] : [undefined, undefined],
      );
    },
  };
}

/** A form whose second half arrives after `sendRest()`. */
async function slowForm(): Promise<{ form: Form; sendRest: () => void }> {
  const { body, contentType } = await encodeForm("slow.txt", "slowly ".repeat(100));
  const gate = Promise.withResolvers<void>();
  const half = body.length >> 1;
  const stream = new ReadableStream<Uint8Array>({
    async start(controller) {
      controller.enqueue(body.slice(0, half));
      await gate.promise;
      controller.enqueue(body.slice(half));
      controller.close();
    },
  });
  return { form: { body: stream, contentType }, sendRest: () => gate.resolve() };
}

/** A rejected upload has no row, and responds only after it has read the body. So stop if the fault is permanent. */
async function rowAppears(team: Team, upload: ProxiedBindings): Promise<string | undefined> {
  for (;;) {
    const { isBroken } = upload;
    const [row] = await rowsOf(team.teamId);
    if (row || isBroken) return row?.id;
    await realSystem.sleep(1);
  }
}

function deletingWhileReceiving(whose: "upload" | "delete"): Scenario<null, { uploaded: Response; deleted: Response }> {
  return {
    prepare: async () => null,
    async act(_, bindings, place) {
      const { form, sendRest } = await slowForm();
      const uploadBindings = whose === "upload" ? bindings : new ProxiedBindings();
      const upload = place.world.upload(place.team, form, {}, { bindings: uploadBindings });
      const id = await rowAppears(place.team, uploadBindings);
      const deleteBindings = whose === "delete" ? bindings : undefined;
      const deleted = await ask(place, "DELETE", `/docs/v1/uploads/${id ?? "none"}`, {}, deleteBindings);
      sendRest();
      return { uploaded: await upload, deleted };
    },
    verify(rows, { result: { uploaded, deleted }, fault }) {
      if (!fault) expect([status(uploaded), status(deleted)]).toEqual([404, 200]);
      if (status(deleted) === 200) expect(status(uploaded)).not.toBe(200);
      expect(rows).toHaveLength(status(uploaded) === 200 ? 1 : 0);
    },
  };
}

const waveformOf = (id: string) => `/docs/v1/uploads/${id}/waveform`;
const peaks = (peak: number) => ({ json: { channels: [Array(16).fill(peak)] } });
const transcriptOf = (id: string) => `/docs/v1/uploads/${id}/transcript`;
const transcript = (text: string) => ({ body: vttOf(text), headers: { "Content-Type": "text/vtt" } });
/** It also has a transcript. */
async function withWaveform({ world, team }: Place): Promise<string> {
  const id = await world.store(team, "tone.m4a", tone);
  expect((await team.call("PUT", waveformOf(id), peaks(1))).status).toBe(200);
  expect((await team.call("PUT", `${transcriptOf(id)}?language=aa`, transcript("old"))).status).toBe(200);
  await world.drain();
  return id;
}

/** After 200 the new waveform is returned. Otherwise the old or the new one is. */
const settingWaveform: Scenario<string, Seen> = {
  prepare: withWaveform,
  async act(id, bindings, place) {
    const outcome = await ask(place, "PUT", waveformOf(id), peaks(-1), bindings);
    return { outcome, found: (await place.team.call("GET", waveformOf(id))).body.data.channels[0][0] };
  },
  verify(rows, run) {
    const { outcome, found } = run.result;
    expect(rows).toHaveLength(1);
    expectResponse(outcome, 200, run);
    expect(status(outcome) === 200 ? [-1] : [1, -1]).toContain(found);
  },
};

/** A file's transcript, by a read and by the metadata. */
async function seenTranscript({ team }: Pick<Place, "team">, id: string) {
  const { status, text } = await team.call("GET", transcriptOf(id));
  const { data } = (await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).body;
  return { text: status === 200 ? text : null, language: data.transcript?.language ?? null };
}
type SeenTranscript = { outcome: Response; found: Awaited<ReturnType<typeof seenTranscript>> };

/** After 200 the new transcript is returned, with its language. Otherwise the old or the new text is. */
const settingTranscript: Scenario<string, SeenTranscript> = {
  prepare: withWaveform,
  async act(id, bindings, place) {
    const outcome = await ask(place, "PUT", `${transcriptOf(id)}?language=bb`, transcript("new one"), bindings);
    return { outcome, found: await seenTranscript(place, id) };
  },
  async verify(rows, run) {
    const { outcome, found } = run.result;
    expect(rows).toHaveLength(1);
    expectResponse(outcome, 200, run);
    if (status(outcome) === 200) expect(found).toEqual({ text: vttOf("new one"), language: "bb" });
    else expect([vttOf("old"), vttOf("new one")]).toContain(found.text);
    // The next write leaves no trace of one that died.
    expect((await run.team.call("PUT", transcriptOf(run.state), transcript("last"))).status).toBe(200);
    expect(await seenTranscript(run, run.state)).toEqual({ text: vttOf("last"), language: null });
    expect((await rowsOf(run.team.teamId))[0]?.reserved_bytes).toBe(tone.length + vttOf("last").length);
  },
};

/** After 200 there is none. Otherwise a retry deletes it. */
const deletingTranscript: Scenario<string, SeenTranscript> = {
  prepare: withWaveform,
  async act(id, bindings, place) {
    const outcome = await ask(place, "DELETE", transcriptOf(id), {}, bindings);
    return { outcome, found: await seenTranscript(place, id) };
  },
  async verify(rows, run) {
    const { outcome, found } = run.result;
    expect(rows).toHaveLength(1);
    expectResponse(outcome, 200, run);
    if (status(outcome) === 200) expect(found).toEqual({ text: null, language: null });
    else expect([vttOf("old"), null]).toContain(found.text);
    expect([200, 404]).toContain((await run.team.call("DELETE", transcriptOf(run.state))).status);
    expect(await seenTranscript(run, run.state)).toEqual({ text: null, language: null });
    expect(await objectBeside(run.team.teamId, run.state, "transcript")).toBeNull();
    expect((await rowsOf(run.team.teamId))[0]?.reserved_bytes).toBe(tone.length);
  },
};

function verifyDeletion(rows: Row[], outcome: Response, run: AnyRun): void {
  if (status(outcome) === 200) expect(rows).toEqual([]);
  else expectResponse(outcome, 200, run);
}
const listed = ({ rows }: AnyRun) => rows.filter((row) => row.status !== "receiving" && row.status !== "deleting");

const deleting: Scenario<string, Seen> = {
  prepare: withWaveform,
  async act(id, bindings, place) {
    const outcome = await ask(place, "DELETE", `/docs/v1/uploads/${id}`, {}, bindings);
    return { outcome, found: (await place.team.call("GET", waveformOf(id))).status };
  },
  verify(rows, run) {
    verifyDeletion(rows, run.result.outcome, run);
    expect(run.result.found, "the waveform exists while the file is listed").toBe(listed(run).length > 0 ? 200 : 404);
  },
};

/** A completed file whose waveform is due to be measured. Its message is not delivered. */
async function unmeasured({ world, team }: Place): Promise<WaveformJob> {
  const fileId = await world.store(team, "tone.mp3", sample("tone-vbr.mp3").bytes);
  await world.drain();
  const job = world.waveformMessages.find((message) => message.fileId === fileId);
  world.waveformMessages = world.waveformMessages.filter((message) => message !== job);
  return job as WaveformJob;
}

/**
 * It is measured, or its consumer dies while it is measured, or can't say that it failed: then no attempt follows, because
 * decoding the file may be what killed the consumer. The file is completed all the while.
 */
const measuring: Scenario<WaveformJob, unknown> = {
  prepare: unmeasured,
  async act(job, bindings, { world }) {
    const outcome = await world.deliverWaveform(job, bindings);
    if (typeof outcome === "number") world.waveformMessages.push(job);
    return outcome;
  },
  async verify(rows, { state: { fileId }, team, rows: before, result }) {
    expect([...before, ...rows].map((row) => row.status)).toEqual(["completed", "completed"]);
    const { hasWaveform, peaks } = await metadataOf(team, fileId);
    if (!hasWaveform) {
      expect(["dead", expect.any(Number)]).toContainEqual(result);
      const row = await DB.prepare("select attempts, due_at from measurements where file_id = ?").bind(fileId).first();
      expect(row).toEqual({ attempts: 1, due_at: null });
      return;
    }
    expect([hasWaveform, peaks.length]).toEqual([true, 56]);
    expect((await team.call("GET", waveformOf(fileId))).body.data.channels).toMatchObject([{ length: 1000 }]);
  },
};

/** The recovery job sends its message, whatever dies. */
const resendingMeasurements: Scenario<WaveformJob, unknown> = {
  ...measuring,
  isRecovery: true,
  async prepare(place) {
    const job = await unmeasured(place);
    place.world.aheadMilliseconds += DAY;
    return job;
  },
  act: (_, bindings, { world }) => world.recover(bindings),
};

/** A file with a waveform, in a service with a trash. */
async function withTrash(place: Place): Promise<string> {
  place.world.settings = { trashDays: 1 };
  return withWaveform(place);
}
const trashPath = (id: string) => `/docs/v1/trash/${id}`;
const kept = async (id: string, run: AnyRun) => ((await run.team.call("GET", waveformOf(id))).status === 200 ? 1 : 0);

/** The file is in the trash or listed, and never half gone. Days later, the trash is empty. */
const trashing: Scenario<string, Seen> = {
  ...deleting,
  prepare: withTrash,
  verify(rows, run) {
    deleting.verify?.(rows, run);
    expect(run.rows).toHaveLength(1);
    expect(run.rows[0]?.trashed_at === null, "listed, or in the trash").toBe(listed(run).length > 0);
  },
};

const restoring: Scenario<string, { first: Response; second: Answer }> = {
  async prepare(place) {
    const id = await withTrash(place);
    await must(ask(place, "DELETE", `/docs/v1/uploads/${id}`));
    return id;
  },
  async act(id, bindings, place) {
    const first = await ask(place, "POST", `${trashPath(id)}/restore`, {}, bindings);
    return { first, second: await must(ask(place, "POST", `${trashPath(id)}/restore`)) };
  },
  async verify(rows, { state, result: { first, second }, ...run }) {
    if (status(first) === 200) expect(second.code).toBe("not_in_trash");
    expect([200, 409]).toContain(second.status);
    expect(rows).toMatchObject([{ id: state, status: "completed" }]);
    expect(await kept(state, run as AnyRun)).toBe(1);
  },
};

const erasing: Scenario<string, Response> = {
  prepare: restoring.prepare,
  act: (id, bindings, place) => ask(place, "DELETE", trashPath(id), {}, bindings),
  verify: (rows) => expect(rows).toEqual([]),
};

/** One file to move to the trash, one to erase, and one that is held, of a team that keeps files for a day. */
const expiring: Scenario<string, unknown> = {
  isRecovery: true,
  isLong: true,
  async prepare(place) {
    const { world } = place;
    const [trashed, expired, held] = [await withTrash(place), await withTrash(place), await withTrash(place)];
    await must(ask(place, "DELETE", `/docs/v1/uploads/${trashed}`));
    const deleteAfter = new Date(world.system.now() + MINUTE).toISOString();
    await must(ask(place, "PATCH", `/docs/v1/uploads/${expired}`, { json: { deleteAfter } }));
    await must(ask(place, "PUT", `/docs/v1/uploads/${held}/hold`, { json: { reason: "r" } }));
    await must(ask(place, "PUT", "/docs/v1/retention", { json: { days: 1 } }));
    world.aheadMilliseconds += DAY + MINUTE;
    world.messages = [];
    return held ?? "";
  },
  act: (_, bindings, { world }) => world.recover(bindings),
  verify(rows, { state }) {
    expect(rows.map(({ id, status: end }) => [id, end])).toEqual([[state, "completed"]]);
  },
};

const reprocessing: Scenario<string, Response> = {
  prepare: withWaveform,
  act: (id, bindings, place) => ask(place, "POST", `/docs/v1/uploads/${id}/reprocess`, {}, bindings),
  verify(rows, run) {
    expect(rows.map((row) => [row.status, row.audio !== null])).toEqual([["completed", true]]);
    expectResponse(run.result, 200, run);
  },
};

/** Three files with tags. */
async function taggedFiles({ world, team }: Place): Promise<string[]> {
  const ids: string[] = [];
  for (const tags of [["a"], ["a", "b"], []]) {
    const id = await world.store(team, "note.txt", "note");
    expect((await team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { folder: "", tags } })).status).toBe(200);
    ids.push(id);
  }
  await world.drain();
  return ids;
}
const askBatch = (place: Place, ids: string[], action: object, bindings?: ProxiedBindings) =>
  ask(place, "POST", "/docs/v1/uploads/batch", { json: { ids, ...action } }, bindings);
const tagRows = async ({ team }: Place) =>
  (await DB.prepare("select tag, file_id as id from file_tags where team_id = ?").bind(team.teamId).all()).results;

/** The client repeats the batch until it succeeds. */
const tagging: Scenario<string[], { first: Response; tags: object[]; events: unknown }> = {
  prepare: taggedFiles,
  async act(ids, bindings, place) {
    const action = { action: "tag", tags: ["b"] };
    const first = await askBatch(place, ids, action, bindings);
    const again = await must(askBatch(place, ids, action));
    expect(again.body.data).toEqual(ids.map((_id) => ({ _id, ok: true })));
    const events = await DB.prepare("select count(*) n from events where team_id = ? and type = 'file.updated'")
      .bind(place.team.teamId)
      .first("n");
    return { first, tags: await tagRows(place), events };
  },
  verify(rows, run) {
    const { first, tags, events } = run.result;
    expectResponse(first, 200, run);
    const columns = rows.map((row) => (row as Row & { tags: string }).tags);
    expect(columns.sort()).toEqual(['["a","b"]', '["a","b"]', '["b"]']);
    expect(tags).toHaveLength(5);
    expect(tags).toContainEqual({ tag: "b", id: run.state[2] });
    // Two files got tags when they were prepared, and two by the batch.
    expect(events, "one event for each change").toBe(4);
  },
};

const deletingMany: Scenario<string[], { first: Response; tags: object[] }> = {
  prepare: taggedFiles,
  async act(ids, bindings, place) {
    const first = await askBatch(place, ids, { action: "delete" }, bindings);
    return { first, tags: await tagRows(place) };
  },
  verify(rows, run) {
    verifyDeletion(rows, run.result.first, run);
    expect([0, 3], "all or none").toContain(listed(run).length);
    expect(run.result.tags, "a hidden file has no tags").toHaveLength(listed(run).length);
  },
};

const trashingMany: Scenario<string[], { first: Response; tags: object[] }> = {
  ...deletingMany,
  prepare(place) {
    place.world.settings = { trashDays: 1 };
    return taggedFiles(place);
  },
  verify(rows, run) {
    deletingMany.verify?.(rows, run);
    const trashed = run.rows.filter((row) => row.trashed_at !== null);
    expect(trashed, "listed, or in the trash").toHaveLength(3 - listed(run).length);
  },
};

const restoringMany: Scenario<string[], { first: Response; tags: object[] }> = {
  async prepare(place) {
    const ids = await trashingMany.prepare(place);
    await must(askBatch(place, ids, { action: "delete" }));
    return ids;
  },
  async act(ids, bindings, place) {
    const first = await askBatch(place, ids, { action: "restore" }, bindings);
    return { first, tags: await tagRows(place) };
  },
  verify(rows, run) {
    const { first, tags } = run.result;
    expectResponse(first, 200, run);
    expect([0, 3], "all or none").toContain(listed(run).length);
    expect(tags).toHaveLength(listed(run).length);
    if (status(first) === 200) expect(listed(run)).toHaveLength(3);
    expect(rows).toHaveLength(listed(run).length);
  },
};

const recovering: Scenario<Record<string, string>, Outcome<Record<string, number>>> = {
  isRecovery: true,
  isLong: true,
  async prepare({ world, team }) {
    const ids: Record<string, string> = {};
    for (const state of ["receiving", "pending", "processing", "deleting"]) {
      ids[state] = await world.storeInterrupted(team, state, -DAY);
    }
    world.messages = [];
    await DB.batch([
      DB.prepare(
        `insert into api_keys (id, team_id, uuid, name, kind, token_hash, user_id, lifetime_milliseconds, created_at, expires_at)
         select lower(hex(randomblob(12))), team_id, uuid, 'session', 'session', lower(hex(randomblob(32))), 'user', 1,
           created_at, 1 from api_keys where team_id = ?`,
      ).bind(team.teamId),
      ...["created", "deleted"].map((verb, i) =>
        DB.prepare("insert into events values (?, ?, ?, 1, '{}', 'gone', 0, '{}', 1)").bind(
          ...[team.teamId, i + 1, `user.${verb}`],
        ),
      ),
    ]);
    world.secrets = loadSecrets(`${btoa("fedcba9876543210fedcba9876543210")},${env.MASTER_KEY}`, realSystem);
    return ids;
  },
  act: (_, bindings, { world }) => world.recover(bindings),
  verify(rows, { state, result, fault }) {
    expect(rows.map(({ id, status: end }) => [id, end])).toEqual(
      [state.pending, state.processing].sort().map((id) => [id, "completed"]),
    );
    const reencrypted = expect.any(Number);
    const counts = { sent: 2, uploadsExpired: 1, uploadsRemoved: 1, filesDeleted: 1, sessionsRemoved: 1, purged: 2 };
    if (!fault) expect(result).toMatchObject({ ...counts, reencrypted });
  },
};

const USERS = "/auth/v1/users";
const KEYS = "/auth/v1/apikeys";
const SESSIONS = "/auth/v1/sessions";
const WEBHOOKS = "/auth/v1/webhooks";
const newUser = (place: Place) => post(place, USERS, { email: newEmail(), password: PASSWORD });
const newWebhook = async (place: Place) =>
  `${WEBHOOKS}/${(await post(place, WEBHOOKS, { url: "https://hooks.example.com/in" }))._id}`;

const operator = { token: env.OPERATOR_TOKEN };
const teamPath = ({ team }: Place) => `/auth/v1/teams/${team.teamId}`;

/** A team with records of each kind, in the middle of its work. No other team changes. */
const deletingTeam: Scenario<{ other: Team; before: unknown }, void> = {
  isRecovery: true,
  isLong: true,
  onlyChanges: true,
  isTeamDeleted: true,
  async prepare(place) {
    const { world, team } = place;
    const other = await world.newTeam();
    await world.store(other, "note.txt", "note");
    const webhook = await newWebhook(place);
    await newWebhook(place);
    await newUser(place);
    const id = await withWaveform(place);
    await post(place, `/docs/v1/uploads/${id}/links`, {});
    await team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { tags: ["radio"] } });
    for (const state of ["receiving", "processing", "deleting"]) await world.storeInterrupted(team, state, DAY);
    // Unfinished with a part and a chunk, finished, and interrupted while it wrote.
    const [open, finished, interrupted] = Array.from({ length: 3 }, () => new Uploader(world, team, patternOf(3000)));
    await open!.createWithSmallParts();
    await must(open!.send(0, 1.5 * SMALL_PART_BYTES));
    await must(finished!.create(undefined, 3000));
    await must(interrupted!.create(undefined, 1));
    await interrupted!.send(1, 100, deathAt("R2", "put", "after"));
    await team.call("DELETE", webhook);
    world.messages = [];
    return { other, before: await snapshot(other.teamId) };
  },
  async act({ other, before }, bindings, place) {
    const { world, team } = place;
    await world.ask("DELETE", teamPath(place), operator, { bindings });
    await world.recover(bindings);
    expect((await world.call("DELETE", teamPath(place), operator)).body.data.status).toBe("deleting");
    expect((await team.call("GET", "/docs/v1/usage")).code).toBe("token_invalid");
    expect(await snapshot(other.teamId)).toEqual(before);
  },
  verify: async (_, { world, team }) =>
    expect((await world.call("GET", teamPath({ world, team }), operator)).code).toBe("not_found"),
};

/** An alarm sends three events. Each is received at least once, always with its id. */
const sending: Scenario<Hook, void> = {
  async prepare({ team }) {
    const hook = await newHook(team);
    for (let i = 0; i < 3; i++) await createEvent(team);
    return hook;
  },
  async act(state, bindings, { world }) {
    await runAlarmOf(world, state, bindings);
  },
  async verify(_, { state, world, team, fault }) {
    expect(await statusesOf(state)).toEqual({ succeeded: 3 });
    const ids = (await eventsOf(team, "apikey.created")).slice(0, 3).map(({ _id }: { _id: string }) => _id);
    const received = world.posts.filter(({ body }) => JSON.parse(body).teamId === team.teamId).map(idOf);
    expect([...new Set(received)].sort()).toEqual(ids.sort());
    expect(received.length).toBeLessThanOrEqual(fault ? 6 : 3);
  },
};

/** The cron trigger with teams in two databases. A fault hits the trigger or the run in the first one. */
const recoveringTwo: Scenario<Team, void> = {
  isRecovery: true,
  onlyChanges: true,
  async prepare({ world, team }) {
    const other = await world.newTeam((world.database + 1) % ALL_DATABASES.length);
    for (const one of [team, other]) {
      for (const state of ["receiving", "deleting"]) await world.storeInterrupted(one, state, -DAY);
    }
    return other;
  },
  async act(other, bindings, { world }) {
    await world.triggerCron(bindings).catch(() => undefined);
    const jobs = world.recoveryMessages.splice(0);
    for (const job of jobs) await world.deliverRecovery(job, job.database === world.database ? bindings : undefined);
    if (jobs.length > 0) expect(await rowsOf(other.teamId), "the other database is recovered").toEqual([]);
  },
  async verify(rows, { state }) {
    expect(rows).toEqual([]);
    expect(await expectSettled(state.teamId)).toEqual([]);
  },
};

const wakingWebhooks: Scenario<Hook, unknown> = {
  isRecovery: true,
  onlyChanges: true,
  async prepare({ world, team }) {
    const hook = await newHook(team);
    await createEvent(team);
    for (const object of world.objects.values()) object.at = null;
    return hook;
  },
  act: (_, bindings, { world }) => world.recover(bindings),
  verify: async (_, { state }) => expect(await statusesOf(state)).toEqual({ succeeded: 1 }),
};

/** Stores three files, two of them in folders below one that was created. */
async function prepareFolder({ world, team }: Place): Promise<string[]> {
  const ids: string[] = [];
  for (const folder of ["a", "a/b", "c"]) {
    const id = await world.store(team, "note.txt", "note");
    await must(world.ask("PATCH", `/docs/v1/uploads/${id}`, { token: team.token, json: { folder } }));
    ids.push(id);
  }
  await must(world.ask("POST", "/docs/v1/folders", { token: team.token, json: { folder: "a/empty" } }));
  return ids;
}
const foldersOf = ({ teamId }: Team) =>
  DB.prepare("select folder_key as key from folders where team_id = ?").bind(teamId).all();
const changesLeft = ({ teamId }: Team) =>
  DB.prepare("select count(*) as n from folder_changes where team_id = ?").bind(teamId).first("n");

const movingFolder: Scenario<string[], Response> = {
  prepare: prepareFolder,
  act: (_, bindings, place) => ask(place, "PATCH", "/docs/v1/folders", { json: { folder: "a", to: "n/a" } }, bindings),
  async verify(rows, run) {
    expectResponse(run.result, 200, run);
    const paths = run.state.map((id) => rows.find((row) => row.id === id)?.folder).join();
    const { results } = await foldersOf(run.team);
    const found = `${paths} ${results.map(({ key }) => `${key}`.replaceAll("\u0001", "/"))}`;
    expect(["n/a,n/a/b,c n/a/empty", ...(run.fault ? ["a,a/b,c a/empty"] : [])], "all or none").toContain(found);
    expect(await changesLeft(run.team)).toBe(0);
  },
};

/** A deletion whose request died after it was recorded. */
const deletingFolder: Scenario<string[], unknown> = {
  isRecovery: true,
  onlyChanges: true,
  async prepare(place) {
    const ids = await prepareFolder(place);
    const { world, team } = place;
    await DB.prepare(
      `insert into folder_changes (team_id, owner_id, id, folder, initiator, requested_by, created_at, due_at)
       values (?1, '', '0193477be8a01f9c3ad5e7b2', 'a', json_object('kind', 'secret', 'keyId', ?3, 'userId', null), ?3, ?2, ?2)`,
    )
      .bind(team.teamId, world.system.now(), team.keyId)
      .run();
    return ids;
  },
  act: (_, bindings, { world }) => world.recover(bindings),
  async verify(rows, run) {
    expect(rows.map(({ id }) => id)).toEqual(run.state.slice(2));
    expect((await foldersOf(run.team)).results).toEqual([]);
    expect(await changesLeft(run.team)).toBe(0);
  },
};

// biome-ignore lint/suspicious/noExplicitAny: scenarios of every state and result.
const scenarios: [string, Scenario<any, any>][] = [
  ["an upload in parts", { ...uploading(zeros), isRepresentative: true, isLong: true }],
  ["an upload with an upload token", uploadingWithLimits],
  ["an upload with an Idempotency-Key and its retry", { ...uploadingWithKey, isRepresentative: true }],
  ["the rollback of an upload whose commit got no response", { ...rollingBack, isRepresentative: true }],
  ["an upload whose body ends early", rejected(truncated, 400)],
  ["an upload in parts that exceeds the size limit", rejected(tooLarge, 413, smallLimit)],
  ["processing audio that was stored as a video", { ...processing(audioOnly, "completed"), isRepresentative: true }],
  ["processing a file whose bytes are missing", processing(tone, "bytes_missing")],
  ["a delete of a file with a waveform", { ...deleting, isRepresentative: true }],
  ["a delete of a file that moves to the trash", trashing],
  ["the return of a file from the trash, and its retry", { ...restoring, isRepresentative: true }],
  ["the erasure of a file in the trash", erasing],
  ["a batch that moves files to the trash", trashingMany],
  ["a batch that restores files from the trash", restoringMany],
  ["the recovery job with retention, a hold and the trash", expiring],
  ["a delete that fails while the upload is still receiving", deletingWhileReceiving("delete")],
  ["an upload that fails and is deleted while it is still receiving", deletingWhileReceiving("upload")],
  ["the replacement of a waveform", settingWaveform],
  ["measuring a waveform", { ...measuring, isRepresentative: true }],
  ["the recovery job with a waveform to measure", resendingMeasurements],
  ["the replacement of a transcript", { ...settingTranscript, isRepresentative: true }],
  ["the deletion of a transcript", deletingTranscript],
  ["reprocessing", reprocessing],
  ["a batch that tags files, and its retry", tagging],
  ["a batch that deletes files", deletingMany],
  ["the move of a folder", movingFolder],
  ["the recovery job with a folder to delete", deletingFolder],
  ["the alarm of a webhook", { ...sending, isRepresentative: true }],
  ["the recovery job", { ...recovering, isRepresentative: true }],
  ["the recovery job of two databases", recoveringTwo],
  ["the recovery job with a webhook whose wake was lost", wakingWebhooks],
  ["the deletion of a team", deletingTeam],
];

type Request = [method: string, path: string, options?: CallOptions];
/** Requests that change users, keys, and webhooks, each with what it needs. */
const changes: [string, (place: Place) => Promise<Request>, { isRepresentative: true }?][] = [
  ["the creation of a key", async () => ["POST", KEYS, { json: { name: "key" } }]],
  [
    "the revocation of a key with a session",
    async (place) => {
      const { _id, key } = await post(place, KEYS, { name: "key" });
      await place.world.call("POST", SESSIONS, { token: key });
      return ["DELETE", `${KEYS}/${_id}`];
    },
  ],
  [
    "the rotation of a key",
    async ({ team }) => ["POST", `${KEYS}/${team.keyId}/rotate`, { json: {} }],
    { isRepresentative: true },
  ],
  ["the creation of a session", async () => ["POST", SESSIONS]],
  [
    "the end of a session",
    async ({ team }) => ["DELETE", `${SESSIONS}/${(await team.call("POST", SESSIONS)).body.data.id}`],
  ],
  ["the creation of a user", async () => ["POST", USERS, { json: { email: newEmail(), password: PASSWORD } }]],
  [
    "the update of a user",
    async (place) => {
      const json = { firstName: "Ada", password: `${PASSWORD}!` };
      return ["PATCH", `${USERS}/${(await newUser(place))._id}`, { json }];
    },
  ],
  [
    "a login",
    async (place) => {
      const { teamId } = place.team;
      const { email } = await newUser(place);
      return ["POST", "/auth/v1/login", { json: { teamId, email, password: PASSWORD } }];
    },
  ],
  [
    "the deletion of a user with a key that their session created",
    async (place) => {
      const { _id } = await newUser(place);
      const token = await newSession(place.team, _id);
      await post({ ...place, team: { ...place.team, token } }, KEYS, { name: "key" });
      return ["DELETE", `${USERS}/${_id}`];
    },
  ],
  [
    "an invitation",
    async (place) => ["POST", `${USERS}/${(await newUser(place))._id}/invitations`, { json: { email: true } }],
  ],
  [
    "the acceptance of an invitation by a user with a session",
    async (place) => {
      const { _id } = await newUser(place);
      await newSession(place.team, _id);
      const { token } = await post(place, `${USERS}/${_id}/invitations`, {});
      return ["POST", "/auth/v1/invitations/accept", { json: { token, password: PASSWORD } }];
    },
  ],
  ["a hold", async (place) => ["PUT", `/docs/v1/uploads/${await withWaveform(place)}/hold`, { json: { reason: "r" } }]],
  [
    "the release of a hold",
    async (place) => {
      const path = `/docs/v1/uploads/${await withWaveform(place)}/hold`;
      await place.team.call("PUT", path, { json: { reason: "r" } });
      return ["DELETE", path];
    },
  ],
  ["the retention of a team", async () => ["PUT", "/docs/v1/retention", { json: { days: 30 } }]],
  ["the creation of a webhook", async () => ["POST", WEBHOOKS, { json: { url: "https://hooks.example.com/in" } }]],
  ["the update of a webhook", async (place) => ["PATCH", await newWebhook(place), { json: { description: "new" } }]],
  ["the rotation of a secret", async (place) => ["POST", `${await newWebhook(place)}/secret`, { json: {} }]],
  ["the deletion of a webhook", async (place) => ["DELETE", await newWebhook(place)]],
];

/** Changes are recorded and delivered to a webhook. Passwords are not hashed. */
function changing(
  prepare: (place: Place) => Promise<Request>,
  { isRepresentative }: { isRepresentative?: true } = {},
): Scenario<Request, Response> {
  const withoutPasswords: Change = (deps) => {
    const { secrets, ...changed } = withoutHashing(deps);
    return { ...changed, secrets: { ...secrets, verifyPassword: async () => true } };
  };
  return {
    ...(isRepresentative && { isRepresentative }),
    async prepare(place) {
      await newWebhook(place);
      return prepare(place);
    },
    act: ([method, path, options], bindings, { world, team }) =>
      world.ask(method, path, { token: team.token, ...options }, { bindings, change: withoutPasswords }),
  };
}

describe("A fault at any call", () => {
  const report = (name: string, { calls, ...counts }: Awaited<ReturnType<typeof runEveryFault>>) =>
    `crash points of ${name}: ${JSON.stringify(counts)} (${calls.join(", ")})`;

  test.for(included(scenarios))(
    "loses no file and leaves no orphan in %s",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) => void (await annotate(report(name, await runEveryFault(scenario)))),
  );

  test
    .runIf(isExhaustive)
    .for(scenarios.filter(([, { isRepresentative, isRecovery }]) => isRepresentative && !isRecovery))(
    "is like each fault that stands for it in %s",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) =>
      void (await annotate(`equal faults of ${name}: ${JSON.stringify(await expectSameAsOthers(scenario))}`)),
  );

  test.for(included(changes.map(([name, ...change]) => [name, changing(...change)])))(
    "keeps exactly one event for each change in %s",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) => void (await annotate(report(name, await runEveryFault(scenario)))),
  );
});

describe("A form upload whose Worker died", () => {
  // The slowest allowed client: the idle time and 8 KiB/s. Everything else may take 15 minutes.
  const slowestOf = (bytes: number) => 30_000 + (bytes / 8192) * 1000;

  test.each([1000, 90_000_000])(
    "holds %i bytes of quota until the slowest client would have finished",
    async (bytes) => {
      const world = new World();
      const team = await world.newTeam();
      const bindings = new ProxiedBindings({ binding: "R2", call: 1, moment: "before", failure: "death" });
      const form = await encodeForm("a.txt", "text");
      expect(await world.upload(team, form, { "Content-Length": `${bytes}` }, { bindings })).toBe("dead");
      world.aheadMilliseconds += slowestOf(bytes);
      await world.recover();
      expect(await rowsOf(team.teamId)).toMatchObject([{ status: "receiving", reserved_bytes: bytes }]);
      world.aheadMilliseconds += 15 * MINUTE + 1;
      await world.recover();
      expect(await expectSettled(team.teamId)).toEqual([]);
    },
  );
});

describe("A form upload whose put has failed", () => {
  const begin = async (world: World, team: Team) => {
    const { bindings, store } = failureOfLatePut();
    expect(status(await world.upload(team, await encodeForm("a.txt", "text"), {}, { bindings }))).toBe(503);
    const recoverAfter = async (minutes: number) => {
      world.aheadMilliseconds += minutes * MINUTE;
      await world.recoverFully();
    };
    const storeLate = async () => {
      await store();
      expect((await env.BUCKET.list({ prefix: `${team.teamId}/` })).objects).toHaveLength(1);
    };
    return { recoverAfter, storeLate };
  };

  test("leaves no object that R2 stores minutes later", async ({ world, team }) => {
    const { recoverAfter, storeLate } = await begin(world, team);
    await recoverAfter(14);
    await storeLate();
    await recoverAfter(2);
    expect(await expectSettled(team.teamId, { world })).toEqual([]);
  });

  test("leaves none if its team is deleted meanwhile, either", async ({ world, team }) => {
    const { recoverAfter, storeLate } = await begin(world, team);
    await world.ask("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR });
    await recoverAfter(14);
    await storeLate();
    await recoverAfter(2);
    await recoverAfter(1);
    await expectErased(team.teamId, world);
  });
});

test("A form upload that is deleted while it arrives keeps its row until it ends", async ({ world, team }) => {
  const { form, sendRest } = await slowForm();
  const bindings = new ProxiedBindings();
  const upload = world.upload(team, form, {}, { bindings });
  const id = await rowAppears(team, bindings);
  expect((await team.call("DELETE", `/docs/v1/uploads/${id}`)).status).toBe(200);
  world.aheadMilliseconds += 2 * MINUTE;
  await world.recover();
  expect(await rowsOf(team.teamId)).toMatchObject([{ id, status: "deleting" }]);
  sendRest();
  expect(status(await upload)).toBe(404);
  expect(await expectSettled(team.teamId)).toEqual([]);
});
