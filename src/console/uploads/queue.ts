import { computed, effect } from "@preact/signals";
import { BrowserStore } from "../../client/browser-store.ts";
import { type UploadPage, UploadRunner } from "../../client/upload-runner.ts";
import { isStored, type UploadState, type Uploads } from "../../client/upload-state.ts";
import { announce } from "../framework/announce.tsx";
import { UserError } from "../framework/errors.ts";
import { reconnects } from "../framework/live.ts";
import { call, isExpired, session } from "../framework/session.ts";
import { countOf } from "../parts/format.ts";
import { fetchProcessing } from "./processing.ts";
import { measureProgress } from "./speed.ts";
import {
  announceResult,
  cancel,
  change,
  type Details,
  list,
  markChanged,
  retry,
  sendingCount,
  show,
  type Upload,
  unfinishedUploads,
} from "./upload.ts";

const DATABASE = "stowage";
/** More files than this at once would take more memory than a phone has. */
const MAX_ADDED_FILES = 10_000;

const isSameFile = (file: File, { size, details }: Upload) =>
  file.size === size && file.lastModified === details?.lastModified;

/** Sends the uploads of a user. client/upload-state.ts says what happens to them. */
function createRunner(owner: string): UploadRunner<Details> {
  const page: UploadPage<Details> = {
    places: () => [owner],
    placeOf: () => owner,
    upload: async ({ name, details }, file, options) => {
      const folder = details?.folder && { properties: { folder: details.folder } };
      return (await call(({ files }) => files.upload(file, { ...options, name, ...folder }))).id;
    },
    cancel: (_, url) => call(({ unfinishedUploads }) => unfinishedUploads.cancel(url)),
    // It resumes when the same user signs in again.
    isTokenRenewed: () => true,
    onProgress: (item) => measureProgress(runner, show(runner, owner, item)),
    onChange: (before) => followChange(runner, owner, before),
  };
  const runner = new UploadRunner<Details>(DATABASE, { isForm: false }, page);
  return runner;
}

/** Shows what has changed, and announces how uploads have ended. */
function followChange(runner: UploadRunner<Details>, owner: string, before: Uploads<Details>): void {
  const { items } = runner.uploads;
  const changed: [upload: Upload, earlier: UploadState | undefined][] = [];
  for (const item of items.values()) {
    const earlier = before.items.get(item.key);
    if (item !== earlier) changed.push([show(runner, owner, item), earlier?.state]);
  }
  list([...before.items.keys()].filter((key) => !items.has(key)));
  sendingCount.value = [...runners.values()].flatMap(({ items }) => items).filter(({ runs }) => runs === "send").length;
  for (const [upload, earlier] of changed) {
    const { state, id = "", name, size } = upload;
    if (state === earlier) continue;
    if (state === "failed" || (state === "interrupted" && earlier)) announceResult(upload);
    if (!isStored(upload)) continue;
    if (earlier === "canceling") announce(`${name} had already finished uploading`);
    change(upload, { sentBytes: size, stored: { _id: id, status: "pending", failure: null } });
    announceResult(upload);
    void fetchProcessing(upload);
  }
  markChanged();
}

const runners = new Map<string, UploadRunner<Details>>();

/** The runner of the signed-in user. */
function current(): UploadRunner<Details> | undefined {
  return runners.get(session.peek()?.team?.owner ?? "");
}

export interface ChosenFile {
  file: File;
  /** The path within the chosen folder. */
  path: string;
  folder: string;
}

/** Starts to upload files, and resumes those that were interrupted. */
export function addFiles(chosen: ChosenFile[]): void {
  if (chosen.length > MAX_ADDED_FILES)
    announce(`Only the first ${countOf(MAX_ADDED_FILES, "file")} were added. Add the others afterward.`);
  const added = chosen.slice(0, MAX_ADDED_FILES).map(({ file, path, folder }) => {
    const { name, size, lastModified } = file;
    return { file, item: { name, source: `${path} ${size} ${lastModified}`, details: { path, folder, lastModified } } };
  });
  current()?.add(added);
}

/** Resumes an interrupted upload with the file that the user selected. */
export function resume(upload: Upload, file: File): void {
  if (isSameFile(file, upload)) {
    upload.runner.setFile(upload.key, file);
    retry([upload]);
  } else {
    upload.error = new UserError("That isn't the same file. Select the original to resume, or start over.");
    markChanged();
  }
}

/** Deletes unfinished uploads from this browser. Ending the session cancels them on the service. */
export function discardUnfinished(): void {
  current()?.send({ type: "set", isReady: false });
  cancel(unfinishedUploads());
}

/** Starts the queue, which resumes saved uploads for each user who signs in: of a closed tab, or of this tab before its reload. */
export function startQueue(): void {
  // Deletes the expired records of all users, even without a sign-in.
  void new BrowserStore(DATABASE).list();
  const owner = computed(() => (isExpired.value ? undefined : session.value?.team?.owner));
  effect(() => {
    const ready = owner.value;
    if (ready !== undefined && !runners.has(ready)) {
      const runner = createRunner(ready);
      runners.set(ready, runner);
      runner.send({ type: "open" });
    }
    for (const [one, runner] of runners) runner.send({ type: "set", isReady: one === ready });
  });
  const wake = () => {
    if (!document.hidden) current()?.send({ type: "wake" });
  };
  document.addEventListener("visibilitychange", wake);
  addEventListener("online", wake);
  effect(() => {
    if (reconnects.value > 0) wake();
  });
  addEventListener("beforeunload", (event) => sendingCount.peek() > 0 && event.preventDefault());
}
