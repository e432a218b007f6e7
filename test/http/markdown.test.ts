import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { splitRoute } from "../../src/http/operation.ts";
import { operations } from "../../src/service.ts";
import { call } from "../support/harness.ts";

/* /llms.txt, and the reference as Markdown. They are made from the table of operations, and so are these tests. */

const described = Object.entries(operations).map(([id, { route, summary, tag }]) => ({ id, route, summary, tag }));
const index = await call("GET", "/llms.txt");

describe("GET /llms.txt", () => {
  test("is text without a token, and has one line for each operation: route, page and summary", () => {
    expect([index.status, index.headers.get("Content-Type")]).toEqual([200, "text/plain; charset=utf-8"]);
    const lines = index.text.split("\n").filter((line) => /^- \[[A-Z]+ \//.test(line));
    expect(lines.map((line) => line.slice(0, line.indexOf(". "))).sort()).toEqual(
      described.map(({ id, route, summary }) => `- [${route}](/reference/${id}.md): ${summary}`).sort(),
    );
  });

  test("begins with a description of the service, and names the other documents, which exist", async () => {
    expect(index.text).toMatch(/^# Stowage\n\n> An HTTP service for .+\n\n/);
    const documents = /## Documents\n\n((?:- .+\n)+)/.exec(index.text)?.[1] ?? "";
    const paths = [...documents.matchAll(/\]\(([^)]+)\)/g)].map(([, path = ""]) => path);
    expect(paths).toEqual([
      "/reference.md",
      "/openapi.json",
      "/guide.md",
      "/client.md",
      expect.stringMatching(/^\/client.*\.tgz$/),
      "/reference",
    ]);
    for (const path of ["/reference.md", "/openapi.json"]) expect((await call("GET", path)).status).toBe(200);
  });

  test("groups the operations as the reference does, in its order", () => {
    const headings = [...index.text.matchAll(/^## (.+)$/gm)].map(([, heading]) => heading);
    const used = new Set(described.map(({ tag }) => tag.name));
    expect(new Set(headings.slice(1))).toEqual(used);
  });

  test.each(["/llms.txt", "/reference.md", "/reference/listFiles.md"])(
    "%s has an ETag, and is not built again",
    async (path) => {
      const { headers, text } = await call("GET", path);
      const etag = headers.get("ETag") ?? "";
      expect(etag).toMatch(/^"[0-9a-f]{32}"$/);
      expect(headers.get("Cache-Control")).toBe("no-cache, no-transform");
      const again = await call("GET", path, { headers: { "If-None-Match": `W/${etag}` } });
      expect([again.status, again.text]).toEqual([304, ""]);
      expect((await call("GET", path)).text).toBe(text);
    },
  );
});

describe("The reference as Markdown", () => {
  test("introduces the API as the document does", async () => {
    const { text, headers } = await call("GET", "/reference.md");
    expect(headers.get("Content-Type")).toBe("text/markdown; charset=utf-8");
    expect(text).toContain((await call("GET", "/openapi.json")).body.info.description);
  });

  test.each(described)(
    "has a page of $id, with its route, parameters, responses and errors",
    async ({ id, route, summary }) => {
      const { status, text } = await call("GET", `/reference/${id}.md`);
      expect(status).toBe(200);
      expect(text).toMatch(new RegExp(`^# .+\n\n\`${route.replaceAll(/[{}.]/g, "\\$&")}\`\n\n`));
      expect(text.split("\n")[0]).toBe(`# ${summary}`);
      const { method, path } = splitRoute(route);
      const described = (await call("GET", "/openapi.json")).body.paths[path][method.toLowerCase()];
      for (const { name } of described.parameters) expect(text).toContain(`\n- \`${name}\` (`);
      for (const code of Object.keys(described.responses)) {
        expect(text).toContain(Number(code) < 400 ? `## Response ${code}\n` : `\n- ${code} \``);
      }
      expect(text).not.toMatch(/undefined|\[object/);
    },
  );

  test("names the fields of a body and of a response, with examples", async () => {
    const { text } = await call("GET", "/reference/setTranscript.md");
    expect(text).toContain("Type: `text/vtt`\n\n```\nWEBVTT\n");
    expect(text).toContain("- `data` (Transcript)\n  - `language` (string or null): A BCP 47 tag.");
    const created = (await call("GET", "/reference/createLink.md")).text;
    const token = (await call("GET", "/reference/createUploadToken.md")).text;
    expect(token).toContain("- `expiresIn` (integer, 1 to 86400, default 3600): ");
    expect(token).toContain("Scope: `files:upload`; public keys and upload tokens get 403.");
    const key = (await call("GET", "/reference/createApiKey.md")).text;
    expect(key).toMatch(/\n- `scopes` \(array of Scope, .+\n {2}- "files:upload" or "files:read" or /);
    const signed = (await call("GET", "/reference/signFile.md")).text;
    expect(signed).toContain("- `expiresIn` (query, integer, 1 to 604800, default 3600): ");
    expect(created).toMatch(/## Body\n\nType: `application\/json`\n\n- `expiresAt` \(/);
  });

  test("shows each object of a union with what tells it from the others", async () => {
    const { text } = await call("GET", "/reference/changeFiles.md");
    const body = text.slice(text.indexOf("## Body"), text.indexOf("## Response"));
    const conditions = [...body.matchAll(/^- (With .+):$/gm)].map(([, condition]) => condition);
    expect(conditions).toEqual([
      'With `action` "restore" or "reprocess"',
      'With `action` "delete"',
      'With `action` "tag" or "untag"',
      'With `action` "move"',
    ]);
    expect(body).toContain("  - `permanent` (boolean)");
    expect(body).toContain("  - `folder` (string, required, at most 512 characters)");
  });

  test("lists the headers of a response", async () => {
    const { text } = await call("GET", "/reference/createResumableUpload.md");
    expect(text).toMatch(/## Response 201\n\n.+\n\nHeaders:\n\n- `Location`: The upload URL/);
  });

  test("shows a list of numbers on one line", async () => {
    const { text } = await call("GET", "/reference/getWaveform.md");
    expect(text).toContain("      [0, 0.118, 0.394,");
  });

  test.each(["/reference/unknown.md", "/reference/constructor.md", "/reference/listFiles", "/llms.md"])(
    "%s does not exist",
    async (path) => {
      expect(await call("GET", path)).toMatchObject({ status: 404, code: "route_not_found" });
    },
  );

  test("is shown by a browser, too", async () => {
    const headers = { "Sec-Fetch-Mode": "navigate", Accept: "text/html" };
    for (const path of ["/llms.txt", "/reference.md", "/reference/listFiles.md"])
      expect((await call("GET", path, { headers })).status, path).toBe(200);
  });
});

describe("The package of an earlier deployment's client", () => {
  test("is served from the bucket", async () => {
    await env.BUCKET.put("stowage/client-0.9.0-0123456789ab.tgz", "packed");
    const { status, text, headers } = await call("GET", "/client-0.9.0-0123456789ab.tgz");
    expect([status, text, headers.get("Content-Type")]).toEqual([200, "packed", "application/gzip"]);
    expect((await call("GET", "/client-0.9.0-ba9876543210.tgz")).status).toBe(404);
  });
});
