import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, expect, inject, type TestContext, test } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { measureBurst, runSmoke, runSmokePerDatabase } from "../../src/dev/smoke-steps.ts";
import { collect, newTeam, type Team, url } from "../support/team.ts";
import { isExhaustive } from "../support/tiers.ts";

/* `npm run smoke`, against a working server and through proxies that break it. */

/** Responds in place of the server, or changes its response. */
type Break = (request: IncomingMessage, forward: () => Promise<Response>) => Promise<Response> | Response;

/** A test that runs in parallel with others has its own. */
type OnTestFinished = TestContext["onTestFinished"];

/** Starts a server, which the test's end closes. @returns its URL */
async function listen(server: Server, onTestFinished: OnTestFinished): Promise<string> {
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  server.listen(0, "localhost");
  await once(server, "listening");
  return `http://localhost:${(server.address() as AddressInfo).port}`;
}

/** Starts a proxy in front of the server. @returns its URL */
function startProxy(change: Break, onTestFinished: OnTestFinished): Promise<string> {
  const proxy = createServer(async (request, response) => {
    const { method = "GET" } = request;
    const abort = new AbortController();
    request.on("error", () => abort.abort());
    response.on("close", () => abort.abort());
    const forward = () => {
      // fetch rejects the headers of one connection, and decompresses the response.
      const isEndToEnd = ([name]: [string, unknown]) =>
        !/^(host|connection|content-length|transfer-|accept-enc)/.test(name);
      const headers = Object.fromEntries(Object.entries(request.headers).filter(isEndToEnd)) as Record<string, string>;
      const hasBody = method !== "GET" && method !== "HEAD";
      const body = hasBody ? (Readable.toWeb(request) as ReadableStream) : null;
      const init = { method, headers, body, duplex: "half" as const, signal: abort.signal };
      return fetch(new URL(request.url ?? "", url), init);
    };
    try {
      const reply = await change(request, forward);
      const sent = Object.fromEntries([...reply.headers].filter(([name]) => !/encoding|^content-length/.test(name)));
      response.writeHead(reply.status, sent).end(Buffer.from(await reply.arrayBuffer()));
    } catch {
      response.destroy();
    }
  });
  return listen(proxy, onTestFinished);
}

async function smoke(team: Team, target = url, options = {}): Promise<{ isFine: boolean; lines: string[] }> {
  const lines: string[] = [];
  const print = (line: string) => void lines.push(line);
  return { isFine: await runSmoke({ url: target, key: team.key, print, ...options }), lines };
}

/** Changes the JSON body of the responses to requests that match. */
const changing =
  (pattern: RegExp, change: (text: string) => string): Break =>
  async (request, forward) => {
    const reply = await forward();
    if (!pattern.test(`${request.method} ${request.url}`)) return reply;
    return new Response(change(await reply.text()), reply);
  };
const responding =
  (pattern: RegExp, status: number): Break =>
  (request, forward) =>
    pattern.test(`${request.method} ${request.url}`) ? new Response("broken", { status }) : forward();

describe("The smoke test", () => {
  test("passes on a working server, and deletes what it created", async ({ onTestFinished }) => {
    const team = await newTeam();
    const webhook = await listen(
      createServer((_, response) => response.end()),
      onTestFinished,
    );
    const { isFine, lines } = await smoke(team, url, { webhook });
    expect(isFine, lines.join("\n")).toBe(true);
    const steps = ["health", "clock", "key", "upload", "process", "list", "signed URL", "link", "resumable upload"];
    const all = [...steps, "ETag", "events", "own zone", "webhook", "revoke", "delete"].map((step) => `ok    ${step}`);
    expect(lines.map((line) => line.replace(/ \(\d+ ms\)/, ""))).toEqual(all);
    expect(await team.stowage.usage()).toMatchObject({ files: 0, bytes: 0 });
    expect(await collect(team.stowage.keys.list())).toHaveLength(1);
  });

  test("runs with a new team in each database with the operator token, and deletes the teams", async () => {
    const lines: string[] = [];
    const operatorToken = inject("operatorToken");
    expect(
      await runSmokePerDatabase({ url, operatorToken, print: (line) => void lines.push(line) }),
      lines.join("\n"),
    ).toBe(true);
    expect([lines[0], lines.at(-1)]).toEqual(["Database 0", expect.stringMatching(/^ok {4}delete/)]);
    const teams = await collect(new Stowage({ url, key: operatorToken }).teams.list({ name: "smoke-" }));
    expect(teams.filter(({ status }) => status !== "deleting")).toEqual([]);
    lines.length = 0;
    const { key } = await newTeam();
    expect(await runSmokePerDatabase({ url, operatorToken: key, print: (line) => void lines.push(line) })).toBe(false);
    expect(lines).toEqual(["FAIL  OPERATOR_TOKEN is not the operator token of this deployment."]);
  });

  test.for<[number, string]>([
    [
      400,
      "note  rate limit: 400 of 400 requests at once passed, 300 a minute are allowed. Add a WAF rule: src/OPERATIONS.md, Quotas and rate limits",
    ],
    [312, "ok    rate limit: 312 of 400 requests at once passed, 300 a minute are allowed"],
  ])(
    "says that a service which lets %i of a burst through does so",
    async ([passing, expected], { onTestFinished }) => {
      let received = 0;
      const service = createServer((_, response) => {
        received += 1;
        response.writeHead(received > passing ? 429 : 401).end("{}");
      });
      const lines: string[] = [];
      await measureBurst({ url: await listen(service, onTestFinished), print: (line) => void lines.push(line) });
      expect([lines, received]).toEqual([[expected], 400]);
    },
  );

  test("rejects a URL without https:// or http://", () => {
    const smoke = join(import.meta.dirname, "../../src/dev/smoke.ts");
    const { status, stderr } = spawnSync(process.execPath, [smoke, "localhost:8787"], { env: { STOWAGE_KEY: "key" } });
    expect([status, String(stderr)]).toEqual([2, expect.stringContaining("must start with https:// or http://")]);
  });

  const failing: [broken: string, step: string, change: Break, reason: RegExp][] = [
    ["no migration", "health", responding(/\/health/, 503), /responded 503/],
    [
      "a clock that is off",
      "clock",
      async (_, forward) => {
        const reply = await forward();
        return new Response(reply.body, { status: reply.status, headers: { Date: "Sun, 22 Nov 2020 00:00:00 GMT" } });
      },
      /The clocks differ/,
    ],
    ["a key of another deployment", "key", responding(/usage/, 401), /STOWAGE_KEY must be/],
    ["no bucket", "upload", responding(/^POST \/docs\/v1\/uploads$/, 503), /The bucket is missing/],
    [
      "no consumer",
      "process",
      changing(/metadata$/, (text) => text.replace(/"status":"\w+"/, '"status":"pending"')),
      /no consumer/,
    ],
    [
      "another ETag of multipart objects",
      "process",
      changing(/metadata$/, (text) =>
        text
          .replace(/"status":"\w+"/, '"status":"failed"')
          .replace('"failure":null', '"failure":{"code":"bytes_altered","message":"Altered."}'),
      ),
      /bytes_altered/,
    ],
    ["another database", "list", changing(/[?&]name=/, () => '{"data":[]}'), /not listed/],
    [
      "a wrong S3 key",
      "signed URL",
      changing(/uploads\/\w{24}$/, (text) => text.replace(/Signature=\w{4}/, "Signature=0000")),
      /403/,
    ],
    [
      "a wrong bucket",
      "signed URL",
      changing(/uploads\/\w{24}$/, (text) => text.replace("/stowage-files/", "/other/")),
      /S3_BUCKET/,
    ],
    [
      "a wrong LINK_HOST",
      "link",
      changing(/links$/, (text) => text.replace(/"url":"http:\/\/[^/]+/, '"url":"http://localhost:1')),
      /LINK_HOST/,
    ],
    ["a firewall against PATCH", "resumable upload", responding(/^PATCH \/docs/, 405), /blocks PATCH/],
    [
      "compression that weakens tags, and a service that does not accept them",
      "ETag",
      async (request, forward) => {
        if (request.headers["if-match"]?.startsWith("W/")) return new Response("{}", { status: 412 });
        const reply = await forward();
        const tag = reply.headers.get("ETag");
        if (!tag || !/\bbr\b/.test(String(request.headers["accept-encoding"]))) return reply;
        const weakened = new Response(reply.body, reply);
        weakened.headers.set("ETag", `W/${tag.replace(/^W\//, "")}`);
        return weakened;
      },
      /responded 412.*weak tag/s,
    ],
    [
      "a failed change with an event",
      "events",
      changing(/subject=/, (text) => text.replace("[", '[{"type":"user.updated"},')),
      /changes\(\)/,
    ],
    [
      "a Worker that can't reach its own zone",
      "own zone",
      changing(/\/test$/, (text) => text.replace('"httpStatus":405', '"httpStatus":522')),
      /global_fetch_strictly_public/,
    ],
    [
      "a cache",
      "revoke",
      async (request, forward) => {
        const reply = await forward();
        return request.url?.endsWith("usage") ? Response.json({ data: { files: 0 } }) : reply;
      },
      /caches/,
    ],
    ["no deletions", "delete", responding(/^DELETE \/docs\/v1\/uploads/, 503), /deletions/],
  ];
  /** A run takes all steps before the one that fails, so `npm test` leaves out most of the late ones. */
  const LATE = ["list", "link", "resumable upload", "ETag", "events", "own zone", "revoke", "delete"];
  test.concurrent.for(failing.filter(([, step]) => isExhaustive || !LATE.includes(step)))(
    "names the first failing step with %s: %s",
    async ([, step, change, reason], context) => {
      const { expect } = context;
      const team = await newTeam();
      const { isFine, lines } = await smoke(team, await startProxy(change, context.onTestFinished), {
        processingMilliseconds: step === "process" ? 0 : 60_000,
      });
      const failed = lines.find((line) => line.startsWith("FAIL")) ?? "";
      expect([isFine, failed.split(":")[0]], lines.join("\n")).toEqual([false, `FAIL  ${step}`]);
      expect(failed).toMatch(reason);
      if (step !== "delete") expect(await team.stowage.usage()).toMatchObject({ files: 0, bytes: 0 });
    },
  );
});
