import { env } from "cloudflare:workers";
import fc from "fast-check";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { SHARE, TEAM_SHARE } from "../../src/domain/events/turns.ts";
import type { DeliveryJob } from "../../src/platform/jobs.ts";
import type { Reply } from "../../src/platform/sender.ts";
import { realSystem } from "../../src/platform/system.ts";
import { MOMENTS, ProxiedBindings } from "../support/bindings.ts";
import type { Team } from "../support/client.ts";
import { emptyStores } from "../support/stores.ts";
import {
  begin,
  deliveriesOf,
  HOUR,
  type Hook,
  happen,
  idOf,
  MINUTE,
  newHook,
  SECOND,
  settle,
  status,
} from "../support/webhooks.ts";
import type { Post, World } from "../support/world.ts";

/* What a webhook with much to be sent may cost others: its share, and no more, whoever dies; and all of it is sent. */

const settings = env as unknown as { STOWAGE_MODEL_RUNS?: string; STOWAGE_MODEL_SEED?: string };
/** Fewer than of the model of files: each has hundreds of deliveries. */
const RUNS = Math.ceil(Number(settings.STOWAGE_MODEL_RUNS ?? 200) / 40);
const SEED = Number(settings.STOWAGE_MODEL_SEED ?? Math.floor(Math.random() * 2 ** 31));

const WAITING = { timeout: 110_000, interval: 5 };

// Recovery looks at all webhooks that there are.
beforeEach(emptyStores);

/** So many events at once, as rows, and the messages of their deliveries. */
async function happenOften(world: World, { teamId }: Team, { _id }: Hook, count: number): Promise<DeliveryJob[]> {
  const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)";
  const last = "(select max(seq) from events where team_id = ?1)";
  const [, inserted] = await env.DB.batch<{ seq: number }>([
    env.DB.prepare(
      `${numbers} insert into events select ?1, ${last} + i, 'apikey.created', 1, '{}', 'x', null, '{}', i from n`,
    ).bind(teamId, count),
    env.DB.prepare(
      `insert into deliveries (webhook_id, seq, team_id, type, status, due_at, created_at)
       select ?3, seq, team_id, type, 'pending', ?4, ?4 from events where team_id = ?1 order by seq desc limit ?2
       returning seq`,
    ).bind(teamId, count, _id, world.system.now()),
  ]);
  const seqs = (inserted?.results ?? []).map(({ seq }) => seq).sort((a, b) => a - b);
  const jobs = seqs.map((seq) => ({ teamId, webhookId: _id, seq }));
  world.deliveryJobs.push(...jobs);
  return jobs;
}

/** How the deliveries of a webhook have ended, or that they have not. */
async function endsOf({ _id }: Hook): Promise<Record<string, number>> {
  const { results } = await env.DB.prepare(
    "select iif(due_at is null, status, 'due') as end, count(*) as count from deliveries where webhook_id = ? group by 1",
  )
    .bind(_id)
    .all<{ end: string; count: number }>();
  return Object.fromEntries(results.map(({ end, count }) => [end, count]));
}

/** A receiver that answers when it is told to. */
class Patient {
  readonly #waiting: (() => void)[] = [];
  readonly answer = () => new Promise<Partial<Reply>>((resolve) => this.#waiting.push(() => resolve({})));
  get held(): number {
    return this.#waiting.length;
  }
  /** @returns how many it had held */
  release(): number {
    const held = this.#waiting.splice(0);
    for (const resolve of held) resolve();
    return held.length;
  }
}

const deliverAll = (world: World) => Promise.all(world.deliveryJobs.splice(0).map((job) => world.deliverEvent(job)));

describe("A webhook whose receiver takes its time", () => {
  test("A webhook holds its share of the queue, however much there is for it, and another's deliveries pass.", async () => {
    const { world, team, hook } = await begin();
    const other = await begin(1, world);
    const slow = new Patient();
    const quick = { ...other.hook, url: "https://quick.canary.example/" };
    await other.team.call("PATCH", `/auth/v1/webhooks/${quick._id}`, { json: { url: quick.url } });
    world.answer = ({ url }) => (url === quick.url ? {} : slow.answer());
    await happenOften(world, team, hook, 200);
    await happen(other.team);
    const delivering = deliverAll(world);
    await vi.waitUntil(async () => (await endsOf(other.hook)).succeeded === 1, WAITING);
    await vi.waitUntil(() => slow.held >= SHARE, WAITING);
    expect(slow.release()).toBe(SHARE);
    await delivering;
    expect(world.deliveryJobs, "each that ended let another go").toHaveLength(SHARE);
  });

  test("The webhooks of a team hold one share together, each its part, and all of them are sent all.", async () => {
    const { world, team, hooks } = await begin(10);
    const slow = new Patient();
    world.answer = slow.answer;
    const urls = new Map(hooks.map(({ _id }, i) => [_id, `https://hooks.canary.example/${i}`]));
    for (const [id, url] of urls) await team.call("PATCH", `/auth/v1/webhooks/${id}`, { json: { url } });
    for (const hook of hooks) await happenOften(world, team, hook, 20);
    const delivering = deliverAll(world);
    await vi.waitUntil(() => slow.held >= TEAM_SHARE, WAITING);
    const sent = Map.groupBy(world.posts, ({ url }) => url);
    for (const url of urls.values()) expect(sent.get(url)).toHaveLength(TEAM_SHARE / 10);
    world.answer = status(200);
    expect(slow.release()).toBe(TEAM_SHARE);
    await delivering;
    await world.drainDeliveries();
    for (const hook of hooks) expect(await endsOf(hook)).toEqual({ succeeded: 20 });
    expect(new Set(world.posts.map((post) => post.url + idOf(post))).size).toBe(200);
    expect(world.posts).toHaveLength(200);
  });

  test("A webhook has a share for itself where its team has no more than two, and a part of it where another is made.", async () => {
    const { world, team, hook } = await begin(2);
    for (const [count, share] of [
      [2, SHARE],
      [3, 16],
      [4, 12],
      [10, 5],
    ] as const) {
      const { data } = (await team.call("GET", "/auth/v1/webhooks")).body;
      for (let i = data.length; i < count; i++) await newHook(team, { types: ["user.created"] });
      const slow = new Patient();
      world.answer = slow.answer;
      await happenOften(world, team, hook, SHARE + 1);
      const delivering = deliverAll(world);
      await vi.waitUntil(() => slow.held >= share, WAITING);
      await realSystem.sleep(20);
      world.answer = status(200);
      expect(slow.release(), `of ${count} webhooks`).toBe(share);
      await delivering;
      await world.drainDeliveries();
    }
    expect((await endsOf(hook)).due).toBeUndefined();
  });

  test("A share that grows, as another webhook is deleted, is filled by the next run of recovery.", async () => {
    const { world, team, hook, hooks } = await begin(3);
    const slow = new Patient();
    world.answer = slow.answer;
    await happenOften(world, team, hook, 80);
    const delivering = deliverAll(world);
    await vi.waitUntil(() => slow.held >= 16, WAITING);
    await team.call("DELETE", `/auth/v1/webhooks/${hooks[1]!._id}`);
    world.answer = status(200);
    slow.release();
    await delivering;
    await world.drainDeliveries();
    world.aheadMilliseconds += 3 * MINUTE;
    await world.recover();
    await world.drainDeliveries();
    expect(await endsOf(hook)).toEqual({ succeeded: 80 });
    expect(new Set(world.posts.map(idOf)).size).toBe(80);
  });

  test("A delivery that fails lets another go too, and one that is sent twice lets one go.", async () => {
    const { world, team, hook } = await begin();
    const [first, second] = await happenOften(world, team, hook, 60);
    world.deliveryJobs = [];
    world.answer = status(500);
    await world.deliverEvent(first!);
    expect(world.deliveryJobs).toHaveLength(1);
    const slow = new Patient();
    world.answer = slow.answer;
    const delivering = Promise.all([world.deliverEvent(second!), world.deliverEvent(second!)]);
    await vi.waitUntil(() => slow.held === 2, WAITING);
    slow.release();
    await delivering;
    expect(world.deliveryJobs).toHaveLength(2);
  });

  test("A webhook with much to be sent is sent all of it, once, a share at a time, without recovery.", async () => {
    const { world, team, hook } = await begin();
    await happenOften(world, team, hook, 100);
    const slow = new Patient();
    world.answer = slow.answer;
    for (let rounds = 0; world.deliveryJobs.length > 0; rounds++) {
      expect(rounds).toBeLessThan(20);
      const jobs = world.deliveryJobs.length;
      const delivering = deliverAll(world);
      let ended = 0;
      void delivering.then(() => ended++);
      while (ended === 0) {
        expect(slow.held, `of ${jobs} messages`).toBeLessThanOrEqual(SHARE);
        if (slow.held >= Math.min(SHARE, jobs)) slow.release();
        await realSystem.sleep(1);
      }
    }
    expect(await endsOf(hook)).toEqual({ succeeded: 100 });
    expect(world.posts).toHaveLength(100);
    expect(new Set(world.posts.map(idOf)).size).toBe(100);
  });

  test("A replay sends the messages of one share, and each that ends sends another.", async () => {
    const { world, team, hook } = await begin();
    const [after] = (await team.call("GET", "/auth/v1/events?type=webhook.created")).body.data;
    await happenOften(world, team, hook, 60);
    await world.drainDeliveries();
    const json = { after: after._id };
    const { body } = await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json });
    expect(body.data.deliveries).toBe(60);
    expect(world.deliveryJobs).toHaveLength(SHARE);
    world.posts.length = 0;
    await world.drainDeliveries();
    expect(new Set(world.posts.map(idOf)).size).toBe(60);
  });

  test("No message waits for a receiver that takes its time, and what it answers counts all the same.", async () => {
    const { world, team, hook } = await begin();
    world.isHasty = true;
    const slow = new Patient();
    world.answer = slow.answer;
    await happenOften(world, team, hook, 60);
    await deliverAll(world);
    expect(slow.held).toBe(SHARE);
    expect(await endsOf(hook)).toEqual({ due: 60 });
    slow.release();
    await vi.waitUntil(() => world.deliveryJobs.length === SHARE, WAITING);
    expect(await endsOf(hook)).toEqual({ succeeded: SHARE, due: 60 - SHARE });
    const jobs = world.deliveryJobs.splice(0);
    world.answer = async () => {
      await realSystem.sleep(1);
      return { httpStatus: 500 };
    };
    await world.deliverEvent(jobs[0]!);
    await vi.waitUntil(() => world.deliveryJobs.length === 2, WAITING);
    expect(world.deliveryJobs, "it comes again, and lets another go").toContainEqual(jobs[0]);
  });

  test("A slow try whose end the database refuses is left to recovery.", async () => {
    const { world, team, hook } = await begin();
    world.isHasty = true;
    const slow = new Patient();
    world.answer = slow.answer;
    await happen(team);
    const outage = { call: 2, moment: "before", failure: "outage" } as const;
    expect(await world.deliverEvent(world.deliveryJobs.pop()!, new ProxiedBindings(outage))).toBeNull();
    slow.release();
    await vi.waitUntil(() => world.lines.some(({ event }) => event === "slow try failed"), WAITING);
    expect(world.deliveryJobs).toEqual([]);
    world.isHasty = false;
    world.answer = status(200);
    await settle(world, team);
    expect(await endsOf(hook)).toEqual({ succeeded: 1 });
  });

  test("A webhook that has asked for a short pause is sent on after it, without recovery.", async () => {
    const { world, team, hook } = await begin();
    await happenOften(world, team, hook, 60);
    world.answer = () => (world.posts.length === 40 ? { httpStatus: 429, retryAfter: "30" } : {});
    await world.drainDeliveries();
    expect(await endsOf(hook)).toEqual({ succeeded: 60 });
  });
});

describe("Recovery", () => {
  /** Rows that are long overdue, whose messages are lost. */
  async function loseMessages(world: World, team: Team, hook: Hook, count: number): Promise<void> {
    await happenOften(world, team, hook, count);
    world.deliveryJobs = [];
  }

  test("A run sends each webhook's oldest, a share of each, so that a backlog keeps no other waiting.", async () => {
    const { world, team, hook } = await begin();
    const other = await begin(1, world);
    await loseMessages(world, team, hook, 6000);
    world.aheadMilliseconds += SECOND;
    await loseMessages(world, other.team, other.hook, 2);
    world.aheadMilliseconds += 10 * MINUTE;
    await world.recover();
    const of = ({ _id }: Hook) => world.deliveryJobs.filter(({ webhookId }) => webhookId === _id);
    expect(of(other.hook)).toHaveLength(2);
    expect(of(hook)).toHaveLength(SHARE);
    const first = await env.DB.prepare("select min(seq) as seq from deliveries where webhook_id = ?")
      .bind(hook._id)
      .first<number>("seq");
    expect(of(hook).map(({ seq }) => seq)).toContain(first);
  });

  test("A run sends a team's share of the deliveries of its webhooks.", async () => {
    const { world, team, hooks } = await begin(10);
    for (const hook of hooks) await loseMessages(world, team, hook, 30);
    world.aheadMilliseconds += 3 * MINUTE;
    await world.recover();
    const sent = Map.groupBy(world.deliveryJobs, ({ webhookId }) => webhookId);
    expect([...sent.values()].map((jobs) => jobs.length)).toEqual(Array(10).fill(TEAM_SHARE / 10));
    await world.drainDeliveries();
    for (const hook of hooks) expect(await endsOf(hook)).toEqual({ succeeded: 30 });
  });

  test("A backlog whose messages are lost is sent to its end by one run, which starts it.", async () => {
    const { world, team, hook } = await begin();
    await loseMessages(world, team, hook, 80);
    world.aheadMilliseconds += 3 * MINUTE;
    await world.recover();
    await world.drainDeliveries();
    expect(await endsOf(hook)).toEqual({ succeeded: 80 });
  });

  test("Runs one after another send ever more seldom what has waited in the queue since.", async () => {
    const { world, team, hook } = await begin();
    await happenOften(world, team, hook, 1000);
    const waiting = world.deliveryJobs.length;
    const counts: number[] = [];
    for (let run = 0; run < 12; run++) {
      world.aheadMilliseconds += 5 * MINUTE;
      await world.recover();
      counts.push(world.deliveryJobs.length - waiting);
    }
    // After 5, 10, 20, 35 and 50 minutes.
    expect(counts).toEqual([1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5].map((times) => times * SHARE));
  });

  test("A webhook that is paused is sent no message until its pause is over.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    for (let i = 0; i < 10; i++) {
      await happen(team);
      await world.deliverEvent(world.deliveryJobs.pop()!);
    }
    await happenOften(world, team, hook, 100);
    await deliverAll(world);
    world.aheadMilliseconds += 4 * MINUTE;
    await world.recover();
    expect(world.deliveryJobs).toEqual([]);
    expect(world.posts).toHaveLength(10);
  });
});

describe("A webhook that is well again", () => {
  /** It has failed until it is paused, and so many of its deliveries wait. */
  async function pause(count: number) {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    for (let i = 0; i < 10; i++) {
      await happen(team);
      await world.deliverEvent(world.deliveryJobs.pop()!);
    }
    world.posts.length = 0;
    await happenOften(world, team, hook, count);
    await deliverAll(world);
    expect(world.posts).toEqual([]);
    return { world, team, hook };
  }

  test("A webhook that is well again is sent at once all that has waited, after its first success.", async () => {
    const { world, hook } = await pause(50);
    world.aheadMilliseconds += 8 * MINUTE;
    await world.recover();
    const probed = new Patient();
    world.answer = probed.answer;
    const delivering = deliverAll(world);
    // The others find it paused while one looks.
    await vi.waitUntil(() => probed.held === 1, WAITING);
    await realSystem.sleep(50);
    expect(probed.release()).toBe(1);
    await delivering;
    world.answer = status(200);
    const before = world.system.now();
    await world.drainDeliveries();
    expect(world.system.now() - before).toBeLessThan(MINUTE);
    expect((await endsOf(hook)).succeeded).toBeGreaterThanOrEqual(50);
  });

  test("A webhook that fails once more after its pause is sent nothing else.", async () => {
    const { world, hook } = await pause(50);
    world.aheadMilliseconds += 8 * MINUTE;
    await world.recover();
    await world.drainDeliveries();
    expect(world.posts).toHaveLength(1);
    expect((await endsOf(hook)).due).toBe(60);
  });

  test("While a webhook is paused, the log tells when its deliveries are sent.", async () => {
    const { team, hook } = await pause(1);
    const resumeAt = await env.DB.prepare("select resume_at from webhooks where id = ?")
      .bind(hook._id)
      .first<number>("resume_at");
    const [newest] = await deliveriesOf(team, hook._id);
    expect(Date.parse(newest.nextAttemptAt)).toBe(resumeAt);
  });
});

describe("A delivery that ends unsent", () => {
  test("A delivery of a webhook that was disabled meanwhile says so in the log.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "disabled" } });
    await settle(world, team);
    expect(world.posts).toEqual([]);
    const [{ status: ended, attempts }] = await deliveriesOf(team, hook._id);
    expect(ended).toBe("failed");
    expect(attempts).toMatchObject([{ httpStatus: null, error: "webhook_disabled", durationMilliseconds: 0 }]);
  });

  test("A delivery whose event was purged says so in the log.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    await env.DB.prepare("delete from events where team_id = ?").bind(team.teamId).run();
    await settle(world, team);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      { status: "failed", attempts: [{ error: "event_purged" }] },
    ]);
  });

  test("A webhook that is disabled or deleted with much to be sent leaves nothing due.", async () => {
    for (const [method, json, ends] of [
      ["PATCH", { status: "disabled" }, { failed: 60 }],
      ["DELETE", undefined, {}],
    ] as const) {
      const { world, team, hook } = await begin();
      await happenOften(world, team, hook, 60);
      await team.call(method, `/auth/v1/webhooks/${hook._id}`, { json });
      await world.drainDeliveries();
      expect(await endsOf(hook)).toEqual(ends);
      expect(world.posts).toEqual([]);
    }
  });
});

describe("Whatever dies", () => {
  const points = [1, 2, 3].flatMap((call) => MOMENTS.map((moment) => ({ call, moment })));
  test.each(points)(
    "Where each Worker of a share dies $moment its call $call, all is sent in the end.",
    async ({ call, moment }) => {
      const { world, team, hook } = await begin();
      await happenOften(world, team, hook, 60);
      for (const job of world.deliveryJobs.splice(0)) {
        await world.deliverEvent(job, new ProxiedBindings({ call, moment, failure: "death" }));
      }
      // The third call is to the queue: what it was given is lost.
      if (moment === "before") world.deliveryJobs = [];
      await settle(world, team);
      expect(await endsOf(hook)).toEqual({ succeeded: 60 });
      expect(new Set(world.posts.map(idOf)).size).toBe(60);
    },
  );
});

describe("A webhook and a set in memory", () => {
  interface Stage {
    world: World;
    team: Team;
    hook: Hook;
    wanted: Set<number>;
  }
  type Step = (stage: Stage) => Promise<unknown>;
  const step = (name: string, run: Step): [string, Step] => [name, run];
  const fault = fc.record({
    call: fc.integer({ min: 1, max: 4 }),
    moment: fc.constantFrom(...MOMENTS),
    failure: fc.constantFrom("death" as const, "transient" as const, "outage" as const),
  });
  const take = ({ world: { deliveryJobs } }: Stage, at: number) =>
    deliveryJobs.splice(at % Math.max(1, deliveryJobs.length), 1)[0];
  const deliverTo = async ({ world }: Stage, job: DeliveryJob, bindings?: ProxiedBindings) => {
    if (typeof (await world.deliverEvent(job, bindings)) === "number") world.deliveryJobs.push(job);
  };

  const burst = fc.integer({ min: 1, max: 60 }).map((count) =>
    step(`${count} events`, async (stage) => {
      for (const { seq } of await happenOften(stage.world, stage.team, stage.hook, count)) stage.wanted.add(seq);
    }),
  );
  const moods: Record<string, World["answer"]> = {
    well: status(200),
    broken: status(500),
    busy: status(429, "30"),
    "busy for long": status(503, "3600"),
    "well and broken by turns": ({ at, body }: Post) => ({ httpStatus: (at + body.length) % 2 ? 200 : 500 }),
  };
  const mood = fc.constantFrom(...Object.keys(moods)).map((name) =>
    step(`the receiver is ${name}`, async ({ world }) => {
      setMood(world, moods[name]!);
    }),
  );
  const some = fc.integer({ min: 1, max: 80 }).map((count) =>
    step(`deliver ${count} at once`, async (stage) => {
      const jobs = stage.world.deliveryJobs.splice(0, count);
      await Promise.all(jobs.map((job) => deliverTo(stage, job)));
    }),
  );
  const dying = fc.record({ at: fc.nat(1000), fault }).map(({ at, fault: how }) =>
    step(`deliver ${at}, ${how.failure} ${how.moment} call ${how.call}`, async (stage) => {
      const job = take(stage, at);
      if (job) await deliverTo(stage, job, new ProxiedBindings(how));
    }),
  );
  const drop = fc.integer({ min: 1, max: 40 }).map((count) =>
    step(`lose ${count} messages`, async ({ world }) => {
      world.deliveryJobs.splice(0, count);
    }),
  );
  const duplicate = fc.nat(1000).map((at) =>
    step(`message ${at} twice`, async ({ world: { deliveryJobs } }) => {
      const job = deliveryJobs[at % deliveryJobs.length];
      if (job) deliveryJobs.push(job);
    }),
  );
  const wait = fc.constantFrom(3 * SECOND, 3 * MINUTE, 20 * MINUTE, 2 * HOUR).map((milliseconds) =>
    step(`wait ${milliseconds / SECOND} s`, async ({ world }) => {
      world.aheadMilliseconds += milliseconds;
    }),
  );
  const recovery = fc.option(fault, { nil: undefined }).map((how) =>
    step(`recovery${how ? `, ${how.failure} ${how.moment} call ${how.call}` : ""}`, async ({ world }) => {
      await world.recover(new ProxiedBindings(...(how ? [how] : [])));
    }),
  );
  const steps = fc.array(
    fc.oneof(
      { arbitrary: burst, weight: 3 },
      mood,
      { arbitrary: some, weight: 4 },
      { arbitrary: dying, weight: 2 },
      drop,
      duplicate,
      { arbitrary: wait, weight: 2 },
      { arbitrary: recovery, weight: 2 },
    ),
    { minLength: 4, maxLength: 24, size: "max" },
  );

  /** Different events that are on their way at once: a share at most. */
  function setMood(world: World, answer: World["answer"]): void {
    world.answer = async (post) => {
      const id = idOf(post) ?? "";
      underWay.set(id, (underWay.get(id) ?? 0) + 1);
      most = Math.max(most, underWay.size);
      await realSystem.sleep(0);
      const left = (underWay.get(id) ?? 0) - 1;
      if (left > 0) underWay.set(id, left);
      else underWay.delete(id);
      return answer(post);
    };
  }
  const underWay = new Map<string, number>();
  let most = 0;

  test("A webhook is sent all that it wants, and never more at once than its share, whatever happens in whatever order.", {
    timeout: 60_000 + RUNS * 10_000,
  }, async ({ annotate }) => {
    await fc.assert(
      fc.asyncProperty(steps, async (names) => {
        const { world, team, hook } = await begin();
        const stage: Stage = { world, team, hook, wanted: new Set() };
        setMood(world, moods.well!);
        for (const [, run] of names) await run(stage);
        setMood(world, moods.well!);
        await settle(world, team, 400);
        expect(most).toBeLessThanOrEqual(SHARE);
        const { results } = await env.DB.prepare("select seq, status from deliveries where webhook_id = ?")
          .bind(hook._id)
          .all<{ seq: number; status: string }>();
        expect(results.filter(({ status: end }) => end !== "succeeded")).toEqual([]);
        expect(new Set(results.map(({ seq }) => seq))).toEqual(stage.wanted);
      }),
      { numRuns: RUNS, seed: SEED },
    );
    await annotate(`turns: ${RUNS} runs, seed ${SEED}, at most ${most} at once`);
  });

  test("A webhook's share is used in full by a receiver that is well.", async () => {
    const { world, team, hook } = await begin();
    most = 0;
    setMood(world, moods.well!);
    await happenOften(world, team, hook, 50);
    await deliverAll(world);
    expect(most).toBe(SHARE);
  });
});
