import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect } from "vitest";
import { FILE_TYPES } from "../../src/audio/media-type.ts";
import { fold } from "../../src/folding.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { DB } from "../support/databases.ts";
import { withBindings } from "../support/deps.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  type Answer,
  call,
  compose,
  dataOf,
  fill,
  idsIn,
  metadataOf,
  newMember,
  newTeam,
  newUser,
  nextOf,
  OPERATOR,
  pagesOf,
  read,
  readPages,
  rejected,
  startWorker,
  type Team,
  upload,
  withoutHashing,
  withoutJobs,
  withoutLimits,
} from "../support/harness.ts";
import { isExhaustive } from "../support/tiers.ts";

/*
 * Pagination of every list, by limit and page and by the cursor in Link, and the filters of files and users.
 */

type Table = Parameters<typeof fill>[1];
const lists: { path: string; table: Table; newestFirst: boolean }[] = [
  { path: "/auth/v1/apikeys", table: "api_keys", newestFirst: true },
  { path: "/auth/v1/users", table: "users", newestFirst: false },
  { path: "/docs/v1/uploads", table: "files", newestFirst: true },
];

const idsOf = ({ status, body, text }: Answer): string[] => {
  expect(status, text).toBe(200);
  return idsIn(body.data ?? body);
};
const cursorOf = (answer: Answer) => new URL(nextOf(answer) ?? "").searchParams.get("cursor") ?? "";
const withCursor = (path: string, cursor: string) => `${path}?limit=5&cursor=${encodeURIComponent(cursor)}`;
const numbersTo = (count: number) => Array.from({ length: count }, (_, n) => n);

describe.each(lists)("$path", ({ path, table, newestFirst }) => {
  /** The ids in the database, in list order. */
  async function allIds(team: Team): Promise<string[]> {
    const sql = `select id as _id from ${table} where team_id = ? order by id ${newestFirst ? "desc" : "asc"}`;
    const { results } = await DB.prepare(sql).bind(team.teamId).all<{ _id: string }>();
    return idsIn(results);
  }
  async function filled(count: number): Promise<[Team, string[]]> {
    const team = await newTeam();
    await fill(team, table, count);
    return [team, await allIds(team)];
  }

  test("returns 20 items, or limit, at most 100", async () => {
    const [team, all] = await filled(120);
    for (const [query, count] of [
      ["page=1", 20],
      ["limit=1", 1],
      ["limit=100", 100],
      ["limit=101", 100],
      ["limit=99999999999999999999", 100],
    ]) {
      expect(idsOf(await team.call("GET", `${path}?${query}`)), `${query}`).toEqual(all.slice(0, Number(count)));
    }
  });

  test("returns the requested page, and an empty page beyond the end", async () => {
    const [team, all] = await filled(30);
    const page = (n: number | string) => team.call("GET", `${path}?limit=8&page=${n}`);
    for (const n of [1, 2, 3, 4]) expect(idsOf(await page(n))).toEqual(all.slice((n - 1) * 8, n * 8));
    for (const n of [5, 125]) {
      const answer = await page(n);
      expect([idsOf(answer), nextOf(answer)]).toEqual([[], undefined]);
    }
  });

  test("rejects a page deeper than 1,000 rows and refers to Link", async ({ team }) => {
    const tooDeep = ["limit=100&page=11", "limit=1&page=1001", "page=51", "page=1000000000"];
    for (const query of [...tooDeep, `page=${"9".repeat(400)}`]) {
      const answer = await rejected(team, 400, "invalid_input", () => team.call("GET", `${path}?${query}`), ["page"]);
      expect(answer.body.errors[0].message).toContain("Link");
    }
    for (const query of ["limit=100&page=10", "limit=1&page=1000", "limit=1000&page=10"]) {
      expect((await team.call("GET", `${path}?${query}`)).status, query).toBe(200);
    }
  });

  test.each(["limit", "page"])("rejects a %s that is not a whole number from 1", async (name) => {
    const team = await newTeam();
    const values = ["0", "-1", "1.5", "abc", "", "1e3", "%201", "1%20", "+1", "0x10", "٣", "1,2", "NaN", "null", "%00"];
    for (const value of [...values, `1&${name}=2`]) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", `${path}?${name}=${value}`), [name]);
    }
  });

  test("returns every item once and in order if Link is followed, which the last page lacks even if it is full", async () => {
    const [team, all] = await filled(41);
    const pages = await readPages(team, `${path}?limit=7`);
    expect(pages.flatMap(idsIn)).toEqual(all);
    expect(pages.map(({ length }) => length)).toEqual(
      [...Array(Math.floor(all.length / 7)).fill(7), all.length % 7].filter(Boolean),
    );
    expect(nextOf(await team.call("GET", `${path}?limit=${all.length}`))).toBeUndefined();
  });

  test("returns each remaining item once while others are added and deleted", async () => {
    const [team, all] = await filled(40);
    const seen: string[] = [];
    const gone: string[] = [];
    let added = 100;
    for await (const page of pagesOf(team, `${path}?limit=6`)) {
      seen.push(...idsOf(page));
      // Deletes the last seen row, which the cursor names, and one not seen yet, and adds some.
      const going = [seen.at(-1), all[seen.length + 3]].filter((id) => id !== undefined && id !== team.keyId);
      for (const id of going) await DB.prepare(`delete from ${table} where id = ?`).bind(id).run();
      gone.push(...(going as string[]));
      if (newestFirst) await fill(team, table, 3, added);
      added += 3;
    }
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toEqual(expect.arrayContaining(all.filter((id) => !gone.includes(id))));
  });

  test("rejects a cursor of another list, or a malformed one", async () => {
    const [team] = await filled(12);
    const cursor = cursorOf(await team.call("GET", `${path}?limit=5`));
    const foreign: string[] = [];
    for (const other of lists.filter((list) => list.path !== path)) {
      await fill(team, other.table, 12);
      foreign.push(cursorOf(await team.call("GET", `${other.path}?limit=5`)));
    }
    const id = cursor.slice(-24);
    const nonsense = ["", cursor.slice(0, -24), ".", "x", "' or 1=1 --", "\u0000", "x".repeat(5000), "e30", "W10"];
    const forged = [id, `-${id}`, cursor.slice(0, -1), `${cursor}0`, cursor.toUpperCase()];
    for (const wrong of [...foreign, ...nonsense, ...forged, cursor.replace(id, "g".repeat(24))]) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", withCursor(path, wrong)), ["cursor"]);
    }
    const twice = () => team.call("GET", `${withCursor(path, cursor)}&cursor=${cursor}`);
    await rejected(team, 400, "invalid_input", twice, ["cursor"]);
    expect(idsOf(await team.call("GET", withCursor(path, cursor)))).toHaveLength(5);
  });

  test("returns nothing of another team for that team's cursor, unchanged or modified", async () => {
    const [[team, own], [other]] = await Promise.all([filled(12), filled(12)]);
    const cursor = cursorOf(await other.call("GET", `${path}?limit=5`));
    const changed = Array.from(cursor, (c, i) => cursor.slice(0, i) + (c === "0" ? "1" : "0") + cursor.slice(i + 1));
    const cut = [cursor.slice(0, -1), cursor.slice(1), cursor.toUpperCase()];
    expect((await team.call("GET", withCursor(path, cursor))).status).toBe(200);
    for (const one of [cursor, ...changed, ...cut]) {
      const answer = await team.call("GET", withCursor(path, one));
      if (answer.status === 200) for (const id of idsOf(answer)) expect(own, one).toContain(id);
      else expect([answer.status, answer.code], one).toEqual([400, "invalid_input"]);
      expect(answer.text).not.toContain(other.teamId);
    }
  });

  test("counts pages from the cursor", async () => {
    const [team, all] = await filled(12);
    const cursor = cursorOf(await team.call("GET", `${path}?limit=5`));
    expect(idsOf(await team.call("GET", `${withCursor(path, cursor)}&page=2`))).toEqual(all.slice(10, 15));
  });

  test("reads as few rows at depth as at the start if it is followed by cursor", async () => {
    const [team] = await filled(300);
    const costs: number[] = [];
    for (let next: string | undefined = `${path}?limit=10`; next !== undefined; ) {
      const bindings = new ProxiedBindings();
      const counted = startWorker((deps) => withBindings(deps, bindings.wrap(env)));
      const page: Answer = await counted.call("GET", next, { token: team.token });
      costs.push(bindings.effects.rowsRead);
      next = nextOf(page);
    }
    expect(costs).toHaveLength(table === "api_keys" ? 31 : 30);
    expect(Math.max(...costs.slice(1))).toBeLessThanOrEqual(costs[0] ?? 0);
  });
});

test("the operator's list of all keys rejects a cursor of the list of one team", async ({ team }) => {
  await fill(team, "api_keys", 3);
  const list = (path: string) => call("GET", path, { token: OPERATOR });
  const link = new URL(nextOf(await list(`/auth/v1/apikeys?limit=1&teamId=${team.teamId}`)) ?? "");
  expect((await list(link.href)).status).toBe(200);
  link.searchParams.delete("teamId");
  expect((await list(link.href)).status).toBe(400);
});

interface FileRow {
  id: string;
  original_name: string;
  status: string;
  file_type: string;
  folder: string;
  reference: string | null;
  tags: string[];
  has_transcript: 0 | 1;
}
type TextFilter = "status" | "fileType" | "name" | "folder" | "under" | "tag" | "reference" | "search";
type Filters = Partial<Record<TextFilter | "createdAfter" | "createdBefore" | "hasTranscript" | "sort", string>>;

const STATES = ["pending", "processing", "completed", "failed"];
const FIRST_MILLISECOND = Date.parse("2026-01-01T00:00:00Z");
const instantAt = (row: number) => new Date(FIRST_MILLISECOND + row).toISOString();
// A duplicate, case, wildcards of patterns, compatible characters, and characters that sort differently in UTF-16.
const NAMES = [
  ...["a", "A", "a%", "a_b", "ab", "ab.mp3", "aé", "b", "b\uffff", "b\u{1f600}", "b\u{10ffff}z", "ab"],
  ...["Take 1.wav", "\uff34\u1e69"],
];
// Names that sort before the separator, and folders whose names start alike.
const FOLDERS = ["", "", "a", "a/b", "a/b/c", "a-b", "ab", "A", "%", "a/\u05d0 b"];
const REFERENCES = [null, null, "r", "R", "%"];
const TAGS = [[], [], ["x"], ["y", "x"], ["X"], ['"x"'], ["%", "_"]];

/** Picks pseudorandomly, but equally in every run. */
const pick = <T>(from: readonly T[], n: number): T => from[(Math.imul(n + 1, 0x9e3779b1) >>> 8) % from.length] as T;

/** Inserts files of every kind, two per millisecond. */
async function insertFiles(team: Team, numbers: number[], change: Partial<FileRow> = {}): Promise<FileRow[]> {
  const rows = numbers.map((n) => ({
    id: (FIRST_MILLISECOND + (n >> 1)).toString(16).padStart(12, "0") + n.toString(16).padStart(12, "0"),
    original_name: pick(NAMES, n),
    status: pick(["completed", "completed", ...STATES], n * 7 + 3),
    file_type: pick(["audio file", "audio file", ...FILE_TYPES.slice(0, 3)], n * 13 + 5),
    folder: pick(FOLDERS, n * 17 + 1),
    reference: pick(REFERENCES, n * 19 + 2),
    tags: pick(TAGS, n * 23 + 3),
    has_transcript: pick([0, 0, 1] as const, n * 29 + 4),
    ...change,
  }));
  const texts = ["original_name", "status", "file_type", "folder", "reference", "tags", "name_key", "search_keys"];
  const given = [...texts, "has_transcript"];
  const columns = `etag, mime_type, id, team_id, key_id, user_id, ${given}, reserved_bytes, size_bytes, processed_at, created_at, updated_at`;
  const values = ["id", ...given].map((name) => `value ->> '${name}'`);
  const [id, ...rest] = values;
  const processedAt = "case when value ->> 'status' in ('pending', 'processing') then null else 1 end";
  await DB.prepare(
    `insert into files (${columns}) select 'x', '', ${id}, ?1, ?1, value ->> 'owner', ${rest}, 1, 1, ${processedAt}, 1, 1 from json_each(?2)`,
  )
    .bind(
      team.teamId,
      JSON.stringify(rows.map((row) => ({ ...row, name_key: keyOf(row), search_keys: searchKeysOf(row) }))),
    )
    .run();
  return rows;
}

const timeOf = ({ id }: FileRow) => Number.parseInt(id.slice(0, 12), 16);
const keyOf = ({ original_name }: Pick<FileRow, "original_name">) => fold(original_name);
const searchedIn = ({ original_name, folder, reference, tags }: FileRow) => [
  ...[original_name, folder, reference ?? ""],
  ...tags,
];
const searchKeysOf = ({ folder, reference, tags }: FileRow) => ({
  ...(folder && { folder: fold(folder) }),
  ...(reference && { reference: fold(reference) }),
  ...(tags.length > 0 && {
    tags: Object.fromEntries(tags.map((tag) => [tag, fold(tag)])),
    tagText: tags.map(fold).join("\u0001"),
  }),
});
const byName = (a: FileRow, b: FileRow) =>
  Buffer.compare(Buffer.from(keyOf(a)), Buffer.from(keyOf(b))) || (a.id < b.id ? -1 : 1);

/** The expected list: a plain filter over all rows. */
function expected(rows: FileRow[], filters: Filters): FileRow[] {
  const { status, fileType, name, createdAfter, createdBefore, folder, under, tag, reference, search } = filters;
  const { hasTranscript } = filters;
  const { sort = name === undefined && search === undefined ? "-createdAt" : "name" } = filters;
  return rows
    .filter((row) => status === undefined || row.status === status)
    .filter((row) => fileType === undefined || row.file_type === fileType)
    .filter((row) => name === undefined || keyOf(row).startsWith(fold(name)))
    .filter((row) => createdAfter === undefined || timeOf(row) > Date.parse(createdAfter))
    .filter((row) => createdBefore === undefined || timeOf(row) < Date.parse(createdBefore))
    .filter((row) => folder === undefined || row.folder === folder)
    .filter((row) => !under || `${row.folder}/`.startsWith(`${under}/`))
    .filter((row) => tag === undefined || row.tags.includes(tag))
    .filter((row) => reference === undefined || row.reference === reference)
    .filter((row) => hasTranscript === undefined || (row.has_transcript === 1) === (hasTranscript === "true"))
    .filter((row) => search === undefined || searchedIn(row).some((text) => fold(text).includes(fold(search))))
    .sort((a, b) => (sort.startsWith("-") ? -1 : 1) * (sort.endsWith("name") ? byName(a, b) : a.id < b.id ? -1 : 1));
}

const FILES = "/docs/v1/uploads";
async function withTranscript(team: Team): Promise<string> {
  const id = await upload(team, "c.txt", "hello");
  const body = "WEBVTT\n\n00:00.000 --> 00:01.000\nGood evening.\n";
  await dataOf(team.call("PUT", `${FILES}/${id}/transcript`, { body, headers: { "Content-Type": "text/vtt" } }));
  return id;
}
const queryOf = (parameters: object) => new URLSearchParams(parameters as Record<string, string>).toString();
const withQuery = (path: string, parameters: object) => `${path}?${queryOf(parameters)}`;

describe("Filters of files", () => {
  const filters = fc.record(
    {
      status: fc.constantFrom("pending", "processing", "completed", "failed"),
      fileType: fc.constantFrom(...FILE_TYPES.slice(0, 4)),
      name: fc.constantFrom("a", "ab", "A", "a%", "b", "b\u{10ffff}", "t", "TAKE 1.wav", "x"),
      createdAfter: fc.integer({ min: -1, max: 900 }).map(instantAt),
      createdBefore: fc.integer({ min: -1, max: 900 }).map(instantAt),
      folder: fc.constantFrom(...FOLDERS, "x"),
      under: fc.constantFrom(...FOLDERS, "x"),
      tag: fc.constantFrom(...TAGS.flat(), "z"),
      reference: fc.constantFrom(...REFERENCES.filter((one) => one !== null), "z"),
      search: fc.constantFrom("a", "B", "%", "_", ".wav", "\u1e69", "e", "x", "R", '"x', "/b"),
      hasTranscript: fc.constantFrom("true", "false"),
      sort: fc.constantFrom("name", "-name", "-createdAt", "createdAt"),
    },
    { requiredKeys: [] },
  );
  /** Whether the only filter is `hasTranscript=false`, which the service rejects. All files are under "". */
  const isRejected = ({ sort: _, under, hasTranscript, ...others }: Filters) =>
    hasTranscript === "false" && !under && Object.keys(others).length === 0;
  const few = fc
    .tuple(filters, fc.array(fc.nat(10), { minLength: 1, maxLength: 3 }))
    .map(([all, kept]) => Object.fromEntries(Object.entries(all).filter((_, i) => kept.includes(i))) as Filters);

  test("return what a filter over all rows returns, once and in order, while rows are added and deleted", async () => {
    const unlimited = startWorker(compose(withoutJobs, withoutLimits));
    const [team, other] = await Promise.all([newTeam(unlimited), newTeam()]);
    const numbers = numbersTo(1600);
    const present = new Map((await insertFiles(team, numbers)).map((row) => [row.id, row]));
    await insertFiles(other, numbers);
    let next = numbers.length;
    await fc.assert(
      fc.asyncProperty(fc.oneof(filters, few), fc.integer({ min: 1, max: 100 }), async (wanted, limit) => {
        fc.pre(!isRejected(wanted));
        const atFirst = expected([...present.values()], wanted);
        const known = new Map(present);
        const gone = new Set<string>();
        const seen: FileRow[] = [];
        for await (const page of pagesOf(team, withQuery(FILES, { ...wanted, limit }))) {
          const ids = idsOf(page);
          expect(ids.length).toBeLessThanOrEqual(limit);
          seen.push(...ids.map((id) => known.get(id) as FileRow));
          // Deletes the last seen row, which the cursor names, and one not seen yet, and adds one.
          const going = [seen.at(-1), atFirst[seen.length + 2]].filter((row) => row !== undefined);
          const ids2 = going.map(({ id }) => id);
          await DB.prepare("delete from files where team_id = ? and id in (select value from json_each(?))")
            .bind(team.teamId, JSON.stringify(ids2))
            .run();
          for (const id of ids2) {
            gone.add(id);
            present.delete(id);
          }
          for (const row of await insertFiles(team, [next++])) {
            present.set(row.id, row);
            known.set(row.id, row);
          }
          for (const file of page.body.data) expect(file.teamId).toBe(team.teamId);
        }
        expect(new Set(seen).size).toBe(seen.length);
        expect(seen).toEqual(expected(seen, wanted));
        const stayed = new Set(atFirst.filter(({ id }) => !gone.has(id)));
        expect(seen.filter((row) => stayed.has(row))).toEqual([...stayed]);
      }),
      { numRuns: isExhaustive ? 100 : 5 },
    );
  });

  test("reject files without a transcript as the only filter", async ({ team }) => {
    const [, without = ""] = [await withTranscript(team), await upload(team, "b.txt", "hello")];
    for (const others of ["", "&sort=name", "&under=", "&limit=5"]) {
      const list = () => team.call("GET", `${FILES}?hasTranscript=false${others}`);
      await rejected(team, 400, "invalid_input", list, ["hasTranscript"]);
    }
    const found = async (others: string) => idsOf(await team.call("GET", `${FILES}?hasTranscript=false${others}`));
    expect([await found("&folder="), await found("&under=a")]).toEqual([[without], []]);
  });

  test("can return an empty page with a Link that leads to the matches", async ({ team }) => {
    const numbers = numbersTo(1200).map((n) => n + 10);
    await insertFiles(team, numbers, { status: "completed", original_name: "a" });
    const found = await insertFiles(team, [1], { status: "failed", original_name: "ab", file_type: "audio file" });
    for (const query of ["status=failed&name=a", "name=a&fileType=audio file&status=failed"]) {
      const pages = await readPages(team, `${FILES}?limit=5&${query}`);
      expect(pages[0], query).toEqual([]);
      expect(idsIn(pages.flat())).toEqual(found.map(({ id }) => id));
    }
  });

  test("can be paged by number, also from a cursor", async ({ team }) => {
    const rows = await insertFiles(team, numbersTo(300));
    for (const wanted of [
      { status: "failed" },
      { status: "completed" },
      { fileType: "audio file" },
      { name: "a" },
      { name: "a", status: "completed" },
      { createdBefore: instantAt(100) },
    ]) {
      const all = expected(rows, wanted).map(({ id }) => id);
      const page = (n: number) => team.call("GET", withQuery(FILES, { ...wanted, limit: 4, page: n }));
      for (const n of [1, 2, 3, 5, 100]) {
        const label = `${queryOf(wanted)} ${n}`;
        expect(idsOf(await page(n)), label).toEqual(all.slice((n - 1) * 4, n * 4));
      }
      const link = nextOf(await page(1));
      expect(idsOf(await team.call("GET", `${link}&page=2`))).toEqual(all.slice(8, 12));
    }
  });

  test("reject a page number beyond the examined rows, which Link reaches", async ({ team }) => {
    const rows = await insertFiles(team, numbersTo(599), { status: "completed", original_name: "a" });
    const pageAt = (n: number) => team.call("GET", `${FILES}?status=completed&limit=100&page=${n}`);
    const fifth = await pageAt(5);
    expect(idsOf(fifth)).toHaveLength(40);
    const { body } = await rejected(team, 400, "invalid_input", () => pageAt(6), ["page"]);
    expect(body.errors[0].message).toContain("Link");
    const last = await team.call("GET", nextOf(fifth) ?? "");
    expect(idsOf(last)).toEqual(
      rows
        .slice(59, 159)
        .map(({ id }) => id)
        .reverse(),
    );
  });

  test("compare exclusive dates with the time in the file's id", async () => {
    let now = Date.parse("2026-02-03T04:05:06.789Z");
    const ticking = startWorker(
      compose(withoutJobs, (deps) => ({ ...deps, system: { ...deps.system, now: () => (now += 7) } })),
    );
    const team = await newTeam(ticking);
    const [first, second] = [await upload(team, "a.mp3", "a"), await upload(team, "b.mp3", "b")];
    const { body } = await team.call("GET", FILES);
    const [b, a] = body.data.map(({ createdAt }: { createdAt: string }) => createdAt);
    for (const file of body.data) expect(Date.parse(file.createdAt)).toBe(timeOf({ id: file._id } as FileRow));

    const list = async (parameters: Filters) => idsOf(await team.call("GET", withQuery(FILES, parameters)));
    const moved = (instant: string, milliseconds: number) => new Date(Date.parse(instant) + milliseconds).toISOString();
    expect(await list({ createdAfter: a })).toEqual([second]);
    expect(await list({ createdAfter: moved(a, -1) })).toEqual([second, first]);
    expect(await list({ createdBefore: b })).toEqual([first]);
    expect(await list({ createdBefore: moved(b, 1) })).toEqual([second, first]);
    expect(await list({ createdAfter: a, createdBefore: b })).toEqual([]);
    // Finer than a millisecond, and with an offset.
    expect(await list({ createdBefore: b.replace("Z", "001Z") })).toEqual([second, first]);
    expect(await list({ createdAfter: b.replace("Z", "001Z") })).toEqual([]);
    expect(await list({ createdAfter: moved(a, 3_600_000 - 1).replace("Z", "+01:00") })).toEqual([second, first]);
    expect(
      await list({ createdAfter: "0001-01-01T00:00:00Z", createdBefore: "9999-12-31T23:59:59.999Z" }),
    ).toHaveLength(2);
    expect(await list({ createdBefore: "1969-12-31T23:59:59Z" })).toEqual([]);
  });

  test.each(
    Object.entries({
      status: ["done", "receiving", "", "failed&status=failed"],
      fileType: ["audio", "Audio%20file", "audio+file&fileType=audio+file"],
      createdAfter: ["yesterday", "", "2026-02-30T00:00:00Z", "2026-01-01"],
      createdBefore: [
        ...["1767225600000", "2026-01-01T00:00:00"],
        "2026-01-01T00:00:00Z&createdBefore=2026-01-01T00:00:00Z",
      ],
      hasTranscript: ["1", "True", "", "true&hasTranscript=true"],
      include: ["", "audio", "metadata,metadata", "metadata&include=metadata"],
      // No index has these, and a client sorts what it has loaded.
      sort: ["size", "-size", "duration", "-duration", "-", "name&sort=name"],
      name: ["", "a&name=b", "a%00", "a%0Ab", "%C2%85", "%ED%A0%80", "%FF", "%", "a".repeat(201)],
    }),
  )("reject an invalid or repeated %s by name", async (name, values) => {
    const team = await newTeam();
    for (const value of values) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", `${FILES}?${name}=${value}`), [name]);
    }
  });

  test("are repeated in Link, whose cursor is rejected with other filters", async ({ team }) => {
    await insertFiles(team, numbersTo(60), { status: "completed", original_name: "a+b &é\u{1f600}" });
    const lists: Filters[] = [
      ...[{}, { status: "completed" }, { fileType: "audio file" }, { name: "a+b &é" }, { name: "a" }],
      { name: "a", status: "completed" },
      ...[{ createdAfter: instantAt(-1) }, { createdBefore: instantAt(1000) }],
      { hasTranscript: "true" },
    ];
    const cursors: string[] = [];
    for (const wanted of lists) {
      const answer = await team.call("GET", withQuery(FILES, { limit: 5, ...wanted }));
      const { limit, cursor, ...repeated } = Object.fromEntries(new URL(nextOf(answer) ?? "").searchParams);
      expect([limit, repeated]).toEqual(["5", wanted]);
      cursors.push(cursor ?? "");
      expect(encodeURIComponent(cursor ?? "")).toBe(cursor);
    }
    for (const [i, wanted] of lists.entries()) {
      for (const [j, cursor] of cursors.entries()) {
        const use = () => team.call("GET", withQuery(FILES, { limit: 5, ...wanted, cursor }));
        if (i === j) expect(idsOf(await use())).toHaveLength(5);
        else await rejected(team, 400, "invalid_input", use, ["cursor"]);
      }
    }
  });
});

describe("A list of files with their metadata", () => {
  const listed = (team: Team, query = "") => read(team, `${FILES}?include=metadata${query}`);
  const metadataOfAll = (team: Team, ids: string[]) => Promise.all(ids.map((id) => metadataOf(team, id)));

  test("has for each what its metadata is, with and without a waveform, a transcript, a hold and a name", async () => {
    const team = await newTeam(startWorker(withoutJobs));
    const { id: userId, token } = await newMember(team, "contributor");
    await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { firstName: "Ada" } });
    const own: Team = {
      ...team,
      token,
      call: (method, path, options) => team.call(method, path, { token, ...options }),
    };
    const ids = [await upload(team, "a.txt", "hello"), await upload(own, "b.txt", "hello"), await withTranscript(team)];
    await team.call("PATCH", `${FILES}/${ids[0]}`, { json: { metadata: { season: 2 } } });
    await team.call("PUT", `${FILES}/${ids[0]}/hold`, { json: { reason: "Case 12" } });
    await team.call("PUT", `${FILES}/${ids[1]}/waveform`, { json: { channels: [Array(16).fill(0.5)] } });
    const expected = await metadataOfAll(team, ids);
    const uploader = (await read(team, `/auth/v1/apikeys/${team.keyId}`)).name;
    expect(expected.map(({ uploadedBy }) => uploadedBy.name)).toEqual([uploader, "Ada", uploader]);
    expect(await listed(team)).toEqual(expected.toReversed());
    expect(await listed(team, "&name=a&folder=")).toEqual(await metadataOfAll(team, ids.slice(0, 1)));
    expect(await listed(team, "&hasTranscript=true")).toEqual(await metadataOfAll(team, ids.slice(2)));
    expect(await listed(team, "&search=b")).toEqual(await metadataOfAll(team, ids.slice(1, 2)));
    expect(await listed(own)).toEqual(await metadataOfAll(team, ids.slice(1, 2)));
  });

  test("has at most 100 files, and rejects a larger limit, which other lists cut", async ({ team }) => {
    await fill(team, "files", 101);
    expect(await listed(team, "&limit=100")).toHaveLength(100);
    for (const limit of [101, 1000]) {
      const list = () => team.call("GET", `${FILES}?include=metadata&limit=${limit}`);
      await rejected(team, 400, "invalid_input", list, ["limit"]);
      expect(idsOf(await team.call("GET", `${FILES}?limit=${limit}`))).toHaveLength(100);
    }
  });

  test("continues by the Link of a list without it, and the other way round", async ({ team }) => {
    await fill(team, "files", 7);
    const first = await team.call("GET", `${FILES}?limit=5&include=metadata`);
    const link = new URL(nextOf(first) ?? "");
    expect(link.searchParams.get("include")).toBe("metadata");
    const [rest] = idsIn((await team.call("GET", link.href)).body.data);
    link.searchParams.delete("include");
    const plain = (await team.call("GET", link.href)).body.data;
    expect([idsIn(plain)[0], plain.length, "audio" in plain[0]]).toEqual([rest, 2, false]);
  });

  test.each([
    ["limit=20", false],
    ["limit=21", true],
    ["limit=100", true],
  ])("with %s is heavy: %s", async (query, isHeavy) => {
    const team = await newTeam();
    const { headers } = await team.call("GET", `${FILES}?include=metadata&${query}`);
    expect(headers.get("RateLimit-Policy")?.includes("heavy") ?? false).toBe(isHeavy);
  });
});

describe("Filters of users", () => {
  const USERS = "/auth/v1/users";
  const emailsOf = ({ status, body, text }: Answer): string[] => {
    expect(status, text).toBe(200);
    return body.map(({ email }: { email: string }) => email);
  };
  const hashless = startWorker(withoutHashing);

  async function staff(): Promise<Team> {
    const team = await newTeam(hashless);
    const people = ["Ada Lovelace", "Ada King", "Adam ", " Ada", "Grace Hopper", "ada lower", "Åda Ring", "Ada King"];
    for (const [i, person] of people.entries()) {
      const [firstName = "", lastName = ""] = person.split(" ");
      await newUser(team, { email: `${i}@example.com`, firstName, lastName });
    }
    return team;
  }

  test("find users by name prefix, ordered by name", async () => {
    const [team] = await Promise.all([staff(), staff()]);
    const wanted = ["3@example.com", "1@example.com", "7@example.com", "0@example.com", "2@example.com"];
    for (const limit of [1, 2, 5, 100]) {
      const found = (await readPages(team, `${USERS}?name=Ada&limit=${limit}`)).flat();
      expect(found.map(({ email }) => email)).toEqual(wanted);
      for (const user of found) expect(user.teamId).toBe(team.teamId);
    }
    expect(emailsOf(await team.call("GET", `${USERS}?name=Ada%20K&page=1`))).toEqual([
      "1@example.com",
      "7@example.com",
    ]);
    expect(emailsOf(await team.call("GET", `${USERS}?name=Ada&limit=2&page=2`))).toEqual(wanted.slice(2, 4));
    expect(emailsOf(await team.call("GET", `${USERS}?name=Nobody`))).toEqual([]);
  });

  test("find a user by the current name", async () => {
    const team = await staff();
    const [{ _id }] = (await team.call("GET", `${USERS}?name=Grace`)).body;
    await team.call("PATCH", `${USERS}/${_id}`, { json: { firstName: "Rear Admiral Grace" } });
    expect(emailsOf(await team.call("GET", `${USERS}?name=Grace`))).toEqual([]);
    expect(emailsOf(await team.call("GET", `${USERS}?name=Rear%20Admiral%20Grace%20H`))).toEqual(["4@example.com"]);
  });

  test("find a user of the own team by the full email, compared like emails", async () => {
    const [team, other] = await Promise.all([staff(), newTeam()]);
    for (const email of ["4@example.com", "4@EXAMPLE.com", "%EF%BC%94@example.com"]) {
      expect(emailsOf(await team.call("GET", `${USERS}?email=${email}`)), email).toEqual(["4@example.com"]);
      expect(emailsOf(await other.call("GET", `${USERS}?email=${email}`))).toEqual([]);
    }
    expect(emailsOf(await team.call("GET", `${USERS}?email=4@example.co`))).toEqual([]);
    expect(emailsOf(await team.call("GET", `${USERS}?email=4@example.com&name=Gr`))).toEqual(["4@example.com"]);
    expect(emailsOf(await team.call("GET", `${USERS}?email=4@example.com&name=Ada`))).toEqual([]);
    expect(emailsOf(await team.call("GET", `${USERS}?email=4@example.com&page=2`))).toEqual([]);
  });

  test.each([
    ["email", ["ada", "", "a@example.com&email=a@example.com", "a%00@example.com"]],
    ["name", ["", "a&name=b", "a%00", "%ED%A0%80", "a".repeat(202)]],
  ] as const)("reject an invalid or repeated %s by name", async (name, values) => {
    const team = await newTeam();
    for (const value of values) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", `${USERS}?${name}=${value}`), [name]);
    }
  });

  test("are repeated in Link, whose cursor is rejected with another filter", async () => {
    const team = await staff();
    const next = new URL(nextOf(await team.call("GET", `${USERS}?name=Ada&limit=2`)) ?? "");
    expect([next.searchParams.get("name"), next.searchParams.get("limit")]).toEqual(["Ada", "2"]);
    const cursor = next.searchParams.get("cursor") ?? "";
    const email = "0@example.com";
    for (const parameters of [{}, { name: "Ad" }, { name: "Ada", email }, { email }]) {
      const use = () => team.call("GET", withQuery(USERS, { ...parameters, cursor }));
      await rejected(team, 400, "invalid_input", use, ["cursor"]);
    }
  });
});
