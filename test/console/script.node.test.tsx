// @vitest-environment happy-dom
// @vitest-environment-options { "url": "https://stowage.example/console" }
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Announcements } from "../../src/console/framework/announce.tsx";
import { ScriptError } from "../../src/console/framework/errors.ts";
import { script } from "../../src/console/framework/script.tsx";

/* The scripts that are loaded later. The test responds to each import. */

type Exports = { Page: (props: { name: string }) => string };

const exports: Exports = { Page: ({ name }) => `Page of ${name}` };
let imports: PromiseWithResolvers<Exports>[] = [];
const declared = () =>
  script(() => {
    const one = Promise.withResolvers<Exports>();
    imports.push(one);
    return one.promise;
  });

/** Lets effects and promises go on. */
const settle = () => act(() => new Promise((resolve) => setTimeout(resolve)));
async function answer(isThere: boolean): Promise<void> {
  const one = imports.shift();
  if (isThere) one?.resolve(exports);
  else one?.reject(new TypeError("Failed to fetch dynamically imported module"));
  await settle();
}

const place = document.createElement("div");
beforeEach(() => {
  imports = [];
  document.body.append(place);
});
afterEach(() => {
  render(null, place);
  place.remove();
});
const button = (label: string) =>
  [...place.querySelectorAll("button")].find(({ textContent }) => textContent === label) as HTMLButtonElement;

describe("load", () => {
  test("imports once for all that ask", async () => {
    const { load, loaded } = declared();
    const both = [load(), load()];
    await answer(true);
    expect(await Promise.all([...both, load()])).toEqual([exports, exports, exports]);
    expect([loaded.value, imports]).toEqual([exports, []]);
  });

  test("fails with an error for users, and imports again when it is asked again", async () => {
    const { load } = declared();
    const failed = load();
    imports.shift()?.reject(new TypeError("Failed to fetch dynamically imported module"));
    await expect(failed).rejects.toThrow(ScriptError);
    const loaded = load();
    await answer(true);
    expect(await loaded).toBe(exports);
  });
});

describe("use", () => {
  test("runs at once if the script is there, and otherwise in the order of the calls", async () => {
    const { use } = declared();
    const calls: string[] = [];
    use(() => calls.push("first"));
    use(() => calls.push("second"));
    await settle();
    expect(calls).toEqual([]);
    await answer(true);
    use(() => calls.push("third"));
    expect(calls).toEqual(["first", "second", "third"]);
  });

  test("shows a failure with a button that tries again, and then runs what was asked", async () => {
    await act(() => render(<Announcements />, place));
    const { use } = declared();
    const calls: string[] = [];
    use(() => calls.push("once"));
    await answer(false);
    expect(place.textContent).toContain("A part of this page couldn't be loaded.");
    button("Try again").click();
    await settle();
    expect(place.textContent).toBe("");
    await answer(true);
    expect(calls).toEqual(["once"]);
  });

  test("forgets what was asked if the failure is dismissed", async () => {
    await act(() => render(<Announcements />, place));
    const { use } = declared();
    const calls: string[] = [];
    use(() => calls.push("dismissed"));
    await answer(false);
    place.querySelector<HTMLButtonElement>("[aria-label=Dismiss]")?.click();
    use(() => calls.push("later"));
    await answer(true);
    expect(calls).toEqual(["later"]);
  });
});

describe("view", () => {
  test("shows a component once its script is there, in all places", async () => {
    const { view } = declared();
    const Page = view(({ Page }) => Page);
    await act(() =>
      render(
        <>
          <Page name="one" />, <Page name="two" />
        </>,
        place,
      ),
    );
    await settle();
    expect(place.textContent).toContain("Loading");
    await answer(true);
    expect([place.textContent, imports]).toEqual(["Page of one, Page of two", []]);
  });

  test("shows a failure in its place, with a button that tries again", async () => {
    const { view } = declared();
    const Page = view(({ Page }) => Page);
    await act(() => render(<Page name="one" />, place));
    await settle();
    await answer(false);
    expect(place.querySelector("[role=alert]")?.textContent).toContain("A part of this page couldn't be loaded.");
    button("Try again").click();
    await answer(true);
    expect(place.textContent).toBe("Page of one");
  });

  test("has another component in its place if one is given", async () => {
    const { view } = declared();
    const Page = view(
      ({ Page }) => Page,
      ({ failure }) => (failure ? <aside>{failure}</aside> : "Soon"),
    );
    await act(() => render(<Page name="one" />, place));
    expect(place.textContent).toBe("Soon");
    await settle();
    await answer(false);
    expect(place.querySelector("aside [role=alert]")).not.toBeNull();
  });
});
