import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import type { Cue } from "../../../src/cues.ts";
import { allOf } from "../../../src/search/expressions.ts";
import { IndexStore } from "../../../src/search/index-store.ts";
import { partsOf } from "../../../src/search/parts.ts";
import { Ranking } from "../../../src/search/ranking.ts";
import { MAX_INDEX } from "../../../src/search/team-index.ts";
import { termsOf } from "../../../src/words.ts";
import type { Scope } from "./server.ts";

/*
 * Measures the index of a team with hours of transcripts, beside a bare FTS5 table with the same words. The code is that of the
 * service, over the SQLite of Node instead of that of a Durable Object: reading and writing the storage is all that differs.
 */

/** 720 cues of 5 s, with 150 words a minute. */
const CUES = 720;
const WORDS_OF_CUE = 12.5;
const VOCABULARY = 28_000;
/** Words of the subject of a recording, which it has more often than others. */
const TOPIC_WORDS = 40;

/** Numbers that are the same in each run (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Words by their rank. The shortest ones are the most frequent, as in a language. */
const wordOf = (rank: number): string => {
  const letters = "etaoinshrdlucmwfgypbvk";
  let word = "";
  for (let rest = rank + 22; rest > 0; rest = Math.floor(rest / 22)) word += letters[rest % 22];
  return word;
};

class Speech {
  readonly #random = randomNumbers(1);
  readonly #cumulative: number[] = [];

  constructor() {
    let total = 0;
    // Zipf's law.
    for (let rank = 0; rank < VOCABULARY; rank++) {
      total += 1 / (rank + 2.7);
      this.#cumulative.push(total);
    }
  }

  #rank(): number {
    const sought = this.#random() * (this.#cumulative.at(-1) ?? 0);
    let [low, high] = [0, VOCABULARY - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#cumulative[middle] ?? 0) < sought) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  hour(): Cue[] {
    const topic = Array.from({ length: TOPIC_WORDS }, () => 500 + Math.floor(this.#random() * (VOCABULARY - 500)));
    return Array.from({ length: CUES }, (_, cue) => {
      const count = Math.round(WORDS_OF_CUE + this.#random() * 4 - 2);
      const words = Array.from({ length: count }, () =>
        wordOf(this.#random() < 0.06 ? (topic[Math.floor(this.#random() * TOPIC_WORDS)] ?? 0) : this.#rank()),
      );
      return { start: cue * 5, end: cue * 5 + 5, turns: [{ speaker: null, text: words.join(" ") }] };
    });
  }
}

/** A storage like that of a Durable Object. */
function storageIn(database: DatabaseSync): DurableObjectStorage {
  const given = (value: unknown) => (value instanceof ArrayBuffer ? new Uint8Array(value) : value) as SQLInputValue;
  const taken = (value: unknown) =>
    value instanceof Uint8Array ? value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength) : value;
  const exec = (query: string, ...values: unknown[]) => {
    const rows = database.prepare(query).all(...values.map(given)) as Record<string, unknown>[];
    return {
      toArray: () =>
        rows.map((row) => Object.fromEntries(Object.entries(row).map(([name, value]) => [name, taken(value)]))),
    };
  };
  const transactionSync = (work: () => void) => {
    database.exec("begin");
    work();
    database.exec("commit");
  };
  return { sql: { exec }, transactionSync } as unknown as DurableObjectStorage;
}

/** The five kinds of query. Words are named by their ranks. */
const QUERIES: [name: string, search: string][] = [
  ["a rare word", `${wordOf(27_000)} `],
  ["three words of a subject", `${wordOf(900)} ${wordOf(1500)} ${wordOf(2500)} `],
  ["a phrase", `"${wordOf(20)} ${wordOf(90)} ${wordOf(8)}"`],
  ["a beginning of a word", `${wordOf(1500)} ${wordOf(3000).slice(0, 2)}`],
  ["four words that all have", `${[0, 1, 2, 3].map(wordOf).join(" ")} `],
];

interface Measured {
  name: string;
  files: number;
  /** Milliseconds. */
  ours: number;
  bare: number;
}

/** CPU time, because other processes may run. */
const cpuMilliseconds = (since?: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
};

const RUNS = 5;
const millisecondsOf = (work: () => unknown): number => {
  const times = Array.from({ length: RUNS }, () => {
    const startedAt = process.cpuUsage();
    work();
    return cpuMilliseconds(startedAt);
  });
  return times.toSorted((a, b) => a - b)[Math.floor(RUNS / 2)] ?? 0;
};

export function measureSearch({ isQuick, log }: Scope) {
  const hours = isQuick ? 300 : MAX_INDEX.transcripts;
  const folder = mkdtempSync(join(tmpdir(), "stowage-search-"));
  try {
    const [own, bare] = ["own", "bare"].map((name) => new DatabaseSync(join(folder, name))) as [
      DatabaseSync,
      DatabaseSync,
    ];
    for (const database of [own, bare]) database.exec("pragma journal_mode = wal; pragma synchronous = off");
    bare.exec("create virtual table words using fts5 (said, tokenize = 'ascii')");
    const store = new IndexStore(storageIn(own));
    const insert = bare.prepare("insert into words (said) values (?)");
    const speech = new Speech();
    const spent = { ours: 0, bare: 0 };
    for (let hour = 0; hour < hours; hour++) {
      const cues = speech.hour();
      const startedAt = process.cpuUsage();
      const parts = partsOf(cues);
      const fileId = hour.toString(16).padStart(24, "0");
      store.transaction(() => store.add({ fileId, version: "1" }, parts));
      spent.ours += cpuMilliseconds(startedAt) / 1000;
      const addedAt = process.cpuUsage();
      for (const { words } of parts) insert.run(words);
      spent.bare += cpuMilliseconds(addedAt) / 1000;
      if (hour % 1000 === 999) log(`${hour + 1} hours of transcripts`);
    }
    const results = QUERIES.map(([name, search]): Measured => {
      const terms = termsOf(search);
      const page = { fileIds: null, after: null, limit: 21, matches: 3 };
      const query = bare.prepare("select rowid from words where words match ? order by rank limit 21");
      const count = bare.prepare("select count(*) as files from words where words match ?").get(allOf(terms));
      return {
        name,
        files: Number(count?.files),
        ours: millisecondsOf(() => new Ranking(store, terms).page(page)),
        bare: millisecondsOf(() => query.all(allOf(terms))),
      };
    });
    for (const database of [own, bare]) {
      database.exec("pragma wal_checkpoint(truncate)");
      database.close();
    }
    const bytesOf = (name: string) => statSync(join(folder, name)).size;
    return { hours, seconds: spent, bytes: { ours: bytesOf("own"), bare: bytesOf("bare") }, results };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
