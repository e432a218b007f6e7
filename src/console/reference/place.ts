import { signal } from "@preact/signals";

const TITLE = document.title;

function idNow(): string {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** The part that is being read, by how far the page is scrolled. */
export const inView = signal("");

/** Shows the part that the address names, opens what it is folded in, and moves the focus there. */
function reveal(): void {
  const element = document.getElementById(idNow());
  if (!element) {
    if (!location.hash) document.title = TITLE;
    return;
  }
  for (let folded = element.closest("details"); folded; folded = folded.parentElement?.closest("details") ?? null) {
    folded.open = true;
  }
  element.focus({ preventScroll: true });
  element.scrollIntoView();
  const part = element.closest("[data-part]");
  const title = part?.querySelector("h2, h3")?.textContent;
  document.title = [title, TITLE].filter(Boolean).join(" – ");
}

/** Goes to a part, also where the address names it already. */
export function goTo(id: string): void {
  if (idNow() === id) reveal();
  else location.hash = id;
}

/** Follows the address, and what is read. To be called once the parts are there. */
export function followPlace(): void {
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
  const seen = new Set<Element>();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) seen.add(target);
        else seen.delete(target);
      }
      // Of a group and the operations in it, the first operation.
      const parts = [...seen].filter((part) => ![...seen].some((other) => other !== part && part.contains(other)));
      inView.value = parts.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)[0]?.id ?? "";
    },
    { rootMargin: "-80px 0px -60% 0px" },
  );
  for (const part of document.querySelectorAll("[data-part]")) observer.observe(part);
}
