import type { Call, Load } from "./load.ts";
import {
  createLink,
  formUpload,
  get,
  headers,
  MEBIBYTE,
  MEGABYTE,
  type Scope,
  type Server,
  SMALL_FILE,
  seededId,
  uploadInChunks,
} from "./server.ts";

const CONNECTIONS = 16;

export interface Side {
  work: () => Promise<unknown>;
  /** Runs before each round. */
  prepare?: () => Promise<unknown>;
}
export interface Comparison {
  name: string;
  goal: number;
  bare: Side;
  ours: Side;
  connections?: number;
  /** Runs per round; by default a round has a duration. */
  count?: number;
  /** Requests per run. */
  requests?: number;
}

export const median = (numbers: number[]) =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;

/** Compares the service with a baseline, in turns, so that a machine that slows down does so for both. */
export async function compare(server: Server, { isQuick, log }: Scope, comparisons: Comparison[]) {
  const seconds = isQuick ? 0.4 : 1;
  const rows = [];
  for (const { name, goal, bare, ours, connections = CONNECTIONS, count, requests = 1 } of comparisons) {
    log(name);
    const rateOf = async ({ work, prepare }: Side) => {
      await prepare?.();
      const volume = count === undefined ? { seconds } : { count };
      const rate = (await server.load.run(work, { connections, ...volume })) * requests;
      await server.idle();
      return rate;
    };
    const rates = { bare: [] as number[], ours: [] as number[] };
    // The first round warms both up and is not counted.
    for (let round = 0; round <= (isQuick ? 2 : 10); round++) {
      for (const side of round % 2 === 0 ? (["bare", "ours"] as const) : (["ours", "bare"] as const)) {
        const rate = await rateOf(side === "bare" ? bare : ours);
        if (round > 0) rates[side].push(rate);
      }
    }
    const ratios = rates.ours.map((rate, round) => rate / (rates.bare[round] ?? Number.NaN));
    rows.push({
      name,
      goal,
      connections,
      bare: median(rates.bare),
      ours: median(rates.ours),
      ratio: median(ratios),
      least: Math.min(...ratios),
      most: Math.max(...ratios),
    });
  }
  return rows;
}

/** The operations whose speed matters, and bare handlers that do the least work the platform allows for each. */
export async function overheadComparisons(server: Server): Promise<Comparison[]> {
  const { load } = server;
  const team = await server.createTeam();
  const idle = await server.createTeam("idle");
  await server.seed("users", team, 1000);
  await server.seed("files", team, 1000);
  const id = seededId(500);
  const repeating = (call: Call): Side => ({ work: () => load.send(call, false) });
  /** A read, against a bare handler and against one that also asks the rate limiter. */
  const reading = (name: string, goal: number, path: string, bare: string, query: string): Comparison[] => {
    const against = (handler: string) => repeating(get(`/bare/${handler}?${query}`, team));
    const ours = repeating(get(path, team));
    return [
      { name, goal, bare: against(bare), ours },
      { name: `${name}, against D1 and the rate limiter`, goal, bare: against(`${bare}AndCount`), ours },
    ];
  };
  const user = `hash=${team.tokenHash}&id=${id}`;
  const barePut = (bytes: Buffer, path: string): Call => ({ method: "POST", path, body: [bytes] });
  const barePutAndWrite = barePut(SMALL_FILE, `/bare/putAndWrite?team=${team.teamId}`);
  const large = Buffer.alloc(80 * MEGABYTE, 7);
  const recording = Buffer.alloc(95 * MEGABYTE, 7);

  const inChunks = (mebibytes: number): Comparison => ({
    name: `resumable upload of 95 MB in chunks of ${mebibytes} MiB`,
    goal: 0.88,
    connections: 2,
    count: 2,
    requests: 1 + Math.ceil(recording.length / (mebibytes * MEBIBYTE)),
    bare: { work: () => bareParts(load, recording, mebibytes * MEBIBYTE) },
    ours: { work: () => uploadInChunks(load, recording, mebibytes * MEBIBYTE, idle) },
  });

  const song = Buffer.alloc(5 * MEGABYTE, 7);
  const { location } = await load.send(formUpload(song, idle));
  const linked = await createLink(load, location, idle);
  const key = `${idle.teamId}/${location.split("/").at(-1)}-a.mp3`;
  /** Each part of the song by its link, in turn, as a player that seeks. */
  const download = (
    name: string,
    goal: number,
    handler: string,
    bytes: number,
    connections = CONNECTIONS,
  ): Comparison => {
    let offset = 0;
    const next = (call: (offset: number) => Call): Side => ({
      work: () => {
        offset = (offset + bytes) % song.length;
        return load.send(call(offset), false);
      },
    });
    const query = `key=${key}&link=${linked.id}&length=${bytes}`;
    return {
      name,
      goal,
      connections,
      bare: next((first) => get(`/bare/${handler}?${query}&offset=${first}`, idle)),
      ours: next((first) => ({
        ...get(linked.path, idle),
        headers: { ...headers(idle), Range: `bytes=${first}-${first + bytes - 1}` },
        status: 206,
      })),
    };
  };

  return [
    ...reading("get user", 0.92, `/auth/v1/users/${id}`, "get", user),
    ...reading("get signed URL", 0.92, `/docs/v1/uploads/${id}`, "get", user),
    ...reading("get metadata", 0.92, `/docs/v1/uploads/${id}/metadata`, "get", user),
    ...reading("list 20 files", 0.87, "/docs/v1/uploads", "list", `team=${team.teamId}`),
    download("100 KB of 5 MB by link, against R2", 0.85, "download", 100_000),
    download("100 KB of 5 MB by link, against D1 and R2", 0.95, "lookUpAndDownload", 100_000),
    download("100 KB by link, against D1, R2 and the rate limiter", 0.95, "lookUpAndDownloadAndCount", 100_000),
    download("5 MB by link, against R2", 0.85, "download", song.length, 4),
    download("5 MB by link, against D1 and R2", 0.95, "lookUpAndDownload", song.length, 4),
    {
      name: "upload 64 KB",
      goal: 0.72,
      bare: repeating(barePutAndWrite),
      ours: repeating(formUpload(SMALL_FILE, idle)),
    },
    {
      name: "upload 80 MB",
      goal: 0.85,
      connections: 2,
      count: 2,
      bare: repeating(barePut(large, "/bare/put")),
      ours: repeating(formUpload(large, idle)),
    },
    inChunks(80),
    inChunks(5),
  ];
}

/** Stores a file as parts, in as many requests as a resumable upload needs. */
async function bareParts(load: Load, file: Uint8Array, chunkBytes: number): Promise<void> {
  const { key, uploadId } = JSON.parse((await load.send({ method: "POST", path: "/bare/begin" })).text);
  const etags: string[] = [];
  for (let offset = 0; offset < file.length; offset += chunkBytes) {
    const isLast = offset + chunkBytes >= file.length;
    const part = { key, uploadId, number: `${etags.length + 1}`, ...(isLast && { etags: etags.join() }) };
    const body = [file.subarray(offset, offset + chunkBytes)];
    const { text } = await load.send({ method: "PATCH", path: `/bare/part?${new URLSearchParams(part)}`, body });
    etags.push(JSON.parse(text).etag);
  }
}
