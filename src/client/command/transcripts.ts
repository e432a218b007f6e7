import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { StowageError } from "../index.ts";
import { addGroup, type Define, FILE, FILES, removeEach, withDeletion } from "./command.ts";
import type { Context } from "./context.ts";
import { Failure, failureAbout, failureOf } from "./failures.ts";
import { findFile, type Named } from "./organizing.ts";

/** Finds out why there is no transcript: the file may not exist. */
async function explainMissing({ stowage, call }: Context, { id, label }: Named): Promise<Failure> {
  const file = await stowage.files.get(id, call).catch((error) => failureOf(error, label));
  return file instanceof Failure ? file : new Failure("not_found", `${label}: No transcript.`);
}

export function addTranscriptCommands(program: CommandUnknownOpts, define: Define): void {
  const group = addGroup(program, "transcript", "Set, get and delete transcripts (WebVTT or SubRip).", [
    "stowage transcript put interview.vtt podcast/interview.mp3 --language en",
  ]);
  define(
    group
      .command("put")
      .argument("<vtt>", "local WebVTT or SubRip file")
      .argument(...FILE)
      .option("--language <tag>", "BCP 47 tag, such as en or de-CH"),
    { summary: "Set the transcript of a file", examples: ["stowage transcript put a.vtt 0193477c0a5e2b7f4d1c8e90"] },
    async (context, [vtt, given], { language }) => {
      const { stowage, call, io, results } = context;
      const text = await readFile(resolve(io.cwd, vtt), "utf8").catch((cause: NodeJS.ErrnoException) => {
        if (cause.code !== "ENOENT") throw failureOf(cause, vtt);
        const message = `No such file here: ${vtt}. Name the local file first.`;
        throw new Failure("failed", message, { cause, subject: vtt });
      });
      const { id, label } = await findFile(context, given);
      const stored = await stowage.files.setTranscript(id, text, { language }, call).catch(failureAbout(vtt));
      results.print({ id, ...stored }, [label, "transcript set"]);
    },
  );
  define(
    group.command("get").argument(...FILE),
    { summary: "Write the transcript of a file to stdout", examples: ["stowage transcript get podcast/a.mp3 > a.vtt"] },
    async (context, [given]) => {
      const { id, label } = await findFile(context, given);
      const text = await context.stowage.files.getTranscript(id, context.call).catch(failureAbout(label));
      if (text === null) throw await explainMissing(context, { id, label });
      if (context.results.isJson) context.results.print({ id, transcript: text }, []);
      else context.results.printText(text);
    },
  );
  define(
    withDeletion(group.command("rm").argument(...FILES)),
    { ids: "files", summary: "Delete the transcripts of files", examples: ["stowage transcript rm podcast/a.mp3"] },
    async (context, [given], options) => {
      const { stowage, call } = context;
      const find = async (one: string) => {
        const { id, label } = await findFile(context, one);
        const { transcript } = await stowage.files.get(id, call);
        if (!transcript) throw new Failure("not_found", `${label}: No transcript.`);
        return id;
      };
      const remove = (id: string) =>
        stowage.files.deleteTranscript(id, call).catch(async (error) => {
          const isMissing = error instanceof StowageError && error.code === "not_found";
          throw isMissing ? await explainMissing(context, { id, label: id }) : error;
        });
      const row = { transcript: null };
      const planned = { row, text: "transcript would be deleted" };
      const words = { verb: "Delete the transcript of", noun: "file", done: "transcript deleted", row, planned, find };
      await removeEach(context, given, words, options, remove);
    },
  );
}
