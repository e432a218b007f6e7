import { describe, expect } from "vitest";
import { createSearchIndexes } from "../../src/search/indexes.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  idsIn,
  moveToTrash,
  newMember,
  newTeam,
  nextOf,
  pagesOf,
  rejected,
  startWorker,
  type Team,
  upload,
  withoutJobs,
} from "../support/harness.ts";

/* What a search of transcripts finds, and for whom. */

const SEARCH = "/docs/v1/transcripts";
type Caller = Pick<Team, "call">;

const vttOf = (...cues: string[]) =>
  [
    "WEBVTT",
    ...cues.map(
      (text, at) => `00:${`${at * 5}`.padStart(2, "0")}.000 --> 00:${`${at * 5 + 5}`.padStart(2, "0")}.000\n${text}`,
    ),
  ].join("\n\n");

async function say(team: Caller, id: string, vtt: string): Promise<void> {
  const options = { body: vtt, headers: { "Content-Type": "text/vtt" } };
  const { status, text } = await team.call("PUT", `/docs/v1/uploads/${id}/transcript`, options);
  expect(status, text).toBe(200);
}

/** A file with a transcript. @returns the file's id */
async function spoken(team: Caller, ...cues: string[]): Promise<string> {
  const id = await upload(team as Team, "talk.txt", "talk");
  await say(team, id, vttOf(...cues));
  return id;
}

const pathOf = (words: string, query = "") => `${SEARCH}?search=${encodeURIComponent(words)}${query}`;
async function search(team: Caller, words: string, query = "") {
  const { status, text, body } = await team.call("GET", pathOf(words, query));
  expect(status, text).toBe(200);
  return body;
}
const found = async (team: Caller, words: string, query = ""): Promise<string[]> =>
  idsIn((await search(team, words, query)).data.map(({ file }: { file: { _id: string } }) => file));

interface Match {
  turns: { speaker: string | null; text: string; marks: [number, number][] }[];
}
const markedIn = ({ turns }: Match) =>
  turns.flatMap(({ text, marks }) => marks.map(([from, to]) => text.slice(from, to)));

/** The caller with another token. */
const as = (team: Team, token: string): Caller => ({
  call: (method, path, options) => team.call(method, path, { ...options, token }),
});

const NIGHT = [
  "<v Ada>Good evening, and welcome to the",
  "<v Ada>night shift. The lock opens",
  "<v Ben>at half past four.",
];

describe("A search", () => {
  test("finds a sentence that crosses cues, with its speaker, times and marks", async ({ team }) => {
    const id = await spoken(team, ...NIGHT);
    const { data, ...rest } = await search(team, "the NIGHT shift. Welcome");
    expect(rest).toEqual({ message: "Files: 1.", isComplete: true, isFull: false });
    expect(data[0].file._id).toBe(id);
    const [{ turns, ...times }] = data[0].matches;
    expect([data[0].matchCount, times]).toEqual([1, { startSeconds: 0, endSeconds: 10 }]);
    const text = "Good evening, and welcome to the night shift. The lock opens";
    expect(turns).toEqual([{ speaker: "Ada", text, marks: turns[0].marks }]);
    expect(markedIn({ turns })).toEqual(["welcome", "the", "night", "shift", "The"]);
  });

  test("shows in each turn who says it", async ({ team }) => {
    await spoken(team, ...NIGHT);
    const [{ turns }] = (await search(team, '"opens at half"')).data[0].matches;
    expect(turns).toEqual([
      { speaker: "Ada", text: "The lock opens", marks: [[9, 14]] },
      { speaker: "Ben", text: "at half past four.", marks: [[0, 7]] },
    ]);
  });

  test("has the language of each transcript", async ({ team }) => {
    const id = await spoken(team, "Das Schloss ist offen.");
    expect((await search(team, "schloss")).data[0].language).toBeNull();
    const options = { body: vttOf("Das Schloss ist zu."), headers: { "Content-Type": "text/vtt" } };
    await team.call("PUT", `/docs/v1/uploads/${id}/transcript?language=de`, options);
    expect((await search(team, "schloss zu")).data[0].language).toBe("de");
  });

  /** The words that are marked. Null: nothing is found. */
  test.each<[string, string, string, string[] | null]>([
    ["English, in any order", "shift night", "Welcome to the night shift.", ["night", "shift"]],
    ["English, the beginning of the last word", "welcome nig", "Welcome to the night shift.", ["Welcome", "night"]],
    ["English, the beginning of another word", "wel night", "Welcome to the night shift.", null],
    ["English, a phrase", '"night shift"', "The night shift.", ["night shift"]],
    ["English, a phrase in another order", '"shift night"', "The night shift.", null],
    ["English, an apostrophe", "don't", "I don’t know.", ["don’t"]],
    ["English, one word of two is missing", "night gate", "The night shift.", null],
    ["German, another spelling", "STRASSE", "Die Straße ist lang.", ["Straße"]],
    ["German, quotes and an umlaut", "„schöne Grüße“", "Viele Schone Grusse!", ["Schone Grusse"]],
    ["French, without accents", "ete a la plage", "L’été à la plage", ["été", "à", "la", "plage"]],
    ["French, with accents", "café", "Un cafe, deux CAFÉS", ["cafe", "CAFÉS"]],
    ["Russian, in any case", "ПРИВЕТ мир", "Привет, мир!", ["Привет", "мир"]],
    ["Greek, a last sigma", "σίσυφος", "Ο ΣΙΣΥΦΟΣ.", ["ΣΙΣΥΦΟΣ"]],
    ["Turkish, a dotted capital", "istanbul", "İSTANBUL’da", ["İSTANBUL"]],
    ["Chinese, within a sentence", "东京", "我昨天去了东京塔。", ["东京"]],
    ["Chinese, characters that stand apart", "东塔", "我昨天去了东京塔。", null],
    ["Japanese, two words", "東京 タワー", "昨日、東京のタワーに行った。", ["東京", "タワー"]],
    ["Japanese, half width", "ﾀﾜｰ", "東京タワー", ["タワー"]],
    ["Korean, without the particle", "회의 내일", "회의는 내일입니다.", ["회의", "내일"]],
    ["Thai, within a sentence", "กรุงเทพ", "ฉันอยู่ที่กรุงเทพมหานคร", ["กรุงเทพ"]],
    ["Arabic, without vowel signs", "مرحبا", "مَرْحَبًا بكم", ["مَرْحَبًا"]],
    ["full width", "abc", "ＡＢＣ", ["ＡＢＣ"]],
  ])("in %s finds what it should", async (_, words, said, marked) => {
    const team = await newTeam();
    await spoken(team, said);
    const [first] = (await search(team, words)).data;
    expect(first ? markedIn(first.matches[0]) : null).toEqual(marked);
  });

  test.each([
    'night" OR "x',
    "night NEAR(shift, 1)",
    'night AND NOT (shift) "',
    "night* ^shift",
    "-night words:shift",
    "night -- ; drop table parts",
    "'night' shift\\",
    "night {shift} : +",
    `night ${"shift ".repeat(40)}`,
  ])("takes everything for words: %j", async (words) => {
    const team = await newTeam();
    await spoken(team, `${words.replaceAll(/[^a-z0-9 ]/gi, " ")} night shift`);
    expect((await search(team, words)).data).toHaveLength(1);
  });

  test.each(["...", "☃ \u3000", '""'])("without a word finds nothing: %j", async (words) => {
    const team = await newTeam();
    await spoken(team, "night");
    expect(await search(team, words)).toMatchObject({ data: [], isComplete: true });
  });

  test("has at most 50 words and 500 characters", async ({ team }) => {
    const words = Array.from({ length: 51 }, (_, i) => `w${i}`).join(" ");
    for (const text of [words, "a".repeat(501)]) {
      await rejected(team, 400, "invalid_input", () => team.call("GET", pathOf(text)), ["search"]);
    }
  });

  test("ranks transcripts higher whose words stand closer together, or more often", async ({ team }) => {
    const filler = "and so on and so forth";
    const far = await spoken(team, "the night", ...Array(8).fill(filler), "the shift");
    const near = await spoken(team, "the night was long", "the shift, too");
    const often = await spoken(team, "the night shift", filler, "the night shift", filler, "the night shift");
    const once = await spoken(team, "the night shift", filler);
    expect(await found(team, "night shift")).toEqual([often, once, near, far]);
    const { data } = await search(team, "night shift");
    expect(data.map(({ matchCount }: { matchCount: number }) => matchCount)).toEqual([3, 1, 1, 1]);
  });

  test("shows the three best places, and with `file` all of them, by time", async ({ team }) => {
    const id = await spoken(team, ...Array.from({ length: 10 }, (_, at) => (at % 2 ? "Hm." : `Lock number ${at}.`)));
    await spoken(team, "lock");
    const first = (await search(team, "lock", "&limit=1")).data[0];
    expect([first.matchCount, first.matches.length]).toEqual([5, 3]);
    const { data } = await search(team, "lock", `&file=${id}`);
    expect(data).toHaveLength(1);
    expect(data[0].matches.map(({ startSeconds }: { startSeconds: number }) => startSeconds)).toEqual([
      0, 10, 20, 30, 40,
    ]);
  });

  test("shortens a long text around its first mark", async ({ team }) => {
    await spoken(team, `${"before ".repeat(200)}lock ${"after ".repeat(200)}`);
    const [match] = (await search(team, "lock")).data[0].matches;
    expect(match.turns[0].text).toMatch(/^…before .* before lock after .* after…$/);
    expect(match.turns[0].text.length).toBeLessThan(200);
    expect(markedIn(match)).toEqual(["lock"]);
  });

  test("has pages, and a next one only if a visible match follows", async ({ team }) => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.push(await spoken(team, `lock ${"lock ".repeat(i)}`));
    const pages: string[][] = [];
    for await (const { body } of pagesOf(team, pathOf("lock", "&limit=2"))) {
      pages.push(idsIn(body.data.map(({ file }: { file: { _id: string } }) => file)));
    }
    expect(pages).toEqual(
      [ids.slice(3).reverse(), ids.slice(1, 3).reverse(), ids.slice(0, 1)].map((page) => page.toSorted().reverse()),
    );
    // Without its event, as if the index had not read it yet.
    await moveToTrash(team, ids[0] ?? "");
    const last = await team.call("GET", pathOf("lock", "&limit=4"));
    expect([last.body.data.length, nextOf(last)]).toEqual([4, undefined]);
  });

  test("rejects the cursor of another search", async ({ team }) => {
    for (let i = 0; i < 2; i++) await spoken(team, "lock gate");
    const next = nextOf(await team.call("GET", pathOf("lock", "&limit=1"))) ?? "";
    const cursor = new URL(next).searchParams.get("cursor") ?? "";
    for (const [words, text] of [
      ["gate", cursor],
      ["lock", cursor.replace(/\.[\w-]+-/, ".eA-")],
    ] as const) {
      const path = pathOf(words, `&cursor=${encodeURIComponent(text)}`);
      await rejected(team, 400, "invalid_input", () => team.call("GET", path), ["cursor"]);
    }
  });

  test("filters by folder and by owner", async ({ team }) => {
    const [a, b, c] = [await spoken(team, "lock"), await spoken(team, "lock"), await spoken(team, "lock")];
    const move = (id: string, folder: string) => team.call("PATCH", `/docs/v1/uploads/${id}`, { json: { folder } });
    await move(a, "radio");
    await move(b, "radio/2026");
    expect(await found(team, "lock", "&folder=radio")).toEqual([a]);
    expect((await found(team, "lock", "&under=radio")).sort()).toEqual([a, b].sort());
    expect((await found(team, "lock", "&folder=")).sort()).toEqual([c]);
    const ada = await newMember(team, "member");
    const own = await spoken(as(team, ada.token), "lock");
    expect(await found(team, "lock", `&uploadedBy=${ada.id}`)).toEqual([own]);
  });
});

describe("A contributor", () => {
  test("finds all own files on one page, however many others match, and nothing else", async ({ team }) => {
    const { token, id: userId } = await newMember(team, "contributor");
    const contributor = as(team, token);
    const own = [await spoken(contributor, "the lock"), await spoken(contributor, "the lock")];
    for (let i = 0; i < 4; i++) await spoken(team, "lock lock lock");
    const answer = await contributor.call("GET", pathOf("lock", "&limit=2"));
    expect(idsIn(answer.body.data.map(({ file }: { file: { _id: string } }) => file)).sort()).toEqual(own.sort());
    expect([answer.body.message, nextOf(answer)]).toEqual(["Files: 2.", undefined]);
    // A page and its cursor are the same without the others.
    const first = await contributor.call("GET", pathOf("lock", "&limit=1"));
    const other = await newTeam();
    const alone = await newMember(other, "contributor");
    for (let i = 0; i < 2; i++) await spoken(as(other, alone.token), "the lock");
    const same = await as(other, alone.token).call("GET", pathOf("lock", "&limit=1"));
    const scoreIn = (one: typeof same) => /cursor=transcripts-\w+\.([\w-]+)-/.exec(nextOf(one) ?? "")?.[1];
    expect(scoreIn(first)).toBe(scoreIn(same));
    // A member who becomes a contributor finds the own files from the next request on.
    const promoted = await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { role: "member" } });
    expect(promoted.status, promoted.text).toBe(200);
    expect(await found(contributor, "lock")).toHaveLength(6);
    await team.call("PATCH", `/auth/v1/users/${userId}`, { json: { role: "contributor" } });
    expect((await found(contributor, "lock")).sort()).toEqual(own.sort());
  });
});

describe("A match", () => {
  test("shows nothing of another team", async ({ team }) => {
    await spoken(team, "lock");
    expect(await found(await newTeam(), "lock")).toEqual([]);
  });

  /** A Worker whose changes wake no index. */
  const asleep = startWorker((deps) => ({
    ...withoutJobs(deps),
    service: { ...deps.service, followers: {} },
    searchIndexes: () => ({ wake: async () => 0 }) as never,
  }));

  test.each<[string, (team: Team, id: string) => Promise<unknown>]>([
    ["that was deleted", (team, id) => team.call("DELETE", `/docs/v1/uploads/${id}`)],
    ["in the trash", (team, id) => moveToTrash(team, id)],
    ["whose transcript was deleted", (team, id) => team.call("DELETE", `/docs/v1/uploads/${id}/transcript`)],
    ["whose transcript was replaced", (team, id) => say(team, id, vttOf("another lock"))],
  ])("shows nothing of a file %s, also before the index knows", async (_, change) => {
    const team = await newTeam();
    const id = await spoken(team, "lock");
    expect(await found(team, "lock")).toEqual([id]);
    await change(
      { ...team, call: (method, path, options) => asleep.call(method, path, { token: team.token, ...options }) },
      id,
    );
    expect(await found(team, "lock")).toEqual([]);
  });
});

describe("The object of an index", () => {
  test("that does not respond makes only the search unavailable", async ({ team }) => {
    const id = await upload(team, "talk.txt", "talk");
    const failing = startWorker((deps) => {
      const fail = async () => {
        throw new Error("Network connection lost.");
      };
      const namespace = { getByName: () => ({ wake: fail, search: fail }) } as never;
      return { ...withoutJobs(deps), searchIndexes: createSearchIndexes(namespace, deps.system) };
    });
    const call: Team["call"] = (method, path, options) => failing.call(method, path, { token: team.token, ...options });
    await say({ call }, id, vttOf("lock"));
    const answer = await call("GET", pathOf("lock"));
    expect([answer.status, answer.code]).toEqual([503, "unavailable"]);
    expect((await call("DELETE", `/docs/v1/uploads/${id}`)).status).toBe(200);
  });
});
