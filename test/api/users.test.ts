import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { MAX_WAITING_HASHES_PER_TEAM } from "../../src/platform/hash-queue.ts";
import { loadSecrets } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import {
  atOnce,
  fieldsOf,
  fill,
  newTeam,
  newUser,
  PASSWORD,
  rejected,
  startWorker,
  type Team,
  tally,
  withinOneMinute,
  withoutHashing,
} from "../support/harness.ts";
import { must, World } from "../support/world.ts";

const CREATED_FIELDS = [
  "_id",
  "createdAt",
  "email",
  "firstName",
  "lastName",
  "password",
  "role",
  "teamId",
  "updatedAt",
];
const FIELDS = ["__v", ...CREATED_FIELDS];
const PHC = /^\$scrypt\$ln=14,r=8,p=5(,keyid=[0-9a-f]+)?\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/;

const create = (team: Team, json: object) => team.call("POST", "/auth/v1/users", { json });
const fetchUser = async (team: Team, id: string) => (await team.call("GET", `/auth/v1/users/${id}`)).body.data;
const patch = (team: Team, id: string, json: object, headers = {}) =>
  team.call("PATCH", `/auth/v1/users/${id}`, { json, headers });
const remove = (team: Team, id: string, headers = {}) => team.call("DELETE", `/auth/v1/users/${id}`, { headers });
const verifies = (password: string, hash: string) =>
  loadSecrets(env.MASTER_KEY, realSystem).verifyPassword(password, hash);

/** For tests that are not about passwords, because scrypt is slow on purpose. */
const quickTeam = () => newTeam(startWorker(withoutHashing));

/** Values that are too long, too short, of another type or with unstorable characters. POST and PATCH reject each. */
const invalidEmails = [
  "",
  "ada",
  "a@b",
  "a@@b.de",
  "a b@c.de",
  "a..b@c.de",
  "a@b..de",
  "a@-b.de",
  "a@münchen.de",
].concat(["a\u0000@b.de", "a@b.de\n.de", `${"a".repeat(65)}@b.de`, `${"a".repeat(60)}@${"b.".repeat(100)}de`]);
const invalidFields: [field: string, value: unknown][] = [
  ...[...invalidEmails, null, 7, ["a@b.de"]].map((email): [string, unknown] => ["email", email]),
  ...["", "1234567", "x".repeat(257), "12345678\u0000", null].map((password): [string, unknown] => [
    "password",
    password,
  ]),
  ...["x".repeat(101), "a\nb", "a\u0000b", "\u001b[31m", null, {}].flatMap((name): [string, unknown][] => [
    ["firstName", name],
    ["lastName", name],
  ]),
];

/** Creates the value on the first call, and returns the same one from then on. */
function createOnce<T>(create: () => Promise<T>): () => Promise<T> {
  let created: Promise<T> | undefined;
  return () => (created ??= create());
}

describe("Creating a user", () => {
  test("returns the documented fields without __v, and the version as ETag", async () => {
    const team = await newTeam();
    const json = { firstName: "Ada", lastName: "Lovelace", email: "Ada@Example.com", password: PASSWORD };
    const { status, headers, body } = await create(team, json);
    expect([status, headers.get("ETag"), fieldsOf(body)]).toEqual([200, '"0"', ["data", "message"]]);
    expect(fieldsOf(body.data)).toEqual(CREATED_FIELDS);
    expect(body.data).toMatchObject({ ...json, password: expect.stringMatching(PHC), teamId: team.teamId });
    expect(body.data._id).toMatch(/^[0-9a-f]{24}$/);
    expect(body.data.createdAt).toBe(body.data.updatedAt);
    expect(body.data.createdAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });

  test("requires only email and password, and defaults names to empty", async () => {
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

  test.each(["email", "password"])("rejects a user without %s", async (field) => {
    const team = await newTeam();
    const json = { email: "a@example.com", password: PASSWORD, [field]: undefined };
    await rejected(team, 400, "invalid_input", () => create(team, json), [field]);
  });

  test.each(invalidFields)("rejects the %s %j", async (field, value) => {
    const team = await newTeam();
    const json = { email: "a@example.com", password: PASSWORD, [field]: value };
    await rejected(team, 400, "invalid_input", () => create(team, json), [field]);
  });
});

describe("An email", () => {
  test("can be used by two teams", async () => {
    const users = [await newUser(await quickTeam()), await newUser(await quickTeam())];
    expect(users[0].email).toBe(users[1].email);
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
  ])("is rejected as taken with %s", async (_, email) => {
    const home = await teamOfFirst();
    const json = { email, password: "canary-password" };
    await rejected(home, 409, "email_taken", () => home.call("POST", "/auth/v1/users", { json }));
    const { body } = await home.call("POST", "/auth/v1/users", {
      json: { email: `${crypto.randomUUID()}@canary.example`, password: "canary-password" },
    });
    const path = `/auth/v1/users/${body.data._id}`;
    await rejected(home, 409, "email_taken", () => home.call("PATCH", path, { json: { email } }));
  });

  test.each([
    ["a Unicode domain", "first@canаry.example"],
    ["a fullwidth domain", "first@ｃanary.example"],
    ["an ideographic full stop in the domain", "first@canary。example"],
    ["two at signs", "first@evil.example@canary.example"],
    ["a quoted local part", '"first"@canary.example'],
    ["a comment", "first(x)@canary.example"],
    ["a zero-width space", "fi\u200brst@canary.example"],
    ["a right-to-left override", "first\u202e@canary.example"],
    ["a line break and a header", "first@canary.example\r\nBcc: evil@canary.example"],
    ["a list of two", "first@canary.example,evil@canary.example"],
    ["an address literal", "first@[127.0.0.1]"],
    ["a name and angle brackets", "First <first@canary.example>"],
    ["one label", "first@localhost"],
    ["255 characters", `${"a".repeat(50)}@${`${"b".repeat(60)}.`.repeat(3)}${"c".repeat(21)}`],
  ])("is rejected as invalid with %s", async (_, email) => {
    const home = await teamOfFirst();
    const json = { email, password: "canary-password" };
    await rejected(home, 400, "invalid_input", () => home.call("POST", "/auth/v1/users", { json }), ["email"]);
  });
});

describe("A password", () => {
  test("is returned only as a scrypt PHC string that verifies it", async () => {
    const team = await newTeam();
    const { _id, password } = await newUser(team);
    expect(password).toMatch(PHC);
    expect([await verifies(PASSWORD, password), await verifies("wrong", password)]).toEqual([true, false]);
    const answers = [
      await team.call("GET", `/auth/v1/users/${_id}`),
      await team.call("GET", "/auth/v1/users"),
      await team.call("GET", "/auth/v1/users?limit=1"),
      await patch(team, _id, { firstname: "Ada" }),
    ];
    for (const { text } of answers) {
      expect(text).toContain(JSON.stringify(password));
      expect(text).not.toContain(PASSWORD);
    }
  });

  test("has its own salt, so equal passwords have different hashes", async () => {
    const team = await newTeam();
    const [a, b] = [await newUser(team), await newUser(team, { email: "b@example.com" })];
    expect(a.password).not.toBe(b.password);
  });
});

describe("The number of a team's users", () => {
  test("is at most 100,000, also with parallel requests", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    await fill(team, "users", 2);
    const counted = env.DB.prepare("select users from teams where id = ?").bind(team.teamId);
    expect(await counted.first("users")).toBe(3);
    await env.DB.prepare("update teams set users = 99998 where id = ?").bind(team.teamId).run();

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
  const slow = startWorker();
  const hashed = (team: Team, i: number) =>
    team.call("POST", "/auth/v1/users", { json: { email: `${i}@example.com`, password: PASSWORD } });

  test("rejects a team's surplus of parallel changes with Retry-After, and lets another team log in", async () => {
    const [busy, other] = [await newTeam(slow), await newTeam(slow)];
    const user = await newUser(other);
    const { _id } = await newUser(busy, { email: "patched@example.com" });
    const created = atOnce(16, (i) => hashed(busy, i));
    const patched = atOnce(16, () => patch(busy, _id, { password: "a new password" }));
    const login = await other.call("POST", "/auth/v1/login", {
      json: { teamId: other.teamId, email: user.email, password: PASSWORD },
    });
    expect(login.status).toBe(200);
    const answers = [...(await created), ...(await patched)];
    const { 200: done = 0, rate_limited: limited = 0 } = tally(answers);
    expect(done + limited).toBe(32);
    expect(done).toBeGreaterThan(MAX_WAITING_HASHES_PER_TEAM);
    expect(limited).toBeGreaterThan(0);
    for (const { status, headers } of answers) if (status === 429) expect(headers.get("Retry-After")).toBe("4");
    expect((await busy.call("GET", "/auth/v1/users")).body).toHaveLength(1 + (tally(await created)[200] ?? 0));
  });

  test("rejects a team's sixty-first new password in a minute, and no other change", async () => {
    const passed = await withinOneMinute(async () => {
      const team = await newTeam(
        startWorker((deps) => ({ ...withoutHashing(deps), limiter: { ...deps.limiter, token: async () => true } })),
      );
      const { _id } = await newUser(team, { email: "first@example.com" });
      let count = 1;
      let answer = await hashed(team, count);
      for (; answer.status === 200; answer = await hashed(team, count)) count += 1;
      expect([answer.code, answer.headers.get("Retry-After")]).toEqual(["rate_limited", "60"]);
      expect((await patch(team, _id, { password: "a new password" })).code).toBe("rate_limited");
      expect((await patch(team, _id, { firstname: "Ada" })).status).toBe(200);
      return count;
    });
    expect(passed).toBe(60);
  });
});

describe("Fetching a user", () => {
  test("returns the user as created, with __v and the version as ETag", async () => {
    const team = await quickTeam();
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
    expect(fieldsOf(answer.body)).toEqual([...FIELDS].sort());
    const { updatedAt, ...rest } = answer.body;
    const { updatedAt: before, ...created } = user;
    expect(rest).toEqual({ ...created, firstName: "Augusta", lastName: "King", email: "K@b.de", __v: 1 });
    expect(Date.parse(updatedAt)).toBeGreaterThan(Date.parse(before));
    expect(await fetchUser(team, user._id)).toEqual(answer.body);
  });

  test("changes only the fields that are sent", async () => {
    const team = await quickTeam();
    const { updatedAt: _, ...user } = await newUser(team, { firstName: "Ada", lastName: "Lovelace" });
    expect((await patch(team, user._id, { lastname: "" })).body).toMatchObject({ ...user, lastName: "", __v: 1 });
  });

  test("sets a new password", async () => {
    const team = await newTeam();
    const { _id, password } = await newUser(team);
    const { body } = await patch(team, _id, { password: "a new password" });
    expect(body.password).not.toBe(password);
    expect([await verifies("a new password", body.password), await verifies(PASSWORD, body.password)]).toEqual([
      true,
      false,
    ]);
  });

  test("accepts the user's own email in another case, but not another user's", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    await newUser(team, { email: "grace@example.com" });
    expect((await patch(team, _id, { email: "ADA@example.com" })).body.email).toBe("ADA@example.com");
    await rejected(team, 409, "email_taken", () => patch(team, _id, { email: "GRACE@example.com" }));
  });

  test.each([
    ["an empty body", {}, [""]],
    ["the first name twice", { firstname: "A", firstName: "A" }, ["firstname"]],
    ["the last name twice", { lastname: "A", lastName: "B" }, ["lastname"]],
    ...["teamId", "_id", "__v", "createdAt", "isPublic"].map((field): [string, object, string[]] => [
      `the unknown field ${field}`,
      { firstname: "A", [field]: "x" },
      [field],
    ]),
    ...invalidFields.map(([field, value]): [string, object, string[]] => [
      `${JSON.stringify(value)} as ${field}`,
      { [field]: value },
      [field],
    ]),
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

describe("The If-Match header of a user", () => {
  const call = { PATCH: (t: Team, id: string, h: object) => patch(t, id, { firstname: "B" }, h), DELETE: remove };
  const methods = ["PATCH", "DELETE"] as const;
  const each = (tags: string[]) =>
    methods.flatMap((method) => tags.map((tag): [typeof method, string] => [method, tag]));

  test.each(each(['"0"', '"7", "0"', ' "0" ', "*"]))("lets %s continue with %j", async (method, tag) => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    expect((await call[method](team, _id, { "If-Match": tag })).status).toBe(200);
  });

  test.each(each(['"1"', '"1", "2"', 'W/"0"', "0", "'0'", '"00x"', '""', "", ","]))(
    "rejects %s with %j",
    async (method, tag) => {
      const team = await unchangedTeam();
      await rejected(team, 412, "version_mismatch", () => call[method](team, team.userId, { "If-Match": tag }));
    },
  );
});

describe("The versions in If-Match", () => {
  test.each([
    ["an empty header", ""],
    ["a weak tag", 'W/"0"'],
    ["a bare number", "0"],
    ["SQL", '"0") or ("1"="1'],
    ["a float", '"0.0"'],
    ["a negative number", '"-0"'],
    ["a number beyond safe integers", `"${"9".repeat(40)}"`],
  ])("match nothing with %s", async (_, tags) => {
    const team = await unchangedTeam();
    await rejected(team, 412, "version_mismatch", () =>
      patch(team, team.userId, { lastname: "x" }, { "If-Match": tags }),
    );
  });

  // D1 accepts at most 100 bound parameters in a query.
  test.each([99, 101, 5_000])("can number %i", async (count) => {
    const team = await unchangedTeam();
    const tags = Array.from({ length: count }, (_, i) => `"${i + 1_000_000}"`).join();
    await rejected(team, 412, "version_mismatch", () =>
      patch(team, team.userId, { lastname: "x" }, { "If-Match": tags }),
    );
  });
});

describe("Parallel changes of users", () => {
  test("create one user if fifty requests send one email", async () => {
    const team = await quickTeam();
    const spellings = ["race@canary.example", "RACE@canary.example", "ｒace@canary.example", " race@canary.example "];
    const answers = await atOnce(50, (i) =>
      team.call("POST", "/auth/v1/users", { json: { email: spellings[i % 4], password: "canary-password" } }),
    );
    expect(tally(answers)).toEqual({ 200: 1, email_taken: 49 });
    expect((await team.call("GET", "/auth/v1/users")).body).toHaveLength(1);
  });

  test("give an email to one of twenty users, and the others keep theirs", async () => {
    const team = await quickTeam();
    const users = await Promise.all(
      Array.from({ length: 20 }, (_, i) => newUser(team, { email: `${i}@canary.example` })),
    );
    const answers = await atOnce(20, (i) =>
      team.call("PATCH", `/auth/v1/users/${users[i]._id}`, { json: { email: "wanted@canary.example" } }),
    );
    expect(tally(answers)).toEqual({ 200: 1, email_taken: 19 });
    const emails = (await team.call("GET", "/auth/v1/users")).body.map(({ email }: { email: string }) => email);
    expect(emails.filter((email: string) => email === "wanted@canary.example")).toHaveLength(1);
    expect(new Set(emails).size).toBe(20);
  });

  test("apply one of twenty updates of the same version, and reject the others", async () => {
    const team = await quickTeam();
    const user = await newUser(team);
    const path = `/auth/v1/users/${user._id}`;
    const headers = { "If-Match": '"0"' };
    const answers = await atOnce(20, (i) => team.call("PATCH", path, { json: { lastname: `${i}` }, headers }));
    expect(tally(answers)).toEqual({ 200: 1, version_mismatch: 19 });
    const winner = answers.find(({ status }) => status === 200)?.body;
    expect((await team.call("GET", path)).body.data).toEqual(winner);
    expect(winner.__v).toBe(1);
  });

  test("all count if they name no version", async () => {
    const team = await quickTeam();
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    const answers = await atOnce(20, (i) => team.call("PATCH", path, { json: { lastname: `${i}` } }));
    expect(tally(answers)).toEqual({ 200: 20 });
    const versions = answers.map(({ body }) => body.__v).sort((a, b) => a - b);
    expect(versions).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  });

  test("do not delete a newer version than If-Match names", async () => {
    const team = await quickTeam();
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    await team.call("PATCH", path, { json: { lastname: "new" } });
    const stale = await team.call("DELETE", path, { headers: { "If-Match": '"0"' } });
    expect([stale.status, stale.body.code]).toEqual([412, "version_mismatch"]);
    expect((await team.call("GET", path)).status).toBe(200);
    expect((await team.call("DELETE", path, { headers: { "If-Match": '"1"' } })).status).toBe(200);
    expect((await team.call("DELETE", path, { headers: { "If-Match": '"1"' } })).status).toBe(404);
  });

  test("delete a user once if twenty requests do it", async () => {
    const team = await quickTeam();
    const path = `/auth/v1/users/${(await newUser(team))._id}`;
    expect(tally(await atOnce(20, () => team.call("DELETE", path)))).toEqual({ 200: 1, not_found: 19 });
  });

  test("leave no user that is updated while it is deleted", async () => {
    const team = await quickTeam();
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
  test("returns only a message, removes the user, and frees the email", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const { status, body } = await remove(team, _id);
    expect([status, fieldsOf(body)]).toEqual([200, ["message"]]);
    expect((await team.call("GET", `/auth/v1/users/${_id}`)).status).toBe(404);
    expect((await remove(team, _id)).status).toBe(404);
    expect((await newUser(team))._id).not.toBe(_id);
  });
});

describe("Listing users", () => {
  const numbersOf = (users: { lastName: string }[]) => users.map(({ lastName }) => Number(lastName));
  const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

  test("returns an empty array for a team without users", async () => {
    const { status, text } = await (await quickTeam()).call("GET", "/auth/v1/users");
    expect([status, text]).toEqual([200, "[]"]);
  });

  test("returns the same bare users as fetching", async () => {
    const team = await quickTeam();
    const { _id } = await newUser(team);
    const { headers, body } = await team.call("GET", "/auth/v1/users");
    expect(headers.get("Content-Type")).toMatch(/^application\/json/);
    expect(fieldsOf(body[0])).toEqual([...FIELDS].sort());
    expect(body).toEqual([await fetchUser(team, _id)]);
  });

  test("returns the whole team, oldest first, and no other team's users", async () => {
    const [team, other] = [await quickTeam(), await quickTeam()];
    await Promise.all([fill(team, "users", 1200), fill(other, "users", 3)]);
    const { headers, body } = await team.call("GET", "/auth/v1/users");
    expect(numbersOf(body)).toEqual(upTo(1200));
    expect(headers.has("Link")).toBe(false);
  });

  test.each(["limit=50", "limit=50&page=1"])("returns a page if %s is given", async (query) => {
    const team = await quickTeam();
    await fill(team, "users", 120);
    const { headers, body } = await team.call("GET", `/auth/v1/users?${query}`);
    expect(numbersOf(body)).toEqual(upTo(50));
    expect(headers.get("Link")).toMatch(
      /^<https:\/\/stowage\.test\/auth\/v1\/users\?limit=50&cursor=[^>]+>; rel="next"$/,
    );
  });

  test("ends with incomplete JSON if the key is revoked in the meantime", async () => {
    const worker = startWorker();
    const team = await newTeam(worker);
    await fill(team, "users", 2600);
    const headers = { Authorization: `Bearer ${team.token}` };
    const { body } = await worker.send(new Request("https://stowage.test/auth/v1/users", { headers }));
    const reader = body!.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toMatch(/^\[\{/);
    await team.call("DELETE", `/auth/v1/apikeys/${team.keyId}`);
    await expect(async () => {
      while (!(await reader.read()).done);
    }).rejects.toThrow();
  });
});

test("a new password reaches the database only as its hash", async () => {
  const world = new World();
  const team = await world.newTeam();
  const { body } = await team.call("POST", "/auth/v1/users", { json: { email: "a@b.de", password: PASSWORD } });
  const bindings = new ProxiedBindings();
  const json = { password: "canary-password-of-an-update", lastName: "King" };
  const options = { token: team.token, json };
  const { status } = await must(world.ask("PATCH", `/auth/v1/users/${body.data._id}`, options, { bindings }));
  expect(status).toBe(200);
  expect(JSON.stringify(bindings.queries)).toContain("King");
  expect(JSON.stringify(bindings.queries)).not.toContain(json.password);
});
