import { createHash } from "node:crypto";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Argument, type CommandUnknownOpts, Option } from "@commander-js/extra-typings";
import type { CallOptions, List, Stowage } from "../index.ts";
import { type Define, type IdKind, idKinds } from "./command.ts";
import { stateFolder } from "./config.ts";
import type { Context } from "./context.ts";
import { Failure, isId } from "./failures.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

/** Lists whose IDs are completed. Only the first page is requested. */
const LISTS: Record<IdKind, (stowage: Stowage, call: CallOptions) => List<{ _id: string }>> = {
  files: ({ files }, call) => files.list({}, call),
  keys: ({ keys }, call) => keys.list({}, call),
  sessions: ({ sessions }, call) => sessions.list({}, call),
  teams: ({ teams }, call) => teams.list({}, call),
  uploads: ({ unfinishedUploads }, call) => unfinishedUploads.list({}, call),
  users: ({ users }, call) => users.list({}, call),
  webhooks: ({ webhooks }, call) => webhooks.list(call),
};
const CACHE_MILLISECONDS = 60_000;
/** Somebody waits at a prompt. */
const TIMEOUT_MILLISECONDS = 2000;

/**
 * Returns IDs from a short cache or from the service; none if they can't be had quickly. Nothing else: shells expand what
 * they complete.
 */
async function findIds({ io, options, stowage, signal }: Context, kind: IdKind): Promise<string[]> {
  const hash = createHash("sha256").update(`${stowage.url}\n${stowage.key}\n${options.profile}\n${kind}`).digest("hex");
  const file = join(stateFolder(io.env), `ids-${hash.slice(0, 16)}`);
  try {
    const age = Date.now() - (await stat(file).catch(() => ({ mtimeMs: 0 }))).mtimeMs;
    if (age < CACHE_MILLISECONDS) return (await readFile(file, "utf8")).split(" ").filter(isId);
    const call = { signal, timeout: TIMEOUT_MILLISECONDS, maxRetries: 0 };
    const ids = (await LISTS[kind](stowage, call)).items.map(({ _id }) => _id).filter(isId);
    await mkdir(stateFolder(io.env), { recursive: true, mode: 0o700 });
    await writeFile(file, ids.join(" "), { mode: 0o600 });
    return ids;
  } catch {
    return [];
  }
}

/** Lists what may follow `path`, such as the commands and options of `stowage keys`. `@keys` stands for their IDs. */
function* wordsOf(
  command: CommandUnknownOpts,
  path: string,
  globals: string[],
): Generator<[path: string, words: string[]]> {
  const options = command.options.flatMap(({ long }) => (long ? [long] : []));
  const values = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  const kind = idKinds.get(command);
  const names = command.commands.map((sub) => sub.name());
  yield [path, [...names, ...values, ...options, ...globals, "--help", ...(kind ? [`@${kind}`] : [])]];
  for (const { long, argChoices } of command.options) if (long && argChoices) yield [`${path} ${long}`, argChoices];
  const inherited = path === "stowage" ? options.filter((long) => long !== "--version") : globals;
  for (const sub of command.commands) yield* wordsOf(sub, `${path} ${sub.name()}`, inherited);
}

/** A function that sets `found` to what may follow the command `$1`. In zsh, `words` and `path` are special. */
function wordsFunction(program: CommandUnknownOpts): string {
  const cases = [...wordsOf(program, "stowage", [])].map(
    ([path, words]) => `    "${path}") found="${words.join(" ")}" ;;`,
  );
  return `_stowage_words() {
  case "$1" in
${cases.join("\n")}
    *) found="" ;;
  esac
}`;
}

/**
 * Follows the commands before the cursor; options and arguments are skipped. Then `found` is what may come next: the values
 * of the option before the cursor, or else words, whose IDs are requested unless the current word is an option.
 */
const followCommands = (wordsBefore: string) => `  local prefix=stowage last= word found
  for word in ${wordsBefore}; do
    _stowage_words "$prefix"
    case " $found " in *" $word "*) case "$word" in -*) ;; *) prefix="$prefix $word" ;; esac ;; esac
    last="$word"
  done
  _stowage_words "$prefix $last"
  case "$last" in -*) ;; *) found="" ;; esac
  [ -n "$found" ] || _stowage_words "$prefix"
  case "$current $found" in
    -*@*) found="\${found%@*}" ;;
    *@*) found="\${found%@*} $("$program" completion --ids "\${found##*@}" 2>/dev/null)" ;;
  esac`;

/* The last item of a list is completed, after the commas. Bash also splits words at colons, so it replaces only what follows. */
const bashScript = (program: CommandUnknownOpts) => `${wordsFunction(program)}
_stowage() {
  local line="\${COMP_LINE:0:COMP_POINT}" program="\${COMP_WORDS[0]}" current before
  current="\${line##* }"
  read -ra before <<< "\${line%"$current"}"
${followCommands(`"\${before[@]:1}"`)}
  COMPREPLY=($(compgen -P "\${current%"\${current##*,}"}" -W "$found" -- "\${current##*,}"))
  [[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("\${COMPREPLY[@]#"\${current%"\${current##*:}"}"}")
}
complete -o default -F _stowage stowage`;

const zshScript = (program: CommandUnknownOpts) => `${wordsFunction(program)}
_stowage() {
  local program="\${words[1]}" current="\${words[CURRENT]}"
${followCommands(`"\${(@)words[2,CURRENT-1]}"`)}
  compset -P '*,'
  compadd -- \${=found}
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _stowage stowage`;

function fishScript(program: CommandUnknownOpts): string {
  const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines: string[] = [];
  const complete = (conditions: string[], rest: string, description: string) => {
    const when = conditions.length === 0 ? "" : ` -n ${quote(conditions.join("; and "))}`;
    lines.push(`complete -c stowage${when} ${rest} -d ${quote(description)}`);
  };
  /** Adds the options and subcommands of a command. `conditions` detect it on the command line. */
  const add = (command: CommandUnknownOpts, conditions: string[]) => {
    for (const { long, description, required, argChoices } of command.options) {
      const values = argChoices ? ` -x -a ${quote(argChoices.join(" "))}` : required ? " -r" : "";
      if (long) complete(conditions, `-l ${long.slice(2)}${values}`, description);
    }
    const kind = idKinds.get(command);
    if (kind) complete(conditions, `-a ${quote(`(stowage completion --ids ${kind})`)}`, "ID");
    const names = command.commands.map((sub) => sub.name()).join(" ");
    const isOpen = conditions.length === 0 ? "__fish_use_subcommand" : `not __fish_seen_subcommand_from ${names}`;
    for (const sub of command.commands) {
      complete([...conditions, isOpen], `-a ${sub.name()}`, sub.summary() || sub.description());
      add(sub, [...conditions, `__fish_seen_subcommand_from ${sub.name()}`]);
    }
  };
  add(program, []);
  return lines.join("\n");
}

const SCRIPTS: Record<Shell, (program: CommandUnknownOpts) => string> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};

export function addCompletionCommand(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("completion")
      .addArgument(new Argument("[shell]", "your shell").choices(SHELLS))
      .addOption(new Option("--ids <list>", "print IDs").choices(Object.keys(LISTS) as IdKind[]).hideHelp()),
    {
      summary: "Print a completion script for bash, zsh, or fish",
      notes: "The script also completes the values of options, and the newest IDs, for which it asks the service.",
      examples: [
        "stowage completion fish > ~/.config/fish/completions/stowage.fish",
        "source <(stowage completion bash)    # in ~/.bashrc",
        "source <(stowage completion zsh)     # in ~/.zshrc",
      ],
    },
    async (context, [shell], { ids: kind }) => {
      const { io, results } = context;
      if (kind) return void io.stdout.write(`${(await findIds(context, kind)).join("\n")}\n`);
      if (!shell) throw new Failure("usage", `Name your shell: ${SHELLS.join(", ")}.`);
      const script = SCRIPTS[shell](program);
      if (results.isJson) results.print({ shell, script }, []);
      else io.stdout.write(`${script}\n`);
    },
  );
}
