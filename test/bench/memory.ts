import { type Call, repeat } from "./load.ts";
import { MEGABYTE, type Scope, SMALL_FILE } from "./measures.ts";
import {
  appendChunk,
  createLink,
  createResumable,
  formUpload,
  get,
  type Server,
  startServer,
  type Team,
} from "./server.ts";

const LARGE_FILE = Buffer.alloc(95 * MEGABYTE, 7);
/** Zeros, because the bucket that drops bytes returns zeros when a chunk is read back. */
const SLOW_FILE = Buffer.alloc(12 * MEGABYTE);
/** Most pauses of a slow upload then fall into the middle of a 5 MiB part. */
const SLOW_STEP_BYTES = 1.5 * MEGABYTE;
const MAX_UNFINISHED_UPLOADS = 100;

interface Case {
  name: string;
  goalMegabytes?: number;
  isQuick?: boolean;
  prepare?: (server: Server, team: Team) => Promise<unknown>;
  /** @returns how many uploads were rejected, if any may be */
  work: (server: Server, team: Team) => Promise<number | undefined>;
}

/** Measures by how much the process grows. Each case has its own server: a process that grew before grows less. */
export async function measureMemory({ isQuick, log }: Scope) {
  const rows = [];
  for (const { name, goalMegabytes = null, prepare, work } of CASES.filter((one) => !isQuick || one.isQuick)) {
    log(`memory: ${name}`);
    const server = await startServer();
    try {
      const team = await server.createTeam();
      await prepare?.(server, team);
      await server.load.send(formUpload(SMALL_FILE, team));
      await repeat(50, 4, () => server.load.send(get("/auth/v1/users?limit=100", team)));
      let rejected: number | undefined;
      const growthBytes = await server.process.growth(async () => {
        rejected = await work(server, team);
      });
      rows.push({ name, growthMegabytes: growthBytes / MEGABYTE, goalMegabytes, rejected: rejected ?? null });
    } finally {
      await server.close();
    }
  }
  return rows;
}

/** The local R2 is in the measured process, so uploads go to one that drops the bytes. */
const dropping = (team: Team): Team => ({ ...team, database: "DB", dropsBytes: true });
const bareCall = (name: string, body: Uint8Array): Call => ({ method: "POST", path: `/bare/${name}`, body: [body] });

const send = (count: number, call: (team: Team) => Call) => async (server: Server, team: Team) => {
  await repeat(count, count, () => server.load.send(call(team), false));
  return undefined;
};

/** Sends all bodies in steps, and waits until the service is idle between steps, as with many slow clients. */
async function sendSlowly({ load, process }: Server, calls: Call[], body: Uint8Array): Promise<number> {
  const open = calls.map((call) => {
    const { reply, write, end } = load.open({ ...call, body: [body] });
    const isRejected = reply.then(
      () => false,
      () => true,
    );
    return { isRejected, write, end };
  });
  for (let at = 0; at < body.length; at += SLOW_STEP_BYTES) {
    const step = body.subarray(at, at + SLOW_STEP_BYTES);
    await Promise.all(open.map(({ write, isRejected }) => Promise.race([write(step), isRejected])));
    await process.settled();
  }
  for (const { end } of open) end();
  return (await Promise.all(open.map(({ isRejected }) => isRejected))).filter(Boolean).length;
}

const slowForms = (count: number) => (server: Server, team: Team) => {
  const call = formUpload(SLOW_FILE, dropping(team));
  return sendSlowly(server, Array<Call>(count).fill(call), Buffer.concat(call.body ?? []));
};

const slowReads = (count: number) => async (server: Server) => {
  await sendSlowly(server, Array<Call>(count).fill(bareCall("hash", SLOW_FILE)), SLOW_FILE);
  return undefined;
};

const slowResumables = (count: number) => async (server: Server) => {
  const teams = await repeat(Math.ceil(count / MAX_UNFINISHED_UPLOADS), 1, () => server.createTeam());
  const calls = await repeat(count, 8, async (i) => {
    const team = dropping(teams[i % teams.length] as Team);
    const { location } = await server.load.send(createResumable(SLOW_FILE.length, team));
    return appendChunk(location, 0, SLOW_FILE, team);
  });
  return sendSlowly(server, calls, SLOW_FILE);
};

const DOWNLOADS = 50;
let linkPath = "";

const CASES: Case[] = [
  {
    name: `${DOWNLOADS} downloads of 95 MB by link`,
    goalMegabytes: 64,
    isQuick: true,
    prepare: async ({ load }, team) => {
      linkPath = (await createLink(load, LARGE_FILE, dropping(team))).path;
    },
    work: send(DOWNLOADS, (team) => get(linkPath, dropping(team))),
  },
  {
    name: `${DOWNLOADS} bare downloads of 95 MB`,
    work: send(DOWNLOADS, (team) => get(`/bare/zeros?bytes=${LARGE_FILE.length}`, team)),
  },
  {
    name: "8 form uploads of 95 MB",
    goalMegabytes: 64,
    isQuick: true,
    work: send(8, (team) => formUpload(LARGE_FILE, dropping(team))),
  },
  { name: "8 bare reads of 95 MB", work: send(8, () => bareCall("read", LARGE_FILE)) },
  { name: "32 slow resumable uploads of 12 MB", goalMegabytes: 128, isQuick: true, work: slowResumables(32) },
  { name: "200 slow resumable uploads of 12 MB", goalMegabytes: 128, work: slowResumables(200) },
  { name: "200 slow form uploads of 12 MB", goalMegabytes: 128, work: slowForms(200) },
  { name: "200 slow bare reads of 12 MB, hashed", work: slowReads(200) },
  {
    name: "list of 100,000 users",
    goalMegabytes: 64,
    isQuick: true,
    prepare: (server, team) => server.seed("users", team, 1, 100_000),
    work: send(1, (team) => get("/auth/v1/users", team)),
  },
];
