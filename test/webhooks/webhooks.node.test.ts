import type { ServerResponse } from "node:http";
import { Webhook as Verifier } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { MAX_IN_FLIGHT } from "../../src/webhooks/outbox.ts";
import { processed, upload } from "../support/client.ts";
import { clonePreparedProject, replaceIn } from "../support/project.ts";
import { type Behavior, Receiver } from "../support/receiver.ts";
import { Server, type TestTeam } from "../support/server.ts";
import { exhaustive, isExhaustive } from "../support/tiers.ts";

/*
 * A real server and real webhook endpoints on this machine: some accept messages; others hang, drip, flood, reset, or
 * redirect, and must not delay anything else.
 */

const TEN_MEGABYTES = 10_000_000;
const drip = (response: ServerResponse) => {
  response.writeHead(200);
  const timer = setInterval(() => response.write("."), 1000);
  response.on("close", () => clearInterval(timer));
};

let server: Server;
let team: TestTeam;
let good: Receiver;
const endpoints: Receiver[] = [];
async function open(behavior?: Behavior): Promise<Receiver> {
  const endpoint = await Receiver.open(behavior);
  endpoints.push(endpoint);
  return endpoint;
}

beforeAll(async () => {
  const folder = await clonePreparedProject();
  // Tests wait for the timeouts of attempts, and in the exhaustive run for the real ones.
  if (!isExhaustive)
    replaceIn(folder, "src/platform/sender.ts", "TIMEOUT_MILLISECONDS = 15_000", "TIMEOUT_MILLISECONDS = 4000");
  server = await Server.start([], {}, { folder });
  good = await open();
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
    // Their order is not promised.
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
    const endpoint: Receiver = await open((response) =>
      response.writeHead(endpoint.received.length === 1 ? 503 : 200).end(),
    );
    await newHook(own, endpoint.url, ["apikey.created"]);
    await own.call("POST", "/auth/v1/apikeys", { json: { name: "key" } });
    await until(() => endpoint.received.length === 2);
    const ids = endpoint.received.map(({ headers }) => headers["webhook-id"]);
    expect(new Set(ids).size).toBe(1);
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
    ["that drips times out", drip, { httpStatus: 200, error: "timeout" }],
    ["that hangs times out", () => undefined, { httpStatus: null, error: "timeout" }],
  ])("%s", async (_, behavior, expected) => {
    const own = await server.newTeam();
    const endpoint = await open(behavior);
    const { _id } = await newHook(own, endpoint.url, ["user.created"]);
    const { status, body } = await own.call("POST", `${HOOKS}/${_id}/test`);
    expect(status).toBe(200);
    expect(body.data).toMatchObject(expected);
  });

  test.concurrent("that hangs delays no file processing, and the events of another endpoint still arrive", async () => {
    const [own, bad] = [await server.newTeam(), await server.newTeam()];
    const [quick, hanging] = [await open(), await open(() => undefined)];
    await newHook(own, quick.url, ["file.completed"]);
    for (const types of [["file.uploaded"], null]) await newHook(bad, hanging.url, types);
    await upload(bad, "a.txt", "a");
    await until(() => hanging.received.length > 0);
    const id = await upload(own, "b.txt", "b");
    expect(await processed(own, id)).toMatchObject({ status: "completed" });
    expect(hanging.ended, "the first attempt still hangs").toBe(0);
    await until(() => quick.received.length === 1);
  });

  test.concurrent("that hangs delays another team by at most the attempts that are in flight", async () => {
    const [own, bad] = [await server.newTeam(), await server.newTeam()];
    const hanging = await open(() => undefined);
    let endedBefore = Number.NaN;
    const quick = await open((response) => {
      endedBefore = hanging.ended;
      response.end();
    });
    await newHook(own, quick.url, ["apikey.created"]);
    await newHook(bad, hanging.url, ["apikey.created"]);
    const createEvent = async (of: TestTeam) =>
      expect((await of.call("POST", "/auth/v1/apikeys", { json: { name: "key" } })).status).toBe(200);
    for (let i = 0; i < 15; i++) await createEvent(bad);
    await until(() => hanging.received.length >= MAX_IN_FLIGHT);
    const from = hanging.ended;
    await createEvent(own);
    await until(() => quick.received.length === 1);
    expect(endedBefore - from).toBeLessThanOrEqual(MAX_IN_FLIGHT);
  });

  test("that fails appears in its delivery log, and in the server log without its URL and secret", async () => {
    const own = await server.newTeam();
    const endpoint = await open((response) => response.destroy());
    const { _id } = await newHook(own, endpoint.url, ["apikey.created"]);
    await own.call("POST", "/auth/v1/apikeys", { json: { name: "key" } });
    await until(async () => (await deliveriesOf(own, _id))[0]?.attempts.length > 0);
    expect(await deliveriesOf(own, _id)).toMatchObject([{ attempts: [{ error: "connection_failed" }] }]);
    expect(server.output).not.toMatch(/\/hook|whsec_|"level":"error"|uncaught/i);
  });

  exhaustive("receives every event though the server is killed while it sends", async () => {
    const own = await server.newTeam();
    const endpoint = await open((response) => setTimeout(() => response.end(), 20));
    await newHook(own, endpoint.url, ["apikey.created"]);
    for (let i = 0; i < 40; i++) await own.call("POST", "/auth/v1/apikeys", { json: { name: "key" } });
    await server.kill();
    await server.restart();
    const { body } = await own.call("GET", "/auth/v1/events?type=apikey.created&limit=100");
    const sent = new Set(body.data.slice(0, 40).map(({ _id }: { _id: string }) => _id));
    expect(sent.size).toBe(40);
    const receivedIds = () => new Set(endpoint.received.map(({ headers }) => headers["webhook-id"]));
    await until(() => [...sent].every((id) => receivedIds().has(id as string)));
  });
});
