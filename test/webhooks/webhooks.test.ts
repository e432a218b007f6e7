import { beforeEach, describe, expect, test } from "vitest";
import { validateWebhookUrl } from "../../src/webhooks/webhook-url.ts";
import type { Answer } from "../support/client.ts";
import { expectDocumentedMessage } from "../support/contract.ts";
import { DB } from "../support/databases.ts";
import { ACCEPTED_REPLY, losingResponses } from "../support/deps.ts";
import {
  atOnce,
  call,
  compose,
  dataOf,
  eventsOf,
  fieldsOf,
  idsIn,
  newKey,
  newMember,
  newTeam,
  nextOf,
  read,
  readPages,
  rejected,
  startWorker,
  type Team,
  type TestWorker,
  tally,
  withoutJobs,
} from "../support/harness.ts";
import { MINUTE } from "../support/time.ts";

/* Webhooks in the API, and the sender. The test of their deliveries is webhooks/deliveries. */

const WEBHOOKS = "/auth/v1/webhooks";
const HOOK_URL = "https://hooks.canary.example/in";
const FIELDS = [
  ...[
    "__v",
    "_id",
    "changedBy",
    "createdAt",
    "createdBy",
    "description",
    "disabledReason",
    "failingSince",
    "health",
    "lastDay",
  ],
  "lastResult",
  ...["status", "teamId", "types", "updatedAt", "url"],
];

let team: Team;
beforeEach(async () => {
  team = await newTeam();
});

const create = (of = team, json: object = {}) =>
  dataOf(of.call("POST", WEBHOOKS, { json: { url: HOOK_URL, ...json } }));
/** Updates the webhook, which is an event that it receives. @returns the delivery */
async function createDelivery(id: string, of = team) {
  await dataOf(of.call("PATCH", `${WEBHOOKS}/${id}`, { json: { description: "new" } }));
  return (await read(of, `${WEBHOOKS}/${id}/deliveries`))[0];
}
const eventTypes = async () => (await eventsOf(team)).map(({ type }: { type: string }) => type);

describe("A webhook", () => {
  test("is created enabled, for all types, and shows its secret only in that response", async () => {
    const { secret, ...created } = await create();
    expect(secret).toMatch(/^whsec_[0-9A-Za-z+/]{43}=$/);
    expect(fieldsOf(created)).toEqual(FIELDS);
    const defaults = { types: null, description: "", status: "enabled", disabledReason: null, __v: 0 };
    const { createdAt: updatedAt } = created;
    expect(created).toMatchObject({ ...defaults, teamId: team.teamId, url: HOOK_URL, updatedAt });
    const path = `${WEBHOOKS}/${created._id}`;
    expect(await read(team, path)).toEqual(created);
    expect(await read(team, WEBHOOKS)).toEqual([created]);
    for (const { status, text } of [
      await team.call("PATCH", path, { json: { description: "new" } }),
      await team.call("POST", `${path}/test`),
      await team.call("GET", `${path}/deliveries`),
      await team.call("GET", "/auth/v1/events"),
    ]) {
      expect(status, text).toBe(200);
      expect(text).not.toContain("whsec_");
    }
  });

  test("is updated field by field, and each update records an event with the names of its fields", async () => {
    const { _id } = await create();
    const path = `${WEBHOOKS}/${_id}`;
    const update = (json: object) => dataOf(team.call("PATCH", path, { json }));
    await update({ description: "Catalogue" });
    // Repeated types count once.
    expect((await update({ types: ["file.completed", "file.failed", "file.completed"] })).types).toHaveLength(2);
    expect(await update({ status: "disabled" })).toMatchObject({ status: "disabled", disabledReason: "requested" });
    await update({ url: "https://other.canary.example/" });
    await update({ status: "enabled", types: null });
    expect(await read(team, path)).toMatchObject({
      url: "https://other.canary.example/",
      types: null,
      description: "Catalogue",
      status: "enabled",
      disabledReason: null,
      __v: 5,
    });
    const events = await eventsOf(team, "type=webhook.updated");
    const fields = events.map(({ data }: { data: { fields: string[] } }) => data.fields.join());
    expect(fields).toEqual(["description", "types", "status", "url", "types,status"]);
  });

  test("is not found by any operation after it is deleted", async () => {
    const { _id } = await create();
    const path = `${WEBHOOKS}/${_id}`;
    const delivery = await createDelivery(_id);
    expect((await team.call("DELETE", path)).body).toEqual({ message: "Webhook deleted." });
    const after = { json: { after: "0".repeat(24) } };
    for (const [method, at, options] of [
      ["GET", path],
      ["DELETE", path],
      ["PATCH", path, { json: { description: "" } }],
      ["POST", `${path}/secret`, { json: {} }],
      ["POST", `${path}/test`],
      ["GET", `${path}/deliveries`],
      ["POST", `${path}/replay`, after],
      ["POST", `/auth/v1/deliveries/${delivery._id}/redeliver`],
    ] as const) {
      expect((await team.call(method, at, options)).code, `${method} ${at}`).toBe("not_found");
    }
    expect((await eventTypes()).slice(-3)).toEqual(["webhook.created", "webhook.updated", "webhook.deleted"]);
  });

  test.each<[string, object, string]>([
    ["without a URL", { url: undefined }, "url"],
    ["with a number as URL", { url: 1 }, "url"],
    ["with a URL of more than 2,048 characters", { url: `${HOOK_URL}?${"a".repeat(2100)}` }, "url"],
    ["with an empty list of types", { types: [] }, "types"],
    ["with an unknown type", { types: ["file.played"] }, "types.0"],
    ["with the type of test events", { types: ["webhook.test"] }, "types.0"],
    ["with types that are not a list", { types: "file.failed" }, "types"],
    ["with a description of 201 characters", { description: "a".repeat(201) }, "description"],
    ["with a signing secret", { secret: "whsec_x" }, "secret"],
    ["with a status", { status: "enabled" }, "status"],
  ])("%s is rejected, and the error names the field", async (_, json, path) => {
    const body = { url: HOOK_URL, ...json };
    await rejected(team, 400, "invalid_input", () => team.call("POST", WEBHOOKS, { json: body }), [path]);
  });

  test("is limited to ten per team, even if twenty are created at once; deleting one allows another", async () => {
    const responses = await atOnce(20, () => team.call("POST", WEBHOOKS, { json: { url: HOOK_URL } }));
    expect(tally(responses)).toEqual({ "200": 10, too_many_webhooks: 10 });
    const data = await read(team, WEBHOOKS);
    expect(data).toHaveLength(10);
    expect((await eventTypes()).filter((type: string) => type === "webhook.created")).toHaveLength(10);
    expect((await team.call("DELETE", `${WEBHOOKS}/${data[0]._id}`)).status).toBe(200);
    await create();
    expect((await team.call("POST", WEBHOOKS, { json: { url: HOOK_URL } })).code).toBe("too_many_webhooks");
  });
});

describe("A webhook of a deleted user", () => {
  const asUser = (token: string): Team => ({
    ...team,
    token,
    call: (method, path, options) => team.call(method, path, { token, ...options }),
  });
  const get = (id: string) => read(team, `${WEBHOOKS}/${id}`);
  const stateOf = async (id: string) => {
    const { status, disabledReason } = await get(id);
    return [status, disabledReason];
  };

  test("is disabled with an event, whether a session or a key of the user created it", async () => {
    const { id: userId, token } = await newMember(team, "admin");
    const key = await newKey(asUser(token));
    const { _id: ofSession } = await create(asUser(token));
    const { _id: ofKey } = await create(asUser(key.key));
    const { _id: ofTeam } = await create();
    expect((await get(ofKey)).createdBy).toEqual({ keyId: key.id, userId });
    expect((await get(ofTeam)).createdBy).toEqual({ keyId: team.keyId, userId: null });
    const { _id: unknown } = { _id: "0193477be8a01f9c3ad5e7b2" };
    await rejected(team, 404, "not_found", () => team.call("DELETE", `/auth/v1/users/${unknown}`));
    expect((await team.call("DELETE", `/auth/v1/users/${userId}`)).status).toBe(200);
    for (const id of [ofSession, ofKey]) expect(await stateOf(id)).toEqual(["disabled", "creator_deleted"]);
    expect(await stateOf(ofTeam)).toEqual(["enabled", null]);
    const events = await eventsOf(team, "type=webhook.disabled");
    expect(events.map(({ subject }: { subject: { id: string } }) => subject.id).sort()).toEqual(
      [ofSession, ofKey].sort(),
    );
    expect(events[0]).toMatchObject({ actor: { keyId: team.keyId }, data: { reason: "creator_deleted" } });
    const received = await read(team, `${WEBHOOKS}/${ofKey}/deliveries`);
    expect(received.map(({ type }: { type: string }) => type)).not.toContain("user.deleted");
    await dataOf(team.call("PATCH", `${WEBHOOKS}/${ofKey}`, { json: { status: "enabled" } }));
    await rejected(team, 404, "not_found", () => team.call("DELETE", `/auth/v1/users/${userId}`));
  });

  const CHANGES: Record<string, (id: string, token: string) => Promise<Answer>> = {
    URL: (id, token) => call("PATCH", `${WEBHOOKS}/${id}`, { token, json: { url: "https://other.example.com/" } }),
    secret: (id, token) => call("POST", `${WEBHOOKS}/${id}/secret`, { token, json: { revokeOld: true } }),
    status: (id, token) => call("PATCH", `${WEBHOOKS}/${id}`, { token, json: { status: "enabled" } }),
  };
  const remove = (id: string) => team.call("DELETE", `/auth/v1/users/${id}`);
  const demote = (id: string) => team.call("PATCH", `/auth/v1/users/${id}`, { json: { role: "contributor" } });
  test.each<[string, string, typeof remove]>([
    ["URL", "creator_deleted", remove],
    ["secret", "creator_deleted", remove],
    ["status", "creator_deleted", remove],
    ["URL", "creator_demoted", demote],
  ])(
    "is disabled, too, if the user was the last to change its %s, whatever others change later: %s",
    async (name, reason, lose) => {
      const { id: userId, token } = await newMember(team, "admin");
      const [changed, restored, described] = [await create(), await create(), await create()].map(({ _id }) => _id);
      for (const id of [changed, restored]) await dataOf(CHANGES[name]!(id, token));
      expect((await get(changed)).changedBy).toEqual({ keyId: expect.any(String), userId });
      for (const [other, change] of Object.entries(CHANGES)) {
        if (other !== name) await dataOf(change(changed, team.token));
        await dataOf(change(restored, team.token));
      }
      for (const id of [changed, described]) {
        const by = id === changed ? team.token : token;
        await dataOf(call("PATCH", `${WEBHOOKS}/${id}`, { token: by, json: { description: "a", types: null } }));
      }
      expect((await get(described)).changedBy).toEqual({ keyId: team.keyId, userId: null });
      expect((await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { role: "viewer" } })).status).toBe(200);
      expect(await stateOf(changed)).toEqual(["enabled", null]);
      expect((await lose(userId)).status).toBe(200);
      expect(await stateOf(changed)).toEqual(["disabled", reason]);
      for (const id of [restored, described]) expect(await stateOf(id)).toEqual(["enabled", null]);
      const events = await eventsOf(team, "type=webhook.disabled");
      expect(events).toMatchObject([{ subject: { id: changed }, data: { reason } }]);
    },
  );

  test("stays enabled with keepKeys, and if the deletion is refused", async () => {
    const { id: userId, token } = await newMember(team, "admin");
    const { _id } = await create(asUser(token));
    const refused = { headers: { "If-Match": '"9"' } };
    await rejected(team, 412, "version_mismatch", () => team.call("DELETE", `/auth/v1/users/${userId}`, refused));
    expect((await team.call("DELETE", `/auth/v1/users/${userId}?keepKeys=true`)).status).toBe(200);
    expect(await stateOf(_id)).toEqual(["enabled", null]);
    expect(await eventsOf(team, "type=webhook.disabled")).toEqual([]);
  });
});

describe("A webhook of a user who becomes a contributor", () => {
  test("is disabled with an event, and stays so when the role changes again", async () => {
    const { id: userId, token } = await newMember(team, "admin");
    const { _id } = await dataOf(team.call("POST", WEBHOOKS, { token, json: { url: HOOK_URL } }));
    const { _id: ofTeam } = await create();
    const setRole = (role: string) => dataOf(team.call("PATCH", `/auth/v1/users/${userId}`, { json: { role } }));
    await setRole("member");
    expect(await read(team, `${WEBHOOKS}/${_id}`)).toMatchObject({ status: "enabled" });
    for (const role of ["contributor", "admin", "contributor"]) await setRole(role);
    expect(await read(team, `${WEBHOOKS}/${_id}`)).toMatchObject({
      status: "disabled",
      disabledReason: "creator_demoted",
    });
    expect(await read(team, `${WEBHOOKS}/${ofTeam}`)).toMatchObject({ status: "enabled" });
    const events = await eventsOf(team, "type=webhook.disabled");
    expect(events).toMatchObject([{ subject: { id: _id }, data: { reason: "creator_demoted" } }]);
  });
});

describe("A signing secret", () => {
  test("changes with each rotation, and is stored encrypted", async () => {
    const { _id, secret } = await create();
    const row = () => DB.prepare("select * from webhooks where id = ?").bind(_id).first();
    const rotate = (json: object) => dataOf(team.call("POST", `${WEBHOOKS}/${_id}/secret`, { json }));
    const rotated = (await rotate({})).secret;
    expect(rotated).toMatch(/^whsec_/);
    expect(rotated).not.toBe(secret);
    expect((await row())?.old_encrypted_secret).toEqual(expect.any(String));
    for (const shown of [secret, rotated]) expect(JSON.stringify(await row())).not.toContain(shown.slice(6));
    await rotate({ revokeOld: true });
    expect((await row())?.old_encrypted_secret).toBeNull();
  });

  test("is the same one again for the same caller if the response was lost, with one event", async () => {
    const { _id, secret } = await create();
    const path = `${WEBHOOKS}/${_id}/secret`;
    const losing = startWorker(compose(withoutJobs, losingResponses));
    expect((await losing.call("POST", path, { token: team.token, json: {} })).code).toBe("unavailable");
    const repeated = await dataOf(team.call("POST", path, {}));
    expect(repeated.secret).not.toBe(secret);
    expect(await dataOf(team.call("POST", path, {}))).toEqual(repeated);
    expect(await eventsOf(team, "type=webhook.updated")).toHaveLength(1);
    // A change by another caller in between shows nothing to that caller, and takes nothing from this one.
    const { key: other } = await newKey(team);
    await team.call("PATCH", `${WEBHOOKS}/${_id}`, { token: other, json: { url: `${HOOK_URL}/moved` } });
    expect((await dataOf(team.call("POST", path, {}))).secret).toBe(repeated.secret);
  });

  test("is another one for another caller, if the old one is revoked, and after ten minutes", async () => {
    const { _id, secret } = await create();
    const { key: other } = await newKey(team);
    const rotate = async (token: string, json: object, call: TestWorker["call"] = team.call) =>
      (await dataOf(call("POST", `${WEBHOOKS}/${_id}/secret`, { token, json }))).secret;
    const seen = [secret, await rotate(team.token, {}), await rotate(other, {}), await rotate(team.token, {})];
    for (let i = 0; i < 2; i++) seen.push(await rotate(team.token, { revokeOld: true }));
    seen.push(await rotate(team.token, {}));
    const later = startWorker((deps) => ({
      ...deps,
      system: { ...deps.system, now: () => Date.now() + 10 * MINUTE + 1 },
    }));
    seen.push(await rotate(team.token, {}, later.call));
    expect(new Set(seen).size).toBe(seen.length);
  });

  test("is one for eight concurrent requests of a caller", async () => {
    const { _id } = await create();
    const responses = await atOnce(8, () => team.call("POST", `${WEBHOOKS}/${_id}/secret`, {}));
    expect(tally(responses)).toEqual({ 200: 8 });
    expect(new Set(responses.map(({ body }) => body.data.secret)).size).toBe(1);
    expect(await eventsOf(team, "type=webhook.updated")).toHaveLength(1);
  });

  test("is rotated by at least one of eight concurrent requests that revoke it, and the others get a conflict", async () => {
    const { _id } = await create();
    const json = { revokeOld: true };
    const responses = await atOnce(8, () => team.call("POST", `${WEBHOOKS}/${_id}/secret`, { json }));
    const { 200: rotated = 0, conflict = 0 } = tally(responses);
    expect(rotated).toBeGreaterThanOrEqual(1);
    expect(conflict).toBeGreaterThanOrEqual(1);
    expect(rotated + conflict).toBe(8);
    for (const { status, code } of responses) if (code) expect([status, code]).toEqual([409, "conflict"]);
  });
});

describe("A test event", () => {
  test("is sent at once and signed, is not in the event log, and returns the response of the endpoint", async () => {
    const sent: { headers: Record<string, string>; body: string }[] = [];
    const reply = { ...ACCEPTED_REPLY, httpStatus: 418, body: "teapot", durationMilliseconds: 12 };
    const worker = startWorker((deps) => ({
      ...withoutJobs(deps),
      sender: {
        post: async (_, headers, body) => {
          sent.push({ headers, body });
          return reply;
        },
      },
    }));
    team = await newTeam(worker);
    const { _id } = await create();
    await team.call("PATCH", `${WEBHOOKS}/${_id}`, { json: { status: "disabled" } });
    const { id: userId, token } = await newMember(team, "admin");
    const before = await eventTypes();
    const { body, headers } = await team.call("POST", `${WEBHOOKS}/${_id}/test`, { token });
    const { body: responseBody, httpStatus, durationMilliseconds } = reply;
    const result = { at: expect.any(String), httpStatus, error: null, durationMilliseconds, responseBody };
    expect(body.data).toEqual(result);
    expect(sent).toHaveLength(1);
    expectDocumentedMessage(sent[0]!.body);
    const message = JSON.parse(sent[0]!.body);
    expect(message).toMatchObject({
      type: "webhook.test",
      teamId: team.teamId,
      actor: { kind: "session", userId, requestId: headers.get("X-Request-Id") },
      subject: { id: _id },
      data: { _id },
    });
    expect(sent[0]!.headers).toMatchObject({
      "webhook-id": message.id,
      "webhook-signature": expect.stringMatching(/^v1,/),
    });
    expect(await eventTypes()).toEqual(before);
  });
});

describe("The deliveries of a webhook", () => {
  test("are listed newest first, page by page, each once, by cursors of that webhook only", async () => {
    const { _id } = await create();
    for (let i = 0; i < 4; i++) await newKey(team);
    const path = `${WEBHOOKS}/${_id}/deliveries`;
    const pages = await readPages(team, `${path}?limit=2`);
    expect(pages.map(({ length }) => length)).toEqual([2, 2]);
    const eventIds = idsIn(await read(team, "/auth/v1/events?limit=4"));
    expect(pages.flat().map(({ eventId }) => eventId)).toEqual(eventIds);
    const other = await create();
    for (let i = 0; i < 2; i++) await newKey(team);
    const next = nextOf(await team.call("GET", `${WEBHOOKS}/${other._id}/deliveries?limit=1`)) ?? "";
    expect((await team.call("GET", path + new URL(next).search)).code).toBe("invalid_input");
  });

  test("show their events, but not to a key that can't read events", async () => {
    const { _id } = await create();
    const { eventId } = await createDelivery(_id);
    const path = `${WEBHOOKS}/${_id}/deliveries`;
    const { actor: by, subject: of, ...logged } = await dataOf(team.call("GET", `/auth/v1/events/${eventId}`));
    // As it was sent: the log adds the names when it is read.
    const [{ name: _, ...actor }, { name: __, ...subject }] = [by, of];
    const event = { ...logged, actor, subject };
    const [{ event: listed, _id: id }] = await read(team, path);
    expect(listed).toEqual(event);
    expect((await dataOf(team.call("POST", `/auth/v1/deliveries/${id}/redeliver`))).event).toEqual(event);
    const { key: token } = await newKey(team, { scopes: ["webhooks:read"] });
    expect((await call("GET", path, { token })).body.data).toMatchObject([{ event: null }, { event: null }]);
  });

  test("are neither redelivered nor replayed while it is disabled", async () => {
    const { _id } = await create();
    const delivery = await createDelivery(_id);
    await team.call("PATCH", `${WEBHOOKS}/${_id}`, { json: { status: "disabled" } });
    const json = { after: delivery.eventId };
    for (const [path, options] of [
      [`/auth/v1/deliveries/${delivery._id}/redeliver`, {}],
      [`${WEBHOOKS}/${_id}/replay`, { json }],
    ] as const) {
      await rejected(team, 409, "webhook_disabled", () => team.call("POST", path, options));
    }
  });
});

const LOOPBACK_HOSTS = [
  ...["127.0.0.1", "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "１２７.0.0.1"],
  ...["[::1]", "[0:0:0:0:0:0:0:1]", "localhost", "LOCALHOST", "app.localhost", "127。0。0。1"],
];
const FORBIDDEN_HOSTS = [
  ...["0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "8.8.8.8", "0xa9fea9fe"],
  ...["[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fe80::1]", "[fd00::1]", "[2606::1]"],
  ...["intranet", "printer.local", "db.internal", "metadata.google.internal", "PRINTER.LOCAL", "printer。local"],
  ...["localhost.", "hooks.example.", "hooks..example", "db.internal."],
  ...["user@hooks.example", "user:password@hooks.example", ":password@hooks.example"],
];
const MALFORMED_URLS = [
  ...["http://hooks.example/", "https://hooks.example:8443/", "https://hooks.example:80/", "ftp://hooks.example/"],
  ...["file:///etc/passwd", "javascript:alert(1)", "data:text/plain,x", "wss://hooks.example/", "//hooks.example/"],
  ...["hooks.example", "https://", "", " ", "https://exa mple.com/", "https://hooks.example%00.local/"],
];
const isAllowed = (url: string, insecure = false) => "url" in validateWebhookUrl(url, insecure);

describe("A webhook URL", () => {
  test.each([...[...LOOPBACK_HOSTS, ...FORBIDDEN_HOSTS].map((host) => `https://${host}/`), ...MALFORMED_URLS])(
    "is rejected if it is %j",
    (url) => expect(isAllowed(url)).toBe(false),
  );

  test("is rejected by the API", async () => {
    for (const url of ["https://127.0.0.1/", "https://printer.local/", "http://hooks.example/"]) {
      await rejected(team, 400, "invalid_input", () => team.call("POST", WEBHOOKS, { json: { url } }), ["url"]);
    }
  });

  test.each([
    [HOOK_URL, HOOK_URL],
    ["https://hooks.example:443/a?b=c#d", "https://hooks.example/a?b=c"],
    ["HTTPS://Hooks.Example", "https://hooks.example/"],
    ["https://bücher.example/", "https://xn--bcher-kva.example/"],
    ["https://hooks.example\\@127.0.0.1/", "https://hooks.example/@127.0.0.1/"],
    ["https://localhost.example/", "https://localhost.example/"],
    ["https://my-internal.example/", "https://my-internal.example/"],
    ["https://1.2.3.4.example/", "https://1.2.3.4.example/"],
  ])("%s is accepted as %s", (url, normalized) => {
    expect(validateWebhookUrl(url, false)).toEqual({ url: normalized });
  });

  test("may use http, any port, and a loopback host only in local development", () => {
    for (const host of LOOPBACK_HOSTS)
      expect(isAllowed(`http://${host}:9000/`, true), host).toBe(host !== "localhost.");
    for (const host of FORBIDDEN_HOSTS.slice(0, 15)) expect(isAllowed(`http://${host}/`, true), host).toBe(false);
    expect(isAllowed("http://hooks.example:9000/", true)).toBe(true);
    expect(isAllowed("ftp://localhost/", true)).toBe(false);
  });
});
