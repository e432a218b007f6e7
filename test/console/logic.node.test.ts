import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { FileMetadata } from "../../src/client/index.ts";
import { findPeaks, isForBrowser, isUnknownForBrowser } from "../../src/client/peaks.ts";
import { describeDevice } from "../../src/console/accounts/device.ts";
import { filtersFrom, groupByDay, isListed, isOfType, mergeEvents } from "../../src/console/events/event-list.ts";
import { applyEvents, type FileRow, lacksAudio, pathOf, viewFrom } from "../../src/console/files/file-rows.ts";
import { writtenBy } from "../../src/console/nouns.ts";
import { curlFor } from "../../src/console/parts/curl.tsx";
import { splitEnd, splitName } from "../../src/console/parts/file-name.tsx";
import {
  countOf,
  formatAge,
  formatBytes,
  formatDayHeading,
  formatDuration,
  formatPercent,
  formatRemaining,
} from "../../src/console/parts/format.ts";
import { rulerTicks } from "../../src/console/sound/drawing.ts";
import { spread } from "../../src/console/sound/waveforms.ts";
import { dailyTotals } from "../../src/console/uploads/daily-totals.ts";
import { describe as describeUpload, isSettled, selectShown, summarize } from "../../src/console/uploads/summary.ts";

/* The console's logic that needs no browser. */

describe("mergeEvents", () => {
  const event = (_id: string) => ({ _id });
  const ids = (list: { _id: string }[]) => list.map(({ _id }) => _id).join("");

  test("keeps the newest event first, in whatever order events arrive", () => {
    // After the tab was in the background, the list was reloaded, and older events are replayed.
    expect(ids(mergeEvents([..."9765"].map(event), [..."68"].map(event), true))).toBe("98765");
  });

  test("leaves events of a later page to that page, and ignores duplicates", () => {
    const list = [..."975"].map(event);
    expect(ids(mergeEvents(list, [..."34"].map(event), false))).toBe("975");
    expect(ids(mergeEvents(list, [..."34"].map(event), true))).toBe("97543");
    expect(mergeEvents(list, [..."99"].map(event), true)).toBe(list);
  });

  test("merges ten thousand events at once", () => {
    const many = Array.from({ length: 10_000 }, (_, place) => event(String(place).padStart(5, "0")));
    expect(mergeEvents([], many, true)[0]).toEqual({ _id: "09999" });
  });
});

describe("Filters of events", () => {
  const event = {
    type: "file.updated" as const,
    subject: { kind: "file" as const, id: "f", version: 1, name: "f.txt" },
    actor: { kind: "session" as const, keyId: "k", userId: "u", name: null, requestId: null },
    createdAt: new Date(2026, 2, 1, 12).toISOString(),
  };

  test.for([
    ["", true],
    ["type=file", true],
    ["type=file.updated", true],
    ["type=file.deleted", false],
    ["type=user", false],
    ["actor=u", true],
    ["actor=k", true],
    ["actor=f", false],
    ["subject=f", true],
    ["subject=u", false],
    ["from=2026-03-01&until=2026-03-01", true],
    ["from=2026-03-02", false],
    ["until=2026-02-28", false],
    ["before=0", false],
  ] as const)("the filters “%s” match a new event: %s", ([query, expected]) => {
    expect(isListed(event, filtersFrom(new URLSearchParams(query)))).toBe(expected);
  });

  test("groups events by the days of the reader", () => {
    const at = (day: number, hour: number) => ({ createdAt: new Date(2026, 2, day, hour).toISOString() });
    expect(groupByDay([at(3, 1), at(2, 23), at(2, 0)])).toEqual([[at(3, 1)], [at(2, 23), at(2, 0)]]);
  });
});

describe("Filter for deleted files", () => {
  test("asks for the events of files, and shows those that were moved to the trash or erased", () => {
    expect(filtersFrom(new URLSearchParams("type=deleted"))).toEqual({ type: "file" });
    const types = ["file.trashed", "file.deleted", "file.uploaded", "file.restored"] as const;
    expect(types.filter((type) => isOfType({ type }, "deleted"))).toEqual(["file.trashed", "file.deleted"]);
    expect(types.filter((type) => isOfType({ type }, "file"))).toEqual(types);
  });
});

describe("applyEvents", () => {
  const file = (id: number, changes: Partial<FileRow> = {}): FileRow => ({
    _id: String(id),
    name: `${id}.mp3`,
    folder: "",
    tags: [],
    title: null,
    artist: null,
    peaks: null,
    fileType: "audio file",
    status: "completed",
    createdAt: new Date(id * 1000).toISOString(),
    __v: 1,
    size: 1,
    mimeType: "audio/mpeg",
    durationSeconds: 1,
    ...changes,
  });

  test("takes the state of files from their events, keeps their names, and drops deleted files", () => {
    const { name: _, ...data } = file(2, { status: "failed", __v: 2 });
    const event = (id: number, type: string, data: object) => ({ subject: { id: String(id) }, type, data }) as never;
    const rows = applyEvents(
      [file(3), file(2), file(1)],
      [event(3, "file.deleted", file(3)), event(2, "file.failed", data), event(1, "file.failed", { ...data, __v: 0 })],
    );
    expect(rows).toEqual([file(2, { status: "failed", __v: 2 }), file(1)]);
  });

  test("drops files that move to the trash, unless they were restored since", () => {
    const trashed = (id: number) => ({ subject: { id: String(id) }, type: "file.trashed", data: file(id) }) as never;
    const restored = file(2, { __v: 3 });
    expect(applyEvents([restored, file(1)], [trashed(2), trashed(1)])).toEqual([restored]);
  });
});

describe("viewFrom", () => {
  const filtersOf = (query: string) => viewFrom(new URLSearchParams(query)).filters;

  test("shows the content of a folder, or filters it with all folders below", () => {
    expect(filtersOf("")).toEqual({ folder: "", sort: "-createdAt" });
    expect(filtersOf("folder=a/b")).toEqual({ folder: "a/b", sort: "name" });
    expect(filtersOf("folder=a/b&sort=date")).toEqual({ folder: "a/b", sort: "-createdAt" });
    expect(filtersOf("folder=a/b&tag=x")).toEqual({ under: "a/b", tag: "x", sort: "-createdAt" });
    expect(filtersOf("sort=toString")).toEqual({ folder: "", sort: "-createdAt" });
    expect(filtersOf("search=x")).toEqual({ search: "x", sort: "name" });
    expect(pathOf("a/b")).toEqual([
      { name: "a", path: "a" },
      { name: "b", path: "a/b" },
    ]);
  });

  test("keeps the extension of a name apart, so that it stays visible", () => {
    expect(["a.mp3", "v1.2 final", ".hidden", "Night Signals"].map(splitName)).toEqual([
      ["a", ".mp3"],
      ["v1.2 final", ""],
      [".hidden", ""],
      ["Night Signals", ""],
    ]);
  });

  test("keeps the end of a long name apart, by words or 12 characters, but its extension where directions are mixed", () => {
    const names = [
      "Field recording, take 3 (final) v12.mp3",
      "2026-03-01 kitchen-recorder-3.wav",
      "FieldRecordingTakeThreeFinalV12.mp3",
      "interview.mp3",
      "ah.mp3",
      "ראיון ארוך מאוד עם נועה על הים Take 12.mp3",
    ];
    expect(names.map(splitEnd)).toEqual([
      ["Field recording, take 3 (final) ", "v12.mp3"],
      ["2026-03-01 kitchen-", "recorder-3.wav"],
      ["FieldRecordingTakeThree", "FinalV12.mp3"],
      ["interview", ".mp3"],
      // Too short to be cut.
      ["ah.mp3", ""],
      ["ראיון ארוך מאוד עם נועה על הים Take 12", ".mp3"],
    ]);
    // An accent stays with its letter.
    const [, end] = splitEnd(`${"a".repeat(20)}e\u0301${"b".repeat(11)}`);
    expect(end).toBe(`e\u0301${"b".repeat(11)}`);
  });

  test("includes both days of a date filter, and ignores invalid dates", () => {
    const { createdAfter = "", createdBefore = "" } = filtersOf("from=2026-03-01&until=2026-03-01");
    const hours = (Date.parse(createdBefore) - Date.parse(createdAfter)) / 3_600_000;
    expect(Math.round(hours)).toBe(24);
    expect(filtersOf("from=soon&type=text+file&status=")).toEqual({ fileType: "text file", sort: "-createdAt" });
  });
});

describe("Formatting", () => {
  test.for([
    [countOf(1, "file"), "1 file"],
    [countOf(2000, "file"), "2,000 files"],
    [formatBytes(999), "999 B"],
    [formatBytes(999_950), "1 MB"],
    [formatBytes(1_550_000_000), "1.6 GB"],
    [formatDuration(4), "0:04"],
    [formatDuration(3727), "1:02:07"],
    [formatRemaining(13.2), "14 s left"],
    [formatRemaining(150), "3 min left"],
    [formatPercent(999, 1000), "99%"],
    [formatPercent(1, 1000), "<1%"],
    [formatPercent(0, 0), "0%"],
    [formatDayHeading(new Date(2026, 2, 2, 0), new Date(2026, 2, 2, 23).getTime()), "Today"],
    [formatDayHeading(new Date(2026, 2, 1, 23), new Date(2026, 2, 2, 0).getTime()), "Yesterday"],
    [formatDayHeading(new Date(2026, 1, 28), new Date(2026, 2, 2, 0).getTime()), "Feb 28"],
    [formatAge(new Date(0), 20_000), "just now"],
    [formatAge(new Date(0), 7_200_000), "2 hours ago"],
    [formatAge(new Date(240_000), 0), "in 4 minutes"],
    [formatAge(new Date(Date.UTC(2020, 1, 2, 12)), Date.UTC(2026, 1, 2)), "Feb 2, 2020"],
  ] as const)("writes %s", ([actual, expected]) => {
    expect(actual).toBe(expected);
  });
});

describe("Upload summary", () => {
  const upload = (state: string, sentBytes = 0, others: object = {}) => ({
    size: 100,
    state: state as "sending",
    sentBytes,
    bytesPerSecond: 0,
    error: null,
    ...others,
  });
  const stored = (status: "pending" | "completed" | "failed") =>
    upload("stored", 100, { stored: { _id: "1", status, failure: null } });

  test("counts states, and leaves failed uploads out of the bytes", () => {
    const sending = upload("sending", 50, { bytesPerSecond: 10 });
    expect(summarize([stored("completed"), stored("pending"), upload("failed", 10), sending])).toBe(
      "2 of 4 uploaded · 1 processing · 1 failed · 83% · 10 B/s · 5 s left",
    );
    expect(summarize([stored("completed")])).toBe("1 of 1 uploaded");
    expect([stored("completed"), stored("pending"), upload("waiting")].map(isSettled)).toEqual([true, false, false]);
  });

  test.for([
    [upload("sending", 50), "50% of 100 B"],
    [upload("sending", 100), "100 B · Finishing…"],
    [upload("waiting", 0, { error: new Error() }), "Waiting for connection. Will resume automatically."],
    [upload("interrupted", 20), "Interrupted at 20% of 100 B"],
    [stored("pending"), "100 B · Processing…"],
    [stored("completed"), "100 B"],
  ] as const)("describes %j", ([given, expected]) => {
    expect(describeUpload(given)).toBe(expected);
  });

  test("shows first what matters most, also of ten thousand", () => {
    const make = (state: string, status?: string) => ({
      state: state as "sending",
      ...(status && { stored: { status } as FileMetadata }),
    });
    const few = [
      ...[make("stored", "completed"), make("stored", "pending"), make("waiting"), make("stored", "failed")],
      ...[make("sending"), make("failed"), make("interrupted"), make("waiting")],
    ];
    expect(selectShown(few, 10)).toEqual([3, 5, 6, 4, 2, 7, 1, 0].map((place) => few[place]));
    const many = [...Array.from({ length: 10_000 }, () => make("waiting")), make("failed"), make("sending")];
    const shown = selectShown(many, 5).map(({ state }) => state);
    expect(shown).toEqual(["failed", "sending", "waiting", "waiting", "waiting"]);
  });
});

describe("Peaks", () => {
  test("spreads the peaks of a long recording, and draws others as they are", () => {
    const draw = (levels: number[]) => levels.map(spread(levels)).map((level) => Math.round(level * 100) / 100);
    expect(draw([0.6, 0.62, 0.7, 0.75, 0.8])).toEqual([0.41, 0.45, 0.62, 0.75, 0.89]);
    expect(draw([0, 0.25, 0.5, 1, 1])).toEqual([0, 0.25, 0.5, 1, 1]);
    expect(draw([0.25, 0.25])).toEqual([0.5, 0.5]);
    expect(draw([0, 0])).toEqual([0, 0]);
  });

  test("finds the sample furthest from zero in each section", () => {
    expect(findPeaks([0.1, -0.5, 0.25, 0.2, 2, 0], 3)).toEqual([-0.5, 0.25, 1]);
  });

  test.for([
    ["M4A/isom", "MPEG-4/AAC", 500, 10_000_000, true],
    ["M4A/isom", "MPEG-4/AAC", 7200, 10_000_000, false],
    ["M4A/isom", "MPEG-4/AAC", 500, 300_000_000, false],
    ["FLAC", "FLAC", 500, 10_000_000, false],
  ] as const)(
    "the browser measures %s with %s of %d s and %d bytes: %s",
    ([container, codec, seconds, size, expected]) => {
      const facts = { sampleRate: 44_100, channels: 2, bitrate: null, lossless: null, tags: {} };
      expect(isForBrowser({ container, codec, durationSeconds: seconds, ...facts }, size)).toBe(expected);
    },
  );
});

describe("A file of which only the bytes are known", () => {
  const aac = (bytes: number) => new Blob([new Uint8Array([0xff, 0xf1, 0, 0, 0, 0, 0, 0]), new Uint8Array(bytes - 8)]);
  /** What a browser says about the duration. */
  const stubDuration = (duration: number) => {
    vi.stubGlobal(
      "Audio",
      class {
        duration = duration;
        set src(_: string) {
          queueMicrotask(() => (Reflect.get(this, "onloadedmetadata") as () => void)());
        }
      },
    );
    onTestFinished(() => void vi.unstubAllGlobals());
  };

  test.for([
    ["AAC of 500 s", aac(1000), 500, true],
    ["AAC of 600 s", aac(1000), 600, false],
    ["AAC without an end, of 4 MB", aac(4_000_000), Number.POSITIVE_INFINITY, true],
    ["AAC without an end, of 5 MB", aac(5_000_000), Number.POSITIVE_INFINITY, false],
    ["AAC of 26 MB", aac(26_000_000), 1, false],
    ["MP4", new Blob(["\0\0\0\x1cftypM4A "]), 1, true],
    ["MP3", new Blob([new Uint8Array([0xff, 0xfb, 0, 0, 0, 0, 0, 0])]), 1, false],
  ] as const)("the browser measures %s: %s", async ([, file, duration, expected]) => {
    stubDuration(duration);
    expect(await isUnknownForBrowser(file)).toBe(expected);
  });
});

describe("The ruler of a recording", () => {
  const ruler = (seconds: number) => {
    const ticks = rulerTicks(seconds);
    const texts = (shown: typeof ticks) => shown.map(({ at }) => formatDuration(at)).join(" ");
    return [texts(ticks), texts(ticks.filter(({ isCoarse }) => isCoarse))];
  };

  test.each([
    [0, "0:00", "0:00"],
    [7, "0:00 0:01 0:02 0:03 0:04 0:05 0:06", "0:00 0:02 0:04"],
    [65, "0:00 0:10 0:20 0:30 0:40 0:50", "0:00 0:30"],
    [252, "0:00 1:00 2:00 3:00", "0:00 1:00 2:00 3:00"],
    [1610, "0:00 5:00 10:00 15:00 20:00", "0:00 15:00"],
    [4 * 3600, "0:00 30:00 1:00:00 1:30:00 2:00:00 2:30:00 3:00:00 3:30:00", "0:00 1:00:00 2:00:00 3:00:00"],
  ])("a recording of %i s has round times, and fewer on a narrow screen", (seconds, all, coarse) => {
    expect(ruler(seconds)).toEqual([all, coarse]);
  });

  test("has at most eight times before the end, whatever the duration", () => {
    for (let seconds = 1; seconds < 1_000_000; seconds = Math.ceil(seconds * 1.1))
      expect(rulerTicks(seconds).length).toBeLessThan(9);
  });

  test("has more times if it is zoomed, each where it was", () => {
    const [all, zoomed] = [rulerTicks(252), rulerTicks(252, 8)].map((ticks) => ticks.map(({ at }) => at));
    expect(zoomed).toEqual(expect.arrayContaining(all ?? []));
    expect(zoomed?.slice(0, 3)).toEqual([0, 5, 10]);
  });
});

test.each([
  ["take.mp3", "other file", "completed", true],
  ["take.WAV", "text file", "completed", true],
  ["take.mp3", "audio file", "completed", false],
  ["take.ogg", "video file", "completed", false],
  ["take.mp3", "other file", "processing", false],
  ["mp3.txt", "text file", "completed", false],
] as const)("%s, which is a %s and %s, lacks the audio of its name: %s", (name, fileType, status, expected) => {
  expect(lacksAudio({ name, fileType, status })).toBe(expected);
});

describe("dailyTotals", () => {
  test("adds up the uploads of each of the last 30 days in the reader's time zone", () => {
    const now = new Date(2026, 2, 31, 12);
    const upload = (_id: string, at: Date, size: number) => ({ _id, createdAt: at.toISOString(), size });
    const days = dailyTotals(
      [
        upload("3", new Date(2026, 2, 31, 0), 5),
        upload("2", new Date(2026, 2, 30, 23, 59), 7),
        upload("1", new Date(2026, 2, 2), 1),
        upload("0", new Date(2026, 2, 1, 23, 59), 100),
      ],
      now.getTime(),
    );
    expect(days).toHaveLength(30);
    expect(days.filter(({ count }) => count > 0)).toEqual([
      { start: new Date(2026, 2, 2), count: 1, bytes: 1 },
      { start: new Date(2026, 2, 30), count: 1, bytes: 7 },
      { start: new Date(2026, 2, 31), count: 1, bytes: 5 },
    ]);
  });
});

test("a copied curl command has no quote that a link could end it with", () => {
  const command = curlFor({ path: "/docs/v1/uploads/';id;'/metadata", query: { search: "it's" } }, "https://x.test");
  expect(command.split("'")).toHaveLength(3);
});

test.each([
  ["GET /auth/v1/users", null],
  ["POST /auth/v1/users/{id}/invitations", "user"],
  ["POST /auth/v1/me/password", "session"],
  ["POST /auth/v1/apikeys/{id}/rotate", "apikey"],
  ["POST /auth/v1/deliveries/{id}/redeliver", "webhook"],
  ["POST /docs/v1/uploads/batch", "file"],
  ["POST /docs/v1/uploads/{id}/links", "link"],
  ["PUT /docs/v1/uploads/{id}/waveform", null],
])("%s changes records of the noun %s", (route, noun) => {
  expect(writtenBy(route)).toBe(noun);
});

test.for([
  ["Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0", "Firefox on Linux"],
  [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
    "Edge on Windows",
  ],
  [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1",
    "Safari on iPhone",
  ],
  ["curl/8.14.1", "curl/8.14.1"],
  [null, "Unknown device"],
] as const)("a session of %s is told apart in words", ([userAgent, words]) => {
  expect(describeDevice(userAgent)).toBe(words);
});
