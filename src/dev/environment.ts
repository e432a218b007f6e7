/** The sections that an environment does not inherit, and its placement. All others apply to it as they are. */
const OWN_SECTIONS =
  /^(placement|vars|secrets|d1_databases|r2_buckets|queues\.producers|queues\.consumers|ratelimits|send_email)$/;
/** The settings that name a resource, which no two environments share. */
const RESOURCE = /^(database_name|bucket_name|queue|dead_letter_queue|S3_BUCKET|DEAD_LETTER_QUEUE) = "(.*)"$/;

/**
 * Returns wrangler.toml with an environment: a copy of the sections that environments don't inherit, in which every
 * resource has another name and every rate limit another counter. Returns the text itself if it has the environment.
 */
export function addEnvironment(text: string, environment: string): string {
  if (new RegExp(`^\\[+env\\.${environment}[.\\]]`, "m").test(text)) return text;
  const worker = /^name = "(.*)"$/m.exec(text)?.[1] ?? "";
  const counters = [...text.matchAll(/^namespace_id = "(\d+)"$/gm)].map(([, id]) => Number(id));
  let counter = Math.max(0, ...counters);
  let isOwn = false;
  const lines = [
    `# The environment "${environment}", as \`npm run deploy -- --env ${environment}\` created it.`,
    `[env.${environment}]`,
    "# Otherwise it would take over the custom domains.",
    "routes = []",
  ];
  for (const line of text.split("\n")) {
    const [, brackets = "", section = ""] = /^(\[+)([\w.-]+)\]+$/.exec(line) ?? [];
    if (section !== "") {
      isOwn = OWN_SECTIONS.test(section);
      if (isOwn) lines.push("", line.replace(`${brackets}${section}`, `${brackets}env.${environment}.${section}`));
      continue;
    }
    if (!isOwn || line === "" || /^(#|LINK_HOST )/.test(line)) continue;
    const [, name, value = ""] = RESOURCE.exec(line) ?? [];
    const suffix = value.startsWith(`${worker}-`) ? value.slice(worker.length) : "";
    const stem = suffix === "" ? value : worker;
    if (name) lines.push(`${name} = "${stem}-${environment}${suffix}"`);
    else if (line.startsWith("namespace_id")) lines.push(`namespace_id = "${++counter}"`);
    // Its database may be elsewhere.
    else if (line.startsWith("region = ")) lines.push('mode = "smart"');
    else lines.push(line);
  }
  return `${text.trimEnd()}\n\n${lines.join("\n")}\n`;
}
