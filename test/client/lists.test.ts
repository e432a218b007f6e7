import { expect, test } from "vitest";
import { Machine } from "./command-line.ts";
import { json, refusal, scripted } from "./support.ts";

const MINUTE_MILLISECONDS = 60_000;
const ago = (minutes: number) => new Date(Date.now() - minutes * MINUTE_MILLISECONDS).toISOString();
const idOf = (number: number) => String(number).padStart(24, "0");

const file = (number: number, name: string, rest: object = {}) => ({
  _id: idOf(number),
  folder: "",
  name,
  size: 1000,
  durationSeconds: null,
  status: "completed",
  fileType: "audio file",
  createdAt: ago(0),
  ...rest,
});

/** Runs `ls` with these files on a terminal. @returns its lines */
async function shown(data: object[], columns?: number): Promise<string[]> {
  const service = await scripted(json(200, { data }));
  const { stdout } = await new Machine("key", service.url).run("ls", { isTerminal: true, ...(columns && { columns }) });
  return stdout.trimEnd().split("\n");
}

test("a list shows ages, lengths and sizes in the words of the console", async () => {
  const lines = await shown([
    file(1, "now.mp3"),
    file(2, "hours.mp3", { folder: "a", createdAt: ago(150), durationSeconds: 3727.4, size: 52_345_678 }),
    file(3, "days.wav", { createdAt: ago(60 * 24 * 3), durationSeconds: 4.2, size: 999_960, status: "failed" }),
    file(4, "old.txt", { createdAt: "2001-09-09T12:00:00.000Z", fileType: "text file", size: 0 }),
  ]);
  expect(lines).toEqual([
    "Name          Length     Size  Uploaded     Status     Type   ID",
    `now.mp3                  1 kB  just now     completed  audio  ${idOf(1)}`,
    `a/hours.mp3  1:02:07  52.3 MB  3 hours ago  completed  audio  ${idOf(2)}`,
    `days.wav        0:04     1 MB  3 days ago   failed     audio  ${idOf(3)}`,
    // The order of day and month is the reader's.
    expect.stringMatching(/^old\.txt {19}0 B {2}\S+ \S+ 2001 {2}completed {2}text {3}0{23}4$/),
  ]);
});

test("a narrow terminal truncates the middle of names, and then leaves out columns before the ID", async () => {
  const name = "A very long interview with Ada Lovelace, part 12.mp3";
  const files = [file(1, name), file(2, "日本語の録音ファイルの長い名前、第十二部.mp3"), file(3, "e\u0301a.mp3")];
  expect(await shown(files, 80)).toEqual([
    "Name                 Length  Size  Uploaded  Status     ID",
    `A very lo…rt 12.mp3          1 kB  just now  completed  ${idOf(1)}`,
    `日本語の…二部.mp3            1 kB  just now  completed  ${idOf(2)}`,
    `e\u0301a.mp3                       1 kB  just now  completed  ${idOf(3)}`,
  ]);
  expect(await shown(files, 50)).toEqual([
    "Name              Length  ID",
    `A very l… 12.mp3          ${idOf(1)}`,
    `日本語の…部.mp3           ${idOf(2)}`,
    `e\u0301a.mp3                    ${idOf(3)}`,
  ]);
});

test("a list without items is a heading, and one that fails is none", async () => {
  expect(await shown([])).toEqual(["Name  Length  Size  Uploaded  Status  Type  ID"]);
  const failing = await scripted(refusal(400, "invalid_input"));
  const { code, stdout } = await new Machine("key", failing.url).run("ls", { isTerminal: true });
  expect([code, stdout]).toEqual([1, ""]);
});

test("a long list has one heading, keeps its columns, and shows what came before a failure", async () => {
  const page = (from: number) => Array.from({ length: 100 }, (_, i) => file(from + i, `${from + i}.mp3`));
  const next = (cursor: number) => ({ Link: `</docs/v1/uploads?cursor=${cursor}>; rel="next"` });
  const service = await scripted(
    json(200, { data: page(1) }, next(1)),
    json(200, { data: [file(101, "x".repeat(90)), ...page(102).slice(0, 9)] }, next(2)),
    refusal(400, "invalid_input"),
  );
  const { code, stdout } = await new Machine("key", service.url).run("ls", { isTerminal: true, columns: 90 });
  const [heading = "", ...rows] = stdout.trimEnd().split("\n");
  expect([code, rows.length]).toEqual([1, 110]);
  expect(heading).toMatch(/^Name +Length +Size +Uploaded +Status +Type +ID$/);
  for (const row of rows) expect(row).toMatch(/^\S+ +1 kB {2}just now {2}completed {2}audio {2}\d{24}$/);
  expect(Math.max(...rows.map(({ length }) => length))).toBe(90);
});
