import { Argument, type Command } from "commander";
import type { Define } from "./command.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

/** Lists what may follow `path`, such as the commands and options of `stowage keys`. */
function* wordsOf(command: Command, path: string, globals: string[]): Generator<[path: string, words: string[]]> {
  const options = command.options.flatMap(({ long }) => (long ? [long] : []));
  yield [path, [...command.commands.map((sub) => sub.name()), ...options, ...globals, "--help"]];
  for (const sub of command.commands) yield* wordsOf(sub, `${path} ${sub.name()}`, globals);
}

/** A function that sets `found` to what may follow the command `$1`. In zsh, `words` and `path` are special. */
function wordsFunction(program: Command): string {
  const globals = program.options.flatMap(({ long }) => (long && long !== "--version" ? [long] : []));
  const cases = [...wordsOf(program, "stowage", [])].map(([path, words]) => {
    const all = path === "stowage" ? words : [...words, ...globals];
    return `    "${path}") found="${all.join(" ")}" ;;`;
  });
  return `_stowage_words() {
  case "$1" in
${cases.join("\n")}
    *) found="" ;;
  esac
}`;
}

/** Follows the commands before the cursor; options and arguments are skipped. Then `found` is what may come next. */
const followCommands = (wordsBefore: string) => `  local prefix=stowage word found
  for word in ${wordsBefore}; do
    _stowage_words "$prefix"
    case " $found " in *" $word "*) case "$word" in -*) ;; *) prefix="$prefix $word" ;; esac ;; esac
  done
  _stowage_words "$prefix"`;

const bashScript = (program: Command) => `${wordsFunction(program)}
_stowage() {
${followCommands(`"\${COMP_WORDS[@]:1:COMP_CWORD-1}"`)}
  COMPREPLY=($(compgen -W "$found" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _stowage stowage`;

const zshScript = (program: Command) => `${wordsFunction(program)}
_stowage() {
${followCommands(`"\${(@)words[2,CURRENT-1]}"`)}
  compadd -- \${=found}
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _stowage stowage`;

function fishScript(program: Command): string {
  const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines: string[] = [];
  const complete = (conditions: string[], rest: string, description: string) => {
    const when = conditions.length === 0 ? "" : ` -n ${quote(conditions.join("; and "))}`;
    lines.push(`complete -c stowage${when} ${rest} -d ${quote(description)}`);
  };
  /** Adds the options and subcommands of a command. `conditions` detect it on the command line. */
  const add = (command: Command, conditions: string[]) => {
    for (const { long, description, required } of command.options)
      if (long) complete(conditions, `-l ${long.slice(2)}${required ? " -r" : ""}`, description);
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

const SCRIPTS: Record<Shell, (program: Command) => string> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};

export function addCompletionCommand(program: Command, define: Define): void {
  define(
    program.command("completion").addArgument(new Argument("<shell>", "your shell").choices(SHELLS)),
    {
      summary: "Print a completion script for bash, zsh, or fish",
      examples: [
        "stowage completion fish > ~/.config/fish/completions/stowage.fish",
        "source <(npx stowage completion bash)    # in ~/.bashrc",
        "source <(npx stowage completion zsh)     # in ~/.zshrc",
      ],
    },
    async ({ io, results }, [shell]) => {
      const script = SCRIPTS[shell as Shell](program);
      if (results.isJson) results.print({ shell, script }, []);
      else io.stdout.write(`${script}\n`);
    },
  );
}
