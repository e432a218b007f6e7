import { once } from "node:events";
import { createServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook as Verifier } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { processed, upload } from "../support/client.ts";
import { Server, type TestTeam } from "../support/server.ts";

/*
 * A real server, and real receivers on this machine: those that take what they are sent, and those that hang, drip, flood,
 * reset and redirect. None of the latter may keep anything else waiting.
 */

interface Received {
  headers: Record<string, string>;
  body: string;
}

/** What a receiver does with each request, once it has been read. */
type Manner = (response: ServerResponse, request: IncomingMessage) => void;

class Receiver {
  readonly received: Received[] = [];
  /** How many bytes it got rid of. */
  written = 0;
  readonly #server: HttpServer;

  private constructor(manner: Manner) {
    this.#server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      this.received.push({
        headers: request.headers as Record<string, string>,
        body: Buffer.concat(chunks).toString(),
      });
      response.on("error", () => undefined);
      manner(response, request);
    });
  }

  static async open(manner: Manner): Promise<Receiver> {
    const receiver = new Receiver(manner);
    receiver.#server.listen(0, "127.0.0.1");
    await once(receiver.#server, "listening");
    return receiver;
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
let good: Receiver;
const receivers: Receiver[] = [];
async function open(manner: Manner): Promise<Receiver> {
  const receiver = await Receiver.open(manner);
  receivers.push(receiver);
  return receiver;
}

beforeAll(async () => {
  server = await Server.start();
  good = await open((response) => response.end("thanks"));
});
afterAll(async () => {
  for (const receiver of receivers) receiver.close();
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

describe("A receiver", () => {
  test("A receiver gets each event of an upload once, signed, and the log says that it took it.", async () => {
    team = await server.newTeam();
    const { _id, secret } = await newHook(team, good.url, ["file.uploaded", "file.completed"]);
    const before = good.received.length;
    const id = await upload(team, "note.txt", "a note");
    await processed(team, id);
    await until(() => good.received.length >= before + 2);
    const messages = good.received.slice(before).map(({ body, headers }) => new Verifier(secret).verify(body, headers));
    expect(messages).toMatchObject([
      { type: "file.uploaded", teamId: team.teamId, subject: { id } },
      { type: "file.completed", data: { _id: id, status: "completed" } },
    ]);
    await until(async () =>
      (await deliveriesOf(team, _id)).every((one: { status: string }) => one.status === "succeeded"),
    );
    const [delivery] = await deliveriesOf(team, _id);
    expect(delivery.attempts).toMatchObject([{ httpStatus: 200, responseBody: "", error: null }]);
    expect(good.received).toHaveLength(before + 2);
  });

  test.each<[string, Manner, object]>([
    [
      "that answers 10 MB is read for 1 KiB of them",
      (response) => response.end(Buffer.alloc(TEN_MEGABYTES, "x")),
      { httpStatus: 200, error: null, responseBody: "x".repeat(1024) },
    ],
    [
      "that resets the connection is told by no more than that",
      (response) => response.destroy(),
      { httpStatus: null, error: "connection_failed", responseBody: "" },
    ],
    ["that answers 500 has failed", (response) => response.writeHead(500).end("broken"), { httpStatus: 500 }],
    ["that drips is given up after 15 s", drip, { httpStatus: 200, error: "timeout" }],
    ["that hangs is given up after 15 s", () => undefined, { httpStatus: null, error: "timeout" }],
  ])("A receiver %s.", async (_, manner, expected) => {
    const own = await server.newTeam();
    const receiver = await open(manner);
    const { _id } = await newHook(own, receiver.url, ["user.created"]);
    const { status, body } = await own.call("POST", `${HOOKS}/${_id}/test`);
    expect(status).toBe(200);
    expect(body.data).toMatchObject(expected);
    expect(body.data.durationMilliseconds).toBeLessThan(30_000);
  });

  test("A receiver whose name is unknown is told by no more than that the connection failed.", async () => {
    const own = await server.newTeam();
    const { _id } = await newHook(own, "https://hooks.invalid/hook", ["user.created"]);
    const { body } = await own.call("POST", `${HOOKS}/${_id}/test`);
    expect(body.data).toMatchObject({ httpStatus: null, error: "connection_failed", responseBody: "" });
  });

  test("A receiver that redirects is not followed.", async () => {
    const own = await server.newTeam();
    const trap = await open((response) => response.end());
    for (const status of [301, 302, 303, 307, 308]) {
      const receiver = await open((response) => response.writeHead(status, { Location: trap.url }).end());
      const { _id } = await newHook(own, receiver.url, ["user.created"]);
      const { body } = await own.call("POST", `${HOOKS}/${_id}/test`);
      expect(body.data).toMatchObject({ httpStatus: status, error: null });
      expect(receiver.received).toHaveLength(1);
    }
    expect(trap.received).toEqual([]);
  });

  test("A receiver that fails for a moment gets the event again within seconds, under the same id.", async () => {
    const own = await server.newTeam();
    const receiver: Receiver = await open((response) =>
      response.writeHead(receiver.received.length === 1 ? 503 : 200).end(),
    );
    await newHook(own, receiver.url, ["apikey.created"]);
    await own.call("POST", "/auth/v1/apikeys", { json: { name: "key" } });
    await until(() => receiver.received.length === 2);
    const ids = receiver.received.map(({ headers }) => headers["webhook-id"]);
    expect(new Set(ids).size).toBe(1);
  });

  test("A receiver that hangs delays no file, and nothing is lost for another that is well.", async () => {
    const own = await server.newTeam();
    const { _id } = await newHook(own, good.url, ["file.completed"]);
    // Again, should the machine be so slow that the receiver is given up before a file is processed.
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

  test("an endpoint that hangs with five events delays another team by at most its one round", async () => {
    const own = await server.newTeam();
    await newHook(own, good.url, ["apikey.created"]);
    const happen = async (of: TestTeam) =>
      expect((await of.call("POST", "/auth/v1/apikeys", { json: { name: "key" } })).status).toBe(200);
    const bad = await server.newTeam();
    const hanging = await open(() => undefined);
    await newHook(bad, hanging.url, ["apikey.created"]);
    for (let i = 0; i < 10; i++) await happen(bad);
    await until(() => hanging.received.length > 0);
    const before = good.received.length;
    await happen(own);
    await until(() => good.received.length > before);
    expect(hanging.received.length).toBeLessThanOrEqual(5);
  });

  test("A log line of the server shows no address, and nothing went wrong in it.", () => {
    expect(server.output).not.toMatch(/\/hook|whsec_|"level":"error"|uncaught/i);
  });
});
