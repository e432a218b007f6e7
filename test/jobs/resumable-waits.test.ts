import { env } from "cloudflare:workers";
import { expect, test, vi } from "vitest";
import { STALL_CHECK_MILLISECONDS } from "../../src/domain/files/appending.ts";
import type { Change } from "../support/deps.ts";
import { offsetOf } from "../support/tus.ts";
import { patternOf, Uploader } from "../support/uploader.ts";
import { must, World } from "../support/world.ts";

/*
 * How long HEAD waits for a request that is still writing. A client that asks has lost that request, and re-sends whatever
 * is not stored by the time of the response. Each test decides what happens between two polls; no time passes.
 */

const PART_BYTES = 100;
const FIRST_BYTES = 1.5 * PART_BYTES;
/** Fewer than those after which HEAD gives up on a request without progress. */
const POLLS = 5;

async function newClient(): Promise<Uploader> {
  const world = new World();
  const client = new Uploader(world, await world.newTeam(), patternOf(3000));
  await must(client.create());
  await env.DB.prepare("update uploads set part_bytes = ? where file_id = ?").bind(PART_BYTES, client.id).run();
  return client;
}

const withSleep =
  (sleep: (milliseconds: number) => Promise<void>): Change =>
  (deps) => ({ ...deps, system: { ...deps.system, sleep } });

/** HEAD, and what happens in its pauses, from the first. @returns the offset that it tells, and how long it has waited */
async function askFor(client: Uploader, onPause: (pause: number) => unknown = () => undefined) {
  let pauses = 0;
  let waitedMilliseconds = 0;
  const change = withSleep(async (milliseconds) => {
    waitedMilliseconds += milliseconds;
    pauses += 1;
    await onPause(pauses);
  });
  const answer = await must(client.ask("HEAD", {}, undefined, undefined, change));
  expect(answer.status).toBe(200);
  return { offset: offsetOf(answer), waitedMilliseconds };
}

/** What a client sends when it is told to, until its line breaks. */
function line(client: Uploader) {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  let sentBytes = 0;
  return {
    body: readable,
    send: async (count: number) => {
      const piece = client.bytes.slice(sentBytes, sentBytes + count);
      sentBytes += count;
      await writer.write(piece);
    },
    cut: () => writer.abort(new Error("Network connection lost.")),
  };
}

const isSaved = (client: Uploader, offset: number) =>
  vi.waitUntil(async () => (await client.savedOffset()) === offset, { timeout: 60_000, interval: 5 });

const setRow = (client: Uploader, values: string) =>
  env.DB.prepare(`update uploads set ${values} where file_id = ?`).bind(client.id).run();

test("HEAD waits for no request that was refused, and for none that a newer one has overtaken.", async () => {
  const client = await newClient();
  const { body, send, cut } = line(client);
  const older = client.patch(0, body);
  await send(FIRST_BYTES);
  await isSaved(client, PART_BYTES);
  await must(client.send(PART_BYTES, 250));
  expect((await must(client.send(0, 10))).code).toBe("offset_mismatch");
  expect((await must(client.ask("PATCH"))).code).toBe("unsupported_media_type");
  expect(await askFor(client)).toEqual({ offset: 250, waitedMilliseconds: 0 });
  await cut();
  expect((await must(older)).code).toBe("offset_mismatch");
});

test("HEAD waits for as long as a request that is writing gets on, however slowly it does.", async () => {
  const client = await newClient();
  const { body, send, cut } = line(client);
  const older = client.patch(0, body);
  await send(FIRST_BYTES);
  await isSaved(client, PART_BYTES);
  const pieces = 10;
  const { offset } = await askFor(client, async (pause) => {
    const piece = pause / POLLS;
    if (!Number.isInteger(piece)) return;
    if (piece > pieces) await Promise.all([cut(), older]);
    else {
      await send(PART_BYTES);
      await isSaved(client, (piece + 1) * PART_BYTES);
    }
  });
  expect(offset).toBe(FIRST_BYTES + pieces * PART_BYTES);
  expect((await must(older)).status).toBe(204);
});

test("HEAD waits for half a minute at most for a request that gets on and on.", async () => {
  const client = await newClient();
  await setRow(client, "is_writing = 1");
  const getOn = (pause: number) => pause % POLLS === 0 && setRow(client, "offset_bytes = offset_bytes + 1");
  const { offset, waitedMilliseconds } = await askFor(client, getOn);
  expect(offset).toBeGreaterThan(10);
  expect(waitedMilliseconds).toBeGreaterThanOrEqual(30_000);
  expect(waitedMilliseconds).toBeLessThan(31_000);
});

test("HEAD waits for two seconds for a request that does not get on, as one that has died.", async () => {
  const client = await newClient();
  await setRow(client, "is_writing = 1");
  expect(await askFor(client)).toEqual({ offset: 0, waitedMilliseconds: 2000 });
});

test("HEAD waits no longer than until a request whose line has gone silent has saved what came.", async () => {
  const client = await newClient();
  const { body, send, cut } = line(client);
  const gate = Promise.withResolvers<void>();
  const { sleep } = client.world.system;
  const silence = withSleep((milliseconds) =>
    milliseconds === STALL_CHECK_MILLISECONDS ? gate.promise : sleep(milliseconds),
  );
  const older = client.patch(0, body, {}, undefined, silence);
  await send(FIRST_BYTES);
  await isSaved(client, PART_BYTES);
  const told = await askFor(client, async () => {
    gate.resolve();
    await isSaved(client, FIRST_BYTES);
  });
  expect(told).toEqual({ offset: FIRST_BYTES, waitedMilliseconds: 250 });
  await cut();
  await older;
});
