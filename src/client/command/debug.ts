import type { FetchFunction } from "../index.ts";

/** Returns the URL of a request without its secrets: those of upload URLs and links, and signatures. */
function withoutSecrets(url: string): string {
  const { origin, pathname, searchParams } = new URL(url);
  const path = pathname.replaceAll(/\/([0-9a-f]{24})\.[0-9a-f]+/g, "/$1.***");
  const isSigned = [...searchParams.keys()].some((name) => /signature|token/i.test(name));
  return origin + path + (isSigned ? "?***" : searchParams.size > 0 ? `?${searchParams}` : "");
}

/** Returns a `fetch` that reports each request and its result in one line. */
export function debugFetch(report: (line: string) => void): FetchFunction {
  return async (url, init) => {
    const start = performance.now();
    const describe = (result: string) => {
      const milliseconds = Math.round(performance.now() - start);
      report(`${init.method ?? "GET"} ${withoutSecrets(url)}: ${result}, ${milliseconds} ms`);
    };
    try {
      const response = await fetch(url, init);
      const requestId = response.headers.get("X-Request-Id");
      describe(`${response.status}${requestId === null ? "" : `, request ${requestId}`}`);
      return response;
    } catch (error) {
      describe("no response");
      throw error;
    }
  };
}
