import type { HttpRequest, HttpStack } from "tus-js-client";
import type { FetchFunction } from "./connection.ts";

/** Lets tus-js-client send its requests by a given `fetch`, which reports progress only after each request. */
export function fetchStack(fetch: FetchFunction): HttpStack {
  return {
    getName: () => "fetch",
    createRequest(method: string, url: string): HttpRequest {
      const headers = new Headers();
      const stop = new AbortController();
      let onProgress = (_sentBytes: number) => {};
      return {
        getMethod: () => method,
        getURL: () => url,
        setHeader: (name, value) => headers.set(name, value),
        getHeader: (name) => headers.get(name) ?? undefined,
        setProgressHandler: (handler) => {
          onProgress = handler;
        },
        send: async (body?: Blob | null) => {
          const response = await fetch(url, {
            method,
            headers,
            body: body ?? null,
            redirect: "manual",
            signal: stop.signal,
          });
          const text = await response.text();
          onProgress(body?.size ?? 0);
          return {
            getStatus: () => response.status,
            getHeader: (name) => response.headers.get(name) ?? undefined,
            getBody: () => text,
            getUnderlyingObject: () => response,
          };
        },
        abort: async () => stop.abort(),
        getUnderlyingObject: () => undefined,
      };
    },
  };
}
