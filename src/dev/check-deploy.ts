/** The part of wrangler's resolved configuration that decides whether a deployed Worker would work. */
export interface DeployConfig {
  targetEnvironment?: string;
  definedEnvironments?: string[];
  vars: Record<string, unknown>;
  secrets?: { required?: string[] };
  d1_databases: { binding: string; database_id?: string }[];
  r2_buckets: { binding: string; bucket_name?: string }[];
  queues: {
    producers?: { binding: string; queue?: string }[];
    consumers?: { queue: string; dead_letter_queue?: string }[];
  };
  ratelimits: { name: string; namespace_id: string }[];
  assets?: { binding?: string };
  triggers: { crons?: string[] };
}

const PLACES = {
  database: "[[d1_databases]]",
  bucket: "[[r2_buckets]]",
  queue: "[[queues.producers]]",
  files: "[assets]",
  limit: "[[ratelimits]]",
  text: "[vars]",
  number: "[vars]",
  secret: "[secrets] required",
};

/** All that the Worker reads. A binding that is new in wrangler.toml does not compile until it is here. */
const NEEDED: Record<keyof Env, keyof typeof PLACES> = {
  DB: "database",
  BUCKET: "bucket",
  JOBS: "queue",
  WEBHOOKS: "queue",
  PAGES: "files",
  TOKEN_LIMIT: "limit",
  ADDRESS_LIMIT: "limit",
  LOGIN_LIMIT: "limit",
  S3_ENDPOINT: "text",
  S3_BUCKET: "text",
  EVENT_DAYS: "number",
  DEAD_LETTER_QUEUE: "text",
  MAX_UPLOAD_BYTES: "number",
  MAX_FILE_BYTES: "number",
  UPLOAD_IDLE_SECONDS: "number",
  MAX_TEAM_BYTES: "number",
  MAX_TEAM_FILES: "number",
  MASTER_KEY: "secret",
  OPERATOR_TOKEN: "secret",
  S3_ACCESS_KEY_ID: "secret",
  S3_SECRET_ACCESS_KEY: "secret",
};

/** With it webhooks may be sent to this machine: nothing for the network. */
export const LOCAL_SETTING = "WEBHOOK_ALLOW_INSECURE";

/** Why the configuration must not be deployed, a line each. Values of settings are not shown: one may be a secret. */
export function findProblems(config: DeployConfig): string[] {
  const { vars, queues, targetEnvironment: environment } = config;
  if (environment && !config.definedEnvironments?.includes(environment))
    return [`There is no environment "${environment}" in the configuration.`];

  const bindings = (list: { binding: string }[] = []) => list.map(({ binding }) => binding);
  const present = {
    database: bindings(config.d1_databases),
    bucket: bindings(config.r2_buckets),
    queue: bindings(queues.producers),
    files: config.assets?.binding ? [config.assets.binding] : [],
    limit: config.ratelimits.map(({ name }) => name),
    text: Object.keys(vars).filter((name) => vars[name] !== ""),
    number: Object.keys(vars),
    secret: config.secrets?.required ?? [],
  };
  const inherited = environment ? `, and [env.${environment}] does not inherit it` : "";
  const problems: string[] = [];
  const check = (isFine: boolean, problem: string) => isFine || problems.push(problem);
  for (const [name, kind] of Object.entries(NEEDED)) {
    check(present[kind].includes(name), `${name} is missing in ${PLACES[kind]}${inherited}.`);
    if (kind === "number" && name in vars) check(Number(vars[name]) > 0, `${name} must be a number above 0.`);
  }

  const database = config.d1_databases.find(({ binding }) => binding === "DB");
  check(!/^[0-]+$/.test(database?.database_id ?? ""), "The database_id of DB is a placeholder.");

  const endpoint = String(vars.S3_ENDPOINT ?? "");
  if (endpoint.includes("ACCOUNT_ID"))
    problems.push("S3_ENDPOINT has the placeholder ACCOUNT_ID: `npx wrangler whoami` shows your account's id.");
  else check(endpoint === "" || /^https:\/\/[^/]+\/?$/.test(endpoint), "S3_ENDPOINT must be https:// and a host.");
  const bucket = config.r2_buckets.find(({ binding }) => binding === "BUCKET")?.bucket_name;
  check(!bucket || vars.S3_BUCKET === bucket, `S3_BUCKET must be "${bucket}", the bucket_name of BUCKET.`);

  const jobs = queues.producers?.find(({ binding }) => binding === "JOBS")?.queue;
  const consumer = (name?: string) => queues.consumers?.find(({ queue }) => queue === name);
  const deadLetters = consumer(jobs)?.dead_letter_queue;
  if (jobs) check(Boolean(deadLetters), `The queue "${jobs}" has no consumer with a dead_letter_queue.`);
  if (deadLetters) {
    check(Boolean(consumer(deadLetters)), `The dead letter queue "${deadLetters}" has no consumer.`);
    const isSame = vars.DEAD_LETTER_QUEUE === deadLetters;
    check(isSame, `DEAD_LETTER_QUEUE must be "${deadLetters}", the dead_letter_queue of the consumer of "${jobs}".`);
  }
  const webhooks = queues.producers?.find(({ binding }) => binding === "WEBHOOKS")?.queue;
  if (webhooks) check(Boolean(consumer(webhooks)), `The queue "${webhooks}" has no consumer.`);
  check(!(LOCAL_SETTING in vars), `${LOCAL_SETTING} is for local development only.`);
  const counters = new Set(config.ratelimits.map((limit) => limit.namespace_id));
  check(
    counters.size === config.ratelimits.length,
    "Rate limits of one namespace_id count together: each needs its own.",
  );
  check((config.triggers.crons ?? []).length > 0, "There is no cron trigger: recovery would never run.");
  return problems;
}
