import { describe, expect, test } from "vitest";
import { MAX_PROMPT_BYTES, MAX_PROMPT_FILES } from "../../src/files/files.ts";
import { DB } from "../support/databases.ts";
import { type Deps, newTeam, startWorker, upload, withoutLimits } from "../support/harness.ts";

/* The files of a team with many unprocessed files wait in a separate queue, so that they delay no other team. */

/** A Worker whose queues only record the ids of the files. */
function recordingWorker() {
  const [prompt, bulk]: [string[], string[]] = [[], []];
  const queueOf = (ids: string[]): Deps["jobs"] => ({
    sendAll: async (jobs) => void ids.push(...jobs.map(({ fileId }) => fileId)),
    check: async () => undefined,
  });
  const worker = startWorker((deps) => ({ ...withoutLimits(deps), jobs: queueOf(prompt), bulkJobs: queueOf(bulk) }));
  return { worker, prompt, bulk };
}

describe("The queue of a file", () => {
  test("is the bulk queue once its team has more than 20 unprocessed files, and no other team's", async () => {
    const { worker, prompt, bulk } = recordingWorker();
    const [importing, other] = [await newTeam(worker), await newTeam(worker)];
    const ids: string[] = [];
    for (let i = 0; i < MAX_PROMPT_FILES + 3; i++) ids.push(await upload(importing, `text ${i}`, `${i}.txt`));
    expect(prompt).toEqual(ids.slice(0, MAX_PROMPT_FILES));
    expect(bulk).toEqual(ids.slice(MAX_PROMPT_FILES));
    const id = await upload(other, "text", "a.txt");
    expect(prompt.at(-1)).toBe(id);
  });

  test("is the bulk queue once its team has more than 1 GB of unprocessed files, which are read back", async () => {
    const { worker, prompt, bulk } = recordingWorker();
    const [importing, other] = [await newTeam(worker), await newTeam(worker)];
    const large = await upload(importing, "large.txt", "text");
    const resize = (sizeBytes: number) =>
      DB.prepare("update files set size_bytes = ? where id = ?").bind(sizeBytes, large).run();
    await resize(MAX_PROMPT_BYTES - "text".length);
    const second = await upload(importing, "a.txt", "text");
    await resize(MAX_PROMPT_BYTES);
    const third = await upload(importing, "b.txt", "text");
    const others = await upload(other, "a.txt", "text");
    expect([prompt, bulk]).toEqual([[large, second, others], [third]]);
  });

  test("is the bulk queue if more than 20 are reprocessed, in one batch, in several, or one by one", async () => {
    const { worker, prompt, bulk } = recordingWorker();
    const team = await newTeam(worker);
    const ids: string[] = [];
    for (let i = 0; i < MAX_PROMPT_FILES + 5; i++) ids.push(await upload(team, `text ${i}`, `${i}.txt`));
    /** Processes all files, reprocesses these, and counts the messages of both queues. */
    const queued = async (calls: [path: string, json?: object][]) => {
      await DB.prepare("update files set status = 'completed', processed_at = 1 where team_id = ?")
        .bind(team.teamId)
        .run();
      prompt.length = 0;
      bulk.length = 0;
      for (const [path, json] of calls) {
        const { status, text } = await team.call("POST", `/docs/v1/uploads/${path}`, { json });
        expect(status, text).toBe(200);
      }
      return [prompt.length, bulk.length];
    };
    const batch = (some: string[]): [string, object] => ["batch", { action: "reprocess", ids: some }];
    const one = (id: string): [string] => [`${id}/reprocess`];
    expect(await queued([batch(ids)])).toEqual([0, ids.length]);
    expect(await queued([batch(ids.slice(0, 5))])).toEqual([5, 0]);
    const first = ids.slice(0, MAX_PROMPT_FILES - 1);
    const [next = "", last = "", ...rest] = ids.slice(MAX_PROMPT_FILES - 1);
    expect(await queued([batch(first), one(next), one(last)])).toEqual([MAX_PROMPT_FILES, 1]);
    expect(await queued([batch(first), batch(rest)])).toEqual([first.length, rest.length]);
  });
});
