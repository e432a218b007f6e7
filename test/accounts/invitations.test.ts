import { describe, expect } from "vitest";
import { MAIL_PAUSE_MILLISECONDS, MAX_MAILS, MAX_TEAM_MAILS } from "../../src/accounts/mails.ts";
import type { Mailer } from "../../src/platform/mailer.ts";
import { buildRequest } from "../support/client.ts";
import { DB } from "../support/databases.ts";
import { beforeWrite, withBatch, withDatabases } from "../support/deps.ts";
import { apiTest } from "../support/fixtures.ts";
import {
  type Answer,
  atOnce,
  type CallOptions,
  type Change,
  call,
  compose,
  dataOf,
  EMAIL,
  eventsOf,
  fieldsOf,
  isAccepted,
  logIn,
  newKey,
  newMember,
  newTeam,
  newUser,
  OPERATOR,
  openSession,
  PASSWORD,
  pausedStream,
  randomAddress,
  read,
  rejected,
  startWorker,
  type Team,
  tally,
  withoutJobs,
  withoutRequestId,
} from "../support/harness.ts";
import { startLimited } from "../support/limits.ts";
import { insertMany } from "../support/rows.ts";
import { create as createUpload, idOf, RESUMABLE } from "../support/tus.ts";

const test = apiTest;
const DAY = 86_400_000;
const NEW_PASSWORD = "staple horse battery";
const DESCRIBE = "/auth/v1/invitations/describe";
const ACCEPT = "/auth/v1/invitations/accept";
const FORGOT = "/auth/v1/password/forgot";

const userPath = (id: string) => `/auth/v1/users/${id}`;
const invite = (team: Pick<Team, "call">, id: string, options: CallOptions = {}) =>
  team.call("POST", `${userPath(id)}/invitations`, options);
const newLink = async (team: Team, id: string): Promise<string> => (await dataOf(invite(team, id))).token;
const accept = (token: string, fields: object = {}, worker = { call }) =>
  worker.call("POST", ACCEPT, { json: { token, password: NEW_PASSWORD, ...fields } });
const describeLink = (token: string, worker = { call }) => worker.call("POST", DESCRIBE, { json: { token } });
/** Creates a user without a password. */
const newInvitee = (team: Team, fields: object = {}) =>
  dataOf(team.call("POST", "/auth/v1/users", { json: { email: EMAIL, ...fields } }));

const at = (now: () => number): Change =>
  compose(withoutJobs, (deps) => ({ ...deps, system: { ...deps.system, now } }));

/** A Worker that records the emails it sends. */
function mailing(change: Change = (deps) => deps) {
  const mails: Parameters<Mailer["send"]>[0][] = [];
  const mailer: Mailer = { send: async (mail) => void mails.push(mail) };
  return { mails, worker: startWorker(compose(withoutJobs, (deps) => ({ ...deps, mailer }), change)) };
}

describe("The link of an invitation or a reset", () => {
  test("has the host of PUBLIC_URL, whatever host the request has", async ({ team }) => {
    const publicUrl = "https://files.example.com";
    const { mails, worker } = mailing((deps) => ({ ...deps, settings: { ...deps.settings, publicUrl } }));
    const { _id } = await newInvitee(team, { email: "grace@example.com" });
    const { url } = await dataOf(worker.call("POST", `${userPath(_id)}/invitations`, { token: team.token }));
    expect(url).toMatch(/^https:\/\/files\.example\.com\/console\/invitation#stow_in_/);
    await newUser(team);
    const json = { teamId: team.teamId, email: EMAIL };
    const forgot = buildRequest("POST", FORGOT, { json }, "https://attacker.example.net");
    expect((await worker.send(forgot)).status).toBe(200);
    expect(mails).toHaveLength(1);
    expect(mails[0]?.text).toContain(`${publicUrl}/console/invitation#`);
    expect(mails[0]?.text).not.toContain("attacker");
  });

  test("has the host of the request without PUBLIC_URL", async ({ team }) => {
    const { url } = await dataOf(invite(team, (await newInvitee(team))._id));
    expect(new URL(url).pathname).toBe("/console/invitation");
    expect(new URL(url).host).not.toBe("files.example.com");
  });
});

describe("A user without a password", () => {
  test("can't log in until an invitation is accepted", async ({ team }) => {
    const user = await newInvitee(team);
    expect(user.password).toMatch(/^\$scrypt\$ln=\d+,r=\d+,p=\d+,keyid=[0-9a-f]{8}\$[\w+/]{22}\$[\w+/]{43}$/);
    expect((await newInvitee(team, { email: "grace@example.com" })).password).not.toBe(user.password);
    expect(user.hasPassword).toBe(false);
    for (const password of [user.password, "", "undefined", "null", PASSWORD]) {
      const answer = await logIn(team, EMAIL, password || " ");
      expect([answer.status, answer.code]).toEqual([401, "login_failed"]);
    }
    expect((await accept(await newLink(team, user._id))).status).toBe(200);
    expect((await logIn(team, EMAIL, NEW_PASSWORD)).status).toBe(200);
    expect(await read(team, userPath(user._id))).toMatchObject({ hasPassword: true });
  });
});

describe("An invitation", () => {
  test("is a link to the console's page, whose token is shown once and expires in a day", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const before = Date.now();
    const data = await dataOf(invite(team, _id));
    expect(fieldsOf(data)).toEqual(["expiresAt", "token", "url"]);
    expect(data.token).toMatch(new RegExp(`^stow_in_${_id}\\.[0-9a-f]{32}$`));
    const { origin, pathname, hash, search } = new URL(data.url);
    // Browsers send the fragment to no server.
    expect([origin, pathname, search, hash]).toEqual([
      "https://stowage.test",
      "/console/invitation",
      "",
      `#${data.token}`,
    ]);
    expect(Date.parse(data.expiresAt) - before).toBeGreaterThanOrEqual(DAY);
    expect(Date.parse(data.expiresAt) - Date.now()).toBeLessThanOrEqual(DAY);
    const stored = await DB.prepare("select * from users where id = ?").bind(_id).first();
    expect(JSON.stringify(stored)).not.toContain(data.token.split(".")[1]);
    expect(await read(team, userPath(_id))).not.toHaveProperty("invitationHash");
  });

  test("sets password and names, logs in as a login does, ends the user's sessions, and is recorded", async ({
    team,
  }) => {
    const user = await newUser(team, { role: "member", firstName: "Ada" });
    const old = (await dataOf(logIn(team))).key;
    const upload = await createUpload(call, 9, {}, { token: old });
    const kept = await createUpload(call, 9, {}, { token: team.token });
    const session = await dataOf(accept(await newLink(team, user._id), { lastName: "King" }));
    expect(fieldsOf(session)).toEqual(fieldsOf(await dataOf(logIn(team, EMAIL, NEW_PASSWORD))));
    expect(session).toMatchObject({ name: "Ada King", teamId: team.teamId, isPublic: false });
    expect(session.scopes).toContain("files:write");
    expect(await Promise.all([session.key, old].map(isAccepted))).toEqual([true, false]);
    const left = (await read(team, RESUMABLE)).filter(({ status }: { status: string }) => status !== "canceled");
    expect(left.map(({ _id }: { _id: string }) => _id)).toEqual([idOf(kept)]);
    expect(idOf(upload)).not.toBe(idOf(kept));
    expect((await logIn(team)).code).toBe("login_failed");
    expect(await read(team, userPath(user._id))).toMatchObject({ firstName: "Ada", lastName: "King", __v: 1 });
    const events = await eventsOf(team, `subject=${user._id}`);
    expect(events.map(({ type }: { type: string }) => type)).toEqual([
      "user.created",
      "user.logged_in",
      "user.invited",
      "user.updated",
      "user.logged_in",
      "user.logged_in",
    ]);
    const [, , invited, updated, loggedIn] = events;
    expect(invited).toMatchObject({ actor: { kind: "secret", keyId: team.keyId }, data: { _id: user._id } });
    const actor = { kind: "user", keyId: session.id, userId: user._id };
    expect(updated).toMatchObject({ actor, subject: { version: 1 } });
    expect(updated.data.fields.sort()).toEqual(["lastName", "password"]);
    expect(loggedIn).toMatchObject({ actor, subject: { version: 1 }, data: { keyId: session.id } });
  });

  test("returns its team, email, role and if it's a reset, repeatedly, until it is used", async ({ team }) => {
    const { _id } = await newInvitee(team, { firstName: "Ada", role: "member" });
    const token = await newLink(team, _id);
    const { name: teamName } = await read(team, `/auth/v1/teams/${team.teamId}`);
    for (let time = 0; time < 2; time++)
      expect(await dataOf(describeLink(token))).toEqual({ teamName, email: EMAIL, role: "member", hasPassword: false });
    await accept(token);
    await rejected(team, 401, "token_invalid", () => describeLink(token));
    expect(await dataOf(describeLink(await newLink(team, _id)))).toMatchObject({ hasPassword: true });
  });

  test("works once", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const token = await newLink(team, _id);
    const { key } = await dataOf(accept(token));
    await rejected(team, 401, "token_invalid", () => accept(token, { password: "another password" }));
    expect(await isAccepted(key)).toBe(true);
    expect((await logIn(team, EMAIL, NEW_PASSWORD)).status).toBe(200);
  });

  test("works once with parallel requests", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const token = await newLink(team, _id);
    const answers = await atOnce(5, (i) => accept(token, { password: `password number ${i}` }));
    expect(tally(answers)).toEqual({ 200: 1, token_invalid: 4 });
    const winner = answers.findIndex(({ status }) => status === 200);
    expect((await logIn(team, EMAIL, `password number ${winner}`)).status).toBe(200);
    expect(await isAccepted(answers[winner]?.body.data.key)).toBe(true);
    const sessions = await read(team, "/auth/v1/sessions");
    expect(sessions).toHaveLength(2);
  });

  test("is replaced by a newer one", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const [first, second] = [await newLink(team, _id), await newLink(team, _id)];
    await rejected(team, 401, "token_invalid", () => accept(first));
    expect((await accept(second)).status).toBe(200);
  });

  test("lives as long as `expiresIn` says, from an hour to two weeks", async ({ team }) => {
    const { _id } = await newInvitee(team);
    for (const expiresIn of [3600, 1_209_600]) {
      const before = Date.now();
      const { expiresAt } = await dataOf(invite(team, _id, { json: { expiresIn } }));
      expect(Date.parse(expiresAt) - before).toBeGreaterThanOrEqual(expiresIn * 1000);
      expect(Date.parse(expiresAt) - Date.now()).toBeLessThanOrEqual(expiresIn * 1000);
    }
    for (const expiresIn of [3599, 1_209_601, "3600"]) {
      await rejected(team, 400, "invalid_input", () => invite(team, _id, { json: { expiresIn } }), ["expiresIn"]);
    }
  });

  describe("by a caller", () => {
    /** How a caller invites, and how it then loses the right to. */
    const admin = async (team: Team) => {
      const { id, token } = await newMember(team, "admin");
      return { path: userPath(id), token };
    };
    const ofKey = async (team: Team, fields: object = {}) => {
      const { id, key } = await newKey(team, fields);
      return { path: `/auth/v1/apikeys/${id}`, token: key };
    };
    const ofUsersKey = async (team: Team) => {
      const user = await admin(team);
      const { key } = await dataOf(team.call("POST", "/auth/v1/apikeys", { json: { name: "a" }, token: user.token }));
      return { ...user, token: key };
    };
    const ofKeysSession = async (team: Team) => {
      const key = await ofKey(team);
      return { ...key, token: (await openSession(key.token)).key };
    };
    const patch = (json: object) => (team: Team, path: string) => team.call("PATCH", path, { json });
    const remove = (team: Team, path: string) => team.call("DELETE", path);

    test.each<[string, typeof admin, (team: Team, path: string) => Promise<unknown>]>([
      ["an admin who is deleted", admin, remove],
      ["an admin who becomes a viewer", admin, patch({ role: "viewer" })],
      ["an admin who becomes a contributor", admin, patch({ role: "contributor" })],
      ["a key that is deleted", ofKey, remove],
      ["a key that loses users:write", ofKey, patch({ scopes: ["users:read"] })],
      ["a key that loses a scope of the role", ofKey, patch({ scopes: ["users:write", "files:read"] })],
      ["the key of a user who is deleted", ofUsersKey, remove],
      ["the key of a user who becomes a contributor", ofUsersKey, patch({ role: "contributor" })],
      ["the session of a key that is deleted", ofKeysSession, remove],
    ])("doesn't work once it is by %s, and a forgotten password replaces it", async (_, newInviter, lose) => {
      const team = await newTeam();
      const user = await newUser(team, { role: "member" });
      const { path, token } = await newInviter(team);
      const link = (await dataOf(invite(team, user._id, { token }))).token;
      expect((await describeLink(link)).status).toBe(200);
      const { mails, worker } = mailing();
      await worker.call("POST", FORGOT, { json: { teamId: team.teamId, email: EMAIL } });
      expect(mails).toHaveLength(0);
      await lose(team, path);
      await rejected(team, 401, "token_invalid", () => describeLink(link));
      await rejected(team, 401, "token_invalid", () => accept(link));
      await worker.call("POST", FORGOT, { json: { teamId: team.teamId, email: EMAIL } });
      expect(mails).toHaveLength(1);
      const [, reset = ""] = /#(stow_in_\S+)/.exec(mails[0]?.text ?? "") ?? [];
      expect((await accept(reset)).status).toBe(200);
    });

    test.each<[string, typeof admin, (team: Team, path: string, token: string) => Promise<unknown>]>([
      ["its user logs out", admin, (_, __, token) => call("POST", "/auth/v1/logout", { token })],
      ["its user gets a new password", admin, patch({ password: "another password" })],
      [
        "its key is rotated, and deleted",
        ofKey,
        async (team, path) => {
          await team.call("POST", `${path}/rotate`, { json: { overlapSeconds: 0 } });
          await remove(team, path);
        },
      ],
      [
        "its session is revoked, and the key rotated twice",
        ofKeysSession,
        async (team, path, token) => {
          await call("POST", "/auth/v1/logout", { token });
          const { id } = await dataOf(team.call("POST", `${path}/rotate`, { json: { overlapSeconds: 0 } }));
          await team.call("POST", `/auth/v1/apikeys/${id}/rotate`, { json: { overlapSeconds: 0 } });
        },
      ],
      [
        "the other scopes of its key are removed",
        ofKey,
        patch({
          scopes: [
            "users:write",
            "files:upload",
            "files:read",
            "files:download",
            "files:write",
            "files:delete",
            "files:erase",
            "events:read",
          ],
        }),
      ],
    ])("works when %s", async (_, newInviter, change) => {
      const team = await newTeam();
      const user = await newUser(team, { role: "member" });
      const { path, token } = await newInviter(team);
      const link = (await dataOf(invite(team, user._id, { token }))).token;
      await change(team, path, token);
      expect((await accept(link)).status).toBe(200);
    });

    test("doesn't work once every successor of its key is deleted", async ({ team }) => {
      const user = await newUser(team, { role: "member" });
      const { path, token } = await ofKey(team);
      const link = (await dataOf(invite(team, user._id, { token }))).token;
      const { id } = await dataOf(team.call("POST", `${path}/rotate`, {}));
      for (const gone of [path, `/auth/v1/apikeys/${id}`]) await remove(team, gone);
      await rejected(team, 401, "token_invalid", () => accept(link));
    });

    test("doesn't work if its caller is deleted while it is accepted", async ({ team }) => {
      const user = await newUser(team, { role: "member" });
      const { path, token } = await admin(team);
      const link = (await dataOf(invite(team, user._id, { token }))).token;
      const worker = startWorker(
        compose(
          withoutJobs,
          beforeWrite(() => remove(team, path)),
        ),
      );
      expect((await accept(link, {}, worker)).code).toBe("token_invalid");
      expect((await logIn(team)).status).toBe(200);
    });
  });

  test("expires after a day", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const { token, expiresAt } = await dataOf(invite(team, _id));
    const end = Date.parse(expiresAt);
    const [late, early] = [startWorker(at(() => end)), startWorker(at(() => end - 1))];
    await rejected(team, 401, "token_invalid", () => describeLink(token, late));
    await rejected(team, 401, "token_invalid", () => accept(token, {}, late));
    expect((await accept(token, {}, early)).status).toBe(200);
  });

  test.each([
    ["email", { email: "grace@example.com" }],
    ["role", { role: "member" }],
    ["password", { password: "set by an admin" }],
  ])("ends with a change of the %s", async (_, json) => {
    const team = await newTeam();
    const { _id } = await newInvitee(team);
    const token = await newLink(team, _id);
    await team.call("PATCH", userPath(_id), { json });
    await rejected(team, 401, "token_invalid", () => accept(token));
  });

  test("outlives an update that leaves email and role as they are, such as that of a form", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const token = await newLink(team, _id);
    const json = { firstName: "Ada", email: EMAIL.toUpperCase(), role: "viewer" };
    expect((await team.call("PATCH", userPath(_id), { json })).status).toBe(200);
    expect((await accept(token)).status).toBe(200);
  });

  test("ends when the user changes the password themselves", async ({ team }) => {
    const { _id } = await newUser(team);
    const { key: token } = await dataOf(logIn(team));
    const link = await newLink(team, _id);
    const json = { currentPassword: PASSWORD, newPassword: NEW_PASSWORD };
    expect((await call("POST", "/auth/v1/me/password", { token, json })).status).toBe(200);
    await rejected(team, 401, "token_invalid", () => accept(link));
  });

  test("ends with its user, and doesn't work while the team is suspended or deleted", async ({ team }) => {
    const [gone, kept] = [await newInvitee(team), await newInvitee(team, { email: "grace@example.com" })];
    const links = [await newLink(team, gone._id), await newLink(team, kept._id)] as const;
    await team.call("DELETE", userPath(gone._id));
    await rejected(team, 401, "token_invalid", () => accept(links[0]));
    const path = `/auth/v1/teams/${team.teamId}`;
    await call("PATCH", path, { token: OPERATOR, json: { status: "suspended" } });
    expect((await accept(links[1])).code).toBe("token_invalid");
    await call("PATCH", path, { token: OPERATOR, json: { status: "active" } });
    await call("DELETE", path, { token: OPERATOR });
    expect((await accept(links[1])).code).toBe("token_invalid");
  });

  test.each([
    ["the email is changed", { email: "grace@example.com" }, 401],
    ["a name is changed", { firstName: "Ada" }, 200],
  ])("is decided by the state at the end if it is accepted while %s", async (_, json, status) => {
    const team = await newTeam();
    const { _id } = await newInvitee(team);
    const token = await newLink(team, _id);
    const worker = startWorker(
      compose(withoutJobs, (deps) => ({
        ...deps,
        secrets: {
          ...deps.secrets,
          async hashPassword(password) {
            await team.call("PATCH", userPath(_id), { json });
            return deps.secrets.hashPassword(password);
          },
        },
      })),
    );
    expect((await accept(token, {}, worker)).status).toBe(status);
    expect(await read(team, userPath(_id))).toMatchObject(json);
  });

  test("gets the same bytes, whatever the reason why it does not work, and counts against the client IP", async ({
    team,
  }) => {
    const { _id } = await newInvitee(team);
    const [token, other] = [await newLink(team, _id), await newLink(team, (await newMember(team, "viewer")).id)];
    const wrong = [
      token.replace(/.$/, (last) => (last === "0" ? "1" : "0")),
      token.replace(_id, "0193477be8a01f9c3ad5e7b2"),
      `${token.split(".")[0]}.${other.split(".")[1]}`,
      token.replace("stow_in_", ""),
      token.toUpperCase(),
      `${token} `,
      "nonsense",
      team.token,
    ];
    const texts = new Set<string>();
    for (const send of [accept, describeLink])
      for (const one of wrong) {
        const { text } = await rejected(team, 401, "token_invalid", () => send(one));
        texts.add(withoutRequestId(text));
      }
    expect(texts.size).toBe(1);
    const limited = startLimited({ CLIENT_IP_LIMIT: 3 });
    const address = randomAddress();
    const send = (one: string) =>
      limited.call("POST", ACCEPT, { json: { token: one, password: NEW_PASSWORD }, address });
    for (let i = 0; i < 3; i++) expect((await send("nonsense")).status).toBe(401);
    expect([(await send("nonsense")).code, (await send(token)).code]).toEqual(["rate_limited", "rate_limited"]);
    const described = await limited.call("POST", DESCRIBE, { json: { token }, address });
    expect(described.code).toBe("rate_limited");
  });
});

describe("Inviting", () => {
  test("needs users:write, and every scope of the user's role", async ({ team }) => {
    const ids = Object.fromEntries(
      await Promise.all(["admin", "member", "viewer"].map(async (role) => [role, (await newMember(team, role)).id])),
    );
    const scopes = ["users:write", "files:read", "files:download", "events:read"];
    const { key: token } = await newKey(team, { scopes });
    for (const role of ["admin", "member"]) {
      await rejected(team, 403, "insufficient_scope", () => invite(team, ids[role], { token }));
    }
    expect((await invite(team, ids.viewer, { token })).status).toBe(200);
    const { key: reader } = await newKey(team, { scopes: ["users:read"] });
    await rejected(team, 403, "insufficient_scope", () => invite(team, ids.viewer, { token: reader }));
  });

  test("is refused if the role rises at the same moment", async ({ team }) => {
    const { id } = await newMember(team, "viewer");
    const scopes = ["users:write", "files:read", "files:download", "events:read"];
    const { key: token } = await newKey(team, { scopes });
    // The body is read after the caller is authorized.
    const body = pausedStream(["{}"], () => team.call("PATCH", userPath(id), { json: { role: "admin" } }));
    const answer = await invite(team, id, { token, body, headers: { "Content-Type": "application/json" } });
    expect(answer.code).toBe("insufficient_scope");
    expect(await eventsOf(team, "type=user.invited")).toEqual([]);
  });

  test("an invitation by email is 501 without the binding, and leaves the last link as it is", async ({ team }) => {
    const { _id } = await newInvitee(team);
    const token = await newLink(team, _id);
    const { call } = startWorker(compose(withoutJobs, (deps) => ({ ...deps, mailer: null })));
    const options = { token: team.token, json: { email: true } };
    await rejected(team, 501, "email_not_configured", () => call("POST", `${userPath(_id)}/invitations`, options));
    expect((await accept(token)).status).toBe(200);
    const path = `/auth/v1/teams/${team.teamId}`;
    expect(await dataOf(call("GET", path, { token: team.token }))).toMatchObject({ sendsEmail: false });
  });

  test("an invitation by email sends the link and does not return it", async ({ team }) => {
    const { mails, worker } = mailing();
    const { _id } = await newInvitee(team);
    const data = await dataOf(invite({ call: worker.call }, _id, { token: team.token, json: { email: true } }));
    expect(data).toEqual({ sent: true });
    expect(mails).toMatchObject([{ to: EMAIL }]);
    const [, token = ""] = /https:\/\/stowage\.test\/console\/invitation#(\S+)\n/.exec(mails[0]?.text ?? "") ?? [];
    expect((await accept(token)).status).toBe(200);
  });

  test("an invitation by email is 503 if the email can't be sent, and logs no recipient", async ({ team }) => {
    const send = () => Promise.reject(new Error("The email was not sent: E_RATE_LIMIT_EXCEEDED"));
    const { worker } = mailing((deps) => ({ ...deps, mailer: { send } }));
    const { _id } = await newInvitee(team);
    const answer = await invite({ call: worker.call }, _id, { token: team.token, json: { email: true } });
    expect([answer.status, answer.code]).toEqual([503, "unavailable"]);
  });
});

describe("Emails to users", () => {
  const MAIL = { json: { email: true } };
  /** A Worker on a clock that the test sets, and the emails that it sends. */
  function clocked(change: Change = (deps) => deps) {
    const clock = { now: Date.now() };
    const { mails, worker } = mailing(
      compose((deps) => ({ ...deps, system: { ...deps.system, now: () => clock.now } }), change),
    );
    const ask = ({ token }: Team, id: string) => invite({ call: worker.call }, id, { token, ...MAIL });
    return { clock, mails, worker, ask };
  }
  const expectPaused = ({ code, headers }: Answer, seconds: number) =>
    expect([code, headers.get("Retry-After")]).toEqual(["rate_limited", String(seconds)]);

  test("have a pause of five minutes, also if they are invitations, and a link without an email has none", async ({
    team,
  }) => {
    const { clock, mails, worker, ask } = clocked();
    const { _id } = await newInvitee(team);
    expect((await ask(team, _id)).status).toBe(200);
    clock.now += 60_000;
    const before = await dataOf(team.call("GET", `/auth/v1/users/${_id}`));
    expectPaused(await ask(team, _id), 240);
    expect(await dataOf(team.call("GET", `/auth/v1/users/${_id}`))).toEqual(before);
    expect(await eventsOf(team, "type=user.invited")).toHaveLength(1);
    expect((await invite({ call: worker.call }, _id, { token: team.token })).status).toBe(200);
    clock.now += 240_001;
    expect((await ask(team, _id)).status).toBe(200);
    expect(mails).toHaveLength(2);
  });

  test.each<[string, (team: Team, id: string) => Promise<string>]>([
    [
      "the user got another email",
      async (team, id) => {
        await dataOf(team.call("PATCH", `/auth/v1/users/${id}`, { json: { email: "new@example.com" } }));
        return id;
      },
    ],
    [
      "another user got the email",
      async (team, id) => {
        await team.call("DELETE", `/auth/v1/users/${id}`);
        return (await newInvitee(team))._id;
      },
    ],
    [
      "another user has the mailbox with a tag",
      async (team) => {
        const email = EMAIL.replace("@", "+2@");
        return (await newInvitee(team, { email }))._id;
      },
    ],
  ])("have the pause if %s", async (_, change) => {
    const team = await newTeam();
    const { mails, ask } = clocked();
    const { _id } = await newInvitee(team);
    expect((await ask(team, _id)).status).toBe(200);
    expectPaused(await ask(team, await change(team, _id)), 300);
    expect(mails).toHaveLength(1);
  });

  test("have no pause after one that could not be sent, which counts for the day", async ({ team }) => {
    const send = () => Promise.reject(new Error("The email was not sent: E_RATE_LIMIT_EXCEEDED"));
    const failing = clocked((deps) => ({ ...deps, mailer: { send } }));
    const { _id } = await newInvitee(team);
    expect((await failing.ask(team, _id)).code).toBe("unavailable");
    expect((await failing.ask(team, _id)).code).toBe("unavailable");
    const counted = DB.prepare("select count(*) n from sent_mails where team_id = ?").bind(team.teamId);
    expect(await counted.first("n")).toBe(2);
  });

  test("keep the pause after a reset that could not be sent, because anyone can ask for another one", async ({
    team,
  }) => {
    const send = () => Promise.reject(new Error("The email was not sent: E_RECIPIENT_SUPPRESSED"));
    const { worker, clock } = clocked((deps) => ({ ...deps, mailer: { send } }));
    await newInvitee(team);
    const ask = () => worker.call("POST", FORGOT, { json: { teamId: team.teamId, email: EMAIL } });
    for (let i = 0; i < 3; i++) expect((await ask()).status).toBe(200);
    const counted = DB.prepare("select count(*) n from sent_mails where team_id = ?").bind(team.teamId);
    expect(await counted.first("n")).toBe(1);
    clock.now += MAIL_PAUSE_MILLISECONDS + 1;
    await ask();
    expect(await counted.first("n")).toBe(2);
  });

  test("are resets only up to half of a day's", async () => {
    const team = await newTeam(undefined, 0);
    const { clock, mails, worker, ask } = clocked();
    await insertMany(
      MAX_TEAM_MAILS / 2,
      "insert into sent_mails (id, team_id, user_id, mailbox, sent_at) select ?2 || i, ?3, '', '', ?4 from n",
      `half-${team.teamId}-`,
      team.teamId,
      clock.now,
    );
    const { _id } = await newInvitee(team);
    await worker.call("POST", FORGOT, { json: { teamId: team.teamId, email: EMAIL } });
    expect(mails).toEqual([]);
    expect((await ask(team, _id)).status).toBe(200);
    expect(mails).toHaveLength(1);
  });

  test.each([
    [MAX_TEAM_MAILS, "of the team", true],
    [MAX_MAILS, "of the service", false],
  ])("are at most %i a day %s, also if they are resets", async (most, _, isOwn) => {
    const team = await newTeam(undefined, 0);
    const { clock, mails, worker, ask } = clocked();
    const teamId = isOwn ? team.teamId : "0".repeat(24);
    const mark = `full-${team.teamId}-`;
    const counted = DB.prepare("select count(*) n from sent_mails where sent_at > ?").bind(clock.now - DAY);
    const others = isOwn ? 0 : ((await counted.first<number>("n")) ?? 0);
    await insertMany(
      most - 1 - others,
      "insert into sent_mails (id, team_id, user_id, mailbox, sent_at) select ?2 || i, ?3, '', '', ?4 from n",
      mark,
      teamId,
      clock.now,
    );
    try {
      const [one, two] = [await newInvitee(team), await newInvitee(team, { email: "grace@example.com" })];
      expect((await ask(team, one._id)).status).toBe(200);
      expectPaused(await ask(team, two._id), 3600);
      await worker.call("POST", FORGOT, { json: { teamId: team.teamId, email: "grace@example.com" } });
      expect(mails).toHaveLength(1);
      clock.now += DAY;
      expect((await ask(team, two._id)).status).toBe(200);
    } finally {
      await DB.prepare("delete from sent_mails where id like ?").bind(`${mark}%`).run();
    }
  });
});

describe("A forgotten password", () => {
  const forgot = (worker: { call: typeof call }, json: object, options: CallOptions = {}) =>
    worker.call("POST", FORGOT, { json, ...options });

  test("is reset by a link that is sent only to the user", async ({ team }) => {
    const { mails, worker } = mailing();
    const { _id } = await newUser(team);
    await newUser(team, { email: "grace@example.com" });
    await newUser(await newTeam());
    expect((await forgot(worker, { teamId: team.teamId, email: " ADA@example.com" })).status).toBe(200);
    expect(mails.map(({ to }) => to)).toEqual([EMAIL]);
    const [, token = ""] = /#(\S+)\n/.exec(mails[0]?.text ?? "") ?? [];
    expect(token).toContain(_id);
    expect((await accept(token)).status).toBe(200);
    expect((await logIn(team, EMAIL, NEW_PASSWORD)).status).toBe(200);
    const [event] = await eventsOf(team, "type=user.invited");
    expect(event).toMatchObject({ actor: { kind: "system" }, subject: { id: _id } });
  });

  test("gets the same bytes and headers for a user, an unknown email, an unknown and a suspended team", async ({
    team,
  }) => {
    const { mails, worker } = mailing();
    await newUser(team);
    const suspended = await newTeam();
    await newUser(suspended);
    await call("PATCH", `/auth/v1/teams/${suspended.teamId}`, { token: OPERATOR, json: { status: "suspended" } });
    const answers = [];
    for (const json of [
      { teamId: team.teamId, email: EMAIL },
      { teamId: team.teamId, email: "unknown@example.com" },
      { teamId: "0193477be89f4d2e6b8a0c13", email: EMAIL },
      { teamId: "' or 1=1 --", email: "nonsense" },
      { teamId: suspended.teamId, email: EMAIL },
    ]) {
      const { status, text, headers } = await forgot(worker, json);
      headers.delete("X-Request-Id");
      answers.push(JSON.stringify([status, withoutRequestId(text), [...headers]]));
    }
    expect(new Set(answers).size).toBe(1);
    expect(mails).toHaveLength(1);
  });

  test("is looked up after the response, so its time shows nothing", async ({ team }) => {
    await newUser(team);
    for (const email of [EMAIL, "unknown@example.com"]) {
      const background: Promise<unknown>[] = [];
      let isResponded = false;
      const { worker, mails } = mailing((deps) => {
        // Holds the background work back until the response is there.
        let release = () => {};
        const held = new Promise<void>((resolve) => {
          release = resolve;
        });
        let calls = 0;
        const holding = (database: D1Database) =>
          withBatch(database, async (statements) => {
            calls += 1;
            if (calls > 1) await held;
            return database.batch(statements);
          });
        return {
          ...withDatabases(deps, holding),
          after: (work) => {
            background.push(work);
            setTimeout(() => {
              expect(isResponded).toBe(true);
              release();
            });
          },
        };
      });
      const { status } = await forgot(worker, { teamId: team.teamId, email });
      isResponded = true;
      expect([status, background.length, mails.length]).toEqual([200, 1, 0]);
      await Promise.all(background);
      expect(mails).toHaveLength(email === EMAIL ? 1 : 0);
    }
  });

  test("is 501 without the binding, for everybody", async ({ team }) => {
    await newUser(team);
    const worker = startWorker(compose(withoutJobs, (deps) => ({ ...deps, mailer: null })));
    for (const email of [EMAIL, "unknown@example.com"]) {
      await rejected(team, 501, "email_not_configured", () => forgot(worker, { teamId: team.teamId, email }));
    }
  });

  test("sends at most one email in five minutes, also after parallel requests", async ({ team }) => {
    await newUser(team);
    let now = Date.now();
    const { mails, worker } = mailing((deps) => ({ ...deps, system: { ...deps.system, now: () => now } }));
    const ask = () => forgot(worker, { teamId: team.teamId, email: EMAIL });
    expect(tally(await atOnce(3, ask))).toEqual({ 200: 3 });
    expect(mails).toHaveLength(1);
    now += 300_000;
    await ask();
    expect(mails).toHaveLength(1);
    now += 1;
    await ask();
    expect(mails).toHaveLength(2);
  });

  test("leaves an invitation that a caller created as it is until it ends", async ({ team }) => {
    const { _id } = await newInvitee(team);
    let now = Date.now();
    const { mails, worker } = mailing((deps) => ({ ...deps, system: { ...deps.system, now: () => now } }));
    const ask = () => forgot(worker, { teamId: team.teamId, email: EMAIL });
    // In place of a reset, which does not end the protection.
    await ask();
    const { token, expiresAt } = await dataOf(invite({ call: worker.call }, _id, { token: team.token }));
    now = Date.parse(expiresAt) - 1;
    await ask();
    expect(mails).toHaveLength(1);
    now += 1;
    await ask();
    expect(mails).toHaveLength(2);
    await rejected(team, 401, "token_invalid", () => accept(token));

    const { token: another } = await dataOf(invite(team, _id));
    await ask();
    expect((await accept(another)).status).toBe(200);
  });

  test("is requested at most ten times a minute for an account, and for a client IP unless a backend asks", async ({
    team,
  }) => {
    const worker = startLimited();
    const ask = (email: string, options: CallOptions = {}) => forgot(worker, { teamId: team.teamId, email }, options);
    for (let i = 0; i < 10; i++) expect((await ask(["a@b.de", "A@b.de"][i % 2] ?? "")).status).toBe(200);
    expect((await ask("a@b.de")).code).toBe("rate_limited");
    const address = randomAddress();
    for (let i = 0; i < 10; i++) expect((await ask(`${i}@b.de`, { address })).status).toBe(200);
    expect((await ask("11@b.de", { address })).code).toBe("rate_limited");
    expect((await ask("11@b.de", { address, token: team.token })).status).toBe(200);
    expect((await ask("11@b.de", { address, token: (await newTeam()).token })).code).toBe("rate_limited");
  });

  test("is counted for its client IP first, and for no account once that is blocked", async ({ team }) => {
    const worker = startLimited();
    const ask = (email: string, address: string) => forgot(worker, { teamId: team.teamId, email }, { address });
    const address = randomAddress();
    for (let i = 0; i < 10; i++) await ask(`${i}@b.de`, address);
    for (let i = 0; i < 10; i++) expect((await ask("a@b.de", address)).code).toBe("rate_limited");
    expect((await ask("a@b.de", randomAddress())).status).toBe(200);
  });

  test("an account that reads like a client IP does not count for that IP", async () => {
    const worker = startLimited();
    for (let i = 0; i < 10; i++) await forgot(worker, { teamId: "2001:db8:0:1::", email: "64" });
    const answer = await forgot(worker, { teamId: "a", email: "b@c.de" }, { address: "2001:db8:0:1::5" });
    expect(answer.status).toBe(200);
  });

  test("is logged if the email can't be sent, and responds the same", async ({ team }) => {
    await newUser(team);
    const logged: unknown[] = [];
    const { worker } = mailing((deps) => ({
      ...deps,
      mailer: { send: () => Promise.reject(new Error("E_SENDER_NOT_VERIFIED")) },
      log: (level, event, { teamId }) => logged.push([level, event, teamId]),
    }));
    expect((await forgot(worker, { teamId: team.teamId, email: EMAIL })).status).toBe(200);
    expect(logged).toContainEqual(["error", "email_failed", team.teamId]);
  });
});

describe("The export of a user", () => {
  const exportOf = (team: Team, id: string, options: CallOptions = {}) =>
    team.call("GET", `${userPath(id)}/export`, options);

  test("has the record, sessions, keys and events of the user, and nothing of another", async ({ team }) => {
    const [ada, grace] = [await newMember(team, "admin", EMAIL), await newMember(team, "admin", "grace@example.com")];
    const keys = [];
    for (const { token } of [ada, grace]) keys.push(await newKey({ call: (m, p, o) => call(m, p, { ...o, token }) }));
    await team.call("PATCH", userPath(ada.id), { json: { firstName: "Ada" } });
    await call("POST", "/auth/v1/webhooks", { token: ada.token, json: { url: "https://hooks.canary.example/" } });
    const answer = await exportOf(team, ada.id);
    expect(answer.headers.get("Content-Type")).toBe("application/json");
    const { user, sessions, keys: exported, events, hasOlderEvents } = await dataOf(Promise.resolve(answer));
    const { password, ...record } = await read(team, userPath(ada.id));
    expect(user, "no hash").toEqual(record);
    expect(sessions).toMatchObject([{ userId: ada.id, createdBy: null }]);
    expect(exported).toEqual([{ ...keys[0], key: expect.stringMatching(/^stow_sk_.{4}….{4}$/) }]);
    expect(events.map(({ type }: { type: string }) => type)).toEqual([
      "user.created",
      "apikey.created",
      "user.updated",
      "webhook.created",
    ]);
    expect(hasOlderEvents).toBe(false);
    for (const { actor } of events) expect(actor, "a name may be that of another").not.toHaveProperty("name");
    expect(answer.text).not.toContain(grace.id);
    expect(answer.text).not.toContain("grace@example.com");
  });

  test("continues after 4,000 events and 500 sessions, and examines the team's latest 8,000 events", async ({
    team,
  }) => {
    const { id } = await newMember(team, "viewer");
    const start = Date.now() * 1000 + 60_000_000;
    await insertMany(
      10_001,
      `insert into events (team_id, seq, type, created_at, actor, subject_id, data, position)
       select ?2, ?3 + i, 'file.updated', 1, json_object('kind', 'session', 'keyId', null, 'userId', iif(i % 2500 = 1, ?4, 'x'), 'requestId', null),
         '0193477be8a01f9c3ad5e7b2', '{}', 100 + i from n`,
      team.teamId,
      start,
      id,
    );
    await insertMany(
      1000,
      `insert into api_keys (id, team_id, uuid, name, kind, token_hash, user_id, lifetime_milliseconds, created_at, expires_at)
       select printf('%012x', i) || substr(?3, 13), ?2, i, 'a', 'session', ?3 || i, ?3, 1, 1, 4e12 from n`,
      team.teamId,
      id,
    );
    const { sessions, events, hasOlderEvents } = await dataOf(exportOf(team, id));
    expect(sessions).toHaveLength(1001);
    const seqs = events.map(({ _id }: { _id: string }) => Number.parseInt(_id.slice(0, 14), 16));
    expect([seqs, hasOlderEvents]).toEqual([[2501, 5001, 7501, 10_001].map((i) => start + i), true]);
  });

  test("needs events:read and keys:read too, because it shows both", async ({ team }) => {
    const { id } = await newMember(team, "viewer");
    const scopes = ["users:read", "events:read", "keys:read"];
    const { key: token } = await newKey(team, { scopes });
    expect((await exportOf(team, id, { token })).status).toBe(200);
    for (const missing of scopes) {
      const { key: token } = await newKey(team, { scopes: scopes.filter((scope) => scope !== missing) });
      await rejected(team, 403, "insufficient_scope", () => exportOf(team, id, { token }));
    }
  });

  test("needs users:read, and is not sent above the limit", async ({ team }) => {
    const { id } = await newMember(team, "viewer");
    const { key: token } = await newKey(team, { scopes: ["users:write"] });
    await rejected(team, 403, "insufficient_scope", () => exportOf(team, id, { token }));
    const limited = startLimited({ HEAVY_LIMIT: 1 });
    const send = () => limited.call("GET", `${userPath(id)}/export`, { token: team.token });
    expect((await send()).status).toBe(200);
    expect((await send()).code).toBe("rate_limited");
  });
});
