import { env } from "cloudflare:workers";
import { Webhook as Verifier } from "standardwebhooks";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { loadSecrets } from "../../src/platform/secrets.ts";
import type { Reply } from "../../src/platform/sender.ts";
import { realSystem } from "../../src/platform/system.ts";
import { EXAMINED_DELIVERIES } from "../../src/webhooks/delivery-log.ts";
import { LEASE_MILLISECONDS, MAX_IN_FLIGHT } from "../../src/webhooks/sending.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import type { Team } from "../support/client.ts";
import { expectDocumentedMessage } from "../support/contract.ts";
import { DB, databaseWith } from "../support/databases.ts";
import { nextOf } from "../support/harness.ts";
import { insertMany } from "../support/rows.ts";
import { emptyStores } from "../support/stores.ts";
import { DAY, HOUR, MINUTE, SECOND } from "../support/time.ts";
import {
  begin,
  copyEvent,
  createEvent,
  deliveriesOf,
  eventsOf,
  HOOK_URL,
  type Hook,
  hookOf,
  idOf,
  newHook,
  respondWith,
  settle,
  status,
  statusesOf,
} from "../support/webhooks.ts";
import type { Post, World } from "../support/world.ts";

/*
 * From an event to a webhook endpoint. The tests control the clock and the endpoint; D1 is real. Faults are in
 * crash-points.test.ts.
 */

/** The promised waits between attempts. */
const WAITS = [5 * SECOND, 5 * MINUTE, 30 * MINUTE, ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR)];
/** The recovery job runs every five minutes, and gives messages two minutes to arrive. */
const RECOVERY_LAG = 7 * MINUTE;

/** Signs by the text of the specification, without our code and without the public library. */
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

/** Runs one round for one message, the newest. */
const deliverNewest = (world: World, bindings?: ProxiedBindings) =>
  world.deliverWebhook(world.webhookMessages.pop()!, bindings);
const columnsOf = ({ _id }: Hook) =>
  DB.prepare("select status, failures, resume_at, lease_id from webhooks where id = ?").bind(_id).first();
const rotate = async (team: Team, { _id }: Hook, json = {}): Promise<string> =>
  (await team.call("POST", `/auth/v1/webhooks/${_id}/secret`, { json })).body.data.secret;

describe("the size of the database", () => {
  const body = "x".repeat(1024);
  const databaseBytes = async ({ teamId }: Team) =>
    (await databaseWith(teamId).prepare("select 1").run()).meta.size_after;

  /** Fills the pages that other tests left free: only after that does the database grow with each row. */
  async function fillFreePages(team: Team): Promise<void> {
    const database = databaseWith(team.teamId);
    await database.prepare("create table filler (bytes blob)").run();
    for (const size of [1_000_000, 3000]) {
      const before = await databaseBytes(team);
      while ((await databaseBytes(team)) === before) {
        await database.prepare("insert into filler values (zeroblob(?))").bind(size).run();
      }
    }
  }
  afterEach(() => DB.prepare("drop table if exists filler").run());

  test("grows by less than 800 bytes per delivery and event, though most deliveries fail once", async () => {
    const { world, team, hook } = await begin();
    const seen = new Set<string | undefined>();
    // One success per round, so that consecutive failures do not pause the webhook.
    world.answer = (post) => {
      const isRetry = seen.has(idOf(post));
      seen.add(idOf(post));
      return { httpStatus: isRetry || world.posts.length % MAX_IN_FLIGHT === 0 ? 200 : 500, body };
    };
    await createEvent(team);
    await fillFreePages(team);
    const before = await databaseBytes(team);
    await copyEvent(world, team, [hook], 100);
    await settle(world, team);
    expect(await statusesOf(hook)).toEqual({ succeeded: 101 });
    expect(world.posts.length).toBeGreaterThan(170);
    expect((await databaseBytes(team)) - before, "of ten webhooks: below 8 KB per event").toBeLessThan(100 * 800);
  });

  test("stays below 8 KB an event even if each of ten webhooks fails all ten attempts", async () => {
    const { world, team, hook } = await begin();
    world.answer = respondWith({ httpStatus: 500, body });
    await createEvent(team);
    await settle(world, team);
    expect(await statusesOf(hook)).toEqual({ failed: 1 });
    const stored = await DB.prepare(
      `select length(webhook_id) + length(d.type) + length(d.team_id) + length(status) + length(attempt_log) + 40 as delivery,
         length(e.team_id) + length(e.type) + length(actor) + length(subject_id) + length(data) + 40 as event,
         json_array_length(attempt_log) as attempts, (select length(failure_bodies) from webhooks where id = ?1) as bodies
       from deliveries d join events e on e.team_id = d.team_id and e.seq = d.seq where webhook_id = ?1`,
    )
      .bind(hook._id)
      .first<Record<"delivery" | "event" | "attempts" | "bodies", number>>();
    expect(stored!.attempts).toBe(10);
    expect(10 * stored!.delivery + stored!.event).toBeLessThan(8000 * 0.75);
    expect(stored!.bodies, "per webhook").toBeLessThan(6000);
  });
});

describe("a message", () => {
  test("contains the event and a signature that the public library and the specification accept", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await world.drainDeliveries();
    const [post] = world.posts;
    const [{ _id, createdAt, ...logged }] = await eventsOf(team, "apikey.created");
    const { name, ...actor } = logged.actor;
    expect(name, "only in the event log").toEqual(expect.any(String));
    const event = { ...logged, actor };
    expect(world.posts).toHaveLength(1);
    expect(post?.url).toBe(HOOK_URL);
    expect(JSON.parse(post!.body)).toEqual({ id: _id, timestamp: createdAt, ...event });
    expectDocumentedMessage(post!.body);
    expect(Object.keys(event).sort()).toEqual(["actor", "data", "subject", "teamId", "type"]);
    expect(post!.headers).toMatchObject({
      "Content-Type": "application/json",
      "webhook-id": _id,
      "webhook-timestamp": String(Math.floor(post!.at / 1000)),
    });
    expect(verifies(hook.secret, post!)).toBe(true);
    expect(post!.headers["webhook-signature"]).toBe(await signatureOf(hook.secret, post!));
    expect(verifies(hook.secret, { ...post!, body: `${post!.body} ` })).toBe(false);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      {
        eventId: _id,
        type: "apikey.created",
        status: "succeeded",
        attempts: [{ httpStatus: 200 }],
        nextAttemptAt: null,
      },
    ]);
  });

  test("goes once to each enabled webhook of the team that receives its type", async () => {
    const { world, team, hooks } = await begin(2);
    const all = await newHook(team, { types: null });
    const other = await newHook(team, { types: ["user.created"] });
    const off = await newHook(team);
    await team.call("PATCH", `/auth/v1/webhooks/${off._id}`, { json: { status: "disabled" } });
    const stranger = await begin();
    await world.drainDeliveries();
    world.posts.length = 0;
    await createEvent(team);
    expect(world.webhookMessages, "one message for each webhook").toHaveLength(3);
    await world.drainDeliveries();
    expect(world.posts).toHaveLength(3);
    for (const hook of hooks) expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
    expect((await deliveriesOf(team, all._id))[0]).toMatchObject({ type: "apikey.created", status: "succeeded" });
    for (const hook of [other, off, stranger.hook]) expect(await statusesOf(hook)).toEqual({});
  });

  test("about the creation or deletion of a webhook goes only to other webhooks, even in a replay", async () => {
    const { world, team, hook: watching } = await begin(1);
    await team.call("PATCH", `/auth/v1/webhooks/${watching._id}`, { json: { types: null } });
    const hook = await newHook(team, { types: null });
    await world.drainDeliveries();
    await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json: { after: "0".repeat(24) } });
    const path = `/auth/v1/webhooks/${hook._id}`;
    await team.call("PATCH", path, { json: { description: "new" } });
    await world.drainDeliveries();
    const own = await deliveriesOf(team, hook._id);
    const [{ _id: ownCreation }] = await eventsOf(team, "webhook.created");
    expect(own.map(({ eventId }: { eventId: string }) => eventId)).not.toContain(ownCreation);
    expect(own[0]).toMatchObject({ type: "webhook.updated" });
    await team.call("DELETE", path);
    expect(
      await DB.prepare("select 1 from deliveries where webhook_id = ? and type = 'webhook.deleted'")
        .bind(hook._id)
        .first(),
    ).toBeNull();
    await world.drainDeliveries();
    const types = (await deliveriesOf(team, watching._id)).map(({ type }: { type: string }) => type);
    expect(types).toEqual(["webhook.deleted", "webhook.updated", "webhook.created", "webhook.updated"]);
  });

  test("carries the version of its webhook when that is updated, rotated, disabled, or deleted", async () => {
    const { team, hook } = await begin();
    const path = `/auth/v1/webhooks/${hook._id}`;
    await team.call("PATCH", path, { json: { description: "new" } });
    await rotate(team, hook);
    await team.call("PATCH", path, { json: { status: "disabled" } });
    await team.call("DELETE", path);
    const versions = async (type: string) =>
      (await eventsOf(team, type)).map(({ subject }: { subject: { version: number } }) => subject.version);
    expect(await versions("webhook.updated")).toEqual([3, 2, 1]);
    expect(await versions("webhook.deleted")).toEqual([3]);
  });

  test("is signed by both secrets for a day after a rotation, and by one if the old one has expired or was revoked", async () => {
    const { world, team, hook } = await begin();
    const secret = await rotate(team, hook);
    await createEvent(team);
    await world.drainDeliveries();
    const [both] = world.posts;
    const signatures = [await signatureOf(secret, both!), await signatureOf(hook.secret, both!)];
    expect(both!.headers["webhook-signature"]).toBe(signatures.join(" "));
    expect([verifies(hook.secret, both!), verifies(secret, both!)]).toEqual([true, true]);
    world.aheadMilliseconds += DAY;
    await createEvent(team);
    await world.drainDeliveries();
    const late = world.posts[1]!;
    expect(late.headers["webhook-signature"]).toBe(await signatureOf(secret, late));
    const newest = await rotate(team, hook, { revokeOld: true });
    await createEvent(team);
    await world.drainDeliveries();
    const last = world.posts[2]!;
    expect(last.headers["webhook-signature"]).toBe(await signatureOf(newest, last));
  });

  test("is signed by the same secret after the recovery job has re-encrypted it and the old master key is gone", async () => {
    const { world, team, hook } = await begin();
    await rotate(team, hook);
    const next = btoa("fedcba9876543210fedcba9876543210");
    world.secrets = loadSecrets(`${next},${env.MASTER_KEY}`, realSystem);
    await world.recover();
    world.secrets = loadSecrets(next, realSystem);
    await createEvent(team);
    await world.drainDeliveries();
    expect(verifies(hook.secret, world.posts[0]!)).toBe(true);
  });

  test("waits while its secret cannot be decrypted", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    world.secrets = loadSecrets(btoa("fedcba9876543210fedcba9876543210"), realSystem);
    await deliverNewest(world);
    expect(world.posts).toEqual([]);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      { status: "pending", attempts: [{ error: "secret_unreadable" }] },
    ]);
    world.secrets = undefined;
    await settle(world, team);
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
  });

  test("is not sent to a URL that is no longer allowed", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await DB.prepare("update webhooks set url = 'https://127.0.0.1/' where id = ?").bind(hook._id).run();
    await settle(world, team);
    expect(world.posts).toEqual([]);
    const [{ status, attempts }] = await deliveriesOf(team, hook._id);
    expect([status, attempts.length, attempts[0].error]).toEqual(["failed", 10, "address_refused"]);
  });
});

describe("an attempt", () => {
  test.each([200, 299])("succeeds on %i", async (code) => {
    const { world, team, hook } = await begin();
    world.answer = status(code);
    await createEvent(team);
    await settle(world, team);
    expect(world.posts).toHaveLength(1);
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
  });

  test("fails on any other response, and is retried within seconds with the same id", async () => {
    const { world, team, hook } = await begin();
    const replies: Partial<Reply>[] = [
      ...[100, 301, 308, 400, 404, 429, 500, 503].map((httpStatus) => ({ httpStatus })),
      { httpStatus: null, error: "connection_failed" },
      { httpStatus: null, error: "timeout" },
      // The head of a response without a body in time.
      { httpStatus: 200, error: "timeout" },
    ];
    for (const reply of replies) {
      world.posts.length = 0;
      world.answer = () => (world.posts.length === 1 ? reply : {});
      await createEvent(team);
      await world.drainDeliveries();
      const [{ status, attempts }] = await deliveriesOf(team, hook._id);
      expect([status, attempts.length]).toEqual(["succeeded", 2]);
      expect(attempts[0]).toMatchObject({ httpStatus: reply.httpStatus, error: reply.error ?? null });
      const [first, second] = world.posts;
      expect(idOf(first!)).toBe(idOf(second!));
      expect(first!.headers["webhook-timestamp"]).not.toBe(second!.headers["webhook-timestamp"]);
    }
  });

  test("is repeated after the promised waits, up to ten times", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await settle(world, team);
    const waits = world.posts.slice(1).map(({ at }, i) => at - world.posts[i]!.at);
    expect(waits).toHaveLength(9);
    for (const [i, wait] of waits.entries()) {
      const promised = WAITS[i]!;
      const latest = promised * 1.2 + SECOND + (promised > 12 * MINUTE ? RECOVERY_LAG : 0);
      expect(wait, `attempt ${i + 2}`).toBeGreaterThanOrEqual(promised * 0.8);
      expect(wait, `attempt ${i + 2}`).toBeLessThanOrEqual(latest);
    }
    const [{ status: ended, attempts, nextAttemptAt }] = await deliveriesOf(team, hook._id);
    expect([ended, attempts.length, nextAttemptAt]).toEqual(["failed", 10, null]);
  });

  test("is repeated after waits that vary by a fifth", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(world, team, [hook], 4);
    await deliverNewest(world);
    const waits = new Set(
      (await deliveriesOf(team, hook._id)).map((one: { nextAttemptAt: string }) => one.nextAttemptAt),
    );
    expect(waits.size).toBeGreaterThan(1);
  });

  test.each<[string, (now: number) => string, number]>([
    ["seconds", () => "600", 600],
    ["a date", (now) => new Date(now + 1200 * SECOND).toUTCString(), 1200],
    ["more than a day", () => "99999999", 24 * 3600],
    ["a past date", (now) => new Date(now - HOUR).toUTCString(), 4],
    ["nonsense", () => "soon", 4],
    ["a negative number", () => "-5", 4],
  ])("waits for Retry-After in %s, up to a day", async (_, header, seconds) => {
    for (const code of [429, 503]) {
      const { world, team, hook } = await begin();
      world.answer = status(code, header(world.system.now()));
      await createEvent(team);
      await deliverNewest(world);
      const [{ nextAttemptAt }] = await deliveriesOf(team, hook._id);
      const wait = (Date.parse(nextAttemptAt) - world.posts[0]!.at) / SECOND;
      expect(wait).toBeGreaterThanOrEqual(seconds - 1);
      expect(wait).toBeLessThanOrEqual(seconds + 3);
    }
  });

  test("ignores Retry-After in responses other than 429 and 503", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500, "3600");
    await createEvent(team);
    await deliverNewest(world);
    const [{ nextAttemptAt }] = await deliveriesOf(team, hook._id);
    expect(Date.parse(nextAttemptAt) - world.posts[0]!.at).toBeLessThanOrEqual(6 * SECOND);
  });

  test("keeps the response body of the latest failures of a webhook, and none after a success", async () => {
    const { world, team, hook } = await begin();
    world.answer = ({ at }) => ({ httpStatus: world.posts.length < 3 ? 500 : 200, body: `body ${at}` });
    await createEvent(team);
    const bodies = async () =>
      (await deliveriesOf(team, hook._id))[0].attempts.map((one: { responseBody: string }) => one.responseBody);
    await deliverNewest(world);
    expect(await bodies()).toEqual([`body ${world.posts[0]!.at}`]);
    world.aheadMilliseconds += 10 * SECOND;
    await deliverNewest(world);
    expect(await bodies()).toEqual(["", `body ${world.posts[1]!.at}`]);
    await settle(world, team);
    expect(await bodies()).toEqual(["", "", ""]);
    world.answer = status(500);
    await copyEvent(world, team, [hook], 7);
    world.answer = respondWith({ httpStatus: 500, body: "broken" });
    await createEvent(team);
    await deliverNewest(world);
    await deliverNewest(world);
    const all = (await deliveriesOf(team, hook._id)).map(
      (one: { attempts: { responseBody: string }[] }) => one.attempts.at(-1)?.responseBody,
    );
    expect(all.filter((text: string) => text === "broken")).toHaveLength(5);
  });
});

describe("the delivery log", () => {
  const listed = async (team: Team, { _id }: Hook, query: string) =>
    (await team.call("GET", `/auth/v1/webhooks/${_id}/deliveries?${query}`)).body.data.map(
      ({ eventId }: { eventId: string }) => eventId,
    );

  test("is filtered by state: a failing delivery is to be retried, or has failed", async () => {
    const { world, team, hook } = await begin();
    const nextResponse = async (httpStatus: number) => {
      world.answer = status(httpStatus);
      await createEvent(team);
      await deliverNewest(world);
    };
    await nextResponse(410);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    await nextResponse(200);
    await nextResponse(500);
    await createEvent(team);
    const [waiting, retried, succeeded, failed] = (await eventsOf(team, "apikey.created")).map(
      ({ _id }: { _id: string }) => _id,
    );
    const inState = (state: string) => listed(team, hook, `status=${state}`);
    expect(await inState("failing")).toEqual([retried, failed]);
    expect(await inState("succeeded")).toEqual([succeeded]);
    expect(await inState("waiting")).toEqual([waiting]);
    expect(await inState("pending")).toEqual([waiting, retried]);
    expect(await inState("failed")).toEqual([failed]);
    // What is sent again after a success has not failed.
    const { data } = (await team.call("GET", `/auth/v1/webhooks/${hook._id}/deliveries?status=succeeded`)).body;
    await team.call("POST", `/auth/v1/deliveries/${data[0]._id}/redeliver`);
    expect(await inState("waiting")).toEqual([waiting, succeeded]);
    world.answer = status(200);
    await settle(world, team);
    expect(await inState("failing")).toEqual([failed]);
  });

  test("continues behind deliveries that a page has examined without a match", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await settle(world, team);
    await copyEvent(world, team, [hook], EXAMINED_DELIVERIES);
    const path = `/auth/v1/webhooks/${hook._id}/deliveries?status=succeeded`;
    const first = await team.call("GET", path);
    expect(first.body.data).toEqual([]);
    const rest = await team.call("GET", nextOf(first) ?? "");
    expect(rest.body.data).toMatchObject([{ status: "succeeded" }]);
    expect(nextOf(rest)).toBeUndefined();
  });
});

describe("a webhook", () => {
  test("is disabled by 410, with an event for the others, and its deliveries end", async () => {
    const { world, team, hook } = await begin();
    const watching = await newHook(team, { types: ["webhook.disabled"], url: "https://watch.canary.example/" });
    world.answer = ({ url }) => (url === HOOK_URL ? { httpStatus: 410 } : {});
    await createEvent(team);
    await copyEvent(world, team, [hook], 7);
    await world.drainDeliveries();
    expect(await hookOf(team, hook._id)).toMatchObject({ status: "disabled", disabledReason: "gone", __v: 1 });
    expect(world.posts.filter(({ url }) => url === HOOK_URL)).toHaveLength(MAX_IN_FLIGHT);
    expect(await statusesOf(hook)).toEqual({ failed: 8 });
    expect((await deliveriesOf(team, hook._id))[0].attempts).toMatchObject([{ error: "webhook_disabled" }]);
    expect(await deliveriesOf(team, watching._id)).toMatchObject([{ type: "webhook.disabled", status: "succeeded" }]);
    const events = await eventsOf(team, "webhook.disabled");
    expect(events).toMatchObject([
      {
        actor: { kind: "system" },
        subject: { kind: "webhook", id: hook._id, version: 1 },
        data: { _id: hook._id, reason: "gone" },
      },
    ]);
  });

  test("is disabled after five days without a success, not earlier", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    const beganAt = world.system.now();
    let disabledAfter = 0;
    for (let hour = 0; hour < 8 * 24 && disabledAfter === 0; hour += 6) {
      if (hour % 24 === 0) await createEvent(team);
      await world.drainDeliveries();
      world.aheadMilliseconds += 6 * HOUR;
      await world.recover();
      if ((await columnsOf(hook))?.status === "disabled") disabledAfter = world.system.now() - beganAt;
    }
    expect(disabledAfter).toBeGreaterThanOrEqual(5 * DAY);
    expect(disabledAfter).toBeLessThan(6 * DAY);
    expect(await hookOf(team, hook._id)).toMatchObject({ disabledReason: "failing" });
    expect(Object.keys(await statusesOf(hook))).toEqual(["failed"]);
  });

  test("stays enabled with one success in five days, or with two failures that are days apart", async () => {
    const { world, team, hook } = await begin();
    for (let day = 0; day < 8; day++) {
      world.answer = status(day === 3 ? 200 : 500);
      await createEvent(team);
      await world.drainDeliveries();
      world.aheadMilliseconds += DAY;
    }
    const second = await begin();
    await DB.prepare("update webhooks set failures = 1, failing_since = ? where id = ?")
      .bind(second.world.system.now() - 6 * DAY, second.hook._id)
      .run();
    second.world.answer = status(500);
    await createEvent(second.team);
    await deliverNewest(second.world);
    for (const { _id } of [hook, second.hook])
      expect(await columnsOf({ _id } as Hook)).toMatchObject({ status: "enabled" });
  });

  test("is sent one delivery at a time after ten consecutive failures, and all of them after a success", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(world, team, [hook], 29);
    await deliverNewest(world);
    await deliverNewest(world);
    expect(world.posts).toHaveLength(10);
    const { resume_at: resumeAt } = (await columnsOf(hook))!;
    expect(resumeAt).toBe(world.system.now() + 5 * MINUTE);
    const [newest] = await deliveriesOf(team, hook._id);
    expect(Date.parse(newest.nextAttemptAt), "the delivery log shows the pause").toBe(resumeAt);
    await createEvent(team);
    await deliverNewest(world);
    expect(world.posts, "paused").toHaveLength(10);
    world.aheadMilliseconds += 5 * MINUTE;
    await deliverNewest(world);
    expect(world.posts, "one probe").toHaveLength(11);
    world.answer = status(200);
    world.aheadMilliseconds += 10 * MINUTE;
    const from = world.system.now();
    await deliverNewest(world);
    await world.drainDeliveries();
    expect(world.posts.at(-1)!.at - from).toBeLessThan(MINUTE);
    expect(await statusesOf(hook)).toEqual({ succeeded: 31 });
  });

  test("is paused for 5 minutes if it keeps failing, then twice as long each time, up to an hour", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(world, team, [hook], 29);
    await deliverNewest(world);
    const pauses: number[] = [];
    for (let probe = 0; probe < 6; probe++) {
      await deliverNewest(world);
      const pause = Number((await columnsOf(hook))?.resume_at) - world.system.now();
      pauses.push(pause / MINUTE);
      world.aheadMilliseconds += pause + RECOVERY_LAG;
      await world.recover();
    }
    expect(pauses).toEqual([5, 10, 20, 40, 60, 60]);
  });

  test("is sent few attempts if it always fails, and every delivery ends", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(world, team, [hook], 29);
    await settle(world, team, 1000);
    expect(await statusesOf(hook)).toEqual({ failed: 30 });
    expect(world.posts.length).toBeLessThan(250);
  });

  test("is sent to at once, with its failures reset, when it is enabled or its URL changes", async () => {
    for (const json of [{ status: "enabled" }, { url: "https://new.canary.example/" }]) {
      const { world, team, hook } = await begin();
      world.answer = status(500);
      await createEvent(team);
      await copyEvent(world, team, [hook], 14);
      await deliverNewest(world);
      await deliverNewest(world);
      world.webhookMessages = [];
      await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json });
      expect(await columnsOf(hook)).toMatchObject({ failures: 0, resume_at: null });
      await deliverNewest(world);
      expect(world.posts).toHaveLength(15);
    }
  });

  test("does not count a failure of its previous URL, and sends to the new one what the old one refused by 410", async () => {
    const { world, team, hook } = await begin();
    world.answer = async () => {
      const json = { url: "https://new.canary.example/in" };
      expect((await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json })).status).toBe(200);
      return { httpStatus: 410 };
    };
    await createEvent(team);
    await copyEvent(world, team, [hook], 4);
    await deliverNewest(world);
    expect(await columnsOf(hook)).toMatchObject({ status: "enabled", failures: 0, resume_at: null, lease_id: null });
    expect(Object.keys(await statusesOf(hook)), "the new URL gets what the old one refused").toEqual(["pending"]);
    world.answer = () => ({});
    await world.drainDeliveries();
    expect(Object.keys(await statusesOf(hook))).toEqual(["succeeded"]);
  });

  test("is sent nothing during the pause that it requested, and everything after it, without the recovery job", async () => {
    const { world, team, hook } = await begin();
    world.answer = () => (world.posts.length === 5 ? { httpStatus: 429, retryAfter: "600" } : {});
    await createEvent(team);
    await copyEvent(world, team, [hook], 5);
    await deliverNewest(world);
    expect((await columnsOf(hook))?.resume_at).toBe(world.system.now() + 600 * SECOND);
    await createEvent(team);
    await world.drainDeliveries();
    expect(world.posts[5]!.at - world.posts[4]!.at).toBeGreaterThanOrEqual(600 * SECOND);
    expect(await statusesOf(hook)).toEqual({ succeeded: 7 });
  });

  test.each([
    ["disabled", "PATCH", { status: "disabled" }, { failed: 1201 }],
    ["deleted", "DELETE", undefined, {}],
  ])("ends its pending deliveries if it is %s, 500 in each step, and sends none", async (_, method, json, statuses) => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await copyEvent(world, team, [hook], 1200);
    world.webhookMessages = [];
    await team.call(method, `/auth/v1/webhooks/${hook._id}`, { ...(json && { json }) });
    const pending = async () => (await statusesOf(hook)).pending;
    expect(await pending()).toBe(701);
    await deliverNewest(world);
    expect(await pending()).toBe(201);
    await world.drainDeliveries();
    expect(await statusesOf(hook)).toEqual(statuses);
    expect(world.posts).toEqual([]);
  });

  test("shows why a delivery ended unsent", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await DB.prepare("delete from events where team_id = ?").bind(team.teamId).run();
    await world.drainDeliveries();
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      { status: "failed", attempts: [{ httpStatus: null, error: "event_purged", durationMilliseconds: 0 }] },
    ]);
    expect(await columnsOf(hook)).toMatchObject({ failures: 0 });
  });
});

describe("a round", () => {
  test("sends up to five deliveries at once, and further rounds send the rest, each once, without the recovery job", async () => {
    const { world, team, hook } = await begin();
    let inFlight = 0;
    let most = 0;
    world.answer = async () => {
      most = Math.max(most, ++inFlight);
      await realSystem.sleep(1);
      inFlight--;
      return {};
    };
    await createEvent(team);
    await copyEvent(world, team, [hook], 41);
    await world.drainDeliveries();
    expect(await statusesOf(hook)).toEqual({ succeeded: 42 });
    expect(new Set(world.posts.map(idOf)).size).toBe(42);
    expect([world.posts.length, most]).toEqual([42, MAX_IN_FLIGHT]);
  });

  test("costs two batches: one statement stores all outcomes", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await copyEvent(world, team, [hook], 9);
    const bindings = new ProxiedBindings();
    await deliverNewest(world, bindings);
    expect(bindings.calls).toEqual(["D1 batch", "D1 batch", "Queue sendBatch"]);
    expect(bindings.effects.rowsWritten).toBeLessThanOrEqual(7);
  });

  test("has the only lease: another message is acked, and sends nothing", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    const [message] = world.webhookMessages.splice(0);
    world.answer = async () => {
      await copyEvent(world, team, [hook], 3);
      expect(await world.deliverWebhook(message!)).toBeNull();
      expect(world.posts).toHaveLength(1);
      world.answer = status(200);
      return {};
    };
    await world.deliverWebhook(message!);
    await world.drainDeliveries();
    expect(await statusesOf(hook)).toEqual({ succeeded: 4 });
    expect(world.posts).toHaveLength(4);
  });

  test("strands no event that occurs while it sends, though its message finds the lease", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    const [message] = world.webhookMessages.splice(0);
    world.answer = async () => {
      world.answer = status(200);
      await createEvent(team);
      await deliverNewest(world);
      return {};
    };
    await world.deliverWebhook(message!);
    await world.drainDeliveries();
    expect(await statusesOf(hook)).toEqual({ succeeded: 2 });
    expect(world.posts).toHaveLength(2);
  });

  test("stores its successes if its lease expired, and counts no failure of the webhook", async () => {
    for (const late of [200, 500]) {
      const { world, team, hook } = await begin();
      await createEvent(team);
      const [message] = world.webhookMessages.splice(0);
      world.answer = async () => {
        world.answer = status(late === 200 ? 500 : 200);
        world.aheadMilliseconds += LEASE_MILLISECONDS;
        await world.deliverWebhook(message!);
        return { httpStatus: late };
      };
      await world.deliverWebhook(message!);
      expect(world.posts).toHaveLength(2);
      expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
      expect(await columnsOf(hook)).toMatchObject({ failures: late === 200 ? 1 : 0, lease_id: null });
    }
  });

  /** Each round of the webhook takes this time. */
  const slowDown = (world: World, milliseconds: number) => {
    world.answer = () => {
      world.aheadMilliseconds += milliseconds / MAX_IN_FLIGHT;
      return {};
    };
  };

  test("is followed by the next one at once while consumers are free, however slow the endpoint is", async () => {
    const { world, team, hook } = await begin();
    slowDown(world, 15 * SECOND);
    await createEvent(team);
    await copyEvent(world, team, [hook], 49);
    const from = world.system.now();
    await world.drainDeliveries();
    expect(await statusesOf(hook)).toEqual({ succeeded: 50 });
    expect(world.system.now() - from).toBeLessThan(11 * 15 * SECOND);
  });

  test("is followed by a rest if it was slow and waited for a consumer, which acks messages and strands none", async () => {
    const { world, team, hook } = await begin();
    slowDown(world, 15 * SECOND);
    await createEvent(team);
    const late = world.webhookMessages.shift()!;
    world.aheadMilliseconds += 5 * SECOND;
    await world.deliverWebhook(late);
    const finishedAt = world.system.now();
    expect(world.posts).toHaveLength(1);
    await createEvent(team);
    await deliverNewest(world);
    expect(world.posts, "resting").toHaveLength(1);
    await world.drainDeliveries();
    // One post took 3 s, so the rest is 30 times 2 s, plus or minus half.
    const rest = world.posts[1]!.at - finishedAt;
    expect(rest).toBeGreaterThanOrEqual(30 * SECOND);
    expect(rest).toBeLessThanOrEqual(91 * SECOND);
    expect(await statusesOf(hook)).toEqual({ succeeded: 2 });
  });

  test("rests for at most 22.5 minutes, however long it took", async () => {
    const { world, team } = await begin();
    slowDown(world, 100 * MINUTE);
    await createEvent(team);
    const late = world.webhookMessages.shift()!;
    world.aheadMilliseconds += 5 * SECOND;
    await world.deliverWebhook(late);
    await createEvent(team);
    const [next] = world.webhookMessages;
    world.aheadMilliseconds += 7.4 * MINUTE;
    await world.deliverWebhook(next!);
    expect(world.posts).toHaveLength(1);
    world.aheadMilliseconds += 15.1 * MINUTE;
    await world.deliverWebhook(next!);
    expect(world.posts).toHaveLength(2);
  });

  test("starts up to 2 s before a delivery is due, because clocks differ", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    const [message] = world.webhookMessages;
    await deliverNewest(world);
    const [{ nextAttemptAt }] = await deliveriesOf(team, hook._id);
    world.aheadMilliseconds += Date.parse(nextAttemptAt) - world.system.now() - 2 * SECOND - 1;
    await world.deliverWebhook(message!);
    expect(world.posts).toHaveLength(1);
    world.aheadMilliseconds += 1;
    await world.deliverWebhook(message!);
    expect(world.posts).toHaveLength(2);
  });

  test("leaves the next message to the recovery job if it ends more than 15 minutes before", async () => {
    const { world, team } = await begin();
    world.answer = status(500);
    await createEvent(team);
    for (const wait of [0, ...WAITS.slice(0, 2)]) {
      world.aheadMilliseconds += 1.2 * wait;
      await deliverNewest(world);
    }
    expect([world.posts.length, world.webhookMessages]).toEqual([3, []]);
    world.aheadMilliseconds += 1.2 * WAITS[2]! + RECOVERY_LAG;
    await world.recover();
    expect(world.webhookMessages).toHaveLength(1);
  });

  test("is followed by no rest if it was fast, although it waited for a consumer", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    const late = world.webhookMessages.shift()!;
    world.aheadMilliseconds += 5 * SECOND;
    await copyEvent(world, team, [hook], 9);
    await world.deliverWebhook(late);
    const from = world.system.now();
    await world.drainDeliveries();
    expect(world.system.now()).toBe(from);
    expect(await statusesOf(hook)).toEqual({ succeeded: 10 });
  });

  test("counts a failure once and continues if its outcomes got no response", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await deliverNewest(world, new ProxiedBindings({ call: 2, moment: "after", failure: "transient" }));
    expect(await columnsOf(hook)).toMatchObject({ failures: 1 });
    expect(world.webhookMessages).toHaveLength(1);
  });

  test("sends nothing again for a duplicate or late message", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    const [message] = world.webhookMessages.splice(0);
    await Promise.all([world.deliverWebhook(message!), world.deliverWebhook(message!)]);
    world.aheadMilliseconds += DAY;
    await world.deliverWebhook(message!);
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
    expect(world.posts).toHaveLength(1);
  });

  test("logs neither a secret, nor a URL, nor a body", async () => {
    const { world, team, hook } = await begin();
    world.answer = respondWith({ httpStatus: 500, body: "canary-body" });
    await createEvent(team);
    await settle(world, team);
    const text = JSON.stringify(world.lines);
    expect(text).toContain(hook._id);
    expect(text).not.toMatch(/canary|whsec_|hooks\.|apikey\.created/);
  });
});

describe("a redelivery", () => {
  const redeliver = async (team: Team, hook: Hook) => {
    const [{ _id }] = await deliveriesOf(team, hook._id);
    const { status, body } = await team.call("POST", `/auth/v1/deliveries/${_id}/redeliver`);
    expect(status).toBe(200);
    return body.data;
  };

  test.each([
    [200, 200],
    [410, 500],
  ])("makes one more attempt, with the same id, if the delivery ended with %i", async (first, second) => {
    const { world, team, hook } = await begin();
    world.answer = () => ({ httpStatus: world.posts.length === 1 ? first : second });
    await createEvent(team);
    await settle(world, team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    expect(await redeliver(team, hook)).toMatchObject({ status: "pending", attempts: [{ httpStatus: first }] });
    await settle(world, team);
    expect(world.posts.map(idOf)).toEqual([idOf(world.posts[0]!), idOf(world.posts[0]!)]);
    const [delivery] = await deliveriesOf(team, hook._id);
    expect([delivery.status, delivery.attempts.length]).toEqual([second === 200 ? "succeeded" : "failed", 2]);
  });

  test("sends the event once if it is requested 20 times at once", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await settle(world, team);
    for (let i = 0; i < 20; i++) await redeliver(team, hook);
    await settle(world, team);
    expect(world.posts).toHaveLength(2);
  });

  test("ends the pause of a webhook", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(world, team, [hook], 11);
    await deliverNewest(world);
    await deliverNewest(world);
    await redeliver(team, hook);
    await deliverNewest(world);
    expect(world.posts).toHaveLength(11);
  });
});

describe("the health of a webhook", () => {
  const healthOf = async (team: Team, { _id }: Hook) => {
    const { health, failingSince, lastDay } = await hookOf(team, _id);
    return { health, failingSince, attempts: [lastDay.succeeded, lastDay.failed], hours: lastDay.hours };
  };

  test("is failing from the third failure on, since the first, and healthy after a success", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    const firstFailure = world.system.now();
    for (let i = 0; i < 3; i++) {
      expect(await healthOf(team, hook)).toMatchObject({ health: "healthy", failingSince: null, attempts: [0, i] });
      await createEvent(team);
      await deliverNewest(world);
    }
    const failing = await healthOf(team, hook);
    expect(failing).toMatchObject({ health: "failing", attempts: [0, 3] });
    expect(Math.abs(Date.parse(failing.failingSince) - firstFailure)).toBeLessThan(5 * SECOND);
    world.answer = status(204);
    await createEvent(team);
    await deliverNewest(world);
    expect(await healthOf(team, hook)).toMatchObject({ health: "healthy", failingSince: null, attempts: [1, 3] });
    expect((await team.call("GET", "/auth/v1/webhooks")).body.data[0]).toMatchObject({ health: "healthy" });
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "disabled" } });
    expect(await healthOf(team, hook)).toMatchObject({ health: "disabled" });
  });

  test("has the result of the latest attempt, with the response to a failed one", async () => {
    const { world, team, hook } = await begin();
    expect((await hookOf(team, hook._id)).lastResult).toBeNull();
    const resultOf = async (httpStatus: number) => {
      world.answer = respondWith({ httpStatus, body: `body of ${httpStatus}` });
      await createEvent(team);
      await deliverNewest(world);
      const at = new Date(world.posts.at(-1)!.at).toISOString();
      const { lastResult } = await hookOf(team, hook._id);
      expect(lastResult).toMatchObject({ at, httpStatus, error: null });
      return lastResult.responseBody;
    };
    expect(await resultOf(500)).toBe("body of 500");
    expect(await resultOf(200)).toBe("");
  });

  test("counts the attempts of a day by the hour", async () => {
    const { world, team, hook } = await begin();
    world.aheadMilliseconds += HOUR - (world.system.now() % HOUR);
    for (const hour of [0, 1, 1, 20]) {
      world.aheadMilliseconds += hour * HOUR;
      await createEvent(team);
      await deliverNewest(world);
    }
    const { attempts, hours } = await healthOf(team, hook);
    expect(attempts).toEqual([4, 0]);
    const starts = hours.map(({ startsAt }: { startsAt: string }) => Date.parse(startsAt));
    expect(starts.map((start: number) => (start - starts[0]) / HOUR)).toEqual([0, 1, 2, 22]);
    expect(starts[0] % HOUR).toBe(0);
    world.aheadMilliseconds += 3 * HOUR;
    await createEvent(team);
    await deliverNewest(world);
    expect((await healthOf(team, hook)).attempts).toEqual([3, 0]);
  });
});

describe("a replay", () => {
  const replay = async (team: Team, { _id }: Hook, json: object) =>
    (await team.call("POST", `/auth/v1/webhooks/${_id}/replay`, { json })).body.data;

  test("sends the events after an event, also those from while the webhook was disabled, with the same ids", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    const [after] = await eventsOf(team, "apikey.created");
    await createEvent(team);
    await settle(world, team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "disabled" } });
    await createEvent(team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    world.posts.length = 0;
    expect(await replay(team, hook, { after: after._id })).toEqual({ deliveries: 2, next: null });
    await settle(world, team);
    const events = await eventsOf(team, "apikey.created");
    expect(world.posts.map(idOf).sort()).toEqual([events[1]._id, events[0]._id]);
    expect(await statusesOf(hook)).toEqual({ succeeded: 3 });
  });

  test("sends the events that are later than an instant", async () => {
    const { world, team, hook } = await begin();
    for (let i = 0; i < 3; i++) {
      world.aheadMilliseconds += MINUTE;
      await createEvent(team);
    }
    await settle(world, team);
    const [last, second] = await eventsOf(team, "apikey.created");
    world.posts.length = 0;
    expect(await replay(team, hook, { after: second.createdAt })).toEqual({ deliveries: 1, next: null });
    await settle(world, team);
    expect(world.posts.map(idOf)).toEqual([last._id]);
    const before = new Date(Date.parse(second.createdAt) - 1).toISOString();
    expect(await replay(team, hook, { after: before })).toEqual({ deliveries: 2, next: null });
    const { status, errors } = (
      await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json: { after: "noon" } })
    ).body;
    expect([status, errors[0].path]).toEqual([false, "after"]);
  });

  test("leaves what succeeded if only failures are replayed", async () => {
    const { world, team, hook } = await begin();
    const [after] = await eventsOf(team, "webhook.created");
    world.answer = () => ({ httpStatus: world.posts.length === 1 ? 410 : 200 });
    await createEvent(team);
    await settle(world, team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    await createEvent(team);
    await settle(world, team);
    const failed = idOf(world.posts[0]!);
    world.posts.length = 0;
    expect(await replay(team, hook, { after: after._id, failedOnly: true })).toEqual({ deliveries: 1, next: null });
    await settle(world, team);
    expect(world.posts.map(idOf)).toEqual([failed]);
  });

  test("sends at once what waits for a retry if only failures are replayed, and nothing that was not sent yet", async () => {
    const { world, team, hook } = await begin();
    const [after] = await eventsOf(team, "webhook.created");
    world.answer = status(500);
    for (let i = 0; i < 3; i++) {
      await createEvent(team);
      await deliverNewest(world);
    }
    await createEvent(team);
    world.posts.length = world.webhookMessages.length = 0;
    world.answer = status(200);
    expect(await replay(team, hook, { after: after._id, failedOnly: true })).toEqual({ deliveries: 3, next: null });
    await deliverNewest(world);
    expect(await statusesOf(hook)).toEqual({ succeeded: 4 });
  });

  test("takes several calls for hundreds of events, each of which returns where to continue", async () => {
    const { world, team, hook } = await begin();
    const [after] = await eventsOf(team, "webhook.created");
    await insertMany(
      400,
      `insert into events select ?2, (select max(seq) from events where team_id = ?2) + i,
       iif(i % 2, 'apikey.created', 'user.created'), 1, '{}', 'x', null, '{}', i from n`,
      team.teamId,
    );
    const counts: number[] = [];
    for (let next = after._id; next !== null; ) {
      const step = await replay(team, hook, { after: next });
      counts.push(step.deliveries);
      next = step.next;
    }
    expect(counts).toEqual([75, 75, 50]);
    expect(await statusesOf(hook)).toEqual({ pending: 200 });
    expect(world.webhookMessages, "one message for each call").toHaveLength(3);
  });
});

describe("the recovery job", () => {
  // The recovery job reads the webhooks of all teams.
  beforeEach(emptyStores);

  const run = async (world: World) => {
    await world.recover();
    return world.webhookMessages.splice(0).map(({ webhookId }) => webhookId);
  };

  test("sends one message for each webhook with overdue deliveries, and a backlog delays no other webhook", async () => {
    const { world, team, hooks } = await begin(3);
    await createEvent(team);
    await copyEvent(world, team, hooks.slice(0, 1), 6000);
    world.webhookMessages = [];
    expect(await run(world), "messages have time to arrive").toEqual([]);
    world.aheadMilliseconds += 3 * MINUTE;
    expect((await run(world)).sort()).toEqual(hooks.map(({ _id }) => _id).sort());
    const counts: number[] = [];
    for (let i = 0; i < 6; i++) {
      world.aheadMilliseconds += 5 * MINUTE;
      counts.push((await run(world)).length);
    }
    expect(counts, "once in 15 minutes while the queue is long").toEqual([0, 0, 3, 0, 0, 3]);
  });

  test("reads a bounded number of rows for 100,000 deliveries and 1,200 webhooks, and finds every webhook", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await copyEvent(world, team, [hook], 100_000);
    await insertMany(
      1200,
      `insert into deliveries (webhook_id, seq, team_id, type, status, due_at, created_at)
       select printf('%012x%012x', 1.7e12 + i * 1e8, i), 1, ?2, 'apikey.created', 'pending', 1, 1 from n`,
      team.teamId,
    );
    world.webhookMessages = [];
    world.aheadMilliseconds += 3 * MINUTE;
    const bindings = new ProxiedBindings();
    await world.recover(bindings);
    expect(new Set(world.webhookMessages.map(({ webhookId }) => webhookId)).size).toBe(1201);
    expect(bindings.effects.rowsRead).toBeLessThan(30_000);
  });

  test("wakes no webhook that is paused, resting, or leased, and wakes it after that", async () => {
    const { world, team, hooks } = await begin(3);
    await createEvent(team);
    world.webhookMessages = [];
    world.aheadMilliseconds += 16 * MINUTE;
    const until = world.system.now() + 10 * MINUTE;
    const [paused, resting, leased] = hooks.map(({ _id }) => _id);
    await DB.batch([
      DB.prepare("update webhooks set resume_at = ? where id = ?").bind(until, paused),
      DB.prepare("update webhooks set lease_ends_at = ? where id = ?").bind(until, resting),
      DB.prepare("update webhooks set lease_ends_at = ?, lease_id = 'x' where id = ?").bind(until, leased),
    ]);
    expect(await run(world)).toEqual([]);
    world.aheadMilliseconds += 13 * MINUTE;
    expect((await run(world)).sort()).toEqual([paused, leased].sort());
    world.aheadMilliseconds += 13 * MINUTE;
    expect(await run(world)).toEqual([resting]);
  });

  test("ends pending deliveries of disabled and deleted webhooks", async () => {
    const { world, team, hooks } = await begin(2);
    await createEvent(team);
    world.webhookMessages = [];
    await DB.batch([
      DB.prepare("update webhooks set status = 'disabled' where id = ?").bind(hooks[0]!._id),
      DB.prepare("delete from webhooks where id = ?").bind(hooks[1]!._id),
    ]);
    await settle(world, team);
    expect(await Promise.all(hooks.map(statusesOf))).toEqual([{ failed: 1 }, {}]);
    expect(world.posts).toEqual([]);
  });
});
