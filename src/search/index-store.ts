import { ObjectTables } from "../platform/object-tables.ts";
import type { Part, PartText } from "./parts.ts";

/*
 * The storage of a team's index, in the SQLite of its object: of each transcript its parts, with their words in FTS5, and one row of
 * state. Every method is synchronous, so nothing else runs in between. `transaction` makes several writes one.
 */

/** With another format, or another folding of words, an object builds its index again. */
const FORMAT = 1;

export interface IndexState {
  format: number;
  /** The number of the last event that the object has read. */
  cursor: number;
  /** The transcripts of files with smaller ids have not been compared with the database. Null once all were, since the index was new. */
  building: string | null;
  /** As `building`, for the comparison that begins again after its end, and when it took its last step. */
  comparing: string;
  comparedAt: number;
  /** Some transcripts had no place, in this round of the comparison or in the one before. */
  isFull: boolean;
  hasSkipped: boolean;
  transcripts: number;
  /** The length of all words. */
  length: number;
}

/** After all ids. */
export const ALL_FILES = "g";

const NEW_STATE: IndexState = {
  format: FORMAT,
  cursor: 0,
  building: ALL_FILES,
  comparing: ALL_FILES,
  comparedAt: 0,
  isFull: false,
  hasSkipped: false,
  transcripts: 0,
  length: 0,
};

export interface FileVersion {
  fileId: string;
  version: string;
}

/** A part that has the words of a search, by the file. */
export interface Candidate extends FileVersion {
  id: number;
  /** The length of its words. */
  length: number;
  ownFrom: number;
}

/** At most this many files are looked up one by one. */
const MAX_LOOKED_UP = 500;

const lengthOf = (texts: { length: number }[]): number => texts.reduce((sum, { length }) => sum + length, 0);

const TABLES = [
  `create table if not exists parts (id integer primary key, file_id text not null, version text not null, own_from integer not null,
    length integer not null, times blob not null, text text not null)`,
  "create index if not exists parts_of_file on parts (file_id, version, length)",
  // The words are folded and separated by spaces, and have only letters and digits.
  "create virtual table if not exists indexed using fts5 (words, tokenize = 'ascii')",
  "create table if not exists state (id integer primary key check (id = 1), json text not null)",
];

export class IndexStore {
  readonly #tables: ObjectTables;

  constructor(storage: DurableObjectStorage) {
    this.#tables = new ObjectTables(storage, TABLES);
  }

  /** Null if the object stores nothing, or an index of another format. */
  get state(): IndexState | null {
    const [row] = this.#tables.read<{ json: string }>("select json from state");
    const state: IndexState | null = row ? JSON.parse(row.json) : null;
    return state?.format === FORMAT ? state : null;
  }

  update(changes: Partial<IndexState>): void {
    const state: IndexState = { ...(this.state ?? NEW_STATE), ...changes };
    this.#tables.write("insert or replace into state values (1, ?)", JSON.stringify(state));
  }

  transaction(work: () => void): void {
    this.#tables.transaction(work);
  }

  /** The version of a file's transcript that the index has. Null if it has none. */
  versionOf(fileId: string): string | null {
    const query = "select version from parts where file_id = ? limit 1";
    return this.#tables.read<{ version: string }>(query, fileId)[0]?.version ?? null;
  }

  /** The transcripts of files with an id below one and from another on. */
  between(from: string, below: string): FileVersion[] {
    const query = "select distinct file_id as fileId, version from parts where file_id >= ? and file_id < ?";
    return this.#tables.read<FileVersion & Record<string, SqlStorageValue>>(query, from, below);
  }

  remove(fileId: string): void {
    const parts = this.#tables.read<{ id: number; length: number }>(
      "select id, length from parts where file_id = ?",
      fileId,
    );
    if (parts.length === 0) return;
    for (const { id } of parts) {
      this.#tables.write("delete from indexed where rowid = ?", id);
      this.#tables.write("delete from parts where id = ?", id);
    }
    this.#count(-1, -lengthOf(parts));
  }

  /** Adds a transcript that the index does not have. */
  add({ fileId, version }: FileVersion, parts: Part[]): void {
    for (const { words, times, text, ownFrom } of parts) {
      this.#tables.write(
        "insert into parts (file_id, version, own_from, length, times, text) values (?, ?, ?, ?, ?, ?)",
        fileId,
        version,
        ownFrom,
        words.length,
        times.buffer as ArrayBuffer,
        JSON.stringify(text),
      );
      this.#tables.write("insert into indexed (rowid, words) values (last_insert_rowid(), ?)", words);
    }
    this.#count(1, lengthOf(parts.map(({ words }) => words)));
  }

  #count(transcripts: number, length: number): void {
    const state = this.state ?? NEW_STATE;
    this.update({ transcripts: state.transcripts + transcripts, length: state.length + length });
  }

  /** The transcript of the oldest file. */
  get oldest(): string | null {
    return this.#tables.read<{ id: string | null }>("select min(file_id) as id from parts")[0]?.id ?? null;
  }

  /** The parts that match an expression, of all files or of these. */
  candidates(expression: string, fileIds: string[] | null): Candidate[] {
    const columns = "parts.id, file_id as fileId, version, length, own_from as ownFrom";
    type Row = Candidate & Record<string, SqlStorageValue>;
    if (fileIds === null) {
      return this.#tables.read<Row>(
        `select ${columns} from indexed join parts on parts.id = indexed.rowid where indexed match ?`,
        expression,
      );
    }
    // Few files are looked up one by one. How many others match makes no difference then.
    if (fileIds.length <= MAX_LOOKED_UP) {
      return this.#tables.read<Row>(
        `select ${columns} from json_each(?) file cross join parts on file_id = file.value
         cross join indexed on indexed.rowid = parts.id where indexed match ?`,
        JSON.stringify(fileIds),
        expression,
      );
    }
    return this.#tables.read<Row>(
      `select ${columns} from indexed join parts on parts.id = indexed.rowid
       where indexed match ? and file_id in (select value from json_each(?))`,
      expression,
      JSON.stringify(fileIds),
    );
  }

  wordsOf(id: number): string {
    return this.#tables.read<{ words: string }>("select words from indexed where rowid = ?", id)[0]?.words ?? "";
  }

  timesOf(id: number): Uint32Array {
    const [row] = this.#tables.read<{ times: ArrayBuffer }>("select times from parts where id = ?", id);
    return new Uint32Array(row?.times ?? new ArrayBuffer(0));
  }

  textOf(id: number): PartText {
    const [row] = this.#tables.read<{ text: string }>("select text from parts where id = ?", id);
    return row ? JSON.parse(row.text) : { speakers: [], cues: [] };
  }

  /** Deletes everything, the tables and the alarm included. */
  async empty(): Promise<void> {
    await this.#tables.empty();
  }
}
