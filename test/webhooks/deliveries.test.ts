import { runDurableObjectAlarm } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { Webhook as Verifier } from "standardwebhooks";
import { beforeEach, describe, expect, test } from "vitest";
import { eventId } from "../../src/events/events.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import type { Reply } from "../../src/platform/sender.ts";
import { realSystem } from "../../src/platform/system.ts";
import { MAX_DUE, MAX_IN_FLIGHT } from "../../src/webhooks/outbox.ts";
import { MAX_KEPT_DELIVERIES, type OutboxState } from "../../src/webhooks/outbox-store.ts";
import { MAX_FAILURES } from "../../src/webhooks/retries.ts";
import { outageOf, ProxiedBindings } from "../support/bindings.ts";
import type { CallOptions, Team } from "../support/client.ts";
import { expectDocumentedMessage } from "../support/contract.ts";
import { DB } from "../support/databases.ts";
import { call, newMember, nextOf, OPERATOR } from "../support/harness.ts";
import { insertMany } from "../support/rows.ts";
import { emptyStores } from "../support/stores.ts";
import { exhaustive } from "../support/tiers.ts";
import { DAY, HOUR, MINUTE, SECOND } from "../support/time.ts";
import { inWebhook, isEmpty, nameOf, storedDeliveries } from "../support/webhook-objects.ts";
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
  keyOf,
  newHook,
  respondWith,
  runAlarmOf,
  settle,
  status,
  statusesOf,
} from "../support/webhooks.ts";
import { must, type Post, type World } from "../support/world.ts";

/*
 * From an event to a webhook endpoint. The tests control the clock and the endpoint; D1 and the storage of objects are real.
 * Faults are in crash-points.test.ts.
 */

/** The promised waits between attempts. */
const WAITS = [5 * SECOND, 5 * MINUTE, 30 * MINUTE, ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR)];
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

/** The state that the object stores of its webhook. */
const stateOf = (hook: Hook): Promise<OutboxState> =>
  inWebhook(keyOf(hook), ({ storage }) =>
    JSON.parse(storage.sql.exec<{ json: string }>("select json from state").one().json),
  );
const setState = async (hook: Hook, changes: Partial<OutboxState>) => {
  const json = JSON.stringify({ ...(await stateOf(hook)), ...changes });
  await inWebhook(keyOf(hook), ({ storage }) => storage.sql.exec("update state set json = ?", json).toArray());
};
const storedHook = ({ _id }: Hook) =>
  DB.prepare("select disabled_reason, cursor, epoch from webhooks left join followers using (team_id, id) where id = ?")
    .bind(_id)
    .first();
/** Loses the wakes of all objects. */
const loseWakes = (world: World) => {
  for (const object of world.objects.values()) object.at = null;
};
const rotate = async (team: Team, { _id }: Hook, json = {}): Promise<string> =>
  (await team.call("POST", `/auth/v1/webhooks/${_id}/secret`, { json })).body.data.secret;

describe("the object of a webhook", () => {
  const body = "x".repeat(1024);
  const sizeOf = (hook: Hook) => inWebhook(keyOf(hook), ({ storage }) => storage.sql.databaseSize);

  test("grows by less than 2 KB per delivery, though most deliveries fail once", async () => {
    const { world, team, hook } = await begin();
    const seen = new Set<string | undefined>();
    // One success of five, so that consecutive failures do not pause the webhook.
    world.answer = (post) => {
      const isRetry = seen.has(idOf(post));
      seen.add(idOf(post));
      return { httpStatus: isRetry || world.posts.length % MAX_IN_FLIGHT === 0 ? 200 : 500, body };
    };
    await createEvent(team);
    await settle(world, [hook]);
    const before = await sizeOf(hook);
    await createEvent(team);
    await copyEvent(team, 99);
    await settle(world, [hook]);
    expect(await statusesOf(hook)).toEqual({ succeeded: 101 });
    expect(world.posts.length).toBeGreaterThan(170);
    expect((await sizeOf(hook)) - before).toBeLessThan(100 * 2048);
  });

  test("stores less than 4 KB of a delivery that fails all ten attempts", async () => {
    const { world, team, hook } = await begin();
    world.answer = respondWith({ httpStatus: 500, body });
    await createEvent(team);
    await settle(world, [hook]);
    expect(await statusesOf(hook)).toEqual({ failed: 1 });
    const query = "select length(event) + length(attempts) as bytes, json_array_length(attempts) as n from deliveries";
    const stored = await inWebhook(keyOf(hook), ({ storage }) =>
      storage.sql.exec<{ bytes: number; n: number }>(query).one(),
    );
    expect(stored.n).toBe(10);
    expect(stored.bytes).toBeLessThan(4096);
  });

  test(`keeps ended deliveries for 30 days, and the latest ${MAX_KEPT_DELIVERIES}`, async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await settle(world, [hook]);
    world.aheadMilliseconds += 29 * DAY;
    await createEvent(team);
    await settle(world, [hook]);
    expect(await statusesOf(hook)).toEqual({ succeeded: 2 });
    world.aheadMilliseconds += DAY + MINUTE;
    await world.runAlarms();
    expect(await statusesOf(hook), "without an event").toEqual({ succeeded: 1 });
    await inWebhook(keyOf(hook), ({ storage }) =>
      storage.sql
        .exec(
          `insert into deliveries (seq, type, event, status, created_at)
           with recursive n(i) as (select 1 union all select i + 1 from n where i <= ?)
           select i, 'apikey.created', '{}', 'succeeded', (select max(created_at) from deliveries) from n`,
          MAX_KEPT_DELIVERIES,
        )
        .toArray(),
    );
    world.aheadMilliseconds += DAY;
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual({ succeeded: MAX_KEPT_DELIVERIES });
  });

  test("stores nothing if it is only asked, and knows no webhook of an unknown id", async () => {
    const { world, team, hook } = await begin(1);
    loseWakes(world);
    expect(await hookOf(team, hook._id)).toMatchObject({ health: "healthy", lastResult: null });
    expect(await deliveriesOf(team, hook._id)).toEqual([]);
    expect(await isEmpty(keyOf(hook))).toBe(true);
    const unknown = { ...hook, _id: "f".repeat(24) };
    const path = `/auth/v1/webhooks/${unknown._id}`;
    expect((await team.call("PATCH", path, { json: { description: "x" } })).status).toBe(404);
    expect(await isEmpty(keyOf(unknown))).toBe(true);
  });

  test("is emptied when its webhook is deleted, also if it is never woken", async () => {
    for (const isWoken of [true, false]) {
      const { world, team, hook } = await begin();
      await createEvent(team);
      await world.runAlarms();
      expect(await isEmpty(keyOf(hook))).toBe(false);
      if (isWoken) await team.call("DELETE", `/auth/v1/webhooks/${hook._id}`);
      else await DB.prepare("delete from webhooks where id = ?").bind(hook._id).run();
      await world.runAlarms(isWoken ? 0 : DAY);
      expect(await isEmpty(keyOf(hook))).toBe(true);
      expect(world.nextAlarm).toBeUndefined();
    }
  });

  test("is emptied when its webhook is deleted during an attempt", async () => {
    const { world, team, hook } = await begin();
    let deletion: Promise<unknown> | undefined;
    world.answer = async () => {
      deletion ??= team.call("DELETE", `/auth/v1/webhooks/${hook._id}`);
      await deletion;
      return {};
    };
    await createEvent(team);
    await copyEvent(team, 8);
    await world.runAlarms();
    expect(world.posts).toHaveLength(MAX_IN_FLIGHT);
    expect(await isEmpty(keyOf(hook))).toBe(true);
  });

  test("is emptied when its team is deleted", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await world.runAlarms();
    await world.call("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR });
    await world.runAlarms(MINUTE);
    expect(world.posts).toHaveLength(1);
    expect(await isEmpty(keyOf(hook))).toBe(true);
  });
});

describe("the object of a webhook whose team is deleted", () => {
  test("is woken by the recovery job before the webhook's row goes, also if it does not respond at first", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await world.runAlarms();
    await world.call("DELETE", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR });
    loseWakes(world);
    await world.recover(new ProxiedBindings(outageOf("Object")));
    expect(await storedHook(hook)).not.toBeNull();
    expect(await isEmpty(keyOf(hook))).toBe(false);
    await world.recover();
    await world.runAlarms();
    expect(await storedHook(hook)).toBeNull();
    expect(await isEmpty(keyOf(hook))).toBe(true);
  });
});

describe("a message", () => {
  test("contains the event and a signature that the public library and the specification accept", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    const [post] = world.posts;
    const [{ _id, createdAt, ...logged }] = await eventsOf(team, "apikey.created");
    const { name, ...actor } = logged.actor;
    expect(name, "only in the event log").toEqual(expect.any(String));
    const { name: _, ...subject } = logged.subject;
    const event = { ...logged, actor, subject };
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
    await world.runAlarms(15 * MINUTE);
    world.posts.length = 0;
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    expect(world.posts).toHaveLength(3);
    for (const hook of hooks) expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
    expect((await deliveriesOf(team, all._id))[0]).toMatchObject({ type: "apikey.created", status: "succeeded" });
    for (const hook of [other, off, stranger.hook]) expect(await statusesOf(hook)).toEqual({});
  });

  test("about the creation or deletion of a webhook goes only to other webhooks, even in a replay", async () => {
    const { world, team, hook: watching } = await begin(1);
    await team.call("PATCH", `/auth/v1/webhooks/${watching._id}`, { json: { types: null } });
    const hook = await newHook(team, { types: null });
    await world.runAlarms(15 * MINUTE);
    await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json: { after: "0".repeat(24) } });
    const path = `/auth/v1/webhooks/${hook._id}`;
    await team.call("PATCH", path, { json: { description: "new" } });
    await world.runAlarms(15 * MINUTE);
    const own = await deliveriesOf(team, hook._id);
    const [{ _id: ownCreation }] = await eventsOf(team, "webhook.created");
    expect(own.map(({ eventId }: { eventId: string }) => eventId)).not.toContain(ownCreation);
    expect(own[0]).toMatchObject({ type: "webhook.updated" });
    await team.call("DELETE", path);
    const received = world.posts.length;
    await world.runAlarms(15 * MINUTE);
    expect(world.posts).toHaveLength(received + 1);
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
    await world.runAlarms(15 * MINUTE);
    const [both] = world.posts;
    const signatures = [await signatureOf(secret, both!), await signatureOf(hook.secret, both!)];
    expect(both!.headers["webhook-signature"]).toBe(signatures.join(" "));
    expect([verifies(hook.secret, both!), verifies(secret, both!)]).toEqual([true, true]);
    world.aheadMilliseconds += DAY;
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    const late = world.posts[1]!;
    expect(late.headers["webhook-signature"]).toBe(await signatureOf(secret, late));
    const newest = await rotate(team, hook, { revokeOld: true });
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    const last = world.posts[2]!;
    expect(last.headers["webhook-signature"]).toBe(await signatureOf(newest, last));
  });

  test("is still signed by the secret that the endpoint knows after a repeated rotation", async () => {
    const { world, team, hook } = await begin();
    const secret = await rotate(team, hook);
    expect(await rotate(team, hook)).toBe(secret);
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    expect([verifies(hook.secret, world.posts[0]!), verifies(secret, world.posts[0]!)]).toEqual([true, true]);
  });

  test("is signed by the same secret after the recovery job has re-encrypted it and the old master key is gone", async () => {
    const { world, team, hook } = await begin();
    await rotate(team, hook);
    const next = btoa("fedcba9876543210fedcba9876543210");
    world.secrets = loadSecrets(`${next},${env.MASTER_KEY}`, realSystem);
    await world.recover();
    world.secrets = loadSecrets(next, realSystem);
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    expect(verifies(hook.secret, world.posts[0]!)).toBe(true);
  });

  test("waits while its secret cannot be decrypted", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    world.secrets = loadSecrets(btoa("fedcba9876543210fedcba9876543210"), realSystem);
    await world.runAlarms();
    expect(world.posts).toEqual([]);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      { status: "pending", attempts: [{ error: "secret_unreadable" }] },
    ]);
    world.secrets = undefined;
    await settle(world, [hook]);
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
  });

  test("is not sent to a URL that is no longer allowed", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await DB.prepare("update webhooks set url = 'https://127.0.0.1/' where id = ?").bind(hook._id).run();
    await settle(world, [hook]);
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
    await settle(world, [hook]);
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
      await world.runAlarms(15 * MINUTE);
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
    await settle(world, [hook]);
    const waits = world.posts.slice(1).map(({ at }, i) => at - world.posts[i]!.at);
    expect(waits).toHaveLength(9);
    for (const [i, wait] of waits.entries()) {
      const promised = WAITS[i]!;
      const latest = promised * 1.2 + SECOND;
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
    await copyEvent(team, 4);
    await world.runAlarms();
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
      await world.runAlarms();
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
    await world.runAlarms();
    const [{ nextAttemptAt }] = await deliveriesOf(team, hook._id);
    expect(Date.parse(nextAttemptAt) - world.posts[0]!.at).toBeLessThanOrEqual(6 * SECOND);
  });

  test("keeps the response body of the latest attempt of a delivery if that failed", async () => {
    const { world, team, hook } = await begin();
    world.answer = ({ at }) => ({ httpStatus: world.posts.length < 3 ? 500 : 200, body: `body ${at}` });
    await createEvent(team);
    const bodies = async () =>
      (await deliveriesOf(team, hook._id))[0].attempts.map((one: { responseBody: string }) => one.responseBody);
    await world.runAlarms();
    expect(await bodies()).toEqual([`body ${world.posts[0]!.at}`]);
    await world.runAlarms(10 * SECOND);
    expect(await bodies()).toEqual(["", `body ${world.posts[1]!.at}`]);
    await settle(world, [hook]);
    expect(await bodies()).toEqual(["", "", ""]);
  });
});

describe("the delivery log", () => {
  const listed = async (team: Team, { _id }: Hook, query: string) =>
    (await team.call("GET", `/auth/v1/webhooks/${_id}/deliveries?${query}`)).body.data.map(
      ({ eventId }: { eventId: string }) => eventId,
    );

  test("is filtered by state: a failing delivery waits for a retry, or has failed", async () => {
    const { world, team, hook } = await begin();
    const nextResponse = async (httpStatus: number) => {
      world.answer = status(httpStatus);
      await createEvent(team);
      await world.runAlarms();
    };
    await nextResponse(410);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    await nextResponse(200);
    await nextResponse(500);
    await createEvent(team);
    await setState(hook, { resumeAt: world.system.now() + DAY });
    await world.runAlarms();
    const [waiting, retried, succeeded, failed] = (await eventsOf(team, "apikey.created")).map(
      ({ _id }: { _id: string }) => _id,
    );
    const inState = (state: string) => listed(team, hook, `status=${state}`);
    expect(await inState("failing")).toEqual([retried, failed]);
    expect(await inState("succeeded")).toEqual([succeeded]);
    expect(await inState("waiting")).toEqual([waiting]);
    expect(await inState("pending")).toEqual([waiting, retried]);
    expect(await inState("failed")).toEqual([failed]);
    // A delivery that is replayed after a success has not failed.
    await team.call("POST", `/auth/v1/webhooks/${hook._id}/replay`, { json: { after: failed } });
    expect(await inState("waiting")).toEqual([waiting, succeeded]);
    world.answer = status(200);
    await settle(world, [hook]);
    expect(await inState("failing")).toEqual([failed]);
  });

  test("is listed in pages, with a filter, too", async () => {
    const { world, team, hook } = await begin();
    world.answer = ({ headers }) => ({
      httpStatus: Number.parseInt(headers["webhook-id"]!.slice(0, 14), 16) % 2 ? 200 : 500,
    });
    await createEvent(team);
    await copyEvent(team, 9);
    await world.runAlarms();
    const path = `/auth/v1/webhooks/${hook._id}/deliveries`;
    for (const [query, count] of [
      ["", 10],
      ["&status=succeeded", 5],
      ["&status=failing", 5],
    ] as const) {
      const found: string[] = [];
      for (let next: string | undefined = `${path}?limit=2${query}`; next; ) {
        const answer = await team.call("GET", next);
        found.push(...answer.body.data.map(({ eventId }: { eventId: string }) => eventId));
        next = nextOf(answer);
      }
      expect(found, query).toHaveLength(count);
      expect(found).toEqual([...new Set(found)].sort().reverse());
    }
  });
});

describe("a webhook", () => {
  test("that is disabled by 410 is in an email to the address of its team", async () => {
    const { world, team, hook } = await begin();
    const json = { notificationEmail: "ops@example.com" };
    expect((await call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json })).status).toBe(200);
    world.answer = () => ({ httpStatus: 410 });
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    await expect.poll(() => world.mails).toHaveLength(1);
    expect(world.mails[0]).toMatchObject({
      to: "ops@example.com",
      subject: expect.stringMatching(/^.+: a webhook was disabled$/),
      text: expect.stringContaining(`/console/webhooks/${hook._id}`),
    });
  });

  test("is disabled by 410, with an event for the others, and its deliveries end", async () => {
    const { world, team, hook } = await begin();
    const watching = await newHook(team, { types: ["webhook.disabled"], url: "https://watch.canary.example/" });
    world.answer = ({ url }) => (url === HOOK_URL ? { httpStatus: 410 } : {});
    await createEvent(team);
    await copyEvent(team, 7);
    await world.runAlarms(15 * MINUTE);
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
    const [beganAt, beganAhead] = [world.system.now(), world.aheadMilliseconds];
    let disabledAfter = 0;
    for (let hour = 0; hour < 8 * 24 && disabledAfter === 0; hour += 6) {
      if (hour % 24 === 0) await createEvent(team);
      await world.runAlarms(6 * HOUR);
      world.aheadMilliseconds = Math.max(world.aheadMilliseconds, beganAhead + (hour + 6) * HOUR);
      if ((await storedHook(hook))?.disabled_reason) disabledAfter = world.system.now() - beganAt;
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
      await world.runAlarms(15 * MINUTE);
      world.aheadMilliseconds += DAY;
    }
    const second = await begin();
    second.world.answer = status(500);
    await createEvent(second.team);
    await second.world.runAlarms();
    await setState(second.hook, { failures: 1, failingSince: second.world.system.now() - 6 * DAY });
    await createEvent(second.team);
    await second.world.runAlarms();
    expect(second.world.posts).toHaveLength(2);
    for (const one of [hook, second.hook]) expect(await storedHook(one)).toMatchObject({ disabled_reason: null });
  });

  test("is sent one delivery at a time after ten consecutive failures, and all of them after a success", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(team, 29);
    await world.runAlarms();
    const sent = world.posts.length;
    expect(sent, "four were in flight with the tenth").toBeLessThan(10 + MAX_IN_FLIGHT);
    const { resumeAt, failures } = await stateOf(hook);
    expect([resumeAt, failures]).toEqual([world.system.now() + 5 * MINUTE, 10]);
    const [newest] = await deliveriesOf(team, hook._id);
    expect(Date.parse(newest.nextAttemptAt), "the delivery log shows the pause").toBe(resumeAt);
    await createEvent(team);
    await world.runAlarms();
    expect(world.posts, "paused").toHaveLength(sent);
    await world.runAlarms(5 * MINUTE);
    expect(world.posts, "one probe").toHaveLength(sent + 1);
    world.answer = status(200);
    await world.runAlarms(10 * MINUTE);
    expect(new Set(world.posts.slice(sent + 1).map(({ at }) => at)).size, "at once").toBe(1);
    await settle(world, [hook]);
    expect(await statusesOf(hook)).toEqual({ succeeded: 31 });
  });

  test("is paused for 5 minutes if it keeps failing, then twice as long each time, up to an hour", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(team, 29);
    await world.runAlarms();
    const pauses: number[] = [];
    for (let probe = 0; probe < 6; probe++) {
      const pause = ((await stateOf(hook)).resumeAt ?? 0) - world.system.now();
      pauses.push(pause / MINUTE);
      await world.runAlarms(pause);
    }
    expect(pauses).toEqual([5, 10, 20, 40, 60, 60]);
  });

  test("is sent few attempts if it always fails, and every delivery ends", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(team, 29);
    await settle(world, [hook]);
    expect(await statusesOf(hook)).toEqual({ failed: 30 });
    expect(world.posts.length).toBeLessThan(250);
  });

  test("is sent to at once, with its failures reset, when it is enabled or its URL changes", async () => {
    for (const json of [{ status: "enabled" }, { url: "https://new.canary.example/" }]) {
      const { world, team, hook } = await begin();
      world.answer = status(500);
      await createEvent(team);
      await copyEvent(team, 19);
      await world.runAlarms();
      const failed = new Set(world.posts.map(idOf));
      world.answer = status(200);
      await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json });
      await world.runAlarms();
      expect(await stateOf(hook)).toMatchObject({ failures: 0, resumeAt: null });
      const sent = world.posts.map(idOf).filter((id) => !failed.has(id));
      expect(new Set(sent).size).toBe(20 - failed.size);
    }
  });

  test("does not count a failure of its previous URL, and sends to the new one what the old one refused by 410", async () => {
    const { world, team, hook } = await begin();
    world.answer = async () => {
      const json = { url: "https://new.canary.example/in" };
      expect((await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json })).status).toBe(200);
      world.answer = ({ url }) => ({ httpStatus: url === HOOK_URL ? 410 : 200 });
      return { httpStatus: 410 };
    };
    await createEvent(team);
    await copyEvent(team, 4);
    await world.runAlarms();
    expect(await storedHook(hook)).toMatchObject({ disabled_reason: null });
    expect(await stateOf(hook)).toMatchObject({ failures: 0, resumeAt: null });
    expect(Object.keys(await statusesOf(hook)), "the new URL gets what the old one refused").toEqual(["pending"]);
    await world.runAlarms(15 * MINUTE);
    expect(Object.keys(await statusesOf(hook))).toEqual(["succeeded"]);
  });

  test("is sent nothing during the pause that it requested, and everything after it, without the recovery job", async () => {
    const { world, team, hook } = await begin();
    world.answer = () => (world.posts.length === 3 ? { httpStatus: 429, retryAfter: "600" } : {});
    await createEvent(team);
    await copyEvent(team, 5);
    await world.runAlarms();
    expect(world.posts, "five were in flight").toHaveLength(MAX_IN_FLIGHT);
    expect((await stateOf(hook)).resumeAt).toBe(world.system.now() + 600 * SECOND);
    await createEvent(team);
    await world.runAlarms(15 * MINUTE);
    expect(world.posts[5]!.at - world.posts[4]!.at).toBeGreaterThanOrEqual(600 * SECOND);
    expect(await statusesOf(hook)).toEqual({ succeeded: 7 });
  });

  test.each([
    ["disabled", "PATCH", { status: "disabled" }, { failed: 1200 }],
    ["deleted", "DELETE", undefined, {}],
  ])("ends its pending deliveries if it is %s, and sends none", async (_, method, json, statuses) => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await world.runAlarms();
    await copyEvent(team, 1199);
    await setState(hook, { resumeAt: world.system.now() + DAY });
    await createEvent(team);
    await world.runAlarms();
    const pending = await statusesOf(hook);
    expect(pending.pending).toBeGreaterThanOrEqual(MAX_DUE);
    await team.call(method, `/auth/v1/webhooks/${hook._id}`, { ...(json && { json }) });
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual(json ? { failed: pending.pending } : statuses);
    expect(world.posts).toHaveLength(1);
  });

  test("of a suspended team is sent nothing, and everything once the team is active", async () => {
    const { world, team, hook } = await begin();
    const setTeam = async (json: object) =>
      expect((await world.call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json })).status).toBe(200);
    await createEvent(team);
    await setTeam({ status: "suspended" });
    await world.runAlarms(15 * MINUTE);
    expect(world.posts).toEqual([]);
    await setTeam({ status: "active" });
    await world.recover();
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
  });

  test("is sent an event that has left the event log by then", async () => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await world.runAlarms();
    await DB.prepare("delete from events where team_id = ?").bind(team.teamId).run();
    world.answer = status(200);
    await settle(world, [hook]);
    const [first, second] = world.posts;
    expect(second!.body).toBe(first!.body);
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
  });
});

describe("an alarm", () => {
  test("sends up to five deliveries at once, and each once", async () => {
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
    await copyEvent(team, 241);
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual({ succeeded: 242 });
    expect(new Set(world.posts.map(idOf)).size).toBe(242);
    expect([world.posts.length, most]).toEqual([242, MAX_IN_FLIGHT]);
  });

  test("keeps sending the other deliveries while an attempt hangs, also those of new events", async () => {
    const { world, team, hook } = await begin();
    let isHanging = true;
    world.answer = async () => {
      world.answer = status(200);
      while (isHanging) await realSystem.sleep(1);
      return {};
    };
    await createEvent(team);
    const running = world.runAlarms();
    for (const count of [1, 2, 3]) {
      while (world.posts.length < count) await realSystem.sleep(1);
      if (count < 3) await createEvent(team);
    }
    isHanging = false;
    await running;
    expect(await statusesOf(hook)).toEqual({ succeeded: 3 });
    expect(world.posts).toHaveLength(3);
  });

  test("sends the event that occurs while it stores the last outcome", async () => {
    const { world, team, hook } = await begin();
    // A run of more than a minute: the alarm that was set for a death has passed.
    world.answer = async () => {
      world.aheadMilliseconds += 2 * MINUTE;
      world.answer = status(200);
      await createEvent(team);
      return {};
    };
    await createEvent(team);
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual({ succeeded: 2 });
  });

  type Ending = (team: Team, hook: Hook, userId: string) => [method: string, path: string, options?: CallOptions];
  const asOperator = (team: Team, method: string, json?: object): ReturnType<Ending> => [
    method,
    `/auth/v1/teams/${team.teamId}`,
    { token: OPERATOR, ...(json && { json }) },
  ];
  test.each<[string, Ending]>([
    ["the suspension of its team", (team) => asOperator(team, "PATCH", { status: "suspended" })],
    ["the deletion of its team", (team) => asOperator(team, "DELETE")],
    ["its disabling", (_, { _id }) => ["PATCH", `/auth/v1/webhooks/${_id}`, { json: { status: "disabled" } }]],
    ["its deletion", (_, { _id }) => ["DELETE", `/auth/v1/webhooks/${_id}`]],
    ["the deletion of its user", (_, __, userId) => ["DELETE", `/auth/v1/users/${userId}`]],
    [
      "the demotion of its user",
      (_, __, userId) => ["PATCH", `/auth/v1/users/${userId}`, { json: { role: "contributor" } }],
    ],
  ])("begins no message after the response to %s, however fast the endpoint is", async (_, ending) => {
    const { world, team, hook } = await begin();
    const { id, token } = await newMember(team, "admin");
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { token, json: { url: `${HOOK_URL}&a=b` } });
    let sent: Promise<number> | undefined;
    world.answer = async () => {
      await realSystem.sleep(1);
      sent ??= team.call(...ending(team, hook, id)).then((answer) => {
        expect(answer.status).toBe(200);
        return world.posts.length;
      });
      return {};
    };
    await createEvent(team);
    await copyEvent(team, 99);
    await world.runAlarms();
    expect(world.posts).toHaveLength((await sent) ?? 0);
    expect(world.posts.length).toBeLessThan(100);
  });

  test("notices within an attempt that its webhook was disabled", async () => {
    const { world, team, hook } = await begin();
    world.answer = async () => {
      await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "disabled" } });
      return {};
    };
    await createEvent(team);
    await copyEvent(team, 9);
    await world.runAlarms();
    expect(world.posts).toHaveLength(MAX_IN_FLIGHT);
    expect(await statusesOf(hook)).toEqual({ succeeded: MAX_IN_FLIGHT, failed: 10 - MAX_IN_FLIGHT });
  });

  test("reads no further events while many are due, but those that wait for a retry hold up none", async () => {
    const { world, team, hook } = await begin();
    world.answer = () => ({ httpStatus: world.posts.length % 2 ? 500 : 200 });
    await createEvent(team);
    await copyEvent(team, MAX_DUE * 2 + 299);
    await world.runAlarms();
    expect(world.posts).toHaveLength(MAX_DUE * 2 + 300);
    expect(await statusesOf(hook)).toEqual({ pending: MAX_DUE + 150, succeeded: MAX_DUE + 150 });
    await setState(hook, { resumeAt: world.system.now() + 2 * DAY });
    await createEvent(team);
    await copyEvent(team, MAX_DUE * 2);
    await world.runAlarms();
    const { pending } = await statusesOf(hook);
    expect(pending).toBeLessThan(MAX_DUE * 2 + 300);
    expect(pending).toBeGreaterThanOrEqual(MAX_DUE * 2 + 150);
  });

  test("continues after 5 minutes in the next alarm", async () => {
    const { world, team, hook } = await begin();
    world.answer = () => {
      world.aheadMilliseconds += MINUTE;
      return {};
    };
    await createEvent(team);
    await copyEvent(team, 11);
    await must(runAlarmOf(world, hook));
    expect(world.posts.length).toBeLessThan(12);
    expect(world.nextAlarm?.at).toBe(world.system.now());
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual({ succeeded: 12 });
  });

  test("is set again after an error of D1, and sends everything then", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await runAlarmOf(world, hook, new ProxiedBindings({ binding: "D1", call: 1, moment: "before", failure: "outage" }));
    expect(world.posts).toEqual([]);
    expect(world.lines.some(({ event }) => event === "webhook_sending_failed")).toBe(true);
    await world.runAlarms(MINUTE);
    expect(await statusesOf(hook)).toEqual({ succeeded: 1 });
  });

  test("costs one round trip to D1, which writes no row", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await copyEvent(team, 9);
    const bindings = new ProxiedBindings();
    await must(runAlarmOf(world, hook, bindings));
    expect(await statusesOf(hook)).toEqual({ succeeded: 10 });
    expect(bindings.calls.filter((call) => call.startsWith("D1"))).toEqual(["D1 batch"]);
    expect(bindings.effects.rowsWritten).toBe(0);
  });

  test("of the Worker's own class reads the events, sends, and sets the next one", async () => {
    const { world, team, hook } = await begin();
    await DB.prepare("update webhooks set url = 'https://127.0.0.1/' where id = ?").bind(hook._id).run();
    await createEvent(team);
    const stub = env.WEBHOOKS.getByName(nameOf(keyOf(hook)));
    await runDurableObjectAlarm(stub);
    const cursor = await stub.wake(false);
    await runDurableObjectAlarm(stub);
    expect(await deliveriesOf(team, hook._id)).toMatchObject([
      { status: "pending", attempts: [{ error: "address_refused" }] },
    ]);
    expect(await stub.wake(false)).toBeGreaterThan(cursor);
    const alarm = await inWebhook(keyOf(hook), ({ storage }) => storage.getAlarm());
    expect(alarm).not.toBeNull();
    await inWebhook(keyOf(hook), ({ storage }) => storage.deleteAll());
    expect(world.posts).toEqual([]);
  });

  test("logs neither a secret, nor a URL, nor a body", async () => {
    const { world, team, hook } = await begin();
    world.answer = respondWith({ httpStatus: 500, body: "canary-body" });
    await createEvent(team);
    for (const failure of ["quoting", "transient"] as const) {
      await runAlarmOf(world, hook, new ProxiedBindings({ binding: "Object", call: 2, moment: "after", failure }));
    }
    await settle(world, [hook]);
    const text = JSON.stringify(world.lines);
    expect(text).toContain(hook._id);
    expect(text).not.toMatch(/canary|whsec_|hooks\.|apikey\.created/);
  });
});

describe("a redelivery", () => {
  const deliveryIdOf = ({ _id }: Hook, seq: number) => eventId(_id, seq);
  const redeliver = async (team: Team, hook: Hook, deliveryId?: string) => {
    const _id = deliveryId ?? (await deliveriesOf(team, hook._id))[0]._id;
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
    await settle(world, [hook]);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    expect(await redeliver(team, hook)).toMatchObject({
      status: second === 200 ? "succeeded" : "failed",
      attempts: [{ httpStatus: first }, { httpStatus: second }],
      attempt: { httpStatus: second },
      nextAttemptAt: null,
    });
    expect(world.posts.map(idOf)).toEqual([idOf(world.posts[0]!), idOf(world.posts[0]!)]);
    const [delivery] = await deliveriesOf(team, hook._id);
    expect([delivery.status, delivery.attempts.length]).toEqual([second === 200 ? "succeeded" : "failed", 2]);
  });

  test("sends the event once if it is requested 20 times at once", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await settle(world, [hook]);
    let isHanging = true;
    world.answer = async () => {
      while (isHanging) await realSystem.sleep(1);
      return { httpStatus: 202 };
    };
    const [{ _id }] = await deliveriesOf(team, hook._id);
    const resent = Array.from({ length: 20 }, () => redeliver(team, hook, _id));
    while (world.posts.length < 2) await realSystem.sleep(1);
    isHanging = false;
    const attempts = (await Promise.all(resent)).map(({ attempt }) => attempt);
    expect(new Set(attempts.map(({ at }) => at)).size).toBe(1);
    expect(world.posts).toHaveLength(2);
  });

  test("returns the attempt if the call is repeated after a lost response", async () => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await settle(world, [hook]);
    const [{ seq }] = (await storedDeliveries<{ seq: number }>(keyOf(hook), "seq")) as [{ seq: number }];
    const { outboxes } = world.deps();
    const first = await outboxes(keyOf(hook)).redeliver(seq, "a");
    expect(await outboxes(keyOf(hook)).redeliver(seq, "a")).toEqual(first);
    expect(world.posts).toHaveLength(2);
    await outboxes(keyOf(hook)).redeliver(seq, "b");
    expect(world.posts).toHaveLength(3);
  });

  test.each([
    ["five attempts hang", 0],
    ["a webhook that fails is sent one delivery at a time, which hangs", MAX_FAILURES],
  ])("is the next request while %s, and others are due", async (_, failures) => {
    const { world, team, hook } = await begin();
    await createEvent(team);
    await settle(world, [hook]);
    const [{ _id }] = await deliveriesOf(team, hook._id);
    await setState(hook, { failures });
    let isHanging = true;
    const hanging = async () => {
      while (isHanging) await realSystem.sleep(1);
      return {};
    };
    world.answer = (post) => (idOf(post) === idOf(world.posts[0]!) ? { httpStatus: 202 } : hanging());
    await createEvent(team);
    await copyEvent(team, 99);
    const running = world.runAlarms();
    const inFlight = failures === 0 ? MAX_IN_FLIGHT : 1;
    while (world.posts.length < 1 + inFlight) await realSystem.sleep(1);
    const { attempt } = await redeliver(team, hook, _id);
    expect(attempt).toMatchObject({ httpStatus: 202 });
    expect(idOf(world.posts[1 + inFlight]!)).toBe(idOf(world.posts[0]!));
    isHanging = false;
    await running;
    expect(await statusesOf(hook)).toEqual({ succeeded: 101 });
  });

  test.each([200, 500])("moves no pause, no other delivery and no later attempt if it gets %i", async (httpStatus) => {
    const { world, team, hook } = await begin();
    world.answer = status(500);
    await createEvent(team);
    await copyEvent(team, 29);
    await world.runAlarms();
    const { resumeAt, failures } = await stateOf(hook);
    const before = await storedDeliveries<{ seq: number; due_at: number }>(keyOf(hook), "seq, due_at, attempt_count");
    const later = before.filter(({ due_at }) => due_at > world.system.now());
    const { seq = 0 } = later.at(-1) ?? {};
    const sent = world.posts.length;
    world.answer = status(httpStatus, "7200");
    for (let i = 0; i < 3; i++) {
      const { attempt } = await redeliver(team, hook, deliveryIdOf(hook, seq));
      expect(attempt).toMatchObject({ httpStatus });
    }
    expect(world.posts).toHaveLength(sent + 3);
    const after = await storedDeliveries<{ seq: number }>(keyOf(hook), "seq, due_at, attempt_count");
    const ofOthers = (rows: { seq: number }[]) => rows.filter((row) => httpStatus === 500 || row.seq !== seq);
    expect(ofOthers(after)).toEqual(ofOthers(before));
    expect(await stateOf(hook)).toMatchObject({ resumeAt, failures: httpStatus === 200 ? 0 : failures });
    await world.runAlarms();
    expect(world.posts).toHaveLength(sent + 3);
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
      await world.runAlarms();
    }
    const failing = await healthOf(team, hook);
    expect(failing).toMatchObject({ health: "failing", attempts: [0, 3] });
    expect(Math.abs(Date.parse(failing.failingSince) - firstFailure)).toBeLessThan(5 * SECOND);
    world.answer = status(204);
    await createEvent(team);
    await world.runAlarms();
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
      await world.runAlarms();
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
      await world.runAlarms();
    }
    const { attempts, hours } = await healthOf(team, hook);
    expect(attempts).toEqual([4, 0]);
    const starts = hours.map(({ startsAt }: { startsAt: string }) => Date.parse(startsAt));
    expect(starts.map((start: number) => (start - starts[0]) / HOUR)).toEqual([0, 1, 2, 22]);
    expect(starts[0] % HOUR).toBe(0);
    world.aheadMilliseconds += 3 * HOUR;
    await createEvent(team);
    await world.runAlarms();
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
    await settle(world, [hook]);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "disabled" } });
    await createEvent(team);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    world.posts.length = 0;
    expect(await replay(team, hook, { after: after._id })).toEqual({ deliveries: 2, next: null });
    await settle(world, [hook]);
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
    await settle(world, [hook]);
    const [last, second] = await eventsOf(team, "apikey.created");
    world.posts.length = 0;
    expect(await replay(team, hook, { after: second.createdAt })).toEqual({ deliveries: 1, next: null });
    await settle(world, [hook]);
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
    await settle(world, [hook]);
    await team.call("PATCH", `/auth/v1/webhooks/${hook._id}`, { json: { status: "enabled" } });
    await createEvent(team);
    await settle(world, [hook]);
    const failed = idOf(world.posts[0]!);
    world.posts.length = 0;
    expect(await replay(team, hook, { after: after._id, failedOnly: true })).toEqual({ deliveries: 1, next: null });
    await settle(world, [hook]);
    expect(world.posts.map(idOf)).toEqual([failed]);
  });

  test("sends at once what waits for a retry if only failures are replayed, and nothing that was not sent yet", async () => {
    const { world, team, hook } = await begin();
    const [after] = await eventsOf(team, "webhook.created");
    world.answer = status(500);
    for (let i = 0; i < 3; i++) {
      await createEvent(team);
      await world.runAlarms();
    }
    await setState(hook, { resumeAt: world.system.now() + DAY });
    await createEvent(team);
    await world.runAlarms();
    world.answer = status(200);
    expect(await replay(team, hook, { after: after._id, failedOnly: true })).toEqual({ deliveries: 3, next: null });
    await world.runAlarms();
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
    await world.runAlarms();
    expect(await statusesOf(hook)).toEqual({ succeeded: 200 });
    expect(world.posts).toHaveLength(200);
  });
});

describe("the recovery job", () => {
  // The recovery job reads the webhooks of all teams.
  beforeEach(emptyStores);

  const woken = (world: World) => [...world.objects.values()].filter(({ at }) => at === world.system.now()).length;

  test("wakes the webhooks whose wake was lost, and no other", async () => {
    const { world, team, hooks } = await begin(3);
    await createEvent(team);
    await world.runAlarms();
    await world.recover();
    await world.runAlarms();
    await world.recover();
    world.aheadMilliseconds += MINUTE;
    await world.recover();
    expect(woken(world), "they have read everything").toBe(0);
    await createEvent(team);
    loseWakes(world);
    await world.recover();
    expect(woken(world)).toBe(3);
    await world.runAlarms();
    expect(await Promise.all(hooks.map(statusesOf))).toEqual(Array(3).fill({ succeeded: 2 }));
  });

  exhaustive(
    "reads a bounded number of rows for 100,000 events and 1,200 webhooks, and wakes each that is behind",
    async () => {
      const { world, team, hook } = await begin();
      await createEvent(team);
      await copyEvent(team, 100_000);
      await insertMany(
        1199,
        `insert into followers select team_id, kind, printf('%024x', i), types, 0, 0 from followers, n where team_id = ?2`,
        team.teamId,
      );
      loseWakes(world);
      const bindings = new ProxiedBindings();
      await world.recover(bindings);
      expect(woken(world)).toBe(1200);
      expect(bindings.effects.rowsRead).toBeLessThan(30_000);
      expect(await storedHook(hook)).not.toBeNull();
    },
  );

  test("continues with the next webhook if an object does not respond", async () => {
    const { world, team, hooks } = await begin(2);
    await createEvent(team);
    loseWakes(world);
    await world.recover(new ProxiedBindings({ binding: "Object", call: 1, moment: "before", failure: "permanent" }));
    expect(woken(world)).toBe(1);
    await world.recover();
    await world.runAlarms();
    expect(await Promise.all(hooks.map(statusesOf))).toEqual([{ succeeded: 1 }, { succeeded: 1 }]);
  });
});
