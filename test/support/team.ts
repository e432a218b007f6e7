import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { inject } from "vitest";
import { Stowage } from "../../src/client/index.ts";

/*
 * Teams for tests that use the client library against the shared server.
 */

export const url = inject("url");
const shared = { url, operatorToken: inject("operatorToken") };

export interface Team {
  key: string;
  teamId: string;
  stowage: Stowage;
}

/** Creates a team for one test, by the operator token; on the shared server unless another one is given. */
export async function newTeam({ url, operatorToken } = shared): Promise<Team> {
  const operator = new Stowage({ url, key: operatorToken });
  const { key, teamId } = await operator.keys.create({ name: "test" });
  return { key, teamId, stowage: new Stowage({ url, key }) };
}

/** Uploads a file, and waits until it is processed. @returns its id */
export async function upload({ stowage }: Team, name: string, content: BlobPart): Promise<string> {
  const { id } = await stowage.files.upload(new File([content], name));
  await stowage.files.waitUntilProcessed(id);
  return id;
}

/** Random bytes that start with a zero, because random bytes might look like the start of an MP3. */
export const bytesOf = (size: number) => Buffer.concat([Buffer.alloc(1), randomBytes(size - 1)]);

/** A file of test/audio. */
export const sample = (name: string) => readFileSync(join(import.meta.dirname, "../audio", name));

export async function collect<T>(items: AsyncIterable<T>, count = Number.POSITIVE_INFINITY): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
    if (found.length === count) break;
  }
  return found;
}
