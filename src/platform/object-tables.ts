/**
 * The SQLite tables of a Durable Object. They are created by the first write, so an object that is only asked stores nothing. Every method
 * but `empty` is synchronous, so nothing else runs in between.
 */
export class ObjectTables {
  readonly #storage: DurableObjectStorage;
  readonly #tables: string[];
  #isOpen = false;

  /** @param tables statements that create them if they do not exist, one of which is named `state` */
  constructor(storage: DurableObjectStorage, tables: string[]) {
    this.#storage = storage;
    this.#tables = tables;
  }

  #run<T extends Record<string, SqlStorageValue>>(query: string, values: SqlStorageValue[]): T[] {
    return this.#storage.sql.exec<T>(query, ...values).toArray();
  }

  /** Finds nothing in an object that stores nothing, and leaves it like that. */
  read<T extends Record<string, SqlStorageValue>>(query: string, ...values: SqlStorageValue[]): T[] {
    this.#isOpen ||= this.#run("select 1 from sqlite_master where name = 'state'", []).length > 0;
    return this.#isOpen ? this.#run<T>(query, values) : [];
  }

  write(query: string, ...values: SqlStorageValue[]): void {
    if (!this.#isOpen) for (const table of this.#tables) this.#run(table, []);
    this.#isOpen = true;
    this.#run(query, values);
  }

  transaction(work: () => void): void {
    try {
      this.#storage.transactionSync(work);
    } catch (error) {
      // It may have created the tables.
      this.#isOpen = false;
      throw error;
    }
  }

  /** Deletes everything, the tables and the alarm included. */
  async empty(): Promise<void> {
    await this.#storage.deleteAll();
    this.#isOpen = false;
  }
}
