import type { ComponentChildren, TargetedClipboardEvent } from "preact";

/** A name in its stem and its extension, which is empty if there is none. */
export function splitName(name: string): [string, string] {
  const dot = name.lastIndexOf(".");
  return dot > 0 && /^\.\w{1,5}$/.test(name.slice(dot)) ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
}

/** A long name and its last words, of 6 to 14 characters. */
const BY_WORDS = /^(.{12,}?[\s._-])([^\s._-].{5,13})$/su;
/** A long name and its last 12 characters, which don't begin with an accent. */
const BY_LENGTH = /^(.{12,})(\P{M}.{11,})$/su;
/** A name that isn't short, and its extension. */
const BY_EXTENSION = /^(.{6,})(\.\w{1,5})$/su;
/** Where directions are mixed, a cut in the middle of words would change their order. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff]/;

/** A name in two parts, the last of which stays visible if its place is too narrow. */
export function splitEnd(name: string): [string, string] {
  const isMixed = RIGHT_TO_LEFT.test(name);
  const parts = (!isMixed && (BY_WORDS.exec(name) ?? BY_LENGTH.exec(name))) || BY_EXTENSION.exec(name);
  return parts ? [parts[1] ?? "", parts[2] ?? ""] : [name, ""];
}

interface FileNameProps {
  name: string;
  /** Renders a part of the name. */
  show?: (text: string) => ComponentChildren;
}

/** The name of a file in one line, which gives way in its middle, because versions and takes differ at the end. */
export function FileName({ name, show = (text) => text }: FileNameProps) {
  const [start, end] = splitEnd(name);
  // Browsers would copy the two parts as two lines.
  const copyName = (event: TargetedClipboardEvent<HTMLElement>) => {
    if (String(getSelection()).replaceAll("\n", "").trim() !== name) return;
    event.clipboardData?.setData("text/plain", name);
    event.preventDefault();
  };
  return (
    <bdi class="name" title={name} onCopy={copyName}>
      <span>{show(start)}</span>
      {end && <span>{show(end)}</span>}
    </bdi>
  );
}
