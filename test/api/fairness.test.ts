import { describe, expect, test } from "vitest";
import { MAX_PROMPT_FILES } from "../../src/domain/files/files.ts";
import { type Deps, newTeam, startWorker, upload } from "../support/harness.ts";

/* The files of a team with many unprocessed files wait in a separate queue, so that they delay no other team. */

/** A Worker whose queues only record the ids of the files. */
function recordingWorker() {
  const [prompt, bulk]: [string[], string[]] = [[], []];
  const queueOf = (ids: string[]): Deps["jobs"] => ({
    send: async ({ fileId }) => void ids.push(fileId),
    sendAll: async (jobs) => void ids.push(...jobs.map(({ fileId }) => fileId)),
    check: async () => undefined,
  });
  const worker = startWorker((deps) => ({ ...deps, jobs: queueOf(prompt), bulkJobs: queueOf(bulk) }));
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

  test("is the bulk queue if a batch reprocesses more than 20 files", async () => {
    const { worker, prompt, bulk } = recordingWorker();
    const team = await newTeam(worker);
    const ids: string[] = [];
    for (let i = 0; i < MAX_PROMPT_FILES + 1; i++) ids.push(await upload(team, `text ${i}`, `${i}.txt`));
    const reprocess = (some: string[]) =>
      team.call("POST", "/docs/v1/uploads/batch", { json: { action: "reprocess", ids: some } });
    prompt.length = 0;
    bulk.length = 0;
    expect((await reprocess(ids)).status).toBe(200);
    expect([prompt.length, bulk.length]).toEqual([0, ids.length]);
    expect((await reprocess(ids.slice(0, 5))).status).toBe(200);
    expect([prompt.length, bulk.length]).toEqual([5, ids.length]);
  });
});
