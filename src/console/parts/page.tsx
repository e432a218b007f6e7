import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

let isFirst = true;

interface PageProps {
  title: string;
  /** Edits the title, which is then a button. */
  onEdit?: (() => void) | undefined;
  /** Stands in place of the title while it is edited. */
  heading?: ComponentChildren;
  /** The way to this page, above the title. */
  back?: ComponentChildren;
  /** Facts below the title. */
  subtitle?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** A page of the console. After navigation its heading has the focus, so screen readers announce it. */
export function Page(props: PageProps) {
  const { title, onEdit, heading: edited, back, subtitle, actions, children } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} – Stowage`;
  }, [title]);
  useEffect(() => {
    // The first page keeps the browser's own starting point, and a list the row that the user came from.
    const isInside = heading.current?.closest(".page")?.contains(document.activeElement);
    if (!isFirst && !isInside) heading.current?.focus();
    isFirst = false;
  }, []);
  // After an edit, the focus returns to the title.
  useEffect(() => (edited ? () => heading.current?.focus() : undefined), [Boolean(edited)]);
  return (
    <div class="page">
      {back}
      <header class="page-header">
        <div class="page-title">
          <h1 ref={heading} dir="auto" tabIndex={-1} class={edited ? "visually-hidden" : ""}>
            {onEdit && !edited ? (
              <button type="button" class="page-rename" title="Rename" onClick={onEdit}>
                {title}
              </button>
            ) : (
              title
            )}
          </h1>
          {edited}
          {subtitle && <div class="quiet">{subtitle}</div>}
        </div>
        <div class="actions">{actions}</div>
      </header>
      {children}
    </div>
  );
}

/** The frame of a page without a session. */
export const Entrance = ({ children }: { children: ComponentChildren }) => (
  <main class="sign-in" id="content" tabIndex={-1}>
    <p class="brand">
      <img src="/assets/icon.svg" alt="" width="36" height="36" />
      <strong>Stowage</strong>
    </p>
    <div class="card">{children}</div>
  </main>
);

interface CrumbsProps {
  /** The pages above this one, from the top. */
  links: { href: string; label: string }[];
}

/** The way from the top to the page. */
export const Breadcrumbs = ({ links }: CrumbsProps) => (
  <nav class="breadcrumbs" aria-label="Breadcrumbs">
    <ol>
      {links.map(({ href, label }) => (
        <li key={href}>
          <a href={href}>
            <bdi>{label}</bdi>
          </a>
        </li>
      ))}
    </ol>
  </nav>
);

interface EmptyProps {
  title: string;
  hasLogo?: boolean;
  children?: ComponentChildren;
}

/** The state of an empty list: why it is empty, and the next step. */
export function Empty({ title, hasLogo, children }: EmptyProps) {
  return (
    <div class="empty">
      {hasLogo && (
        <svg class="logo" viewBox="6 4 20 24" aria-hidden="true">
          <path d="M8 14v4M13 10v12M18 6.500v19M23 12v8" />
        </svg>
      )}
      <h2>{title}</h2>
      {children}
    </div>
  );
}

interface SkeletonProps {
  rows?: number;
  /** The height of the first row, if something larger will be above the others, such as a player. */
  first?: string;
}

/** Stands where rows will be. It appears only if loading takes longer than a moment. */
export const Skeleton = ({ rows = 8, first }: SkeletonProps) => (
  <div class="skeleton" role="status">
    <span class="visually-hidden">Loading…</span>
    {Array.from({ length: rows }, (_, row) => (
      <span key={row} style={row === 0 && first ? { height: first } : undefined} />
    ))}
  </div>
);
