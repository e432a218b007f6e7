/** Reads and changes wrangler.toml. What is not changed keeps its text and comments. */
import { parse, patch, stringify, TomlFormat } from "@decimalturn/toml-patch";
import type { Placement } from "./placement.ts";

type Table = Record<string, unknown>;

/** The sections that an environment does not inherit, and its placement. All others apply to it as they are. */
const OWN_SECTIONS =
  "placement vars secrets d1_databases r2_buckets durable_objects queues ratelimits send_email".split(" ");
/** The values that name a resource, which no two environments share. */
const RESOURCES = "database_name bucket_name queue dead_letter_queue S3_BUCKET DEAD_LETTER_QUEUE".split(" ");
/** The settings that an environment does not get: hosts are not shared. */
const NOT_COPIED = ["LINK_HOST"];

interface Configuration extends Table {
  name: string;
  ratelimits?: { namespace_id: string }[];
  env?: Record<string, Table & Pick<Configuration, "ratelimits">>;
}
const read = (text: string) => parse(text) as Configuration;

/** The names of the environments in wrangler.toml. */
export const environmentsIn = (text: string): string[] => Object.keys(read(text).env ?? {});

/** Replaces values, at any depth, by their names. */
function mapValues(value: unknown, change: (name: string, value: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map((one) => mapValues(one, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, change(name, mapValues(one, change))]));
}

/** Tables in a section are inline, because a header in it would need the path of the section. */
const INLINE = Object.assign(TomlFormat.default(), { inlineTableStart: 0 });

/** The text of a section. Arrays of tables are blocks, so that another block can follow. */
function textOf(name: string, value: unknown): string {
  if (Array.isArray(value)) return value.map((one) => `[[${name}]]\n${stringify(one, INLINE)}`).join("\n");
  const tables = Object.entries(value as Table).filter(([, one]) => Array.isArray(one) && typeof one[0] === "object");
  if (tables.length > 0) return tables.map(([key, one]) => textOf(`${name}.${key}`, one)).join("\n");
  return `[${name}]\n${stringify(value as Table, INLINE)}`;
}

/**
 * The lines that wrangler.toml lacks for an environment: a copy of the sections that environments don't inherit, in which
 * every resource has another name and every rate limit another counter. Empty if it has the environment.
 */
export function linesOfEnvironment(text: string, environment: string): string {
  const config = read(text);
  const { name: worker, env = {} } = config;
  if (env[environment]) return "";
  const counters = [config, ...Object.values(env)].flatMap(({ ratelimits = [] }) => ratelimits);
  let counter = Math.max(0, ...counters.map(({ namespace_id: id }) => Number(id)));
  const change = (name: string, value: unknown) => {
    if (name === "namespace_id") return String(++counter);
    if (!RESOURCES.includes(name) || typeof value !== "string") return value;
    const suffix = value.startsWith(`${worker}-`) ? value.slice(worker.length) : "";
    return `${suffix === "" ? value : worker}-${environment}${suffix}`;
  };
  const own = Object.fromEntries(OWN_SECTIONS.flatMap((name) => (config[name] ? [[name, config[name]]] : [])));
  // Its database may be elsewhere.
  if ((own.placement as Placement | undefined)?.region) own.placement = { mode: "smart" };
  own.vars = Object.fromEntries(Object.entries(own.vars ?? {}).filter(([name]) => !NOT_COPIED.includes(name)));
  const sections = Object.entries(mapValues(own, change) as Table);
  return [
    `# The environment "${environment}", as \`npm run deploy -- --env ${environment}\` created it.`,
    `[env.${environment}]`,
    "# Otherwise it would take over the custom domains.",
    "routes = []\n",
    ...sections.map(([name, value]) => textOf(`env.${environment}.${name}`, value)),
  ].join("\n");
}

/** Returns wrangler.toml with the environment. Returns the text itself if it has the environment. */
export function addEnvironment(text: string, environment: string): string {
  const lines = linesOfEnvironment(text, environment);
  return lines === "" ? text : `${text.trimEnd()}\n\n${lines}`;
}

/** Returns wrangler.toml with the region as the placement of the environment, or of the default one. */
export function setRegion(text: string, region: string, environment: string | undefined): string {
  const config = read(text);
  const target = environment ? config.env?.[environment] : config;
  if (target) target.placement = { region };
  return patch(text, config);
}
