import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { type Answer, newTeam, refused, startWorker, type Team, withoutJobs } from "../support/harness.ts";
import { BOUNDARY, bytesOf, END, fileForm, part, sendForm, TYPE } from "../support/raw-form.ts";

/* What is tried with the form around a file. */

const worker = startWorker(withoutJobs);

let team: Team;

beforeAll(async () => {
  team = await newTeam(worker);
});

describe("A form that is made to break its parser", () => {
  const good = (more: string | Uint8Array, type = TYPE): [Uint8Array<ArrayBuffer>, string] => [bytesOf(more), type];
  test.each<[string, [Uint8Array<ArrayBuffer>, string]]>([
    // CVE-2022-24434, and what was found after it in dicer, busboy, multer, formidable and others.
    [
      "a header that begins with a space",
      good(`--${BOUNDARY}\r\n Content-Disposition: form-data; name="a"\r\n\r\n\r\n${END}`),
    ],
    ["a part that is nothing but line breaks", good(`--${BOUNDARY}\r\n\r\n\r\n\r\n${END}`)],
    ["headers that never end", good(`--${BOUNDARY}\r\n${"X: y\r\n".repeat(5000)}`)],
    ["a header name of 60 KB", good(`--${BOUNDARY}\r\n${"x".repeat(60_000)}: y\r\n\r\n${END}`)],
    ["10,000 parts", good(bytesOf(...Array(1000).fill(part('Content-Disposition: form-data; name="a"', "")), END))],
    ["a preamble of 60 KB of dashes", good(`${"-".repeat(60_000)}\r\n${END}`)],
    ["boundaries that nearly are", good(`${`\r\n--${BOUNDARY.slice(0, -1)}`.repeat(2000)}${END}`)],
    ["a body that is its boundary", good(`--${BOUNDARY}`)],
    ["a body that is its closing boundary", good(END)],
    ["5,000 parameters", good(fileForm("x", `${"a=b;".repeat(2500)} x=y`))],
    ["a broken percent sign in filename*", good(fileForm("", "filename*=UTF-8''%E0%A4%A%zz%"))],
    ["a field called __proto__", good(bytesOf(part('Content-Disposition: form-data; name="__proto__"', "x"), END))],
    [
      "fields as an array",
      good(bytesOf(part('Content-Disposition: form-data; name="file[]"; filename="a"', "x"), END)),
    ],
    [
      "the file under a name with NUL",
      good(bytesOf(part('Content-Disposition: form-data; name="file\0"; filename="a"', "x"), END)),
    ],
    [
      "a nested multipart/mixed",
      good(
        bytesOf(
          part(
            'Content-Disposition: form-data; name="file"\r\nContent-Type: multipart/mixed; boundary=x',
            '--x\r\nContent-Disposition: file; filename="a"\r\n\r\nx\r\n--x--',
          ),
          END,
        ),
      ),
    ],
    ["no boundary", good(fileForm("x"), "multipart/form-data")],
    ["an empty boundary", good(fileForm("x"), "multipart/form-data; boundary=")],
    ["a boundary of 10,000 characters", good(fileForm("x"), `multipart/form-data; boundary=${"x".repeat(10_000)}`)],
    ["a boundary made of a pattern", good(fileForm("x"), "multipart/form-data; boundary=(.*)+$")],
    ["two boundaries", good(fileForm("x"), "multipart/form-data; boundary=a; boundary=b")],
    ["line feeds only", good(Buffer.from(fileForm("x")).toString().replaceAll("\r\n", "\n"))],
    ["carriage returns only", good(Buffer.from(fileForm("x")).toString().replaceAll("\r\n", "\r"))],
    ["UTF-16", good(Buffer.from(Buffer.from(fileForm("x")).toString(), "utf16le"))],
    ["zero bytes", good(new Uint8Array(10_000))],
    ["nothing", good("")],
    ["gzip", good(new Uint8Array([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]))],
    ["two files under one name", good(bytesOf(fileForm("x").slice(0, -END.length), fileForm("y")))],
    ["a file cut off", good(fileForm("x".repeat(5000)).slice(0, 3000))],
    ["a closing boundary cut off", good(fileForm("x").slice(0, -5))],
  ])("A hostile form is refused and leaves nothing: %s.", async (_, [body, type]) => {
    const home = await newTeam(worker);
    const answer = await refusedUpload(home, body, type);
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.status).toBeLessThan(500);
    expect((await home.call("GET", "/docs/v1/usage")).body.data).toMatchObject({ files: 0, bytes: 0 });
  });

  // What a parser may make of these is its own affair.
  test.each([
    ["a file name that never closes its quote", `filename="${"a".repeat(5000)}`],
    ["backslashes in a file name without end", `filename="${"\\".repeat(5001)}"`],
    ["quotes in a file name without end", `filename=${'"\\"'.repeat(2000)}`],
    ["a charset that does not exist", "filename*=utf-99''%41"],
    ["spaces between parameters without end", `${" ;".repeat(3000)}filename="a"${" ".repeat(3000)}`],
  ])("A hostile form is read or refused: %s.", async (_, parameters) => {
    expect([200, 400]).toContain((await sendForm(team, fileForm("x", parameters))).status);
  });

  async function refusedUpload(home: Team, body: Uint8Array<ArrayBuffer>, type: string): Promise<Answer> {
    const answer = await home.call("POST", "/docs/v1/uploads", { body, headers: { "Content-Type": type } });
    expect((await env.BUCKET.list({ prefix: home.teamId })).objects).toEqual([]);
    const rows = await env.DB.prepare("select id from files where team_id = ?").bind(home.teamId).all();
    expect(rows.results).toEqual([]);
    return answer;
  }

  test.each(["application/json", "text/plain", "multipart/mixed; boundary=x", "multipart/form-data-evil", ""])(
    "A form sent as %j is refused with 415 before it is read.",
    async (type) => {
      await refused(team, 415, "unsupported_media_type", () => sendForm(team, fileForm("x"), type));
    },
  );

  test.each([
    ["empty", ""],
    ["256 characters", "k".repeat(256)],
  ])("An Idempotency-Key that is %s is refused with 400.", async (_, key) => {
    await refused(team, 400, "invalid_input", () => sendForm(team, fileForm("x"), TYPE, { "Idempotency-Key": key }), [
      "Idempotency-Key",
    ]);
  });
});
