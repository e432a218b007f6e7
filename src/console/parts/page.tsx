import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useKeptFocus } from "./focus.ts";

let isFirst = true;

/** A page of the console. Whoever comes to it by a link is at its heading, with eyes and with a screen reader. */
export function Page({
  title,
  actions,
  children,
}: {
  title: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} – Stowage`;
  }, [title]);
  useEffect(() => {
    // The browser's own beginning is the right place on a page that was just loaded.
    if (!isFirst) heading.current?.focus();
    isFirst = false;
  }, []);
  useKeptFocus();
  return (
    <>
      <header class="page-header">
        <h1 ref={heading} dir="auto" tabIndex={-1}>
          {title}
        </h1>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

/** What a list says that has nothing: why, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
