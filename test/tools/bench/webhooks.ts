import type { WebhookJob } from "../../../src/platform/messages.ts";
import { repeat } from "./load.ts";
import { json, type Scope, type Server, startServer } from "./server.ts";
import type { Result, Scenario } from "./simulation.ts";

/* How many messages a webhook gets, by the response time of its endpoint, alone and next to many slow ones. */

const ENDPOINT_SECONDS = [0.2, 1, 2, 5, 14];
const SLOW_SECONDS = 14;
const SLOW_WEBHOOKS = 300;
/** The limit of a team. */
const WEBHOOKS_PER_TEAM = 10;
/** The fresh events go to an endpoint this fast. */
const FRESH_SECONDS = 0.2;
const FRESH_EVERY_SECONDS = 2;
const POSTS_PER_ROUND = 5;
const DAY_MILLISECONDS = 24 * 60 * 60 * 1000;

/** Creates a team with webhooks of one response time, and with a backlog that `seconds` can't exhaust. */
async function createWebhooks(server: Server, count: number, responseSeconds: number, seconds: number) {
  const team = await server.createTeam();
  const jobs: WebhookJob[] = await repeat(count, 1, async () => {
    const fields = { url: `https://endpoint.example/${responseSeconds * 1000}`, types: ["apikey.created"] };
    const { text } = await server.load.send(json("POST", "/auth/v1/webhooks", fields, team));
    return { teamId: team.teamId, webhookId: JSON.parse(text).data._id };
  });
  const events = Math.ceil((seconds / responseSeconds + 1) * POSTS_PER_ROUND);
  if (seconds > 0) await server.control("backlog", { teamId: team.teamId, count: events });
  return jobs;
}

const quantile = (sorted: number[], part: number) => sorted[Math.ceil(sorted.length * part) - 1] ?? Number.NaN;

/** @returns messages per minute for each response time, and the delays of fresh events next to the slow webhooks */
export async function measureWebhooks({ isQuick, log }: Scope) {
  const aloneSeconds = 120;
  const [countedFromSecond, seconds] = isQuick ? [300, 600] : [600, 1200];
  const server = await startServer();
  try {
    const slow = (
      await repeat(SLOW_WEBHOOKS / WEBHOOKS_PER_TEAM, 4, () =>
        createWebhooks(server, WEBHOOKS_PER_TEAM, SLOW_SECONDS, seconds),
      )
    ).flat();
    const fresh = (await createWebhooks(server, 1, FRESH_SECONDS, 0))[0] as WebhookJob;
    const measured = await repeat(ENDPOINT_SECONDS.length, 1, async (i) => {
      const responseSeconds = ENDPOINT_SECONDS[i] as number;
      const [webhook] = await createWebhooks(server, 1, responseSeconds, seconds);
      return { responseSeconds, webhook: webhook as WebhookJob };
    });
    log("webhooks: created");
    let scenarios = 0;
    const simulate = async (scenario: Omit<Scenario, "startsAt" | "freshEverySeconds">) => {
      const startsAt = Date.now() + DAY_MILLISECONDS * ++scenarios;
      const times = { startsAt, freshEverySeconds: FRESH_EVERY_SECONDS };
      const { posts, ...rest } = (await server.control("simulate", { ...times, ...scenario })) as Result;
      const minutes = (scenario.seconds - scenario.countedFromSecond) / 60;
      const perMinute = ({ webhookId }: WebhookJob) => (posts[webhookId] ?? 0) / minutes;
      log(`webhooks: simulated ${scenario.backlogged.length}`);
      return { ...rest, perMinute };
    };
    const alone: number[] = [];
    for (const { webhook } of measured) {
      const { perMinute } = await simulate({ seconds: aloneSeconds, countedFromSecond: 0, backlogged: [webhook] });
      alone.push(perMinute(webhook));
    }
    const backlogged = [...slow, ...measured.map(({ webhook }) => webhook)];
    const loaded = await simulate({ seconds, countedFromSecond, backlogged, fresh });
    const slowRates = slow.map(loaded.perMinute).sort((a, b) => a - b);
    const delays = loaded.freshMilliseconds.map((delay) => delay / 1000).sort((a, b) => a - b);
    return {
      rates: [
        ...measured.map(({ responseSeconds, webhook }, i) => ({
          name: `${responseSeconds} s`,
          alone: alone[i] ?? null,
          beside: loaded.perMinute(webhook),
        })),
        {
          name: "each of the 300, on average",
          alone: null,
          beside: slowRates.reduce((a, b) => a + b, 0) / slow.length,
        },
        { name: "the last of the 300", alone: null, beside: slowRates[0] ?? Number.NaN },
      ],
      delays: [
        { name: "median", seconds: quantile(delays, 0.5) },
        { name: "95 %", seconds: quantile(delays, 0.95) },
        { name: "longest", seconds: quantile(delays, 1) },
        { name: "longest after all start at once", seconds: loaded.longestFreshAtStart / 1000 },
      ],
    };
  } finally {
    await server.close();
  }
}
