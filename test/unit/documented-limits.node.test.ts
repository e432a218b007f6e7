import { join } from "node:path";
import { expect, test } from "vitest";
import { unstable_readConfig } from "wrangler";
import { replay } from "../../src/http/deliveries.ts";
import { describeService, tags } from "../../src/http/introduction.ts";
import { test as sendTest } from "../../src/http/webhooks.ts";
import { REQUESTS_PER_PERMIT } from "../../src/platform/limiter.ts";
import { RATE_LIMITS } from "../../src/rate-limits.ts";

const config: {
  vars: Record<string, unknown>;
  ratelimits: { name: string; simple: { limit: number; period: number } }[];
} = unstable_readConfig({ config: join(import.meta.dirname, "../../wrangler.toml") });

const limitOf = (name: string): number => {
  const { simple } = config.ratelimits.find((limit) => limit.name === name) ?? {};
  expect(simple?.period, name).toBe(60);
  return simple?.limit ?? 0;
};

test("responses and the description state the rate limits of wrangler.toml", () => {
  const logins = limitOf("LOGIN_LIMIT");
  expect(RATE_LIMITS).toMatchObject({
    team: limitOf("TOKEN_LIMIT") * REQUESTS_PER_PERMIT,
    "client-ip": limitOf("CLIENT_IP_LIMIT"),
    login: logins,
    password: limitOf("HASH_LIMIT"),
    "expensive-call": logins,
    search: limitOf("SEARCH_LIMIT"),
  });
  expect(describeService([])).toContain("6,000 requests a minute for each team, and as many for its public keys");
  for (const { description } of [replay, sendTest]) expect(description).toContain(` ${logins} a minute.`);
});

test("the description states how long events are kept", () => {
  expect(tags.find(({ name }) => name === "Events")?.description).toContain(`Kept for ${config.vars.EVENT_DAYS} days`);
});
