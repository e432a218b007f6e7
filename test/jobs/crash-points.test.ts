import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { sample } from "../audio/samples.ts";
import { FAILURES, type Fault, ProxiedBindings } from "../support/bindings.ts";
import type { Answer, Team } from "../support/client.ts";
import type { Change } from "../support/deps.ts";
import {
  AFTER_PERMANENT_FAILURE,
  type Ended,
  encodeForm,
  expectSettled,
  expectSound,
  type Form,
  forget,
  must,
  type Row,
  rowsOf,
  sha256,
  UNAVAILABLE,
  World,
} from "../support/world.ts";

/*
 * Every crash point: each scenario runs once in peace, which counts the calls that it makes to D1, R2 and the Queue.
 * Then it runs again for each of them, in a team of its own, with that call failing or the Worker dying over it, before
 * and, where that leaves another state, after the call took effect. Then all is well again, a day goes by, recovery runs,
 * and nothing may be amiss.
 */

interface Scenario<S, R> {
  prepare(world: World, team: Team): Promise<S>;
  act(world: World, team: Team, state: S, bindings: ProxiedBindings): Promise<R>;
  /** What must hold at the end beside the invariants. */
  judge(rows: Row[], run: Run<S, R>): void;
  /** A fault that is always there; the calls from it on are the ones to enumerate. */
  given?(calls: string[]): Fault;
  /** It acts on rows of every team, so each run is brought to its end before the next. */
  alone?: true;
  /** The test itself takes bytes away. */
  bytesLost?: boolean;
}

interface Run<S, R> {
  team: Team;
  state: S;
  result: R;
  fault: Fault | undefined;
  /** The call that the fault is at. */
  call: string;
  /** The ids of the files that were listed right after. */
  listed: string[];
  /** How many rows there were right after, hidden ones included. */
  rowsLeft: number;
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
  return [{ team, state, result, fault, call, listed, rowsLeft: rows.length }, bindings];
}

async function settle<S, R>(scenario: Scenario<S, R>, world: World, runs: Run<S, R>[]): Promise<void> {
  await world.heal(runs.map(({ team }) => team.teamId));
  for (const run of runs) {
    const { fault, call, team, listed } = run;
    const where = fault ? `${fault.failure} ${fault.moment} call ${fault.call}, ${call}` : "in peace";
    try {
      const rows = await expectSettled(team.teamId, scenario);
      const reappeared = rows.filter(({ id }) => !listed.includes(id));
      expect(reappeared, "what was hidden stays hidden").toEqual([]);
      const { body } = await team.call("GET", "/docs/v1/uploads?limit=100");
      expect(body.data.map(({ _id }: { _id: string }) => _id).sort()).toEqual(rows.map(({ id }) => id));
      scenario.judge(rows, run);
    } catch (error) {
      throw new Error(`${where}: ${(error as Error).message}`, { cause: error });
    } finally {
      await forget(team.teamId);
    }
  }
}

/** @returns how many calls there were, how many of them change something, and how many ways to fail were gone through */
async function everyPoint<S, R>(
  scenario: Scenario<S, R>,
): Promise<{ points: number; changes: number; runs: number; calls: string[] }> {
  const peace = new World();
  const [first, peaceful] = await runOnce(scenario, peace, []);
  let bindings = peaceful;
  const given: Fault[] = scenario.given ? [scenario.given(peaceful.calls)] : [];
  const runs = [first];
  if (given.length > 0) {
    const [run, faulty] = await runOnce(scenario, peace, given);
    runs.push(run);
    bindings = faulty;
  }
  await settle(scenario, peace, runs);

  let world = new World();
  let open: Run<S, R>[] = [];
  let done = 0;
  const from = given[0]?.call ?? 0;
  for (const fault of bindings.everyFault(from + 1)) {
    const [run] = await runOnce(scenario, world, [...given, fault]);
    expect(run.call, "the scenario repeats itself").toBe(bindings.calls[fault.call - 1]);
    open.push(run);
    done++;
    if (scenario.alone) {
      await settle(scenario, world, open);
      open = [];
      world = new World();
    }
  }
  await settle(scenario, world, open);
  const { calls, idle } = bindings;
  const points = calls.length - from;
  return { points, changes: points - [...idle].filter((call) => call > from).length, runs: done, calls };
}

type Told = Ended<Answer>;
/** What a client may be answered beside the answer in peace. */
function failureStatuses(fault: Fault | undefined): (number | "dead")[] {
  if (!fault) return [];
  if (fault.failure === "death") return ["dead"];
  return [fault.failure === "permanent" ? AFTER_PERMANENT_FAILURE[0] : UNAVAILABLE[0]];
}
const status = (told: Told) => (told === "dead" ? "dead" : told.status);

/** Of an upload: promised is promised; otherwise nothing is there, or all of it where the answer was lost with its Worker. */
function judgeUpload(rows: Row[], digest: string, told: Told, mayBeThere: boolean): void {
  if (status(told) === 200) expect(rows).toHaveLength(1);
  else if (status(told) === "dead" || mayBeThere) expect(rows.length).toBeLessThanOrEqual(1);
  else expect(rows, `answered ${status(told)}`).toEqual([]);
  for (const row of rows) expect([row.sha256, row.status]).toEqual([digest, "completed"]);
}

/** The commit took effect, its answer was lost, and the undoing could not reach D1. */
const isLostCommit = ({ call, fault }: { call: string; fault: Fault | undefined }) =>
  call === "D1 batch" && fault?.moment === "after" && fault.failure === "outage";

const tone = sample("tone.m4a").bytes;
/** Read from one end to the other, piece by piece. */
const headerless = sample("tone-vbr-headerless.mp3").bytes;
const zeros = new Uint8Array(8 * 1024 * 1024 + 1000);

interface Prepared {
  form: Form;
  digest: string;
}

function uploading(bytes: Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}): Scenario<Prepared, Told> {
  const prepared = Promise.all([encodeForm("tone.m4a", bytes), sha256(bytes)]).then(([form, digest]) => ({
    form,
    digest,
  }));
  return {
    prepare: () => prepared,
    act: (world, team, { form }, bindings) => world.upload(team, form, headers, { bindings }),
    judge: (rows, run) => judgeUpload(rows, run.state.digest, run.result, isLostCommit(run)),
  };
}

/** The answer is a refusal, or tells of the failure: nothing is ever there. */
function refused(prepare: () => Promise<Form>, answer: number, change?: Change): Scenario<Form, Told> {
  return {
    prepare,
    act: (world, team, form, bindings) => world.upload(team, form, {}, { bindings, change }),
    judge: (rows, { fault, result, rowsLeft }) => {
      expect([answer, ...failureStatuses(fault)]).toContain(status(result));
      // After a store has failed a write may still be under way there, so the row stays until recovery.
      if (!fault || (fault.failure === "transient" && status(result) === answer)) {
        expect(rowsLeft, "cleared away before the answer").toBe(0);
      }
      expect(rows).toEqual([]);
    },
  };
}

function processing(bytes: Uint8Array<ArrayBuffer> | string, end: string): Scenario<string, Ended<number | null>> {
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
      // The message of a Worker that died is lost: it is for recovery to find the file.
      if (typeof again === "number") world.messages.push(id);
      return again;
    },
    judge([row, ...others]) {
      expect(others).toEqual([]);
      expect(row?.failure_code ?? row?.status).toBe(end);
      if (end === "completed") expect(row?.audio !== null).toBe(typeof bytes !== "string");
    },
  };
}

const gone = (rows: Row[], told: Told, fault: Fault | undefined) => {
  if (status(told) === 200) expect(rows).toEqual([]);
  else expect(failureStatuses(fault)).toContain(status(told));
};

const deleting: Scenario<string, Told> = {
  async prepare(world, team) {
    const id = await world.store(team, "note.txt", "note");
    await world.drain();
    return id;
  },
  act: (world, team, id, bindings) =>
    world.ask("DELETE", `/docs/v1/uploads/${id}`, { token: team.token }, { bindings }),
  judge: (rows, { result, fault }) => gone(rows, result, fault),
};

const waveformOf = (id: string) => `/docs/v1/uploads/${id}/waveform`;
const peaks = (peak: number) => ({ json: { channels: [Array(16).fill(peak)] } });
async function withWaveform(world: World, team: Team): Promise<string> {
  const id = await world.store(team, "tone.m4a", tone);
  expect((await team.call("PUT", waveformOf(id), peaks(1))).status).toBe(200);
  await world.drain();
  return id;
}

/** What is read afterwards: the one before or the new one, and the new one where that was promised. */
const settingWaveform: Scenario<string, { told: Told; found: number }> = {
  prepare: withWaveform,
  async act(world, team, id, bindings) {
    const told = await world.ask("PUT", waveformOf(id), { token: team.token, ...peaks(-1) }, { bindings });
    const { status: read, body } = await team.call("GET", waveformOf(id));
    expect(read).toBe(200);
    return { told, found: body.data.channels[0][0] };
  },
  judge(rows, { result: { told, found }, fault }) {
    expect(rows).toHaveLength(1);
    expect([200, ...failureStatuses(fault)]).toContain(status(told));
    expect(status(told) === 200 ? [-1] : [1, -1]).toContain(found);
  },
};

const deletingWithWaveform: Scenario<string, { told: Told; found: number }> = {
  prepare: withWaveform,
  async act(world, team, id, bindings) {
    const told = await deleting.act(world, team, id, bindings);
    return { told, found: (await team.call("GET", waveformOf(id))).status };
  },
  judge(rows, { result: { told, found }, fault, listed }) {
    gone(rows, told, fault);
    expect(found, "shown as long as the file is").toBe(listed.length === 1 ? 200 : 404);
  },
};

/** A form that comes halfway, and goes on when it is told to. */
async function slowForm(): Promise<{ form: Form; goOn: () => void }> {
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
  return { form: { body: stream, contentType }, goOn: () => gate.resolve() };
}

/** An upload that is refused reads its body to the end before it says so; so it is not to be waited for. */
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

function deletingWhileReceiving(whose: "upload" | "delete"): Scenario<null, { uploaded: Told; deleted: Told }> {
  return {
    prepare: async () => null,
    async act(world, team, _, bindings) {
      const { form, goOn } = await slowForm();
      const uploadBindings = whose === "upload" ? bindings : new ProxiedBindings();
      const upload = world.upload(team, form, {}, { bindings: uploadBindings });
      const id = await rowAppears(team, uploadBindings);
      const deleted = await world.ask(
        "DELETE",
        `/docs/v1/uploads/${id ?? "none"}`,
        { token: team.token },
        { bindings: whose === "delete" ? bindings : undefined },
      );
      goOn();
      return { uploaded: await upload, deleted };
    },
    judge(rows, { result: { uploaded, deleted }, fault }) {
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

const reprocessing: Scenario<string, Told> = {
  async prepare(world, team) {
    const id = await world.store(team, "tone.m4a", tone);
    await world.drain();
    return id;
  },
  act: (world, team, id, bindings) =>
    world.ask("POST", `/docs/v1/uploads/${id}/reprocess`, { token: team.token }, { bindings }),
  judge(rows, { result, fault }) {
    expect(rows.map((row) => [row.status, row.audio !== null])).toEqual([["completed", true]]);
    expect([200, ...failureStatuses(fault)]).toContain(status(result));
  },
};

/** The same client, told nothing or told to try again, tries again with the same key. */
const withKey: Scenario<Prepared, { first: Told; second: Answer }> = {
  prepare: uploading(tone).prepare,
  async act(world, team, { form }, bindings) {
    const headers = { "Idempotency-Key": "once" };
    const first = await world.upload(team, form, headers, { bindings });
    return { first, second: await must(world.upload(team, form, headers)) };
  },
  judge(rows, { state, result: { first, second } }) {
    // Of a first that died midway, the second is told that it may be under way still.
    expect([200, 409, UNAVAILABLE[0]]).toContain(second.status);
    if (second.status !== 200) expect(second.headers.get("Retry-After")).not.toBeNull();
    if (first !== "dead" && first.status === 200) expect(second.id).toBe(first.id);
    expect(rows).toHaveLength(status(first) === 200 || second.status === 200 ? 1 : 0);
    for (const row of rows) expect([row.sha256, row.status]).toEqual([state.digest, "completed"]);
  },
};

const DAY = 24 * 60 * 60 * 1000;

const recovering: Scenario<Record<string, string>, Ended<Record<string, number>>> = {
  alone: true,
  async prepare(world, team) {
    const ids: Record<string, string> = {};
    for (const state of ["receiving", "pending", "processing", "deleting"]) {
      ids[state] = await world.leave(team, state, -DAY);
    }
    world.messages = [];
    await env.DB.batch([
      env.DB.prepare(
        `insert into api_keys select lower(hex(randomblob(12))), team_id, uuid, 'login', 0, lower(hex(randomblob(32))),
         null, null, 'user', created_at, 1 from api_keys where team_id = ?`,
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
  judge(rows, { state, result, fault }) {
    expect(rows.map(({ id, status: end }) => [id, end]).sort()).toEqual(
      [
        [state.pending, "completed"],
        [state.processing, "completed"],
      ].sort(),
    );
    const reencrypted = expect.any(Number);
    if (!fault) expect(result).toMatchObject({ sent: 2, filesDeleted: 2, loginsRemoved: 1, purged: 2, reencrypted });
  },
};

const cut = async (): Promise<Form> => {
  const { body, contentType } = await encodeForm("note.txt", "note ".repeat(100));
  return { body: body.slice(0, -20), contentType };
};
const nineMebibytes = encodeForm("zeros.bin", new Uint8Array(9 * 1024 * 1024));
const tooLarge = async (): Promise<Form> => {
  const { body, contentType } = await nineMebibytes;
  // As a stream it has no Content-Length: only counting tells, once the first part is stored.
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

const lostCommit: Scenario<Prepared, Told> = {
  ...uploading(tone),
  given: (calls) => ({ call: calls.lastIndexOf("D1 batch") + 1, moment: "after", failure: "permanent" }),
  judge(rows, { result, state, fault }) {
    if (status(result) === 200) expect(fault).toBeUndefined();
    // Before the undoing has hidden it, whatever ends the undoing leaves a whole file.
    judgeUpload(rows, state.digest, result, fault !== undefined);
  },
};

// biome-ignore lint/suspicious/noExplicitAny: scenarios of every state and result.
const scenarios: [string, Scenario<any, any>][] = [
  ["a small upload", uploading(tone)],
  ["an upload in parts", uploading(zeros)],
  ["an upload with an Idempotency-Key, and its repetition", withKey],
  ["the undoing of an upload whose commit got no answer", lostCommit],
  ["an upload whose body breaks off", refused(cut, 400)],
  ["an upload in parts that turns out too large", refused(tooLarge, 413, smallLimit)],
  ["processing audio", processing(tone, "completed")],
  ["processing audio that has to be read whole", processing(headerless, "completed")],
  ["processing a file that is no audio", processing("text", "completed")],
  ["processing a file whose bytes are missing", processing("text", "bytes_missing")],
  ["a delete", deleting],
  ["a delete that fails while the upload is still receiving", deletingWhileReceiving("delete")],
  ["an upload that fails and is deleted while it is still receiving", deletingWhileReceiving("upload")],
  ["a waveform that takes another's place", settingWaveform],
  ["a delete of a file with a waveform", deletingWithWaveform],
  ["a reprocess", reprocessing],
  ["recovery", recovering],
];

describe("Whatever fails or dies at whichever call", () => {
  test.for(scenarios)(
    "Nothing is lost and nothing is left of %s, whichever call fails or dies.",
    { timeout: 600_000 },
    async ([name, scenario], { annotate }) => {
      const { points, changes, runs, calls } = await everyPoint(scenario);
      await annotate(
        `crash points of ${name}: ${points} calls, ${changes} of them change something, ${runs} runs passed (${calls.join(", ")})`,
      );
      expect(points).toBeGreaterThan(0);
      expect(runs).toBeGreaterThan(points * (FAILURES.length - 1) + changes * FAILURES.length);
    },
  );
});

describe("A form upload whose Worker died", () => {
  // The idle time and 8 KiB/s give the slowest client that is allowed, and a quarter of an hour is for everything else.
  const slowestOf = (bytes: number) => 30_000 + (bytes / 8192) * 1000;
  const QUARTER = 15 * 60_000;

  test.each([1000, 90_000_000])("holds a quota of %i bytes until its slowest client would be done", async (bytes) => {
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
  });
});
