// @vitest-environment happy-dom
// @vitest-environment-options { "url": "https://stowage.example/console/files/a%20b?status=failed" }
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Action, allowed, shortcutsOf } from "../../src/console/framework/action.tsx";
import { ask, Dialogs, open } from "../../src/console/framework/dialog.tsx";
import { addShortcuts, hasCharacterKeys, runShortcut } from "../../src/console/framework/keys.ts";
import { href, lastUrl, navigate, path, query, steps, takePrevious } from "../../src/console/framework/router.ts";
import { me, session } from "../../src/console/framework/session.ts";
import { pageSignal, tabSignal } from "../../src/console/framework/signals.ts";

/* The router, keys, actions and dialogs of the console, without a server. */

/** Lets effects and promises go on. */
const settle = () => act(() => new Promise((resolve) => setTimeout(resolve)));

describe("The router", () => {
  test("reads the path and the filters of the URL that opened the page", () => {
    expect([path.peek(), steps.peek(), query.peek().get("status")]).toEqual([
      "/files/a%20b",
      ["files", "a b"],
      "failed",
    ]);
  });

  test("makes URLs without empty filters", () => {
    expect(href("/files", { status: "failed", search: "", folder: undefined })).toBe("/console/files?status=failed");
    expect(href("/")).toBe("/console/");
  });

  test("changes path and filters at once, and adds an entry to the history unless it replaces one", () => {
    const before = history.length;
    navigate(href("/users", { search: "ada" }));
    expect([path.peek(), query.peek().get("search"), history.length]).toEqual(["/users", "ada", before + 1]);
    navigate(href("/users"), { replace: true });
    expect([path.peek(), query.peek().size, history.length]).toEqual(["/users", 0, before + 1]);
  });

  test("takes a malformed path for one segment, which matches no page", () => {
    navigate("/console/files/%E0%A4%A");
    expect(steps.peek()).toEqual(["/files/%E0%A4%A"]);
  });
});

describe("What a list remembers", () => {
  test("is its last URL, with its filters, for the pages of its records", () => {
    expect(lastUrl("/webhooks")).toBe("/console/webhooks");
    navigate(href("/webhooks", { search: "a" }));
    navigate(href("/webhooks", { search: "ab" }), { replace: true });
    navigate(href("/webhooks/01"));
    expect(lastUrl("/webhooks")).toBe("/console/webhooks?search=ab");
    expect(lastUrl("/webhooks/01")).toBe("/console/webhooks/01");
  });

  test("is the record that the user comes from, once, unless it is gone", () => {
    navigate(href("/webhooks/01"));
    navigate(href("/webhooks"));
    expect([takePrevious(), takePrevious()]).toEqual(["/webhooks/01", null]);
    navigate(href("/webhooks/01"));
    navigate(href("/webhooks"), { isGone: true });
    expect(takePrevious()).toBeNull();
  });
});

describe("A signal of the page", () => {
  test("starts again on the next page, and not if only filters change", () => {
    const [ofPage, ofTab] = [pageSignal(""), tabSignal("")];
    navigate(href("/files"));
    ofPage.value = ofTab.value = "changed";
    navigate(href("/files", { status: "failed" }));
    expect([ofPage.value, ofTab.value]).toEqual(["changed", "changed"]);
    navigate(href("/files/01"));
    expect([ofPage.value, ofTab.value]).toEqual(["", "changed"]);
  });
});

describe("Keys", () => {
  const press = (key: string, options: KeyboardEventInit = {}, target: Element = document.body) => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...options });
    target.addEventListener("keydown", (dispatched) => runShortcut(dispatched as KeyboardEvent), { once: true });
    target.dispatchEvent(event);
  };

  test("reach the layer that was added last, and the one below if it leaves them", () => {
    const calls: string[] = [];
    const removals = [
      addShortcuts({ a: () => calls.push("page a"), b: () => calls.push("page b") }),
      addShortcuts(() => ({ a: () => calls.push("row a"), b: () => false })),
    ];
    press("a");
    press("B");
    removals[1]?.();
    press("a");
    removals[0]?.();
    press("a");
    expect(calls).toEqual(["row a", "page b", "page a"]);
  });

  test("do nothing while somebody types, with a modifier, or if characters are turned off", () => {
    const run = vi.fn();
    const remove = addShortcuts({ a: run, Delete: run });
    const input = document.body.appendChild(document.createElement("input"));
    press("a", {}, input);
    press("a", { ctrlKey: true });
    hasCharacterKeys.value = false;
    press("a");
    expect(run).not.toHaveBeenCalled();
    press("Delete");
    expect(run).toHaveBeenCalledTimes(1);
    hasCharacterKeys.value = true;
    remove();
    input.remove();
  });
});

const signIn = (scopes: string[]) => {
  me.value = { scopes } as never;
  session.value = { client: {} as never, team: { expiresAt: "2100-01-01T00:00:00Z" } as never };
};

describe("Actions", () => {
  const run = vi.fn();
  const rename: Action = { label: "Rename", scope: "files:write", keys: ["r"], run };
  const actions = [rename, { label: "Delete", scope: "files:delete" as const, keys: ["Delete"], run }, false as const];

  test("are those whose scope the session has, with their keys", () => {
    signIn(["files:write"]);
    expect(allowed(actions).map(({ label }) => label)).toEqual(["Rename"]);
    expect(Object.keys(shortcutsOf(actions))).toEqual(["r"]);
  });

  test("do nothing by key while they are disabled", () => {
    signIn(["files:write"]);
    shortcutsOf([{ ...rename, isDisabled: true }]).r?.(new KeyboardEvent("keydown"));
    expect(run).not.toHaveBeenCalled();
  });
});

describe("Dialogs", () => {
  const place = document.createElement("div");
  beforeEach(async () => {
    signIn([]);
    document.body.append(place);
    await act(() => render(<Dialogs />, place));
    await settle();
  });
  afterEach(() => {
    render(null, place);
    place.remove();
  });
  const button = (label: string) =>
    [...document.querySelectorAll("button")].find(({ textContent }) => textContent === label) as HTMLButtonElement;

  test("are promises of their result", async () => {
    const result = open<string>((close) => (
      <button type="button" onClick={() => close("chosen")}>
        Choose
      </button>
    ));
    await settle();
    button("Choose").click();
    expect(await result).toBe("chosen");
    expect(button("Choose")).toBeUndefined();
  });

  test("close with the page, without a result", async () => {
    const result = open(() => <p>Open</p>);
    await settle();
    navigate(href("/keys"));
    expect(await result).toBeUndefined();
  });

  test("stay while their action runs, also if the page changes, and close with the session", async () => {
    const work = Promise.withResolvers<string>();
    const result = ask({ title: "Delete?", action: "Delete", text: "All of it.", run: () => work.promise });
    await settle();
    button("Delete")
      .closest("form")
      ?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
    await settle();
    navigate(href("/users"));
    await settle();
    expect(button("Delete").getAttribute("aria-disabled")).toBe("true");
    session.value = null;
    expect(await result).toBeUndefined();
    work.resolve("late");
  });
});
