import { once } from "node:events";
import { createServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook as Verifier } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { processed, upload } from "../support/client.ts";
import { Server, type TestTeam } from "../support/server.ts";

/*
 * A real server and real webhook endpoints on this machine: some accept messages; others hang, drip, flood, reset, or
 * redirect, and must not delay anything else.
 */

interface Received {
  headers: Record<string, string>;
  body: string;
}

/** Responds to a request that has been read. */
type Behavior = (response: ServerResponse, request: IncomingMessage) => void;

class Endpoint {
  readonly received: Received[] = [];
  readonly #server: HttpServer;

  private constructor(behavior: Behavior) {
    this.#server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      this.received.push({
        headers: request.headers as Record<string, string>,
        body: Buffer.concat(chunks).toString(),
      });
      response.on("error", () => undefined);
      behavior(response, request);
    });
  }

  static async open(behavior: Behavior): Promise<Endpoint> {
    const endpoint = new Endpoint(behavior);
    endpoint.#server.listen(0, "127.0.0.1");
    await once(endpoint.#server, "listening");
    return endpoint;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

const TEN_MEGABYTES = 10_000_000;
const drip = (response: ServerResponse) => {
  response.writeHead(200);
  const timer = setInterval(() => response.write("."), 1000);
  response.on("close", () => clearInterval(timer));
};

let server: Server;
let team: TestTeam;
let good: Endpoint;
const endpoints: Endpoint[] = [];
async function open(behavior: Behavior): Promise<Endpoint> {
  const endpoint = await Endpoint.open(behavior);
  endpoints.push(endpoint);
  return endpoint;
}

beforeAll(async () => {
  server = await Server.start();
  good = await open((response) => response.end("thanks"));
});
afterAll(async () => {
  for (const endpoint of endpoints) endpoint.close();
  await server?.remove();
});

const HOOKS = "/auth/v1/webhooks";
async function newHook(of: TestTeam, url: string, types: string[] | null = null) {
  const { status, text, body } = await of.call("POST", HOOKS, { json: { url, types } });
  expect(status, text).toBe(200);
  return body.data;
}
const deliveriesOf = async (of: TestTeam, id: string) => (await of.call("GET", `${HOOKS}/${id}/deliveries`)).body.data;
const until = <T>(condition: () => T | Promise<T>) => vi.waitUntil(condition, { timeout: 100_000, interval: 50 });

describe("A webhook endpoint", () => {
  test("receives each event of an upload once, signed, and the delivery log shows the success", async () => {
    team = await server.newTeam();
    const { _id, secret } = await newHook(team, good.url, ["file.uploaded", "file.completed"]);
    const before = good.received.length;
    const id = await upload(team, "note.txt", "a note");
    await processed(team, id);
    await until(() => good.received.length >= before + 2);
    const verifier = new Verifier(secret);
    const messages = good.received
      .slice(before)
      .map(({ body, headers }) => verifier.verify(body, headers) as { type: string });
    // A slow round may change their order.
    expect(messages.sort((a, b) => (a.type < b.type ? -1 : 1))).toMatchObject([
      { type: "file.completed", data: { _id: id, status: "completed" } },
      { type: "file.uploaded", teamId: team.teamId, subject: { id } },
    ]);
    await until(async () =>
      (await deliveriesOf(team, _id)).every((one: { status: string }) => one.status === "succeeded"),
    );
    const [delivery] = await deliveriesOf(team, _id);
    expect(delivery.attempts).toMatchObject([{ httpStatus: 200, responseBody: "", error: null }]);
    expect(good.received).toHaveLength(before + 2);
  });

  test.concurrent.each<[string, Behavior, object]>([
    [
      "that responds with 10 MB is read up to 1 KiB",
      (response) => response.end(Buffer.alloc(TEN_MEGABYTES, "x")),
      { httpStatus: 200, error: null, responseBody: "x".repeat(1024) },
    ],
    [
      "that resets the connection is reported as a failed connection",
      (response) => response.destroy(),
      { httpStatus: null, error: "connection_failed", responseBody: "" },
    ],
    ["that responds 500 has failed", (response) => response.writeHead(500).end("broken"), { httpStatus: 500 }],
    ["that drips times out after 15 s", drip, { httpStatus: 200, error: "timeout" }],
    ["that hangs times out after 15 s", () => undefined, { httpStatus: null, error: "timeout" }],
  ])("%s", async (_, behavior, expected) => {
    const own = await server.newTeam();
    const endpoint = await open(behavior);
    const { _id } = await newHook(own, endpoint.url, ["user.created"]);
    const { status, body } = await own.call("POST", `${HOOKS}/${_id}/test`);
    expect(status).toBe(200);
    expect(body.data).toMatchObject(expected);
  });

  test("whose host name is unknown is reported as a failed connection", async () => {
    const own = await server.newTeam();
    const { _id } = await newHook(own, "https://hooks.invalid/hook", ["user.created"]);
    const { body } = await own.call("POST", `${HOOKS}/${_id}/test`);
    expect(body.data).toMatchObject({ httpStatus: null, error: "connection_failed", responseBody: "" });
  });

  test("that redirects is not followed", async () => {
    const own = await server.newTeam();
    const trap = await open((response) => response.end());
    for (const status of [301, 302, 303, 307, 308]) {
      const endpoint = await open((response) => response.writeHead(status, { Location: trap.url }).end());
      const { _id } = await newHook(own, endpoint.url, ["user.created"]);
      const { body } = await own.call("POST", `${HOOKS}/${_id}/test`);
      expect(body.data).toMatchObject({ httpStatus: status, error: null });
      expect(endpoint.received).toHaveLength(1);
    }
    expect(trap.received).toEqual([]);
  });

  test("that fails once receives the event again within seconds, with the same id", async () => {
    const own = await server.newTeam();
    const endpoint: Endpoint = await open((response) =>
      response.writeHead(endpoint.received.length === 1 ? 503 : 200).end(),
    );
    await newHook(own, endpoint.url, ["apikey.created"]);
    await own.call("POST", "/auth/v1/apikeys", { json: { name: "key" } });
    await until(() => endpoint.received.length === 2);
    const ids = endpoint.received.map(({ headers }) => headers["webhook-id"]);
    expect(new Set(ids).size).toBe(1);
  });

  test("that hangs delays no file processing, and the events of another endpoint still arrive", async () => {
    const own = await server.newTeam();
    const { _id } = await newHook(own, good.url, ["file.completed"]);
    // Repeats if the machine is so slow that the attempt times out before the file is processed.
    await until(async () => {
      const bad = await server.newTeam();
      const hanging = await open(() => undefined);
      const [hook] = [await newHook(bad, hanging.url, ["file.uploaded"]), await newHook(bad, hanging.url)];
      await upload(bad, "a.txt", "a");
      await until(() => hanging.received.length > 0);
      const id = await upload(own, "b.txt", "b");
      expect(await processed(own, id)).toMatchObject({ status: "completed" });
      const [{ attempts }] = await deliveriesOf(bad, hook._id);
      return attempts.length === 0;
    });
    await until(async () => (await deliveriesOf(own, _id))[0]?.status === "succeeded");
  });

  test("that hangs delays another team by at most its one round", async () => {
    const own = await server.newTeam();
    await newHook(own, good.url, ["apikey.created"]);
    const createEvent = async (of: TestTeam) =>
      expect((await of.call("POST", "/auth/v1/apikeys", { json: { name: "key" } })).status).toBe(200);
    // Repeats if the machine is so slow that a round times out before the other team's event arrives.
    await until(async () => {
      const bad = await server.newTeam();
      const hanging = await open(() => undefined);
      await newHook(bad, hanging.url, ["apikey.created"]);
      for (let i = 0; i < 10; i++) await createEvent(bad);
      await until(() => hanging.received.length > 0);
      const before = good.received.length;
      await createEvent(own);
      await until(() => good.received.length > before);
      return hanging.received.length <= 5;
    });
  });

  test("appears in the server log without its URL and secret, and causes no error", () => {
    expect(server.output).not.toMatch(/\/hook|whsec_|"level":"error"|uncaught/i);
  });
});
