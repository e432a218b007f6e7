import { ORIGIN } from "./samples.ts";
import { showSearch } from "./search.ts";
import { addTries } from "./trying.ts";

/* The script of the page adds search, one choice of language, copy buttons, and forms that send requests. */

/** Shows this service's URL in the samples. */
function showOrigin(): void {
  for (const code of document.querySelectorAll("pre code")) {
    // A sample is one text node, so only the text changes.
    if (code.textContent.includes(ORIGIN)) code.textContent = code.textContent.replaceAll(ORIGIN, location.origin);
  }
}

/** A name of JSON, a text, a number or another value, and a word of a language. */
const TOKENS =
  /("[^"\n]*")(?=:)|("[^"\n]*"|'[^']*'|`[^`]*`)|\b(\d[\d.]*|null|true|false|None|True|False)\b|\b(import|from|const|await|new|for|of|curl)\b/g;

/** Colors the samples, without elements. A browser that has no highlights shows plain text. */
function colorSamples(): void {
  if (!CSS.highlights) return;
  const kinds = ["name", "text", "value", "word"].map((kind) => {
    const highlight = new Highlight();
    CSS.highlights.set(kind, highlight);
    return highlight;
  });
  for (const { firstChild: node } of document.querySelectorAll("pre code")) {
    for (const { index, 0: found, ...groups } of node?.textContent?.matchAll(TOKENS) ?? []) {
      const kind = kinds.findIndex((_, place) => groups[place + 1] !== undefined);
      const [startContainer, endContainer] = [node as Node, node as Node];
      const range = { startContainer, startOffset: index, endContainer, endOffset: index + found.length };
      kinds[kind]?.add(new StaticRange(range));
    }
  }
}

/** Selects a language in every sample at once. The clicked sample keeps its position on the screen. */
function shareLanguage(): void {
  document.addEventListener("change", ({ target }) => {
    if (!(target instanceof HTMLInputElement) || !target.name.startsWith("language-")) return;
    const { top } = target.getBoundingClientRect();
    for (const input of document.querySelectorAll<HTMLInputElement>(".languages input"))
      input.checked = input.value === target.value;
    scrollBy(0, target.getBoundingClientRect().top - top);
  });
}

function addCopyButtons(): void {
  for (const samples of document.querySelectorAll(".samples")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button small";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const shown = [...samples.querySelectorAll("pre")].find((one) => one.checkVisibility());
      await navigator.clipboard.writeText(shown?.textContent ?? "");
      button.textContent = "Copied";
    });
    button.addEventListener("blur", () => {
      button.textContent = "Copy";
    });
    samples.querySelector(".languages")?.append(button);
  }
}

/** Marks the section that is being read in the contents. */
function markPlace(): void {
  const index = document.querySelector(".index");
  const links = new Map([...document.querySelectorAll<HTMLAnchorElement>(".index a")].map((a) => [a.hash.slice(1), a]));
  const marked = new IntersectionObserver(
    (entries) => {
      const { target } = entries.findLast(({ isIntersecting }) => isIntersecting) ?? {};
      const link = target && links.get(target.id);
      if (!link || !index) return;
      index.querySelector("[aria-current]")?.removeAttribute("aria-current");
      link.setAttribute("aria-current", "location");
      // Not scrollIntoView, which would also move the page.
      const { top, bottom } = link.getBoundingClientRect();
      const frame = index.getBoundingClientRect();
      if (top < frame.top || bottom > frame.bottom) index.scrollTop += top - frame.top - frame.height / 2;
    },
    { rootMargin: "-20% 0px -70%" },
  );
  for (const section of document.querySelectorAll("main [id]")) if (links.has(section.id)) marked.observe(section);
}

showOrigin();
colorSamples();
shareLanguage();
addCopyButtons();
markPlace();
showSearch();
addTries();
