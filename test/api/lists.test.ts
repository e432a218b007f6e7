import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { ProxiedBindings } from "../support/bindings.ts";
import { withBindings } from "../support/deps.ts";
import { type Answer, call, fill, newTeam, OPERATOR, refused, startWorker, type Team } from "../support/harness.ts";

/*
 * What holds of every list: by limit and page, and by the cursor in Link.
 */

type Table = Parameters<typeof fill>[1];
const lists: { path: string; table: Table; newestFirst: boolean }[] = [
  { path: "/auth/v1/apikeys", table: "api_keys", newestFirst: true },
  { path: "/auth/v1/users", table: "users", newestFirst: false },
  { path: "/docs/v1/uploads", table: "files", newestFirst: true },
];

const idsOf = ({ status, body, text }: Answer): string[] => {
  expect(status, text).toBe(200);
  return (Array.isArray(body) ? body : body.data).map(({ _id }: { _id: string }) => _id);
};
const nextOf = ({ headers }: Answer) => /^<([^>]+)>; rel="next"$/.exec(headers.get("Link") ?? "")?.[1];
const cursorOf = (answer: Answer) => new URL(nextOf(answer) ?? "").searchParams.get("cursor") ?? "";
const withCursor = (path: string, cursor: string) => `${path}?limit=5&cursor=${encodeURIComponent(cursor)}`;

async function* pages(team: Team, path: string) {
  for (let next: string | undefined = path; next !== undefined; ) {
    const page = await team.call("GET", next);
    yield page;
    next = nextOf(page);
  }
}

describe.each(lists)("$path", ({ path, table, newestFirst }) => {
  /** All that the list holds, in its order, as the database has it. */
  async function allIds(team: Team): Promise<string[]> {
    const order = newestFirst ? "desc" : "asc";
    const { results } = await env.DB.prepare(`select id from ${table} where team_id = ? order by id ${order}`)
      .bind(team.teamId)
      .all<{ id: string }>();
    return results.map(({ id }) => id);
  }
  async function filled(count: number): Promise<[Team, string[]]> {
    const team = await newTeam();
    await fill(team, table, count);
    return [team, await allIds(team)];
  }

  test("The list gives pages of 20, or of limit, at most 100.", async () => {
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

  test("The list gives the page that is asked for, and an empty one beyond the end.", async () => {
    const [team, all] = await filled(30);
    const page = (n: number | string) => team.call("GET", `${path}?limit=8&page=${n}`);
    for (const n of [1, 2, 3, 4]) expect(idsOf(await page(n))).toEqual(all.slice((n - 1) * 8, n * 8));
    for (const n of [5, 1_000_000, "99999999999999999999", "9".repeat(400)]) {
      const answer = await page(n);
      expect([idsOf(answer), nextOf(answer)]).toEqual([[], undefined]);
    }
  });

  test.each(["limit", "page"])("The list refuses a %s that is no whole number from 1.", async (name) => {
    const team = await newTeam();
    const values = ["0", "-1", "1.5", "abc", "", "1e3", "%201", "1%20", "+1", "0x10", "٣", "1,2", "NaN", "null", "%00"];
    for (const value of [...values, `1&${name}=2`]) {
      await refused(team, 400, "invalid_input", () => team.call("GET", `${path}?${name}=${value}`), [name]);
    }
  });

  test("The list is read to its end by following Link, everything once and in order.", async () => {
    const [team, all] = await filled(40);
    const seen: string[] = [];
    for await (const page of pages(team, `${path}?limit=7`)) {
      expect(page.status).toBe(200);
      expect(new URL(nextOf(page) ?? "https://stowage.test/?limit=7").searchParams.get("limit")).toBe("7");
      seen.push(...idsOf(page));
    }
    expect(seen).toEqual(all);
  });

  test("The list has no Link on its last page, also where that is full.", async () => {
    const [team, all] = await filled(8);
    expect(nextOf(await team.call("GET", `${path}?limit=${all.length}`))).toBeUndefined();
    expect(nextOf(await team.call("GET", `${path}?limit=${all.length - 1}`))).toBeDefined();
  });

  test("The list shows what stays once, while other rows come and go.", async () => {
    const [team, all] = await filled(40);
    const seen: string[] = [];
    const gone: string[] = [];
    let added = 100;
    for await (const page of pages(team, `${path}?limit=6`)) {
      seen.push(...idsOf(page));
      // Of those already seen the last, on which the cursor stands, and one still to come; and some are added.
      const going = [seen.at(-1), all[seen.length + 3]].filter((id) => id !== undefined && id !== team.keyId);
      for (const id of going) await env.DB.prepare(`delete from ${table} where id = ?`).bind(id).run();
      gone.push(...(going as string[]));
      if (newestFirst) await fill(team, table, 3, added);
      added += 3;
    }
    expect(new Set(seen).size).toBe(seen.length);
    for (const id of all.filter((one) => !gone.includes(one))) expect(seen).toContain(id);
  });

  test("The list refuses a cursor that is another list's or malformed.", async () => {
    const [team] = await filled(12);
    const cursor = cursorOf(await team.call("GET", `${path}?limit=5`));
    const others = lists.filter((list) => list.path !== path);
    await Promise.all(others.map((list) => fill(team, list.table, 12)));
    const foreign = await Promise.all(
      others.map(async (other) => cursorOf(await team.call("GET", `${other.path}?limit=5`))),
    );
    const nonsense = [
      "",
      ".",
      "x",
      "' or 1=1 --",
      "\u0000",
      "[object Object]",
      "x".repeat(5000),
      "e30",
      "W10",
      "bnVsbA",
    ];
    const id = cursor.slice(-24);
    const forged = [
      id,
      `-${id}`,
      cursor.slice(0, -1),
      `${cursor}0`,
      cursor.toUpperCase(),
      cursor.replace(id, "g".repeat(24)),
    ];
    for (const wrong of [...foreign, ...forged, ...nonsense]) {
      await refused(team, 400, "invalid_input", () => team.call("GET", withCursor(path, wrong)), ["cursor"]);
    }
    expect(idsOf(await team.call("GET", withCursor(path, cursor)))).toHaveLength(5);
  });

  test("The list shows nothing of another team by that team's cursor, as it is or changed.", async () => {
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

  test("The list counts pages from the cursor, and refuses two cursors.", async () => {
    const [team] = await filled(12);
    const cursor = cursorOf(await team.call("GET", `${path}?limit=5`));
    const third = idsOf(await team.call("GET", `${path}?limit=5&page=3`));
    expect(third.length).toBeGreaterThan(0);
    expect(idsOf(await team.call("GET", `${withCursor(path, cursor)}&page=2`))).toEqual(third);
    const both = () => team.call("GET", `${withCursor(path, cursor)}&cursor=${cursor}`);
    await refused(team, 400, "invalid_input", both, ["cursor"]);
  });

  test("The list reads no more rows of the database deep in it than at its start, by cursor.", async () => {
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

test("A cursor of the operator's list of a team is refused by the list of all.", async () => {
  const team = await newTeam();
  await fill(team, "api_keys", 3);
  const link = new URL(
    nextOf(await call("GET", `/auth/v1/apikeys?limit=1&teamId=${team.teamId}`, { token: OPERATOR })) ?? "",
  );
  expect((await call("GET", link.pathname + link.search, { token: OPERATOR })).status).toBe(200);
  link.searchParams.delete("teamId");
  expect((await call("GET", link.pathname + link.search, { token: OPERATOR })).status).toBe(400);
});
