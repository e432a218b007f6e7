import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { repeat } from "./load.ts";
import { json, type Scope, type Server, startServer, type Team } from "./server.ts";

/*
 * How many messages a webhook gets in real time, by the response time of its endpoint, next to 300 whose endpoints hang until
 * the service times out.
 */

const ENDPOINT_SECONDS = [2, 5];
const HANGING_SECONDS = 15;
const HANGING_TEAMS = 30;
/** The limit of a team. */
const WEBHOOKS_PER_TEAM = 10;
const HANGING_EVENTS = 45;
/** The fresh events go to an endpoint this fast. */
const FRESH_SECONDS = 0.2;
const FRESH_EVERY_SECONDS = 2;
const MAX_IN_FLIGHT = 5;

interface Post {
  name: string;
  at: number;
  /** Since the event. */
  delayMilliseconds: number;
}

/** Endpoints that answer after the time in the path, and note each message under the name in it. */
async function openEndpoints() {
  const posts: Post[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const [, milliseconds, name = ""] = request.url?.split("/") ?? [];
    const at = Date.now();
    posts.push({
      name,
      at,
      delayMilliseconds: at - Date.parse(JSON.parse(Buffer.concat(chunks).toString()).timestamp),
    });
    response.on("error", () => undefined);
    setTimeout(() => response.end("ok"), Number(milliseconds));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return {
    posts,
    urlOf: (seconds: number, name: string) => `http://127.0.0.1:${port}/${seconds * 1000}/${name}`,
    close,
  };
}

async function createTeam(server: Server, urls: string[]): Promise<Team> {
  const team = await server.createTeam();
  for (const url of urls) {
    const { text } = await server.load.send(
      json("POST", "/auth/v1/webhooks", { url, types: ["apikey.created"] }, team),
    );
    if (!JSON.parse(text).data) throw new Error(text);
  }
  return team;
}

const quantile = (sorted: number[], part: number) => sorted[Math.ceil(sorted.length * part) - 1] ?? Number.NaN;

/** @returns messages per minute for each response time, and the delays of fresh events next to the hanging endpoints */
export async function measureWebhooks({ isQuick, log }: Scope) {
  const seconds = isQuick ? 60 : 120;
  const server = await startServer();
  const endpoints = await openEndpoints();
  /** Adds events to a team, and wakes its webhooks by one more. */
  const addEvents = async (team: Team, count: number) => {
    await server.control("events", { teamId: team.teamId, count });
    await server.load.send(json("POST", "/auth/v1/apikeys", { name: "bench" }, team));
  };
  const perMinute = async (names: string[]) => {
    const from = Date.now();
    await sleep(seconds * 1000);
    const until = Date.now();
    return names.map((name) => {
      const found = endpoints.posts.filter((post) => post.name === name && post.at >= from && post.at < until);
      return (found.length * 60_000) / (until - from);
    });
  };
  try {
    const names = ENDPOINT_SECONDS.map((one) => `${one}s`);
    const measure = async (isLoaded: boolean) => {
      const backlog = (one: number) => Math.ceil((seconds / one + 2) * MAX_IN_FLIGHT);
      for (const [i, one] of ENDPOINT_SECONDS.entries()) {
        const name = `${isLoaded}-${names[i]}`;
        await addEvents(await createTeam(server, [endpoints.urlOf(one, name)]), backlog(one));
      }
      return perMinute(names.map((name) => `${isLoaded}-${name}`));
    };
    const alone = await measure(false);
    log("webhooks: measured alone");
    const hanging = await repeat(HANGING_TEAMS, 4, (i) => {
      const urls = Array.from({ length: WEBHOOKS_PER_TEAM }, (_, j) =>
        endpoints.urlOf(HANGING_SECONDS, `slow-${i}-${j}`),
      );
      return createTeam(server, urls);
    });
    const fresh = await createTeam(server, [endpoints.urlOf(FRESH_SECONDS, "fresh")]);
    for (const team of hanging) await addEvents(team, HANGING_EVENTS);
    log("webhooks: hanging");
    const loaded = measure(true);
    let isMeasured = false;
    const done = loaded.finally(() => {
      isMeasured = true;
    });
    while (!isMeasured) {
      await server.load.send(json("POST", "/auth/v1/apikeys", { name: "bench" }, fresh));
      await sleep(FRESH_EVERY_SECONDS * 1000);
    }
    const underLoad = await done;
    const delays = endpoints.posts
      .filter(({ name }) => name === "fresh")
      .map(({ delayMilliseconds }) => delayMilliseconds / 1000)
      .sort((a, b) => a - b);
    return {
      rates: ENDPOINT_SECONDS.map((one, i) => ({
        name: `${one} s`,
        alone: alone[i] ?? Number.NaN,
        underLoad: underLoad[i] ?? Number.NaN,
      })),
      delays: [
        { name: "median", seconds: quantile(delays, 0.5) },
        { name: "95 %", seconds: quantile(delays, 0.95) },
        { name: "longest", seconds: quantile(delays, 1) },
      ],
    };
  } finally {
    endpoints.close();
    await server.close();
  }
}
