import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { MemoryBudget } from "../../src/platform/part.ts";
import { realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "./bindings.ts";
import type { Answer, Team } from "./client.ts";
import { DB } from "./databases.ts";
import type { Change, Deps } from "./deps.ts";
import { brokenStream } from "./streams.ts";
import { idOf, locationOf, offsetOf, RESUMABLE, tusHeaders } from "./tus.ts";
import { must, type Outcome, type World } from "./world.ts";

type Body = Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;

/** Smaller parts than R2 assembles. A test that does not assemble them needs fewer bytes. */
export const SMALL_PART_BYTES = 1000;

const BYTES = { "Content-Type": "application/offset+octet-stream" };

/** A client of one resumable upload in a world. Throws if a reported offset decreases. */
export class Uploader {
  readonly world: World;
  readonly team: Team;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Whether the isolate has no memory left for parts. */
  hasNoMemory = false;
  path = "";
  id = "";
  /** The last offset that a response reported. */
  reportedOffset = 0;

  constructor(world: World, team: Team, bytes: Uint8Array<ArrayBuffer>) {
    this.world = world;
    this.team = team;
    this.bytes = bytes;
  }

  async ask(
    method: string,
    headers: Record<string, string> = {},
    body?: Body,
    bindings = new ProxiedBindings(),
    other?: Change,
  ): Promise<Outcome<Answer>> {
    const path = method === "POST" ? RESUMABLE : this.path;
    const options = { token: this.team.token, headers: tusHeaders(headers), ...(body && { body }) };
    const withoutMemory = (deps: Deps) => ({
      ...deps,
      bytes: createByteStore(bindings.bucket(env.BUCKET), deps.system, new MemoryBudget(0)),
    });
    const change = this.hasNoMemory ? withoutMemory : other;
    const answer = await this.world.ask(method, path, options, { bindings, change });
    if (answer !== "dead" && answer.headers.has("Upload-Offset")) {
      expect(offsetOf(answer), "a reported offset does not decrease").toBeGreaterThanOrEqual(this.reportedOffset);
      this.reportedOffset = offsetOf(answer);
    }
    return answer;
  }

  /** Creates the upload with its first `firstBytes` bytes. */
  async create(bindings?: ProxiedBindings, firstBytes = 0): Promise<Outcome<Answer>> {
    const body = this.bytes.slice(0, firstBytes);
    const headers = { ...BYTES, "Upload-Length": `${this.bytes.length}`, "Content-Length": `${firstBytes}` };
    const answer = await this.ask("POST", headers, firstBytes > 0 ? body : undefined, bindings);
    if (answer !== "dead" && answer.status === 201) [this.path, this.id] = [locationOf(answer), idOf(answer)];
    return answer;
  }

  async createWithSmallParts(partBytes = SMALL_PART_BYTES): Promise<void> {
    await must(this.create());
    await DB.prepare("update uploads set part_bytes = ? where file_id = ?").bind(partBytes, this.id).run();
  }

  head(bindings?: ProxiedBindings): Promise<Outcome<Answer>> {
    return this.ask("HEAD", {}, undefined, bindings);
  }

  send(from: number, to: number, bindings?: ProxiedBindings): Promise<Outcome<Answer>> {
    const body = this.bytes.slice(from, to);
    return this.patch(from, body, { "Content-Length": `${body.length}` }, bindings);
  }

  /** Sends the bytes until the connection is interrupted at `to`. */
  sendInterrupted(from: number, to: number, bindings?: ProxiedBindings, change?: Change): Promise<Outcome<Answer>> {
    const body = this.bytes.slice(from, to);
    return this.patch(from, brokenStream(body), { "Content-Length": `${this.bytes.length - from}` }, bindings, change);
  }

  /** Sends bytes over a connection that stalls at `at`, continues once those are saved, and is interrupted at `to`. */
  async sendStalled(from: number, at: number, to: number, bindings = new ProxiedBindings()): Promise<Outcome<Answer>> {
    const chunks = [this.bytes.slice(from, at), this.bytes.slice(at, to)];
    let isOver = false;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const { stallChecks } = this.world;
          // A failed request discards the body. It neither checks for stalls nor saves bytes.
          for (let turns = 0; turns < 20 && this.world.stallChecks === stallChecks; turns++) await realSystem.sleep(0);
          if (chunks.length === 1 && this.world.stallChecks === stallChecks) isOver = true;
          while (chunks.length === 1 && !isOver && !bindings.isDead && (await this.savedOffset()) < at) {
            await realSystem.sleep(1);
          }
          const chunk = chunks.shift();
          if (chunk) controller.enqueue(chunk);
          else controller.error(new Error("Network connection lost."));
        },
      },
      { highWaterMark: 0 },
    );
    this.world.isStalled = true;
    return this.patch(from, body, {}, bindings).finally(() => {
      this.world.isStalled = false;
      isOver = true;
    });
  }

  async savedOffset(): Promise<number> {
    const row = await DB.prepare("select offset_bytes from uploads where file_id = ?").bind(this.id).first();
    return Number(row?.offset_bytes);
  }

  patch(from: number, body: Body, headers: Record<string, string> = {}, bindings?: ProxiedBindings, change?: Change) {
    return this.ask("PATCH", { ...BYTES, "Upload-Offset": `${from}`, ...headers }, body, bindings, change);
  }

  /** Resumes the upload until it is complete. */
  async resume(): Promise<void> {
    for (let attempt = 0; attempt < 5; attempt++) {
      const answer = await must(this.head());
      expect(answer.status).toBe(200);
      if (this.reportedOffset === this.bytes.length) return;
      const { status, text } = await must(this.send(this.reportedOffset, this.bytes.length));
      expect(status, text).toBe(204);
    }
    throw new Error("The upload is not complete after five attempts.");
  }
}
