import {
  type CallOptions,
  type FileStatus,
  isFileEvent,
  type Stowage,
  type StowageOptions,
  type UploadOptions,
  type VersionOptions,
  type WebhookMessage,
} from "../../src/client/index.ts";

/* `npm run check` compiles this file. Nothing runs it. */

export async function wrongFieldsDoNotCompile(stowage: Stowage): Promise<void> {
  // @ts-expect-error: the role does not exist.
  await stowage.users.create({ email: "ada@example.com", password: "correct horse", role: "owner" });
  // @ts-expect-error: an email is required.
  await stowage.users.create({ password: "correct horse" });
  // @ts-expect-error: the options follow the parameters.
  await stowage.files.delete("0193477c0a5e2b7f4d1c8e90", { signal: AbortSignal.timeout(1) });
  // @ts-expect-error: an invitation that is sent has no URL.
  (await stowage.users.invite("0193477bf1c07e5d9a0b4c28", { email: true })).url;
  // @ts-expect-error: the status does not exist.
  stowage.files.list({ status: "done" });
  // @ts-expect-error: the filter does not exist.
  stowage.files.list({ owner: "ada" });
  // @ts-expect-error: the event type does not exist.
  stowage.events.follow({ type: "file.renamed" });
  // @ts-expect-error: the URL is required.
  await stowage.webhooks.create({ types: ["file.completed"] });
  // @ts-expect-error: the action needs a folder.
  await stowage.files.batch({ action: "move", ids: ["0193477c0a5e2b7f4d1c8e90"] });
  // @ts-expect-error: files don't have this property.
  await stowage.files.upload(new Blob(), { properties: { owner: "ada" } });
  const found = await stowage.files.searchTranscripts("night shift");
  found.isComplete satisfies boolean;
  found.items[0]?.matches[0]?.turns[0]?.marks satisfies [number, number][] | undefined;
  // @ts-expect-error: only a search may be incomplete.
  (await stowage.files.list()).isComplete;
  const file = await stowage.files.get("0193477c0a5e2b7f4d1c8e90");
  // @ts-expect-error: metadata doesn't have this field.
  file.sizeInBytes;
  // @ts-expect-error: the digest may be null.
  file.sha256.length;
}

export async function pagesNeedTheirPlace(stowage: Stowage): Promise<void> {
  const list = stowage.files.list();
  const { next } = await list;
  // @ts-expect-error: after the last page, there is none.
  await list.page(next);
  // @ts-expect-error: the first page is the list itself.
  await list.page();
}

export const leftOut = (stowage: Stowage): Promise<{ url: string }> => stowage.users.invite("1", { email: undefined });

/** The optional fields that do not take `undefined`, which programs with `exactOptionalPropertyTypes` would have to leave out. */
type Strict<T> = T extends object
  ? {
      [K in keyof T]-?: Partial<Pick<T, K>> extends Pick<T, K> ? (undefined extends Required<T>[K] ? never : K) : never;
    }[keyof T]
  : never;
type Loose<T> = [Strict<T>] extends [never] ? true : Strict<T>;
type Filters = {
  [K in keyof Stowage]: Stowage[K] extends { list: (filters?: infer F) => unknown } ? F : never;
}[keyof Stowage];
export const optionalFieldsTakeUndefined: true[] = [
  // @ts-expect-error: this one does not.
  true satisfies Loose<{ strict?: number }>,
  true satisfies Loose<StowageOptions>,
  true satisfies Loose<UploadOptions>,
  true satisfies Loose<CallOptions>,
  true satisfies Loose<VersionOptions>,
  true satisfies Loose<Filters>,
  true satisfies Loose<NonNullable<Parameters<Stowage["files"]["download"]>[1]>>,
  true satisfies Loose<NonNullable<Parameters<ReturnType<Stowage["files"]["list"]>["toArray"]>[0]>>,
];

export async function theStatusOfAFileTellsItsFailure(stowage: Stowage): Promise<string[]> {
  const [file, state] = [await stowage.files.get("1"), await stowage.files.waitUntilProcessed<FileStatus>("1")];
  const event = await stowage.events.get("1");
  const none: null[] = [];
  for (const one of [file, state, ...(isFileEvent(event) ? [event.data] : [])]) {
    if (one.status === "failed") return [one.failure.code];
    none.push(one.failure);
  }
  // @ts-expect-error: a token that may only read the status gets no more.
  return [state.name];
}

export async function eventsOfFilesTellMetadata(stowage: Stowage): Promise<number | undefined> {
  const event = await stowage.events.get("0193477c0a5e2b7f4d1c8e90");
  if (!isFileEvent(event)) return undefined;
  // @ts-expect-error: events contain no URLs.
  event.data.path;
  // @ts-expect-error: events contain no tags.
  event.data.audio?.tags;
  return event.data.size;
}

export async function theTypeOfAnEventTellsItsData(stowage: Stowage): Promise<(string | number)[]> {
  const events = await stowage.events.list({ limit: 1 });
  return events.items.map((event) => {
    if (event.type === "file.completed") return event.data.size;
    // @ts-expect-error: a link has no size.
    if (event.type === "link.created") return event.data.size ?? event.data.fileId;
    // @ts-expect-error: not every event is about a file.
    return event.data.size ?? event.data._id;
  });
}

export function theTypeOfAMessageTellsItsData(message: WebhookMessage): string {
  switch (message.type) {
    case "file.failed":
      return message.data.failure?.code ?? "";
    case "link.revoked":
      return message.data.fileId;
    default:
      return message.data._id;
  }
}

export function theTypeOfAMessageTellsTheKindOfItsSubject(message: WebhookMessage): "file" | "link" | undefined {
  if (message.type === "file.completed" || message.type === "link.created") return message.subject.kind;
  // @ts-expect-error: other messages are about other kinds.
  return message.subject.kind;
}

export async function responsesAreTyped(stowage: Stowage): Promise<[number, string | null, number | null | undefined]> {
  const file = await stowage.files.get("0193477c0a5e2b7f4d1c8e90");
  return [file.size, file.sha256, file.audio?.durationSeconds];
}
