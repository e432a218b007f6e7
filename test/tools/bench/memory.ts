import { type Call, repeat } from "./load.ts";
import {
  appendChunk,
  createLink,
  createResumable,
  formUpload,
  get,
  MEGABYTE,
  type Scope,
  type Server,
  SMALL_FILE,
  seededId,
  startServer,
  type Team,
} from "./server.ts";

const LARGE_FILE = Buffer.alloc(95 * MEGABYTE, 7);
/** Zeros, because the bucket that drops bytes returns zeros when a chunk is read back. */
const SLOW_FILE = Buffer.alloc(12 * MEGABYTE);
/** Most pauses of a slow upload then fall into the middle of a 5 MiB part. */
const SLOW_STEP_BYTES = 1.5 * MEGABYTE;
const MAX_UNFINISHED_UPLOADS = 100;

/** Prepares the calls that are measured, and returns how to send them. @returns how many were rejected, if any may be */
type Prepare = (server: Server, team: Team) => Promise<() => Promise<number | undefined>>;

interface Case {
  name: string;
  goalMegabytes: number | null;
  ours: Prepare;
  bare?: Prepare;
}

/** Measures by how much the process grows. Each case has its own server: a process that grew before grows less. */
export async function measureMemory({ log }: Scope) {
  const growthOf = async (prepare: Prepare) => {
    const server = await startServer();
    try {
      // The local R2 is in the measured process, so bytes go to one that drops them.
      const team = await server.createTeam("dropping");
      const work = await prepare(server, team);
      await server.load.send(formUpload(SMALL_FILE, team));
      await repeat(50, 4, () => server.load.send(get("/auth/v1/users?limit=100", team)));
      let rejected: number | undefined;
      const bytes = await server.process.growth(async () => {
        rejected = await work();
      });
      return { megabytes: bytes / MEGABYTE, rejected };
    } finally {
      await server.close();
    }
  };
  const rows = [];
  for (const { name, goalMegabytes, ours, bare } of CASES) {
    const { megabytes, rejected = null } = await growthOf(ours);
    const row = { name, megabytes, rejected, bare: bare ? (await growthOf(bare)).megabytes : null, goalMegabytes };
    log(`memory: ${JSON.stringify(row)}`);
    rows.push(row);
  }
  return rows;
}

const bareCall = (name: string, body: Uint8Array): Call => ({ method: "POST", path: `/bare/${name}`, body: [body] });

/** Sends `count` equal calls at once. */
const atOnce =
  (count: number, callFor: (team: Team, server: Server) => Call | Promise<Call>): Prepare =>
  async (server, team) => {
    const call = await callFor(team, server);
    return async () => {
      await repeat(count, count, () => server.load.send(call, false));
      return undefined;
    };
  };

/** Sends all bodies in steps, and waits until the service is idle between steps, as with many slow clients. */
const slowly =
  (callsFor: (server: Server) => Promise<Call[]>): Prepare =>
  async (server) => {
    const calls = await callsFor(server);
    return async () => {
      const open = calls.map((call) => {
        const { reply, write, end } = server.load.open({ ...call, body: [SLOW_FILE] });
        const isRejected = reply.then(
          () => false,
          () => true,
        );
        return { isRejected, write, end };
      });
      for (let at = 0; at < SLOW_FILE.length; at += SLOW_STEP_BYTES) {
        const step = SLOW_FILE.subarray(at, at + SLOW_STEP_BYTES);
        await Promise.all(open.map(({ write, isRejected }) => Promise.race([write(step), isRejected])));
        await server.process.settled();
      }
      for (const { end } of open) end();
      return (await Promise.all(open.map(({ isRejected }) => isRejected))).filter(Boolean).length;
    };
  };

const slowResumables = (count: number) =>
  slowly(async (server) => {
    const teams = await repeat(Math.ceil(count / MAX_UNFINISHED_UPLOADS), 1, () => server.createTeam("dropping"));
    return repeat(count, 8, async (i) => {
      const team = teams[i % teams.length] as Team;
      const { location } = await server.load.send(createResumable(SLOW_FILE.length, team));
      return appendChunk(location, 0, SLOW_FILE, team);
    });
  });
const slowHashes = (count: number) => slowly(async () => Array(count).fill(bareCall("hash", SLOW_FILE)));

const CASES: Case[] = [
  {
    name: "50 downloads of 95 MB by link",
    goalMegabytes: null,
    ours: atOnce(50, async (team, server) => {
      await server.seed("files", team, 1, LARGE_FILE.length);
      return get((await createLink(server.load, `/docs/v1/uploads/${seededId(1)}`, team)).path, team);
    }),
    bare: atOnce(50, (team) => get(`/bare/zeros?bytes=${LARGE_FILE.length}`, team)),
  },
  {
    name: "8 form uploads of 95 MB",
    goalMegabytes: 64,
    ours: atOnce(8, (team) => formUpload(LARGE_FILE, team)),
    bare: atOnce(8, () => bareCall("read", LARGE_FILE)),
  },
  { name: "32 slow resumable uploads of 12 MB", goalMegabytes: 128, ours: slowResumables(32), bare: slowHashes(32) },
  { name: "200 slow resumable uploads of 12 MB", goalMegabytes: 128, ours: slowResumables(200), bare: slowHashes(200) },
  {
    name: "list of 100,000 users",
    goalMegabytes: 64,
    ours: atOnce(1, async (team, server) => {
      await server.seed("users", team, 100_000);
      return get("/auth/v1/users", team);
    }),
  },
];
