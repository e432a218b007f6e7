import { isFileEvent, type Stowage } from "../../src/client/stowage.ts";

/* What must not compile, and what must: `npm run check` reads this file, nothing runs it. */

export async function wrongFieldsDoNotCompile(stowage: Stowage): Promise<void> {
  // @ts-expect-error: users have no such field.
  await stowage.users.create({ email: "ada@example.com", password: "correct horse", role: "admin" });
  // @ts-expect-error: a password is required.
  await stowage.users.create({ email: "ada@example.com" });
  // @ts-expect-error: there is no such status.
  stowage.files.list({ status: "done" });
  // @ts-expect-error: there is no such filter.
  stowage.files.list({ owner: "ada" });
  // @ts-expect-error: there is no such type of event.
  stowage.events.follow({ type: "file.renamed" });
  // @ts-expect-error: a webhook has an address.
  await stowage.webhooks.create({ types: ["file.completed"] });
  const file = await stowage.files.get("0193477c0a5e2b7f4d1c8e90");
  // @ts-expect-error: metadata has no such field.
  file.sizeInBytes;
  // @ts-expect-error: a digest may be missing.
  file.sha256.length;
}

export async function eventsOfFilesTellMetadata(stowage: Stowage): Promise<number | undefined> {
  const event = await stowage.events.get("0193477c0a5e2b7f4d1c8e90");
  if (!isFileEvent(event)) return undefined;
  // @ts-expect-error: an event does not tell where the file is.
  event.data.path;
  // @ts-expect-error: nor what its tags are.
  event.data.audio?.tags;
  return event.data.size;
}

export async function answersAreTyped(stowage: Stowage): Promise<[number, string | null, number | null | undefined]> {
  const file = await stowage.files.get("0193477c0a5e2b7f4d1c8e90");
  return [file.size, file.sha256, file.audio?.durationSeconds];
}
