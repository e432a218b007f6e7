import { env } from "cloudflare:workers";
import type { Team } from "./client.ts";
import { DB } from "./databases.ts";
import { tablesOfTeams } from "./stores.ts";

/* Rows that a test reads or inserts directly: what no call returns, and more than calls could create. */

/** Returns every row, and every object of R2, of a team, to check that a rejected call changed nothing. */
export async function snapshot(teamId: string) {
  const of = (sql: string) => DB.prepare(sql).bind(teamId);
  const names = await tablesOfTeams();
  const [[team, parts, ...rows], { objects }] = await Promise.all([
    DB.batch([
      of("select * from teams where id = ?"),
      of("select * from upload_parts where file_id in (select file_id from uploads where team_id = ?) order by 1, 2"),
      ...names.map((table) => of(`select * from ${table} where team_id = ? order by 1, 2`)),
    ]),
    env.BUCKET.list({ prefix: `${teamId}/` }),
  ]);
  const tables = Object.fromEntries(names.map((table, i) => [table, rows[i]?.results]));
  return {
    ...tables,
    team: team?.results,
    parts: parts?.results,
    objects: objects.map(({ key, etag }) => [key, etag]),
  };
}

/** The current object of a kind beside a file, else one that is left of those before; null if R2 has none. */
export async function objectBeside(teamId: string, fileId: string, kind: "waveform" | "transcript") {
  const sql = "select version from file_objects where team_id = ? and file_id = ? and kind = ? and state = 'current'";
  const version = await DB.prepare(sql).bind(teamId, fileId, kind).first("version");
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/${fileId}/${kind}/${version ?? ""}` });
  return objects[0] ? env.BUCKET.get(objects[0].key) : null;
}

/** Runs one insert that selects from `n`, the numbers `i` from 1 to `count`, which is parameter ?1. */
export const insertMany = (count: number, insert: string, ...values: unknown[]) =>
  DB.prepare(`with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1) ${insert}`)
    .bind(count, ...values)
    .run();

/** Columns and values of a row after id and team; n is the row's number. */
const FILLERS = {
  api_keys: [
    "uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, lifetime_milliseconds, created_at, expires_at",
    "'f3cd2a1b-0000-4000-8000-000000000000', n, 'secret', 4095, ?2 || n, 'plain', 'none', 1, 1, 4e12",
  ],
  users: [
    "first_name, last_name, email, email_key, password, role, created_at, updated_at",
    "'User', n, n || '@b.de', n || '@b.de', 'x', 'admin', 1, 1",
  ],
  files: [
    `key_id, original_name, name_key, status, reserved_bytes, size_bytes, sha256, etag, mime_type, file_type, processed_at, created_at,
     updated_at`,
    `?3, n || '.txt', n || '.txt', 'completed', 1, 1, '${"0".repeat(64)}', 'x', 'text/plain', 'text file', 1, 1, 1`,
  ],
};

/** Inserts rows directly, older than any row that a call creates, numbered and ordered from `first`. */
export async function fill(team: Team, table: keyof typeof FILLERS, count: number, first = 1): Promise<void> {
  const prefix = `00${team.teamId.slice(-10)}`;
  const [columns, values] = FILLERS[table];
  const insert = `insert into ${table} (id, team_id, ${columns}) select ?2 || printf('%09x', n) || substr(?3, -3), ?3, ${values}`;
  await insertMany(
    count,
    `${insert} from (select i + cast(?4 as integer) - 1 as n from n)`,
    prefix,
    team.teamId,
    first,
  );
}
