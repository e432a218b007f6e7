import { beforeAll, describe, expect, test } from "vitest";
import { api } from "../../src/app.ts";
import type { Deps } from "../../src/deps.ts";
import { splitRoute } from "../../src/http/operation.ts";
import {
  type CallOptions,
  fieldsOf,
  newTeam,
  newUser,
  PASSWORD,
  refused,
  startWorker,
  type Team,
} from "../support/harness.ts";

/*
 * Input that no honest client sends: each is answered with a clear 4xx, and nothing is stored.
 */

const USERS = "/auth/v1/users";
const UPLOADS = "/docs/v1/uploads";
const JSON_BYTES = 64 * 1024;

let team: Team;
let userId: string;
beforeAll(async () => {
  team = await newTeam();
  userId = (await newUser(team))._id;
});

/** A body as it is, sent as JSON. */
const raw = (body: BodyInit | ReadableStream<Uint8Array>, headers: Record<string, string> = {}): CallOptions => ({
  body,
  headers: { "Content-Type": "application/json", ...headers },
});
const bytes = (text: string) => new TextEncoder().encode(text);
const streamOf = (...chunks: Uint8Array[]) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });

describe.each(
  Object.entries(api)
    .filter(([, { body }]) => body)
    .map(([route, { bodyExample }]) => ({ route, ...splitRoute(route), example: bodyExample as object })),
)("The JSON of $name", ({ method, path, example }) => {
  const send = (options: CallOptions) => team.call(method, path.replace("{id}", userId), options);

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
  ])("JSON of more than 64 KiB is refused %s.", async (_, send413) => {
    const body = JSON.stringify(example).padEnd(JSON_BYTES + 1);
    await refused(team, 413, "body_too_large", () => send(send413(body)));
  });

  test.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "application/json5",
  ])("JSON sent as %s is refused with 415.", async (type) => {
    const body = JSON.stringify(example);
    await refused(team, 415, "unsupported_media_type", () => send(raw(body, { "Content-Type": type })));
  });

  test("JSON without a Content-Type is refused with 415.", async () => {
    await refused(team, 415, "unsupported_media_type", () => send({ body: bytes(JSON.stringify(example)) }));
    await refused(team, 415, "unsupported_media_type", () => send({}));
  });

  test.each(["isAdmin", "_id", "__v", "createdAt", "userId", "__proto__", "constructor", "toString", "", "a.b"])(
    "JSON with the unknown field %j is refused by its name.",
    async (field) => {
      const body = `{${JSON.stringify(field)}: {"teamId": "x"}, ${JSON.stringify(example).slice(1)}`;
      await refused(team, 400, "invalid_input", () => send(raw(body)), [field]);
    },
  );

  const textFields = Object.entries(example).filter(([, value]) => typeof value === "string");
  test.each(textFields.map(([field]) => field))(
    "JSON with NUL or half a surrogate pair in %s is refused.",
    async (field) => {
      for (const wrong of ["\\u0000", "\\ud800", "\\udc00", "\\ud83d x"]) {
        const body = JSON.stringify({ ...example, [field]: "PLACE@example.com" }).replace("PLACE", `12345678${wrong}`);
        await refused(team, 400, "invalid_input", () => send(raw(body)), [field]);
      }
    },
  );

  test.each(textFields.map(([field]) => field))("JSON with %s of a wrong type is refused.", async (field) => {
    for (const wrong of [null, 7, true, {}, ["a"]]) {
      const json = { ...example, [field]: wrong };
      await refused(team, 400, "invalid_input", () => send({ json }), [field]);
    }
  });
});

describe("The JSON of a new user", () => {
  test.each(["application/json; charset=utf-8", "APPLICATION/JSON"])("JSON sent as %s is taken.", async (type) => {
    const own = await newTeam();
    const body = JSON.stringify({ email: "a@example.com", password: PASSWORD });
    expect((await own.call("POST", USERS, raw(body, { "Content-Type": type }))).status).toBe(200);
  });

  test("JSON may have 64 KiB exactly.", async () => {
    const own = await newTeam();
    const body = JSON.stringify({ email: "a@example.com", password: PASSWORD }).padEnd(JSON_BYTES);
    expect((await own.call("POST", USERS, raw(body))).status).toBe(200);
  });

  test("JSON with a key twice counts the last, once.", async () => {
    const own = await newTeam();
    const body = `{"email": "a@example.com", "password": "${PASSWORD}", "email": "b@example.com"}`;
    expect((await own.call("POST", USERS, raw(body))).body.data.email).toBe("b@example.com");
    expect((await own.call("GET", USERS)).body).toHaveLength(1);
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

const part = (headers: string, body = "x") => `--b\r\n${headers}\r\n\r\n${body}\r\n`;
const filePart = (body = "hello", name = "a.txt") =>
  part(`Content-Disposition: form-data; name="file"; filename="${name}"`, body);
const textPart = part('Content-Disposition: form-data; name="note"');
const formOf = (body: string | ReadableStream<Uint8Array>, type = "multipart/form-data; boundary=b"): CallOptions => ({
  body,
  headers: { "Content-Type": type },
});
const END = "--b--\r\n";

describe("The form of an upload", () => {
  test.each<[string, CallOptions, number, string]>([
    ["without a boundary", formOf(filePart() + END, "multipart/form-data"), 400, "malformed_multipart"],
    [
      "with an empty boundary",
      formOf(filePart() + END, 'multipart/form-data; boundary=""'),
      400,
      "malformed_multipart",
    ],
    ["with another boundary", formOf(filePart() + END, "multipart/form-data; boundary=c"), 400, "malformed_multipart"],
    ["that is empty", formOf(""), 400, "malformed_multipart"],
    ["cut off in a header", formOf(filePart().slice(0, 40)), 400, "malformed_multipart"],
    ["cut off in the file", formOf(filePart().slice(0, -4)), 400, "malformed_multipart"],
    ["cut off before its end", formOf(filePart()), 400, "malformed_multipart"],
    ["with a file part that names no file", formOf(part("X-Nothing: 1") + END), 400, "malformed_multipart"],
    ["of a hundred text parts", formOf(filePart() + textPart.repeat(100) + END), 400, "malformed_multipart"],
    ["of a hundred text parts first", formOf(textPart.repeat(100) + filePart() + END), 400, "malformed_multipart"],
    ["with a header of 100 KB", formOf(filePart("x", "n".repeat(100_000)) + END), 400, "malformed_multipart"],
    ["without any part", formOf(END), 400, "file_missing"],
    ["without a file", formOf(textPart + END), 400, "file_missing"],
    ["whose file has another name", formOf(filePart().replace('"file"', '"upload"') + END), 400, "file_missing"],
    ["whose file is text", formOf(part('Content-Disposition: form-data; name="file"') + END), 400, "file_missing"],
    ["with an empty file", formOf(filePart("") + END), 400, "file_empty"],
    ["with two files", formOf(filePart() + filePart() + END), 400, "too_many_files"],
    ["with a hundred files", formOf(filePart().repeat(100) + END), 400, "too_many_files"],
    ["sent as JSON", formOf("{}", "application/json"), 415, "unsupported_media_type"],
    ["sent as bytes", formOf("hello", "audio/mpeg"), 415, "unsupported_media_type"],
    ["sent as multipart/mixed", formOf(filePart() + END, "multipart/mixed; boundary=b"), 415, "unsupported_media_type"],
    ["sent as nothing", { body: bytes(filePart() + END) }, 415, "unsupported_media_type"],
  ])("A form %s is refused, and nothing is kept.", async (_, options, status, code) => {
    const own = await newTeam();
    await refused(own, status, code, () => own.call("POST", UPLOADS, options));
    expect((await own.call("GET", "/docs/v1/usage")).body.data).toMatchObject({ files: 0, bytes: 0 });
  });

  test("A form whose body breaks off is refused, if anyone still listens.", async () => {
    const own = await newTeam();
    const broken = () => {
      let isFirst = true;
      return new ReadableStream<Uint8Array>({
        pull(controller) {
          if (isFirst) controller.enqueue(bytes(filePart()));
          else controller.error(new Error("gone"));
          isFirst = false;
        },
      });
    };
    await refused(own, 400, "malformed_multipart", () => own.call("POST", UPLOADS, formOf(broken())));
  });
});

/** A team on a Worker with settings of its own. */
const teamWith = (settings: Partial<Deps["settings"]>) =>
  newTeam(startWorker((deps) => ({ ...deps, settings: { ...deps.settings, ...settings } })));

describe("A file over the limit of 1,000 bytes", () => {
  const tooLarge = filePart("x".repeat(1001)) + END;

  test("A file over the limit is refused by its Content-Length before a byte of it is read.", async () => {
    const own = await teamWith({ maxUploadBytes: 1000 });
    let reads = 0;
    const pull = () => {
      reads += 1;
    };
    const body = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const options = formOf(body);
    const headers = { ...options.headers, "Content-Length": "1000000" };
    const { body: answer } = await refused(own, 413, "file_too_large", () =>
      own.call("POST", UPLOADS, { ...options, headers }),
    );
    expect(answer.message).toMatch(/\b1000 bytes/);
    expect(reads).toBe(0);
  });

  test.each<[string, () => CallOptions]>([
    ["without a Content-Length", () => formOf(streamOf(bytes(tooLarge)))],
    ["with a true one", () => ({ ...formOf(tooLarge), headers: { ...formOf("").headers, "Content-Length": "1100" } })],
    ["with a lying one", () => ({ ...formOf(tooLarge), headers: { ...formOf("").headers, "Content-Length": "10" } })],
  ])("A file over the limit is refused by counting, %s.", async (_, options) => {
    const own = await teamWith({ maxUploadBytes: 1000 });
    const answer = await refused(own, 413, "file_too_large", () => own.call("POST", UPLOADS, options()));
    expect(answer.body.message).toMatch(/\b1000 bytes/);
    expect(fieldsOf(answer.body)).toEqual(["code", "message", "requestId", "status"]);
    expect((await own.call("GET", "/docs/v1/usage")).body.data).toMatchObject({ files: 0, bytes: 0 });
  });

  test("A file of exactly the limit is stored.", async () => {
    const own = await teamWith({ maxUploadBytes: 1000 });
    const options = formOf(filePart("x".repeat(1000)) + END);
    expect((await own.call("POST", UPLOADS, options)).status).toBe(200);
  });
});

test.each<[string, string, string, (body: ReadableStream<Uint8Array>) => CallOptions]>([
  ["An upload that stands still before the file", UPLOADS, "", formOf],
  ["An upload that stands still within the file", UPLOADS, filePart().slice(0, -4), formOf],
  ["JSON that stands still", USERS, '{"email":', raw],
])("%s is given up with 408.", async (_, path, start, send) => {
  const own = await teamWith({ uploadIdleMilliseconds: 20 });
  const idle = () => new ReadableStream<Uint8Array>({ start: (controller) => controller.enqueue(bytes(start)) });
  await refused(own, 408, "upload_timeout", () => own.call("POST", path, send(idle())));
});
