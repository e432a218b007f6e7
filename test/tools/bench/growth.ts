import { setTimeout as sleep } from "node:timers/promises";
import type { Effects } from "../../support/bindings.ts";
import type { Call } from "./load.ts";
import { formUpload, get, headers, json, type Scope, type Server, seededId, startServer, type Team } from "./server.ts";

/* How the cost of operations grows with the files of a team. */

/** The last is the limit of a team. */
export const SIZES = [100, 10_000, 100_000];
const OTHER_TEAMS = 1000;
const FILES_OF_OTHERS = 10;
const FILES_OF_FOLDER = 50;
const TRANSCRIPTS = 20;
/** The first one warms up, and is not counted. Each takes other files, of which the smallest team has 100. */
const ROUNDS = 10;

/** A team with its number of files, and a contributor who owns a tenth of them. */
interface Grown extends Team {
  size: number;
  contributor: Team;
}

interface Growth {
  name: string;
  /** For each size: the most rows that a run of it reads, and its milliseconds as a multiple of those of the smallest team. */
  rowsRead: number[];
  ratios: number[];
}

type Rows = Pick<Effects, "rowsRead" | "rowsWritten">;

const folderOf = (team: number) => `shows/${team.toString().padStart(4, "0")}`;
const filesFrom = (first: number, count: number) => Array.from({ length: count }, (_, i) => seededId(first + i));

/** An operation on a team, in each round on other files. */
const OPERATIONS: [name: string, call: (team: Grown, round: number) => Call][] = [
  ["get metadata", (team, round) => get(`/docs/v1/uploads/${seededId(1 + round)}/metadata`, team)],
  ["get signed URL", (team, round) => get(`/docs/v1/uploads/${seededId(1 + round)}`, team)],
  ["list the newest 20", (team) => get("/docs/v1/uploads", team)],
  ["list 20 by name", (team) => get("/docs/v1/uploads?sort=name", team)],
  ["list 20 of a folder", (team) => get(`/docs/v1/uploads?folder=${folderOf(1)}`, team)],
  ["list 20 of a tag", (team) => get("/docs/v1/uploads?tag=tenth", team)],
  ["list 20 by two filters", (team) => get("/docs/v1/uploads?tag=tenth&status=completed", team)],
  ["list 20 of a contributor", ({ contributor }) => get("/docs/v1/uploads", contributor)],
  ["list folders", (team) => get("/docs/v1/folders?under=shows&limit=20", team)],
  ["list tags", (team) => get("/docs/v1/tags", team)],
  ["search a word of every tenth name", (team) => get("/docs/v1/uploads?search=tenth", team)],
  ["search a word of no name", (team) => get("/docs/v1/uploads?search=zirconium", team)],
  ["search a word of 20 transcripts", (team) => get("/docs/v1/transcripts?search=zirconium", team)],
  ["usage", (team) => get("/docs/v1/usage", team)],
  ["usage of a contributor", ({ contributor }) => get("/docs/v1/usage", contributor)],
  ["list 20 events", (team) => get("/auth/v1/events", team)],
  ["list 20 events of a type", (team) => get("/auth/v1/events?type=link", team)],
  ["list 20 of the trash", (team) => get("/docs/v1/trash", team)],
  ["upload 1 KB and process it", (team) => formUpload(Buffer.alloc(1000, "stowage "), team)],
  ["update a name", (team, round) => json("PATCH", `/docs/v1/uploads/${seededId(1 + round)}`, { name: "a" }, team)],
  [
    "move 50 files",
    (team, round) => {
      const body = { action: "move", ids: filesFrom(51, FILES_OF_FOLDER), folder: `round/${round}` };
      return json("POST", "/docs/v1/uploads/batch", body, team);
    },
  ],
  [
    "move a folder of 50",
    (team, round) => {
      const [from, to] = [round === 0 ? folderOf(1) : `moved/${round - 1}`, `moved/${round}`];
      return json("PATCH", "/docs/v1/folders", { folder: from, to }, team);
    },
  ],
  ["delete a file to the trash", (team, round) => remove(`/docs/v1/uploads/${seededId(1 + round)}`, team)],
  ["restore a file", (team, round) => json("POST", `/docs/v1/trash/${seededId(1 + round)}/restore`, {}, team)],
  ["delete a file at once", (team, round) => remove(`/docs/v1/uploads/${seededId(1 + round)}?permanent=true`, team)],
];

const remove = (path: string, team: Team): Call => ({ method: "DELETE", path, headers: headers(team) });

/** Fills teams by SQL: folders of 50, a tag and a word on each tenth file, an event for each file, and a tenth as many in the trash. */
async function fill({ query }: Server, teams: string, size: number, userId: string | null) {
  const source = `with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
    select * from (select teams.id as team, i from teams cross join n where ?2 in (teams.id, teams.name))`;
  const insert = (count: number, into: string, values: string, ...more: unknown[]) =>
    query(`insert into ${into} ${source.replace("select *", `select ${values}`)}`, count, teams, ...more);
  const id = (number: string) => `printf('0193477be8a0%012x', ${number})`;
  const name = "printf('%06d%s.mp3', i, iif(i % 10, '', ' tenth'))";
  await insert(
    size,
    `files (id, team_id, key_id, user_id, original_name, name_key, status, reserved_bytes, size_bytes, sha256, etag, mime_type,
       file_type, folder, tags, search_keys, processed_at, created_at, updated_at)`,
    `${id("i")}, team, team, iif(i % 10, null, ?3), ${name}, ${name}, 'completed', 1, 1, hex(zeroblob(32)), 'x', 'audio/mpeg',
       'audio file', printf('shows/%04d', (i + ${FILES_OF_FOLDER - 1}) / ${FILES_OF_FOLDER}), iif(i % 10, '[]', '["tenth"]'),
       iif(i % 10, '{}', '{"tags":{"tenth":"tenth"},"tagText":"tenth"}'), 1, 1, 1`,
    userId,
  );
  await insert(
    size / 10,
    "removed (id, team_id, original_name, reserved_bytes, size_bytes, trashed_at, file, due_at)",
    `${id("?3 + i")}, team, 'a.mp3', 1, 1, 1, '{"status":"completed","key_id":"k","created_at":1,"updated_at":1,"version":0}', 4e12`,
    size,
  );
  // The events that a team already has are newer, so they count those before them.
  await query("update events set position = ?1 where team_id = ?2", size, teams);
  await insert(
    size,
    "events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)",
    `team, i * 1000, iif(i % 4, 'file.uploaded', 'link.created'), 1, '{"keyId":"k","userId":null}', ${id("i")}, 1, '{}', i`,
  );
}

async function grow(server: Server, size: number): Promise<Grown> {
  const team = await server.createTeam();
  const account = { email: `${size}@example.com`, password: "correct horse", role: "contributor" };
  const { text } = await server.load.send(json("POST", "/auth/v1/users", account, team));
  const userId: string = JSON.parse(text).data._id;
  const login = json("POST", "/auth/v1/login", { ...account, role: undefined, teamId: team.teamId }, team);
  const session = JSON.parse((await server.load.send(login)).text).data;
  await fill(server, team.teamId, size, userId);
  const contributor = { ...team, token: session.key };
  return { ...team, size, contributor };
}

/** Says a word in 20 files, and waits until a search finds them. */
async function addTranscripts({ load }: Server, team: Team) {
  const body = [Buffer.from("WEBVTT\n\n00:00.000 --> 00:01.000\nzirconium")];
  const type = { ...headers(team), "Content-Type": "text/vtt" };
  for (let i = 0; i < TRANSCRIPTS; i++) {
    await load.send({ method: "PUT", path: `/docs/v1/uploads/${seededId(100 - i)}/transcript`, headers: type, body });
  }
  const search = get("/docs/v1/transcripts?search=zirconium&limit=100", team);
  while (JSON.parse((await load.send(search)).text).data.length < TRANSCRIPTS) await sleep(50);
}

/** Measures each operation in teams of several sizes, in turns, in one database with 1,000 other teams. */
export async function measureGrowth({ isQuick, log }: Scope): Promise<Growth[]> {
  const server = await startServer();
  try {
    const { load } = server;
    await server.query(
      `insert into teams (id, name, status, created_at, updated_at) with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)
       select printf('%024x', i * 4096), 'other', 'active', 1, 1 from n`,
      OTHER_TEAMS,
    );
    await fill(server, "other", FILES_OF_OTHERS, null);
    const teams: Grown[] = [];
    for (const size of SIZES) {
      log(`growth: ${size} files`);
      teams.push(await grow(server, size));
    }
    await server.control("watch", { TRASH_DAYS: "30" });
    for (const team of teams) await addTranscripts(server, team);
    const measure = async (call: Call) => {
      await server.control("rows", null);
      const startedAt = performance.now();
      await load.send(call);
      const milliseconds = performance.now() - startedAt;
      await server.idle();
      // Work in waitUntil is counted, too.
      await sleep(20);
      const { rowsRead } = (await server.control("rows", null)) as Rows;
      return { rowsRead, milliseconds };
    };
    const rows: Growth[] = [];
    for (const [name, call] of OPERATIONS) {
      log(`growth: ${name}`);
      const measured: Awaited<ReturnType<typeof measure>>[][] = teams.map(() => []);
      for (let round = 0; round < (isQuick ? 4 : ROUNDS); round++) {
        for (const turn of teams.keys()) {
          const i = (turn + round) % teams.length;
          const runs = await measure(call(teams[i] as Grown, round));
          if (round > 0) measured[i]?.push(runs);
        }
      }
      // Other work of the machine only ever makes a request slower.
      const fastest = measured.map((runs) => Math.min(...runs.map(({ milliseconds }) => milliseconds)));
      rows.push({
        name,
        rowsRead: measured.map((runs) => Math.max(...runs.map(({ rowsRead }) => rowsRead))),
        ratios: fastest.map((time) => time / (fastest[0] ?? Number.NaN)),
      });
    }
    return rows;
  } finally {
    await server.close();
  }
}
