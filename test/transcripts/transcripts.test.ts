import { describe, expect } from "vitest";
import { deathAt, deathInLatePut, failureOfLatePut, outageOf, ProxiedBindings } from "../support/bindings.ts";
import { DB } from "../support/databases.ts";
import { worldTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  dataOf,
  idsIn,
  metadataOf,
  newTeam,
  OPERATOR,
  read,
  rejected,
  startWorker,
  streamOf,
  type Team,
  upload,
} from "../support/harness.ts";
import { expectSettled, expectSound } from "../support/invariants.ts";
import { objectBeside } from "../support/rows.ts";
import { MINUTE } from "../support/time.ts";
import { must } from "../support/world.ts";

const MAX_BYTES = 2 * 1024 * 1024;
const UPLOADS = "/docs/v1/uploads";
const pathOf = (id: string) => `${UPLOADS}/${id}/transcript`;
const get = (team: Team, id: string) => team.call("GET", pathOf(id));
const vtt = (body: string | Uint8Array, type = "text/vtt") => ({
  body: body as BodyInit,
  headers: { "Content-Type": type },
});
const put = (team: Team, id: string, body: string | Uint8Array, query = "") =>
  team.call("PUT", pathOf(id) + query, vtt(body));
const remove = (team: Team, id: string) => team.call("DELETE", pathOf(id));
const usedBytes = async (team: Team): Promise<number> => (await read(team, "/docs/v1/usage")).bytes;
const objectOf = ({ teamId }: { teamId: string }, id: string) => objectBeside(teamId, id, "transcript");

const cueOf = (text: string, at = 0) => `00:00:0${at}.000 --> 00:00:0${at + 1}.000\n${text}\n`;
const transcriptOf = (...cues: string[]) => ["WEBVTT\n", ...cues].join("\n");
const SAID = transcriptOf(cueOf("Good evening."));
/** A transcript of exactly this size. */
const ofBytes = (size: number) => `${SAID}\nNOTE `.padEnd(size, "x");

async function newFile(): Promise<{ team: Team; id: string }> {
  const team = await newTeam();
  return { team, id: await upload(team, "a.txt", "hello") };
}

describe("A transcript", () => {
  test.each<[string, string]>([
    ["a cue", SAID],
    ["a byte order mark, a title and a header", `\ufeffWEBVTT - Night shift\nKind: captions\n\n${cueOf("Hm.")}`],
    ["lines that end in CR LF", SAID.replaceAll("\n", "\r\n")],
    ["lines that end in CR", SAID.replaceAll("\n", "\r")],
    [
      "names of cues, notes, styles and regions",
      transcriptOf("STYLE\n::cue { color: red }\n", "REGION\nid:a\n", "NOTE a\nb\n", `1 - intro\n${cueOf("a")}`),
    ],
    ["settings", transcriptOf("00:00.000 --> 00:01.000  align:start line:0%\tposition:10%,line-left\na")],
    [
      "overlapping cues that start at the same time",
      transcriptOf("00:01.000 --> 00:09.000\na\n", "00:01.000 --> 00:02.000\nb\n"),
    ],
    [
      "a cue without text, and empty lines between",
      transcriptOf("00:00.000 --> 00:01.000", "\n\n", "123456:00:00.000 --> 123456:00:00.001\na"),
    ],
    [
      "HTML, unknown tags and entities",
      transcriptOf(cueOf('<script>alert(1)</script><img src=x onerror="a()"> & &lt;')),
    ],
    ["other alphabets", transcriptOf(cueOf("こんばんは 🎙 e\u0301 \u202e"))],
    ["a replacement character", transcriptOf(cueOf("\ufffd"))],
    ["a text called NOTE, and a name that begins with it", transcriptOf(`NOTES\n${cueOf("NOTE")}`)],
  ])("with %s is returned as it was sent", async (_, text) => {
    const { team, id } = await newFile();
    const size = Buffer.byteLength(text);
    const { data } = (await put(team, id, text)).body;
    const [cues, skippedCues] = [expect.any(Number), text.includes("01.000\n\n\n") ? 1 : 0];
    expect(data).toEqual({ language: null, size, cues, skippedCues, updatedAt: expect.any(String) });
    const answer = await get(team, id);
    expect([answer.status, answer.headers.get("Content-Type"), answer.headers.get("Content-Language")]).toEqual([
      200,
      "text/vtt; charset=utf-8",
      null,
    ]);
    expect(Buffer.from(await (await objectOf(team, id))!.arrayBuffer()).toString()).toBe(text);
    // The client of the tests removes a byte order mark.
    expect(answer.text).toBe(text.replace("\ufeff", ""));
    expect((await metadataOf(team, id)).transcript).toEqual(data);
  });

  test("is never shown as a page", async () => {
    const { team, id } = await newFile();
    await put(team, id, transcriptOf(cueOf("<script>alert(1)</script>")));
    const { headers } = await get(team, id);
    expect(headers.get("X-Content-Type-Options")).toBe("nosniff");
    expect(headers.get("Content-Security-Policy")).toContain("default-src 'none'");
  });

  test.each(["en", "de-CH", "zh-Hant-TW", "gsw"])("has the language %s", async (language) => {
    const { team, id } = await newFile();
    expect(await dataOf(put(team, id, SAID, `?language=${language}`))).toMatchObject({ language });
    expect((await get(team, id)).headers.get("Content-Language")).toBe(language);
    // Without one, the new text has none.
    expect(await dataOf(put(team, id, SAID))).toMatchObject({ language: null });
  });

  test.each([
    "",
    "e",
    "en_US",
    "en-",
    "-en",
    "1a",
    "en-toolongtag",
    "a".repeat(9),
    `en${"-abcdefgh".repeat(4)}`,
    "en\n",
  ])("with the language %j is rejected", async (language) => {
    const { team, id } = await newFile();
    const query = `?language=${encodeURIComponent(language)}`;
    await rejected(team, 400, "invalid_input", () => put(team, id, SAID, query), ["language"]);
  });

  test("replaces the one before, and each change is a version and an event with the field `transcript`", async () => {
    const { team, id } = await newFile();
    const versions = [(await metadataOf(team, id)).__v];
    await put(team, id, SAID, "?language=en");
    await put(team, id, transcriptOf(cueOf("Other.")));
    const { transcript, __v } = await metadataOf(team, id);
    expect([(await get(team, id)).text, transcript.language]).toEqual([transcriptOf(cueOf("Other.")), null]);
    await remove(team, id);
    const last = await metadataOf(team, id);
    expect([last.transcript, __v - versions[0], last.__v - __v]).toEqual([null, 2, 1]);
    const events = await read(team, `/auth/v1/events?subject=${id}&type=file.updated`);
    expect(
      events.map(({ data, subject }: { data: { fields: string[]; __v: number }; subject: { version: number } }) => [
        data.fields,
        data.__v,
        subject.version,
      ]),
    ).toEqual([2, 1, 0].map((ago) => last.__v - 2 + ago).map((version) => [["transcript"], version, version]));
  });

  test("is a field of its file, by which lists are filtered", async () => {
    const { team, id } = await newFile();
    const other = await upload(team, "b.txt", "hello");
    const shown = async () => [
      (await metadataOf(team, id)).hasTranscript,
      (await read(team, UPLOADS)).map((file: { hasTranscript: boolean }) => file.hasTranscript),
      idsIn(await read(team, `${UPLOADS}?hasTranscript=true`)),
      idsIn(await read(team, `${UPLOADS}?hasTranscript=false&folder=`)),
    ];
    const without = [false, [false, false], [], [other, id]];
    const withOne = [true, [false, true], [id], [other]];
    expect(await shown()).toEqual(without);
    await put(team, id, SAID);
    expect(await shown()).toEqual(withOne);
    await put(team, id, SAID, "?language=en");
    expect(await shown()).toEqual(withOne);
    await remove(team, id);
    expect(await shown()).toEqual(without);
  });

  test("is one of those set at once, with its own language", async () => {
    const { team, id } = await newFile();
    const languages = ["aa", "bb", "cc", "dd", "ee", "ff"];
    const answers = await atOnce(6, (i) =>
      put(team, id, transcriptOf(cueOf(`${languages[i]}`)), `?language=${languages[i]}`),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
    const found = await get(team, id);
    expect(found.text).toContain(`\n${found.headers.get("Content-Language")}\n`);
    await expectSound(team.teamId);
  });

  test("takes memory only for the bytes that have arrived", async () => {
    const { team, id } = await newFile();
    const ends: (() => void)[] = [];
    const headers = { "Content-Type": "text/vtt", "Content-Length": `${MAX_BYTES}` };
    const slow = Array.from({ length: 40 }, () => {
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          controller.enqueue(Buffer.from("WEBVTT"));
          ends.push(() => controller.close());
        },
      });
      return team.call("PUT", pathOf(id), { body, headers });
    });
    expect((await put(team, id, ofBytes(1_000_000))).status).toBe(200);
    for (const end of ends) end();
    await Promise.all(slow);
  });

  test.each(["pending", "processing", "completed", "failed"])("may be set for a %s file", async (status) => {
    const { team, id } = await newFile();
    await DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    expect((await put(team, id, SAID)).status).toBe(200);
    expect((await get(team, id)).status).toBe(200);
  });

  test("outlives the reprocessing of its file", async () => {
    const { team, id } = await newFile();
    await put(team, id, SAID);
    await DB.prepare("update files set status = 'completed' where id = ?").bind(id).run();
    await team.call("POST", `${UPLOADS}/${id}/reprocess`);
    expect((await get(team, id)).text).toBe(SAID);
  });

  test("leaves the one before if R2 fails to store it", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const fail = () =>
      world.ask(
        "PUT",
        pathOf(id),
        { token: team.token, ...vtt(ofBytes(1000)) },
        { bindings: new ProxiedBindings(outageOf("R2")) },
      );
    expect(await fail()).toMatchObject({ status: 503 });
    expect([(await get(team, id)).status, (await metadataOf(team, id)).transcript]).toEqual([404, null]);
    await put(team, id, SAID, "?language=en");
    const before = (await metadataOf(team, id)).transcript;
    expect(await fail()).toMatchObject({ status: 503 });
    expect([(await get(team, id)).text, (await metadataOf(team, id)).transcript]).toEqual([SAID, before]);
  });
});

describe("A missing transcript", () => {
  test("responds 404 to a read and to a deletion", async () => {
    const { team, id } = await newFile();
    await rejected(team, 404, "not_found", () => get(team, id));
    await rejected(team, 404, "not_found", () => remove(team, id));
    await put(team, id, SAID);
    expect((await remove(team, id)).body).toEqual({ message: "Transcript deleted." });
    expect(await objectOf(team, id)).toBeNull();
    await rejected(team, 404, "not_found", () => get(team, id));
    await rejected(team, 404, "not_found", () => remove(team, id));
  });
});

describe("An invalid transcript", () => {
  const NO_CUE = "Must have a cue with times, such as `00:01.000 --> 00:04.000`, and a text.";
  const NO_WEBVTT = "Line 1: Must begin with `WEBVTT`. Send SubRip as application/x-subrip.";
  test.each<[string, string | Uint8Array, string]>([
    ["nothing", "", NO_WEBVTT],
    ["another first line", "WEBVTTX\n", NO_WEBVTT],
    ["SubRip, sent as WebVTT", "1\n00:00:00,000 --> 00:00:01,000\na\n", NO_WEBVTT],
    ["a page", "<!doctype html>", NO_WEBVTT],
    ["no cue", "WEBVTT\n\nNOTE a\n", `Line 1: ${NO_CUE}`],
    ["only a name", "WEBVTT\n\none", `Line 3: ${NO_CUE}`],
    ["no times that can be read", "WEBVTT\n\n1\n00:01 --> soon\na", `Line 4: ${NO_CUE}`],
    ["61 seconds", "WEBVTT\n\n00:00.000 --> 00:61.000\na", `Line 3: ${NO_CUE}`],
    ["no text", "WEBVTT\n\n00:00.000 --> 00:01.000\n<v Ada>&nbsp;", `Line 1: ${NO_CUE}`],
    [
      "bytes that are not UTF-8",
      Buffer.concat([Buffer.from(SAID), Buffer.from([0xe9, 0x0a])]),
      "Line 5: Must be UTF-8.",
    ],
    ["UTF-16", Buffer.from(`\ufeff${SAID}`, "utf16le"), "Line 1: Must be UTF-8."],
  ])("with %s is rejected, names the line, and leaves the one before", async (_, text, message) => {
    const { team, id } = await newFile();
    await put(team, id, SAID);
    const { body } = await rejected(team, 400, "invalid_input", () => put(team, id, text), [""]);
    expect(body.errors[0].message).toBe(message);
    expect((await get(team, id)).text).toBe(SAID);
  });

  test.each([undefined, "", "application/json", "text/plain", "text/vtt-x", "text/vtt; charset=latin1"])(
    "of the type %s is rejected",
    async (type) => {
      const { team, id } = await newFile();
      const body = new TextEncoder().encode(SAID);
      const send = () =>
        team.call("PUT", pathOf(id), { body, headers: type === undefined ? {} : { "Content-Type": type } });
      await rejected(team, 415, "unsupported_media_type", send);
    },
  );

  test.each(["text/vtt; charset=utf-8", 'Text/VTT;charset="UTF-8"', "text/vtt ;"])(
    "of the type %s is accepted",
    async (type) => {
      const { team, id } = await newFile();
      expect((await team.call("PUT", pathOf(id), vtt(SAID, type))).status).toBe(200);
    },
  );

  test("can have 2 MiB, with and without Content-Length", async () => {
    const { team, id } = await newFile();
    const [most, more] = [ofBytes(MAX_BYTES), ofBytes(MAX_BYTES + 1)];
    for (const headers of [{}, { "Content-Length": String(MAX_BYTES) }]) {
      const sent = {
        body: streamOf(new TextEncoder().encode(most)),
        headers: { "Content-Type": "text/vtt", ...headers },
      };
      expect((await team.call("PUT", pathOf(id), sent)).status).toBe(200);
    }
    expect((await get(team, id)).text).toBe(most);
    await rejected(team, 413, "body_too_large", () => put(team, id, more));
    const stated = { body: SAID, headers: { "Content-Type": "text/vtt", "Content-Length": String(MAX_BYTES + 1) } };
    await rejected(team, 413, "body_too_large", () => team.call("PUT", pathOf(id), stated));
  });

  test.each([
    ["two million empty lines", SAID.padEnd(MAX_BYTES, "\n")],
    ["two million line ends of CR", SAID.padEnd(MAX_BYTES, "\r")],
    ["70,000 cues", `WEBVTT\n\n${"00:00.000 --> 00:00.001\na\n\n".repeat(70_000)}`],
    ["a cue of 2 MB", `WEBVTT\n\n00:00.000 --> 00:00.001\na${"<b>".repeat(690_000)}`],
    ["a megabyte of settings", `WEBVTT\n\n00:00.000 --> 00:00.001${" a:b".repeat(300_000)} c\na`],
    ["a megabyte of spaces", `WEBVTT\n\n00:00.000 --> 00:00.001${" ".repeat(1_000_000)}x\na`],
  ])("of %s is valid", async (_, text) => {
    const { team, id } = await newFile();
    expect((await put(team, id, text)).status).toBe(200);
  });

  test.each([
    ["arrows", `WEBVTT\n\n${"-->".repeat(690_000)}`],
    [
      "replacement characters and wrong bytes",
      Buffer.concat([Buffer.from(`WEBVTT\n\nNOTE\n${"\ufffd\n".repeat(500_000)}`), Buffer.from([0xff])]),
    ],
  ])("of a megabyte of %s is rejected", async (_, text) => {
    const { team, id } = await newFile();
    await rejected(team, 400, "invalid_input", () => put(team, id, text), [""]);
  });
});

describe("A transcript as tools write it", () => {
  const SRT = "application/x-subrip";
  /** What is sent, what is stored, and how many cues that are two numbers: those with a text, and those that are left out. */
  test.each<[string, string, string, string, [number, number]]>([
    [
      "Microsoft Teams",
      "text/vtt",
      "WEBVTT\n\n8b/20-0\n0:0:13.540 --> 0:0:15.0\n<v Ada>Hello.</v>\n",
      "WEBVTT\n\n00:13.540 --> 00:15.000\n<v Ada>Hello.</v>\n",
      [1, 0],
    ],
    [
      "Whisper, with cues of no length",
      "text/vtt",
      "WEBVTT\n\n00:01.000 --> 00:01.000\nHi.\n\n00:01.000 --> 00:00.900\nAda.\n\n00:02.000 --> 00:04.000\nBye.\n",
      "WEBVTT\n\n00:01.000 --> 00:02.000\nHi.\n\n00:01.000 --> 00:02.000\nAda.\n\n00:02.000 --> 00:04.000\nBye.\n",
      [3, 0],
    ],
    [
      "Zoom, in another order and without a line between",
      "text/vtt",
      "WEBVTT\n1\n00:00:05.000 --> 00:00:06.000\nBen: B\n2\n00:00:01.000 --> 00:00:07.000\nAda: A\n",
      "WEBVTT\n\n00:01.000 --> 00:07.000\nAda: A\n\n00:05.000 --> 00:06.000\nBen: B\n",
      [2, 0],
    ],
    [
      "YouTube, with an empty line in a cue",
      "text/vtt",
      "WEBVTT\nKind: captions\nLanguage: en\n\n00:00.000 --> 00:02.000 align:start position:0%\nso<00:00.500><c> we</c>\n\nlost\n\n00:02.000 --> 00:03.000\nb\n",
      "WEBVTT\n\n00:00.000 --> 00:02.000 align:start position:0%\nso<00:00.500><c> we</c>\n\n00:02.000 --> 00:03.000\nb\n",
      [2, 1],
    ],
    [
      "Otter, as SubRip",
      SRT,
      '\ufeff1\r\n00:00:00,030 --> 00:00:02,500\r\n<i>Tom & Ada</i> I&#39;m <3\r\n\r\n2\r\n01:00:02,500 --> 01:00:04,000 X1:40\r\n{\\an8}<font color="red">a --&gt; b</font>\r\n',
      "WEBVTT\n\n00:00.030 --> 00:02.500\n<i>Tom &amp; Ada</i> I&#39;m &lt;3\n\n01:00:02.500 --> 01:00:04.000\na --&gt; b\n",
      [2, 0],
    ],
    [
      "SubRip without lines between",
      SRT,
      "1\n0:0:1 --> 0:0:2\na\n2\n0:0:2,5-->0:0:3,25\nb",
      "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\n00:02.500 --> 00:03.250\nb\n",
      [2, 0],
    ],
    [
      "cues that no player shows, and control characters",
      "text/vtt",
      "WEBVTT\n\n00:01 --> soon\nx\n\n00:01.000 --> 00:02.000\n\n00:02.000 --> 00:03.000\na\u001b]52;\u0000b\n",
      "WEBVTT\n\n00:02.000 --> 00:03.000\na ]52; b\n",
      [1, 2],
    ],
    [
      "a header twice",
      "text/vtt",
      "WEBVTT\n\nWEBVTT\n\n00:01.000 --> 00:02.000\na\n",
      "WEBVTT\n\n00:01.000 --> 00:02.000\na\n",
      [1, 1],
    ],
    [
      "a style behind the first cue",
      "text/vtt",
      "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\nSTYLE\n::cue {}\n",
      "WEBVTT\n\n00:01.000 --> 00:02.000\na\n",
      [1, 0],
    ],
  ])("(%s) is stored as WebVTT that every player reads", async (_, type, sent, stored, [cues, skippedCues]) => {
    const { team, id } = await newFile();
    const { data } = (await team.call("PUT", pathOf(id), vtt(sent, type))).body;
    expect((await get(team, id)).text).toBe(stored);
    expect(data).toMatchObject({ cues, skippedCues, size: Buffer.byteLength(stored) });
    expect((await metadataOf(team, id)).transcript).toEqual(data);
    // What is stored is stored unchanged.
    await put(team, id, stored);
    expect((await get(team, id)).text).toBe(stored);
  });

  test("and whose WebVTT would have more than 2 MiB is rejected", async () => {
    const { team, id } = await newFile();
    const srt = `1\n00:00:00,000 --> 00:00:01,000\n${"<".repeat(1_000_000)}`;
    await rejected(team, 413, "body_too_large", () => team.call("PUT", pathOf(id), vtt(srt, SRT)));
  });
});

describe("The quota", () => {
  test("counts transcripts, and is exact after each change", async () => {
    const { team, id } = await newFile();
    const sizes = [await usedBytes(team)];
    for (const size of [1000, 5000, 200]) {
      await put(team, id, ofBytes(size));
      sizes.push(await usedBytes(team));
    }
    await remove(team, id);
    sizes.push(await usedBytes(team));
    await put(team, id, ofBytes(700));
    await team.call("DELETE", `${UPLOADS}/${id}`);
    sizes.push(await usedBytes(team));
    expect(sizes).toEqual([5, 1005, 5005, 205, 5, 0]);
    await expectSound(team.teamId);
  });

  test("refuses a transcript that does not fit, also of those set at once, and never a smaller one", async () => {
    const team = await newTeam();
    const ids = await Promise.all(["a", "b", "c", "d"].map((name) => upload(team, `${name}.txt`, "hello")));
    const [id = ""] = ids;
    await put(team, id, ofBytes(900));
    const limit = (maxBytes: number) =>
      startWorker().call("PATCH", `/auth/v1/teams/${team.teamId}`, { token: OPERATOR, json: { maxBytes } });
    expect((await limit(1920)).status).toBe(200);
    await rejected(team, 413, "quota_exceeded", () => put(team, id, ofBytes(1901)));
    expect((await get(team, id)).text).toBe(ofBytes(900));
    const answers = await atOnce(3, (i) => put(team, ids[i + 1] ?? "", ofBytes(600)));
    expect(answers.map(({ code = "ok" }) => code).sort()).toEqual(["ok", "quota_exceeded", "quota_exceeded"]);
    expect(await usedBytes(team)).toBe(1520);
    await limit(100);
    expect((await put(team, id, ofBytes(899))).status).toBe(200);
    await expectSound(team.teamId);
  });

  test("counts a transcript whose write died for 15 minutes, also while its file is in the trash", async ({
    world,
    team,
  }) => {
    const id = await world.store(team, "a.txt", "hello");
    const die = (bindings: ProxiedBindings) =>
      world.ask("PUT", pathOf(id), { token: team.token, ...vtt(ofBytes(1000)) }, { bindings });
    expect(await die(deathAt("R2", "put", "after"))).toBe("dead");
    expect([await usedBytes(team), (await get(team, id)).status]).toEqual([1005, 404]);
    await rejected(team, 404, "not_found", () => remove(team, id));
    expect((await put(team, id, ofBytes(700))).status).toBe(200);
    expect(await usedBytes(team)).toBe(1705);
    world.settings = { trashDays: 1 };
    await world.call("DELETE", `${UPLOADS}/${id}`, { token: team.token });
    const [usage, after] = [1705, 705].map((bytes) => expect.objectContaining({ bytes, trashBytes: bytes }));
    expect(await read(team, "/docs/v1/usage")).toEqual(usage);
    world.aheadMilliseconds += 15 * MINUTE;
    await world.recoverFully();
    expect(await read(team, "/docs/v1/usage")).toEqual(after);
    await expectSound(team.teamId);
  });
});

describe("Deleting a file", () => {
  test("removes its transcript, and no other", async () => {
    const { team, id } = await newFile();
    const other = await upload(team, "b.txt", "world");
    for (const one of [id, other]) await put(team, one, SAID);
    await team.call("DELETE", `${UPLOADS}/${id}`);
    expect([(await get(team, id)).status, (await get(team, other)).status]).toEqual([404, 200]);
    expect([await objectOf(team, id), (await objectOf(team, other))?.size]).toEqual([null, SAID.length]);
    const rows = await DB.prepare("select file_id from file_objects where team_id = ?").bind(team.teamId).all();
    expect(rows.results).toEqual([{ file_id: other }]);
  });

  test("in a batch removes its transcript", async () => {
    const { team, id } = await newFile();
    await put(team, id, SAID);
    await team.call("POST", `${UPLOADS}/batch`, { json: { action: "delete", ids: [id] } });
    expect(await objectOf(team, id)).toBeNull();
    await expectSound(team.teamId);
  });

  test("leaves no transcript that was set at the same time", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const answers = await atOnce(12, (i) => (i === 6 ? team.call("DELETE", `${UPLOADS}/${id}`) : put(team, id, SAID)));
    for (const { status } of answers) expect([200, 404]).toContain(status);
    await world.recoverAll([team.teamId]);
    expect(await expectSettled(team.teamId)).toEqual([]);
    expect(await objectOf(team, id)).toBeNull();
  });

  test("leaves no transcript whose Worker died while it was written", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    // The write reaches R2 only after the deletion has ended.
    const { bindings, reached, release } = deathInLatePut();
    const writing = world.ask("PUT", pathOf(id), { token: team.token, ...vtt(SAID) }, { bindings });
    await reached;
    expect((await team.call("DELETE", `${UPLOADS}/${id}`)).status).toBe(200);
    release();
    expect(await writing).toBe("dead");
    expect(await objectOf(team, id)).not.toBeNull();
    await world.recoverAll([team.teamId]);
    expect(await objectOf(team, id)).toBeNull();
    expect(await expectSettled(team.teamId)).toEqual([]);
  });
});

describe("A write that has failed", () => {
  test("leaves no transcript that R2 stores minutes after the deletion of the file", async ({ world, team }) => {
    const id = await world.store(team, "a.txt", "hello");
    const { bindings, store } = failureOfLatePut();
    const failed = await must(world.ask("PUT", pathOf(id), { token: team.token, ...vtt(SAID) }, { bindings }));
    expect(failed.code).toBe("unavailable");
    expect((await team.call("DELETE", `${UPLOADS}/${id}`)).status).toBe(200);
    world.aheadMilliseconds += 2 * MINUTE;
    await world.recoverFully();
    await store();
    expect(await objectOf(team, id)).not.toBeNull();
    world.aheadMilliseconds += 15 * MINUTE;
    await world.recoverFully();
    expect(await expectSettled(team.teamId, { world })).toEqual([]);
  });
});

describe("By a link", () => {
  async function shared() {
    const { team, id } = await newFile();
    await team.call("PATCH", `${UPLOADS}/${id}`, { json: { name: "Näh. 1.mp3" } });
    const link = await dataOf(team.call("POST", `${UPLOADS}/${id}/links`, { json: {} }));
    const [, token = ""] = /links\/([^/]+)\//.exec(link.url) ?? [];
    const describeLink = async () => (await startWorker().call("GET", `/docs/v1/links/${token}`)).body.data;
    const open = (path: string, headers = {}) => startWorker().call("GET", path, { headers });
    return { team, id, link, describeLink, open };
  }

  test("the transcript is described, and read without a token, with a validator that changes with it", async () => {
    const { team, id, describeLink, open } = await shared();
    expect((await describeLink()).transcriptUrl).toBeNull();
    await put(team, id, SAID, "?language=en");
    const { pathname } = new URL((await describeLink()).transcriptUrl);
    expect(decodeURIComponent(pathname)).toMatch(/^\/docs\/v1\/links\/[^/]+\/transcript\/Näh. 1.vtt$/);
    const answer = await open(pathname);
    expect([answer.status, answer.text]).toEqual([200, SAID]);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "text/vtt; charset=utf-8",
      "content-language": "en",
      "content-disposition": `attachment; filename="N_h. 1.vtt"; filename*=UTF-8''N%C3%A4h.%201.vtt`,
      "cache-control": "private, no-cache, no-transform",
      "x-content-type-options": "nosniff",
      "access-control-allow-origin": "*",
      "cross-origin-resource-policy": "cross-origin",
    });
    expect(answer.headers.get("Content-Security-Policy")).toContain("sandbox");
    const etag = answer.headers.get("ETag") ?? "";
    const again = await open(pathname, { "If-None-Match": etag });
    expect([again.status, again.text]).toEqual([304, ""]);
    await put(team, id, transcriptOf(cueOf("New.")));
    expect((await open(pathname, { "If-None-Match": etag })).status).toBe(200);
    // The file whose name is "transcript" has its own bytes.
    expect((await open(pathname.replace(/\/[^/]+$/, ""))).text).toBe("hello");
  });

  test("a missing transcript, a revoked link, a wrong secret and a deleted file get the same 404", async () => {
    const { team, id, link, describeLink, open } = await shared();
    await put(team, id, SAID);
    const { pathname } = new URL((await describeLink()).transcriptUrl);
    const missing = async (path = pathname) => {
      const { status, code, headers } = await open(path);
      expect([status, code, headers.get("Cache-Control")]).toEqual([404, "not_found", "no-store, no-transform"]);
    };
    await missing(pathname.replace(/\.[0-9a-f]{32}/, `.${"0".repeat(32)}`));
    await missing(pathname.replace(/links\/[^/]+/, "links/x"));
    await remove(team, id);
    await missing();
    await put(team, id, SAID);
    expect((await open(pathname)).status).toBe(200);
    await team.call("DELETE", `/docs/v1/links/${link._id}`);
    await missing();
  });
});

test("the file of another team has no transcript", async () => {
  const { team, id } = await newFile();
  await put(team, id, SAID);
  const other = await newTeam();
  for (const act of [get, remove, (...of: [Team, string]) => put(...of, SAID)]) {
    await rejected(other, 404, "not_found", () => act(other, id));
  }
  expect((await get(team, id)).text).toBe(SAID);
});
