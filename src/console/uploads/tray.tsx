import { signal } from "@preact/signals";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { messageOf, RequestId } from "../parts/failure.tsx";
import { formatBytes, formatCount, formatDuration, StatusBadge } from "../parts/values.tsx";
import { href } from "../router.ts";
import { FileInput } from "./dropping.tsx";
import { cancel, goOn, retry } from "./queue.ts";
import { dismiss, type Progress, stateOf, type Upload, uploads } from "./upload.ts";

/** Where there is little room, the list below is what people came for. */
const isOpen = signal(matchMedia("(min-width: 44rem) and (min-height: 40rem)").matches);

/** Whoever is in what goes away is then at the next of its kind, or at the heading of the page. */
function useNextFocus<E extends HTMLElement>() {
  const element = useRef<E>(null);
  useLayoutEffect(
    () => () => {
      const { current } = element;
      if (!current?.contains(document.activeElement)) return;
      const next = current.nextElementSibling ?? current.previousElementSibling;
      const button = current.matches("li") && next?.querySelector<HTMLElement>("button, a");
      (button || document.querySelector("h1"))?.focus();
    },
    [],
  );
  return element;
}

/** All uploads of this page, and what became of them. It outlives the pages. */
export function Tray() {
  return uploads.value.length > 0 ? <Uploads /> : null;
}

function Uploads() {
  const section = useNextFocus<HTMLElement>();
  const toggle = useRef<HTMLButtonElement>(null);
  const listId = useId();
  const shown = uploads.value;
  const failed = shown.filter(({ file, progress }) => file && progress.value.state === "failed");
  const stored = shown.filter(({ progress }) => progress.value.state === "stored");
  /** The button that was pressed goes away. */
  const forAll = (some: Upload[], work: (upload: Upload) => void) => () => {
    toggle.current?.focus();
    some.forEach(work);
  };
  return (
    <section class="tray" aria-label="Uploads" ref={section}>
      <header>
        <button
          ref={toggle}
          type="button"
          class="button small"
          aria-expanded={isOpen.value}
          aria-controls={listId}
          onClick={() => {
            isOpen.value = !isOpen.value;
          }}
        >
          Uploads
        </button>
        <Sum shown={shown} />
        {failed.length > 1 && (
          <button type="button" class="button small" onClick={forAll(failed, retry)}>
            Retry all
          </button>
        )}
        {stored.length > 0 && (
          <button type="button" class="button small" onClick={forAll(stored, dismiss)}>
            Clear finished
          </button>
        )}
      </header>
      <ul id={listId} hidden={!isOpen.value}>
        {shown.map((upload) => (
          <Row key={upload.key} upload={upload} />
        ))}
      </ul>
    </section>
  );
}

const isProcessing = ({ file }: Progress) => file?.status === "pending" || file?.status === "processing";

/** How far all of them are, those that failed left out of the bytes. */
function Sum({ shown }: { shown: Upload[] }) {
  let [sentBytes, totalBytes, bytesPerSecond, done, processing, interrupted, failed] = [0, 0, 0, 0, 0, 0, 0];
  for (const { size, progress } of shown) {
    const { state, ...now } = progress.value;
    if (state === "stored") done++;
    if (isProcessing(progress.value)) processing++;
    if (state === "interrupted") interrupted++;
    if (state === "failed" || now.file?.status === "failed") failed++;
    if (state === "failed" || state === "cancelling") continue;
    sentBytes += now.sentBytes;
    totalBytes += size;
    if (state === "sending") bytesPerSecond += now.bytesPerSecond;
  }
  const isDone = sentBytes === totalBytes;
  return (
    <p class="sum">
      {formatCount(done)} of {formatCount(shown.length)} uploaded
      {Object.entries({ processing, interrupted, failed }).map(
        ([what, count]) => count > 0 && ` · ${formatCount(count)} ${what}`,
      )}
      {!isDone && ` · ${percent(sentBytes, totalBytes)}${pace(totalBytes - sentBytes, bytesPerSecond)}`}
    </p>
  );
}

/** 100 % is what is complete. */
const percent = (part: number, whole: number) => `${Math.floor((part / whole) * 100)} %`;
const pace = (bytes: number, perSecond: number) =>
  perSecond > 0 ? ` · ${formatBytes(perSecond)}/s · ${formatDuration(bytes / perSecond)} left` : "";

function describe(progress: Progress, size: number): string {
  const { state, sentBytes, bytesPerSecond, error } = progress;
  const part = `${formatBytes(sentBytes)} of ${formatBytes(size)}`;
  if (state === "sending" && sentBytes === size) return `${part} · being stored`;
  if (state === "sending") return part + pace(size - sentBytes, bytesPerSecond);
  if (state === "cancelling") return "Cancelling …";
  if (state === "interrupted") return `Interrupted at ${percent(sentBytes, size)} of ${formatBytes(size)}`;
  if (state === "waiting") return `${part} · ${error ? "goes on by itself" : "waiting"}`;
  return formatBytes(size) + (isProcessing(progress) ? " · being processed" : "");
}

/** The button that was pressed goes away; the one behind it stays. */
const focusNext = (button: Element) => (button.nextElementSibling as HTMLElement | null)?.focus();

function Row({ upload }: { upload: Upload }) {
  const { path: name, size, file, progress } = upload;
  const now = progress.value;
  const { state, error } = now;
  const row = useNextFocus<HTMLLIElement>();
  const canRetry = file && (state === "failed" || (state === "waiting" && error !== null));
  return (
    <li ref={row}>
      <bdi class="name">{now.file ? <a href={href(`/files/${now.file._id}`)}>{name}</a> : name}</bdi>
      {state === "stored" ? null : <progress aria-label={name} value={now.sentBytes} max={size || 1} />}
      <div class="actions">
        {now.file && <StatusBadge status={now.file.status} />}
        {canRetry && (
          <button
            type="button"
            class="button small"
            onClick={({ currentTarget }) => {
              retry(upload);
              focusNext(currentTarget);
            }}
          >
            Retry<span class="visually-hidden"> {name}</span>
          </button>
        )}
        {state === "interrupted" && (
          <FileInput
            label="Choose the file"
            of={name}
            class="small"
            onFiles={([chosen], button) => {
              if (!chosen) return;
              goOn(upload, chosen);
              if (stateOf(upload) !== "interrupted") focusNext(button);
            }}
          />
        )}
        {state !== "stored" && (
          <button
            type="button"
            class="button small"
            aria-disabled={state === "cancelling"}
            onClick={() => state !== "cancelling" && cancel(upload)}
          >
            {state === "interrupted" || state === "failed" ? "Remove" : "Cancel"}
            <span class="visually-hidden"> {name}</span>
          </button>
        )}
      </div>
      <p class="quiet">{describe(now, size)}</p>
      {error !== null && (
        <>
          <p class={state === "waiting" ? "quiet" : "problem"}>{messageOf(error)}</p>
          <RequestId of={error} />
        </>
      )}
    </li>
  );
}
