import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { sha256 } from "./bytes.ts";
import { invariants } from "./capabilities.ts";
import { DB } from "./databases.ts";
import { eventLogQueries, expectFinished, expectOneEventPerChange } from "./event-log.ts";
import { fileQueries, hasEnded, isAtRest, isHidden, type Row, rowsIn } from "./queries.ts";
import { tablesOfTeams } from "./stores.ts";
import type { World } from "./world.ts";

/* Conditions that hold for the rows, objects and events of a team: at any moment, once nothing is left to do, and once it is erased. */

/** SHA-256 by etag, which depends only on the bytes and their parts, so that each content is read once. */
const digests = new Map<string, string>();

async function digestOf(object: R2Object | undefined): Promise<string | undefined> {
  if (!object) return undefined;
  const known = digests.get(object.etag);
  if (known) return known;
  const stored = await env.BUCKET.get(object.key);
  if (!stored) return undefined;
  const digest = sha256(await stored.arrayBuffer());
  digests.set(object.etag, digest);
  return digest;
}

type FileId = { file_id: string };
/** The resumable uploads of the team of a row of `teams` that have not ended. */
const UNFINISHED = "uploads where team_id = teams.id and status <> 'committed' and secret_hash is not null";
type ObjectRow = FileId & { kind: string; version: string; state: string; reserved_bytes: number };

/**
 * Asserts the invariants of a team, which hold at any moment, whatever died. Set `bytesLost` if the test itself removed
 * bytes. @returns the rows of the team's files
 */
export async function expectSound(
  teamId: string,
  { checkBytes = false, bytesLost = false, hasUploads = true, isFinished = false } = {},
): Promise<Row[]> {
  // List the objects first, because a row is always inserted before its object.
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  const of = (sql: string) => DB.prepare(sql).bind(teamId);
  const [files, removed, arriving, uploads, beside, parts, [usage], ...eventLog] = (
    await DB.batch<Record<string, unknown>>([
      ...fileQueries(teamId),
      of("select file_id, offset_bytes, size_bytes from uploads where team_id = ?"),
      of("select * from file_objects where team_id = ?"),
      // A part has no team, but its upload has one.
      DB.prepare("select * from upload_parts where file_id not in (select file_id from uploads)"),
      of(`select files, bytes, trash_files, trash_bytes, public_bytes,
        links - (select count(*) from links where team_id = teams.id) as extra_links,
        (select count(*) from links where team_id = teams.id
          and not exists (select 1 from files where team_id = links.team_id and id = file_id)
          and not exists (select 1 from removed where team_id = links.team_id and id = file_id and trashed_at is not null)) as lost_links,
        folders - (select count(*) from folders where team_id = teams.id) as extra_folders,
        unfinished_uploads - (select count(*) from ${UNFINISHED}) as extra_unfinished,
        visitor_uploads - (select count(*) from ${UNFINISHED} and is_public) as extra_of_visitors,
        (select count(*) from visitors where team_id = teams.id
          and unfinished_uploads <> (select count(*) from ${UNFINISHED} and visitor_id = visitors.id)) as wrong_visitors,
        (select count(*) from users where team_id = teams.id
          and unfinished_uploads <> (select count(*) from ${UNFINISHED} and user_id = users.id)) as wrong_users
        from teams where id = ?`),
      ...eventLogQueries(teamId),
    ])
  ).map(({ results }) => results) as [Row[], Row[], Row[], FileId[], ObjectRow[], object[], object[], ...unknown[][]];
  const rows = rowsIn([files, removed, arriving]);
  expect(parts, "parts without an upload").toEqual([]);
  if (!hasUploads) expect(uploads, "remaining uploads").toEqual([]);
  const keyOf = (row: Row) => `${teamId}/${row.id}-${row.original_name}`;
  const besideKeyOf = ({ file_id, kind, version }: ObjectRow) => `${teamId}/${file_id}/${kind}/${version}`;
  const keys = new Set([...rows.map(keyOf), ...beside.map(besideKeyOf)]);
  const chunkPrefixes = uploads.map((upload) => `${teamId}/${upload.file_id}.`);
  expect(
    objects.filter(({ key }) => !keys.has(key) && !chunkPrefixes.some((prefix) => key.startsWith(prefix))),
    "objects without a row",
  ).toEqual([]);
  const bytes = rows.reduce((sum, row) => sum + row.reserved_bytes, 0);
  const ofPublicKeys = rows.filter((row) => row.size_bytes === null && row.is_public === 1);
  const publicBytes = ofPublicKeys.reduce((sum, row) => sum + row.reserved_bytes, 0);
  const trashed = rows.filter((row) => row.trashed_at !== null);
  const trash = { trash_files: trashed.length, trash_bytes: trashed.reduce((sum, row) => sum + row.reserved_bytes, 0) };
  const ofUploads = { extra_unfinished: 0, extra_of_visitors: 0, wrong_visitors: 0, wrong_users: 0 };
  const extra = { extra_links: 0, lost_links: 0, extra_folders: 0, ...ofUploads };
  const unused = { files: 0, bytes: 0, trash_files: 0, trash_bytes: 0, public_bytes: 0, ...extra };
  expect(usage ?? unused, "the team's usage is the sum of the rows").toEqual({
    ...unused,
    files: rows.length,
    bytes,
    ...trash,
    public_bytes: publicBytes,
  });
  expectOneEventPerChange(rows, eventLog);
  if (isFinished) await expectFinished(teamId, eventLog);
  for (const row of rows) {
    expect(row.due_at !== null, `whether a file that is ${row.status} is due`).toBe(!hasEnded(row));
    if ((isHidden(row) && row.trashed_at === null) || bytesLost) continue;
    const own = beside.filter(({ file_id, state }) => file_id === row.id && state !== "replaced");
    const besideBytes = own.reduce((sum, one) => sum + one.reserved_bytes, 0);
    expect(row.reserved_bytes, "a file counts with the objects beside it").toBe((row.size_bytes ?? 0) + besideBytes);
    const hasTranscript = own.some(({ kind, state }) => kind === "transcript" && state === "current");
    expect(row.has_transcript, "a file says whether it has a transcript").toBe(Number(hasTranscript));
    const stored = objects.map(({ key }) => key);
    for (const one of own) {
      if (one.state === "current") expect(stored, "a current object is stored").toContain(besideKeyOf(one));
    }
    const object = objects.find(({ key }) => key === keyOf(row));
    expect([object?.size, object?.etag], "a listed file, or one in the trash, has its bytes").toEqual([
      row.size_bytes,
      row.etag,
    ]);
    // A file that was uploaded in parts has no digest until it is processed, and in the trash it isn't.
    if (!checkBytes || (row.trashed_at !== null && row.sha256 === null)) continue;
    expect(await digestOf(object), "a listed file, or one in the trash, has exactly its bytes").toBe(row.sha256);
  }
  return rows;
}

/** Asserts that every multipart upload with an id in D1 is over. R2 itself removes the others. */
async function expectNoMultipart({ multiparts }: World, teamId: string): Promise<void> {
  for (const { key, id, isKnown } of multiparts) {
    if (!isKnown || !key.startsWith(`${teamId}/`)) continue;
    const sent = env.BUCKET.resumeMultipartUpload(key, id).uploadPart(1, "x");
    await expect(sent, "the multipart upload is over").rejects.toThrow("(10024)");
  }
}

/** Asserts that no file is unfinished, once the bindings work again and the recovery job has run. */
export async function expectSettled(
  teamId: string,
  { bytesLost = false, world }: { bytesLost?: boolean; world?: World } = {},
): Promise<Row[]> {
  // If days have passed in a world, uploads have also been deleted.
  const rows = await expectSound(teamId, {
    checkBytes: true,
    bytesLost,
    ...(world && { hasUploads: false, isFinished: true }),
  });
  if (world) await expectNoMultipart(world, teamId);
  if (world) for (const invariant of invariants) await invariant.expectSettled(teamId, [...world.objects.values()]);
  expect(
    rows.filter((row) => !isAtRest(row)).map(({ status }) => status),
    "unfinished files",
  ).toEqual([]);
  return rows;
}

/** Asserts that nothing is left of a deleted team: no row, no object, and no multipart upload. */
export async function expectErased(teamId: string, world: World): Promise<void> {
  const tables = await tablesOfTeams();
  const [team, parts, ...others] = await DB.batch([
    DB.prepare("select * from teams where id = ?").bind(teamId),
    DB.prepare("select * from upload_parts where file_id not in (select file_id from uploads)"),
    ...tables.map((table) => DB.prepare(`select * from ${table} where team_id = ?`).bind(teamId)),
  ]);
  expect(team?.results, "the team").toEqual([]);
  expect(parts?.results, "parts without an upload").toEqual([]);
  for (const [i, { results }] of others.entries()) expect(results, tables[i]).toEqual([]);
  const { objects } = await env.BUCKET.list({ prefix: `${teamId}/` });
  expect(objects.map(({ key }) => key)).toEqual([]);
  await expectNoMultipart(world, teamId);
  for (const invariant of invariants) await invariant.expectSettled(teamId, [...world.objects.values()]);
}
