import { useSignal } from "@preact/signals";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { isFinal } from "../../client/upload-state.ts";
import { FileStatus } from "../files/file-status.tsx";
import { messageOf } from "../framework/errors.ts";
import { href } from "../framework/router.ts";
import { RequestId } from "../parts/failure.tsx";
import { countOf } from "../parts/format.ts";
import { Icon } from "../parts/icon.tsx";
import { chooseFiles } from "./choose.ts";
import { resume } from "./queue.ts";
import { bytesOf, describe, isProcessing, isSettled, selectShown, summarize, waitsForConnection } from "./summary.ts";
import { cancel, retry, revision, type Upload, uploads } from "./upload.ts";

/** More rows than this make the page slow. */
const MAX_ROWS = 100;

/** On a small screen the list of files needs the room. */
const hasRoom = matchMedia("(min-width: 44rem) and (min-height: 40rem)");

/** If the focused element is removed, moves the focus to its neighbor, or to the page's heading. */
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

/** The card of uploads in the corner of every page. */
export const UploadCard = () => (uploads.value.length > 0 ? <Uploads /> : null);

function Uploads() {
  /** The user's choice. If null, the card is open while something is in progress. */
  const isOpenChosen = useSignal<boolean | null>(null);
  const section = useNextFocus<HTMLElement>();
  const toggle = useRef<HTMLButtonElement>(null);
  const listId = useId();
  revision.value;
  const list = uploads.value;
  const failed = list.filter((upload) => upload.file && upload.state === "failed" && !isFinal(upload));
  const stored = list.filter(({ state }) => state === "stored");
  const isOpen = isOpenChosen.value ?? (hasRoom.matches && !list.every(isSettled));
  const shown = isOpen ? selectShown(list, MAX_ROWS) : [];
  const { sentBytes, totalBytes } = bytesOf(list);
  // A row that moves loses the focus.
  const focused = document.activeElement;
  useLayoutEffect(() => {
    if (focused !== document.activeElement && section.current?.contains(focused)) (focused as HTMLElement).focus();
  });
  /** The pressed button disappears, so the focus moves first. */
  const withFocus = (work: () => void) => () => {
    toggle.current?.focus();
    work();
  };
  return (
    <section class="uploads" aria-label="Uploads" ref={section}>
      <header>
        <button
          ref={toggle}
          type="button"
          class="button ghost chevron"
          aria-expanded={isOpen}
          aria-controls={listId}
          onClick={() => {
            isOpenChosen.value = !isOpen;
          }}
        >
          Uploads <Icon name="chevron" />
        </button>
        {failed.length > 1 && (
          <button type="button" class="button ghost" onClick={withFocus(() => retry(failed))}>
            Retry all
          </button>
        )}
        {stored.length > 0 && (
          <button type="button" class="button ghost" onClick={withFocus(() => cancel(stored))}>
            Clear finished
          </button>
        )}
        <p class="uploads-summary">{summarize(list)}</p>
        {sentBytes < totalBytes && <progress aria-hidden="true" value={sentBytes} max={totalBytes} />}
      </header>
      <ul id={listId} hidden={!isOpen}>
        {shown.map((upload) => (
          <Row key={upload.key} upload={upload} />
        ))}
        {shown.length < list.length && <li class="quiet">and {countOf(list.length - shown.length, "more file")}</li>}
      </ul>
    </section>
  );
}

/** Moves the focus to the next button, because the pressed one disappears. */
const focusNext = (button: Element) => (button.nextElementSibling as HTMLElement | null)?.focus();

function Row({ upload }: { upload: Upload }) {
  const { path, name, size, file, state, sentBytes, error, stored } = upload;
  const row = useNextFocus<HTMLLIElement>();
  const canRetry = file && ((state === "failed" && !isFinal(upload)) || (state === "waiting" && error !== null));
  return (
    <li ref={row} data-settled={isSettled(upload)}>
      <bdi class="uploads-name">{stored ? <a href={href(`/files/${stored._id}`)}>{path}</a> : path}</bdi>
      {state === "stored" ? null : <progress aria-label={path} value={sentBytes} max={size || 1} />}
      <div class="actions">
        {stored && !isProcessing(upload) && <FileStatus file={{ ...stored, name }} />}
        {canRetry && (
          <button
            type="button"
            class="button ghost"
            onClick={({ currentTarget }) => {
              retry([upload]);
              focusNext(currentTarget);
            }}
          >
            Retry<span class="visually-hidden"> {path}</span>
          </button>
        )}
        {state === "interrupted" && (
          <button
            type="button"
            class="button"
            onClick={({ currentTarget }) =>
              chooseFiles({}, ([chosen]) => {
                if (!chosen) return;
                resume(upload, chosen);
                if (upload.state !== "interrupted") focusNext(currentTarget);
              })
            }
          >
            Select file to resume<span class="visually-hidden"> {path}</span>
          </button>
        )}
        {state !== "stored" && (
          <button
            type="button"
            class="button ghost"
            aria-disabled={state === "canceling"}
            onClick={() => state !== "canceling" && cancel([upload])}
          >
            {state === "interrupted" || state === "failed" ? "Remove" : "Cancel"}
            <span class="visually-hidden"> {path}</span>
          </button>
        )}
      </div>
      <p class="quiet">{describe(upload)}</p>
      {error !== null && !waitsForConnection(upload) && (
        <>
          <p class={state === "waiting" ? "quiet" : "problem"}>{messageOf(error)}</p>
          <RequestId of={error} />
        </>
      )}
    </li>
  );
}
