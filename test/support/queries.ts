import { areFinished } from "./capabilities.ts";
import { DB } from "./databases.ts";

/* The rows of files, with columns that no call returns, and the work that is left to do. */

export interface Row {
  folder: string;
  id: string;
  team_id: string;
  original_name: string;
  status: string;
  reserved_bytes: number;
  has_transcript: 0 | 1;
  is_public: 0 | 1;
  /** Null during the upload, like `sha256` and `etag`. */
  size_bytes: number | null;
  sha256: string | null;
  etag: string | null;
  failure_code: string | null;
  audio: string | null;
  idempotency_key: string | null;
  attempts: number;
  due_at: number | null;
  trashed_at: number | null;
  /** JSON: what a file in the trash was, else null. */
  file: string | null;
  hold: string | null;
  version: number;
}

const UNFINISHED_STATES = ["pending", "processing"];

/** Queries of the rows of a team in `files` and in `removed`, and of its uploads that are not receipts. */
export const fileQueries = (teamId: string): D1PreparedStatement[] => [
  ...["files", "removed"].map((table) =>
    DB.prepare(`select * from ${table} where team_id = ? order by id`).bind(teamId),
  ),
  DB.prepare(
    `select *, file_id as id, null as size_bytes, null as sha256, null as hold
     from uploads where team_id = ? and status <> 'committed' order by id`,
  ).bind(teamId),
];
/**
 * The rows of the three tables. A file that has left `files` has the status `deleting`, and so has a canceled upload, which only
 * tests know.
 */
export const rowsIn = ([files = [], removed = [], uploads = []]: Row[][]): Row[] =>
  [
    ...files.map((row) => ({ ...row, trashed_at: null, file: null, is_public: 0 as const })),
    ...removed.map((row) => ({ ...JSON.parse(row.file ?? "{}"), ...row, status: "deleting", is_public: 0 })),
    ...uploads.map((row) => ({
      ...row,
      status: row.status === "receiving" ? "receiving" : "deleting",
      trashed_at: null,
      file: null,
    })),
  ].sort((a, b) => (a.id < b.id ? -1 : 1));

/** The rows of a team's files, also of those that have left. */
export async function rowsOf(teamId: string): Promise<Row[]> {
  return rowsIn((await DB.batch<Row>(fileQueries(teamId))).map(({ results }) => results));
}

export const hasEnded = ({ status }: Row) => status === "completed" || status === "failed";
export const isHidden = ({ status }: Row) => status === "receiving" || status === "deleting";

/** Nothing is left to do for a file, until someone changes it. A held one stays in the trash. */
export const isAtRest = (row: Row) => hasEnded(row) || (row.trashed_at !== null && row.hold !== null);

export async function hasUnfinished(teamIds: string[]): Promise<boolean> {
  for (let i = 0; i < teamIds.length; i += 90) {
    const batch = teamIds.slice(i, i + 90);
    const teams = `team_id in (${batch.map((_, at) => `?${at + 1}`).join()})`;
    const row = await DB.prepare(
      `select 1 from files where ${teams} and status in ('${UNFINISHED_STATES.join("','")}')
       union all select 1 from removed where ${teams} and hold is null
       union all select 1 from uploads where ${teams}
       union all select 1 from (select team_id, due_at from measurements union all select team_id, due_at from file_objects)
         where ${teams} and due_at is not null
       union all select 1 from teams where ${teams.replace("team_id", "id")} and status = 'deleting' limit 1`,
    )
      .bind(...batch)
      .first();
    if (row) return true;
    if (!(await areFinished(batch))) return true;
  }
  return false;
}

/** Changes a stored file as if its upload, job or deletion had died in that state. */
export async function interruptFile(id: string, state: string, dueAt: number): Promise<void> {
  // The events of a removed file are incomplete.
  const hasNoEvents = state === "receiving" || state === "deleting";
  const leave = (insert: string) => [
    DB.prepare(`${insert} from files where id = ?2`).bind(dueAt, id),
    DB.prepare("delete from files where id = ?").bind(id),
  ];
  const change =
    state === "deleting"
      ? leave(`insert into removed (team_id, id, user_id, original_name, size_bytes, reserved_bytes, due_at)
          select team_id, id, user_id, original_name, size_bytes, reserved_bytes, ?1`)
      : state === "receiving"
        ? // A receipt has the idempotency key.
          leave(`insert or replace into uploads (team_id, file_id, key_id, user_id, is_public, original_name, size_bytes, reserved_bytes,
              created_at, updated_at, due_at, idempotency_key)
            select team_id, id, key_id, user_id, 0, original_name, reserved_bytes, reserved_bytes, created_at, updated_at, ?1,
              (select idempotency_key from uploads where file_id = id)`)
        : [
            DB.prepare(
              "update files set status = ?1, due_at = ?2, lease_ends_at = iif(?1 = 'processing', ?2, null) where id = ?3",
            ).bind(state, dueAt, id),
          ];
  await DB.batch([
    ...change,
    DB.prepare("delete from events where subject_id = ? and ?").bind(id, Number(hasNoEvents)),
  ]);
}
