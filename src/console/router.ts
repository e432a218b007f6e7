import { computed, signal } from "@preact/signals";

const BASE = "/console";

/** The address within the console, such as `/files/01a2…`. */
export const path = signal(pathNow());
/** The team that the address named with which the page was opened: whoever made that link chose it. */
export const linkedTeam = new URLSearchParams(location.search).get("team");
/** The part behind the `?`: filters, so that a filtered list can be linked to, and gone back to. */
export const query = signal(new URLSearchParams(location.search));
/** The path's parts: `["files", "01a2…"]`. One that can't be read is one part, which no page has. */
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

/** The address of a page for a link: `href("/files", { status: "failed" })`. Empty values are left out. */
export function href(to: string, filters: Record<string, string | undefined> = {}): string {
  const given = Object.entries(filters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const search = new URLSearchParams(given).toString();
  return BASE + to + (search && `?${search}`);
}

/** Where a file's page leads back to: the list as it was, and in it the file. */
export const lastList = { address: href("/files"), id: "" };

export function navigate(address: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  read();
}

/** Links within the console change the page without loading it anew: what is being uploaded goes on. */
export function followLinks(): void {
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented) return;
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    const isOurs = link.origin === location.origin && `${link.pathname}/`.startsWith(`${BASE}/`);
    if (!isPlain || !isOurs || link.target || link.hasAttribute("download")) return;
    event.preventDefault();
    // A place in the page, such as "#content", is gone to and is no other page.
    if (link.hash && link.pathname === location.pathname) document.getElementById(link.hash.slice(1))?.focus();
    else navigate(link.href);
  });
}
