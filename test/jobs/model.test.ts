import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { databaseOf } from "../../src/platform/system.ts";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { MEBIBYTE, patternOf, sha256 } from "../support/bytes.ts";
import type { Answer, Team } from "../support/client.ts";
import { OPERATOR } from "../support/harness.ts";
import { teamsByDatabase } from "../support/stores.ts";
import { DAY, MINUTE } from "../support/time.ts";
import { offsetOf } from "../support/tus.ts";
import { Uploader } from "../support/uploader.ts";
import { encodeForm, expectErased, expectSettled, expectSound, must, World } from "../support/world.ts";

/*
 * Random sequences of steps by clients, the queue, the clock, and dying Workers for one team, compared with a model in
 * memory that has the expected files. After each sequence, all work is finished, and the two must agree.
 */

const settings = env as unknown as { STOWAGE_MODEL_RUNS?: string };
const RUNS = Number(settings.STOWAGE_MODEL_RUNS ?? 200);

const PART_BYTES = 5 * MEBIBYTE;

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
}
const AS_UPLOADED: Organized = { name: "file", folder: "", tags: [] };

type Batch = { action: "tag" | "untag"; tags: string[] } | { action: "move"; folder: string } | { action: "delete" };

function changedBy(file: Organized, batch: Batch): Organized {
  if (batch.action === "tag") return { ...file, tags: [...new Set([...file.tags, ...batch.tags])] };
  if (batch.action === "untag") return { ...file, tags: file.tags.filter((tag) => !batch.tags.includes(tag)) };
  return batch.action === "move" ? { ...file, folder: batch.folder } : file;
}

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

  ids(): string[] {
    return [...this.files.keys()].sort().reverse();
  }

  organizedAs(id: string): Organized {
    return this.organized.get(id) ?? AS_UPLOADED;
  }

  add(id: string, content: number): void {
    expect(this.files.has(id) || this.deletedIds.has(id), "a new id").toBe(false);
    this.files.set(id, content);
  }

  finish(upload: Upload): void {
    expect(this.deletedIds.has(upload.client.id), "a deleted id reappeared").toBe(false);
    upload.isFinished = true;
    this.files.set(upload.client.id, upload.content);
  }

  remove(id: string): void {
    this.files.delete(id);
    this.waveforms.delete(id);
    this.organized.delete(id);
    this.deletedIds.add(id);
    for (const [key, { id: named }] of this.keys) if (named === id) this.keys.delete(key);
  }
}

class Stage {
  readonly world = new World();
  readonly model = new Model();
  readonly #team: Team;

  constructor(team: Team) {
    this.#team = team;
  }

  /** Deletes the team in the middle of its work. Nothing of it is left once the recovery job is done. */
  async expectDeletion(): Promise<void> {
    const path = `/auth/v1/teams/${this.teamId}`;
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

  async listed(): Promise<string[]> {
    return [...(await this.files()).keys()];
  }

  /** The listed files. */
  async files(): Promise<Map<string, Organized>> {
    const { status, body } = await must(this.ask("GET", "?limit=100"));
    expect(status).toBe(200);
    // A resumable upload of the model has no file name.
    const nameOf = (name: string) => (name === "unnamed" ? AS_UPLOADED.name : name);
    const files = new Map<string, Organized>(
      body.data.map(({ _id, name, folder, tags }: Organized & { _id: string }) => [
        _id,
        { name: nameOf(name), folder, tags },
      ]),
    );
    const ids = [...files.keys()];
    for (const upload of this.model.uploads) {
      if (upload.mayBeFinished && ids.includes(upload.client.id)) this.model.finish(upload);
    }
    return files;
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

  /** A file, possibly deleted. An unknown id if there never was one. */
  pick(index: number): string {
    const all = [...this.model.files.keys(), ...this.model.deletedIds];
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

const remove = step("delete", [1, 1], index, async (stage, at, bindings) => {
  const id = stage.pick(at);
  const answer = await stage.ask("DELETE", `/${id}`, bindings);
  if (id === NO_ID || (answer === "dead" && (await stage.listed()).includes(id))) return;
  // An interrupted deletion can be repeated.
  if (answer !== "dead") expect(stage.model.files.has(id) ? [200] : [200, 404]).toContain(answer.status);
  stage.model.remove(id);
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
  },
  { requiredKeys: ["folder"] },
);
const update = step("update", [2, 1], fc.record({ at: index, to: organized }), async (stage, { at, to }, bindings) => {
  const { model } = stage;
  const id = stage.pick(at);
  const answer = await stage.ask("PATCH", `/${id}`, bindings, to);
  const isThere = model.files.has(id);
  if (answer !== "dead") expect(answer.status).toBe(isThere ? 200 : 404);
  if (!isThere) return;
  const before = model.organizedAs(id);
  const after = { ...before, ...to };
  const found = (await stage.files()).get(id) as Organized;
  expect(answer === "dead" ? [before, after] : [after]).toContainEqual(found);
  model.organized.set(id, found);
});

const batchOf = fc.oneof(
  fc.record({ action: fc.constantFrom("tag", "untag"), tags: fc.constantFrom(["x"], ["y", "z"]) }),
  fc.record({ action: fc.constant("move"), folder: fc.constantFrom("", "a") }),
  fc.record({ action: fc.constant("delete") }),
) as fc.Arbitrary<Batch>;
const batch = step(
  "batch",
  [2, 1],
  fc.record({ at: fc.uniqueArray(index, { minLength: 1, maxLength: 3 }), what: batchOf }),
  async (stage, { at, what }, bindings) => {
    const { model } = stage;
    const ids = [...new Set(at.map((one) => stage.pick(one)))];
    const answer = await stage.ask("POST", "/batch", bindings, { ...what, ids });
    const there = ids.filter((id) => model.files.has(id));
    const files = await stage.files();
    const changed = new Map(there.map((id) => [id, changedBy(model.organizedAs(id), what)]));
    const isDone = there.every((id) =>
      what.action === "delete" ? !files.has(id) : JSON.stringify(files.get(id)) === JSON.stringify(changed.get(id)),
    );
    if (answer === "dead") {
      if (!isDone) return;
    } else {
      expect([answer.status, isDone]).toEqual([200, true]);
      const results = answer.body.data.map(({ _id, ok }: { _id: string; ok: boolean }) => [_id, ok]);
      // A deletion that was interrupted can be repeated.
      const isSure = ([id]: [string, boolean]) => what.action !== "delete" || there.includes(id);
      const expected = ids.map((id): [string, boolean] => [id, there.includes(id)]);
      expect(results.filter(isSure)).toEqual(expected.filter(isSure));
    }
    for (const [id, file] of changed) {
      if (what.action === "delete") model.remove(id);
      else model.organized.set(id, file);
    }
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

const wait = step("wait minutes", [2, 0], fc.constantFrom(1, 3, 10, 25 * 60), async ({ world, model }, minutes) => {
  world.aheadMilliseconds += minutes * MINUTE;
  if (minutes * MINUTE > DAY) for (const one of model.uploads) one.isOld = true;
});

const recovery = step("recovery", [1, 1], fc.constant(null), ({ world }, _, bindings) => world.recover(bindings));

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

const sequences = fc.array(
  fc.oneof(
    ...[upload, brokenUpload, keyedUpload, list, sign, remove, reprocess, setWaveform, askWaveform, update, batch],
    ...[deliver, twoWorkers, duplicate, drop, wait, recovery, createUpload, append(false, 4, 3), append(true, 2, 1)],
    ...[twoAppends, wrongAppend, askUpload, cancelUpload],
  ),
  { minLength: 1, maxLength: 24, size: "max" },
);

/** Counts of the resumable uploads of all runs. */
const seen = { created: 0, finished: 0, inParts: 0, deleted: 0, expired: 0, deadMidway: 0 };

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

async function play(steps: Step[], isTeamDeleted: boolean): Promise<void> {
  const stage = new Stage(await newTeam());
  for (const [, run] of steps) await run(stage);
  count(stage.model.uploads);
  if (isTeamDeleted) return stage.expectDeletion();
  await expectSound(stage.teamId);
  await stage.expectAgreement();

  await stage.world.recoverAll([stage.teamId]);
  const rows = await expectSettled(stage.teamId, { world: stage.world });
  await stage.expectAgreement();
  expect(rows.map(({ id }) => id)).toEqual(stage.model.ids().reverse());
  for (const id of [...stage.model.files.keys(), ...stage.model.deletedIds]) {
    expect(await stage.waveform(id), "the waveform").toBe(stage.model.waveforms.get(id));
  }
  for (const row of rows) {
    const what = stage.model.files.get(row.id) ?? -1;
    expect([row.sha256, row.status, row.audio !== null]).toEqual([digests[what], "completed", what === 2]);
  }
}

describe("The service", () => {
  test("agrees with a model in memory after any sequence of steps", {
    timeout: 120_000 + RUNS * 5000,
  }, async ({ annotate }) => {
    let ran = 0;
    await fc.assert(
      fc.asyncProperty(sequences, fc.nat(4), async (steps, ending) => {
        ran++;
        await play(steps, ending === 0);
      }),
      { numRuns: RUNS },
    );
    // No team has a row outside of the database that its id names.
    const homes = await teamsByDatabase();
    expect(homes.map((teams) => [...teams].filter((id) => homes[databaseOf(id)] !== teams))).toEqual([[], [], []]);
    expect(homes.every((teams) => teams.size >= Math.min(RUNS, 10))).toBe(true);
    await annotate(`model: ${ran} runs; resumable uploads: ${JSON.stringify(seen)}`);
    expect(ran).toBeGreaterThanOrEqual(RUNS);
    // A short run may contain none of them.
    if (RUNS >= 200) expect([seen.finished > 0, seen.inParts > 0]).toEqual([true, true]);
  });
});
