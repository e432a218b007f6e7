import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { DefaultHttpStack, type HttpRequest, type HttpResponse, Upload } from "tus-js-client";
import { RESUMABLE } from "../../support/tus.ts";
import { appendChunk, createResumable, json, type Scope, type Server, startServer, type Team } from "./server.ts";

/* An event day: hundreds of phones upload at the same moment, with upload tokens of one team. Some give up, and one is hostile. */

const PHONES = [300, 600];
const FILE = Buffer.alloc(300_000, "stowage ");
/** A phone sends 60 kB/s, so that all of them send at the same time. */
const STEP_BYTES = 30_000;
const STEP_MILLISECONDS = 500;
/** Of three phones, one gives up once it has sent a third of its file. */
const ABANDONED_SHARE = 3;
/** As an app sets them. The first four are the client's own. */
const RETRY_MILLISECONDS = [0, 1000, 3000, 5000, 5000, 5000, 5000, 5000, 5000, 5000];
const HOSTILE_UPLOADS = 100;

/** Sends bodies as slowly as a phone does. */
class SlowStack extends DefaultHttpStack {
  override createRequest(method: string, url: string): HttpRequest {
    const request = super.createRequest(method, url);
    const send = request.send.bind(request);
    request.send = (body: Uint8Array | undefined) => {
      if (body === undefined || body === null) return send(body);
      request.setHeader("Content-Length", String(body.length));
      return send(Readable.from(slowly(body)));
    };
    return request;
  }
}

async function* slowly(body: Uint8Array) {
  for (let at = 0; at < body.length; at += STEP_BYTES) {
    yield body.subarray(at, at + STEP_BYTES);
    await sleep(STEP_MILLISECONDS);
  }
}

/** Counts refusals by status and code. */
class Refusals {
  readonly counts: Record<string, number> = {};
  /** The first one, with the reason that a person reads. */
  first: string | null = null;

  note(status: number, text: string): void {
    if (status < 400) return;
    // The body of a refusal, of which HEAD has none.
    const { code = "no body", message = "" } = text.startsWith("{") ? JSON.parse(text) : {};
    const name = `${status} ${code}`;
    this.counts[name] = (this.counts[name] ?? 0) + 1;
    this.first ??= `${name}: ${message}`;
  }
}

const tokenOf = async ({ load }: Server, team: Team, maxFiles: number): Promise<Team> => {
  const { text } = await load.send(json("POST", "/docs/v1/uploadtokens", { maxFiles }, team));
  return { ...team, token: JSON.parse(text).data.token };
};

/** @returns whether the file was stored, and after how many seconds */
async function sendByPhone({ url }: Server, { token }: Team, givesUp: boolean, refusals: Refusals) {
  const startedAt = performance.now();
  const isStored = await new Promise<boolean>((resolve) => {
    const upload = new Upload(FILE, {
      endpoint: new URL(RESUMABLE, url).href,
      httpStack: new SlowStack({}),
      headers: { Authorization: `Bearer ${token}` },
      metadata: { filename: "interview.bin" },
      retryDelays: RETRY_MILLISECONDS,
      onAfterResponse: (_: HttpRequest, response: HttpResponse) =>
        refusals.note(response.getStatus(), response.getBody()),
      onProgress: (sentBytes) => {
        if (givesUp && sentBytes >= FILE.length / 3) void upload.abort().then(() => resolve(false));
      },
      onSuccess: () => resolve(true),
      onError: () => resolve(false),
    });
    upload.start();
  });
  return { isStored, seconds: (performance.now() - startedAt) / 1000 };
}

/** Begins a hundred uploads, and sends one byte of each that the service accepts. */
async function attack({ load }: Server, visitor: Team, refusals: Refusals): Promise<void> {
  for (let i = 0; i < HOSTILE_UPLOADS; i++) {
    try {
      const { location } = await load.send(createResumable(FILE.length, visitor));
      await load.send(appendChunk(location, 0, FILE.subarray(0, 1), visitor));
    } catch (error) {
      const [, status, text = ""] = /: (\d{3}) (.*)$/s.exec((error as Error).message) ?? [];
      refusals.note(Number(status), text);
    }
  }
}

export async function measurePhones({ log }: Scope) {
  const rows = [];
  for (const phones of PHONES) {
    const server = await startServer();
    try {
      const team = await server.createTeam();
      const tokens: Team[] = [];
      for (let i = 0; i < phones; i++) tokens.push(await tokenOf(server, team, 3));
      const hostile = await tokenOf(server, team, HOSTILE_UPLOADS);
      const [refusals, ofHostile] = [new Refusals(), new Refusals()];
      const sent = tokens.map(async (visitor, i) => {
        const givesUp = i % ABANDONED_SHARE === 0;
        return { givesUp, ...(await sendByPhone(server, visitor, givesUp, refusals)) };
      });
      const [results] = await Promise.all([Promise.all(sent), attack(server, hostile, ofHostile)]);
      const honest = results.filter(({ givesUp }) => !givesUp);
      const seconds = honest.flatMap((one) => (one.isStored ? [one.seconds] : [])).sort((a, b) => a - b);
      const row = {
        phones,
        honest: honest.length,
        stored: seconds.length,
        median: seconds[Math.floor(seconds.length / 2)] ?? Number.NaN,
        longest: seconds.at(-1) ?? Number.NaN,
        refusals: refusals.counts,
        first: refusals.first,
        ofHostile: ofHostile.counts,
      };
      log(`phones: ${JSON.stringify(row)}`);
      rows.push(row);
    } finally {
      await server.close();
    }
  }
  return rows;
}
