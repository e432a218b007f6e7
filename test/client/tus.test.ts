import { createReadStream, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Upload } from "tus-js-client";
import { beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { MEBIBYTE, noise, sha256 } from "../support/bytes.ts";
import { type Fault, Line } from "../support/line.ts";
import { newTeam, type Team, url } from "../support/team.ts";
import { isExhaustive } from "../support/tiers.ts";

/*
 * tus-js-client against a real server, over connections with faults. It is a third-party client: this service and the
 * client do not know each other.
 */

const RESUMABLE = "/docs/v1/uploads/resumable";
/** For a state that a machine may reach late. */
const WAIT = { timeout: 100_000, interval: 50 };

let team: Team;
beforeEach(async () => {
  team = await newTeam();
});

const sources = {
  "a Buffer": (bytes: Buffer) => bytes,
  "a file": (bytes: Buffer) => {
    const folder = mkdtempSync(join(tmpdir(), "stowage tus "));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "random.bin");
    writeFileSync(path, bytes);
    return createReadStream(path);
  },
  "a stream of no known size": (bytes: Buffer) => {
    let at = 0;
    return new Readable({
      read() {
        this.push(at < bytes.length ? bytes.subarray(at, at + 60_000) : null);
        at += 60_000;
      },
    });
  },
};

/** @returns the file's id */
async function upload(origin: string, source: Buffer | Readable, size: number, chunkSize: number): Promise<string> {
  let id = "";
  await new Promise<void>((resolve, reject) => {
    const sending = new Upload(source as Buffer, {
      endpoint: origin + RESUMABLE,
      chunkSize,
      ...(source instanceof Readable && { uploadSize: size }),
      retryDelays: [0, 0, 100, 100, 500, 500, 1000, 1000],
      headers: { Authorization: `Bearer ${team.key}` },
      metadata: { filename: "random.bin", filetype: "audio/wav" },
      onAfterResponse: (_, response) => {
        id = response.getHeader("Content-Location")?.split("/").at(-1) ?? id;
      },
      onSuccess: () => resolve(),
      onError: reject,
    });
    sending.start();
  });
  return id;
}

/** Returns the stored bytes of the team's only unfinished upload. */
async function storedOfUnfinished(): Promise<number> {
  const [upload] = await team.stowage.unfinishedUploads.list().toArray({ limit: 1 });
  return upload?.offset ?? 0;
}

/** The stored bytes are the sent ones, and no reported offset decreased. */
async function expectStored(id: string, bytes: Buffer, line?: Line): Promise<void> {
  const { files } = team.stowage;
  const found = await files.waitUntilProcessed(id);
  expect(found).toMatchObject({ status: "completed", size: bytes.length, sha256: sha256(bytes), failure: null });
  const stored = await (await files.download(id)).arrayBuffer();
  expect(sha256(new Uint8Array(stored))).toBe(sha256(bytes));
  if (line) expect(line.offsets).toEqual(line.offsets.toSorted((a, b) => a - b));
}

describe("tus-js-client", () => {
  const all = Number.POSITIVE_INFINITY;
  /** A source, the MiB of a chunk, and those of the file. */
  const cases: [keyof typeof sources, number, number][] = [
    ["a Buffer", all, 12],
    ["a stream of no known size", 5, 12],
  ];
  const more: typeof cases = [
    ["a Buffer", 1, 12],
    ["a Buffer", 5, 12],
    ["a Buffer", 7.5, 12],
    ["a file", 7.5, 12],
    ["a file", all, 12],
    // The chunks that the README recommends.
    ["a file", 80, 170],
  ];
  if (isExhaustive) cases.push(...more);
  test.each(cases)("uploads every byte of %s in chunks of %d MiB", async (kind, chunk, size) => {
    const bytes = noise(size * MEBIBYTE + 345);
    const [source, chunkSize] = [sources[kind], chunk * MEBIBYTE];
    const line = await Line.open(url, () => ({ fault: "none", afterBytes: 0 }));
    const id = await upload(line.url, source(bytes), bytes.length, chunkSize);
    await expectStored(id, bytes, line);
    expect(line.sentBytes - bytes.length, "bytes in addition to the file").toBeLessThan(100_000);
    await line.close();
  });
});

describe("A connection", () => {
  /** The bytes before the fault, and those that the service has stored when a stalled connection is broken. */
  const faults: [string, Fault, number, number?][] = [
    ["is interrupted within the second part", "stall", 8 * MEBIBYTE, 5 * MEBIBYTE],
    ["loses the last response", "drop the answer", 12 * MEBIBYTE],
    ["sends every request twice", "double", 0],
  ];
  const more: typeof faults = [
    ["is interrupted within the first part", "cut", 2 * MEBIBYTE],
    // Waits for the server's timeout.
    ["stalls", "stall", 8 * MEBIBYTE],
  ];
  if (isExhaustive) faults.push(...more);
  test.for(faults)(
    "that %s costs at most 5 MiB, and no byte of the file",
    async ([, fault, afterBytes, storedBytes], { annotate }) => {
      const bytes = noise(12 * MEBIBYTE + 345);
      // Any connection, because a client may open one for each request.
      const line = await Line.open(url, () => ({ fault, afterBytes }), 1);
      const sending = upload(line.url, bytes, bytes.length, Number.POSITIVE_INFINITY);
      if (storedBytes !== undefined) {
        await vi.waitUntil(() => line.faults === 1, WAIT);
        await vi.waitUntil(async () => (await storedOfUnfinished()) >= storedBytes, WAIT);
        line.disconnect();
      }
      const id = await sending;
      await expectStored(id, bytes, line);
      if (fault !== "double") expect(line.faults).toBe(1);
      const resent = line.sentBytes - bytes.length;
      expect(resent).toBeLessThan((fault === "double" ? 12 : 5) * MEBIBYTE + 100_000);
      await annotate(`${fault} after ${afterBytes} bytes: ${resent} bytes in addition to the file`);
      await line.close();
    },
  );
});
