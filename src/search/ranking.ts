import { CueTimes, findPlaces, MAX_SCORED, type Place } from "../places.ts";
import type { Term } from "../words.ts";
import { excerptOf } from "./excerpts.ts";
import { allOf, nearOf } from "./expressions.ts";
import type { Candidate, IndexStore } from "./index-store.ts";
import type { FoundFile, SearchRequest, SearchResult } from "./indexes.ts";
import type { PartText } from "./parts.ts";

/*
 * Ranks the transcripts that have all terms of a search. FTS5 finds them; their scores follow from their own words. Nothing here waits,
 * so a search takes the thread of its object for as long as it reads: its bound is a number of characters, because a clock stands still
 * in the meantime.
 */

/** Words of transcripts that are read for their scores: those of about 200 hours. */
const EXAMINED_LENGTH = 10_000_000;
/** Places of a shown file that are counted, unless all are wanted. */
const MAX_COUNTED = 100;
/** About 30 s of fast speech. */
const NEAR_WORDS = 100;

interface FoundPlace {
  part: number;
  place: Place;
}

interface Ranked {
  fileId: string;
  version: string;
  parts: Candidate[];
  /** 0 if it was not read. */
  score: number;
}

/** Newest first: ids begin with a time. */
const byId = (a: { fileId: string }, b: { fileId: string }) => (a.fileId < b.fileId ? 1 : -1);
const byScore = (a: Ranked, b: Ranked) => b.score - a.score || byId(a, b);

function filesOf(candidates: Candidate[]): Ranked[] {
  const byFile = Map.groupBy(candidates, ({ fileId }) => fileId);
  return [...byFile].map(([fileId, parts]) => ({
    fileId,
    version: parts[0]?.version ?? "",
    parts: parts.sort((a, b) => a.id - b.id),
    score: 0,
  }));
}

export class Ranking {
  readonly #store: IndexStore;
  readonly #terms: Term[];

  constructor(store: IndexStore, terms: Term[]) {
    this.#store = store;
    this.#terms = terms;
  }

  page({
    fileIds,
    after,
    limit,
    matches,
  }: Omit<SearchRequest, "terms" | "askedAt">): Pick<SearchResult, "files" | "hasMore"> {
    const files = filesOf(this.#store.candidates(allOf(this.#terms), fileIds));
    for (const file of this.#examined(files, fileIds)) this.#read(file, MAX_SCORED);
    const isAfter = ({ score, fileId }: Ranked) =>
      after === null || score < after.score || (score === after.score && fileId < after.fileId);
    const ranked = files.filter(isAfter).sort(byScore);
    const page = ranked.slice(0, limit).map((file) => this.#found(file, matches));
    return { files: page, hasMore: ranked.length > limit };
  }

  /** The files that are read: all, or the newest ones of those whose terms stand close together, and then the newest others. */
  #examined(files: Ranked[], fileIds: string[] | null): Ranked[] {
    const lengthOf = ({ parts }: Ranked) => parts.reduce((sum, { length }) => sum + length, 0);
    const total = files.reduce((sum, file) => sum + lengthOf(file), 0);
    if (total <= EXAMINED_LENGTH) return files;
    const near = new Set(this.#store.candidates(nearOf(this.#terms, NEAR_WORDS), fileIds).map(({ fileId }) => fileId));
    const ordered = files.toSorted((a, b) => Number(near.has(b.fileId)) - Number(near.has(a.fileId)) || byId(a, b));
    let length = 0;
    return ordered.filter((file) => {
      length += lengthOf(file);
      return length <= EXAMINED_LENGTH;
    });
  }

  /** Finds the places of a file. Of the parts of a long transcript, those with the best places count. */
  #read(file: Ranked, limit: number): FoundPlace[] {
    const found = file.parts.map((part) => {
      const times = new CueTimes(this.#store.timesOf(part.id));
      return { part, ...findPlaces(this.#store.wordsOf(part.id), times, this.#terms, limit) };
    });
    file.score = Math.max(0, ...found.map(({ score = 0 }) => score));
    const isClose = file.score > 1;
    return (
      found
        .filter(({ score = 0 }) => score > 1 === isClose)
        // The part before has what the parts share.
        .flatMap(({ part, places = [] }) =>
          places.filter((place) => place.lastCue >= part.ownFrom).map((place) => ({ part: part.id, place })),
        )
    );
  }

  #found(file: Ranked, matches: number): FoundFile {
    const { score } = file;
    const places = this.#read(file, Math.max(matches, MAX_COUNTED));
    const best = places.toSorted((a, b) => b.place.closeness - a.place.closeness).slice(0, matches);
    const shown = new Set(best);
    const texts = new Map<number, PartText>();
    const textOf = (part: number) => {
      const text = texts.get(part) ?? this.#store.textOf(part);
      texts.set(part, text);
      return text;
    };
    return {
      fileId: file.fileId,
      version: file.version,
      score,
      matchCount: places.length,
      matches: places.flatMap((one, at) => {
        if (!shown.has(one)) return [];
        const { part, place } = one;
        const [before, after] = [places[at - 1], places[at + 1]];
        const limits = {
          first: before?.part === part ? before.place.lastCue + 1 : 0,
          last: after?.part === part ? after.place.firstCue - 1 : Number.POSITIVE_INFINITY,
        };
        return [excerptOf(textOf(part), { first: place.firstCue, last: place.lastCue }, this.#terms, limits)];
      }),
    };
  }
}
