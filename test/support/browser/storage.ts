import type { Page } from "@playwright/test";

/** Reads what the browser stores in IndexedDB for this origin, by store. A file is only its name. */
export const readDatabases = (page: Page): Promise<Record<string, unknown[]>> =>
  page.evaluate(async () => {
    const read = <T>(request: IDBRequest<T>) =>
      new Promise<T>((done, failed) => {
        request.onsuccess = () => done(request.result);
        request.onerror = () => failed(request.error);
      });
    const found: Record<string, unknown[]> = {};
    for (const { name = "" } of await indexedDB.databases()) {
      const database = await read(indexedDB.open(name));
      for (const store of database.objectStoreNames) {
        const rows = await read(database.transaction(store).objectStore(store).getAll());
        found[store] = rows.map((row) => (row instanceof File ? row.name : row));
      }
      database.close();
    }
    return found;
  });

/** Everything that the browser stores for this origin, as text. */
export async function readStorage(page: Page): Promise<string> {
  const others = await page.evaluate(async () => [
    { ...sessionStorage },
    { ...localStorage },
    document.cookie,
    await caches.keys(),
  ]);
  return JSON.stringify([...others, ...Object.values(await readDatabases(page)).flat()]);
}
