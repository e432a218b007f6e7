import type { Page, Route } from "@playwright/test";
import { inject } from "vitest";
import type { StoredFile } from "../../../src/client/index.ts";
import { type Document, Validation } from "../validation.ts";

/* Invented responses of the API. Each is compared with the OpenAPI document of the service, so that none can become outdated. */

const document = (await (await fetch(`${inject("url")}/openapi.json`)).json()) as Document;
const validation = new Validation(document);

interface Success {
  /** Undefined: the response has only a message. */
  data?: unknown;
  headers?: Record<string, string>;
  /** What the page of a search says besides. */
  isComplete?: boolean;
  isFull?: boolean;
}
interface Failure {
  code: string;
  message?: string;
  errors?: { path: string; message: string }[];
  headers?: Record<string, string>;
}

/** The status of an error, as the document states it before its description. */
function statusOf(code: string): number {
  const schema = document.components.schemas.Error as {
    properties: { code: { "x-enumDescriptions": Record<string, string> } };
  };
  return Number.parseInt(schema.properties.code["x-enumDescriptions"][code] ?? "", 10);
}

/** Responds to a request of the page in place of the service. @throws if the document does not describe this response */
export async function respond(route: Route, invented: Success | Failure): Promise<void> {
  const request = route.request();
  const { headers = {}, ...content } = invented;
  const isFailure = "code" in content;
  const status = isFailure ? statusOf(content.code) : 200;
  const body = { message: "Invented.", ...(isFailure && { status: false, requestId: "request-1" }), ...content };
  const text = request.method() === "HEAD" ? "" : JSON.stringify(body);
  try {
    const { pathname } = new URL(request.url());
    const described = validation.routeOf(request.method(), pathname);
    if (!described) throw new Error(`${request.method()} ${pathname} is not in the OpenAPI document.`);
    validation.expectDescribed(described, { status, text });
  } catch (error) {
    // The page must not wait for a response until the test times out.
    await route.abort();
    throw error;
  }
  await route.fulfill({ status, headers, contentType: "application/json", body: text });
}

/** Sends a request to the service, and responds with its data changed. */
export async function alter<T>(route: Route, change: (data: T) => unknown): Promise<void> {
  const response = await route.fetch();
  const { data } = (await response.json()) as { data: T };
  await respond(route, { data: change(data), headers: linkOf(response.headers()) });
}

/** Holds matching requests until they are released, optionally with an error. */
export async function hold(page: Page, method: string, pattern: RegExp) {
  let release = (_failure?: Failure) => {};
  const released = new Promise<Failure | undefined>((resolve) => {
    release = resolve;
  });
  await page.route(pattern, async (route) => {
    if (route.request().method() !== method) return route.fallback();
    const failure = await released;
    if (failure) return respond(route, failure);
    // The page may have aborted the request.
    return route.continue().catch(() => undefined);
  });
  const isHeld = page.waitForRequest((request) => request.method() === method && pattern.test(request.url()));
  return { release: (failure?: Failure) => release(failure), isHeld };
}

/** The link to the next page of a list. */
const linkOf = ({ link }: Record<string, string>): Record<string, string> => (link ? { Link: link } : {});

/** Files as a list returns them, newest first. */
export const fakeFiles = (count: number, first = 1): Omit<StoredFile, "id">[] =>
  Array.from({ length: count }, (_, place) => ({
    _id: (0x01a2_0000_0000 + count - place - first).toString(16).padStart(12, "0").padEnd(24, "0"),
    teamId: "0".repeat(24),
    originalName: `Recording ${count - place}.mp3`,
    name: `Recording ${count - place}.mp3`,
    folder: "",
    reference: null,
    tags: [],
    deleteAfter: null,
    uploadedBy: { keyId: "0".repeat(24), userId: null },
    title: null,
    artist: null,
    hasTranscript: false,
    peaks: null,
    fileType: "audio file",
    status: "completed",
    createdAt: new Date(1_780_000_000_000 - place * 60_000).toISOString(),
    updatedAt: new Date(1_780_000_000_000).toISOString(),
    __v: 2,
    filename: "",
    path: "https://stowage.example.com/file",
    size: 1_500_000,
    mimeType: "audio/mpeg",
    durationSeconds: 61,
  }));
