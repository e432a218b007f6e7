import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { unstable_readConfig } from "wrangler";
import { listMigrations, migratedDatabase } from "../../src/dev/migrations.ts";
import { eventsTag } from "../../src/events/events.routes.ts";
import { SLOW_READ_BYTES } from "../../src/http/body-reader.ts";
import { describeService } from "../../src/http/introduction.ts";
import { MAX_HEADER_BYTES, MAX_PROPERTIES_BYTES } from "../../src/http/multipart.ts";
import { JSON_BODY_BYTES } from "../../src/http/validation.ts";
import {
  BODY_BYTES,
  MAX_BODIES,
  MAX_BODIES_PER_CLIENT_IP,
  MAX_BODIES_PER_TEAM,
  MAX_VISITOR_BODIES,
} from "../../src/platform/bodies.ts";
import { FIRST_BYTES, MAX_HELD_BYTES, VISITOR_DIVISOR } from "../../src/platform/part.ts";
import { RATE_LIMITS } from "../../src/rate-limits.ts";
import * as service from "../../src/service.ts";

const root = join(import.meta.dirname, "../..");
const config: {
  vars: Record<string, unknown>;
  ratelimits: { name: string; simple: { limit: number; period: number } }[];
} = unstable_readConfig({ config: join(root, "wrangler.toml") });

const manual = readFileSync(join(root, "src/OPERATIONS.md"), "utf8");
const sources = globSync("src/{*,!(client|console|dev)/**/*}.ts", { cwd: root });
const code = sources.map((file) => readFileSync(join(root, file), "utf8")).join();

const limitOf = (name: string): number => {
  const { simple } = config.ratelimits.find((limit) => limit.name === name) ?? {};
  expect(simple?.period, name).toBe(60);
  return simple?.limit ?? 0;
};

test("responses and the description state the rate limits of wrangler.toml", () => {
  expect(RATE_LIMITS).toEqual({
    light: limitOf("LIGHT_LIMIT"),
    heavy: limitOf("HEAVY_LIMIT"),
    visitors: limitOf("VISITORS_LIMIT"),
    "upload-token": limitOf("UPLOAD_TOKEN_LIMIT"),
    transcripts: limitOf("TRANSCRIPT_LIMIT"),
    "contributor-light": limitOf("CONTRIBUTOR_LIGHT_LIMIT"),
    "contributor-heavy": limitOf("CONTRIBUTOR_HEAVY_LIMIT"),
    "client-ip": limitOf("CLIENT_IP_LIMIT"),
    login: limitOf("LOGIN_LIMIT"),
    password: limitOf("HASH_LIMIT"),
  });
  expect(describeService([])).toContain("A team has 6,000 light and 120 heavy requests a minute; its visitors");
});

test("the place of a body has room for what its readers hold and nothing else counts", () => {
  expect(JSON_BODY_BYTES).toBeLessThanOrEqual(BODY_BYTES);
  expect(SLOW_READ_BYTES + FIRST_BYTES + MAX_HEADER_BYTES + MAX_PROPERTIES_BYTES).toBeLessThanOrEqual(BODY_BYTES);
});

test("the operations manual and the list of threats state the limits of bodies and their memory", () => {
  const mebibytes = (bytes: number) => `${bytes / 1024 / 1024} MiB`;
  const places = (count: number) => `${count} (${mebibytes(count * BODY_BYTES)})`;
  const each = `${BODY_BYTES / 1024} KiB`;
  const [, memory = ""] = /^### Memory$(.*?)^### /ms.exec(manual) ?? [];
  expect(memory.match(/^\| (?:bodies|what) .*$/gm)).toEqual([
    `| bodies in progress, ${each} each | ${places(MAX_BODIES)} | ${places(MAX_VISITOR_BODIES)} | ${MAX_BODIES_PER_CLIENT_IP} | ${MAX_BODIES_PER_TEAM} |`,
    `| what they hold beyond that | ${mebibytes(MAX_HELD_BYTES)} | ${mebibytes(MAX_HELD_BYTES / VISITOR_DIVISOR)} | | |`,
  ]);
  const threats = readFileSync(join(root, "test/THREATS.md"), "utf8");
  expect(threats).toContain(
    `${MAX_BODIES} bodies of ${each}, of which visitors and callers without a token have ${MAX_VISITOR_BODIES}`,
  );
  expect(threats).toContain(`the other ${MAX_BODIES - MAX_VISITOR_BODIES} places`);
});

test("the description states how long events are kept", () => {
  expect(eventsTag.description).toContain(`Kept for ${config.vars.EVENT_DAYS} days`);
});

test("the changelogs begin with the version of the package, and the service's names every migration", () => {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const changes = readFileSync(join(root, "src/CHANGELOG.md"), "utf8");
  for (const text of [changes, readFileSync(join(root, "src/client/CHANGELOG.md"), "utf8")]) {
    expect(/^## (.+)$/m.exec(text)?.[1]).toBe(version);
  }
  for (const name of listMigrations(join(root, "migrations"))) expect(changes).toContain(`\`${name}\``);
});

test("the operations manual states every setting of wrangler.toml and its default", () => {
  const [, section = ""] = /^## Settings$(.*?)^## /ms.exec(manual) ?? [];
  const cells = section.split("\n").map((line) => line.split("|").map((cell) => cell.trim()));
  const defaults = cells.flatMap(([, names = "", values = ""]) => {
    const stated = values.split(", ").map((value) => value.replaceAll(/[`,]/g, ""));
    return [...names.matchAll(/`([A-Z][A-Z_\d]+)`/g)].map(([, name], i) => [name, stated[i]] as const);
  });
  const withDefault = defaults.filter(([, value]) => value !== "");
  expect(Object.fromEntries(withDefault)).toEqual(config.vars);
});

test("the operations manual lists exactly the log events of the code", () => {
  // An event follows its level, or precedes the fields of the log line.
  const logged = code.matchAll(/"(?:info|warn|error)",\s*"([a-z_]+)"|"([a-z_]+_unreadable)", (?:fields|\{)/g);
  const [, logs = ""] = manual.split(/^## (?:Logs|Monitoring)$/m);
  const listed = logs.match(/^\| `.*? \|/gm)?.flatMap((cell) => cell.match(/(?<=`)[a-z_]*_[a-z_]*(?=`)/g) ?? []);
  const names = (events: (string | undefined)[]) => [...new Set(events)].sort();
  expect(names(listed ?? [])).toEqual(names([...logged].map(([, event, other]) => event ?? other)));
});

test("the queries of the operations manual run on the schema", () => {
  const queries = [...manual.matchAll(/d1 execute .*? --command "([^"]+)"/g)].map(([, query = ""]) => query);
  expect(queries.length).toBeGreaterThan(3);
  const migrations = join(root, "migrations");
  const database = migratedDatabase(migrations, listMigrations(migrations));
  for (const query of queries) expect(() => database.prepare(query).all(), query).not.toThrow();
  database.close();
});

test("the alerts of the operations manual are on log events and counts that exist", () => {
  const [, monitoring = ""] = /^## Monitoring$(.*?)^## /ms.exec(manual) ?? [];
  const counts = [...monitoring.matchAll(/`counts\.(\w+)`/g)].map(([, name = ""]) => name);
  expect(counts.length).toBeGreaterThan(0);
  const known = service.recoverySteps.flatMap((step) => step.counts);
  for (const name of counts) expect(known).toContain(name);
  const events = [...monitoring.matchAll(/(?:log lines of|or of|`event` is) `(\w+)`/g)].map(([, name = ""]) => name);
  expect(events.length).toBeGreaterThan(3);
  for (const event of events) expect(code).toContain(`"${event}"`);
});
