import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { databaseOf } from "../../src/platform/system.ts";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { MEBIBYTE, patternOf, sha256 } from "../support/bytes.ts";
import type { Answer, Team } from "../support/client.ts";
import { OPERATOR } from "../support/harness.ts";
import { expectErased, expectSettled, expectSound } from "../support/invariants.ts";
import { teamsByDatabase } from "../support/stores.ts";
import { DAY, MINUTE } from "../support/time.ts";
import { offsetOf } from "../support/tus.ts";
import { Uploader } from "../support/uploader.ts";
import { encodeForm, must, World } from "../support/world.ts";

/*
 * Random sequences of steps by clients, the queue, the clock, and dying Workers for one team, compared with a model in
 * memory that has the expected files. After each sequence, all work is finished, and the two must agree. Most
 * sequences have a trash, and half of them are of steps that concern it. The model of upkeep/reconciliation also has databases that are put back.
 */

const settings = env as unknown as { STOWAGE_MODEL_RUNS?: string };
const RUNS = Number(settings.STOWAGE_MODEL_RUNS ?? 200);

const PART_BYTES = 5 * MEBIBYTE;
/** Shorter than two of the longest waits. */
const TRASH_DAYS = 2;

const contents = [
  new TextEncoder().encode("one text"),
  new TextEncoder().encode("another text"),
  sample("tone.m4a").bytes,
  patternOf(200_000),
  patternOf(PART_BYTES + 100),
  patternOf(2 * PART_BYTES + 100),
];
/** The number of contents that need no parts. */
const SMALL = 4;
const digests = await Promise.all(contents.map(sha256));
const contentAt = (at: number) => contents[at] as Uint8Array<ArrayBuffer>;

/** An expected resumable upload. Its offset is at least the last reported one, and at most `sentBytes`. */
class Upload {
  readonly client: Uploader;
  readonly content: number;
  sentBytes: number;
  /** The file was committed. It may be deleted by now. */
  isFinished = false;
  isDeleted = false;
  /** A deletion was interrupted. */
  mayBeDeleted = false;
  /** More than a day has passed since its last byte. */
  isOld = false;
  readonly #createdAt: number;

  constructor(client: Uploader, content: number) {
    this.client = client;
    this.content = content;
    this.sentBytes = client.reportedOffset;
    this.#createdAt = client.world.system.now();
  }

  /** According to its client, it has no bytes, and it is an hour old. */
  get mayBeExpired(): boolean {
    return this.reportedOffset === 0 && this.client.world.system.now() >= this.#createdAt + 60 * MINUTE;
  }

  get reportedOffset(): number {
    return this.client.reportedOffset;
  }

  get sizeBytes(): number {
    return this.client.bytes.length;
  }

  /** Exactly one response is right. */
  get isCertain(): boolean {
    const { isFinished, isDeleted, mayBeDeleted, isOld, mayBeExpired, sentBytes, reportedOffset } = this;
    return !isFinished && !isDeleted && !mayBeDeleted && !isOld && !mayBeExpired && sentBytes === reportedOffset;
  }

  /** All of its bytes were sent, and no response reported the result. */
  get mayBeFinished(): boolean {
    return !this.isFinished && !this.isDeleted && this.sentBytes === this.sizeBytes;
  }
}

const NO_ID = "none";

/** The fields that the team has set on a file. */
interface Organized {
  name: string;
  folder: string;
  tags: string[];
  deleteAfter: string | null;
}
const AS_UPLOADED: Organized = { name: "file", folder: "", tags: [], deleteAfter: null };

/** A file in a list. Only the trash shows the last two. */
type Shown = Organized & { _id: string; trashedAt?: string; hold?: { reason: string } | null };

type State = "listed" | "trashed" | "gone";
/** The effect of a request on the state of a file. Exactly one of the results is right. */
type Transition = { results: (number | string)[]; to: State };

interface Trashed {
  content: number;
  file: Organized;
  waveform: number | undefined;
  trashedAt: number;
}

/** In the path of a single file, and in a batch. */
type Deletion = "delete" | "permanent" | "from the trash";
type Batch =
  | { action: "tag" | "untag"; tags: string[] }
  | { action: "move"; folder: string }
  | { action: "restore" }
  | { action: "delete"; permanent: boolean };

function changedBy(file: Organized, batch: Batch): Organized {
  if (batch.action === "tag") return { ...file, tags: [...new Set([...file.tags, ...batch.tags])] };
  if (batch.action === "untag") return { ...file, tags: file.tags.filter((tag) => !batch.tags.includes(tag)) };
  return batch.action === "move" ? { ...file, folder: batch.folder } : file;
}

/** Counts of the resumable uploads, and of the changes of state, of all runs. */
const seen = {
  created: 0,
  finished: 0,
  inParts: 0,
  deleted: 0,
  expired: 0,
  deadMidway: 0,
  trashed: 0,
  restored: 0,
  gone: 0,
};

/** The expected state of the team. `files` maps the id of each listed file to its content. */
class Model {
  readonly files = new Map<string, number>();
  readonly deletedIds = new Set<string>();
  /** The first peak of each expected waveform, by file. */
  readonly waveforms = new Map<string, number>();
  /** The files that the team has changed. */
  readonly organized = new Map<string, Organized>();
  readonly keys = new Map<string, { id: string; content: number; at: number }>();
  readonly uploads: Upload[] = [];
  readonly trash = new Map<string, Trashed>();
  /** The reason of each hold, by file. */
  readonly holds = new Map<string, string>();
  retentionDays: number | null = null;
  /** Retention has given files a time to delete them. */
  wasRetained = false;
  /** The files of which someone chose the time to delete them, so the retention may have passed them by. */
  readonly chosen = new Set<string>();

  ids(): string[] {
    return [...this.files.keys()].sort().reverse();
  }

  organizedAs(id: string): Organized {
    return this.organized.get(id) ?? AS_UPLOADED;
  }

  add(id: string, content: number): void {
    expect(this.stateOf(id) !== "gone" || this.deletedIds.has(id), "a new id").toBe(false);
    this.files.set(id, content);
  }

  finish(upload: Upload): void {
    expect(this.deletedIds.has(upload.client.id), "a deleted id reappeared").toBe(false);
    upload.isFinished = true;
    this.files.set(upload.client.id, upload.content);
  }

  stateOf(id: string): State {
    if (this.files.has(id)) return "listed";
    return this.trash.has(id) ? "trashed" : "gone";
  }

  /** An interrupted deletion can be repeated, and so can one of the same millisecond that moved the file to the trash. */
  deletion(id: string, how: Deletion, trashDays: number, now: number): Transition {
    const from = this.stateOf(id);
    const isHeld = this.holds.has(id);
    if (from === "gone") return { results: [200, "not_found"], to: from };
    if (from === "trashed") {
      if (how !== "delete") return isHeld ? { results: ["file_held"], to: from } : { results: [200], to: "gone" };
      return { results: this.trash.get(id)?.trashedAt === now ? [200] : ["not_found"], to: from };
    }
    if (how === "from the trash") return { results: ["not_in_trash"], to: from };
    if (isHeld) return { results: ["file_held"], to: from };
    return { results: [200], to: how === "delete" && trashDays > 0 ? "trashed" : "gone" };
  }

  restoration(id: string): Transition {
    const from = this.stateOf(id);
    if (from === "trashed") return { results: [200], to: "listed" };
    return { results: [from === "listed" ? "not_in_trash" : "not_found"], to: from };
  }

  move(id: string, to: State, now: number): void {
    const [from, content, trashed] = [this.stateOf(id), this.files.get(id) ?? -1, this.trash.get(id)];
    if (from === to) return;
    if (to !== "listed") expect(this.holds.has(id), "a held file stays").toBe(false);
    seen[to === "listed" ? "restored" : to] += 1;
    if (trashed && to === "listed") {
      this.files.set(id, trashed.content);
      this.organized.set(id, { ...trashed.file, deleteAfter: null });
      if (trashed.waveform !== undefined) this.waveforms.set(id, trashed.waveform);
      this.chosen.add(id);
    } else if (to === "trashed") {
      const [file, waveform] = [this.organizedAs(id), this.waveforms.get(id)];
      this.trash.set(id, { content, file: { ...file, deleteAfter: null }, waveform, trashedAt: now });
    } else this.deletedIds.add(id);
    if (from === "trashed") this.trash.delete(id);
    if (from !== "listed") return;
    for (const map of [this.files, this.waveforms, this.organized]) map.delete(id);
    for (const [key, { id: named }] of this.keys) if (named === id) this.keys.delete(key);
    // The upload of a restored file is forgotten by the next recovery job.
    for (const upload of this.uploads) if (upload.client.id === id) upload.mayBeDeleted = true;
  }
}

class Stage {
  readonly world = new World();
  readonly model = new Model();
  readonly trashDays: number;
  readonly #team: Team;

  constructor(team: Team, trashDays: number) {
    this.#team = team;
    this.trashDays = trashDays;
    this.world.settings = { trashDays };
  }

  /** Deletes the team in the middle of its work. Nothing of it is left once the recovery job is done. */
  async expectDeletion(): Promise<void> {
    const path = `/auth/v1/teams/${this.teamId}`;
    const { holds } = this.model;
    if (holds.size > 0) expect((await this.world.call("DELETE", path, { token: OPERATOR })).code).toBe("file_held");
    for (const id of holds.keys()) expect((await must(this.ask("DELETE", `/${id}/hold`))).status).toBe(200);
    expect((await this.world.call("DELETE", path, { token: OPERATOR })).status).toBe(200);
    await this.world.recoverAll([this.teamId]);
    await expectErased(this.teamId, this.world);
  }

  get teamId(): string {
    return this.#team.teamId;
  }

  ask(method: string, path: string, bindings?: ProxiedBindings, json?: object) {
    return this.world.ask(method, `/docs/v1/uploads${path}`, { token: this.#team.token, json }, { bindings });
  }

  async send(
    content: number,
    { key, keep = 1, bindings }: { key?: string; keep?: number; bindings?: ProxiedBindings } = {},
  ) {
    const { body, contentType } = await encodeForm("file", contentAt(content));
    const form = { body: body.slice(0, Math.floor(body.length * keep)), contentType };
    return this.world.upload(this.#team, form, key === undefined ? {} : { "Idempotency-Key": key }, { bindings });
  }

  askTrash(method: string, path: string, bindings?: ProxiedBindings) {
    return this.world.ask(method, `/docs/v1/trash${path}`, { token: this.#team.token }, { bindings });
  }

  setRetention(days: number | null) {
    return this.world.call("PUT", "/docs/v1/retention", { token: this.#team.token, json: { days } });
  }

  async listed(): Promise<string[]> {
    return [...(await this.files()).keys()];
  }

  /** The listed files. */
  async files(): Promise<Map<string, Organized>> {
    const files = await this.#filesIn(this.ask("GET", "?limit=100"));
    const { model } = this;
    for (const [id, { deleteAfter }] of files) {
      const file = model.organizedAs(id);
      const isOld = Number.parseInt(id.slice(0, 12), 16) <= this.now - DAY;
      const isDue = deleteAfter !== null && Date.parse(deleteAfter) <= this.now;
      if (model.wasRetained && isOld && isDue) model.organized.set(id, { ...file, deleteAfter });
    }
    return files;
  }

  /** The files in the trash, with the reason of their hold. */
  trash(): Promise<Map<string, Organized & { trashedAt: string; hold?: string }>> {
    return this.#filesIn(this.askTrash("GET", "?limit=100"));
  }

  async #filesIn<T extends Organized>(answer: ReturnType<Stage["ask"]>): Promise<Map<string, T>> {
    const { status, body } = await must(answer);
    expect(status).toBe(200);
    const files = new Map<string, T>(
      body.data.map(({ _id, name, folder, tags, deleteAfter, trashedAt, hold }: Shown) => [
        _id,
        // A resumable upload of the model has no file name.
        {
          name: name === "unnamed" ? AS_UPLOADED.name : name,
          folder,
          tags,
          deleteAfter,
          trashedAt,
          hold: hold?.reason,
        },
      ]),
    );
    for (const upload of this.model.uploads) {
      if (upload.mayBeFinished && files.has(upload.client.id)) this.model.finish(upload);
    }
    return files;
  }

  get now(): number {
    return this.world.system.now();
  }

  /** Checks the response of a request that changes the states of files, and updates the model: all or none of them. */
  async learnStates(ids: string[], transitions: Transition[], results: (number | string)[] | "dead"): Promise<void> {
    const { model } = this;
    const [files, trash] = [await this.files(), await this.trash()];
    const found = ids.map((id): State => (files.has(id) ? "listed" : trash.has(id) ? "trashed" : "gone"));
    const [before, after] = [ids.map((id) => model.stateOf(id)), transitions.map(({ to }) => to)];
    expect(results === "dead" ? [before, after] : [after], "states").toContainEqual(found);
    for (const [i, id] of ids.entries()) {
      if (results !== "dead")
        expect(transitions[i]?.results, `the result of a file that is ${before[i]}`).toContain(results[i]);
      model.move(id, found[i] as State, this.now);
    }
  }

  /** Updates the model after the recovery job, which deletes all due files unless it died. */
  async learnRecovery(isDone: boolean, isLast = false): Promise<void> {
    const { model, now, trashDays } = this;
    const [files, trash] = [await this.files(), await this.trash()];
    for (const id of model.ids()) {
      const { deleteAfter } = model.organizedAs(id);
      const isDue = deleteAfter !== null && Date.parse(deleteAfter) <= now;
      const isOld = Number.parseInt(id.slice(0, 12), 16) <= now - DAY;
      if (files.has(id)) {
        if (isDone && isDue) expect(model.holds.has(id), "a due file stays only if it is held").toBe(true);
        continue;
      }
      expect(isDue || (isOld && model.retentionDays !== null), "a file expires only when it is due").toBe(true);
      if (!isLast) expect(trash.has(id), "an expired file is in the trash, if there is one").toBe(trashDays > 0);
      model.move(id, trash.has(id) ? "trashed" : "gone", now);
    }
    for (const [id, { trashedAt }] of model.trash) {
      const isDue = trashedAt + trashDays * DAY <= now;
      if (!trash.has(id)) expect(isDue, "a file in the trash is erased only when it is due").toBe(true);
      if (isDone && isDue) expect(trash.has(id), "a due file is erased unless it is held").toBe(model.holds.has(id));
      if (!trash.has(id)) model.move(id, "gone", now);
    }
    if (!isLast || model.retentionDays === null) return;
    const kept = model.ids().filter((id) => !model.holds.has(id) && !model.chosen.has(id));
    expect(kept, "files that are older than the retention").toEqual([]);
  }

  /** A client that has not created its upload yet. */
  uploader(content: number): Uploader {
    return new Uploader(this.world, this.#team, contentAt(content));
  }

  pickUpload(at: number): Upload | undefined {
    return this.model.uploads[at % this.model.uploads.length];
  }

  /** Checks a response to a client of a resumable upload, and updates the model from it. */
  learnFrom(upload: Upload, { status, headers }: Answer, expected: number[]): void {
    const { model } = this;
    const { isFinished, isDeleted, isOld, mayBeExpired, mayBeDeleted, mayBeFinished, client } = upload;
    const isThere = model.files.has(client.id);
    const right = new Set(isDeleted || (isFinished && !isThere) ? [404] : expected);
    if (isOld && !isFinished && !mayBeFinished) for (const code of expected) right.delete(code);
    if ((isOld || mayBeExpired) && !isFinished && !isDeleted) right.add(410);
    if (isOld || mayBeExpired || mayBeDeleted) right.add(404);
    expect([...right], `response at ${upload.reportedOffset} of ${upload.sizeBytes}`).toContain(status);
    if (status === 404 && !isFinished) {
      upload.isDeleted = true;
      model.deletedIds.add(client.id);
    }
    if (!headers.has("Upload-Offset")) return;
    expect(upload.reportedOffset, "at most the sent bytes").toBeLessThanOrEqual(upload.sentBytes);
    upload.sentBytes = upload.reportedOffset;
    if (upload.reportedOffset === upload.sizeBytes && !isFinished) model.finish(upload);
  }

  /** Mostly one of the files that are preferred, sometimes any, possibly deleted. An unknown id if there never was one. */
  pick(index: number, preferred: Map<string, unknown> = this.model.files): string {
    const { files, trash, deletedIds } = this.model;
    const likely = index % 4 === 0 ? [] : [...preferred.keys()];
    const all = likely.length > 0 ? likely : [...files.keys(), ...trash.keys(), ...deletedIds];
    return all[index % all.length] ?? NO_ID;
  }

  setWaveform(id: string, peak: number, bindings: ProxiedBindings) {
    return this.ask("PUT", `/${id}/waveform`, bindings, { channels: [Array(16).fill(peak)] });
  }

  /** The first peak of the file's waveform. */
  async waveform(id: string): Promise<number | undefined> {
    const { status, body } = await must(this.ask("GET", `/${id}/waveform`));
    expect(status).toBe(body.data ? 200 : 404);
    return body.data?.channels[0][0];
  }

  async expectAgreement(): Promise<void> {
    const files = await this.files();
    const { model } = this;
    expect([...files.keys()]).toEqual(model.ids());
    const expected = model.ids().map((id) => [id, model.organizedAs(id)]);
    expect([...files]).toEqual(expected);
    const inTrash = [...model.trash].sort(([a], [b]) => (a < b ? 1 : -1));
    expect([...(await this.trash())], "the trash").toEqual(
      inTrash.map(([id, { file, trashedAt }]) => [
        id,
        { ...file, trashedAt: new Date(trashedAt).toISOString(), hold: model.holds.get(id) },
      ]),
    );
  }

  /** The result of a dead Worker is visible at once, and permanent. */
  async learn(content: number): Promise<void> {
    const found = (await this.listed()).filter((id) => !this.model.files.has(id));
    expect(found.length).toBeLessThanOrEqual(1);
    for (const id of found) {
      expect(this.model.deletedIds.has(id), "a deleted id reappeared").toBe(false);
      this.model.files.set(id, content);
    }
  }
}

/** A step of a sequence, described for the report of a failure. */
type Step = [text: string, run: (stage: Stage) => Promise<unknown>];

const index = fc.nat(1000);
const formContent = fc.nat(2);
const resumableContent = fc.oneof({ arbitrary: fc.nat(SMALL - 1), weight: 3 }, fc.integer({ min: SMALL, max: 5 }));
/** The portion of the remaining bytes to send. It is often all of them. */
const portion = fc.oneof(fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true }));
const death = fc
  .record({ call: fc.integer({ min: 1, max: 12 }), moment: fc.constantFrom("before" as const, "after" as const) })
  .map((where) => ({ ...where, failure: "death" as const }));

/** Draws a step, or the same step with a Worker that dies. `weight` and `deaths` say how often, relative to other steps. */
function step<T>(
  name: string,
  [weight, deaths]: [number, number],
  arbitrary: fc.Arbitrary<T>,
  run: (stage: Stage, values: T, bindings: ProxiedBindings) => Promise<unknown>,
): { arbitrary: fc.Arbitrary<Step>; weight: number } {
  const faults = fc.oneof({ arbitrary: fc.constant(null), weight }, { arbitrary: death, weight: deaths });
  const steps = fc.tuple(arbitrary, faults).map(([values, fault]): Step => {
    const text = `${name} ${JSON.stringify(values)}`;
    if (!fault) return [text, (stage) => run(stage, values, new ProxiedBindings())];
    const { moment, call } = fault;
    return [`${text}, dead ${moment} call ${call}`, (stage) => run(stage, values, new ProxiedBindings(fault))];
  });
  return { arbitrary: steps, weight: weight + deaths };
}

const upload = step("upload", [3, 1], formContent, async (stage, what, bindings) => {
  const answer = await stage.send(what, { bindings });
  if (answer === "dead") return stage.learn(what);
  expect(answer.status).toBe(200);
  stage.model.add(answer.id, what);
});

const brokenUpload = step(
  "upload truncated",
  [1, 0],
  fc.record({ what: formContent, keep: fc.double({ min: 0, max: 0.99, noNaN: true }) }),
  async (stage, { what, keep }) => expect((await must(stage.send(what, { keep }))).status).toBe(400),
);

const keyedUpload = step(
  "upload with key",
  [2, 0],
  fc.record({ what: formContent, key: fc.constantFrom("k", "l") }),
  async (stage, { what, key }) => {
    const { model, world } = stage;
    const first = model.keys.get(key);
    const answer: Answer = await must(stage.send(what, { key }));
    if (first && first.at >= world.system.now() - DAY) {
      if (first.content === what) expect([answer.status, answer.id]).toEqual([200, first.id]);
      else expect([answer.status, answer.code]).toEqual([409, "idempotency_conflict"]);
      return;
    }
    expect(answer.status).toBe(200);
    model.add(answer.id, what);
    model.keys.set(key, { id: answer.id, content: what, at: world.system.now() });
  },
);

const list = step("list", [1, 0], fc.constant(null), (stage) => stage.expectAgreement());

const sign = step("sign", [1, 0], index, async (stage, at) => {
  const id = stage.pick(at);
  expect((await must(stage.ask("GET", `/${id}`))).status).toBe(stage.model.files.has(id) ? 200 : 404);
});

const remove = step(
  "delete",
  [2, 1],
  fc.record({
    at: index,
    how: fc.constantFrom<Deletion>("delete", "delete", "delete", "delete", "permanent", "from the trash"),
  }),
  async (stage, { at, how }, bindings) => {
    const id = how === "from the trash" ? stage.pick(at, stage.model.trash) : stage.pick(at);
    const transition = stage.model.deletion(id, how, stage.trashDays, stage.now);
    const query = how === "permanent" ? "?permanent=true" : "";
    const answer = await (how === "from the trash"
      ? stage.askTrash("DELETE", `/${id}`, bindings)
      : stage.ask("DELETE", `/${id}${query}`, bindings));
    await stage.learnStates([id], [transition], answer === "dead" ? "dead" : [answer.code ?? answer.status]);
  },
);

const restore = step("restore", [2, 1], index, async (stage, at, bindings) => {
  const id = stage.pick(at, stage.model.trash);
  const transition = stage.model.restoration(id);
  const answer = await stage.askTrash("POST", `/${id}/restore`, bindings);
  await stage.learnStates([id], [transition], answer === "dead" ? "dead" : [answer.code ?? answer.status]);
});

const hold = step(
  "hold",
  [2, 1],
  fc.record({ at: index, reason: fc.constantFrom("case 1", "case 2", null) }),
  async (stage, { at, reason }, bindings) => {
    const { model } = stage;
    const { holds } = model;
    const id = stage.pick(at);
    const state = model.stateOf(id);
    const answer = await (reason === null
      ? stage.ask("DELETE", `/${id}/hold`, bindings)
      : stage.ask("PUT", `/${id}/hold`, bindings, { reason }));
    if (answer !== "dead") expect(answer.status).toBe(state === "gone" ? 404 : 200);
    if (state === "gone") return;
    const found =
      state === "trashed"
        ? ((await stage.trash()).get(id)?.hold ?? null)
        : ((await must(stage.ask("GET", `/${id}/metadata`))).body.data.hold?.reason ?? null);
    expect(answer === "dead" ? [holds.get(id) ?? null, reason] : [reason]).toContain(found);
    if (found === null) holds.delete(id);
    else holds.set(id, found);
  },
);

const setRetention = step("set retention", [1, 0], fc.constantFrom(1, null), async (stage, days) => {
  expect((await stage.setRetention(days)).status).toBe(200);
  stage.model.retentionDays = days;
  stage.model.wasRetained ||= days !== null;
  // It applies to all files.
  stage.model.chosen.clear();
});

const reprocess = step("reprocess", [2, 0], index, async (stage, at) => {
  const id = stage.pick(at);
  const { status } = await must(stage.ask("POST", `/${id}/reprocess`));
  expect(status).toBe(stage.model.files.has(id) ? 200 : 404);
});

const setWaveform = step(
  "set waveform",
  [2, 1],
  fc.record({ at: index, to: fc.constantFrom(-1, 0, 1) }),
  async (stage, { at, to }, bindings) => {
    const { files, waveforms } = stage.model;
    const id = stage.pick(at);
    const answer = await stage.setWaveform(id, to, bindings);
    if (answer !== "dead") expect(answer.status).toBe(files.has(id) ? 200 : 404);
    const found = await stage.waveform(id);
    const right = answer === "dead" ? [waveforms.get(id), to] : [to];
    expect(files.has(id) ? right : [undefined]).toContain(found);
    if (found !== undefined) waveforms.set(id, found);
  },
);

const askWaveform = step("get waveform", [1, 0], index, async (stage, at) => {
  const id = stage.pick(at);
  expect(await stage.waveform(id)).toBe(stage.model.waveforms.get(id));
});

const organized = fc.record(
  {
    name: fc.constantFrom("renamed", "Größe %_"),
    folder: fc.constantFrom("", "a", "a/b"),
    tags: fc.constantFrom<string[][]>([], ["x"], ["y", "x"]),
    /** In minutes from now. */
    deleteAfter: fc.constantFrom(null, 1, 5, 20 * 60),
  },
  { requiredKeys: ["folder"] },
);
const update = step("update", [2, 1], fc.record({ at: index, to: organized }), async (stage, { at, to }, bindings) => {
  const { model, now } = stage;
  const id = stage.pick(at);
  const { deleteAfter, ...others } = to;
  const isNever = deleteAfter === null;
  const changes = {
    ...others,
    ...(deleteAfter !== undefined && {
      deleteAfter: isNever ? null : new Date(now + deleteAfter * MINUTE).toISOString(),
    }),
  };
  const answer = await stage.ask("PATCH", `/${id}`, bindings, changes);
  const isThere = model.files.has(id);
  const isRefused = isThere && deleteAfter !== undefined && model.holds.has(id);
  const right = isRefused ? "file_held" : isThere ? 200 : "not_found";
  if (answer !== "dead") expect(answer.code ?? answer.status).toBe(right);
  if (!isThere) return;
  const before = model.organizedAs(id);
  const after = isRefused ? before : { ...before, ...changes };
  const found = (await stage.files()).get(id) as Organized;
  expect(answer === "dead" ? [before, after] : [after]).toContainEqual(found);
  model.organized.set(id, found);
  if (deleteAfter !== undefined && !isRefused) model.chosen.add(id);
});

const batchOf = fc.oneof(
  fc.record({ action: fc.constantFrom("tag", "untag"), tags: fc.constantFrom(["x"], ["y", "z"]) }),
  fc.record({ action: fc.constant("move"), folder: fc.constantFrom("", "a") }),
  fc.record({ action: fc.constant("delete"), permanent: fc.boolean() }),
  fc.record({ action: fc.constant("restore") }),
) as fc.Arbitrary<Batch>;
const batch = step(
  "batch",
  [2, 1],
  fc.record({ at: fc.uniqueArray(index, { minLength: 1, maxLength: 3 }), what: batchOf }),
  async (stage, { at, what }, bindings) => {
    const { model } = stage;
    const ids = [...new Set(at.map((one) => stage.pick(one)))];
    const { action } = what;
    const isMoving = action === "delete" || action === "restore";
    const how = action === "delete" && what.permanent ? "permanent" : "delete";
    const transitions = ids.map((id) =>
      action === "restore" ? model.restoration(id) : model.deletion(id, how, stage.trashDays, stage.now),
    );
    const answer = await stage.ask("POST", "/batch", bindings, { ...what, ids });
    if (answer !== "dead") expect(answer.status).toBe(200);
    type Result = { _id: string; ok: boolean; code?: string };
    const results: Result[] = answer === "dead" ? [] : answer.body.data;
    if (isMoving) {
      const codes = results.map(({ code }) => code ?? 200);
      return stage.learnStates(ids, transitions, answer === "dead" ? "dead" : codes);
    }
    const there = ids.filter((id) => model.files.has(id));
    const files = await stage.files();
    const changed = new Map(there.map((id) => [id, changedBy(model.organizedAs(id), what)]));
    const isDone = there.every((id) => JSON.stringify(files.get(id)) === JSON.stringify(changed.get(id)));
    if (answer === "dead" && !isDone) return;
    expect(isDone).toBe(true);
    const expected = ids.map((id) => [id, there.includes(id)]);
    if (answer !== "dead") expect(results.map(({ _id, ok }) => [_id, ok])).toEqual(expected);
    for (const [id, file] of changed) model.organized.set(id, file);
  },
);

/** Takes any message out of the queue, because queues do not guarantee an order. */
const take = ({ world: { messages } }: Stage, at: number): string | undefined =>
  messages.splice(at % Math.max(1, messages.length), 1)[0];

const deliver = step(
  "deliver",
  [3, 1],
  fc.record({ at: index, isRedelivered: fc.boolean() }),
  async (stage, { at, isRedelivered }, bindings) => {
    const message = take(stage, at);
    if (!message) return;
    const ended = await stage.world.deliver(message, bindings);
    if (ended === "dead" ? isRedelivered : ended !== null) stage.world.messages.push(message);
  },
);

const twoWorkers = step("deliver to two consumers", [1, 0], index, async (stage, at) => {
  const message = take(stage, at);
  if (message) await Promise.all([stage.world.deliver(message), stage.world.deliver(message)]);
});

const duplicate = step("duplicate message", [1, 0], index, async ({ world: { messages } }, at) => {
  const message = messages[at % messages.length];
  if (message) messages.push(message);
});

const drop = step("drop message", [1, 0], index, async (stage, at) => take(stage, at));

function pass({ world, model }: Stage, minutes: number): void {
  world.aheadMilliseconds += minutes * MINUTE;
  if (minutes * MINUTE > DAY) for (const one of model.uploads) one.isOld = true;
}
const wait = step("wait minutes", [2, 0], fc.constantFrom(1, 3, 10, 25 * 60), async (stage, minutes) =>
  pass(stage, minutes),
);

const recover = async (stage: Stage, bindings: ProxiedBindings) =>
  stage.learnRecovery((await stage.world.recover(bindings)) !== "dead");
const recovery = step("recovery", [1, 1], fc.constant(null), (stage, _, bindings) => recover(stage, bindings));
const day = step("a day and recovery", [4, 2], fc.constant(null), async (stage, _, bindings) => {
  pass(stage, 25 * 60);
  await recover(stage, bindings);
});

const createUpload = step(
  "create upload",
  [4, 1],
  fc.record({ what: resumableContent, first: fc.constantFrom(0, 0.5, 1) }),
  async (stage, { what, first }, bindings) => {
    const client = stage.uploader(what);
    const sent = Math.floor(client.bytes.length * first);
    // The recovery job would assemble the parts of an upload that the model does not know.
    const answer = await client.create(what < SMALL ? bindings : undefined, sent);
    if (answer === "dead") return stage.learn(what);
    expect([answer.status, client.reportedOffset]).toEqual([201, sent]);
    const created = new Upload(client, what);
    stage.model.uploads.push(created);
    if (first === 1) stage.model.finish(created);
  },
);

/** The possible statuses of an append at the offset that the client knows. */
const appendStatuses = ({ isFinished, reportedOffset: offset, sizeBytes, sentBytes }: Upload): number[] => {
  if (isFinished) return [offset === sizeBytes ? 204 : 409];
  return sentBytes === offset ? [204] : [204, 409];
};

/** Sends bytes from the last reported offset. */
const appending = fc.record({ at: index, part: portion, hasNoMemory: fc.boolean() });
const append = (isInterrupted: boolean, weight: number, deaths: number) =>
  step(
    isInterrupted ? "interrupt" : "append",
    [weight, deaths],
    appending,
    async (stage, { at, part, hasNoMemory }, bindings) => {
      const picked = stage.pickUpload(at);
      if (!picked) return;
      const { client, sizeBytes } = picked;
      const from = picked.reportedOffset;
      const to = from + Math.ceil((sizeBytes - from) * part);
      const expected = appendStatuses(picked);
      const wasOpen = !picked.isOld && !picked.isDeleted && !picked.isFinished;
      client.hasNoMemory = hasNoMemory;
      const answer = await (isInterrupted
        ? client.sendInterrupted(from, to, bindings)
        : client.send(from, to, bindings));
      client.hasNoMemory = false;
      if (wasOpen) picked.sentBytes = Math.max(picked.sentBytes, to);
      if (answer === "dead") return;
      stage.learnFrom(picked, answer, expected);
      if (answer.status !== 204 || !wasOpen) return;
      const lost = to - offsetOf(answer);
      if (isInterrupted) expect(lost, "bytes lost by the interruption").toBeLessThanOrEqual(PART_BYTES);
      else expect(lost).toBe(0);
    },
  );

const twoAppends = step(
  "append twice at once",
  [2, 0],
  fc.record({ at: index, one: portion, other: portion }),
  async (stage, { at, one, other }) => {
    const picked = stage.pickUpload(at);
    if (!picked?.isCertain) return;
    const { client, sizeBytes, reportedOffset: from } = picked;
    const ends = [one, other].map((part) => from + Math.max(1, Math.ceil((sizeBytes - from) * part)));
    picked.sentBytes = Math.max(...ends);
    const answers = await Promise.all(ends.map((to) => must(client.send(from, to))));
    const taken = answers.filter(({ status }) => status === 204);
    expect(answers.map(({ status, code }) => code ?? status).sort()).toEqual([204, "offset_mismatch"]);
    expect(ends.map((to, i) => to === offsetOf(answers[i] as Answer))).toContain(true);
    for (const answer of taken) stage.learnFrom(picked, answer, [204]);
  },
);

const wrongAppend = step(
  "append at an offset off by",
  [1, 0],
  fc.record({ at: index, by: fc.constantFrom(-100_000, -1, 1, 100_000) }),
  async (stage, { at, by }) => {
    const picked = stage.pickUpload(at);
    if (!picked?.isCertain) return;
    const wrong = Math.max(0, picked.reportedOffset + by);
    if (wrong === picked.reportedOffset) return;
    const answer = await must(picked.client.patch(wrong, new Uint8Array(1), { "Content-Length": "1" }));
    expect([answer.status, answer.code]).toEqual([409, "offset_mismatch"]);
  },
);

const askUpload = step("get progress", [2, 1], index, async (stage, at, bindings) => {
  const picked = stage.pickUpload(at);
  const answer = await picked?.client.head(bindings);
  if (picked && answer && answer !== "dead") stage.learnFrom(picked, answer, [200]);
});

const cancelUpload = step("cancel upload", [1, 1], index, async (stage, at, bindings) => {
  const picked = stage.pickUpload(at);
  if (!picked) return;
  const { isFinished, mayBeFinished, client } = picked;
  const answer = await client.ask("DELETE", {}, undefined, bindings);
  if (answer === "dead") {
    picked.mayBeDeleted = true;
    return;
  }
  // An expired upload can still be canceled.
  const expected = isFinished ? [403] : [204, ...(mayBeFinished ? [403] : [])];
  if (picked.isOld && answer.status === 204) picked.isOld = false;
  stage.learnFrom(picked, answer, expected);
  if (answer.status === 204) {
    picked.isDeleted = true;
    stage.model.deletedIds.add(client.id);
  }
});

const ofFiles = [upload, keyedUpload, list, sign, remove, reprocess, setWaveform, askWaveform, update, batch];
const ofJobs = [deliver, twoWorkers, duplicate, drop, wait, recovery];
const ofUploads = [brokenUpload, createUpload, append(false, 4, 3), append(true, 2, 1)];
const ofRequests = [twoAppends, wrongAppend, askUpload, cancelUpload];
const ofTrash = [
  upload,
  upload,
  upload,
  list,
  remove,
  remove,
  restore,
  restore,
  hold,
  setRetention,
  setWaveform,
  update,
  batch,
];
const ofTime = [deliver, deliver, day, recovery];

const sequence = (minLength: number, steps: ReturnType<typeof step>[], ...trashDays: number[]) =>
  fc.record({
    steps: fc.array(fc.oneof(...steps), { minLength, maxLength: 24, size: "max" }),
    trashDays: fc.constantFrom(...trashDays),
  });
const sequences = fc.oneof(
  sequence(1, [...ofFiles, ...ofJobs, ...ofUploads, ...ofRequests, restore, hold, setRetention], 0, TRASH_DAYS),
  sequence(16, [...ofTrash, ...ofTime], TRASH_DAYS),
);

function count(uploads: Upload[]): void {
  seen.created += uploads.length;
  for (const upload of uploads) {
    const { isFinished, isDeleted, isOld, sizeBytes, sentBytes } = upload;
    seen.finished += Number(isFinished);
    seen.inParts += Number(isFinished && sizeBytes > PART_BYTES);
    seen.deleted += Number(isDeleted);
    seen.expired += Number(isOld && !isFinished);
    seen.deadMidway += Number(!isFinished && sentBytes > upload.reportedOffset);
  }
}

/** A team whose events go to a webhook. */
async function newTeam(world = new World()): Promise<Team> {
  const team = await world.newTeam();
  const json = { url: "https://hooks.example.com/in" };
  expect((await world.call("POST", "/auth/v1/webhooks", { token: team.token, json })).status).toBe(200);
  return team;
}

async function play(steps: Step[], trashDays: number, isTeamDeleted: boolean): Promise<void> {
  const stage = new Stage(await newTeam(), trashDays);
  for (const [, run] of steps) await run(stage);
  count(stage.model.uploads);
  if (isTeamDeleted) return stage.expectDeletion();
  await expectSound(stage.teamId);
  await stage.expectAgreement();

  await stage.world.recoverAll([stage.teamId]);
  const rows = await expectSettled(stage.teamId, { world: stage.world });
  await stage.learnRecovery(true, true);
  await stage.expectAgreement();
  const inTrash = rows.filter(({ trashed_at: trashedAt }) => trashedAt !== null);
  const listed = rows.filter((row) => !inTrash.includes(row));
  expect(listed.map(({ id }) => id)).toEqual(stage.model.ids().reverse());
  expect(inTrash.map(({ id }) => id)).toEqual([...stage.model.trash.keys()].sort());
  for (const id of [...stage.model.files.keys(), ...stage.model.deletedIds]) {
    expect(await stage.waveform(id), "the waveform").toBe(stage.model.waveforms.get(id));
  }
  for (const row of rows) {
    const what = stage.model.files.get(row.id) ?? stage.model.trash.get(row.id)?.content ?? -1;
    if (listed.includes(row))
      expect([row.sha256, row.status, row.audio !== null]).toEqual([digests[what], "completed", what === 2]);
    // In the trash, a file stays as it was, possibly unprocessed.
    else expect([digests[what], null]).toContain(row.sha256);
    expect(row.hold && JSON.parse(row.hold).reason).toBe(stage.model.holds.get(row.id) ?? null);
  }
}

describe("The service", () => {
  test("agrees with a model in memory after any sequence of steps", {
    timeout: 120_000 + RUNS * 5000,
  }, async ({ annotate }) => {
    let ran = 0;
    await fc.assert(
      fc.asyncProperty(sequences, fc.nat(4), async ({ steps, trashDays }, ending) => {
        ran++;
        await play(steps, trashDays, ending === 0);
      }),
      { numRuns: RUNS },
    );
    // No team has a row outside of the database that its id names.
    const homes = await teamsByDatabase();
    expect(homes.map((teams) => [...teams].filter((id) => homes[databaseOf(id)] !== teams))).toEqual([[], [], []]);
    expect(homes.every((teams) => teams.size > RUNS / 10)).toBe(true);
    await annotate(`model: ${ran} runs; ${JSON.stringify(seen)}`);
    expect(ran).toBeGreaterThanOrEqual(RUNS);
    // A short run may contain none of them.
    const { finished, inParts, trashed, restored, gone } = seen;
    if (RUNS >= 200) expect(Math.min(finished, inParts, trashed, restored, gone)).toBeGreaterThan(0);
  });
});
