import { env } from "cloudflare:workers";
import { beforeAll, describe, expect } from "vitest";
import { HashQueue, MAX_WAITING_HASHES_PER_TEAM } from "../../src/platform/hash-queue.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { DB } from "../support/databases.ts";
import { apiTest } from "../support/fixtures.ts";
import {
  type Answer,
  atOnce,
  call,
  dataOf,
  EMAIL,
  eventsOf,
  fieldsOf,
  fill,
  isAccepted,
  logIn,
  newKey,
  newMember,
  newSession,
  newTeam,
  newUser,
  OPERATOR,
  openSession,
  PASSWORD,
  read,
  readPages,
  rejected,
  startWorker,
  type Team,
  tally,
  withoutHashing,
  withRealHashing,
} from "../support/harness.ts";
import { startLimited } from "../support/limits.ts";

const FIELDS = "__v _id createdAt email firstName hasPassword lastName password role teamId updatedAt".split(" ");
const PHC = /^\$scrypt\$ln=14,r=8,p=5(,keyid=[0-9a-f]+)?\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/;

const KEYS = "/auth/v1/apikeys";
const create = (team: Team, json: object) => team.call("POST", "/auth/v1/users", { json });
const fetchUser = async (team: Team, id: string) => (await team.call("GET", `/auth/v1/users/${id}`)).body.data;
const patch = (team: Team, id: string, json: object, headers = {}) =>
  team.call("PATCH", `/auth/v1/users/${id}`, { json, headers });
const remove = (team: Team, id: string, headers = {}) => team.call("DELETE", `/auth/v1/users/${id}`, { headers });
const verifies = (password: string, hash: string) =>
  loadSecrets(env.MASTER_KEY, realSystem).verifyPassword(password, hash);

/** For tests that are not about passwords: hashes count for a limit and wait for one another. */
const quickTeam = () => newTeam(startWorker(withoutHashing));
const test = apiTest.extend("team", () => quickTeam());

/** Values that are too long, too short, of another type or with unstorable characters. POST and PATCH reject each. */
const invalidEmails = [
  ...["", "ada", "a@b", "a@@b.de", "a b@c.de", "a..b@c.de", "a@b..de", "a@-b.de", "a\u0000@b.de", "a@b.de\n.de"],
  ...[`${"a".repeat(65)}@b.de`, `${"a".repeat(60)}@${"b.".repeat(100)}de`, "a@evil.example@b.de", '"a"@b.de'],
  ...["a(x)@b.de", "a\u200b@b.de", "a\u202e@b.de", "a@b.de\r\nBcc: evil@b.de", "a@b.de,evil@b.de", "a@[127.0.0.1]"],
  // Domains in Unicode, with a fullwidth letter, and with an ideographic full stop.
  ...["A <a@b.de>", "a@localhost", "a@münchen.de", "a@ｂ.de", "a@b。de"],
];
const invalidFields: Record<string, unknown[]> = {
  email: [...invalidEmails, null, 7, ["a@b.de"]],
  password: ["", "1234567", "x".repeat(257), "12345678\u0000", null],
  firstName: ["x".repeat(101), "a\nb", "a\u0000b", "\u001b[31m", null, {}],
  lastName: ["x".repeat(101), "a\nb", "a\u0000b", "\u001b[31m", null, {}],
};

/** Creates the value on the first call, and returns the same one from then on. */
function createOnce<T>(create: () => Promise<T>): () => Promise<T> {
  let created: Promise<T> | undefined;
  return () => (created ??= create());
}

describe("Creating a user", () => {
  test("returns the documented fields without __v, and the version as ETag", async () => {
    const team = await newTeam(startWorker(withRealHashing));
    const json = { firstName: "Ada", lastName: "Lovelace", email: "Ada@Example.com", password: PASSWORD };
    const { status, headers, body } = await create(team, json);
    expect([status, headers.get("ETag"), fieldsOf(body)]).toEqual([200, '"0"', ["data", "message"]]);
    expect(fieldsOf(body.data)).toEqual(FIELDS.slice(1));
    expect(body.data).toMatchObject({ ...json, password: expect.stringMatching(PHC), teamId: team.teamId });
    expect(body.data._id).toMatch(/^[0-9a-f]{24}$/);
    expect(body.data.createdAt).toBe(body.data.updatedAt);
    expect(body.data.createdAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });

  test("defaults names to empty", async () => {
    expect(await newUser(await newTeam())).toMatchObject({ firstName: "", lastName: "" });
  });

  test("trims names and email, and otherwise stores them as written", async () => {
    const user = await newUser(await newTeam(), { firstName: " Ünïcødé 录音 ", lastName: "\t", email: " ÄDA@B.de " });
    expect(user).toMatchObject({ firstName: "Ünïcødé 录音", lastName: "", email: "ÄDA@B.de" });
  });

  test.each([
    [
      "an email of 254 characters",
      { email: `${"a".repeat(61)}@${"b".repeat(61)}.${`${"c".repeat(63)}.`.repeat(2)}de` },
    ],
    ["a password of eight characters that are more than eight bytes", { password: "🔑".repeat(8) }],
    ["names of 100 characters", { firstName: "🎧".repeat(100), lastName: "y".repeat(100) }],
  ])("accepts %s", async (_, fields) => {
    const { password, ...shown } = fields as Record<string, string>;
    const user = await newUser(await newTeam(), fields as Record<string, string>);
    expect(user).toMatchObject(shown);
    expect(await verifies(password ?? PASSWORD, user.password)).toBe(true);
  });

  test("rejects a user without an email", async () => {
    const team = await newTeam();
    const json = { password: PASSWORD };
    await rejected(team, 400, "invalid_input", () => create(team, json), ["email"]);
  });

  test.each(Object.entries(invalidFields))("rejects an invalid %s, as an update does", async (field, values) => {
    const team = await unchangedTeam();
    for (const value of values) {
      const json = { email: "b@example.com", password: PASSWORD, [field]: value };
      await rejected(team, 400, "invalid_input", () => create(team, json), [field]);
      await rejected(team, 400, "invalid_input", () => patch(team, team.userId, { [field]: value }), [field]);
    }
  });
});

describe("An email that resembles another's", () => {
  test.each([
    ["nothing changed", "first@canary.example"],
    ["upper case", "FIRST@CANARY.EXAMPLE"],
    ["white space around it", " \t first@canary.example \u00a0\u3000\ufeff\n"],
    ["fullwidth letters", "ｆｉｒｓｔ@canary.example"],
    ["a ligature", "ﬁrst@canary.example"],
    ["mathematical letters", "𝐟𝐢𝐫𝐬𝐭@canary.example"],
    ["circled letters", "ⓕⓘⓡⓢⓣ@canary.example"],
    ["a long s", "firſt@canary.example"],
  ])("is rejected as taken with %s, but not in another team", async (_, email) => {
    const [home, other] = [await teamOfFirst(), await quickTeam()];
    await rejected(home, 409, "email_taken", () => create(home, { email, password: PASSWORD }));
    const { _id } = await newUser(home, { email: `${crypto.randomUUID()}@canary.example` });
    await rejected(home, 409, "email_taken", () => patch(home, _id, { email }));
    await newUser(other, { email });
  });
});

describe("A password", () => {
  test("is returned only as a scrypt PHC string with its own salt that verifies it, also after an update", async () => {
    const team = await newTeam(startWorker(withRealHashing));
    const [user, twin] = [await newUser(team), await newUser(team, { email: "b@example.com" })];
    expect(user.password).not.toBe(twin.password);
    const updated = (await patch(team, user._id, { password: "a new password" })).body;
    for (const [hash, right, wrong] of [
      [user.password, PASSWORD, "a new password"],
      [updated.password, "a new password", PASSWORD],
    ]) {
      expect(hash).toMatch(PHC);
      expect([await verifies(right, hash), await verifies(wrong, hash)]).toEqual([true, false]);
    }
    for (const path of [`/auth/v1/users/${user._id}`, "/auth/v1/users", "/auth/v1/users?limit=1"]) {
      expect((await team.call("GET", path)).text).toContain(JSON.stringify(updated.password));
    }
  });
});

describe("The number of a team's users", () => {
  test("is at most 100,000, also with parallel requests", async ({ team }) => {
    const { _id } = await newUser(team);
    await fill(team, "users", 2);
    const counted = DB.prepare("select users from teams where id = ?").bind(team.teamId);
    expect(await counted.first("users")).toBe(3);
    await DB.prepare("update teams set users = 99998 where id = ?").bind(team.teamId).run();

    const answers = await atOnce(6, (i) => create(team, { email: `${i}@example.com`, password: PASSWORD }));
    expect(tally(answers)).toEqual({ 200: 2, quota_exceeded: 4 });
    const json = { email: "more@example.com", password: PASSWORD };
    const { body } = await rejected(team, 413, "quota_exceeded", () => create(team, json));
    expect(body.message).toBe("A team can have at most 100,000 users. Delete one and retry.");
    await rejected(team, 409, "email_taken", () => create(team, { ...json, email: "ada@example.com" }));
    await remove(team, _id);
    expect((await create(team, json)).status).toBe(200);
  });
});

describe("Password hashing", () => {
  const hashed = (team: Team, i: number) =>
    team.call("POST", "/auth/v1/users", { json: { email: `${i}@example.com`, password: PASSWORD } });

  test("rejects a team's surplus of parallel changes with Retry-After, and applies the others", async () => {
    // The clock is stopped, so that no request counts as abandoned on a slow machine.
    const hashQueue = new HashQueue({ ...realSystem, now: () => 0 });
    const gate = Promise.withResolvers<void>();
    const gated = startWorker((deps) => {
      const { secrets, ...others } = withoutHashing(deps);
      const hashPassword = (password: string) => gate.promise.then(() => secrets.hashPassword(password));
      return { ...others, secrets: { ...secrets, hashPassword }, hashQueue };
    });
    const { token, ...team } = await quickTeam();
    const { _id } = await newUser(team);
    let surplus = 31 - MAX_WAITING_HASHES_PER_TEAM;
    const answers = await atOnce(32, async (i) => {
      const [method, path] = i % 2 ? ["POST", "/auth/v1/users"] : ["PATCH", `/auth/v1/users/${_id}`];
      const json = { email: i % 2 ? `${i}@example.com` : undefined, password: PASSWORD };
      const answer = await gated.call(method as string, path as string, { token, json });
      if (answer.status === 429 && --surplus === 0) gate.resolve();
      return answer;
    });
    expect(tally(answers)).toEqual({
      200: MAX_WAITING_HASHES_PER_TEAM + 1,
      rate_limited: 31 - MAX_WAITING_HASHES_PER_TEAM,
    });
    for (const { status, headers } of answers) if (status === 429) expect(headers.get("Retry-After")).toBe("4");
  });

  test.each([
    ["its key is revoked", 401, "token_invalid", (team: Team, { key }) => team.call("DELETE", `${KEYS}/${key._id}`)],
    [
      "its team is suspended",
      403,
      "team_suspended",
      ({ teamId }: Team) =>
        call("PATCH", `/auth/v1/teams/${teamId}`, { token: OPERATOR, json: { status: "suspended" } }),
    ],
    [
      "its key is narrowed",
      403,
      "insufficient_scope",
      (team: Team, { key }) =>
        team.call("PATCH", `${KEYS}/${key._id}`, { json: { scopes: ["users:read", "users:write"] } }),
    ],
  ] as [string, number, string, (team: Team, caller: { key: { _id: string } }) => Promise<Answer>][])(
    "authorizes the caller again: a password hashed while %s is not stored",
    async (_, status, code, end) => {
      const team = await newTeam();
      const key = await newKey(team);
      const slow = startWorker((deps) => {
        const quick = withoutHashing(deps);
        const hashPassword = async (password: string) => {
          expect((await end(team, { key })).status).toBe(200);
          return quick.secrets.hashPassword(password);
        };
        return { ...quick, secrets: { ...quick.secrets, hashPassword } };
      });
      const json = { email: EMAIL, password: PASSWORD, role: "admin" };
      const answer = await slow.call("POST", "/auth/v1/users", { token: key.key, json });
      expect([answer.status, answer.code]).toEqual([status, code]);
      const { total } = (await DB.prepare("select count(*) total from users where team_id = ?")
        .bind(team.teamId)
        .first<{ total: number }>()) ?? { total: -1 };
      expect(total).toBe(0);
    },
  );

  test("rejects a team's sixty-first new password in a minute, and no other change", async () => {
    const team = await newTeam(startLimited({}, withoutHashing));
    const { _id } = await newUser(team, { email: "first@example.com" });
    for (let count = 1; count < 60; count++) expect((await hashed(team, count)).status).toBe(200);
    const answer = await hashed(team, 60);
    expect([answer.code, answer.headers.get("Retry-After")]).toEqual(["rate_limited", "60"]);
    expect((await patch(team, _id, { password: "a new password" })).code).toBe("rate_limited");
    expect((await patch(team, _id, { firstname: "Ada" })).status).toBe(200);
  });
});

describe("Fetching a user", () => {
  test("returns the user as created, with __v and the version as ETag", async ({ team }) => {
    const user = await newUser(team, { firstName: "Ada" });
    const { status, headers, body } = await team.call("GET", `/auth/v1/users/${user._id}`);
    expect([status, headers.get("ETag"), fieldsOf(body)]).toEqual([200, '"0"', ["data", "message"]]);
    expect(body.data).toEqual({ ...user, __v: 0 });
  });
});

describe("Updating a user", () => {
  test.each([
    ["firstname, lastname and email, as documented", { firstname: " Augusta ", lastname: "King", email: "K@b.de" }],
    ["firstName and lastName, as everywhere else", { firstName: "Augusta", lastName: "King", email: "K@b.de" }],
  ])("accepts %s, and returns the bare user", async (_, changes) => {
    const later = startWorker((deps) => ({
      ...deps,
      system: { ...deps.system, now: () => deps.system.now() + 60_000 },
    }));
    const team = await quickTeam();
    const user = await newUser(team);
    const { token } = team;
    const answer = await later.call("PATCH", `/auth/v1/users/${user._id}`, { token, json: changes });
    expect([answer.status, answer.headers.get("ETag")]).toEqual([200, '"1"']);
    expect(fieldsOf(answer.body)).toEqual(FIELDS);
    const { updatedAt, ...rest } = answer.body;
    const { updatedAt: before, ...created } = user;
    expect(rest).toEqual({ ...created, firstName: "Augusta", lastName: "King", email: "K@b.de", __v: 1 });
    expect(Date.parse(updatedAt)).toBeGreaterThan(Date.parse(before));
    expect(await fetchUser(team, user._id)).toEqual(answer.body);
  });

  test("changes only the fields that are sent", async ({ team }) => {
    const { updatedAt: _, ...user } = await newUser(team, { firstName: "Ada", lastName: "Lovelace" });
    expect((await patch(team, user._id, { lastname: "" })).body).toMatchObject({ ...user, lastName: "", __v: 1 });
  });

  test("accepts the user's own email in another case, but not another user's", async ({ team }) => {
    const { _id } = await newUser(team);
    await newUser(team, { email: "grace@example.com" });
    expect((await patch(team, _id, { email: "ADA@example.com" })).body.email).toBe("ADA@example.com");
    await rejected(team, 409, "email_taken", () => patch(team, _id, { email: "GRACE@example.com" }));
  });

  test.each([
    ["an empty body", {}, [""]],
    ["the first name twice", { firstname: "A", firstName: "A" }, ["firstname"]],
    ["the last name twice", { lastname: "A", lastName: "B" }, ["lastname"]],
  ])("rejects %s", async (_, json, paths) => {
    const team = await unchangedTeam();
    await rejected(team, 400, "invalid_input", () => patch(team, team.userId, json), paths);
  });
});

/** A team with the user first@canary.example, whom no test changes. */
const teamOfFirst = createOnce(async () => {
  const home = await quickTeam();
  await newUser(home, { email: "first@canary.example" });
  return home;
});

/** A team with a user whom no test changes, because every call is rejected. */
const unchangedTeam = createOnce(async () => {
  const team = await quickTeam();
  return { ...team, userId: (await newUser(team))._id };
});

describe("The versions in If-Match", () => {
  const change = (team: Team, id: string, tags: string) => ({
    update: () => patch(team, id, { firstname: "B" }, { "If-Match": tags }),
    delete: () => remove(team, id, { "If-Match": tags }),
  });

  test.each(['"0"', '"7", "0"', ' "0" ', "*", 'W/"0"', 'W/"7", W/"0"'])(
    "match the present version with If-Match %j",
    async (tags) => {
      const team = await quickTeam();
      const [a, b] = [await newUser(team), await newUser(team, { email: "b@example.com" })];
      expect((await change(team, a._id, tags).update()).status).toBe(200);
      expect((await change(team, b._id, tags).delete()).status).toBe(200);
    },
  );

  const numbers = (count: number) => Array.from({ length: count }, (_, i) => `"${i + 1_000_000}"`).join();
  test.each([
    ["another version", '"1"'],
    ["other versions", '"1", "2"'],
    ["a weak tag of another version", 'W/"1"'],
    ["a bare number", "0"],
    ["single quotes", "'0'"],
    ["trailing letters", '"00x"'],
    ["an empty tag", '""'],
    ["an empty header", ""],
    ["a comma", ","],
    ["SQL", '"0") or ("1"="1'],
    ["a float", '"0.0"'],
    ["a negative number", '"-0"'],
    ["a number beyond safe integers", `"${"9".repeat(40)}"`],
    // D1 accepts at most 100 bound parameters in a query.
    ["99 numbers", numbers(99)],
    ["101 numbers", numbers(101)],
    ["5,000 numbers", numbers(5_000)],
  ])("match nothing if they are %s", async (_, tags) => {
    const team = await unchangedTeam();
    for (const act of Object.values(change(team, team.userId, tags))) {
      await rejected(team, 412, "version_mismatch", act);
    }
  });
});

describe("Parallel changes of users", () => {
  test("create one user if fifty requests send one email", async ({ team }) => {
    const spellings = ["race@canary.example", "RACE@canary.example", "ｒace@canary.example", " race@canary.example "];
    const answers = await atOnce(50, (i) => create(team, { email: spellings[i % 4], password: PASSWORD }));
    expect(tally(answers)).toEqual({ 200: 1, email_taken: 49 });
    expect((await team.call("GET", "/auth/v1/users")).body).toHaveLength(1);
  });

  test("give an email to one of twenty users, and the others keep theirs", async ({ team }) => {
    const emails = Array.from({ length: 20 }, (_, i) => `${i}@canary.example`);
    const users = await Promise.all(emails.map((email) => newUser(team, { email })));
    const answers = await atOnce(20, (i) => patch(team, users[i]._id, { email: "wanted@canary.example" }));
    expect(tally(answers)).toEqual({ 200: 1, email_taken: 19 });
    const { body } = await team.call("GET", "/auth/v1/users");
    const kept = body.map(({ email }: { email: string }) => email).filter((email: string) => emails.includes(email));
    expect(new Set(kept).size).toBe(19);
  });

  test("apply one of twenty updates of the same version, and reject the others", async ({ team }) => {
    const user = await newUser(team);
    const path = `/auth/v1/users/${user._id}`;
    const headers = { "If-Match": '"0"' };
    const answers = await atOnce(20, (i) => team.call("PATCH", path, { json: { lastname: `${i}` }, headers }));
    expect(tally(answers)).toEqual({ 200: 1, version_mismatch: 19 });
    const winner = answers.find(({ status }) => status === 200)?.body;
    expect((await team.call("GET", path)).body.data).toEqual(winner);
    expect(winner.__v).toBe(1);
  });

  test("are all applied without If-Match", async ({ team }) => {
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    const answers = await atOnce(20, (i) => team.call("PATCH", path, { json: { lastname: `${i}` } }));
    expect(tally(answers)).toEqual({ 200: 20 });
    const versions = answers.map(({ body }) => body.__v).sort((a, b) => a - b);
    expect(versions).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  });

  test("delete a user once if twenty requests do it", async ({ team }) => {
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    expect(tally(await atOnce(20, () => team.call("DELETE", path)))).toEqual({ 200: 1, not_found: 19 });
  });

  test("leave no user that is updated while it is deleted", async ({ team }) => {
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    const answers = await atOnce(20, (i) =>
      i === 10 ? team.call("DELETE", path) : team.call("PATCH", path, { json: { lastname: `${i}` } }),
    );
    expect(answers[10]?.status).toBe(200);
    for (const { status } of answers) expect([200, 404]).toContain(status);
    expect((await team.call("GET", path)).status).toBe(404);
  });
});

describe("Deleting a user", () => {
  test("returns only a message, removes the user, and frees the email", async ({ team }) => {
    const { _id } = await newUser(team);
    const { status, body } = await remove(team, _id);
    expect([status, fieldsOf(body)]).toEqual([200, ["message"]]);
    expect((await team.call("GET", `/auth/v1/users/${_id}`)).status).toBe(404);
    expect((await remove(team, _id, { "If-Match": '"0"' })).status).toBe(404);
    expect((await newUser(team))._id).not.toBe(_id);
  });
});

describe("Listing users", () => {
  const numbersOf = (users: { lastName: string }[]) => users.map(({ lastName }) => Number(lastName));
  const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

  test("returns a bare array of the same users as fetching", async ({ team }) => {
    expect((await team.call("GET", "/auth/v1/users")).text).toBe("[]");
    const { _id } = await newUser(team);
    const { headers, body } = await team.call("GET", "/auth/v1/users");
    expect(headers.get("Content-Type")).toMatch(/^application\/json/);
    expect(fieldsOf(body[0])).toEqual(FIELDS);
    expect(body).toEqual([await fetchUser(team, _id)]);
  });

  test("returns up to 1,000 users at once, oldest first, and no other team's users", async () => {
    const [team, other] = [await quickTeam(), await quickTeam()];
    await Promise.all([fill(team, "users", 1000), fill(other, "users", 3)]);
    const { headers, body } = await team.call("GET", "/auth/v1/users");
    expect(numbersOf(body)).toEqual(upTo(1000));
    expect(headers.has("Link")).toBe(false);
    expect(numbersOf((await team.call("GET", "/auth/v1/users?limit=50")).body)).toEqual(upTo(50));
  });

  test("requires a limit for more than 1,000 users, so that no part of a list passes for the whole", async () => {
    const team = await quickTeam();
    await fill(team, "users", 1001);
    const { body } = await rejected(team, 400, "invalid_input", () => team.call("GET", "/auth/v1/users"), ["limit"]);
    expect(body.errors[0].message).toBe(
      "Required: the team has more than 1,000 users. Follow `Link` to the next page.",
    );
    const pages = await readPages(team, "/auth/v1/users?limit=100");
    expect(numbersOf(pages.flat())).toEqual(upTo(1001));
  });
});

const roleOf = async (team: Team, id: string) => (await read(team, `/auth/v1/users/${id}`)).role;

describe("The role of a new user", () => {
  test("is viewer by default, also for a caller with all scopes", async () => {
    expect(await newUser(await quickTeam())).toMatchObject({ role: "viewer" });
  });

  test("is covered by the caller's scopes", async () => {
    const team = await quickTeam();
    const scopes = ["users:write", "files:read", "files:download", "events:read"];
    const { key: token } = await newKey(team, { scopes });
    const json = { email: "a@b.de", password: PASSWORD };
    expect((await team.call("POST", "/auth/v1/users", { json, token })).body.data.role).toBe("viewer");
    const wider = { ...json, email: "b@b.de", role: "member" };
    await rejected(team, 403, "insufficient_scope", () => team.call("POST", "/auth/v1/users", { json: wider, token }));
  });

  test("must be covered by the caller", async ({ team }) => {
    const { key: token } = await newKey(team, { scopes: ["users:write"] });
    const json = { email: "a@b.de", password: PASSWORD };
    const { headers } = await rejected(team, 403, "insufficient_scope", () =>
      team.call("POST", "/auth/v1/users", { json, token }),
    );
    expect(headers.get("WWW-Authenticate")).toBe('Bearer error="insufficient_scope", scope="files:read"');
  });
});

describe("A caller that doesn't cover a user's role", () => {
  let team: Team;
  let token: string;
  let admin: string;
  beforeAll(async () => {
    team = await newTeam();
    const scopes = ["users:read", "users:write", "files:read", "files:download", "events:read"];
    token = (await newKey(team, { scopes })).key;
    admin = (await newMember(team, "admin")).id;
  });

  test.each<[string, string, object]>([
    ["rename", "PATCH", { firstName: "Ada" }],
    ["demote", "PATCH", { role: "viewer" }],
    ["set the password of", "PATCH", { password: "staple horse battery" }],
    ["delete", "DELETE", {}],
  ])("can't %s the user", async (_, method, json) => {
    const path = `/auth/v1/users/${admin}`;
    const options = method === "PATCH" ? { json, token } : { token };
    await rejected(team, 403, "insufficient_scope", () => team.call(method, path, options));
  });

  test("can't promote a user whose role it covers", async () => {
    const { id } = await newMember(team, "viewer");
    const act = () => team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "member" }, token });
    await rejected(team, 403, "insufficient_scope", act);
    const renamed = await team.call("PATCH", `/auth/v1/users/${id}`, { json: { firstName: "Ada" }, token });
    expect(renamed.body).toMatchObject({ firstName: "Ada", role: "viewer" });
  });
});

describe("A change of a role", () => {
  test("applies to the user's sessions from the next request, and is recorded as a changed field", async ({ team }) => {
    const { id, token } = await newMember(team, "admin");
    expect((await team.call("GET", "/auth/v1/users", { token })).status).toBe(200);
    await team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "viewer" } });
    expect((await team.call("GET", "/auth/v1/users", { token })).code).toBe("insufficient_scope");
    expect((await team.call("GET", "/docs/v1/uploads", { token })).status).toBe(200);
    expect((await eventsOf(team, "type=user.updated"))[0].data).toEqual({ _id: id, fields: ["role"] });
  });
});

describe("The last admin of a team", () => {
  test("can be demoted or deleted only by a secret key", async ({ team }) => {
    const { id, token } = await newMember(team, "admin");
    const path = `/auth/v1/users/${id}`;
    await rejected(team, 409, "last_admin", () => team.call("PATCH", path, { json: { role: "member" }, token }));
    await rejected(team, 409, "last_admin", () => team.call("DELETE", path, { token }));
    expect((await team.call("PATCH", path, { json: { role: "admin", lastName: "King" }, token })).status).toBe(200);
    expect((await team.call("PATCH", path, { json: { role: "member" } })).status).toBe(200);
    expect((await team.call("DELETE", path)).status).toBe(200);
  });

  test("stays if two admins demote each other at the same time", async ({ team }) => {
    const [a, b] = [await newMember(team, "admin"), await newMember(team, "admin")];
    const demote = (id: string, token: string) =>
      team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "viewer" }, token });
    const answers = await Promise.all([demote(a.id, b.token), demote(b.id, a.token)]);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect([await roleOf(team, a.id), await roleOf(team, b.id)].sort()).toEqual(["admin", "viewer"]);
  });
});

test("a user deleted with keepKeys loses only their sessions, and their keys can still create keys, used before or not", async ({
  team,
}) => {
  const { id, token } = await newMember(team, "admin");
  const json = { name: "kept" };
  const createKey = (by: string) => team.call("POST", "/auth/v1/apikeys", { json, token: by });
  const [used, unused] = [(await dataOf(createKey(token))).key, (await dataOf(createKey(token))).key];
  expect((await createKey(used)).status).toBe(200);
  expect((await team.call("DELETE", `/auth/v1/users/${id}?keepKeys=true`)).status).toBe(200);
  expect(await isAccepted(token)).toBe(false);
  for (const key of [used, unused]) expect((await createKey(key)).status).toBe(200);
  expect((await eventsOf(team, "type=user.deleted"))[0].data).toEqual({ _id: id, revokedKeyIds: [] });
});

describe("GET /auth/v1/me", () => {
  const me = async (token: string) => (await call("GET", "/auth/v1/me", { token })).body.data;
  const nothing = {
    teamId: null,
    keyId: null,
    userId: null,
    role: null,
    scopes: null,
    expiresAt: null,
  };

  test("describes a secret key, a public key, the session of a user and the operator", async ({ team }) => {
    const { teamId, keyId } = team;
    const expiresAt = expect.stringMatching(/^20.*Z$/);
    const secret = {
      ...nothing,
      kind: "secret",
      teamId,
      keyId,
      scopes: expect.any(Array),
      expiresAt,
    };
    expect(await me(team.token)).toEqual(secret);
    const page = await newKey(team, { isPublic: true });
    expect(await me(page.key)).toEqual({ ...secret, kind: "public", keyId: page.id, scopes: ["files:upload"] });
    const { id: userId, token } = await newMember(team, "viewer");
    const scopes = ["files:read", "files:download", "events:read"];
    const session = { kind: "session", teamId, keyId: expect.any(String), userId, role: "viewer", scopes };
    expect(await me(token)).toEqual({ ...session, expiresAt: expect.any(String) });
    expect((await call("GET", "/auth/v1/me", { token: OPERATOR })).body).toEqual({
      message: "You use an operator token.",
      data: { ...nothing, kind: "operator" },
    });
  });
});

describe("POST /auth/v1/me/password", () => {
  const NEW_PASSWORD = "staple horse battery";
  const change = (token: string, currentPassword: string, newPassword = NEW_PASSWORD) =>
    call("POST", "/auth/v1/me/password", { token, json: { currentPassword, newPassword } });

  test("changes the password, keeps the calling session and ends the user's others", async () => {
    const team = await newTeam();
    const { id, token } = await newMember(team, "viewer", EMAIL);
    const other = await newSession(team, id);
    const { body } = await change(token, "a wrong password");
    expect(body).toMatchObject({ code: "invalid_input", errors: [{ path: "currentPassword" }] });
    expect((await change(token, PASSWORD)).status).toBe(200);
    expect([await isAccepted(token), await isAccepted(other)]).toEqual([true, false]);
    expect((await logIn(team)).code).toBe("login_failed");
    expect((await logIn(team, EMAIL, NEW_PASSWORD)).status).toBe(200);
    const [event] = await eventsOf(team, "type=user.updated");
    expect(event).toMatchObject({ actor: { kind: "session", userId: id }, data: { fields: ["password"] } });
  });

  test("is rejected for a key, which has no user", async () => {
    for (const token of [(await newTeam()).token, OPERATOR]) {
      expect((await change(token, PASSWORD)).code).toBe("forbidden");
    }
  });

  test("is rejected for the session of a user's key, and counts nothing", async () => {
    const team = await newTeam();
    const { token } = await newMember(team, "admin");
    const json = { name: "upload", scopes: ["files:upload"] };
    const { key } = await dataOf(call("POST", KEYS, { token, json }));
    const { key: ofKey } = await openSession(key);
    const counted: string[] = [];
    const counting = startWorker((deps) => {
      const count = async (counter: string) => counted.push(counter) > 0;
      return { ...deps, limiter: { ...deps.limiter, countGuess: count, countPasswordHash: count } };
    });
    for (const currentPassword of [PASSWORD, "a wrong password"]) {
      const answer = await counting.call("POST", "/auth/v1/me/password", {
        token: ofKey,
        json: { currentPassword, newPassword: NEW_PASSWORD },
      });
      expect([answer.status, answer.code]).toEqual([403, "forbidden"]);
    }
    expect(counted).toEqual([]);
    expect(await isAccepted(token)).toBe(true);
  });

  test("counts every password that it checks or hashes for the team", async () => {
    const hashed: string[] = [];
    const counting = startWorker((deps) => {
      const passwordHash = async (teamId: string) => hashed.push(teamId) <= 3;
      return { ...deps, limiter: { ...deps.limiter, countPasswordHash: passwordHash } };
    });
    const team = await newTeam();
    const { token } = await newMember(team, "viewer");
    const attempt = (currentPassword: string) =>
      counting.call("POST", "/auth/v1/me/password", { token, json: { currentPassword, newPassword: NEW_PASSWORD } });
    expect((await attempt("a wrong password")).code).toBe("invalid_input");
    expect((await attempt(PASSWORD)).status).toBe(200);
    expect((await attempt(NEW_PASSWORD)).code).toBe("rate_limited");
    expect(hashed).toEqual(Array(4).fill(team.teamId));
  });

  test("counts attempts for the user, so that a stolen session can't guess the password", async () => {
    const { call: limited } = startLimited({ LOGIN_LIMIT: 2 });
    const team = await newTeam();
    const [one, other] = [await newMember(team, "viewer"), await newMember(team, "viewer")];
    const guess = async (token: string, currentPassword = "a guess") => {
      const json = { currentPassword, newPassword: NEW_PASSWORD };
      return (await limited("POST", "/auth/v1/me/password", { token, json })).code;
    };
    expect([await guess(one.token), await guess(one.token)]).toEqual(["invalid_input", "invalid_input"]);
    expect(await guess(await newSession(team, one.id), PASSWORD)).toBe("rate_limited");
    expect(await guess(other.token, PASSWORD)).toBeUndefined();
  });
});
