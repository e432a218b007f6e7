import { env } from "cloudflare:workers";
import { ALL_DATABASES } from "./databases.ts";

/** The tables of the service, without those of SQLite and of the migrations. */
export async function tableNames(): Promise<string[]> {
  const { results } = await env.DB.prepare(
    "select name from sqlite_master where type = 'table' and name not like '\\_%' escape '\\' and name not like 'sqlite\\_%' escape '\\' and name != 'd1_migrations'",
  ).all<{ name: string }>();
  return results.map(({ name }) => name);
}

/** Removes every row and every object. */
export async function emptyStores(): Promise<void> {
  const names = await tableNames();
  for (const database of ALL_DATABASES) {
    await database.batch(names.map((name) => database.prepare(`delete from "${name}"`)));
  }
  for (let isTruncated = true; isTruncated; ) {
    const page = await env.BUCKET.list();
    if (page.objects.length > 0) await env.BUCKET.delete(page.objects.map(({ key }) => key));
    isTruncated = page.truncated;
  }
}
