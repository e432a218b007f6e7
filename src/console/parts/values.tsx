import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { StoredFile } from "../../client/stowage.ts";
import { announce } from "./announce.tsx";
import { formatAge, formatDayHeading, formatExact, formatMoment, STATUS_LABELS } from "./format.ts";
import { Icon } from "./icon.tsx";

const STATUS_CLASSES: Record<StoredFile["status"], string> = {
  pending: "busy",
  processing: "busy",
  completed: "good",
  failed: "bad",
};

export const StatusBadge = ({ status }: Pick<StoredFile, "status">) => (
  <span class={`badge ${STATUS_CLASSES[status]}`}>{STATUS_LABELS[status]}</span>
);

const TICK_MILLISECONDS = 20_000;
const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, TICK_MILLISECONDS);

interface TimeProps {
  at: string;
  /** Shows how long ago it was, if that is at most `maxDays`. */
  isRelative?: boolean;
  maxDays?: number;
}

/** A moment in the reader's time zone. */
export function Time({ at, isRelative = false, maxDays }: TimeProps) {
  const date = new Date(at);
  return (
    <time dateTime={at} title={formatExact(date)}>
      {isRelative ? formatAge(date, Math.max(now.value, Date.now()), maxDays) : formatMoment(date)}
    </time>
  );
}

/** The day of a moment, as a heading. */
export const Day = ({ at }: { at: string }) => <>{formatDayHeading(new Date(at), Math.max(now.value, Date.now()))}</>;

/** Text with a button that copies it. */
export const Copyable = ({ text, label }: { text: string; label: string }) => (
  <span class="copyable">
    <code>{text}</code> <CopyButton text={text} label={label} />
  </span>
);

const COPIED_MILLISECONDS = 1500;

interface CopyButtonProps {
  text: string;
  /** Names the text in the announcement and, without a title, to screen readers: "Copy key". */
  label: string;
  title?: string;
  class?: string;
  onCopied?: () => void;
  children?: ComponentChildren;
}

/** A button that copies `text`. By default it is an icon. */
export function CopyButton({ text, label, title, class: className = "ghost", onCopied, children }: CopyButtonProps) {
  const [state, setState] = useState<"copied" | "failed" | null>(null);
  useEffect(() => {
    if (state !== "copied") return;
    const timer = setTimeout(() => setState(null), COPIED_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce(`Copied ${label}`);
      setState("copied");
      onCopied?.();
    } catch {
      setState("failed");
    }
  };
  const name = title ?? `Copy ${label}`;
  const isText = typeof children === "string";
  return (
    <>
      <button
        type="button"
        class={`button ${className}`}
        onClick={copy}
        aria-label={isText ? undefined : name}
        title={isText ? undefined : name}
      >
        {isText ? children : state === "copied" ? <Icon name="check" /> : (children ?? <Icon name="copy" />)}
      </button>
      {state === "failed" && <span role="alert">Couldn't copy. Select the text and copy it manually.</span>}
    </>
  );
}

/** Whether a text has every word of a search, in any order and case. */
export const hasWords = (text: string, search: string): boolean =>
  wordsOf(search).every((word) => text.toLowerCase().includes(word));

const wordsOf = (search: string) => search.toLowerCase().split(/\s+/).filter(Boolean);

/** A text with the words of a search that it has. */
export function Marked({ text, search }: { text: string; search: string }) {
  const escaped = wordsOf(search).map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  if (escaped.length === 0) return <>{text}</>;
  // Each second part is a match.
  const parts = text.split(new RegExp(`(${escaped.join("|")})`, "iu"));
  return <>{parts.map((part, place) => (place % 2 === 1 ? <mark key={place}>{part}</mark> : part))}</>;
}
