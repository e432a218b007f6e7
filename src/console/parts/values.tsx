import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { StoredFile } from "../../client/stowage.ts";
import { announce } from "./announce.tsx";
import { formatAge, STATUS_LABELS } from "./format.ts";

const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

const STATUS_CLASSES: Record<StoredFile["status"], string> = {
  pending: "busy",
  processing: "busy",
  completed: "good",
  failed: "bad",
};

export const StatusBadge = ({ status }: Pick<StoredFile, "status">) => (
  <span class={`badge ${STATUS_CLASSES[status]}`}>{STATUS_LABELS[status]}</span>
);

/** A moment in the reader's time zone and language; with `isRelative`, how long ago it was. */
export function Time({ at, isRelative = false }: { at: string; isRelative?: boolean }) {
  const date = new Date(at);
  return (
    <time dateTime={at} title={exact.format(date)}>
      {isRelative ? formatAge(date, Date.now()) : dateTime.format(date)}
    </time>
  );
}

/** Text with a button that copies it. */
export const Copyable = ({ text, label }: { text: string; label: string }) => (
  <>
    <code>{text}</code> <CopyButton text={text} label={label} />
  </>
);

interface CopyButtonProps {
  text: string;
  /** Names the text in the announcement and, without children, to screen readers: "Copy key". */
  label: string;
  children?: ComponentChildren;
}

/** A button that copies `text`. */
export function CopyButton({ text, label, children }: CopyButtonProps) {
  const [hasFailed, setFailed] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce(`Copied ${label}`);
      setFailed(false);
    } catch {
      setFailed(true);
    }
  };
  return (
    <>
      <button type="button" class="button small" onClick={copy} aria-label={children ? undefined : `Copy ${label}`}>
        {children ?? "Copy"}
      </button>
      {hasFailed && <span role="alert">Couldn't copy. Select the text and copy it manually.</span>}
    </>
  );
}
