import { useState } from "preact/hooks";
import type { StoredFile } from "../../client/stowage.ts";
import { announce } from "./announce.tsx";

const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const integer = new Intl.NumberFormat();
const oneDecimal = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** A status that is new in the API does not compile until it is here. */
const LOOKS: Record<StoredFile["status"], string> = {
  pending: "busy",
  processing: "busy",
  completed: "good",
  failed: "bad",
};

export const STATUSES = Object.keys(LOOKS);

/** The status of a file. */
export const StatusBadge = ({ status }: Pick<StoredFile, "status">) => (
  <span class={`badge ${LOOKS[status]}`}>{status}</span>
);

/** A moment, in the reader's zone and language. */
export function Time({ at }: { at: string }) {
  const date = new Date(at);
  return (
    <time dateTime={at} title={exact.format(date)}>
      {dateTime.format(date)}
    </time>
  );
}

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.95 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${oneDecimal.format(value)} ${UNITS[unit]}`;
}

export const formatCount = (count: number): string => integer.format(count);

/** Such as "1:02:07" or "0:04". */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const shown = parts[0] === 0 ? parts.slice(1) : parts;
  return shown.map((part, place) => (place === 0 ? String(part) : String(part).padStart(2, "0"))).join(":");
}

/** Copies `text`; `what` names it: "Copy key". */
export function CopyButton({ text, what }: { text: string; what: string }) {
  const [isRefused, setRefused] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce(`Copied ${what}.`);
      setRefused(false);
    } catch {
      setRefused(true);
    }
  };
  return (
    <>
      <button type="button" class="button small" onClick={copy} aria-label={`Copy ${what}`}>
        Copy
      </button>
      {isRefused && <span role="alert">The browser does not let this page copy: select it instead.</span>}
    </>
  );
}

/** A secret as lists show it: enough of it to tell it from others. */
export const mask = (secret: string): string => `${secret.slice(0, 12)}…${secret.slice(-4)}`;
