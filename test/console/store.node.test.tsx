// @vitest-environment happy-dom
// @vitest-environment-options { "url": "https://stowage.example/console" }
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { UserError } from "../../src/console/framework/errors.ts";
import { latestCall, session } from "../../src/console/framework/session.ts";
import {
  followStore,
  type Key,
  type Loaded,
  reloadData,
  touch,
  useData,
  whilePaused,
} from "../../src/console/framework/store.ts";
import type { Noun } from "../../src/console/nouns.ts";

/* The store without a server: the test responds to each load. */

type Request = PromiseWithResolvers<string> & { key: string; signal: AbortSignal };

let requests: Request[] = [];
const pages: Element[] = [];

function load(key: Key) {
  return (signal: AbortSignal): Promise<string> => {
    const request = { ...Promise.withResolvers<string>(), key: key.join(" "), signal };
    requests.push(request);
    return request.promise;
  };
}

/** A component that shows data. `loaded` is what it got last. */
class Shown {
  readonly place = document.createElement("div");
  loaded: Loaded<string> | undefined;

  constructor(key: Key, of: Noun[] = []) {
    pages.push(this.place);
    const View = () => {
      this.loaded = useData(key, load(key), { of });
      return <p>{this.loaded.value}</p>;
    };
    void act(() => render(<View />, this.place));
  }

  get text() {
    return this.place.textContent;
  }
  close() {
    void act(() => render(null, this.place));
  }
}

/** Lets effects and promises go on. The store has no timer that is shorter than a second. */
const settle = () => act(() => new Promise((resolve) => setTimeout(resolve)));
const shown = async (...given: ConstructorParameters<typeof Shown>): Promise<Shown> => {
  const page = new Shown(...given);
  await settle();
  return page;
};
async function answer(value: string): Promise<void> {
  requests.shift()?.resolve(value);
  await settle();
}
const asked = () => requests.map(({ key }) => key);

beforeAll(() => {
  // A session of the operator, who follows no events.
  session.value = { client: {} as never, team: null };
  followStore();
});
afterEach(async () => {
  for (const page of pages.splice(0)) await act(() => render(null, page));
  requests = [];
  await settle();
});

describe("useData", () => {
  test("loads once for all components with the same key, and shows all of them the value", async () => {
    const [first, second] = [await shown(["file", "1"]), await shown(["file", "1"])];
    expect(asked()).toEqual(["file 1"]);
    await answer("one");
    expect([first.text, second.text]).toEqual(["one", "one"]);
  });

  test("tells keys apart whose parts only look alike when they are joined", async () => {
    await shown(["files", "a b"]);
    await shown(["files", "a", "b"]);
    expect(requests).toHaveLength(2);
  });

  test("shows a page that is opened again what it had, and loads it meanwhile", async () => {
    const before = await shown(["file", "2"]);
    await answer("old");
    before.close();
    const after = await shown(["file", "2"]);
    expect([after.text, after.loaded?.isLoading, asked()]).toEqual(["old", true, ["file 2"]]);
    await answer("new");
    expect(after.text).toBe("new");
  });

  test("aborts the load of a page that was closed", async () => {
    const page = await shown(["file", "3"]);
    page.close();
    expect(requests[0]?.signal.aborted).toBe(true);
  });

  test("applies a change also to a result that was requested before it", async () => {
    const page = await shown(["file", "4"]);
    await answer("a");
    page.loaded?.reload();
    page.loaded?.change((value) => `${value}+`);
    await settle();
    expect(page.text).toBe("a+");
    await answer("a");
    expect(page.text).toBe("a+");
  });

  test("keeps the value beside the error of a later load", async () => {
    const page = await shown(["file", "5"]);
    await answer("kept");
    page.loaded?.reload();
    await settle();
    const error = new UserError("Unreadable.");
    requests.shift()?.reject(error);
    await settle();
    expect([page.text, page.loaded?.error]).toEqual(["kept", error]);
  });
});

describe("A write of this tab", () => {
  test("loads again what shows the noun of its route, and nothing else", async () => {
    await shown(["users"], ["user"]);
    await shown(["keys"], ["apikey"]);
    requests = [];
    latestCall.value = { route: "GET /auth/v1/users" };
    latestCall.value = { route: "PUT /docs/v1/uploads/{id}/waveform" };
    await settle();
    expect(asked()).toEqual([]);
    await shown(["users", "all"], ["user"]);
    await answer("");
    latestCall.value = { route: "PATCH /auth/v1/users/{id}" };
    await settle();
    expect(asked()).toEqual(["users all"]);
  });

  test("has a page that is not open load again when it opens", async () => {
    const page = await shown(["teams"], ["team"]);
    await answer("old");
    page.close();
    touch("team");
    expect((await shown(["teams"], ["team"])).text).toBe("");
  });
});

describe("reloadData", () => {
  test("loads one key", async () => {
    await shown(["webhook", "1"]);
    await answer("");
    await shown(["webhook", "2"]);
    await answer("");
    reloadData(["webhook", "2"]);
    await settle();
    expect(asked()).toEqual(["webhook 2"]);
  });
});

describe("whilePaused", () => {
  test("loads nothing of the records that are being deleted, and then what was kept", async () => {
    await shown(["file", "kept"], ["file"]);
    await shown(["links", "gone"], ["file"]);
    await shown(["files", ""], ["file"]);
    for (let i = 0; i < 3; i++) await answer("");
    await whilePaused(["kept", "gone"], async () => {
      touch("file");
      await settle();
      expect(asked()).toEqual(["files "]);
      return ["kept"];
    });
    await settle();
    expect(asked()).toEqual(["files ", "file kept"]);
  });

  test("loads all again if the deletion fails", async () => {
    await shown(["file", "6"]);
    await answer("");
    const failing = whilePaused(["6"], () => Promise.reject(new Error("No.")));
    await expect(failing).rejects.toThrow("No.");
    await settle();
    expect(asked()).toEqual(["file 6"]);
  });
});
