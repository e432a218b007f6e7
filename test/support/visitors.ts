import { expect } from "vitest";
import { type Answer, call, dataOf, form, newKey, pausedStream, type Team } from "./harness.ts";
import { BOUNDARY, END } from "./raw-form.ts";
import { ask, create as createUpload, idOf, locationOf, patch } from "./tus.ts";

/* The credentials of a visitor of a web page: a public key or an upload token; and the two ways to upload with it. */

export const UPLOADS = "/docs/v1/uploads";
export const bytesOf = (text: string) => new TextEncoder().encode(text);

export interface Key {
  id: string;
  token: string;
}

export async function newPageKey(team: Team, limits?: object): Promise<Key> {
  const key = await newKey(team, { isPublic: true, ...(limits && { limits }) });
  expect(key.limits).toEqual(limits ?? null);
  return { id: key.id, token: key.key };
}

/** Creates an upload token of a new key, whose id it returns. By default it can upload many files. */
export async function newUploadToken(team: Team, fields: object = {}): Promise<Key & { tokenId: string }> {
  const issuer = await newKey(team, { scopes: ["files:upload"] });
  const { _id: tokenId, token } = await issueToken({ ...team, token: issuer.key }, { maxFiles: 100, ...fields });
  return { id: issuer.id, token, tokenId };
}

/** Creates an upload token of the key or session that calls. @returns the data of the response */
export const issueToken = ({ call, token }: Pick<Team, "call" | "token">, fields: object = {}) =>
  dataOf(call("POST", "/docs/v1/uploadtokens", { json: fields, token }));

/** One way to upload. */
export interface Transport {
  send(key: Key, text: string, worker?: { call: typeof call }): Promise<Answer>;
  /** Sends an upload that fails. */
  fail(key: Key): Promise<unknown>;
  /** Sends an upload, and runs `whilePaused` after its first bytes. */
  pause(key: Key, whilePaused: () => Promise<unknown>): Promise<Answer>;
}

export const header = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n`;
export const formOptions = { headers: { "Content-Type": `multipart/form-data; boundary=${BOUNDARY}` } };

export const formUpload: Transport = {
  send: ({ token }, text, worker = { call }) => worker.call("POST", UPLOADS, { token, body: form("a.txt", text) }),
  fail: ({ token }) => call("POST", UPLOADS, { token, body: `${header}text without an end`, ...formOptions }),
  pause({ token }, whilePaused) {
    const body = pausedStream([`${header}first`, `second\r\n${END}`], whilePaused);
    return call("POST", UPLOADS, { token, body, ...formOptions });
  },
};

export const resumableUpload: Transport = {
  async send({ token }, text, worker = { call }) {
    const bytes = bytesOf(text);
    const created = await createUpload(worker.call, bytes.length, undefined, { token });
    if (created.status !== 201) return created;
    const answer = await patch(worker.call, locationOf(created), 0, bytes, { token });
    return { ...answer, id: idOf(answer) };
  },
  async fail({ token }) {
    await ask(call, "DELETE", locationOf(await createUpload(call, 3, undefined, { token })), {}, { token });
  },
  async pause({ token }, whilePaused) {
    const path = locationOf(await createUpload(call, 11, undefined, { token }));
    await patch(call, path, 0, bytesOf("first"), { token });
    await whilePaused();
    return patch(call, path, 5, bytesOf("second"), { token });
  },
};
