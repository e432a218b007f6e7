import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Call, CopyCurl } from "./curl.tsx";
import { useFocusRecovery } from "./focus.ts";

let isFirst = true;

interface PageProps {
  title: string;
  /** A link to the list, above the title. */
  back?: ComponentChildren;
  actions?: ComponentChildren;
  /** The request behind the page, to copy as a curl command. */
  call?: Call | undefined;
  children: ComponentChildren;
}

/** A page of the console. After navigation its heading has the focus, so screen readers announce it. */
export function Page({ title, back, actions, call, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} – Stowage`;
  }, [title]);
  useEffect(() => {
    // The first page keeps the browser's own starting point.
    if (!isFirst) heading.current?.focus();
    isFirst = false;
  }, []);
  useFocusRecovery();
  return (
    <>
      {back && <p class="page-back">{back}</p>}
      <header class="page-header">
        <h1 ref={heading} dir="auto" tabIndex={-1}>
          {title}
        </h1>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
      {call && (
        <p>
          <CopyCurl call={call} />
        </p>
      )}
    </>
  );
}

/** The state of an empty list: why it is empty, and the next step. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
