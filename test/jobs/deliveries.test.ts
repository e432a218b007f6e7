import { env } from "cloudflare:workers";
import { Webhook as Verifier } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import type { Reply } from "../../src/platform/sender.ts";
import { realSystem } from "../../src/platform/system.ts";
import { MOMENTS, ProxiedBindings } from "../support/bindings.ts";
import type { Team } from "../support/client.ts";
import {
  answer,
  begin,
  DAY,
  deliveriesOf,
  eventsOf,
  HOOK_URL,
  HOUR,
  type Hook,
  happen,
  hookOf,
  idOf,
  MINUTE,
  newHook,
  SECOND,
  settle,
  status,
} from "../support/webhooks.ts";
import type { Post, World } from "../support/world.ts";

/*
 * The way of an event to a receiver. The clock is the test's, the receiver a function; D1 is the real one. What must hold:
 * nothing that was recorded is lost, whatever dies; what arrives twice has the same id; and every delivery ends.
 */

/** Between a try and the next, as promised. */
const WAITS = [5 * SECOND, 5 * MINUTE, 30 * MINUTE, ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR)];
/** Recovery leaves a message two minutes, and its trigger comes every five. */
const TRIGGER_LAG = 7 * MINUTE;

/** The signature by the text of the specification, without code of ours or of its library. */
async function signatureOf(secret: string, { headers, body }: Post): Promise<string> {
  const raw = Uint8Array.from(atob(secret.replace(/^whsec_/, "")), (c) => c.charCodeAt(0));
  const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signed = new TextEncoder().encode(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
  return `v1,${btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.sign("HMAC", key, signed))))}`;
}

const verifies = (secret: string, { body, headers }: Post): boolean => {
  try {
    new Verifier(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
};

describe("A message", () => {
  test("A message holds the event of the trail, and is signed so that the public library and the specification agree.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    await world.drainDeliveries();
    const [post] = world.posts;
    const [event] = await eventsOf(team, "apikey.created");
    expect(world.posts).toHaveLength(1);
    expect(post?.url).toBe(HOOK_URL);
    expect(JSON.parse(post!.body)).toEqual({
      id: event._id,
      type: "apikey.created",
      timestamp: event.createdAt,
      data: event,
    });
    expect(post!.headers).toMatchObject({
      "Content-Type": "application/json",
      "webhook-id": event._id,
      "webhook-timestamp": String(Math.floor(post!.at / 1000)),
    });
    expect(verifies(hook.secret, post!)).toBe(true);
    expect(post!.headers["webhook-signature"]).toBe(await signatureOf(hook.secret, post!));
    expect(verifies(hook.secret, { ...post!, body: `${post!.body} ` })).toBe(false);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      {
        eventId: event._id,
        type: "apikey.created",
        status: "succeeded",
        attempts: [{ httpStatus: 200, error: null, responseBody: "ok" }],
        nextAttemptAt: null,
      },
    ]);
  });

  test("A message is sent to each webhook that wants its type, once, and to none that is disabled or another team's.", async () => {
    const { world, team, hooks } = await begin(2);
    const all = await newHook(team, { types: null });
    const other = await newHook(team, { types: ["user.created"] });
    const off = await newHook(team);
    await team.call("PATCH", `/auth/v1/webhooks/${off._id}`, { json: { status: "disabled" } });
    const stranger = await begin();
    await world.drainDeliveries();
    world.posts.length = 0;
    await happen(team);
    await world.drainDeliveries();
    expect(world.posts).toHaveLength(3);
    for (const { _id } of hooks) expect(await deliveriesOf(team, _id)).toHaveLength(1);
    const [latest] = await deliveriesOf(team, all._id);
    expect(latest).toMatchObject({ type: "apikey.created", status: "succeeded" });
    expect(await deliveriesOf(team, other._id)).toEqual([]);
    expect((await deliveriesOf(team, off._id)).length).toBe(0);
    expect(await deliveriesOf(stranger.team, stranger.hook._id)).toEqual([]);
  });

  test("A message of a call that was refused is never sent.", async () => {
    const { world, team, hook } = await begin();
    expect((await team.call("POST", "/auth/v1/apikeys", { json: { name: "" } })).status).toBe(400);
    expect(world.deliveryJobs).toEqual([]);
    expect(await deliveriesOf(team, hook._id)).toEqual([]);
  });

  test("A message is signed by both secrets for a day after a rotation, and by the new one from then on.", async () => {
    const { world, team, hook } = await begin();
    const { data } = (await team.call("POST", `/auth/v1/webhooks/${hook._id}/secret`, { json: {} })).body;
    await happen(team);
    await world.drainDeliveries();
    const [both] = world.posts;
    expect(verifies(hook.secret, both!)).toBe(true);
    expect(verifies(data.secret, both!)).toBe(true);
    const signatures = [await signatureOf(data.secret, both!), await signatureOf(hook.secret, both!)];
    expect(both!.headers["webhook-signature"]).toBe(signatures.join(" "));
    world.aheadMilliseconds += DAY;
    await happen(team);
    await world.drainDeliveries();
    const late = world.posts[1]!;
    expect(late.headers["webhook-signature"]).toBe(await signatureOf(data.secret, late));
  });

  test("A message is signed at once by the new secret alone where the old one is revoked.", async () => {
    const { world, team, hook } = await begin();
    const json = { revokeOld: true };
    const { data } = (await team.call("POST", `/auth/v1/webhooks/${hook._id}/secret`, { json })).body;
    await happen(team);
    await world.drainDeliveries();
    expect(verifies(hook.secret, world.posts[0]!)).toBe(false);
    expect(verifies(data.secret, world.posts[0]!)).toBe(true);
  });

  test("A message is signed as before once recovery has encrypted the secrets anew, and the old master key is gone.", async () => {
    const { world, team, hook } = await begin();
    await team.call("POST", `/auth/v1/webhooks/${hook._id}/secret`, { json: {} });
    const next = btoa("fedcba9876543210fedcba9876543210");
    world.secrets = loadSecrets(`${next},${env.MASTER_KEY}`, realSystem);
    await world.recover();
    world.secrets = loadSecrets(next, realSystem);
    await happen(team);
    await world.drainDeliveries();
    expect(verifies(hook.secret, world.posts[0]!)).toBe(true);
  });

  test("A message whose secret can't be decrypted is not sent, and is once it can.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    world.secrets = loadSecrets(btoa("fedcba9876543210fedcba9876543210"), realSystem);
    const [job] = world.deliveryJobs.splice(0);
    expect(await world.deliverEvent(job!)).toBeGreaterThan(0);
    expect(world.posts).toEqual([]);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      { status: "pending", attempts: [{ error: "secret_unreadable" }] },
    ]);
    world.secrets = undefined;
    await settle(world, team);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([{ status: "succeeded" }]);
  });

  test("A message to an address that the rules refuse by now is not sent.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    await env.DB.prepare("update webhooks set url = 'https://127.0.0.1/' where id = ?").bind(hook._id).run();
    await settle(world, team);
    expect(world.posts).toEqual([]);
    const [{ status, attempts }] = await deliveriesOf(team, hook._id);
    expect([status, attempts.length, attempts[0].error]).toEqual(["failed", 10, "address_refused"]);
  });
});

describe("A try", () => {
  test.each([200, 201, 202, 204, 299])("A try that is answered %i succeeds, and there is no other.", async (code) => {
    const { world, team, hook } = await begin();
    world.answer = status(code);
    await happen(team);
    await settle(world, team);
    expect(world.posts).toHaveLength(1);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([{ status: "succeeded" }]);
  });

  test.each<[string, Partial<Reply>]>([
    ...[100, 301, 302, 307, 308, 400, 401, 404, 418, 429, 500, 502, 503].map((code): [string, Partial<Reply>] => [
      `is answered ${code}`,
      { httpStatus: code },
    ]),
    ["gets no answer", { httpStatus: null, error: "connection_failed" }],
    ["gets no answer in time", { httpStatus: null, error: "timeout" }],
    ["gets the head of a 200, and no body in time", { httpStatus: 200, error: "timeout" }],
  ])("A try that %s fails, and the next comes within seconds.", async (_, reply) => {
    const { world, team, hook } = await begin();
    world.answer = () => (world.posts.length === 1 ? reply : {});
    await happen(team);
    await world.drainDeliveries();
    expect(world.posts).toHaveLength(2);
    const [{ status, attempts }] = await deliveriesOf(team, hook._id);
    expect([status, attempts.length]).toEqual(["succeeded", 2]);
    expect(attempts[0]).toMatchObject({ httpStatus: reply.httpStatus, error: reply.error ?? null });
    expect(idOf(world.posts[0]!)).toBe(idOf(world.posts[1]!));
    expect(world.posts[1]!.headers["webhook-timestamp"]).not.toBe(world.posts[0]!.headers["webhook-timestamp"]);
  });

  test("A try follows another at the promised distances, ten in all, and then the delivery has failed.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await happen(team);
    await settle(world, team);
    const waits = world.posts.slice(1).map(({ at }, i) => at - world.posts[i]!.at);
    expect(waits).toHaveLength(9);
    for (const [i, wait] of waits.entries()) {
      const promised = WAITS[i]!;
      expect(wait, `try ${i + 2}`).toBeGreaterThanOrEqual(promised * 0.8);
      expect(wait, `try ${i + 2}`).toBeLessThanOrEqual(
        promised * 1.2 + SECOND + (promised > 15 * MINUTE ? TRIGGER_LAG : 0),
      );
    }
    const [{ status: ended, attempts, nextAttemptAt }] = await deliveriesOf(team, hook._id);
    expect([ended, attempts.length, nextAttemptAt]).toEqual(["failed", 10, null]);
  });

  test("A try is not always at the same distance: a fifth more or less.", async () => {
    const { world, team } = await begin();
    world.answer = status(500);
    const waits = new Set<number>();
    for (let i = 0; i < 8; i++) {
      await happen(team);
      const job = world.deliveryJobs.pop()!;
      const first = await world.deliverEvent(job);
      world.aheadMilliseconds += 6 * SECOND;
      waits.add(first === null || first === "dead" ? 0 : ((await world.deliverEvent(job)) as number));
    }
    expect(waits.size).toBeGreaterThan(1);
  });

  test.each<[string, (now: number) => string, number]>([
    ["seconds", () => "600", 600],
    ["a date", (now) => new Date(now + 1200 * SECOND).toUTCString(), 1200],
    ["more than a day", () => "99999999", 24 * 3600],
    ["a date before now", (now) => new Date(now - HOUR).toUTCString(), 4],
    ["nonsense", () => "soon", 4],
    ["a negative number", () => "-5", 4],
  ])("A try waits for Retry-After in %s, a day at most.", async (_, header, seconds) => {
    for (const code of [429, 503]) {
      const { world, team, hook } = await begin();
      world.answer = status(code, header(world.system.now()));
      await happen(team);
      const [job] = world.deliveryJobs.splice(0);
      await world.deliverEvent(job!);
      const [{ nextAttemptAt }] = await deliveriesOf(team, hook._id);
      const wait = (Date.parse(nextAttemptAt) - world.posts[0]!.at) / SECOND;
      expect(wait).toBeGreaterThanOrEqual(seconds - 1);
      expect(wait).toBeLessThanOrEqual(seconds + 3);
    }
  });

  test("A webhook that asks to be left alone is sent nothing else meanwhile.", async () => {
    const { world, team } = await begin();
    world.answer = status(429, "900");
    await happen(team);
    await world.deliverEvent(world.deliveryJobs.pop()!);
    world.answer = status(200);
    await happen(team);
    await world.deliverEvent(world.deliveryJobs.pop()!);
    expect(world.posts).toHaveLength(1);
    await settle(world, team);
    expect(world.posts).toHaveLength(3);
    expect(world.posts[1]!.at - world.posts[0]!.at).toBeGreaterThanOrEqual(900 * SECOND);
  });

  test("Retry-After of an answer other than 429 and 503 is not heeded.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500, "3600");
    await happen(team);
    await world.deliverEvent(world.deliveryJobs.pop()!);
    const [{ nextAttemptAt }] = await deliveriesOf(team, hook._id);
    expect(Date.parse(nextAttemptAt) - world.posts[0]!.at).toBeLessThanOrEqual(6 * SECOND);
  });
});

describe("A webhook", () => {
  test("A webhook that answers 410 is disabled, with an event for the others, and its delivery has failed.", async () => {
    const { world, team, hook } = await begin();
    const watching = await newHook(team, { types: ["webhook.disabled"], url: "https://watch.canary.example/" });
    world.answer = ({ url }) => (url === HOOK_URL ? { httpStatus: 410 } : {});
    await happen(team);
    await settle(world, team);
    expect(await hookOf(team, hook._id)).toMatchObject({ status: "disabled", disabledReason: "gone", __v: 1 });
    const [{ status, attempts }] = await deliveriesOf(team, hook._id);
    expect([status, attempts.length]).toEqual(["failed", 1]);
    expect(await deliveriesOf(team, watching._id)).toMatchObject([{ type: "webhook.disabled", status: "succeeded" }]);
    const [event, ...others] = await eventsOf(team, "webhook.disabled");
    expect(others).toEqual([]);
    expect(event).toMatchObject({ actor: { kind: "system" }, subject: { kind: "webhook", id: hook._id, version: 1 } });
    expect(event.data).toEqual({ _id: hook._id, reason: "gone" });
    world.posts.length = 0;
    await happen(team);
    await settle(world, team);
    expect(world.posts).toEqual([]);
  });

  test("A webhook is disabled after five days without a success, and not before.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    const beganAt = world.system.now();
    let disabledAfter = 0;
    for (let day = 0; day < 8 && disabledAfter === 0; day++) {
      await happen(team);
      for (let look = 0; look < 24 && disabledAfter === 0; look++) {
        await world.drainDeliveries();
        world.aheadMilliseconds += HOUR;
        await world.recover();
        if ((await hookOf(team, hook._id)).status === "disabled") disabledAfter = world.system.now() - beganAt;
      }
    }
    expect(disabledAfter).toBeGreaterThanOrEqual(5 * DAY);
    expect(disabledAfter).toBeLessThan(6 * DAY);
    expect(await hookOf(team, hook._id)).toMatchObject({ disabledReason: "failing" });
    await settle(world, team);
    const ends = (await deliveriesOf(team, hook._id)).map(({ status }: { status: string }) => status);
    expect(new Set(ends)).toEqual(new Set(["failed"]));
  });

  test("A webhook that has one success in five days is not disabled.", async () => {
    const { world, team, hook } = await begin();
    for (let day = 0; day < 8; day++) {
      world.answer = status(day === 3 ? 200 : 500);
      await happen(team);
      await world.drainDeliveries();
      world.aheadMilliseconds += DAY;
    }
    expect(await hookOf(team, hook._id)).toMatchObject({ status: "enabled" });
  });

  test("A webhook that failed ten times in a row is sent one delivery at a time, and all of them once it is well.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    for (let i = 0; i < 10; i++) {
      await happen(team);
      await world.deliverEvent(world.deliveryJobs.pop()!);
    }
    expect(world.posts).toHaveLength(10);
    for (let i = 0; i < 20; i++) await happen(team);
    await Promise.all(world.deliveryJobs.splice(0).map((job) => world.deliverEvent(job)));
    expect(world.posts, "all were put off").toHaveLength(10);

    world.aheadMilliseconds += 10 * MINUTE;
    await world.recover();
    await Promise.all(world.deliveryJobs.splice(0).map((job) => world.deliverEvent(job)));
    expect(world.posts, "one looks whether it is well").toHaveLength(11);

    world.answer = status(200);
    await settle(world, team);
    const all = await deliveriesOf(team, hook._id);
    expect(all).toHaveLength(30);
    expect(new Set(all.map(({ status }: { status: string }) => status))).toEqual(new Set(["succeeded"]));
    const waiting = all.slice(0, 20).map(({ attempts }: { attempts: unknown[] }) => attempts.length);
    expect(Math.max(...waiting), "what was put off was not tried").toBeLessThanOrEqual(2);
  });

  test("A webhook that never answers well is sent little, and every delivery to it ends.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    for (let i = 0; i < 30; i++) await happen(team);
    await settle(world, team, 1000);
    const all = await deliveriesOf(team, hook._id);
    expect(new Set(all.map(({ status }: { status: string }) => status))).toEqual(new Set(["failed"]));
    expect(world.posts.length).toBeLessThan(250);
  });

  test("A webhook that is enabled again, or sent elsewhere, is tried at once and begins to be counted anew.", async () => {
    for (const json of [{ status: "enabled" }, { url: "https://new.canary.example/" }]) {
      const { world, team, hook } = await begin();
      world.answer = status(500);
      for (let i = 0; i < 12; i++) await happen(team);
      for (const job of world.deliveryJobs.splice(0)) await world.deliverEvent(job);
      expect(world.posts).toHaveLength(10);
      await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json });
      await happen(team);
      for (const job of world.deliveryJobs.splice(0)) await world.deliverEvent(job);
      expect(world.posts).toHaveLength(11);
    }
  });

  test("A webhook that is disabled or deleted meanwhile is sent nothing, and its deliveries end.", async () => {
    for (const [method, json] of [
      ["PATCH", { status: "disabled" }],
      ["DELETE", undefined],
    ] as const) {
      const { world, team, hook } = await begin();
      await happen(team);
      await team.call(method, `/auth/v1/webhooks/${hook._id}`, { json });
      await settle(world, team);
      expect(world.posts).toEqual([]);
      if (method === "PATCH") expect(await deliveriesOf(team, hook._id)).toMatchObject([{ status: "failed" }]);
    }
  });
});

describe("Whatever dies", () => {
  /** What must hold at the end: each event once in the log of the webhook, received once at least, always under its id. */
  async function expectReceived(world: World, team: Team, hook: Hook, count: number) {
    const events = await eventsOf(team, "apikey.created");
    const deliveries = await deliveriesOf(team, hook._id);
    expect(deliveries).toHaveLength(count);
    expect(new Set(deliveries.map(({ status }: { status: string }) => status))).toEqual(new Set(["succeeded"]));
    const wanted = events.slice(0, count).map(({ _id }: { _id: string }) => _id);
    expect(new Set(world.posts.map(idOf))).toEqual(new Set(wanted));
  }

  const points = [1, 2].flatMap((call) => MOMENTS.map((moment) => ({ call, moment })));
  const failures = ["death", "transient", "permanent", "outage"] as const;
  test.each(points.flatMap((point) => failures.map((failure) => ({ ...point, failure }))))(
    "A delivery whose Worker meets $failure $moment its call $call to D1 arrives, and ends.",
    async (fault) => {
      const { world, team, hook } = await begin();
      await happen(team);
      const job = world.deliveryJobs.pop()!;
      const again = await world.deliverEvent(job, new ProxiedBindings(fault));
      if (fault.failure === "death") expect(again).toBe("dead");
      else expect(again === null || Number(again) > 0).toBe(true);
      await settle(world, team);
      await expectReceived(world, team, hook, 1);
      expect(world.posts.length).toBeLessThanOrEqual(2);
    },
  );

  test.each(MOMENTS)("A failed try whose Worker dies %s it is written is not counted twice.", async (moment) => {
    const { world, team, hook } = await begin();
    world.answer = () => (world.posts.length < 3 ? { httpStatus: 500 } : {});
    await happen(team);
    const job = world.deliveryJobs.pop()!;
    await world.deliverEvent(job, new ProxiedBindings({ call: 2, moment, failure: "death" }));
    world.deliveryJobs.push(job);
    await settle(world, team);
    await expectReceived(world, team, hook, 1);
  });

  test("A failed try whose write is repeated, since its answer was lost, counts once against the webhook.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await happen(team);
    const bindings = new ProxiedBindings({ call: 2, moment: "after", failure: "transient" });
    expect(await world.deliverEvent(world.deliveryJobs.pop()!, bindings)).toBeGreaterThan(0);
    expect(bindings.calls).toHaveLength(3);
    const row = await env.DB.prepare("select failures from webhooks where id = ?").bind(hook._id).first();
    expect(row).toEqual({ failures: 1 });
  });

  test("An event whose request dies right after its batch is sent by recovery.", async () => {
    const { world, team, hook } = await begin();
    const bindings = new ProxiedBindings({ binding: "Queue", call: 1, moment: "before", failure: "death" });
    const asked = world.ask("POST", "/auth/v1/apikeys", { token: team.token, json: { name: "key" } }, { bindings });
    expect(await asked).toBe("dead");
    expect(world.deliveryJobs).toEqual([]);
    await settle(world, team);
    await expectReceived(world, team, hook, 1);
    expect(world.posts).toHaveLength(1);
  });

  test("An event whose message the queue refuses is sent by recovery, and the request succeeds.", async () => {
    const { world, team, hook } = await begin();
    const bindings = new ProxiedBindings({ binding: "Queue", call: 1, moment: "before", failure: "outage" });
    const asked = await world.ask(
      "POST",
      "/auth/v1/apikeys",
      { token: team.token, json: { name: "key" } },
      { bindings },
    );
    expect(asked).toMatchObject({ status: 200 });
    expect(world.lines).toMatchObject([{ level: "warn", event: "messages left to recovery" }]);
    await settle(world, team);
    await expectReceived(world, team, hook, 1);
  });

  test.each(MOMENTS)("A run of recovery that dies %s its first call leaves deliveries to the next.", async (moment) => {
    const { world, team, hook } = await begin();
    await happen(team);
    world.deliveryJobs = [];
    world.aheadMilliseconds += 3 * MINUTE;
    for (let call = 1; call <= 12; call++) {
      await world.recover(new ProxiedBindings({ call, moment, failure: "death" }));
      world.deliveryJobs = [];
    }
    await settle(world, team);
    await expectReceived(world, team, hook, 1);
  });

  test("A message that comes twice, late or after the end is sent once, unless both come at once: then under one id.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    const job = world.deliveryJobs.pop()!;
    await Promise.all([world.deliverEvent(job), world.deliverEvent(job)]);
    const atOnce = world.posts.length;
    expect(atOnce).toBeLessThanOrEqual(2);
    await world.deliverEvent(job);
    world.aheadMilliseconds += DAY;
    await world.deliverEvent(job);
    expect(world.posts).toHaveLength(atOnce);
    await expectReceived(world, team, hook, 1);
  });

  test("A message that comes before its time is not sent, and its delivery is not lost.", async () => {
    const { world, team, hook } = await begin();
    world.answer = () => (world.posts.length === 1 ? { httpStatus: 500 } : {});
    await happen(team);
    const job = world.deliveryJobs.pop()!;
    await world.deliverEvent(job);
    expect(await world.deliverEvent(job)).toBeNull();
    expect(world.posts).toHaveLength(1);
    await settle(world, team);
    await expectReceived(world, team, hook, 1);
  });

  test("A success counts, though another Worker has written a failure meanwhile.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    const job = world.deliveryJobs.pop()!;
    const second = Promise.withResolvers<void>();
    world.answer = async () => {
      if (world.posts.length === 1) {
        await second.promise;
        return { httpStatus: 200 };
      }
      return { httpStatus: 500 };
    };
    const slow = world.deliverEvent(job);
    while (world.posts.length === 0) await realSystem.sleep(1);
    await world.deliverEvent(job);
    second.resolve();
    await slow;
    expect(await deliveriesOf(team, hook._id)).toMatchObject([{ status: "succeeded", nextAttemptAt: null }]);
  });

  test("A log line holds neither a secret, nor the address of a webhook, nor what was sent or answered.", async () => {
    const { world, team, hook } = await begin();
    world.answer = answer({ httpStatus: 500, body: "canary-answer" });
    await happen(team);
    await settle(world, team);
    const text = JSON.stringify(world.lines);
    expect(text).toContain(hook._id);
    expect(text).not.toMatch(/canary|whsec_|hooks\.|apikey\.created/);
  });
});

describe("A redelivery", () => {
  test("A redelivery of what has ended is one more try, under the same id, though it succeeded.", async () => {
    for (const [first, second] of [
      [200, 200],
      [410, 500],
    ] as const) {
      const { world, team, hook } = await begin();
      world.answer = () => ({ httpStatus: world.posts.length === 1 ? first : second });
      await happen(team);
      await settle(world, team);
      await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
      const [{ _id }] = await deliveriesOf(team, hook._id);
      const { body } = await team.call("POST", `/auth/v1/deliveries/${_id}/redeliver`);
      expect(body.data).toMatchObject({ _id, status: "pending", attempts: [{ httpStatus: first }] });
      await settle(world, team);
      expect(world.posts.map(idOf)).toEqual([idOf(world.posts[0]!), idOf(world.posts[0]!)]);
      const [delivery] = await deliveriesOf(team, hook._id);
      expect(delivery.status).toBe(second === 200 ? "succeeded" : "failed");
      expect(delivery.attempts).toHaveLength(2);
    }
  });

  test("A redelivery that is asked for again and again sends one message.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    await settle(world, team);
    const [{ _id }] = await deliveriesOf(team, hook._id);
    for (let i = 0; i < 20; i++)
      expect((await team.call("POST", `/auth/v1/deliveries/${_id}/redeliver`)).status).toBe(200);
    expect(world.deliveryJobs).toHaveLength(1);
    await settle(world, team);
    expect(world.posts).toHaveLength(2);
    await team.call("POST", `/auth/v1/deliveries/${_id}/redeliver`);
    expect(world.deliveryJobs).toHaveLength(1);
  });

  test("A redelivery to a webhook that fails again and again is sent all the same.", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    for (let i = 0; i < 12; i++) await happen(team);
    for (const job of world.deliveryJobs.splice(0)) await world.deliverEvent(job);
    expect(world.posts).toHaveLength(10);
    const [{ _id }] = await deliveriesOf(team, hook._id);
    await team.call("POST", `/auth/v1/deliveries/${_id}/redeliver`);
    await world.deliverEvent(world.deliveryJobs.pop()!);
    expect(world.posts).toHaveLength(11);
  });
});

describe("A replay", () => {
  test("A replay sends what the webhook wants since an event, also what happened while it was disabled, under the same ids.", async () => {
    const { world, team, hook } = await begin();
    await happen(team);
    await settle(world, team);
    const [after] = await eventsOf(team, "apikey.created");
    await happen(team);
    await settle(world, team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "disabled" } });
    await happen(team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    world.posts.length = 0;
    const json = { after: after._id };
    const { body } = await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json });
    expect(body.data).toEqual({ deliveries: 2, next: null });
    await settle(world, team);
    const events = await eventsOf(team, "apikey.created");
    expect(world.posts.map(idOf).sort()).toEqual([events[1]._id, events[0]._id]);
    expect(await deliveriesOf(team, hook._id)).toHaveLength(3);
  });

  test("A replay of failures alone leaves what succeeded.", async () => {
    const { world, team, hook } = await begin();
    const [after] = await eventsOf(team, "webhook.created");
    world.answer = () => ({ httpStatus: world.posts.length === 1 ? 410 : 200 });
    await happen(team);
    await settle(world, team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    await happen(team);
    await settle(world, team);
    const failed = idOf(world.posts[0]!);
    world.posts.length = 0;
    const json = { after: after._id, failedOnly: true };
    const { body } = await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json });
    expect(body.data).toEqual({ deliveries: 1, next: null });
    await settle(world, team);
    expect(world.posts.map(idOf)).toEqual([failed]);
  });

  test("A replay of thousands of events goes in steps, each of which says where to go on.", async () => {
    const { team, hook } = await begin();
    const [after] = await eventsOf(team, "webhook.created");
    await env.DB.prepare(
      `with recursive n(i) as (select 1 union all select i + 1 from n where i < 2500)
       insert into events select ?1, (select max(seq) from events where team_id = ?1) + i,
       iif(i % 2, 'apikey.created', 'user.created'), 1, '{}', 'x', null, '{}', i from n`,
    )
      .bind(team.teamId)
      .run();
    const counts: number[] = [];
    for (let next = after._id; next !== null; ) {
      const { body } = await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json: { after: next } });
      counts.push(body.data.deliveries);
      next = body.data.next;
    }
    expect(counts).toEqual([500, 500, 250]);
    const due = "select count(*) as count from deliveries where webhook_id = ? and due_at is not null";
    expect(await env.DB.prepare(due).bind(hook._id).first("count")).toBe(1250);
  });
});

describe("What one try tells of a webhook", () => {
  const DISABLING = { httpStatus: 410 };
  const columns = async (id: string) =>
    env.DB.prepare("select status, failures, resume_at from webhooks where id = ?").bind(id).first();
  /** The jobs of two events. */
  async function twoJobs() {
    const { world, team, hook } = await begin();
    await happen(team);
    await happen(team);
    const due = await env.DB.prepare("select team_id, webhook_id, seq from deliveries where team_id = ? order by seq")
      .bind(team.teamId)
      .all<{ team_id: string; webhook_id: string; seq: number }>();
    const [first, second] = due.results.map(({ team_id, webhook_id, seq }) => ({
      ...{ teamId: team_id, webhookId: webhook_id, seq },
    }));
    return { world, team, hook, first: first!, second: second! };
  }

  test("What the address before answers is not charged to the one that the team has set meanwhile.", async () => {
    const { world, team, hook, first } = await twoJobs();
    world.answer = async () => {
      const json = { url: "https://new.canary.example/in" };
      expect((await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json })).status).toBe(200);
      return DISABLING;
    };
    await world.deliverEvent(first);
    expect(await columns(hook._id)).toEqual({ status: "enabled", failures: 0, resume_at: null });
  });

  test("A webhook that hears of little is not disabled for two failures with days between.", async () => {
    const { world, hook, first } = await twoJobs();
    await env.DB.prepare("update webhooks set failures = 1, failing_since = ? where id = ?")
      .bind(world.system.now() - 6 * DAY, hook._id)
      .run();
    world.answer = status(500);
    await world.deliverEvent(first);
    expect(await columns(hook._id)).toMatchObject({ status: "enabled", failures: 2 });
  });

  test("A pause that a receiver asks for is kept, though another delivery succeeds that was under way.", async () => {
    const { world, hook, first, second } = await twoJobs();
    let posts = 0;
    world.answer = async () => {
      posts += 1;
      if (posts > 1) return { httpStatus: 429, retryAfter: "600" };
      await world.deliverEvent(second);
      return {};
    };
    await world.deliverEvent(first);
    expect((await columns(hook._id))?.resume_at).toBe(world.system.now() + 600 * SECOND);
  });

  test("A delivery that waits for a short Retry-After comes again by its message.", async () => {
    const { world, first, second } = await twoJobs();
    world.answer = status(429, "30");
    await world.deliverEvent(first);
    const seconds = await world.deliverEvent(second);
    expect(seconds).toBeGreaterThanOrEqual(30);
    expect(seconds).toBeLessThanOrEqual(36);
    expect(world.posts).toHaveLength(1);
  });
});
