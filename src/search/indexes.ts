import { retrying } from "../platform/retry.ts";
import type { System } from "../platform/system.ts";
import type { Term } from "../words.ts";

/* How the Worker reaches the Durable Objects of indexes. Each team has one, with the words of its transcripts (team-index.ts). */

export interface SearchRequest {
  terms: Term[];
  /** Only these files are ranked. Null for all. */
  fileIds: string[] | null;
  /** The file after which the page begins. */
  after: { score: number; fileId: string } | null;
  /** Files of the page. */
  limit: number;
  /** Matches of each file. */
  matches: number;
  /** When the Worker asked, in milliseconds since the epoch. */
  askedAt: number;
}

/** What one speaker says. */
export interface MatchTurn {
  speaker: string | null;
  text: string;
  /** Ranges of the text, in UTF-16 code units. */
  marks: [from: number, to: number][];
}

/** A place in a transcript. Times are seconds. */
export interface Match {
  startSeconds: number;
  endSeconds: number;
  /** At least one. */
  turns: MatchTurn[];
}

export interface FoundFile {
  fileId: string;
  /** The version of the transcript that the index has. */
  version: string;
  score: number;
  matchCount: number;
  matches: Match[];
}

export interface IndexStatus {
  transcripts: number;
  /** The length of their words, in characters. */
  length: number;
  /** False while the index is built. */
  isComplete: boolean;
  /** Older transcripts have no place in it. */
  isFull: boolean;
}

/** A page of an index. */
export type SearchResult = Pick<IndexStatus, "isComplete" | "isFull"> & { files: FoundFile[]; hasMore: boolean };

/** The calls of an object. It doesn't authorize: the Worker asks for the caller's team, and shows only files that the caller sees. */
export interface SearchIndex {
  /** Has it read the new events soon. @returns the number of the last event that it has read */
  wake(isChanged: boolean): Promise<number>;
  /** Best first. Null if the request waited too long for its turn. */
  search(request: SearchRequest): Promise<SearchResult | null>;
  status(): Promise<IndexStatus>;
  /** Deletes the index and builds it again. */
  rebuild(): Promise<void>;
}

/** Returns the object of a team. */
export type SearchIndexes = (teamId: string) => SearchIndex;

/** Repeats what does the same if it is repeated. */
export function createSearchIndexes(namespace: DurableObjectNamespace, system: System): SearchIndexes {
  return (teamId) => {
    const stub = namespace.getByName(teamId) as unknown as SearchIndex;
    return {
      wake: (isChanged) => retrying(system, () => stub.wake(isChanged)),
      search: (request) => retrying(system, () => stub.search(request)),
      status: () => retrying(system, () => stub.status()),
      rebuild: () => retrying(system, () => stub.rebuild()),
    };
  };
}
