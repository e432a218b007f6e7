import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { sample } from "../audio/samples.ts";
import { type Fault, ProxiedBindings } from "../support/bindings.ts";
import type { Answer, Team } from "../support/client.ts";
import { type Change, withoutHashing } from "../support/deps.ts";
import { countFaults, type FaultCounts, minRuns, selectFaults } from "../support/faults.ts";
import { snapshot } from "../support/harness.ts";
import { Uploader } from "../support/uploader.ts";
import {
  AFTER_PERMANENT_FAILURE,
  deleteTeam,
  encodeForm,
  expectErased,
  expectSettled,
  expectSound,
  type Form,
  must,
  type Outcome,
  type Row,
  rowsOf,
  sha256,
  UNAVAILABLE,
  World,
} from "../support/world.ts";

/*
 * Crash points: each scenario first runs without a fault, which counts its calls to D1, R2, and the queue. Then it runs
 * once per fault (support/faults.ts), each time in a separate team: a call fails or the Worker dies, before or after the
 * call takes effect. Then the bindings work again, a day passes, the recovery job runs, and the invariants must hold.
 */

interface Scenario<S, R> {
  prepare(world: World, team: Team): Promise<S>;
  act(world: World, team: Team, state: S, bindings: ProxiedBindings): Promise<R>;
  /** Checks the end state in addition to the invariants. */
  verify(rows: Row[], run: Run<S, R>): void | Promise<void>;
  /** A fault in every run. Only the calls after it get another fault. */
  firstFault?(calls: string[]): Fault;
  /** The scenario changes rows of every team, so each run is settled before the next one starts. */
  changesEveryTeam?: true;
  /** The test itself deletes bytes. */
  bytesLost?: boolean;
}

interface Run<S, R> {
  team: Team;
  state: S;
  result: R;
  fault: Fault | undefined;
  /** The name of the call that fails. */
  call: string;
  /** The ids of the files that were listed right after the run. */
  listed: string[];
  /** The number of rows right after the run, including hidden ones. */
  rowCount: number;
}

const isListed = ({ status }: Row) => status !== "receiving" && status !== "deleting";

async function runOnce<S, R>(
  scenario: Scenario<S, R>,
  world: World,
  faults: Fault[],
): Promise<[Run<S, R>, ProxiedBindings]> {
  const team = await world.newTeam();
  const state = await scenario.prepare(world, team);
  const bindings = new ProxiedBindings(...faults);
  const result = await scenario.act(world, team, state, bindings);
  const rows = await expectSound(team.teamId, scenario);
  const listed = rows.filter(isListed).map(({ id }) => id);
  const fault = faults.at(-1);
  const call = fault ? (bindings.calls[fault.call - 1] ?? "") : "";
  return [{ team, state, result, fault, call, listed, rowCount: rows.length }, bindings];
}

async function settle<S, R>(scenario: Scenario<S, R>, world: World, runs: Run<S, R>[]): Promise<void> {
  await world.recoverAll(runs.map(({ team }) => team.teamId));
  for (const run of runs) {
    const { fault, call, team, listed } = run;
    const where = fault ? `${fault.failure} ${fault.moment} call ${fault.call}, ${call}` : "without a fault";
    try {
      const rows = await expectSettled(team.teamId, scenario);
      const reappeared = rows.filter(({ id }) => !listed.includes(id));
      expect(reappeared, "a hidden file stays hidden").toEqual([]);
      const { body } = await team.call("GET", "/docs/v1/uploads?limit=100");
      expect(body.data.map(({ _id }: { _id: string }) => _id).sort()).toEqual(rows.map(({ id }) => id));
      await scenario.verify(rows, run);
    } catch (error) {
      throw new Error(`${where}: ${(error as Error).message}`, { cause: error });
    } finally {
      await deleteTeam(team.teamId);
    }
  }
}

/** @returns the number of calls, of those that change something, and of runs with a fault */
async function runEveryFault<S, R>(scenario: Scenario<S, R>): Promise<FaultCounts & { calls: string[] }> {
  const faultless = new World();
  const [first, faultlessBindings] = await runOnce(scenario, faultless, []);
  let bindings = faultlessBindings;
  const firstFaults: Fault[] = scenario.firstFault ? [scenario.firstFault(bindings.calls)] : [];
  const runs = [first];
  if (firstFaults.length > 0) {
    const [run, faulty] = await runOnce(scenario, faultless, firstFaults);
    runs.push(run);
    bindings = faulty;
  }
  await settle(scenario, faultless, runs);

  let world = new World();
  let unsettled: Run<S, R>[] = [];
  const after = firstFaults[0]?.call ?? 0;
  const faults = selectFaults(bindings, after);
  for (const fault of faults) {
    const [run] = await runOnce(scenario, world, [...firstFaults, fault]);
    expect(run.call, "the scenario makes the same calls again").toBe(bindings.calls[fault.call - 1]);
    unsettled.push(run);
    if (scenario.changesEveryTeam) {
      await settle(scenario, world, unsettled);
      unsettled = [];
      world = new World();
    }
  }
  await settle(scenario, world, unsettled);
  return { ...countFaults(bindings, after, faults), calls: bindings.calls };
}

type RequestOutcome = Outcome<Answer>;
/** The statuses that a fault allows in addition to the status without a fault. */
function failureStatuses(fault: Fault | undefined): (number | "dead")[] {
  if (!fault) return [];
  if (fault.failure === "death") return ["dead"];
  return [fault.failure === "permanent" ? AFTER_PERMANENT_FAILURE[0] : UNAVAILABLE[0]];
}
const status = (outcome: RequestOutcome) => (outcome === "dead" ? "dead" : outcome.status);

/** After 200 the file exists. Otherwise it does not, unless its Worker died or `canExist`. It is never incomplete. */
function verifyUpload(rows: Row[], digest: string, outcome: RequestOutcome, canExist: boolean): void {
  if (status(outcome) === 200) expect(rows).toHaveLength(1);
  else if (status(outcome) === "dead" || canExist) expect(rows.length).toBeLessThanOrEqual(1);
  else expect(rows, `response ${status(outcome)}`).toEqual([]);
  for (const row of rows) expect([row.sha256, row.status]).toEqual([digest, "completed"]);
}

/** The commit took effect, its response was lost, and the rollback could not reach D1. */
const isLostCommit = ({ call, fault }: { call: string; fault: Fault | undefined }) =>
  call === "D1 batch" && fault?.moment === "after" && fault.failure === "outage";

const tone = sample("tone.m4a").bytes;
/** Processing reads all of it. */
const headerless = sample("tone-vbr-headerless.mp3").bytes;
const zeros = new Uint8Array(8 * 1024 * 1024 + 1000);

interface Prepared {
  form: Form;
  digest: string;
}

function uploading(
  bytes: Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
): Scenario<Prepared, RequestOutcome> {
  const prepared = Promise.all([encodeForm("tone.m4a", bytes), sha256(bytes)]).then(([form, digest]) => ({
    form,
    digest,
  }));
  return {
    prepare: () => prepared,
    act: (world, team, { form }, bindings) => world.upload(team, form, headers, { bindings }),
    verify: (rows, run) => verifyUpload(rows, run.state.digest, run.result, isLostCommit(run)),
  };
}

/** Whatever dies, the key counts the files that it stored. */
const uploadingWithLimits: Scenario<Prepared & { page: Team }, RequestOutcome> = {
  async prepare(world, team) {
    const json = { name: "page", isPublic: true, limits: { maxFiles: 2 } };
    const { body } = await must(world.ask("POST", "/auth/v1/apikeys", { token: team.token, json }));
    const page = { ...team, token: body.data.key, keyId: body.data._id };
    return { page, form: await encodeForm("tone.m4a", tone), digest: await sha256(tone) };
  },
  act: (world, _, { page, form }, bindings) => world.upload(page, form, {}, { bindings }),
  async verify(rows, run) {
    verifyUpload(rows, run.state.digest, run.result, isLostCommit(run));
    const key = env.DB.prepare("select upload_count as files from api_keys where id = ?").bind(run.state.page.keyId);
    expect(await key.first()).toEqual({ files: rows.length });
  },
};

/** The response is this rejection or reports the fault, and no file exists. */
function rejected(prepare: () => Promise<Form>, answer: number, change?: Change): Scenario<Form, RequestOutcome> {
  return {
    prepare,
    act: (world, team, form, bindings) => world.upload(team, form, {}, { bindings, change }),
    verify: (rows, { fault, result, rowCount }) => {
      expect([answer, ...failureStatuses(fault)]).toContain(status(result));
      // If a store failed, one of its writes may still be in flight, so the row stays until the recovery job.
      if (!fault || (fault.failure === "transient" && status(result) === answer)) {
        expect(rowCount, "rows after the response").toBe(0);
      }
      expect(rows).toEqual([]);
    },
  };
}

function processing(bytes: Uint8Array<ArrayBuffer> | string, end: string): Scenario<string, Outcome<number | null>> {
  return {
    bytesLost: end === "bytes_missing",
    async prepare(world, team) {
      const id = await world.store(team, "file", bytes);
      world.messages = world.messages.filter((message) => message !== id);
      if (end === "bytes_missing") await env.BUCKET.delete(`${team.teamId}/${id}-file`);
      return id;
    },
    async act(world, _, id, bindings) {
      const again = await world.deliver(id, bindings);
      // The message of a dead Worker is lost. The recovery job must find the file.
      if (typeof again === "number") world.messages.push(id);
      return again;
    },
    verify([row, ...others]) {
      expect(others).toEqual([]);
      expect(row?.failure_code ?? row?.status).toBe(end);
      if (end === "completed") expect(row?.audio !== null).toBe(typeof bytes !== "string");
    },
  };
}

const expectDeleted = (rows: Row[], outcome: RequestOutcome, fault: Fault | undefined) => {
  if (status(outcome) === 200) expect(rows).toEqual([]);
  else expect(failureStatuses(fault)).toContain(status(outcome));
};

const deleting: Scenario<string, RequestOutcome> = {
  async prepare(world, team) {
    const id = await world.store(team, "note.txt", "note");
    await world.drain();
    return id;
  },
  act: (world, team, id, bindings) =>
    world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }, { bindings }),
  verify: (rows, { result, fault }) => expectDeleted(rows, result, fault),
};

const waveformOf = (id: string) => `/docs/v1/uploads/${id}/waveform`;
const peaks = (peak: number) => ({ json: { channels: [Array(16).fill(peak)] } });
async function withWaveform(world: World, team: Team): Promise<string> {
  const id = await world.store(team, "tone.m4a", tone);
  expect((await team.call("PUT", waveformOf(id), peaks(1))).status).toBe(200);
  await world.drain();
  return id;
}

/** After 200 the new waveform is returned. Otherwise the old or the new one is. */
const settingWaveform: Scenario<string, { outcome: RequestOutcome; found: number }> = {
  prepare: withWaveform,
  async act(world, team, id, bindings) {
    const outcome = await world.ask("PUT", waveformOf(id), { token: team.token, ...peaks(-1) }, { bindings });
    const { status: read, body } = await team.call("GET", waveformOf(id));
    expect(read).toBe(200);
    return { outcome, found: body.data.channels[0][0] };
  },
  verify(rows, { result: { outcome, found }, fault }) {
    expect(rows).toHaveLength(1);
    expect([200, ...failureStatuses(fault)]).toContain(status(outcome));
    expect(status(outcome) === 200 ? [-1] : [1, -1]).toContain(found);
  },
};

const deletingWithWaveform: Scenario<string, { outcome: RequestOutcome; found: number }> = {
  prepare: withWaveform,
  async act(world, team, id, bindings) {
    const outcome = await deleting.act(world, team, id, bindings);
    return { outcome, found: (await team.call("GET", waveformOf(id))).status };
  },
  verify(rows, { result: { outcome, found }, fault, listed }) {
    expectDeleted(rows, outcome, fault);
    expect(found, "the waveform exists while the file is listed").toBe(listed.length === 1 ? 200 : 404);
  },
};

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
    const row = await env.DB.prepare("select id from files where team_id = ?")
      .bind(team.teamId)
      .first<{ id: string }>();
    if (row || isBroken) return row?.id;
    await realSystem.sleep(1);
  }
}

function deletingWhileReceiving(
  whose: "upload" | "delete",
): Scenario<null, { uploaded: RequestOutcome; deleted: RequestOutcome }> {
  return {
    prepare: async () => null,
    async act(world, team, _, bindings) {
      const { form, sendRest } = await slowForm();
      const uploadBindings = whose === "upload" ? bindings : new ProxiedBindings();
      const upload = world.upload(team, form, {}, { bindings: uploadBindings });
      const id = await rowAppears(team, uploadBindings);
      const deleted = await world.ask(
        "DELETE",
        `/docs/v1/uploads/${id ?? "none"}`,
        { token: team.token },
        { bindings: whose === "delete" ? bindings : undefined },
      );
      sendRest();
      return { uploaded: await upload, deleted };
    },
    verify(rows, { result: { uploaded, deleted }, fault }) {
      if (!fault) expect([status(uploaded), status(deleted)]).toEqual([404, 200]);
      if (status(deleted) === 200) {
        expect(rows).toEqual([]);
        expect(status(uploaded)).not.toBe(200);
      }
      if (status(uploaded) === 200) expect(rows).toHaveLength(1);
      else expect(rows).toEqual([]);
    },
  };
}

const reprocessing: Scenario<string, RequestOutcome> = {
  async prepare(world, team) {
    const id = await world.store(team, "tone.m4a", tone);
    await world.drain();
    return id;
  },
  act: (world, team, id, bindings) =>
    world.ask("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token }, { bindings }),
  verify(rows, { result, fault }) {
    expect(rows.map((row) => [row.status, row.audio !== null])).toEqual([["completed", true]]);
    expect([200, ...failureStatuses(fault)]).toContain(status(result));
  },
};

/** Three files with tags. */
async function taggedFiles(world: World, team: Team): Promise<string[]> {
  const ids: string[] = [];
  for (const tags of [["a"], ["a", "b"], []]) {
    const id = await world.store(team, "note.txt", "note");
    expect((await team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { folder: "", tags } })).status).toBe(200);
    ids.push(id);
  }
  await world.drain();
  return ids;
}
const batchOf = (world: World, team: Team, ids: string[], action: object, bindings?: ProxiedBindings) =>
  world.ask("POST", "/docs/v1/uploads/batch", { token: team.token, json: { ids, ...action } }, { bindings });
const tagRows = async ({ teamId }: Team) =>
  (await env.DB.prepare("select tag, file_id as id from file_tags where team_id = ?").bind(teamId).all()).results;

/** The client repeats the batch until it succeeds. */
const tagging: Scenario<string[], { rows: object[]; first: RequestOutcome; events: unknown }> = {
  prepare: taggedFiles,
  async act(world, team, ids, bindings) {
    const action = { action: "tag", tags: ["b"] };
    const first = await batchOf(world, team, ids, action, bindings);
    const again = await must(batchOf(world, team, ids, action));
    expect(again.body.data).toEqual(ids.map((_id) => ({ _id, ok: true })));
    const events = await env.DB.prepare("select count(*) n from events where team_id = ? and type = 'file.updated'")
      .bind(team.teamId)
      .first("n");
    return { rows: await tagRows(team), first, events };
  },
  verify(rows, { state, result, fault }) {
    expect([200, ...failureStatuses(fault)]).toContain(status(result.first));
    const tags = rows.map((row) => (row as Row & { tags: string }).tags);
    expect(tags.sort()).toEqual(['["a","b"]', '["a","b"]', '["b"]']);
    expect(result.rows).toHaveLength(5);
    expect(result.rows).toContainEqual({ tag: "b", id: state[2] });
    // Two files got tags when they were prepared, and two by the batch.
    expect(result.events, "one event for each change").toBe(4);
  },
};

const deletingMany: Scenario<string[], { first: RequestOutcome; rows: object[] }> = {
  prepare: taggedFiles,
  async act(world, team, ids, bindings) {
    const first = await batchOf(world, team, ids, { action: "delete" }, bindings);
    return { first, rows: await tagRows(team) };
  },
  verify(rows, { result: { first, rows: tags }, fault, listed }) {
    expectDeleted(rows, first, fault);
    expect([0, 3], "all or none").toContain(listed.length);
    expect(tags, "a hidden file has no tags").toHaveLength(listed.length);
  },
};

/** The client always retries with the same key. */
const withKey: Scenario<Prepared, { first: RequestOutcome; second: Answer }> = {
  prepare: uploading(tone).prepare,
  async act(world, team, { form }, bindings) {
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

const DAY = 24 * 60 * 60 * 1000;

const recovering: Scenario<Record<string, string>, Outcome<Record<string, number>>> = {
  changesEveryTeam: true,
  async prepare(world, team) {
    const ids: Record<string, string> = {};
    for (const state of ["receiving", "pending", "processing", "deleting"]) {
      ids[state] = await world.storeInterrupted(team, state, -DAY);
    }
    world.messages = [];
    await env.DB.batch([
      env.DB.prepare(
        `insert into api_keys (id, team_id, uuid, name, kind, token_hash, user_id, lifetime, created_at, expires_at)
         select lower(hex(randomblob(12))), team_id, uuid, 'session', 'session', lower(hex(randomblob(32))), 'user', 1,
           created_at, 1 from api_keys where team_id = ?`,
      ).bind(team.teamId),
      ...["created", "deleted"].map((verb, i) =>
        env.DB.prepare("insert into events values (?, ?, ?, 1, '{}', 'gone', 0, '{}', 1)").bind(
          ...[team.teamId, i + 1, `user.${verb}`],
        ),
      ),
    ]);
    world.secrets = loadSecrets(`${btoa("fedcba9876543210fedcba9876543210")},${env.MASTER_KEY}`, realSystem);
    return ids;
  },
  act: (world, _, __, bindings) => world.recover(bindings),
  verify(rows, { state, result, fault }) {
    expect(rows.map(({ id, status: end }) => [id, end]).sort()).toEqual(
      [
        [state.pending, "completed"],
        [state.processing, "completed"],
      ].sort(),
    );
    const reencrypted = expect.any(Number);
    if (!fault) expect(result).toMatchObject({ sent: 2, filesDeleted: 2, sessionsRemoved: 1, purged: 2, reencrypted });
  },
};

const truncatedForm = async (): Promise<Form> => {
  const { body, contentType } = await encodeForm("note.txt", "note ".repeat(100));
  return { body: body.slice(0, -20), contentType };
};
const nineMebibytes = encodeForm("zeros.bin", new Uint8Array(9 * 1024 * 1024));
const tooLarge = async (): Promise<Form> => {
  const { body, contentType } = await nineMebibytes;
  // A stream has no Content-Length, so the Worker counts the bytes. The limit is reached after the first part.
  let at = 0;
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(body.slice(at, at + 256 * 1024));
      at += 256 * 1024;
      if (at >= body.length) controller.close();
    },
  });
  return { body: stream, contentType };
};
const smallLimit: Change = (deps) => ({ ...deps, settings: { ...deps.settings, maxUploadBytes: 8.5 * 1024 * 1024 } });

const lostCommit: Scenario<Prepared, RequestOutcome> = {
  ...uploading(tone),
  firstFault: (calls) => ({ call: calls.lastIndexOf("D1 batch") + 1, moment: "after", failure: "permanent" }),
  verify(rows, { result, state, fault }) {
    if (status(result) === 200) expect(fault).toBeUndefined();
    // If the rollback ends before it hides the row, the complete file stays.
    verifyUpload(rows, state.digest, result, fault !== undefined);
  },
};

// biome-ignore lint/suspicious/noExplicitAny: scenarios of every state and result.
const scenarios: [string, Scenario<any, any>][] = [
  ["a small upload", uploading(tone)],
  ["an upload in parts", uploading(zeros)],
  ["an upload with a limited public key", uploadingWithLimits],
  ["an upload with an Idempotency-Key and its retry", withKey],
  ["the rollback of an upload whose commit got no response", lostCommit],
  ["an upload whose body ends early", rejected(truncatedForm, 400)],
  ["an upload in parts that exceeds the size limit", rejected(tooLarge, 413, smallLimit)],
  ["processing audio", processing(tone, "completed")],
  ["processing audio that must be read completely", processing(headerless, "completed")],
  ["processing a file that is not audio", processing("text", "completed")],
  ["processing a file whose bytes are missing", processing("text", "bytes_missing")],
  ["a delete", deleting],
  ["a delete that fails while the upload is still receiving", deletingWhileReceiving("delete")],
  ["an upload that fails and is deleted while it is still receiving", deletingWhileReceiving("upload")],
  ["the replacement of a waveform", settingWaveform],
  ["a delete of a file with a waveform", deletingWithWaveform],
  ["reprocessing", reprocessing],
  ["a batch that tags files, and its retry", tagging],
  ["a batch that deletes files", deletingMany],
  ["the recovery job", recovering],
];

describe("A fault at any call", () => {
  test.for(scenarios)(
    "loses no file and leaves no orphan in %s",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) => {
      const { calls, ...counts } = await runEveryFault(scenario);
      await annotate(`crash points of ${name}: ${JSON.stringify(counts)} (${calls.join(", ")})`);
      expect(counts.runs).toBeGreaterThan(minRuns(counts));
    },
  );
});

describe("A fault at any call of a team's deletion", () => {
  const operator = { token: env.OPERATOR_TOKEN };

  /** A team with records of each kind, in the middle of its work. */
  async function busyTeam(world: World): Promise<Team> {
    const team = await world.newTeam();
    const post = async (path: string, json: object) => (await team.call("POST", path, { json })).body.data;
    const url = "https://hooks.example.com/in";
    await post("/auth/v1/webhooks", { url });
    const { _id: webhookId } = await post("/auth/v1/webhooks", { url });
    const user = { token: team.token, json: { email: "ada@example.com", password: "correct horse battery" } };
    await must(world.ask("POST", "/auth/v1/users", user, { change: withoutHashing }));
    const id = await withWaveform(world, team);
    await post(`/docs/v1/uploads/${id}/links`, {});
    await team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { tags: ["radio"] } });
    for (const state of ["receiving", "pending", "processing", "deleting"]) {
      await world.storeInterrupted(team, state, DAY);
    }
    // Unfinished with a part and a chunk, finished, and interrupted while it wrote.
    const [open, finished, interrupted] = [zeros, tone, tone].map((bytes) => new Uploader(world, team, bytes));
    await must(open!.create(undefined, 5_500_000));
    await must(finished!.create(undefined, tone.length));
    await must(interrupted!.create(undefined, 1));
    await interrupted!.send(1, 100, new ProxiedBindings({ call: 3, moment: "after", failure: "death" }));
    await team.call("DELETE", `/auth/v1/webhooks/${webhookId}`);
    return team;
  }

  /** Deletes a team and runs the recovery job once with the fault. Then everything works again. */
  async function deleteWith(bindings: ProxiedBindings): Promise<void> {
    const world = new World();
    const team = await busyTeam(world);
    const path = `/auth/v1/teams/${team.teamId}`;
    await world.ask("DELETE", path, operator, { bindings });
    await world.recover(bindings);
    expect((await world.call("DELETE", path, operator)).body.data.status).toBe("deleting");
    expect((await team.call("GET", "/docs/v1/usage")).code).toBe("token_invalid");
    await world.recoverAll([team.teamId]);
    await expectErased(team.teamId, world);
    expect((await world.call("GET", path, operator)).code).toBe("not_found");
  }

  test("leaves no row and no object of the team, and changes no other team", { timeout: 600_000 }, async ({
    annotate,
  }) => {
    const bystanders = new World();
    const other = await bystanders.newTeam();
    const id = await withWaveform(bystanders, other);
    const before = await snapshot(other.teamId);
    const faultless = new ProxiedBindings();
    await deleteWith(faultless);
    // Faults of calls that change nothing are covered by the scenario of the recovery job.
    const faults = selectFaults(faultless).filter(({ call }) => !faultless.idle.has(call));
    for (const fault of faults) await deleteWith(new ProxiedBindings(fault));
    await annotate(`crash points: ${faults.length} of ${faultless.calls.join(", ")}`);
    expect(faults.length).toBeGreaterThan(20);
    expect(await snapshot(other.teamId)).toEqual(before);
    expect((await other.call("GET", waveformOf(id))).status).toBe(200);
  });
});

describe("A form upload whose Worker died", () => {
  // The slowest allowed client: the idle time and 8 KiB/s. Everything else may take 15 minutes.
  const slowestOf = (bytes: number) => 30_000 + (bytes / 8192) * 1000;
  const QUARTER = 15 * 60_000;

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
      world.aheadMilliseconds += QUARTER + 1;
      await world.recover();
      expect(await expectSettled(team.teamId)).toEqual([]);
    },
  );
});
