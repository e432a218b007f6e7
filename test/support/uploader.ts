import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { MemoryBudget } from "../../src/platform/memory-budget.ts";
import { realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "./bindings.ts";
import type { Answer, Team } from "./client.ts";
import type { Change, Deps } from "./deps.ts";
import { idOf, locationOf, offsetOf, RESUMABLE, tusHeaders } from "./tus.ts";
import { type Ended, must, type World } from "./world.ts";

type Body = Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;

const BYTES = { "Content-Type": "application/offset+octet-stream" };

/** Bytes that are of no known type, and not everywhere the same. */
export function patternOf(size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < 251; i++) bytes[i] = i;
  for (let done = 251; done < size; done *= 2) bytes.copyWithin(done, 0, done);
  return bytes;
}
/** A client of one resumable upload in a world. Throws if a reported offset decreases. */
export class Uploader {
  readonly world: World;
  readonly team: Team;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The isolate has no memory left for parts. */
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
  ): Promise<Ended<Answer>> {
    const path = method === "POST" ? RESUMABLE : this.path;
    const options = { token: this.team.token, headers: tusHeaders(headers), ...(body && { body }) };
    const starved = (deps: Deps) => ({
      ...deps,
      bytes: createByteStore(bindings.bucket(env.BUCKET), deps.system, new MemoryBudget(0)),
    });
    const change = this.hasNoMemory ? starved : other;
    const answer = await this.world.ask(method, path, options, { bindings, change });
    if (answer !== "dead" && answer.headers.has("Upload-Offset")) {
      expect(offsetOf(answer), "a reported offset does not decrease").toBeGreaterThanOrEqual(this.reportedOffset);
      this.reportedOffset = offsetOf(answer);
    }
    return answer;
  }

  /** With so many first bytes. */
  async create(bindings?: ProxiedBindings, firstBytes = 0): Promise<Ended<Answer>> {
    const body = this.bytes.slice(0, firstBytes);
    const headers = { ...BYTES, "Upload-Length": `${this.bytes.length}`, "Content-Length": `${firstBytes}` };
    const answer = await this.ask("POST", headers, firstBytes > 0 ? body : undefined, bindings);
    if (answer !== "dead" && answer.status === 201) [this.path, this.id] = [locationOf(answer), idOf(answer)];
    return answer;
  }

  head(bindings?: ProxiedBindings): Promise<Ended<Answer>> {
    return this.ask("HEAD", {}, undefined, bindings);
  }

  send(from: number, to: number, bindings?: ProxiedBindings): Promise<Ended<Answer>> {
    const body = this.bytes.slice(from, to);
    return this.patch(from, body, { "Content-Length": `${body.length}` }, bindings);
  }

  /** The line breaks at `to`. */
  cut(from: number, to: number, bindings?: ProxiedBindings, change?: Change): Promise<Ended<Answer>> {
    const body = this.bytes.slice(from, to);
    let hasSent = false;
    const broken = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (hasSent) controller.error(new Error("Network connection lost."));
        else controller.enqueue(body);
        hasSent = true;
      },
    });
    return this.patch(from, broken, { "Content-Length": `${this.bytes.length - from}` }, bindings, change);
  }

  /** The line goes silent at `at`, goes on once that is saved, and breaks at `to`. */
  async silent(from: number, at: number, to: number, bindings = new ProxiedBindings()): Promise<Ended<Answer>> {
    const pieces = [this.bytes.slice(from, at), this.bytes.slice(at, to)];
    let isOver = false;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const { looks } = this.world;
          // One that has failed reads the body and throws it away: it looks for no silence, and saves nothing.
          for (let turns = 0; turns < 20 && this.world.looks === looks; turns++) await realSystem.sleep(0);
          if (pieces.length === 1 && this.world.looks === looks) isOver = true;
          while (pieces.length === 1 && !isOver && !bindings.isDead && (await this.savedOffset()) < at) {
            await realSystem.sleep(1);
          }
          const piece = pieces.shift();
          if (piece) controller.enqueue(piece);
          else controller.error(new Error("Network connection lost."));
        },
      },
      { highWaterMark: 0 },
    );
    this.world.isSilent = true;
    return this.patch(from, body, {}, bindings).finally(() => {
      this.world.isSilent = false;
      isOver = true;
    });
  }

  async savedOffset(): Promise<number> {
    const row = await env.DB.prepare("select offset_bytes from uploads where file_id = ?").bind(this.id).first();
    return Number(row?.offset_bytes);
  }

  patch(from: number, body: Body, headers: Record<string, string> = {}, bindings?: ProxiedBindings, change?: Change) {
    return this.ask("PATCH", { ...BYTES, "Upload-Offset": `${from}`, ...headers }, body, bindings, change);
  }

  /** Goes on from where the upload stands until it is complete. */
  async resume(): Promise<void> {
    for (let tries = 0; tries < 5; tries++) {
      const answer = await must(this.head());
      expect(answer.status).toBe(200);
      if (this.reportedOffset === this.bytes.length) return;
      const { status, text } = await must(this.send(this.reportedOffset, this.bytes.length));
      expect(status, text).toBe(204);
    }
    throw new Error("The upload does not come to its end.");
  }
}
