import { beforeAll, describe, expect, test, vi } from "vitest";
import { DB } from "../support/databases.ts";
import {
  brokenStream,
  type CallOptions,
  compose,
  newTeam,
  newUser,
  PASSWORD,
  rejected,
  sendText,
  startWorker,
  streamOf,
  type Team,
  withoutHashing,
  withoutLimits,
} from "../support/harness.ts";
import { jsonRoutes, pathTo, tokenFor } from "../support/routes.ts";

/* JSON bodies: malformed, oversized, interrupted and hostile ones are rejected with 4xx, and nothing is stored. */

const USERS = "/auth/v1/users";
const JSON_BYTES = 64 * 1024;

const worker = startWorker(compose(withoutHashing, withoutLimits));
let team: Team;
let userId: string;
beforeAll(async () => {
  team = await newTeam(worker);
  userId = (await newUser(team))._id;
});

/** Sends the body unchanged, as JSON. */
const raw = (body: BodyInit | ReadableStream<Uint8Array>, headers: Record<string, string> = {}): CallOptions => ({
  body,
  headers: { "Content-Type": "application/json", ...headers },
});
const bytes = (text: string) => new TextEncoder().encode(text);

/** Fields that only the service sets. Routes that document one of them are exempt. */
const SERVICE_FIELDS = [
  ..."_id id __v version teamId team_id createdAt updatedAt expiresAt isPublic uuid key token tokenHash".split(" "),
  ..."encryptedToken encrypted_with userId emailKey passwordHash role isAdmin operator".split(" "),
  ..."__proto__ constructor prototype toString hasOwnProperty valueOf".split(" "),
  ...["", "a.b"],
];
const DOCUMENTED: Record<string, string[]> = {
  // keys.test.ts tests that a team's key can't name a team.
  "POST /auth/v1/apikeys": ["isPublic", "expiresAt", "teamId"],
  "PATCH /auth/v1/apikeys/{id}": ["expiresAt"],
  "POST /auth/v1/users": ["role"],
  "PATCH /auth/v1/users/{id}": ["role"],
  "POST /auth/v1/login": ["teamId"],
  "POST /auth/v1/password/forgot": ["teamId"],
  "POST /auth/v1/invitations/describe": ["token"],
  "POST /auth/v1/invitations/accept": ["token"],
  "POST /docs/v1/uploads/{id}/links": ["expiresAt"],
};

describe.each(jsonRoutes)("The JSON body of $name", (route) => {
  const { name, method, example, operation } = route;
  const send = (options: CallOptions) =>
    team.call(method, pathTo(route, userId), { token: tokenFor(route, team), ...options });

  test("is rejected if it is malformed, not an object, of another type, or too large", async () => {
    await rejected(team, 400, "malformed_json", () => send(raw('{"name": "a')));
    const compressed = await send(raw('\u001f{"name"', { "Content-Encoding": "gzip" }));
    expect([compressed.status, compressed.code]).toEqual([415, "unsupported_media_type"]);
    expect(compressed.body.message).toContain('"gzip"');
    await rejected(team, 400, "invalid_input", () => send(raw("[]")), [""]);
    const body = JSON.stringify(example);
    await rejected(team, 415, "unsupported_media_type", () => send(raw(body, { "Content-Type": "text/plain" })));
    const maxBytes = operation.maxBodyBytes ?? JSON_BYTES;
    await rejected(team, 413, "body_too_large", () => send(raw(body.padEnd(maxBytes + 1))));
  });

  test("can be absent only if it is optional", async () => {
    const empty = { "Content-Length": "0" };
    for (const options of [{}, raw("", empty), { body: "", headers: { ...empty, "Content-Type": "" } }]) {
      const { status, code } = await send(options);
      if (operation.isBodyOptional) expect([200, 404]).toContain(status);
      else expect(["malformed_json", "unsupported_media_type"]).toContain(code);
    }
  });

  test("is rejected if it sets fields of the service", async () => {
    const fields = SERVICE_FIELDS.filter((field) => !DOCUMENTED[name]?.includes(field));
    // As text, because `__proto__` in an object literal would not be a field.
    const pairs = fields.map((field) => `${JSON.stringify(field)}:"0193477be8a01f9c3ad5e7b2"`);
    const body = `${JSON.stringify(example).slice(0, -1)},${pairs.join()}}`;
    const answer = await rejected(team, 400, "invalid_input", () => send(raw(body)), fields);
    expect(answer.text).not.toContain("0193477be8a01f9c3ad5e7b2");
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  const textFields = Object.entries(example).filter(([, value]) => typeof value === "string");
  test.runIf(textFields.length > 0)(
    "is rejected if a text has NUL, an unpaired surrogate or another type",
    async () => {
      for (const [field] of textFields) {
        for (const wrong of ["\\u0000", "\\ud800", "\\udc00", "\\ud83d x", "\\udc00\\ud800"]) {
          const body = JSON.stringify({ ...example, [field]: "PLACE" }).replace("PLACE", `12345678${wrong}@b.de`);
          await rejected(team, 400, "invalid_input", () => send(raw(body)), [field]);
        }
        // Null removes a reference.
        const nulls = field === "reference" ? [] : [null];
        for (const wrong of [...nulls, 7, true, [], {}, ["a"], { $gt: "" }, { toString: "a" }, { length: 5 }]) {
          await rejected(team, 400, "invalid_input", () => send({ json: { ...example, [field]: wrong } }), [field]);
        }
      }
    },
  );
});

describe("The JSON body of a new user", () => {
  const user = () => JSON.stringify({ email: `${crypto.randomUUID()}@example.com`, password: PASSWORD });
  const send = (options: CallOptions) => team.call("POST", USERS, options);

  test.each([
    ["empty", ""],
    ["white space", "  \n"],
    ["two values", '{"name": "a"} {}'],
    ["in single quotes", "{'name': 'a'}"],
    ["a number that JSON does not have", '{"name": NaN}'],
    ["with a comment before it", '/**/{"name":"a"}'],
    ["with a bare control character", '{"name": "a\u0000"}'],
    ["with a trailing comma", '{"name":"a",}'],
    ["in UTF-16", new Uint8Array(new Uint16Array([0x7b, 0x7d]).buffer)],
    ["not UTF-8", new Uint8Array([...bytes('{"name": "'), 0xff, 0xc0, 0x80, ...bytes('"}')])],
    ["thirty thousand brackets", "[".repeat(30_000)],
  ])("is malformed if it is %s", async (_, body) => {
    await rejected(team, 400, "malformed_json", () => send(raw(body)));
  });

  test("is rejected if it is not an object", async () => {
    for (const body of ["[{}]", '"text"', "null", "true", "7"]) {
      await rejected(team, 400, "invalid_input", () => send(raw(body)), [""]);
    }
  });

  test("is malformed, and not an error of the service, if the client disconnects midway", async () => {
    const log = vi.spyOn(console, "error");
    await rejected(team, 400, "malformed_json", () => send(raw(brokenStream('{"email": "a@exa'))));
    expect(log).not.toHaveBeenCalled();
  });

  test.each([
    ["without a Content-Length", (body: string) => raw(streamOf(bytes(body)))],
    ["with too small a Content-Length", (body: string) => raw(body, { "Content-Length": "10" })],
  ])("can have at most 64 KiB, %s", async (_, options) => {
    await rejected(team, 413, "body_too_large", () => send(options(user().padEnd(JSON_BYTES + 1))));
    expect((await send(raw(user().padEnd(JSON_BYTES)))).status).toBe(200);
  });

  test.each([
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "application/json5",
    "application/json-patch+json",
    "text/json",
    "application/jsonp",
    "",
  ])("is rejected with 415 if its Content-Type is %j, so that a form of another site can't send it", async (type) => {
    await rejected(team, 415, "unsupported_media_type", () => send(raw(user(), { "Content-Type": type })));
  });

  test.each(["application/json; charset=utf-8", "APPLICATION/JSON"])("is accepted as %s", async (type) => {
    expect((await send(raw(user(), { "Content-Type": type }))).status).toBe(200);
  });

  test("names each of five wrong fields", async () => {
    const json = { firstName: 1, lastName: null, email: "x", password: "x", extra: true };
    await rejected(team, 400, "invalid_input", () => send({ json }), Object.keys(json));
  });
});

describe("An expensive body", () => {
  const nested = (open: string, close: string, depth: number) =>
    `{"name":${open.repeat(depth)}${close === "}" ? "1" : ""}${close.repeat(depth)}}`;

  test.each([
    ["arrays 32,000 deep", nested("[", "]", 32_000)],
    ["objects 10,000 deep", nested('{"a":', "}", 10_000)],
    ["a number of 60,000 digits", `{"name":${"9".repeat(60_000)}}`],
    ["a name of 60,000 characters", `{"name":"${"x".repeat(60_000)}"}`],
    ["a name of combining marks", `{"name":"a${"\u0301".repeat(30_000)}"}`],
    ["an email that slows a pattern down", `{"email":"${"a.".repeat(30_000)}@${"a-".repeat(100)}"}`],
    ["a time that slows a pattern down", `{"name":"a","expiresAt":"2027-01-01T00:00:00.${"0".repeat(60_000)}"}`],
    ["8,000 unknown fields", `{${Array.from({ length: 8_000 }, (_, i) => `"${i.toString(36)}":1`).join()}}`],
  ])("is rejected with 400 and a smaller response if it has %s", async (_, text) => {
    for (const path of ["/auth/v1/apikeys", USERS]) {
      const answer = await rejected(team, 400, "invalid_input", () => sendText(team, "POST", path, text));
      expect(answer.text.length).toBeLessThan(text.length);
    }
  });

  test("a body without an end is limited by the bytes read, not by its Content-Length", async () => {
    let sent = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += 65_536;
        controller.enqueue(new Uint8Array(65_536).fill(0x20));
      },
    });
    const options = raw(endless, { "Content-Length": "10" });
    await rejected(team, 413, "body_too_large", () => team.call("POST", USERS, options));
    expect(sent).toBeLessThan(2_000_000);
  });
});

test("isPublic is rejected unless it is a boolean", async () => {
  for (const isPublic of [null, 0, 1, "true", "", [], {}]) {
    const json = { name: "a", isPublic };
    await rejected(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/apikeys", { json }), ["isPublic"]);
  }
});

test("text that looks like SQL or a template is stored as text", async () => {
  for (const text of ["'; drop table users; --", '"; select * from api_keys', "\\'; --", "{{7*7}}<%= 7*7 %>"]) {
    const { firstName } = await newUser(team, { firstName: text, email: `${crypto.randomUUID()}@canary.example` });
    expect(firstName).toBe(text);
    expect((await team.call("GET", `/docs/v1/uploads?cursor=${encodeURIComponent(text)}`)).status).toBe(400);
    expect((await team.call("GET", `${USERS}/${encodeURIComponent(text)}`)).status).toBe(404);
  }
});

test("the fields of a prototype are rejected in nested bodies and queries, and change no object", async () => {
  for (const text of ['{"name":"a","__proto__":{"polluted":1}}', '{"name":{"__proto__":{"polluted":1}}}']) {
    await rejected(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/apikeys", text));
  }
  for (const query of ["__proto__=1", "__proto__[polluted]=1", "constructor=1&constructor=2", "__proto__.polluted=1"]) {
    expect((await team.call("GET", `/docs/v1/uploads?${query}`)).status).toBe(400);
  }
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

describe("A duplicate JSON key", () => {
  test("counts with its last value, which is the value that was validated", async () => {
    const text = '{"email":"not an email","email":"last@canary.example","password":"x","password":"canary-password"}';
    const { body } = await sendText(team, "POST", "/auth/v1/users", text);
    expect(body.data.email).toBe("last@canary.example");
    const row = await DB.prepare("select email, email_key from users where id = ?").bind(body.data._id).first();
    expect(row).toEqual({ email: "last@canary.example", email_key: "last@canary.example" });
  });

  test("is rejected if only its first value is valid", async () => {
    const text = '{"email":"good@canary.example","email":"bad","password":"canary-password"}';
    await rejected(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/users", text), ["email"]);
  });

  test("can be spelled with escapes", async () => {
    const text = '{"name":"a","isPublic":true,"\\u0069sPublic":false}';
    const { body } = await sendText(team, "POST", "/auth/v1/apikeys", text);
    expect(body.data).toMatchObject({ isPublic: false, key: expect.stringMatching(/^stow_sk_/) });
  });
});

describe("The message of an invalid input", () => {
  test.each([
    ["{}", "Invalid `email`: Required."],
    ['{"password":7}', "Invalid `email`: Required. (1 more in `errors`)"],
    ["[]", "Invalid body: Must be of type object."],
    [
      `{"email":"a@b.example","password":"canary-password","${"x".repeat(1000)}":1}`,
      `Invalid \`${"x".repeat(100)}\`: Unknown field.`,
    ],
  ])("names its first field: %.60s", async (text, message) => {
    const { body } = await sendText(team, "POST", USERS, text);
    expect(body).toMatchObject({ code: "invalid_input", message });
  });
});
