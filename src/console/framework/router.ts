import { computed, signal } from "@preact/signals";
import { resetPageSignals } from "./signals.ts";

const BASE = "/console";

/** The path within the console, such as `/files/01a2…`. */
export const path = signal(pathNow());
/** The team in the URL that opened the page. The author of that link chose it, so it is not to be trusted. */
export const linkedTeam = new URLSearchParams(location.search).get("team");
/** The query of the URL. It holds the filters, so a filtered list can be linked to and returned to. */
export const query = signal(new URLSearchParams(location.search));
/** The segments of the path: `["files", "01a2…"]`. A malformed path is one segment, which matches no page. */
export const steps = computed(() => {
  try {
    return path.value.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return [path.value];
  }
});

/** The path of the page before this one, unless that page is gone. */
let previous: string | null = null;
/** The last URL of each list by its path, with its filters. */
const lastUrls = new Map<string, string>();

function pathNow(): string {
  return location.pathname.slice(BASE.length).replace(/\/+$/, "") || "/";
}

function read(): void {
  const next = pathNow();
  if (next !== path.peek()) {
    previous = path.peek();
    resetPageSignals();
  }
  path.value = next;
  query.value = new URLSearchParams(location.search);
  noteList();
}

function noteList(): void {
  if (steps.peek().length === 1) lastUrls.set(path.peek(), location.pathname + location.search);
}
noteList();

/** The URL of a list as it was when the user saw it last: with its filters. */
export const lastUrl = (list: string): string => lastUrls.get(list) ?? href(list);

/** Returns the path that the user comes from, once: a list then focuses the row of that record. */
export function takePrevious(): string | null {
  const taken = previous;
  previous = null;
  return taken;
}

/** The URL of a page: `href("/files", { status: "failed" })`. Empty values are left out. */
export function href(to: string, filters: Record<string, string | undefined> = {}): string {
  const given = Object.entries(filters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const search = new URLSearchParams(given).toString();
  return BASE + to + (search && `?${search}`);
}

/** @param isGone whether the page that the user leaves does not exist any more */
export function navigate(url: string, { replace = false, isGone = false } = {}): void {
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  read();
  if (isGone) previous = null;
}

/** Makes links within the console change the page without a reload, so that uploads continue. */
export function followLinks(): void {
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented) return;
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    const isOurs = link.origin === location.origin && `${link.pathname}/`.startsWith(`${BASE}/`);
    if (!isPlain || !isOurs || link.target || link.hasAttribute("download")) return;
    event.preventDefault();
    // A link such as "#content" moves the focus within the page.
    if (link.hash && link.pathname === location.pathname) document.getElementById(link.hash.slice(1))?.focus();
    else navigate(link.href);
  });
}
