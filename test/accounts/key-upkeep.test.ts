import { afterEach, describe, expect } from "vitest";
import { DB } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import { call, eventsOf, OPERATOR, type Team } from "../support/harness.ts";
import { emptyStores } from "../support/stores.ts";
import { DAY, HOUR } from "../support/time.ts";
import { begin, newHook, settle } from "../support/webhooks.ts";
import { must, World } from "../support/world.ts";

/* Keys that are about to expire: the recovery job works on those of every team, so each test starts with none. */

afterEach(emptyStores);

const KEYS = "/auth/v1/apikeys";
const inDays = (world: World, days: number) => new Date(world.system.now() + days * DAY).toISOString();

async function newKey(world: World, { token }: Team, days: number, json: object = {}): Promise<string> {
  const key = { name: "key", expiresAt: inDays(world, days), ...json };
  return (await world.call("POST", KEYS, { token, json: key })).body.data.id;
}

/** Lets the days pass, and runs the job twice. @returns how many notices it gave */
async function pass(world: World, days: number): Promise<number> {
  world.aheadMilliseconds += days * DAY;
  const [first, second] = [await must(world.recover()), await must(world.recover())];
  expect(second.expiriesAnnounced, "each once").toBe(0);
  return first.expiriesAnnounced ?? 0;
}

async function setAddress(team: Team, notificationEmail: string | null): Promise<void> {
  const { status } = await call("PATCH", `/auth/v1/teams/${team.teamId}`, {
    token: OPERATOR,
    json: { notificationEmail },
  });
  expect(status).toBe(200);
}

const noticesOf = async (team: Team, id: string) => eventsOf(team, `type=apikey.expiring&subject=${id}`);

describe("A key that is about to expire", () => {
  test("is recorded 30 and 3 days before, once each, and no more after its expiry", async ({ world, team }) => {
    const expiresAt = inDays(world, 100);
    const id = await newKey(world, team, 100, { expiresAt });
    const event = {
      type: "apikey.expiring",
      actor: { kind: "system", keyId: null, userId: null },
      subject: { kind: "apikey", id, version: null, name: "key" },
      data: { _id: id, expiresAt },
    };
    expect(await pass(world, 69.9)).toBe(0);
    expect(await pass(world, 0.2)).toBe(1);
    expect(await noticesOf(team, id)).toMatchObject([event]);
    expect(await pass(world, 26.8)).toBe(0);
    expect(await pass(world, 0.2)).toBe(1);
    expect(await noticesOf(team, id)).toMatchObject([event, event]);
    expect([await pass(world, 2.8), await pass(world, 1)]).toEqual([0, 0]);
  });

  test.each([
    [300, [270, 27, 3]],
    [31, [1, 27, 3]],
    [30, [0, 27, 3]],
    [4, [0, 1, 3]],
    [3, [0, 0, 3]],
    [0.5, [0, 0, 0.5]],
  ])("after a life of %f days has no notice from before its creation", async (days, passing) => {
    const world = new World();
    const team = await world.newTeam();
    const id = await newKey(world, team, days);
    const given: number[] = [];
    for (const part of passing) given.push(await pass(world, part));
    expect(given).toEqual([Number(days > 30), Number(days > 3), 0]);
    const { results } = await DB.prepare("select expiry_notice_at as at from api_keys where id = ?").bind(id).all();
    expect(results).toEqual([{ at: null }]);
  });

  test("has the notices of its new expiry if it is shortened, and none that would be late", async ({ world, team }) => {
    const [long, short] = [await newKey(world, team, 100), await newKey(world, team, 100)];
    for (const [id, days] of [
      [long, 50],
      [short, 10],
    ] as const) {
      const json = { expiresAt: inDays(world, days) };
      await world.call("PATCH", `${KEYS}/${id}`, { token: team.token, json });
    }
    await world.call("PATCH", `${KEYS}/${long}`, { token: team.token, json: { name: "renamed" } });
    expect([await pass(world, 6), await pass(world, 2), await pass(world, 13), await pass(world, 27)]).toEqual([
      0, 1, 1, 1,
    ]);
    expect(await noticesOf(team, long)).toHaveLength(2);
  });

  test("has them also after a rotation: the old key at the end of the overlap, and the new one of its own", async ({
    world,
    team,
  }) => {
    const rotate = async (id: string, days: number) => {
      const json = { overlapSeconds: (days * DAY) / 1000 };
      return (await world.call("POST", `${KEYS}/${id}/rotate`, { token: team.token, json })).body.data.id;
    };
    const [first, second] = [await newKey(world, team, 40), await newKey(world, team, 8)];
    const replacing = await rotate(first, 7);
    await rotate(second, 30);
    expect([await pass(world, 3.9), await pass(world, 0.2)]).toEqual([0, 1]);
    expect(await noticesOf(team, first)).toHaveLength(1);
    // The overlap doesn't prolong the second, and its successor lives for 8 days, too.
    expect(await pass(world, 1)).toBe(2);
    expect(await pass(world, 5)).toBe(1);
    expect(await noticesOf(team, replacing)).toHaveLength(1);
  });

  test("has one notice if the job did not run for weeks, and none if it has expired meanwhile", async ({
    world,
    team,
  }) => {
    const [expired, late] = [await newKey(world, team, 35), await newKey(world, team, 40)];
    world.aheadMilliseconds += 38 * DAY;
    await must(world.recover());
    expect([await noticesOf(team, expired), (await noticesOf(team, late)).length]).toEqual([[], 1]);
    expect(await pass(world, 1)).toBe(0);
  });

  test("is in an email to the address of its team, and in none if that has no address", async ({ world, team }) => {
    const other = await world.newTeam();
    await newKey(world, team, 20, { name: "importer" });
    await newKey(world, other, 20);
    await setAddress(team, "ops@example.com");
    expect(await pass(world, 18)).toBe(2);
    await expect.poll(() => world.mails).toHaveLength(1);
    const [mail] = world.mails;
    expect(mail).toMatchObject({
      to: "ops@example.com",
      subject: expect.stringMatching(/^.+: an API key expires soon$/),
    });
    expect(mail?.text).toMatch(/- importer: \w{3}, .+ GMT\n/);
    await setAddress(team, null);
    await newKey(world, team, 4);
    expect(await pass(world, 1.5)).toBe(1);
    expect(world.mails).toHaveLength(1);
  });

  test("is in no email once it has expired", async ({ world, team }) => {
    await newKey(world, team, 35, { name: "expired" });
    await newKey(world, team, 40, { name: "late" });
    await setAddress(team, "ops@example.com");
    world.aheadMilliseconds += 38 * DAY;
    await must(world.recover());
    await expect.poll(() => world.mails).toHaveLength(1);
    expect(world.mails[0]?.text).toContain("- late: ");
    expect(world.mails[0]?.text).not.toContain("- expired: ");
  });

  test("is recorded if its email can't be sent", async ({ world, team }) => {
    const id = await newKey(world, team, 20);
    await setAddress(team, "ops@example.com");
    world.mailer = { send: () => Promise.reject(new Error("E_DELIVERY_FAILED")) };
    expect(await pass(world, 18)).toBe(1);
    expect(await noticesOf(team, id)).toHaveLength(1);
    await expect.poll(() => world.lines).toContainEqual(expect.objectContaining({ event: "email_failed" }));
  });

  test("is none of the sessions and upload tokens", async ({ world, team }) => {
    const { token } = team;
    for (const [path, json] of [
      ["/auth/v1/sessions", undefined],
      ["/docs/v1/uploadtokens", { expiresIn: 86_400 }],
    ] as const) {
      expect((await world.call("POST", path, { token, json })).status).toBe(200);
    }
    expect([await pass(world, 0.4), await pass(world, 0.5), await pass(world, 40)]).toEqual([0, 0, 0]);
  });

  test("is recorded in batches, however many keys of however many teams", async () => {
    const world = new World();
    const teams: Team[] = [];
    for (let n = 0; n < 25; n++) teams.push(await world.newTeam());
    const insert = `insert into api_keys (id, team_id, uuid, name, kind, scopes, token_hash, lifetime_milliseconds, created_at, expires_at, expiry_notice_at)
      with recursive n(i) as (select 1 union all select i + 1 from n where i < ?3)
      select lower(hex(randomblob(12))), ?1, hex(randomblob(16)), 'key', 'public', 2, hex(randomblob(32)), 1, 1, ?2, i from n`;
    const expiresAt = world.system.now() + 2 * DAY;
    await DB.batch(teams.map(({ teamId }, n) => DB.prepare(insert).bind(teamId, expiresAt, n === 0 ? 180 : 4)));
    const runs: number[] = [];
    do runs.push((await must(world.recover())).expiriesAnnounced ?? 0);
    while (runs.at(-1));
    expect(runs.reduce((sum, count) => sum + count, 0)).toBe(180 + 24 * 4);
    for (const team of teams.slice(1)) expect(await eventsOf(team, "type=apikey.expiring")).toHaveLength(4);
    const [{ teamId } = { teamId: "" }] = teams;
    const count = DB.prepare(
      "select count(distinct subject_id) as n from events where team_id = ? and type = 'apikey.expiring'",
    );
    expect(await count.bind(teamId).first("n")).toBe(180);
  });
});

test("A webhook receives the event of a key that is about to expire", async () => {
  const { world, team } = await begin(0);
  const hook = await newHook(team, { types: ["apikey.expiring"] });
  const id = await newKey(world, team, 4);
  await pass(world, 1 + HOUR / DAY);
  await settle(world, [hook]);
  expect(world.posts.map(({ body }) => JSON.parse(body))).toMatchObject([
    { type: "apikey.expiring", data: { _id: id } },
  ]);
});
