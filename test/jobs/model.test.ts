import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { sample } from "../audio/samples.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import type { Answer, Team } from "../support/client.ts";
import { encodeForm, expectSettled, expectSound, must, sha256, World } from "../support/world.ts";

/*
 * Random sequences of what clients, the queue, the clock and dying Workers do to one team, beside a map in memory that
 * says which files there must be. After each sequence all is brought to its end, and the two must agree.
 */

const settings = env as unknown as { STOWAGE_MODEL_RUNS?: string; STOWAGE_MODEL_SEED?: string };
const RUNS = Number(settings.STOWAGE_MODEL_RUNS ?? 200);
const SEED = Number(settings.STOWAGE_MODEL_SEED ?? Math.floor(Math.random() * 2 ** 31));

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

const contents = ["one text", "another text", sample("tone.m4a").bytes] as const;
const digests = await Promise.all(
  contents.map((content) => sha256(typeof content === "string" ? new TextEncoder().encode(content) : content)),
);

/** The team as it must be. `files` are those listed: id to index of content. */
class Model {
  readonly files = new Map<string, number>();
  readonly gone = new Set<string>();
  readonly keys = new Map<string, { id: string; content: number; at: number }>();

  ids(): string[] {
    return [...this.files.keys()].sort().reverse();
  }

  remove(id: string): void {
    this.files.delete(id);
    this.gone.add(id);
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
    const { body, contentType } = await encodeForm("file", contents[content] ?? "");
    const form = { body: body.slice(0, Math.floor(body.length * keep)), contentType };
    return this.world.upload(this.#team, form, key === undefined ? {} : { "Idempotency-Key": key }, { bindings });
  }

  async listed(): Promise<string[]> {
    const { status, body } = await must(this.ask("GET", "?limit=100"));
    expect(status).toBe(200);
    return body.data.map(({ _id }: { _id: string }) => _id);
  }

  /** A file that is there, or was once; undefined where there never was one. */
  pick(index: number): string | undefined {
    const all = [...this.model.files.keys(), ...this.model.gone];
    return all[index % all.length];
  }

  async expectAgreement(): Promise<void> {
    expect(await this.listed()).toEqual(this.model.ids());
  }

  /** What a dead Worker had done is seen at once, and stays. */
  async learn(content: number): Promise<void> {
    const found = (await this.listed()).filter((id) => !this.model.files.has(id));
    expect(found.length).toBeLessThanOrEqual(1);
    for (const id of found) {
      expect(this.model.gone.has(id), "a deleted id reappeared").toBe(false);
      this.model.files.set(id, content);
    }
  }
}

type Step = (stage: Stage) => Promise<void>;
const step = (name: string, run: Step): [string, Step] => [name, run];
const index = fc.nat(1000);
const content = fc.nat(contents.length - 1);
const death = fc
  .record({ call: fc.integer({ min: 1, max: 7 }), moment: fc.constantFrom("before" as const, "after" as const) })
  .map((where) => ({ ...where, failure: "death" as const }));
const told = ({ call, moment }: { call: number; moment: string }) => `${moment} call ${call}`;

const upload = content.map((what) =>
  step(`upload ${what}`, async (stage) => {
    const { status, id } = await must(stage.send(what));
    expect(status).toBe(200);
    expect(stage.model.files.has(id) || stage.model.gone.has(id)).toBe(false);
    stage.model.files.set(id, what);
  }),
);

const brokenUpload = fc
  .record({ what: content, keep: fc.double({ min: 0, max: 0.99, noNaN: true }) })
  .map(({ what, keep }) =>
    step(`upload ${what} up to ${keep}`, async (stage) => {
      const { status } = await must(stage.send(what, { keep }));
      expect(status).toBe(400);
    }),
  );

const dyingUpload = fc.record({ what: content, fault: death }).map(({ what, fault }) =>
  step(`upload ${what}, dead ${told(fault)}`, async (stage) => {
    const answer = await stage.send(what, { bindings: new ProxiedBindings(fault) });
    if (answer === "dead") return stage.learn(what);
    expect(answer.status).toBe(200);
    stage.model.files.set(answer.id, what);
  }),
);

const keyedUpload = fc.record({ what: content, key: fc.constantFrom("k", "l") }).map(({ what, key }) =>
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
    // A deletion that broke off may be asked for again.
    expect(stage.model.files.has(id) ? [200] : [200, 404]).toContain(status);
    stage.model.remove(id);
  }),
);

const dyingRemove = fc.record({ at: index, fault: death }).map(({ at, fault }) =>
  step(`delete ${at}, dead ${told(fault)}`, async (stage) => {
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

/** Takes any message out of the queue: order is not promised. */
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
  step(`deliver ${at}, dead ${told(fault)}${redelivered ? ", to be delivered again" : ""}`, async (stage) => {
    const message = take(stage, at);
    if (!message) return;
    const ended = await stage.world.deliver(message, new ProxiedBindings(fault));
    if (ended === "dead" ? redelivered : ended !== null) stage.world.messages.push(message);
  }),
);

const twoWorkers = index.map((at) =>
  step(`deliver ${at} to two at once`, async (stage) => {
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
  step(`wait ${minutes} min`, async ({ world }) => {
    world.aheadMilliseconds += minutes * MINUTE;
  }),
);

const recovery = fc.constant(
  step("recovery", async ({ world }) => {
    await world.recover();
  }),
);

const dyingRecovery = death.map((fault) =>
  step(`recovery, dead ${told(fault)}`, async ({ world }) => {
    await world.recover(new ProxiedBindings(fault));
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
    { arbitrary: deliver, weight: 3 },
    dyingJob,
    twoWorkers,
    duplicate,
    drop,
    { arbitrary: wait, weight: 2 },
    recovery,
    dyingRecovery,
  ),
  { minLength: 1, maxLength: 16, size: "max" },
);

async function play(names: [string, Step][]): Promise<void> {
  const stage = new Stage(await new World().newTeam());
  for (const [, run] of names) await run(stage);
  await expectSound(stage.teamId);
  await stage.expectAgreement();

  await stage.world.heal([stage.teamId]);
  const rows = await expectSettled(stage.teamId);
  await stage.expectAgreement();
  expect(rows.map(({ id }) => id)).toEqual(stage.model.ids().reverse());
  for (const row of rows) {
    const what = stage.model.files.get(row.id) ?? -1;
    expect([row.sha256, row.status, row.audio !== null]).toEqual([digests[what], "completed", what === 2]);
  }
}

describe("The service and a map in memory", () => {
  test("The service and a map in memory agree, whatever is done in whatever order.", {
    timeout: 120_000 + RUNS * 5000,
  }, async ({ annotate }) => {
    let ran = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (names) => {
        ran++;
        await play(names);
      }),
      { numRuns: RUNS, seed: SEED },
    );
    await annotate(`model: ${ran} runs, seed ${SEED}`);
    expect(ran).toBeGreaterThanOrEqual(RUNS);
  });
});
