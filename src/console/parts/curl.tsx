import { CopyButton } from "./values.tsx";

export interface Call {
  /** The path of the API, such as `/docs/v1/uploads`. */
  path: string;
  query?: Record<string, string | number | undefined>;
}

/** The command for a request of this page. It reads the key from the environment, so that it can be shared. */
function curlFor({ path, query = {} }: Call, origin: string): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `curl -H "Authorization: Bearer $STOWAGE_KEY" '${origin}${path}${search && `?${search}`}'`;
}

/** Copies the request that this page shows, for a terminal. */
export const CopyCurl = ({ call }: { call: Call }) => (
  <CopyButton text={curlFor(call, location.origin)} label="curl command">
    Copy as curl
  </CopyButton>
);
