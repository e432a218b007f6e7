import { repeat, type Shot } from "./load.ts";
import { type Extent, MEGABYTE, SMALL_FILE } from "./measures.ts";
import { append, beginUpload, get, type Server, startServer, type Team, upload } from "./server.ts";

interface Case {
  name: string;
  goalMegabytes?: number;
  isQuick?: boolean;
  prepare?: (server: Server, team: Team) => Promise<unknown>;
  /** @returns which uploads were refused, where some may be */
  work: (server: Server, team: Team) => Promise<boolean[] | undefined>;
}

const LARGE_FILE = Buffer.alloc(95 * MEGABYTE, 7);
const SLOW_FILE = Buffer.alloc(12 * MEGABYTE, 7);
/** Of a slow upload: most of its stops are in the middle of a part of 5 MiB. */
const PIECE_BYTES = 1.5 * MEGABYTE;

/** By how much the process grows. Each on a server of its own: one that has grown before grows less. */
export async function measureMemory({ isQuick, say }: Extent) {
  const rows = [];
  for (const { name, goalMegabytes = null, prepare, work } of isQuick ? CASES.filter((one) => one.isQuick) : CASES) {
    say(`memory: ${name}`);
    const server = await startServer();
    try {
      const team = await server.foundTeam();
      await prepare?.(server, team);
      await server.load.send(upload(SMALL_FILE, team));
      await repeat(50, 4, () => server.load.send(get("/auth/v1/users?limit=100", team)));
      let refusals: boolean[] | undefined;
      const growthBytes = await server.process.growth(async () => {
        refusals = await work(server, team);
      });
      const uploads = refusals && { atOnce: refusals.length, refused: refusals.filter(Boolean).length };
      rows.push({ name, growthMegabytes: growthBytes / MEGABYTE, goalMegabytes, uploads });
    } finally {
      await server.close();
    }
  }
  return rows;
}

/** So many at once, none of which may be refused. */
const send = (count: number, shot: (team: Team) => Shot) => async (server: Server, team: Team) => {
  await repeat(count, count, () => server.load.send(shot(team), false));
  return undefined;
};
const bare = (name: string) => (): Shot => ({ method: "POST", path: `/bare/${name}`, body: [LARGE_FILE] });
const form = (team: Team) => upload(LARGE_FILE, { ...team, database: "DB" });
/** Without the local R2, which is in the same process. */
const alone = (team: Team) => ({ ...team, database: "DB" as const, isNowhere: true });
const formAlone = (team: Team) => upload(LARGE_FILE, alone(team));

/**
 * Sends bodies by turns, a piece of each, and the next once the service has nothing more to do with the last: as slow
 * clients do, and all are under way until the last piece. @returns which were refused
 */
async function sendSlowly({ load, process }: Server, shots: Shot[], body: Uint8Array): Promise<boolean[]> {
  const sendings = shots.map((shot) => {
    const { answer, write, end } = load.open(shot);
    const isRefused = answer.then(
      () => false,
      () => true,
    );
    return { isRefused, end, write };
  });
  for (let at = 0; at < body.length; at += PIECE_BYTES) {
    const piece = body.subarray(at, at + PIECE_BYTES);
    await Promise.all(sendings.map(({ write, isRefused }) => Promise.race([write(piece), isRefused])));
    await process.settled();
  }
  for (const { end } of sendings) end();
  return Promise.all(sendings.map(({ isRefused }) => isRefused));
}

const slowForms = (count: number) => async (server: Server, team: Team) => {
  const shot = upload(SLOW_FILE, alone(team));
  const body = Buffer.concat(shot.body ?? []);
  return sendSlowly(server, Array<Shot>(count).fill({ ...shot, body: [body] }), body);
};

/** A team may have 100 unfinished. */
const UPLOADS_OF_A_TEAM = 100;

const slowReads = (count: number, name: "read" | "hash") => async (server: Server) => {
  await sendSlowly(server, Array<Shot>(count).fill({ ...bare(name)(), body: [SLOW_FILE] }), SLOW_FILE);
  return undefined;
};

const slowByTus = (count: number) => async (server: Server) => {
  const teams = await repeat(Math.ceil(count / UPLOADS_OF_A_TEAM), 1, () => server.foundTeam());
  const shots = await repeat(count, 8, async (i) => {
    const as = alone(teams[i % teams.length] as Team);
    const { location } = await server.load.send(beginUpload(SLOW_FILE.length, as));
    return append(location, 0, SLOW_FILE, as);
  });
  return sendSlowly(server, shots, SLOW_FILE);
};

const CASES: Case[] = [
  { name: "upload 95 MB", goalMegabytes: 64, work: send(1, formAlone) },
  { name: "upload 95 MB, eight at once", goalMegabytes: 64, isQuick: true, work: send(8, formAlone) },
  { name: "32 slow uploads of 12 MB, by tus", goalMegabytes: 128, isQuick: true, work: slowByTus(32) },
  { name: "200 slow uploads of 12 MB, by tus", goalMegabytes: 128, work: slowByTus(200) },
  { name: "200 slow uploads of 12 MB, by form", goalMegabytes: 128, work: slowForms(200) },
  {
    name: "list 100,000 users",
    goalMegabytes: 64,
    isQuick: true,
    prepare: (server, team) => server.seed("users", team, 1, 100_000),
    work: send(1, (team) => get("/auth/v1/users", team)),
  },
  { name: "upload 95 MB, with the local R2", work: send(1, form) },
  { name: "upload 95 MB, eight at once, with the local R2", work: send(8, form) },
  { name: "bare put of 95 MB", work: send(1, bare("put")) },
  { name: "bare put of 95 MB, eight at once", work: send(8, bare("put")) },
  { name: "bare read of 95 MB, eight at once", work: send(8, bare("read")) },
  { name: "32 slow bare reads of 12 MB", work: slowReads(32, "read") },
  { name: "200 slow bare reads of 12 MB", work: slowReads(200, "read") },
  { name: "200 slow bare reads of 12 MB, hashed", work: slowReads(200, "hash") },
];
