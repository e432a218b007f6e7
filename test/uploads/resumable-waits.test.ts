import { describe, expect, test, vi } from "vitest";
import { STALL_CHECK_MILLISECONDS } from "../../src/uploads/appending.ts";
import { MAX_POLLS, POLL_MILLISECONDS } from "../../src/uploads/resumable.ts";
import { patternOf } from "../support/bytes.ts";
import { DB } from "../support/databases.ts";
import type { Change } from "../support/deps.ts";
import { offsetOf } from "../support/tus.ts";
import { Uploader } from "../support/uploader.ts";
import { must, World } from "../support/world.ts";

/*
 * How long HEAD waits for a request that is still writing. A client that sends HEAD has lost that request, and re-sends
 * all bytes that are not stored by the time of the response. Each test decides what happens between two polls; no time passes.
 */

const PART_BYTES = 100;
const FIRST_BYTES = 1.5 * PART_BYTES;
/** Fewer than the polls after which HEAD stops waiting for a stalled request. */
const POLLS = 3;

async function newClient(): Promise<Uploader> {
  const world = new World();
  const client = new Uploader(world, await world.newTeam(), patternOf(3000));
  await must(client.create());
  await DB.prepare("update uploads set part_bytes = ? where file_id = ?").bind(PART_BYTES, client.id).run();
  return client;
}

const withSleep =
  (sleep: (milliseconds: number) => Promise<void>): Change =>
  (deps) => ({ ...deps, system: { ...deps.system, sleep } });

/** Sends HEAD, and calls `onPause` in each of its poll delays. @returns the reported offset and the time that HEAD waited */
async function fetchOffset(client: Uploader, onPause: (pause: number) => unknown = () => undefined) {
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

/** A body that the test sends chunk by chunk, and interrupts. */
function controlledBody(client: Uploader) {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  let sentBytes = 0;
  return {
    body: readable,
    send: async (count: number) => {
      const chunk = client.bytes.slice(sentBytes, sentBytes + count);
      sentBytes += count;
      await writer.write(chunk);
    },
    interrupt: () => writer.abort(new Error("Network connection lost.")),
  };
}

const waitUntilSaved = (client: Uploader, offset: number) =>
  vi.waitUntil(async () => (await client.savedOffset()) === offset, { timeout: 60_000, interval: 5 });

const setRow = (client: Uploader, values: string) =>
  DB.prepare(`update uploads set ${values} where file_id = ?`).bind(client.id).run();

describe("HEAD", () => {
  test("does not wait for rejected and fenced-off requests", async () => {
    const client = await newClient();
    const { body, send, interrupt } = controlledBody(client);
    const older = client.patch(0, body);
    await send(FIRST_BYTES);
    await waitUntilSaved(client, PART_BYTES);
    await must(client.send(PART_BYTES, 250));
    expect((await must(client.send(0, 10))).code).toBe("offset_mismatch");
    expect((await must(client.ask("PATCH"))).code).toBe("unsupported_media_type");
    expect(await fetchOffset(client)).toEqual({ offset: 250, waitedMilliseconds: 0 });
    await interrupt();
    expect((await must(older)).code).toBe("offset_mismatch");
  });

  test("waits while a request makes progress", async () => {
    const client = await newClient();
    const { body, send, interrupt } = controlledBody(client);
    const older = client.patch(0, body);
    await send(FIRST_BYTES);
    await waitUntilSaved(client, PART_BYTES);
    const chunks = 5;
    const { offset } = await fetchOffset(client, async (pause) => {
      const chunk = pause / POLLS;
      if (!Number.isInteger(chunk)) return;
      if (chunk > chunks) await Promise.all([interrupt(), older]);
      else {
        await send(PART_BYTES);
        await waitUntilSaved(client, (chunk + 1) * PART_BYTES);
      }
    });
    expect(offset).toBe(FIRST_BYTES + chunks * PART_BYTES);
    expect((await must(older)).status).toBe(204);
  });

  test("polls a request that makes progress for at most 15 seconds", async () => {
    const client = await newClient();
    await setRow(client, "is_writing = 1");
    const makeProgress = (pause: number) => pause % POLLS === 0 && setRow(client, "offset_bytes = offset_bytes + 1");
    const { offset, waitedMilliseconds } = await fetchOffset(client, makeProgress);
    expect([offset, waitedMilliseconds]).toEqual([MAX_POLLS / POLLS, 15_000]);
  });

  test("waits 2 seconds for a request without progress, even if requests without bytes replace it", async () => {
    const client = await newClient();
    await setRow(client, "is_writing = 1");
    const reported = await fetchOffset(client, () => setRow(client, "epoch = epoch + 1"));
    expect(reported).toEqual({ offset: 0, waitedMilliseconds: 2000 });
  });

  test("gets 423 instead of polling on once a newer HEAD polls the same upload", async () => {
    const client = await newClient();
    await setRow(client, "is_writing = 1");
    const sleeps: string[] = [];
    const sleepOf = (name: string, sleep: () => Promise<unknown>) =>
      withSleep(async () => {
        sleeps.push(name);
        await sleep();
      });
    const fetchWith = (change: Change) => must(client.ask("HEAD", {}, undefined, undefined, change));
    const older = await fetchWith(
      sleepOf("older", async () => {
        const newer = await fetchWith(sleepOf("newer", async () => undefined));
        expect([newer.status, offsetOf(newer)]).toEqual([200, 0]);
      }),
    );
    expect([older.status, older.headers.get("Retry-After")]).toEqual([423, "1"]);
    expect(sleeps).toEqual(["older", ...Array(4).fill("newer")]);
  });

  test("stops waiting once a stalled request has saved its bytes", async () => {
    const client = await newClient();
    const { body, send, interrupt } = controlledBody(client);
    const gate = Promise.withResolvers<void>();
    const { sleep } = client.world.system;
    const controlledSleep = withSleep((milliseconds) =>
      milliseconds === STALL_CHECK_MILLISECONDS ? gate.promise : sleep(milliseconds),
    );
    const older = client.patch(0, body, {}, undefined, controlledSleep);
    await send(FIRST_BYTES);
    await waitUntilSaved(client, PART_BYTES);
    const reported = await fetchOffset(client, async () => {
      gate.resolve();
      await waitUntilSaved(client, FIRST_BYTES);
    });
    expect(reported).toEqual({ offset: FIRST_BYTES, waitedMilliseconds: POLL_MILLISECONDS });
    await interrupt();
    await older;
  });
});
