import { and, type SQL, sql } from "drizzle-orm";
import { type Credential, readAs, type TeamActor } from "../access/authorization.ts";
import { filesOf } from "../access/own-files.ts";
import type { Deps } from "../deps.ts";
import { AppError, invalidField } from "../errors.ts";
import { currentObject, parseObject } from "../files/beside.ts";
import { files } from "../files/files.schema.ts";
import { type StoredFile, toStoredFile } from "../files/files.ts";
import { columns, conditionOf, type FileFilters } from "../files/lists.ts";
import { isOneOf } from "../platform/db.ts";
import { decodeCursor, encodeCursor, listName } from "../platform/paging.ts";
import { SECOND } from "../platform/system.ts";
import { withTimeout } from "../timeout.ts";
import { KIND as TRANSCRIPT } from "../transcripts/transcripts.ts";
import { termsOf } from "../words.ts";
import { filesWithTranscript } from "./following.ts";
import type { FoundFile, IndexStatus, SearchRequest, SearchResult } from "./indexes.ts";
import { MAX_INDEX } from "./team-index.ts";

/*
 * Finds what is said in transcripts. The index of the team ranks them, and knows neither callers nor whether a file is still there. So
 * D1 has the last word: a match is shown only if the caller sees the file now, and its transcript is the one that has these words.
 *
 * For a contributor, and with a filter, D1 first names the files of which any can be found, and the index ranks only those: so a page is
 * full however many others match, and nothing in it depends on them.
 */

/** Matches that a search shows of a file, and of the one file that it names. */
export const MATCHES_OF_FILE = 3;
export const MAX_MATCHES = 500;
/** Pages of the index that a search reads to fill its own: the index may not know of changes of the last seconds. */
const MAX_ROUNDS = 5;
/** An object takes up to 2 s until it begins, and some tenths of a second for a search. */
const MAX_SEARCH_MILLISECONDS = 4 * SECOND;

export interface TranscriptQuery extends Pick<FileFilters, "folder" | "under" | "uploadedBy"> {
  search: string;
  /** Only the file with this id. */
  file?: string | undefined;
}

export interface FoundTranscript extends Pick<FoundFile, "matchCount" | "matches"> {
  file: StoredFile;
  language: string | null;
}

interface FoundPage extends Pick<IndexStatus, "isComplete" | "isFull"> {
  items: FoundTranscript[];
  next: string | null;
}

/** @throws `unavailable` if the object does not respond in time */
async function askIndex(deps: Deps, teamId: string, request: Omit<SearchRequest, "askedAt">): Promise<SearchResult> {
  const search = deps.searchIndexes(teamId).search({ ...request, askedAt: deps.system.now() });
  const late = () => new AppError("unavailable", { message: "The search is busy. Retry." });
  const result = await withTimeout(MAX_SEARCH_MILLISECONDS, search, late);
  if (!result) throw late();
  return result;
}

/** The files that may be found. Null for every file of the index. */
async function allowedFiles(
  deps: Deps,
  credential: Credential<"files:read">,
  ownerId: string | null,
  filter: SQL | undefined,
): Promise<string[] | null> {
  if (ownerId === null && filter === undefined) return null;
  const { rows } = await readAs(deps, credential, (viewer) =>
    filesWithTranscript(deps, viewer.teamId, and(filesOf(viewer), filter), MAX_INDEX.transcripts),
  );
  return rows.map(({ id }) => id);
}

/** The files that the caller sees now, by id, each with the version of its transcript. */
async function visibleFiles(deps: Deps, credential: Credential<"files:read">, ids: string[], filter: SQL | undefined) {
  if (ids.length === 0) return new Map<string, never>();
  const { rows } = await readAs(deps, credential, (viewer) =>
    deps.db
      .select({ ...columns, transcript: currentObject(TRANSCRIPT).as("transcript") })
      .from(files)
      .where(and(filesOf(viewer), isOneOf(files.id, ids), filter)),
  );
  return new Map(rows.map((row) => [row.id, { row, transcript: parseObject(row.transcript) }]));
}

/** @throws `invalid_input` for a cursor of another search; `unavailable` */
export async function searchTranscripts(
  deps: Deps,
  credential: Credential<"files:read">,
  { search, file, ...filters }: TranscriptQuery,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): Promise<FoundPage> {
  const actor = credential.caller?.actor as TeamActor | undefined;
  if (!actor) throw new Error("A heavy request authorizes its caller first.");
  const { teamId, ownerId } = actor;
  const list = listName("transcripts", { search, file, ...filters });
  const filter = and(conditionOf(filters), file === undefined ? undefined : sql`${files.id} = ${file}`);
  const fileIds = await allowedFiles(deps, credential, ownerId, filter);
  const matches = file === undefined ? MATCHES_OF_FILE : MAX_MATCHES;
  const found: { item: FoundTranscript; end: FoundFile }[] = [];
  let after = cursor === undefined ? null : afterOf(list, cursor);
  let hasMore = true;
  let state = { isComplete: true, isFull: false };
  for (let round = 0; hasMore && found.length <= limit && round < MAX_ROUNDS; round++) {
    const request = { terms: termsOf(search), fileIds, after, limit: limit + 1 - found.length, matches };
    const { files: page, hasMore: isCut, ...rest } = await askIndex(deps, teamId, request);
    state = rest;
    hasMore = isCut;
    const visible = await visibleFiles(
      deps,
      credential,
      page.map(({ fileId }) => fileId),
      filter,
    );
    for (const one of page) {
      after = one;
      const known = visible.get(one.fileId);
      if (known?.transcript?.version !== one.version) continue;
      const { row, transcript } = known;
      const { matchCount, matches } = one;
      const item = { file: toStoredFile(deps, row), language: transcript.language, matchCount, matches };
      found.push({ item, end: one });
    }
  }
  const items = found.slice(0, limit).map(({ item }) => item);
  const end = found.length > limit ? found[limit - 1]?.end : hasMore ? after : undefined;
  return { items, next: end ? encodeCursor(list, end.fileId, String(end.score)) : null, ...state };
}

function afterOf(list: string, cursor: string): { score: number; fileId: string } {
  const { id: fileId, name } = decodeCursor(list, cursor, "");
  const score = Number(name);
  if (name === "" || !Number.isFinite(score)) throw invalidField("cursor", "Not a cursor of this list.");
  return { score, fileId };
}
