import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { sample } from "../audio/samples.ts";
import { type Fault, ProxiedBindings } from "../support/bindings.ts";
import type { Answer, Team } from "../support/client.ts";
import { OPERATOR } from "../support/harness.ts";
import { offsetOf } from "../support/tus.ts";
import { patternOf, Uploader } from "../support/uploader.ts";
import {
  encodeForm,
  expectErased,
  expectSettled,
  expectSound,
  must,
  type Outcome,
  sha256,
  World,
} from "../support/world.ts";

/*
 * Random sequences of steps by clients, the queue, the clock, and dying Workers for one team, compared with a model in
 * memory that has the expected files. After each sequence, all work is finished, and the two must agree.
 */

const settings = env as unknown as { STOWAGE_MODEL_RUNS?: string };
const RUNS = Number(settings.STOWAGE_MODEL_RUNS ?? 200);

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const MEBIBYTE = 1024 * 1024;
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

/** What the team has set on a file. */
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

  ask(method: string, path: string, bindings?: ProxiedBindings) {
    return this.world.ask(method, `/docs/v1/uploads${path}`, { token: this.#team.token }, { bindings });
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
    const files = new Map<string, Organized>(
      body.data.map(({ _id, name, folder, tags }: Organized & { _id: string }) => [_id, { name, folder, tags }]),
    );
    const ids = [...files.keys()];
    for (const upload of this.model.uploads) {
      if (upload.mayBeFinished && ids.includes(upload.client.id)) this.model.finish(upload);
    }
    return files;
  }

  update(id: string, json: Partial<Organized>, bindings?: ProxiedBindings) {
    const options = { token: this.#team.token, json };
    return this.world.ask("PATCH", `/docs/v1/uploads/${id}`, options, { bindings });
  }

  batch(ids: string[], batch: Batch, bindings?: ProxiedBindings) {
    const options = { token: this.#team.token, json: { ...batch, ids } };
    return this.world.ask("POST", "/docs/v1/uploads/batch", options, { bindings });
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

  /** A file, possibly deleted. Undefined if there never was one. */
  pick(index: number): string | undefined {
    const all = [...this.model.files.keys(), ...this.model.deletedIds];
    return all[index % all.length];
  }

  setWaveform(id: string, peak: number, bindings?: ProxiedBindings) {
    const json = { channels: [Array(16).fill(peak)] };
    const options = { token: this.#team.token, json };
    return this.world.ask("PUT", `/docs/v1/uploads/${id}/waveform`, options, { bindings });
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
    // A resumable upload of the model has no file name.
    const found = [...files].map(([id, file]) => [id, file.name === "unnamed" ? { ...file, name: "file" } : file]);
    expect(found).toEqual(expected);
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

type Step = (stage: Stage) => Promise<void>;
const step = (name: string, run: Step): [string, Step] => [name, run];
const index = fc.nat(1000);
const formContent = fc.nat(2);
const resumableContent = fc.oneof({ arbitrary: fc.nat(SMALL - 1), weight: 3 }, fc.integer({ min: SMALL, max: 5 }));
/** The portion of the remaining bytes to send. It is often all of them. */
const portion = fc.oneof(fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true }));
const death = fc
  .record({ call: fc.integer({ min: 1, max: 12 }), moment: fc.constantFrom("before" as const, "after" as const) })
  .map((where) => ({ ...where, failure: "death" as const }));
const describeFault = ({ call, moment }: { call: number; moment: string }) => `${moment} call ${call}`;

const upload = formContent.map((what) =>
  step(`upload ${what}`, async (stage) => {
    const { status, id } = await must(stage.send(what));
    expect(status).toBe(200);
    expect(stage.model.files.has(id) || stage.model.deletedIds.has(id)).toBe(false);
    stage.model.files.set(id, what);
  }),
);

const brokenUpload = fc
  .record({ what: formContent, keep: fc.double({ min: 0, max: 0.99, noNaN: true }) })
  .map(({ what, keep }) =>
    step(`upload ${what} truncated to ${keep}`, async (stage) => {
      const { status } = await must(stage.send(what, { keep }));
      expect(status).toBe(400);
    }),
  );

const dyingUpload = fc.record({ what: formContent, fault: death }).map(({ what, fault }) =>
  step(`upload ${what}, dead ${describeFault(fault)}`, async (stage) => {
    const answer = await stage.send(what, { bindings: new ProxiedBindings(fault) });
    if (answer === "dead") return stage.learn(what);
    expect(answer.status).toBe(200);
    stage.model.files.set(answer.id, what);
  }),
);

const keyedUpload = fc.record({ what: formContent, key: fc.constantFrom("k", "l") }).map(({ what, key }) =>
  step(`upload ${what} with key ${key}`, async (stage) => {
    const { model, world } = stage;
    const first = model.keys.get(key);
    const answer: Answer = await must(stage.send(what, { key }));
    if (first && first.at >= world.system.now() - DAY) {
      if (first.content === what) expect([answer.status, answer.id]).toEqual([200, first.id]);
      else expect([answer.status, answer.code]).toEqual([409, "idempotency_conflict"]);
      return;
    }
    expect(answer.status).toBe(200);
    expect(model.files.has(answer.id)).toBe(false);
    model.files.set(answer.id, what);
    model.keys.set(key, { id: answer.id, content: what, at: world.system.now() });
  }),
);

const list = fc.constant(step("list", (stage) => stage.expectAgreement()));

const sign = index.map((at) =>
  step(`sign ${at}`, async (stage) => {
    const id = stage.pick(at) ?? "none";
    const { status } = await must(stage.ask("GET", `/${id}`));
    expect(status).toBe(stage.model.files.has(id) ? 200 : 404);
  }),
);

const remove = index.map((at) =>
  step(`delete ${at}`, async (stage) => {
    const id = stage.pick(at);
    if (!id) return;
    const { status } = await must(stage.ask("DELETE", `/${id}`));
    // An interrupted deletion can be repeated.
    expect(stage.model.files.has(id) ? [200] : [200, 404]).toContain(status);
    stage.model.remove(id);
  }),
);

const dyingRemove = fc.record({ at: index, fault: death }).map(({ at, fault }) =>
  step(`delete ${at}, dead ${describeFault(fault)}`, async (stage) => {
    const id = stage.pick(at);
    if (!id) return;
    await stage.ask("DELETE", `/${id}`, new ProxiedBindings(fault));
    if (!(await stage.listed()).includes(id)) stage.model.remove(id);
  }),
);

const reprocess = index.map((at) =>
  step(`reprocess ${at}`, async (stage) => {
    const id = stage.pick(at) ?? "none";
    const { status } = await must(stage.ask("POST", `/${id}/reprocess`));
    expect(status).toBe(stage.model.files.has(id) ? 200 : 404);
  }),
);

const peak = fc.constantFrom(-1, 0, 1);

const setWaveform = fc.record({ at: index, to: peak }).map(({ at, to }) =>
  step(`set waveform ${at} to ${to}`, async (stage) => {
    const id = stage.pick(at) ?? "none";
    const { status } = await must(stage.setWaveform(id, to));
    const isThere = stage.model.files.has(id);
    expect(status).toBe(isThere ? 200 : 404);
    if (isThere) stage.model.waveforms.set(id, to);
  }),
);

const askWaveform = index.map((at) =>
  step(`get waveform ${at}`, async (stage) => {
    const id = stage.pick(at) ?? "none";
    expect(await stage.waveform(id)).toBe(stage.model.waveforms.get(id));
  }),
);

const dyingSetWaveform = fc.record({ at: index, to: peak, fault: death }).map(({ at, to, fault }) =>
  step(`set waveform ${at} to ${to}, dead ${describeFault(fault)}`, async (stage) => {
    const { files, waveforms } = stage.model;
    const id = stage.pick(at) ?? "none";
    await stage.setWaveform(id, to, new ProxiedBindings(fault));
    const found = await stage.waveform(id);
    expect(files.has(id) ? [waveforms.get(id), to] : [undefined]).toContain(found);
    if (found !== undefined) waveforms.set(id, found);
  }),
);

const organized = fc.record(
  {
    name: fc.constantFrom("renamed", "Größe %_"),
    folder: fc.constantFrom("", "a", "a/b"),
    tags: fc.constantFrom<string[][]>([], ["x"], ["y", "x"]),
  },
  { requiredKeys: ["folder"] },
);
/** Without a fault, or with the death of the Worker. */
const update = (deaths: fc.Arbitrary<Fault | null>) =>
  fc.record({ at: index, to: organized, fault: deaths }).map(({ at, to, fault }) =>
    step(`update ${at} to ${JSON.stringify(to)}${fault ? `, dead ${describeFault(fault)}` : ""}`, async (stage) => {
      const { model } = stage;
      const id = stage.pick(at) ?? "none";
      const answer = await stage.update(id, to, new ProxiedBindings(...(fault ? [fault] : [])));
      const isThere = model.files.has(id);
      if (answer !== "dead") expect(answer.status).toBe(isThere ? 200 : 404);
      if (!isThere) return;
      const before = model.organizedAs(id);
      const after = { ...before, ...to };
      const found = { ...(await stage.files()).get(id) } as Organized;
      if (found.name === "unnamed") found.name = AS_UPLOADED.name;
      expect(answer === "dead" ? [before, after] : [after]).toContainEqual(found);
      model.organized.set(id, found);
    }),
  );

const batchOf = fc.oneof(
  fc.record({ action: fc.constantFrom("tag", "untag"), tags: fc.constantFrom(["x"], ["y", "z"]) }),
  fc.record({ action: fc.constant("move"), folder: fc.constantFrom("", "a") }),
  fc.record({ action: fc.constant("delete") }),
) as fc.Arbitrary<Batch>;
const batch = (deaths: fc.Arbitrary<Fault | null>) =>
  fc
    .record({ at: fc.uniqueArray(index, { minLength: 1, maxLength: 3 }), what: batchOf, fault: deaths })
    .map(({ at, what, fault }) =>
      step(`batch ${JSON.stringify(what)} of ${at}${fault ? `, dead ${describeFault(fault)}` : ""}`, async (stage) => {
        const { model } = stage;
        const ids = [...new Set(at.map((one) => stage.pick(one) ?? "none"))];
        const answer = await stage.batch(ids, what, new ProxiedBindings(...(fault ? [fault] : [])));
        const there = ids.filter((id) => model.files.has(id));
        const files = await stage.files();
        const changed = new Map(there.map((id) => [id, changedBy(model.organizedAs(id), what)]));
        const isDone = there.every((id) => {
          if (what.action === "delete") return !files.has(id);
          const file = files.get(id);
          const name = file?.name === "unnamed" ? AS_UPLOADED.name : file?.name;
          return JSON.stringify({ ...file, name }) === JSON.stringify(changed.get(id));
        });
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
      }),
    );

/** Takes any message out of the queue, because queues do not guarantee an order. */
const take = (stage: Stage, at: number): string | undefined =>
  stage.world.messages.splice(at % Math.max(1, stage.world.messages.length), 1)[0];

const deliver = index.map((at) =>
  step(`deliver ${at}`, async (stage) => {
    const message = take(stage, at);
    if (!message) return;
    if (typeof (await stage.world.deliver(message)) === "number") stage.world.messages.push(message);
  }),
);

const dyingJob = fc.record({ at: index, fault: death, redelivered: fc.boolean() }).map(({ at, fault, redelivered }) =>
  step(`deliver ${at}, dead ${describeFault(fault)}${redelivered ? ", then redelivered" : ""}`, async (stage) => {
    const message = take(stage, at);
    if (!message) return;
    const ended = await stage.world.deliver(message, new ProxiedBindings(fault));
    if (ended === "dead" ? redelivered : ended !== null) stage.world.messages.push(message);
  }),
);

const twoWorkers = index.map((at) =>
  step(`deliver ${at} to two consumers`, async (stage) => {
    const message = take(stage, at);
    if (message) await Promise.all([stage.world.deliver(message), stage.world.deliver(message)]);
  }),
);

const duplicate = index.map((at) =>
  step(`duplicate message ${at}`, async ({ world: { messages } }) => {
    const message = messages[at % messages.length];
    if (message) messages.push(message);
  }),
);

const drop = index.map((at) =>
  step(`drop message ${at}`, async (stage) => {
    take(stage, at);
  }),
);

const wait = fc.constantFrom(1, 3, 10, 25 * 60).map((minutes) =>
  step(`wait ${minutes} min`, async ({ world, model }) => {
    world.aheadMilliseconds += minutes * MINUTE;
    if (minutes * MINUTE > DAY) for (const upload of model.uploads) upload.isOld = true;
  }),
);

const recovery = fc.constant(
  step("recovery", async ({ world }) => {
    await world.recover();
  }),
);

const dyingRecovery = death.map((fault) =>
  step(`recovery, dead ${describeFault(fault)}`, async ({ world }) => {
    await world.recover(new ProxiedBindings(fault));
  }),
);

const createUpload = fc.record({ what: resumableContent, first: fc.constantFrom(0, 0.5, 1) }).map(({ what, first }) =>
  step(`create upload ${what} with ${first} of it`, async (stage) => {
    const client = stage.uploader(what);
    const sent = Math.floor(client.bytes.length * first);
    expect([(await must(client.create(undefined, sent))).status, client.reportedOffset]).toEqual([201, sent]);
    const upload = new Upload(client, what);
    stage.model.uploads.push(upload);
    if (first === 1) stage.model.finish(upload);
  }),
);

const dyingCreate = fc
  .record({ what: fc.nat(SMALL - 1), first: fc.constantFrom(0, 0.5, 1), fault: death })
  .map(({ what, first, fault }) =>
    step(`create upload ${what} with ${first} of it, dead ${describeFault(fault)}`, async (stage) => {
      const client = stage.uploader(what);
      const sent = Math.floor(client.bytes.length * first);
      const answer = await client.create(new ProxiedBindings(fault), sent);
      if (answer === "dead") return stage.learn(what);
      expect([answer.status, client.reportedOffset]).toEqual([201, sent]);
      const upload = new Upload(client, what);
      stage.model.uploads.push(upload);
      if (first === 1) stage.model.finish(upload);
    }),
  );

/** The possible statuses of an append at the offset that the client knows. */
const appendStatuses = ({ isFinished, reportedOffset: offset, sizeBytes, sentBytes }: Upload): number[] => {
  if (isFinished) return [offset === sizeBytes ? 204 : 409];
  return sentBytes === offset ? [204] : [204, 409];
};

/** Sends bytes from the last reported offset. */
const append = (name: string, isInterrupted: boolean, deaths: fc.Arbitrary<Fault | null>) =>
  fc
    .record({ at: index, part: portion, hasNoMemory: fc.boolean(), fault: deaths })
    .map(({ at, part, hasNoMemory, fault }) =>
      step(
        `${name} ${at}, ${part}${hasNoMemory ? " without memory" : ""}${fault ? `, dead ${describeFault(fault)}` : ""}`,
        async (stage) => {
          const upload = stage.pickUpload(at);
          if (!upload) return;
          const { client, sizeBytes } = upload;
          const from = upload.reportedOffset;
          const to = from + Math.ceil((sizeBytes - from) * part);
          const expected = appendStatuses(upload);
          const wasOpen = !upload.isOld && !upload.isDeleted && !upload.isFinished;
          client.hasNoMemory = hasNoMemory;
          const bindings = new ProxiedBindings(...(fault ? [fault] : []));
          const sent: Promise<Outcome<Answer>> = isInterrupted
            ? client.sendInterrupted(from, to, bindings)
            : client.send(from, to, bindings);
          const answer = await sent;
          client.hasNoMemory = false;
          if (wasOpen) upload.sentBytes = Math.max(upload.sentBytes, to);
          if (answer === "dead") return;
          stage.learnFrom(upload, answer, expected);
          if (answer.status !== 204 || !wasOpen) return;
          const lost = to - offsetOf(answer);
          if (isInterrupted) expect(lost, "bytes lost by the interruption").toBeLessThanOrEqual(PART_BYTES);
          else expect(lost).toBe(0);
        },
      ),
    );

const twoAppends = fc.record({ at: index, one: portion, other: portion }).map(({ at, one, other }) =>
  step(`append twice to ${at} at once, ${one} and ${other}`, async (stage) => {
    const upload = stage.pickUpload(at);
    if (!upload?.isCertain) return;
    const { client, sizeBytes, reportedOffset: from } = upload;
    const ends = [one, other].map((part) => from + Math.max(1, Math.ceil((sizeBytes - from) * part)));
    upload.sentBytes = Math.max(...ends);
    const answers = await Promise.all(ends.map((to) => must(client.send(from, to))));
    const taken = answers.filter(({ status }) => status === 204);
    expect(answers.map(({ status, code }) => code ?? status).sort()).toEqual([204, "offset_mismatch"]);
    expect(ends.map((to, i) => to === offsetOf(answers[i] as Answer))).toContain(true);
    for (const answer of taken) stage.learnFrom(upload, answer, [204]);
  }),
);

const wrongAppend = fc.record({ at: index, by: fc.constantFrom(-100_000, -1, 1, 100_000) }).map(({ at, by }) =>
  step(`append to ${at} at an offset off by ${by}`, async (stage) => {
    const upload = stage.pickUpload(at);
    if (!upload?.isCertain) return;
    const wrong = Math.max(0, upload.reportedOffset + by);
    if (wrong === upload.reportedOffset) return;
    const answer = await must(upload.client.patch(wrong, new Uint8Array(1), { "Content-Length": "1" }));
    expect([answer.status, answer.code]).toEqual([409, "offset_mismatch"]);
  }),
);

const askUpload = index.map((at) =>
  step(`get progress of ${at}`, async (stage) => {
    const upload = stage.pickUpload(at);
    if (upload) stage.learnFrom(upload, await must(upload.client.head()), [200]);
  }),
);

const dyingAskUpload = fc.record({ at: index, fault: death }).map(({ at, fault }) =>
  step(`get progress of ${at}, dead ${describeFault(fault)}`, async (stage) => {
    const upload = stage.pickUpload(at);
    const answer = await upload?.client.head(new ProxiedBindings(fault));
    if (upload && answer && answer !== "dead") stage.learnFrom(upload, answer, [200]);
  }),
);

const cancelUpload = (deaths: fc.Arbitrary<Fault | null>) =>
  fc.record({ at: index, fault: deaths }).map(({ at, fault }) =>
    step(`cancel upload ${at}${fault ? `, dead ${describeFault(fault)}` : ""}`, async (stage) => {
      const upload = stage.pickUpload(at);
      if (!upload) return;
      const { isFinished, mayBeFinished, client } = upload;
      const answer = await client.ask("DELETE", {}, undefined, new ProxiedBindings(...(fault ? [fault] : [])));
      if (answer === "dead") {
        upload.mayBeDeleted = true;
        return;
      }
      // An expired upload can still be canceled.
      const expected = isFinished ? [403] : [204, ...(mayBeFinished ? [403] : [])];
      if (upload.isOld && answer.status === 204) upload.isOld = false;
      stage.learnFrom(upload, answer, expected);
      if (answer.status === 204) {
        upload.isDeleted = true;
        stage.model.deletedIds.add(client.id);
      }
    }),
  );

const steps = fc.array(
  fc.oneof(
    { arbitrary: upload, weight: 3 },
    brokenUpload,
    dyingUpload,
    { arbitrary: keyedUpload, weight: 2 },
    list,
    sign,
    remove,
    dyingRemove,
    { arbitrary: reprocess, weight: 2 },
    { arbitrary: setWaveform, weight: 2 },
    dyingSetWaveform,
    askWaveform,
    { arbitrary: update(fc.constant(null)), weight: 2 },
    update(death),
    { arbitrary: batch(fc.constant(null)), weight: 2 },
    batch(death),
    { arbitrary: deliver, weight: 3 },
    dyingJob,
    twoWorkers,
    duplicate,
    drop,
    { arbitrary: wait, weight: 2 },
    recovery,
    dyingRecovery,
    { arbitrary: createUpload, weight: 4 },
    dyingCreate,
    { arbitrary: append("append to", false, fc.constant(null)), weight: 4 },
    { arbitrary: append("append to", false, death), weight: 3 },
    { arbitrary: append("interrupt", true, fc.constant(null)), weight: 2 },
    append("interrupt", true, death),
    { arbitrary: twoAppends, weight: 2 },
    wrongAppend,
    { arbitrary: askUpload, weight: 2 },
    dyingAskUpload,
    cancelUpload(fc.constant(null)),
    cancelUpload(death),
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

async function play(names: [string, Step][], isTeamDeleted: boolean): Promise<void> {
  const stage = new Stage(await newTeam());
  for (const [, run] of names) await run(stage);
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
      fc.asyncProperty(steps, fc.nat(4), async (names, ending) => {
        ran++;
        await play(names, ending === 0);
      }),
      { numRuns: RUNS },
    );
    await annotate(`model: ${ran} runs; resumable uploads: ${JSON.stringify(seen)}`);
    expect(ran).toBeGreaterThanOrEqual(RUNS);
    // A short run may contain none of them.
    if (RUNS >= 200) expect([seen.finished > 0, seen.inParts > 0]).toEqual([true, true]);
  });
});
