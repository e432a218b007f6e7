import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { announce } from "../framework/announce.tsx";
import { tabSignal } from "../framework/signals.ts";
import { Icon } from "./icon.tsx";

/** How many texts are copied. */
export const copies = tabSignal(0);

/**
 * Copies a text, and announces whether it worked.
 * @param text a promise of it if it comes from a response that is not there yet. If that fails, this does, too.
 * @param label names the text: "link"
 * @returns whether it is copied
 */
export async function copy(text: string | Promise<string>, label: string): Promise<boolean> {
  try {
    // Safari allows no write after a response, so it gets the promise. A browser that takes none waits for it.
    try {
      await navigator.clipboard.write([new ClipboardItem({ "text/plain": text })]);
    } catch {
      await navigator.clipboard.writeText(await text);
    }
    announce(`Copied ${label}`);
    copies.value++;
    return true;
  } catch {
    await text;
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
  const isText = typeof children === "string";
  const name = isText ? undefined : (title ?? `Copy ${label}`);
  return (
    <button type="button" class={`button ${className}`} onClick={onClick} aria-label={name} title={name}>
      {isText || (children && !isCopied) ? children : <Icon name={isCopied ? "check" : "copy"} />}
    </button>
  );
}
