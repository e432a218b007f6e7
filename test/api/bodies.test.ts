import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import {
  type CallOptions,
  newTeam,
  newUser,
  PASSWORD,
  refused,
  sendText,
  startWorker,
  streamOf,
  type Team,
  withoutHashing,
} from "../support/harness.ts";
import { jsonRoutes, pathTo } from "../support/routes.ts";

/* The JSON of a request: what no honest client sends is answered with a clear 4xx, and nothing is stored. */

const USERS = "/auth/v1/users";
const JSON_BYTES = 64 * 1024;

const worker = startWorker(withoutHashing);
let team: Team;
let userId: string;
beforeAll(async () => {
  team = await newTeam(worker);
  userId = (await newUser(team))._id;
});

/** A body as it is, sent as JSON. */
const raw = (body: BodyInit | ReadableStream<Uint8Array>, headers: Record<string, string> = {}): CallOptions => ({
  body,
  headers: { "Content-Type": "application/json", ...headers },
});
const bytes = (text: string) => new TextEncoder().encode(text);

/** Fields that only the service may set; where a route documents one of them, it is not an attack there. */
const SERVICE_FIELDS = [
  ..."_id id __v version teamId team_id createdAt updatedAt expiresAt isPublic uuid key token tokenHash".split(" "),
  ..."sealedToken sealed_with userId emailKey passwordHash role isAdmin operator".split(" "),
  ..."__proto__ constructor prototype toString hasOwnProperty valueOf".split(" "),
  ...["", "a.b"],
];
const DOCUMENTED: Record<string, string[]> = {
  // That a team's key names no team is tested with the keys.
  "POST /auth/v1/apikeys": ["isPublic", "expiresAt", "teamId"],
  "POST /auth/v1/login": ["teamId"],
};

describe.each(jsonRoutes)("The JSON of $name", (route) => {
  const { name, method, example, operation } = route;
  const send = (options: CallOptions) => team.call(method, pathTo(route, userId), options);

  test.each([
    ["empty", ""],
    ["white space", "  \n"],
    ["cut off", '{"name": "a'],
    ["two values", '{"name": "a"} {}'],
    ["in single quotes", "{'name': 'a'}"],
    ["a number that JSON has not", '{"name": NaN}'],
    ["with a comment", '{"name": "a"} // b'],
    ["with a bare control character", '{"name": "a\u0000"}'],
    ["in UTF-16", new Uint8Array(new Uint16Array([0x7b, 0x7d]).buffer)],
    ["not UTF-8", new Uint8Array([...bytes('{"name": "'), 0xff, 0xc0, 0x80, ...bytes('"}')])],
    ["with a comma too many", '{"name":"a",}'],
    ["after a comment", '/**/{"name":"a"}'],
    ["with a bare line break in a text", '{"name":"\n"}'],
    ["thirty thousand brackets", "[".repeat(30_000)],
  ])("JSON that is %s is malformed.", async (_, body) => {
    await refused(team, 400, "malformed_json", () => send(raw(body)));
  });

  test.each(["[]", "[{}]", '"text"', "null", "true", "7"])(
    "JSON that is no object but %s is refused.",
    async (body) => {
      await refused(team, 400, "invalid_input", () => send(raw(body)), [""]);
    },
  );

  test.each([
    ["with a true Content-Length", (body: string) => raw(body, { "Content-Length": `${body.length}` })],
    ["without a Content-Length", (body: string) => raw(streamOf(bytes(body)))],
    ["with too small a Content-Length", (body: string) => raw(body, { "Content-Length": "10" })],
  ])("JSON of more than 64 KiB, or of what its route takes, is refused %s.", async (_, send413) => {
    const body = JSON.stringify(example).padEnd((operation.maxBodyBytes ?? JSON_BYTES) + 1);
    await refused(team, 413, "body_too_large", () => send(send413(body)));
  });

  test.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "application/json5",
    "application/json-patch+json",
    "text/json",
    "application/jsonp",
    "application/xml",
    "",
  ])("JSON sent as %j is refused with 415, so no form of another site can send it.", async (type) => {
    const body = JSON.stringify(example);
    await refused(team, 415, "unsupported_media_type", () => send(raw(body, { "Content-Type": type })));
  });

  test("JSON without a Content-Type is refused with 415.", async () => {
    await refused(team, 415, "unsupported_media_type", () => send({ body: bytes(JSON.stringify(example)) }));
    if (!operation.isBodyOptional) await refused(team, 415, "unsupported_media_type", () => send({}));
  });

  test.each(SERVICE_FIELDS.filter((field) => !DOCUMENTED[name]?.includes(field)))(
    "JSON with the field %j, which is the service's own, is refused by its name.",
    async (field) => {
      // As text: in an object literal `__proto__` would not be a field.
      const body = `${JSON.stringify(example).slice(0, -1)},${JSON.stringify(field)}:"0193477be8a01f9c3ad5e7b2"}`;
      const answer = await refused(team, 400, "invalid_input", () => send(raw(body)), [field]);
      expect(answer.text).not.toContain("0193477be8a01f9c3ad5e7b2");
      expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    },
  );

  const textFields = Object.entries(example).filter(([, value]) => typeof value === "string");
  test.each(textFields.map(([field]) => field))(
    "JSON with NUL or half a surrogate pair in %s is refused.",
    async (field) => {
      for (const wrong of ["\\u0000", "\\ud800", "\\udc00", "\\ud83d x", "\\udc00\\ud800"]) {
        const body = JSON.stringify({ ...example, [field]: "PLACE@example.com" }).replace("PLACE", `12345678${wrong}`);
        await refused(team, 400, "invalid_input", () => send(raw(body)), [field]);
      }
    },
  );

  test.each(textFields.map(([field]) => field))("JSON with %s of a wrong type is refused.", async (field) => {
    for (const wrong of [null, 7, true, [], {}, ["a"], { $gt: "" }, { toString: "a" }, { length: 5 }]) {
      const json = { ...example, [field]: wrong };
      await refused(team, 400, "invalid_input", () => send({ json }), [field]);
    }
  });
});

describe("The JSON of a new user", () => {
  test.each(["application/json; charset=utf-8", "APPLICATION/JSON"])("JSON sent as %s is taken.", async (type) => {
    const own = await newTeam(worker);
    const body = JSON.stringify({ email: "a@example.com", password: PASSWORD });
    expect((await own.call("POST", USERS, raw(body, { "Content-Type": type }))).status).toBe(200);
  });

  test("JSON may have 64 KiB exactly.", async () => {
    const own = await newTeam(worker);
    const body = JSON.stringify({ email: "a@example.com", password: PASSWORD }).padEnd(JSON_BYTES);
    expect((await own.call("POST", USERS, raw(body))).status).toBe(200);
  });

  test.each([
    ["arrays", (inner: string) => "[".repeat(30_000) + inner + "]".repeat(30_000)],
    ["objects", (inner: string) => '{"a":'.repeat(10_000) + inner + "}".repeat(10_000)],
  ])("JSON of thousands of nested %s is refused.", async (_, nest) => {
    const body = `{"email": "a@example.com", "password": "${PASSWORD}", "firstName": ${nest("1")}}`;
    await refused(team, 400, "invalid_input", () => team.call("POST", USERS, raw(body)), ["firstName"]);
  });

  test("JSON with five wrong fields is answered with all five.", async () => {
    const json = { firstName: 1, lastName: null, email: "x", password: "x", extra: true };
    await refused(team, 400, "invalid_input", () => team.call("POST", USERS, { json }), Object.keys(json));
  });
});

describe("A body that is made to be expensive", () => {
  const nested = (open: string, close: string, depth: number) =>
    `{"name":${open.repeat(depth)}${close === "}" ? "1" : ""}${close.repeat(depth)}}`;

  test.each([
    ["arrays 32,000 deep", nested("[", "]", 32_000)],
    ["objects 10,000 deep", nested('{"a":', "}", 10_000)],
    ["a number of 60,000 digits", `{"name":${"9".repeat(60_000)}}`],
    ["a name of 60,000 characters", `{"name":"${"x".repeat(60_000)}"}`],
    ["a name of combining marks", `{"name":"a${"\u0301".repeat(30_000)}"}`],
    ["an email to slow a pattern down", `{"email":"${"a.".repeat(30_000)}@${"a-".repeat(100)}"}`],
    ["a time to slow a pattern down", `{"name":"a","expiresAt":"2027-01-01T00:00:00.${"0".repeat(60_000)}"}`],
  ])("A body with %s is refused with 400.", async (_, text) => {
    await refused(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/apikeys", text));
    await refused(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/users", text));
  });

  test("A body of 8,000 unknown fields does not make an answer larger than itself.", async () => {
    const text = `{${Array.from({ length: 8_000 }, (_, i) => `"${i.toString(36)}":1`).join()}}`;
    const answer = await refused(
      team,
      400,
      "invalid_input",
      () => sendText(team, "POST", "/auth/v1/apikeys", text),
      undefined,
    );
    expect(answer.text.length).toBeLessThan(text.length);
  });

  test.each([
    ["one byte over 64 KiB", `{"name":"${"x".repeat(64 * 1024 - 10)}"}`],
    ["2 MB of white space before a good body", `${" ".repeat(2_000_000)}{"name":"a"}`],
    ["arrays 300,000 deep", nested("[", "]", 300_000)],
  ])("A body of %s is refused with 413.", async (_, text) => {
    await refused(team, 413, "body_too_large", () => sendText(team, "POST", "/auth/v1/apikeys", text));
  });

  test("A body without an end is cut off by what was read, not by what was announced.", async () => {
    let sent = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += 65_536;
        controller.enqueue(new Uint8Array(65_536).fill(0x20));
      },
    });
    const headers = { "Content-Type": "application/json", "Content-Length": "10" };
    await refused(team, 413, "body_too_large", () => team.call("POST", "/auth/v1/apikeys", { body: endless, headers }));
    expect(sent).toBeLessThan(2_000_000);
  });
});

describe("Values in the place of others", () => {
  test("A value that only counts as a boolean is refused for isPublic.", async () => {
    for (const isPublic of [null, 0, 1, "true", "", [], {}]) {
      const json = { name: "a", isPublic };
      await refused(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/apikeys", { json }), ["isPublic"]);
    }
  });

  test("An expiry that never comes or has been is refused.", async () => {
    for (const expiresAt of [
      "2000-01-01T00:00:00Z",
      "9999-12-31T23:59:59Z",
      "never",
      "",
      "2027-02-30T00:00:00Z",
      1e15,
    ]) {
      const json = { name: "a", expiresAt };
      await refused(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/apikeys", { json }), ["expiresAt"]);
    }
  });

  test.each(["'; drop table users; --", "%' or 1=1 --", '"; select * from api_keys', "\\'; --", "{{7*7}}<%= 7*7 %>"])(
    "SQL and templates are stored as text: %s",
    async (text) => {
      const json = { firstName: text, email: `${crypto.randomUUID()}@canary.example`, password: "canary-password" };
      const { body } = await team.call("POST", "/auth/v1/users", { json });
      expect(body.data.firstName).toBe(text);
      expect((await team.call("GET", `/docs/v1/uploads?cursor=${encodeURIComponent(text)}`)).status).toBe(400);
      expect((await team.call("GET", `/auth/v1/users/${encodeURIComponent(text)}`)).status).toBe(404);
    },
  );
});

test("A nested __proto__ or constructor.prototype reaches no object.", async () => {
  for (const text of [
    '{"name":"a","__proto__":{"isPublic":true,"polluted":1}}',
    '{"name":"a","constructor":{"prototype":{"polluted":1}}}',
    '{"name":{"__proto__":{"polluted":1}}}',
  ]) {
    await refused(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/apikeys", text));
  }
  for (const query of ["__proto__=1", "__proto__[polluted]=1", "constructor=1&constructor=2", "__proto__.polluted=1"]) {
    expect((await team.call("GET", `/docs/v1/uploads?${query}`)).status).toBe(200);
  }
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

describe("Duplicate JSON keys", () => {
  test("The last of two values counts: what was checked is what is stored.", async () => {
    const text = '{"email":"not an email","email":"last@canary.example","password":"x","password":"canary-password"}';
    const { body } = await sendText(team, "POST", "/auth/v1/users", text);
    expect(body.data.email).toBe("last@canary.example");
    const row = await env.DB.prepare("select email, email_key from users where id = ?").bind(body.data._id).first();
    expect(row).toEqual({ email: "last@canary.example", email_key: "last@canary.example" });
  });

  test("A bad last value is not saved by a good first one.", async () => {
    const text = '{"email":"good@canary.example","email":"bad","password":"canary-password"}';
    await refused(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/users", text), ["email"]);
  });

  test("An escaped spelling of a key is the same key.", async () => {
    const { body } = await sendText(
      team,
      "POST",
      "/auth/v1/apikeys",
      '{"name":"a","isPublic":true,"\\u0069sPublic":false}',
    );
    expect(body.data).toMatchObject({ isPublic: false, key: expect.stringMatching(/^stow_sk_/) });
  });
});
