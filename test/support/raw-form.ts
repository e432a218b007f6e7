import { joinBytes } from "./bytes.ts";
import type { Answer, Team } from "./harness.ts";

/* multipart/form-data built by hand, so that tests can malform it. */

export const BOUNDARY = "----canary7MA4YWxk";
export const TYPE = `multipart/form-data; boundary=${BOUNDARY}`;
export const part = (headers: string, content: string | Uint8Array) =>
  joinBytes(`--${BOUNDARY}\r\n${headers}\r\n\r\n`, content, "\r\n");
export const END = `--${BOUNDARY}--\r\n`;

export const fileForm = (content: string | Uint8Array, parameters = 'filename="a.mp3"', type = "audio/mpeg") =>
  joinBytes(part(`Content-Disposition: form-data; name="file"; ${parameters}\r\nContent-Type: ${type}`, content), END);

/** Uploads the bytes of a form unchanged. */
export const sendForm = (
  team: Team,
  body: Uint8Array<ArrayBuffer>,
  type = TYPE,
  headers: Record<string, string> = {},
): Promise<Answer> => team.call("POST", "/docs/v1/uploads", { body, headers: { "Content-Type": type, ...headers } });
