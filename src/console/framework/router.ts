import { computed, signal } from "@preact/signals";

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

function pathNow(): string {
  return location.pathname.slice(BASE.length).replace(/\/+$/, "") || "/";
}

function read(): void {
  path.value = pathNow();
  query.value = new URLSearchParams(location.search);
}

/** The URL of a page: `href("/files", { status: "failed" })`. Empty values are left out. */
export function href(to: string, filters: Record<string, string | undefined> = {}): string {
  const given = Object.entries(filters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const search = new URLSearchParams(given).toString();
  return BASE + to + (search && `?${search}`);
}

export function navigate(url: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  read();
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
