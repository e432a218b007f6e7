/* Search in the operations: every word must occur in an operation's name, route, scope, description, fields or codes. */

import { fold, foldedWords } from "../../folding.ts";

interface Searchable {
  element: HTMLElement;
  text: string;
}

function readOperations(): Searchable[] {
  return [...document.querySelectorAll<HTMLElement>("main .operation")].map((element) => {
    const about = element.querySelector(".about")?.cloneNode(true) as HTMLElement;
    const codes = [...about.querySelectorAll(".errors code")].map(({ textContent }) => textContent);
    // The same messages are in most operations.
    about.querySelector(".errors")?.remove();
    return { element, text: fold([element.id, about.textContent, ...codes].join(" ")) };
  });
}

const countOf = (count: number): string => `${count} ${count === 1 ? "result" : "results"}`;

/** Keys with a modifier, because speech input types letters and signs by accident (WCAG 2.1.4). */
const isMac = /Mac|iP/.test(navigator.platform);

export function showSearch(): void {
  const place = document.querySelector("#search");
  if (!place) return;
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = `Search (${isMac ? "⌘" : "Ctrl "}K)`;
  input.ariaLabel = "Search the reference";
  input.ariaKeyShortcuts = isMac ? "Meta+K" : "Control+K";
  input.autocomplete = "off";
  const status = document.createElement("p");
  status.role = "status";
  place.append(input, status);

  let operations: Searchable[] | undefined;
  const search = () => {
    operations ??= readOperations();
    const words = foldedWords(input.value);
    const isSearching = words.length > 0;
    const found = new Set<string>();
    for (const { element, text } of operations) {
      element.hidden = !words.every((word) => text.includes(word));
      if (!element.hidden) found.add(element.id);
    }
    for (const link of document.querySelectorAll<HTMLAnchorElement>(".index ul ul a"))
      (link.parentElement as HTMLElement).hidden = isSearching && !found.has(link.hash.slice(1));
    // A group without results is left out, in the page and in the contents.
    for (const group of document.querySelectorAll<HTMLElement>("main > section, .index > ul > li"))
      group.hidden = isSearching && !group.querySelector(".operation:not([hidden]), li:not([hidden])");
    status.textContent = isSearching
      ? found.size > 0
        ? countOf(found.size)
        : "No results. Try fewer or other words."
      : "";
    if (isSearching) scrollTo(0, 0);
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") document.querySelector<HTMLElement>(".operation:not([hidden]) h3 a")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
    event.preventDefault();
    input.focus();
  });
  // A link to something that the search hides ends the search.
  addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || target.checkVisibility()) return;
    input.value = "";
    search();
    target.scrollIntoView();
  });
}
