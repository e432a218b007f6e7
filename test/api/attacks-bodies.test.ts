import { beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  newTeam,
  newUser,
  refused,
  sendText,
  startWorker,
  type Team,
  withoutHashing,
} from "../support/harness.ts";

/* What a caller may try with the shape, the size and the type of a body, and with the version it claims to know. */

const worker = startWorker(withoutHashing);

let team: Team;
let userId: string;

beforeAll(async () => {
  team = await newTeam(worker);
  userId = (await newUser(team, { email: "first@canary.example", password: "canary-password" }))._id;
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

describe("A body that says it is something else", () => {
  test.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json-patch+json",
    "text/json",
    "application/jsonp",
    "",
    "application/xml",
  ])("A body sent as %j is refused with 415, so no form of another site can send it.", async (type) => {
    await refused(team, 415, "unsupported_media_type", () =>
      sendText(team, "POST", "/auth/v1/apikeys", '{"name":"a"}', type),
    );
  });

  test.each(["null", "[]", '"a"', "1", "true", '[{"name":"a"}]'])(
    "A body of %s is refused with 400, since it is no object.",
    async (text) => {
      await refused(team, 400, "invalid_input", () => sendText(team, "POST", "/auth/v1/apikeys", text));
    },
  );

  test.each([
    "",
    "{",
    "{'name':'a'}",
    '{"name":"a",}',
    '{"name":NaN}',
    '{"name":"a"}{"name":"b"}',
    '/**/{"name":"a"}',
    '{"name":"\n"}',
  ])("A body of %j is refused with 400, since it is not JSON.", async (text) => {
    await refused(team, 400, "malformed_json", () => sendText(team, "POST", "/auth/v1/apikeys", text));
  });
});

describe("Values in the place of others", () => {
  const wrong: unknown[] = [null, 1, true, [], {}, ["a"], { $gt: "" }, { toString: "a" }, { length: 5 }];
  test.each(["firstName", "email", "password"])(
    "No operator, array or object passes for the text of %s.",
    async (field) => {
      for (const value of wrong) {
        const json = { email: "o@canary.example", password: "canary-password", [field]: value };
        await refused(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/users", { json }), [field]);
      }
    },
  );

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

describe("The version in If-Match", () => {
  const patch = (tags: string): Promise<Answer> =>
    team.call("PATCH", `/auth/v1/users/${userId}`, { json: { lastname: "x" }, headers: { "If-Match": tags } });

  test.each([
    ["no tag at all", ""],
    ["a weak tag", 'W/"0"'],
    ["a bare number", "0"],
    ["SQL", '"0") or ("1"="1'],
    ["a float", '"0.0"'],
    ["a negative number", '"-0"'],
    ["a number beyond whole numbers", `"${"9".repeat(40)}"`],
  ])("An If-Match header with %s matches nothing.", async (_, tags) => {
    await refused(team, 412, "version_mismatch", () => patch(tags));
  });

  // D1 takes 100 bound parameters in a statement.
  test.each([99, 101, 5_000])("An If-Match header may name %i versions.", async (count) => {
    const tags = Array.from({ length: count }, (_, i) => `"${i + 1_000_000}"`).join();
    await refused(team, 412, "version_mismatch", () => patch(tags));
  });
});
