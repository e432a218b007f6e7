/** Checks the configuration of a deployment before anything is changed at Cloudflare. */
import { isDeepStrictEqual } from "node:util";
import { unstable_readConfig } from "wrangler";
import { findDatabaseProblems, findSettingProblems } from "../deps.ts";
import type { Placement } from "./placement.ts";
import { Refusal } from "./refusal.ts";

/** The part of wrangler's resolved configuration that a deployment needs. */
export interface DeployConfig {
  name: string;
  account_id?: string;
  targetEnvironment?: string;
  vars: Record<string, unknown>;
  secrets?: { required?: string[] };
  d1_databases: { binding: string; database_name: string; database_id?: string }[];
  r2_buckets: { binding: string; bucket_name: string }[];
  durable_objects: { bindings: { name: string; class_name: string }[] };
  migrations: { new_sqlite_classes?: string[] }[];
  queues: {
    producers?: { binding: string; queue: string }[];
    consumers?: { queue: string; dead_letter_queue?: string }[];
  };
  ratelimits: { name: string; namespace_id: string; simple: object }[];
  send_email: { name: string }[];
  assets?: { binding?: string };
  triggers: { crons?: string[] };
  placement?: Placement;
}

/** @throws Refusal if wrangler rejects the configuration */
export function readDeployConfig(config: string, env: string | undefined): DeployConfig {
  try {
    return unstable_readConfig({ config, env }, { hideWarnings: true }) as unknown as DeployConfig;
  } catch (error) {
    throw new Refusal(error instanceof Error ? error.message : String(error));
  }
}

const SECTIONS = {
  database: "[[d1_databases]]",
  bucket: "[[r2_buckets]]",
  queue: "[[queues.producers]]",
  object: "[[durable_objects.bindings]]",
  files: "[assets]",
  limit: "[[ratelimits]]",
  setting: "[vars]",
  secret: "[secrets] required",
};

/** Every binding and setting of the Worker. A new binding in wrangler.toml does not compile until it is listed here. */
const REQUIRED: Record<keyof Env, keyof typeof SECTIONS> = {
  DB: "database",
  BUCKET: "bucket",
  JOBS: "queue",
  BULK_JOBS: "queue",
  WAVEFORMS: "queue",
  WEBHOOKS: "object",
  SEARCH: "object",
  RECOVERY: "queue",
  DEAD_LETTERS: "queue",
  PAGES: "files",
  LIGHT_LIMIT: "limit",
  HEAVY_LIMIT: "limit",
  VISITORS_LIMIT: "limit",
  UPLOAD_TOKEN_LIMIT: "limit",
  TRANSCRIPT_LIMIT: "limit",
  CONTRIBUTOR_LIGHT_LIMIT: "limit",
  CONTRIBUTOR_HEAVY_LIMIT: "limit",
  CLIENT_IP_LIMIT: "limit",
  LOGIN_LIMIT: "limit",
  HASH_LIMIT: "limit",
  S3_BUCKET: "setting",
  EVENT_DAYS: "setting",
  TRASH_DAYS: "setting",
  DEAD_LETTER_QUEUE: "setting",
  MAX_UPLOAD_BYTES: "setting",
  MAX_FILE_BYTES: "setting",
  UPLOAD_IDLE_SECONDS: "setting",
  MAX_DATABASE_BYTES: "setting",
  MAX_TEAM_BYTES: "setting",
  MAX_TEAM_FILES: "setting",
  MAX_TEAM_EVENTS: "setting",
  MASTER_KEY: "secret",
  OPERATOR_TOKEN: "secret",
};

/** Lets webhooks reach the Worker's own machine, so it must never be set in a deployment. */
const LOCAL_SETTING = "WEBHOOK_ALLOW_INSECURE";

/** Returns why nothing may be deployed, one line per problem. Lines never show values: one may be a secret. */
export function findConfigProblems(config: DeployConfig): string[] {
  const { vars, queues, targetEnvironment: environment } = config;
  const bindings = (list: { binding: string }[] = []) => list.map(({ binding }) => binding);
  const present = {
    database: bindings(config.d1_databases),
    bucket: bindings(config.r2_buckets),
    queue: bindings(queues.producers),
    object: config.durable_objects.bindings.map(({ name }) => name),
    files: config.assets?.binding ? [config.assets.binding] : [],
    limit: config.ratelimits.map(({ name }) => name),
    setting: Object.keys(vars).filter((name) => vars[name] !== ""),
    secret: config.secrets?.required ?? [],
  };
  const problems: string[] = [];
  const check = (isFine: boolean, problem: string) => isFine || problems.push(problem);
  for (const [name, kind] of Object.entries(REQUIRED)) {
    const section = environment ? SECTIONS[kind].replace(/^\[+/, `$&env.${environment}.`) : SECTIONS[kind];
    const hint = environment ? " (environments don't inherit it)" : "";
    check(present[kind].includes(name), `${section} needs ${name}${hint}.`);
  }
  const settings = Object.fromEntries(present.setting.map((name) => [name, vars[name]]));
  problems.push(...findSettingProblems(settings));

  problems.push(...findDatabaseProblems(present.database));
  for (const { binding, database_id: id } of config.d1_databases) {
    check(!/^[0-]+$/.test(id ?? ""), `The database_id of ${binding} is a placeholder.`);
  }
  const names = config.d1_databases.map(({ database_name: name }) => name);
  check(new Set(names).size === names.length, "Each of [[d1_databases]] needs its own database_name.");

  const endpoint = String(vars.S3_ENDPOINT ?? "");
  check(endpoint === "" || /^https:\/\/[^/]+\/?$/.test(endpoint), "S3_ENDPOINT must be https:// and a host.");
  const hasEmail = config.send_email.some(({ name }) => name === "EMAIL");
  check(hasEmail === Boolean(vars.EMAIL_FROM), "[[send_email]] EMAIL and the setting EMAIL_FROM need each other.");
  check(!hasEmail || Boolean(vars.PUBLIC_URL), "[[send_email]] EMAIL needs the setting PUBLIC_URL.");
  const bucket = config.r2_buckets.find(({ binding }) => binding === "BUCKET")?.bucket_name;
  check(!bucket || vars.S3_BUCKET === bucket, `S3_BUCKET must be "${bucket}", the bucket_name of BUCKET.`);

  const queueOf = (name: string) => queues.producers?.find(({ binding }) => binding === name)?.queue;
  const consumer = (name?: string) => queues.consumers?.find(({ queue }) => queue === name);
  for (const jobs of [queueOf("JOBS"), queueOf("BULK_JOBS")]) {
    const deadLetters = consumer(jobs)?.dead_letter_queue;
    if (jobs) check(Boolean(deadLetters), `The queue "${jobs}" needs a consumer with a dead_letter_queue.`);
    if (!deadLetters) continue;
    check(Boolean(consumer(deadLetters)), `The dead letter queue "${deadLetters}" needs a consumer.`);
    const isSame = vars.DEAD_LETTER_QUEUE === deadLetters;
    check(isSame, `DEAD_LETTER_QUEUE must be "${deadLetters}", the dead_letter_queue of "${jobs}".`);
  }
  for (const queue of [queueOf("WAVEFORMS"), queueOf("RECOVERY")]) {
    if (queue) check(Boolean(consumer(queue)), `The queue "${queue}" needs a consumer.`);
  }
  const classes = config.migrations.flatMap(({ new_sqlite_classes: names = [] }) => names);
  for (const { class_name: name } of config.durable_objects.bindings) {
    check(classes.includes(name), `[[migrations]] must create the class ${name} by new_sqlite_classes.`);
  }
  check(!vars[LOCAL_SETTING], `${LOCAL_SETTING} is for local development only.`);
  const counters = new Set(config.ratelimits.map((limit) => limit.namespace_id));
  check(
    counters.size === config.ratelimits.length,
    "Each rate limit needs its own namespace_id: limits that share one count together.",
  );
  check((config.triggers.crons ?? []).length > 0, "[triggers] needs a cron: without it the recovery job never runs.");
  return [...new Set(problems)];
}

/** The settings that differ in each environment: they name its resources and hosts. */
const SEPARATE = ["S3_BUCKET", "DEAD_LETTER_QUEUE", "LINK_HOST", "PUBLIC_URL"];

/**
 * Returns a line that names the settings, emails, rate limits and queues in which two environments differ, because a feature that
 * works in one may be missing in the other. The line shows no values: one may be a secret.
 */
export function describeDrift(config: DeployConfig, other: DeployConfig): string[] {
  const factsOf = ({ vars, send_email, ratelimits, queues }: DeployConfig): Record<string, unknown> => ({
    ...Object.fromEntries(Object.entries(vars).filter(([name, value]) => value !== "" && !SEPARATE.includes(name))),
    ...Object.fromEntries(send_email.map(({ name }) => [`[[send_email]] ${name}`, true])),
    ...Object.fromEntries(ratelimits.map(({ name, simple }) => [`[[ratelimits]] ${name}`, simple])),
    ...Object.fromEntries((queues.producers ?? []).map(({ binding }) => [`[[queues.producers]] ${binding}`, true])),
  });
  const [here, there] = [factsOf(config), factsOf(other)];
  const names = [...new Set([...Object.keys(here), ...Object.keys(there)])];
  const differences = names.flatMap((name) => {
    if (!(name in there)) return [`${name} (only here)`];
    if (!(name in here)) return [`${name} (only there)`];
    return isDeepStrictEqual(here[name], there[name]) ? [] : [name];
  });
  const whose = other.targetEnvironment ? `the environment "${other.targetEnvironment}"` : "the default environment";
  return differences.length === 0 ? [] : [`Note: settings differ from ${whose}: ${differences.join(", ")}`];
}
