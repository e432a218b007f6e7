import { existsSync, mkdtempSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/*
 * A server that many files share starts in parallel with the first tests. It leaves a mark when it is ready or has failed. The
 * files that need it wait for the mark: they run in other processes.
 */

const POLL_MILLISECONDS = 50;
const READY = "ready";

/** @returns the path of the mark */
export function markWhenReady(starting: Promise<unknown>): string {
  const mark = join(mkdtempSync(join(tmpdir(), "stowage mark ")), "mark");
  const leave = (text: string) => {
    writeFileSync(`${mark}.unfinished`, text);
    renameSync(`${mark}.unfinished`, mark);
  };
  starting.then(
    () => leave(READY),
    (error: Error) => leave(String(error?.stack ?? error)),
  );
  return mark;
}

/** @throws if it has failed to start */
export async function waitUntilReady(mark: string): Promise<void> {
  while (!existsSync(mark)) await sleep(POLL_MILLISECONDS);
  const text = readFileSync(mark, "utf8");
  if (text !== READY) throw new Error(`A shared server has not started: ${text}`);
}
