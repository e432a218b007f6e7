import { inDatabaseOf } from "../access/databases.ts";
import { parseCues } from "../cues.ts";
import type { Deps } from "../deps.ts";
import { besideKey } from "../files/beside.ts";
import { DAY, MINUTE, SECOND } from "../platform/system.ts";
import { openText, KIND as TRANSCRIPT } from "../transcripts/transcripts.ts";
import { followLog, readChanges, transcriptsBelow, versionsOf } from "./following.ts";
import { ALL_FILES, IndexStore } from "./index-store.ts";
import type { IndexStatus, SearchIndex, SearchRequest, SearchResult } from "./indexes.ts";
import { partsOf } from "./parts.ts";
import { Ranking } from "./ranking.ts";

/*
 * The words of a team's transcripts, in the Durable Object of the team. It is derived: D1 says which version of a transcript a file
 * has, and R2 has the text. It authorizes no caller: the Worker asks D1 for the files that it finds, and their versions.
 *
 * Only the alarm changes the index, and the platform runs one alarm of an object at a time:
 *
 *   a change is committed    its event is in the log. `wake` sets the alarm to now
 *   the wake is lost         the recovery job compares the log with the cursor that the object last reported, and wakes it
 *   the alarm reads          the events after its cursor, and of each file that they name the present transcript. So an event that
 *                            comes twice or late does no harm
 *   the object is new        or has lost its storage, or has missed events: it compares all transcripts with its own, newest first.
 *                            Until that is done, it says that it is not complete
 *   an event is missing      such as a deletion in a full database: each day it compares a part of the transcripts, and all in a week
 *   the object dies          the alarm was set again before the work began
 */

/** The alarm runs again this long after a death or an error. */
export const RESTART_MILLISECONDS = MINUTE;
/** An alarm may last 15 minutes. The next one continues. */
const MAX_RUN_MILLISECONDS = MINUTE;
/** Transcripts that one query reads. Between two, it reads new events. */
const PAGE_TRANSCRIPTS = 100;
/** Transcripts that it compares in a day: as many, or a sixth. */
const MIN_COMPARED = 500;
const COMPARING_DAYS = 6;
/** A search that waited longer for the thread of the object gets no result. */
const MAX_WAIT_MILLISECONDS = 2 * SECOND;
/** Reads of a transcript that is replaced each time. The event of the last one follows. */
const MAX_READS = 3;

/** The most that an index holds. Above either, the transcripts of the newest files stay. */
export const MAX_INDEX = { transcripts: 10_000, length: 600_000_000 };
/** From this share of the length on, an index that has no place for one transcript reads no older one. */
const FULL_SHARE = 0.99;

export class TeamIndex implements SearchIndex {
  readonly #deps: Deps;
  readonly #teamId: string;
  readonly #storage: DurableObjectStorage;
  readonly #store: IndexStore;
  readonly #limits: typeof MAX_INDEX;
  #isRunning = false;
  /** There may be events that the running alarm has not read. */
  #isWoken = false;
  #isObsolete = false;

  /** @throws `not_found` if the database of the team is not bound */
  constructor(deps: Deps, { id, storage }: Pick<DurableObjectState, "id" | "storage">, limits = MAX_INDEX) {
    this.#teamId = id.name ?? "";
    this.#deps = inDatabaseOf(deps, this.#teamId);
    this.#storage = storage;
    this.#store = new IndexStore(storage);
    this.#limits = limits;
  }

  get #now(): number {
    return this.#deps.system.now();
  }

  async wake(_isChanged: boolean): Promise<number> {
    this.#isWoken = true;
    if (!this.#isRunning) {
      const at = await this.#storage.getAlarm();
      if (at === null || at > this.#now) await this.#storage.setAlarm(this.#now);
    }
    return this.#store.state?.cursor ?? 0;
  }

  async search({ terms, askedAt, ...request }: SearchRequest): Promise<SearchResult | null> {
    if (this.#now - askedAt > MAX_WAIT_MILLISECONDS) return null;
    const { isComplete, isFull } = await this.status();
    const isEmpty = this.#store.state === null;
    if (isEmpty) await this.wake(false);
    if (isEmpty || terms.length === 0) return { files: [], hasMore: false, isComplete, isFull };
    return { ...new Ranking(this.#store, terms).page(request), isComplete, isFull };
  }

  async status(): Promise<IndexStatus> {
    const state = this.#store.state;
    if (state === null) return { transcripts: 0, length: 0, isComplete: false, isFull: false };
    const { transcripts, length, isFull, building } = state;
    return { transcripts, length, isComplete: building === null && !isFull, isFull };
  }

  async rebuild(): Promise<void> {
    this.#isObsolete = true;
    // Or else the running alarm does it: it may be about to store what it read before.
    if (!this.#isRunning) this.#store.update({ format: 0 });
    await this.wake(true);
  }

  /** The handler of the alarm. After an error, the alarm runs again. */
  async run(): Promise<void> {
    await this.#storage.setAlarm(this.#now + RESTART_MILLISECONDS);
    this.#isRunning = true;
    const next = await this.#work().finally(() => {
      this.#isRunning = false;
    });
    if (next !== null) await this.#storage.setAlarm(this.#isWoken ? this.#now : next);
  }

  /** @returns when there is more to do. Null if the team is gone */
  async #work(): Promise<number | null> {
    const stopAt = this.#now + MAX_RUN_MILLISECONDS;
    for (;;) {
      const hasMore = await this.#followEvents();
      if (hasMore === null) {
        await this.#store.empty();
        return null;
      }
      const state = this.#store.state;
      const isComparing = state !== null && state.building === null && this.#now >= state.comparedAt + DAY;
      if (state?.building != null) await this.#compare("building", PAGE_TRANSCRIPTS, stopAt);
      else if (isComparing) await this.#compareDaily(stopAt);
      else if (!hasMore && !this.#isWoken) return (state?.comparedAt ?? this.#now) + DAY;
      if (this.#now >= stopAt) return this.#now;
    }
  }

  /** Reads the next events, and the transcripts that they name. @returns whether there are more. Null if the team is gone */
  async #followEvents(): Promise<boolean | null> {
    this.#isWoken = false;
    if (this.#isObsolete) this.#store.update({ format: 0 });
    this.#isObsolete = false;
    const known = this.#store.state;
    const changes = await readChanges(this.#deps, this.#teamId, known?.cursor ?? 0);
    if (!changes) return null;
    const { cursor, last, isContinuous, fileIds, hasMore } = changes;
    if (known === null) {
      // The tables of an index of another format go, too.
      await this.#store.empty();
      await this.#storage.setAlarm(this.#now + RESTART_MILLISECONDS);
    }
    if (known === null || !isContinuous) {
      // A file that is listed from now on was changed before, or has a later event.
      this.#store.update({ cursor: last, building: ALL_FILES });
      return false;
    }
    const versions = await versionsOf(this.#deps, this.#teamId, fileIds);
    for (const fileId of fileIds) await this.#replace(fileId, versions.get(fileId) ?? null);
    if (cursor !== known.cursor) this.#store.update({ cursor });
    return hasMore;
  }

  /** Compares the next transcripts in D1 with those of the index. @returns how many */
  async #compare(by: "building" | "comparing", limit: number, stopAt: number): Promise<number> {
    const below = this.#store.state?.[by] ?? ALL_FILES;
    if (below === ALL_FILES) this.#store.update({ hasSkipped: false });
    const page = await transcriptsBelow(this.#deps, this.#teamId, below, limit);
    const end = page.length < limit ? "" : (page.at(-1)?.fileId ?? "");
    const present = new Map(page.map(({ fileId, version }) => [fileId, version]));
    for (const { fileId } of this.#store.between(end, below)) {
      if (!present.has(fileId)) await this.#replace(fileId, null);
    }
    for (const { fileId, version } of page) {
      await this.#replace(fileId, version);
      if (this.#now < stopAt) continue;
      this.#store.update({ [by]: fileId });
      return page.length;
    }
    if (end !== "") this.#store.update({ [by]: end });
    else await this.#endRound(by);
    return page.length;
  }

  async #endRound(by: "building" | "comparing"): Promise<void> {
    await followLog(this.#deps, this.#teamId);
    const isFull = this.#store.state?.hasSkipped ?? false;
    const times = by === "building" ? { building: null, comparedAt: this.#now } : {};
    this.#store.update({ ...times, comparing: ALL_FILES, isFull });
  }

  async #compareDaily(stopAt: number): Promise<void> {
    const { transcripts = 0 } = this.#store.state ?? {};
    const count = Math.max(MIN_COMPARED, Math.ceil(transcripts / COMPARING_DAYS));
    for (let compared = 0; compared < count; ) {
      const found = await this.#compare("comparing", Math.min(PAGE_TRANSCRIPTS, count - compared), stopAt);
      if (this.#now >= stopAt) return;
      compared += found;
      if (this.#store.state?.comparing === ALL_FILES) break;
    }
    this.#store.update({ comparedAt: this.#now });
  }

  /** Has the index hold this version of a file's transcript, or none. */
  async #replace(fileId: string, wanted: string | null): Promise<void> {
    let version = wanted;
    for (let reads = 0; version !== this.#store.versionOf(fileId) && reads < MAX_READS; reads++) {
      if (version === null) {
        this.#store.transaction(() => this.#store.remove(fileId));
        return;
      }
      if (this.#isBeyond(fileId)) return this.#noteFull();
      const key = besideKey({ teamId: this.#teamId, id: fileId }, { kind: TRANSCRIPT, version });
      const stream = await openText(this.#deps, key);
      if (stream) {
        this.#index(fileId, version, await new Response(stream).text());
        return;
      }
      // It was replaced or deleted in the meantime. Or its object is lost: then there is nothing to find.
      const present = (await versionsOf(this.#deps, this.#teamId, [fileId])).get(fileId) ?? null;
      if (present === version) this.#deps.log("warn", "transcript_missing", { fileId });
      version = present === version ? null : present;
    }
  }

  #index(fileId: string, version: string, vtt: string): void {
    const parts = partsOf(parseCues(vtt));
    this.#store.transaction(() => {
      this.#store.remove(fileId);
      this.#store.add({ fileId, version }, parts);
      while (this.#isOverfull()) {
        this.#store.remove(this.#store.oldest ?? "");
        this.#noteFull();
      }
    });
  }

  /** Stores that a transcript has no place, and says so in the log when the index becomes full. */
  #noteFull(): void {
    const { isFull, transcripts = 0 } = this.#store.state ?? {};
    if (!isFull) this.#deps.log("warn", "search_index_full", { teamId: this.#teamId, counts: { transcripts } });
    this.#store.update({ isFull: true, hasSkipped: true });
  }

  #isOverfull(): boolean {
    const { transcripts = 0, length = 0 } = this.#store.state ?? {};
    return transcripts > this.#limits.transcripts || (length > this.#limits.length && transcripts > 1);
  }

  /** Whether the index has no place for the file: it is full, and the file is older than all of its files. */
  #isBeyond(fileId: string): boolean {
    const { transcripts = 0, length = 0, hasSkipped = false } = this.#store.state ?? {};
    const isFull = transcripts >= this.#limits.transcripts || length >= FULL_SHARE * this.#limits.length;
    return hasSkipped && isFull && fileId < (this.#store.oldest ?? "");
  }
}
