import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { api } from "../../src/app.ts";
import { splitRoute } from "../../src/http/operation.ts";
import { newTeam, newUser, refused, sendText, startWorker, type Team, withoutHashing } from "../support/harness.ts";

/* What a caller with a good token may try with a body. */

const worker = startWorker(withoutHashing);

let team: Team;
let userId: string;

beforeAll(async () => {
  team = await newTeam(worker);
  userId = (await newUser(team, { email: "first@canary.example", password: "canary-password" }))._id;
});

const bodies = Object.entries(api)
  .filter(([, { body }]) => body)
  .map(([route, { bodyExample }]) => ({ route, ...splitRoute(route), example: bodyExample as object }));

/** Fields that only the service may set; where a route documents one of them, it is not an attack there. */
const SERVICE_FIELDS = [
  ..."_id id __v version teamId team_id createdAt updatedAt expiresAt isPublic uuid key token tokenHash".split(" "),
  ..."sealedToken sealed_with userId emailKey passwordHash role isAdmin operator".split(" "),
  ..."__proto__ constructor prototype toString hasOwnProperty valueOf".split(" "),
];
const DOCUMENTED: Record<string, string[]> = {
  "POST /auth/v1/apikeys": ["isPublic", "expiresAt"],
  "POST /auth/v1/login": ["teamId"],
};

describe.each(bodies)("Mass assignment by $name", ({ route, method, path, example }) => {
  test.each(SERVICE_FIELDS.filter((field) => !DOCUMENTED[route]?.includes(field)))(
    "The service's own field %s is refused.",
    async (field) => {
      // As text: in an object literal `__proto__` would not be a field.
      const text = `${JSON.stringify(example).slice(0, -1)},${JSON.stringify(field)}:"0193477be8a01f9c3ad5e7b2"}`;
      const answer = await refused(
        team,
        400,
        "invalid_input",
        () => sendText(team, method, path.replace("{id}", userId), text),
        [field],
      );
      expect(answer.text).not.toContain("0193477be8a01f9c3ad5e7b2");
      expect(({} as Record<string, unknown>).polluted).toBeUndefined();
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

describe("An email that looks like another's", () => {
  test.each([
    ["upper case", "FIRST@CANARY.EXAMPLE"],
    ["white space around it", " \t first@canary.example \u00a0\u3000\ufeff\n"],
    ["fullwidth letters", "ｆｉｒｓｔ@canary.example"],
    ["a ligature", "ﬁrst@canary.example"],
    ["mathematical letters", "𝐟𝐢𝐫𝐬𝐭@canary.example"],
    ["circled letters", "ⓕⓘⓡⓢⓣ@canary.example"],
    ["a long s", "firſt@canary.example"],
  ])("An email with %s is the email that it looks like.", async (_, email) => {
    const json = { email, password: "canary-password" };
    await refused(team, 409, "email_taken", () => team.call("POST", "/auth/v1/users", { json }));
    const { body } = await team.call("POST", "/auth/v1/users", {
      json: { email: `${crypto.randomUUID()}@canary.example`, password: "canary-password" },
    });
    const path = `/auth/v1/users/${body.data._id}`;
    await refused(team, 409, "email_taken", () => team.call("PATCH", path, { json: { email } }));
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
  ])("An email with %s is refused.", async (_, email) => {
    const json = { email, password: "canary-password" };
    await refused(team, 400, "invalid_input", () => team.call("POST", "/auth/v1/users", { json }), ["email"]);
  });
});

describe("Text that a database would cut or corrupt", () => {
  const fields = [
    ["POST", "/auth/v1/users", "firstName", { email: "n@canary.example", password: "canary-password" }],
    ["POST", "/auth/v1/users", "password", { email: "n@canary.example" }],
    ["POST", "/auth/v1/users", "email", { password: "canary-password" }],
    ["PATCH", "/auth/v1/users/{id}", "lastname", {}],
    ["POST", "/auth/v1/apikeys", "name", {}],
    ["POST", "/auth/v1/login", "teamId", { email: "n@canary.example", password: "canary-password" }],
  ] as const;
  const texts = [
    ["NUL", "admin\\u0000@canary.example"],
    ["a lone high surrogate", "admin\\ud800@canary.example"],
    ["a lone low surrogate", "admin\\udc00@canary.example"],
    ["surrogates the wrong way round", "admin\\udc00\\ud800@canary.example"],
  ] as const;
  test.each(fields.flatMap((field) => texts.map(([what, text]) => [what, ...field, text] as const)))(
    "Text with %s is refused by %s %s in %s.",
    async (_, method, path, field, rest, text) => {
      const body = `${JSON.stringify({ ...rest, "": 0 }).replace(/,?"":0}$/, "")}${Object.keys(rest).length > 0 ? "," : ""}"${field}":"${text}"}`;
      await refused(team, 400, "invalid_input", () => sendText(team, method, path.replace("{id}", userId), body), [
        field,
      ]);
    },
  );

  test("Bytes that are not UTF-8 are refused, not replaced.", async () => {
    const bytes = new Uint8Array([
      ...new TextEncoder().encode('{"name":"a'),
      0xff,
      0xfe,
      ...new TextEncoder().encode('"}'),
    ]);
    await refused(team, 400, "malformed_json", () => sendText(team, "POST", "/auth/v1/apikeys", bytes));
    const utf16 = new Uint8Array([...'{"name":"a"}'].flatMap((c) => [c.charCodeAt(0), 0]));
    await refused(team, 400, "malformed_json", () => sendText(team, "POST", "/auth/v1/apikeys", utf16));
  });
});
