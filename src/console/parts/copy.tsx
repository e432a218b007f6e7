import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { announce } from "../framework/announce.tsx";
import { tabSignal } from "../framework/signals.ts";
import { Icon } from "./icon.tsx";

/** How many texts are copied. */
export const copies = tabSignal(0);

/**
 * Copies a text, and announces whether it worked.
 * @param label names the text: "link"
 * @returns whether it is copied
 */
export async function copy(text: string, label: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    announce(`Copied ${label}`);
    copies.value++;
    return true;
  } catch {
    announce(`Couldn't copy ${label}. Your browser denies it.`);
    return false;
  }
}

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
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), COPIED_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const onClick = async () => {
    if (!(await copy(text, label))) return;
    setCopied(true);
    onCopied?.();
  };
  const name = title ?? `Copy ${label}`;
  const isText = typeof children === "string";
  return (
    <button
      type="button"
      class={`button ${className}`}
      onClick={onClick}
      aria-label={isText ? undefined : name}
      title={isText ? undefined : name}
    >
      {isText ? children : isCopied ? <Icon name="check" /> : (children ?? <Icon name="copy" />)}
    </button>
  );
}
