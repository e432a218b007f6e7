import { expect } from "vitest";
import { describeApi } from "../../src/http/openapi.ts";
import * as service from "../../src/service.ts";
import { type Document, Validation } from "./validation.ts";

export const document = describeApi(service) as unknown as Document;
const validation = new Validation(document);

export const compile = (schema: object) => validation.compile(schema);

/** Fails if the document does not describe the body of a message to a webhook. */
export function expectDocumentedMessage(body: string): void {
  const schema = compile({ $ref: "#/components/schemas/WebhookMessage" });
  const result = schema.safeParse(JSON.parse(body));
  expect(result.error?.issues ?? [], "the message differs from the OpenAPI document").toEqual([]);
}

/** Finds the documented route of a request. */
export const routeOf = (method: string, path: string) => validation.routeOf(method, path);

/** Fails if the document does not describe the response: its status, media type, body, and the code of an error. */
export function expectDocumented(method: string, url: URL, { status, headers }: Response, text: string): void {
  const route = validation.routeOf(method, url.pathname);
  if (!route) return;
  validation.expectDescribed(route, { status, text });
  validation.expectDescribedCursor(route, headers.get("Link"));
}
