import { env } from "cloudflare:workers";
import { ALL_DATABASES } from "./databases.ts";

/** The tables of the service, without those of SQLite and of the migrations. */
export async function tableNames(): Promise<string[]> {
  const { results } = await env.DB.prepare(
    "select name from sqlite_master where type = 'table' and name not like '\\_%' escape '\\' and name not like 'sqlite\\_%' escape '\\' and name != 'd1_migrations'",
  ).all<{ name: string }>();
  return results.map(({ name }) => name);
}

/** The tables whose rows belong to a team by their `team_id`. */
export const tablesOfTeams = async () =>
  (await tableNames()).filter((name) => !["teams", "upload_parts", "recovery"].includes(name));

/** The teams whose rows each database has, by its number. */
export async function teamsByDatabase(): Promise<Set<string>[]> {
  const names = await tablesOfTeams();
  const selects = ["select id from teams", ...names.map((name) => `select distinct team_id as id from "${name}"`)];
  const found = ALL_DATABASES.map(async (database) => {
    const answers = await database.batch<{ id: string }>(selects.map((sql) => database.prepare(sql)));
    return new Set(answers.flatMap(({ results }) => results.map(({ id }) => id)));
  });
  return Promise.all(found);
}

/** Removes every row, and every object of R2. */
export async function emptyStores(): Promise<void> {
  const names = await tableNames();
  for (const database of ALL_DATABASES) {
    const releases = ["files", "removed"].map((name) => `update ${name} set hold = null where hold is not null`);
    const deletions = names.map((name) => `delete from "${name}"`);
    await database.batch([...releases, ...deletions].map((query) => database.prepare(query)));
  }
  for (let isTruncated = true; isTruncated; ) {
    const page = await env.BUCKET.list();
    if (page.objects.length > 0) await env.BUCKET.delete(page.objects.map(({ key }) => key));
    isTruncated = page.truncated;
  }
}
