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

function bashScript(program: Command): string {
  const globals = program.options.flatMap(({ long }) => (long && long !== "--version" ? [long] : []));
  const cases = [...wordsOf(program, "stowage", [])].map(([path, words]) => {
    const all = path === "stowage" ? words : [...words, ...globals];
    return `    "${path}") words="${all.join(" ")}" ;;`;
  });
  // The path is the words before the cursor that are commands; options and arguments end it.
  return `_stowage() {
  local path=stowage word words found
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    _stowage_words "$path"
    case " $words " in *" $word "*) case "$word" in -*) ;; *) path="$path $word" ;; esac ;; esac
  done
  _stowage_words "$path"
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
_stowage_words() {
  case "$1" in
${cases.join("\n")}
    *) words="" ;;
  esac
}
complete -o default -F _stowage stowage`;
}

function fishScript(program: Command): string {
  const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines: string[] = [];
  const add = (command: Command, condition: string) => {
    for (const { long, description, required } of command.options) {
      if (!long) continue;
      lines.push(
        `complete -c stowage${condition} -l ${long.slice(2)}${required ? " -r" : ""} -d ${quote(description)}`,
      );
    }
    const names = command.commands.map((sub) => sub.name());
    const isHere =
      condition === ""
        ? "__fish_use_subcommand"
        : `${condition.slice(5, -1)}; and not __fish_seen_subcommand_from ${names.join(" ")}`;
    for (const sub of command.commands) {
      lines.push(`complete -c stowage -n '${isHere}' -a ${sub.name()} -d ${quote(sub.summary() || sub.description())}`);
      add(
        sub,
        ` -n '${condition === "" ? "" : `${condition.slice(5, -1)}; and `}__fish_seen_subcommand_from ${sub.name()}'`,
      );
    }
  };
  add(program, "");
  return lines.join("\n");
}

const SCRIPTS: Record<Shell, (program: Command) => string> = {
  bash: bashScript,
  // zsh runs the completions of bash.
  zsh: (program) => `autoload -Uz compinit bashcompinit && compinit && bashcompinit\n${bashScript(program)}`,
  fish: fishScript,
};

export function addCompletionCommand(program: Command, define: Define): void {
  define(
    program.command("completion").addArgument(new Argument("<shell>", "your shell").choices(SHELLS)),
    {
      summary: "Print a completion script for bash, zsh, or fish",
      examples: [
        "stowage completion fish > ~/.config/fish/completions/stowage.fish",
        "source <(stowage completion bash)    # in ~/.bashrc",
        "source <(stowage completion zsh)     # in ~/.zshrc",
      ],
    },
    async ({ io, results }, [shell]) => {
      const script = SCRIPTS[shell as Shell](program);
      if (results.isJson) results.print({ shell, script }, []);
      else io.stdout.write(`${script}\n`);
    },
  );
}
