import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { repeat } from "./load.ts";
import { formUpload, get, ROOT, type Scope, startServer, type Team } from "./server.ts";

/* How long a file waits for its processing, alone and while another team has thousands of unprocessed files. */

const IMPORTED_FILES = 2000;
const POLL_MILLISECONDS = 10;

export async function measureFairness({ log }: Scope) {
  const server = await startServer();
  const audio = readFileSync(join(ROOT, "test/audio/tone-vbr.mp3"));
  try {
    const upload = async (team: Team): Promise<string> =>
      JSON.parse((await server.load.send(formUpload(audio, team))).text).data._id;
    /** @returns the seconds from the response of an upload until its file is completed */
    const waitOf = async (team: Team): Promise<number> => {
      const id = await upload(team);
      const startedAt = performance.now();
      for (;;) {
        const { text } = await server.load.send(get(`/docs/v1/uploads/${id}/status`, team));
        const { status } = JSON.parse(text).data;
        if (status === "completed") return (performance.now() - startedAt) / 1000;
        if (status === "failed") throw new Error("The file failed.");
        await sleep(POLL_MILLISECONDS);
      }
    };
    const waits = async (team: Team, count: number) =>
      (await repeat(count, 1, () => waitOf(team))).sort((a, b) => a - b);
    const [importing, other] = [await server.createTeam(), await server.createTeam()];
    await repeat(IMPORTED_FILES, 16, () => upload(importing));
    await server.idle();
    log("fairness: uploaded");
    const alone = await waits(other, 10);
    await server.control("pending", importing);
    const pendingBefore = await server.countPending(importing);
    const duringImport = await waits(other, 10);
    const pendingAfter = await server.countPending(importing);
    log("fairness: measured");
    const median = (sorted: number[]) => sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
    return {
      waits: [
        { name: "alone", median: median(alone), longest: alone.at(-1) ?? Number.NaN },
        { name: "during the import", median: median(duringImport), longest: duringImport.at(-1) ?? Number.NaN },
      ],
      pendingBefore,
      pendingAfter,
    };
  } finally {
    await server.close();
  }
}
