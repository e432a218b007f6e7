import type { Action } from "../framework/action.tsx";
import { copy } from "./copy.tsx";

/** Filters of a list as a URL has them, in which a time is text. */
export type InUrl<Filters> = { [Name in keyof Filters]: Exclude<Filters[Name], Date> };

export interface Call {
  /** The path of the API, such as `/docs/v1/uploads`. */
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
}

/** The command for a request of this page. It reads the key from the environment, so that it can be shared. */
export function curlFor({ path, query = {} }: Call, origin: string): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  // The path may come from a link that somebody else made, and a quote in it would end the argument.
  const url = `${origin}${path}${search && `?${search}`}`.replaceAll("'", "%27");
  return `curl -H "Authorization: Bearer $STOWAGE_KEY" '${url}'`;
}

/** Copies the request that a page shows, for a terminal. */
export const copyAsCurl = (call: Call): Action => ({
  label: "Copy as curl",
  icon: "code",
  run: () => copy(curlFor(call, location.origin), "curl command"),
});
