import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { StowageError, type UploadOptions } from "../../src/client/index.ts";
import { type UploadPage, UploadRunner } from "../../src/client/upload-runner.ts";

/* What the runner does with the effects of upload-state.ts, without a browser's storage. */

const settled = () => new Promise((resolve) => setImmediate(resolve));
const lost = new StowageError("connection_failed", "No connection.");
const full = (retryAfterSeconds?: number) =>
  new StowageError("too_many_unfinished_uploads", "Retry.", { status: 409, retryAfterSeconds });
const saved = { idempotencyKey: "k", url: "https://stowage.example/docs/v1/uploads/resumable/1.secret" };

/** An upload that begins, until the test ends it. */
interface Begun {
  end(id: string): void;
  fail(error: unknown): void;
  options: UploadOptions;
}

async function open({
  isForm = true,
  isTokenRenewed = false,
  cancel = async () => {},
}: {
  isForm?: boolean;
  isTokenRenewed?: boolean;
  cancel?: () => Promise<void>;
} = {}) {
  const begun: Begun[] = [];
  const canceled: string[] = [];
  const page: UploadPage<null> = {
    places: () => ["here"],
    placeOf: () => "here",
    upload: (_, __, options) =>
      new Promise((end, fail) => {
        begun.push({ end, fail, options });
        options.signal?.addEventListener("abort", () => fail(options.signal?.reason));
      }),
    cancel: async (_, url) => {
      canceled.push(url);
      await cancel();
    },
    isTokenRenewed: () => isTokenRenewed,
    follow: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", resolve)),
    onChange: () => {},
    onProgress: () => {},
  };
  const runner = new UploadRunner<null>("test", { isForm }, page);
  runner.send({ type: "open" });
  runner.send({ type: "set", isReady: true });
  const add = async (...files: File[]) => {
    runner.add(files.map((file) => ({ file, item: { name: file.name } })));
    await settled();
    return runner.items.map(({ key }) => key);
  };
  await settled();
  return { runner, begun, canceled, add, states: () => runner.items.map(({ state }) => state).join(" ") };
}

describe("An upload that is canceled", () => {
  test("ends its request, unless all of a small file is sent, which may be stored", async () => {
    const { runner, begun, add, states } = await open({ isForm: false });
    const keys = await add(new File(["abc"], "half.txt"), new File(["abc"], "sent.txt"));
    begun[0]?.options.onProgress?.(2, 3);
    begun[1]?.options.onProgress?.(3, 3);
    runner.send({ type: "cancel", keys });
    await settled();
    expect([states(), begun.map(({ options }) => options.signal?.aborted)]).toEqual(["canceling", [true, false]]);
    begun[1]?.end("id");
    await settled();
    expect([states(), runner.items[0]?.id]).toEqual(["stored", "id"]);
  });

  test("is deleted on the service, or stays in a list if it was complete before", async () => {
    const large = new File([new Uint8Array(9_000_000)], "large.bin");
    const forbidden = new StowageError("forbidden", "It is complete.", { status: 403 });
    for (const [cancel, states] of [
      [async () => {}, ""],
      [() => Promise.reject(forbidden), "stored"],
      [() => Promise.reject(lost), "failed"],
    ] as const) {
      const opened = await open({ isForm: false, cancel });
      const keys = await opened.add(large);
      await opened.begun[0]?.options.store?.set("", saved);
      opened.runner.send({ type: "cancel", keys });
      await settled();
      expect([opened.states(), opened.canceled]).toEqual([states, [saved.url]]);
    }
  });

  test("saves nothing more that its request reports", async () => {
    const { runner, begun, add } = await open();
    const [key = ""] = await add(new File(["abc"], "a.txt"));
    runner.send({ type: "set", isReady: false });
    await begun[0]?.options.store?.set("", saved);
    await settled();
    const { state, saved: kept } = runner.uploads.items.get(key) ?? {};
    expect([state, kept]).toEqual(["waiting", undefined]);
  });
});

describe("An upload that fails", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout"] }));
  afterEach(() => void vi.useRealTimers());

  test("is tried again with backoff, and soon after it has advanced", async () => {
    const { begun, add } = await open();
    await add(new File(["abc"], "a.txt"));
    const waits: number[] = [];
    for (let attempt = 0; attempt < 7; attempt++) {
      if (attempt === 6) begun.at(-1)?.options.onProgress?.(2, 3);
      begun.at(-1)?.fail(lost);
      await settled();
      const before = begun.length;
      let waited = 0;
      for (; begun.length === before; waited += 500) {
        vi.advanceTimersByTime(500);
        await settled();
      }
      waits.push(waited);
    }
    // Between a half and the whole of 4 s, 8 s, …, up to a minute.
    for (const [place, ceiling] of [4, 8, 16, 32, 60, 60, 4].entries()) {
      expect(waits[place]).toBeGreaterThanOrEqual(ceiling * 500);
      expect(waits[place]).toBeLessThanOrEqual(ceiling * 1000 + 500);
    }
  });

  test.each([
    ["a lost connection", lost, "waiting", "waiting"],
    ["a full team, if the service says when to try again", full(60), "waiting", "waiting"],
    ["a full team otherwise", full(), "failed", "failed"],
    ["a rejected token", new StowageError("token_invalid", "It has expired.", { status: 401 }), "failed", "waiting"],
  ])("waits after %s only if it may succeed later, a page with new tokens included", async (_, error, ...expected) => {
    const shown: string[] = [];
    for (const isTokenRenewed of [false, true]) {
      const { begun, add, states } = await open({ isTokenRenewed });
      await add(new File(["abc"], "a.txt"));
      begun[0]?.fail(error);
      await settled();
      shown.push(states());
    }
    expect(shown).toEqual(expected);
  });

  test("needs its file again if that can't be read, and is refused otherwise", async () => {
    const { begun, add, states } = await open();
    const gone = new File(["abc"], "gone.txt");
    gone.slice = () => ({ arrayBuffer: () => Promise.reject(new Error("NotReadableError")) }) as unknown as Blob;
    await add(gone, new File(["abc"], "a.txt"));
    for (const upload of begun) upload.fail(new StowageError("forbidden", "No.", { status: 403 }));
    await settled();
    await settled();
    expect(states()).toBe("interrupted failed");
  });
});
