import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import type { FoundTranscript, SearchState, TranscriptMatch } from "../index.ts";
import { formatDuration } from "../internal.ts";
import { type Define, parseCount, parseFolder, pathOf } from "./command.ts";
import type { Context } from "./context.ts";
import { findFile } from "./organizing.ts";
import { emphasized, plain } from "./text.ts";

/** Best first, so what follows is rarely of use. */
const DEFAULT_LIMIT = 20;
const MAX_PAGE_FILES = 100;
const TIME_CELLS = 8;

/** On one line, with its words where they were. */
const lineOf = (text: string) => text.replaceAll(/\s/g, " ");

const timeOf = ({ startSeconds }: TranscriptMatch) => formatDuration(Math.floor(startSeconds));

/** A row for each speaker of each place. */
const rowsOf = ({ file, matches }: FoundTranscript): string[][] =>
  matches.flatMap(({ startSeconds, turns }) =>
    turns.map(({ speaker, text }) => [file.id, `${startSeconds}`, speaker ?? "", lineOf(text), pathOf(file)]),
  );

/** A file with its places, for people on a terminal. */
function shown({ file, matches, matchCount }: FoundTranscript): string[] {
  const places = matches.flatMap((match) =>
    match.turns.map(({ speaker, text, marks }, at) => {
      const name = speaker === null ? "" : `${plain(speaker)}: `;
      return `${(at === 0 ? timeOf(match) : "").padStart(TIME_CELLS)}  ${name}${emphasized(lineOf(text), marks)}`;
    }),
  );
  const others = matchCount - matches.length;
  const more = others > 0 ? [plain(`${" ".repeat(TIME_CELLS)}  ${others} more, with --file ${file.id}`)] : [];
  return [plain(`${pathOf(file)}  ${file.id}`), ...places, ...more];
}

/** Says if transcripts may be missing. */
function notifyOf(context: Context, { isComplete, isFull }: SearchState): void {
  if (isFull) context.notify("The search has only the transcripts of the newest files: there are more than it holds.");
  else if (!isComplete)
    context.notify("The search is still reading transcripts, so some may be missing. Repeat it in a minute.");
}

export function addSearchCommand(program: CommandUnknownOpts, define: Define): void {
  define(
    program
      .command("search")
      .argument("<words...>", "words, or a phrase in quotes; the last one may be the beginning of a word")
      .option("--folder <folder>", "in files of this folder", parseFolder)
      .option("--under <folder>", "in files of this folder and below it", parseFolder)
      .option("--file <file>", "all places in this file: ID or path")
      .option("--uploaded-by <id>", "in files that this user uploaded")
      .option("--limit <n>", "show at most this many files", parseCount, DEFAULT_LIMIT),
    {
      summary: "Find what is said in transcripts, best first",
      notes: "A file is found if its transcript has all words, in any order, in any case and without accents.",
      examples: ["stowage search night shift --under podcast", `stowage search '"the night shift" lock' --json`],
    },
    async (context, [words], { file: given, limit, ...filters }) => {
      const { stowage, call, results } = context;
      const file = given === undefined ? undefined : (await findFile(context, given)).id;
      const query = { ...filters, file, limit: Math.min(limit + 1, MAX_PAGE_FILES) };
      const page = await stowage.files.searchTranscripts(words.join(" "), query, call);
      let files = 0;
      for await (const found of page) {
        if (files === limit) {
          context.notify(`More files match. Add --limit ${10 * Math.max(1, limit)} to see them.`);
          break;
        }
        files += 1;
        results.printRows(found, rowsOf(found), shown(found));
      }
      if (page.items.length === 0) context.notify("No transcript has these words.");
      notifyOf(context, page);
    },
  );
}
