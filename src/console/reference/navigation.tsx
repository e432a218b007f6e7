import { useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Reference } from "./document.ts";
import { inView } from "./place.ts";

export function Method({ name }: { name: string }) {
  return <span class={`method ${name.toLowerCase()}`}>{name}</span>;
}

function Entry({ id, children }: { id: string; children: preact.ComponentChildren }) {
  return (
    <li>
      <a href={`#${id}`} aria-current={inView.value === id ? "location" : undefined}>
        {children}
      </a>
    </li>
  );
}

/** All parts of the page. Where the screen is narrow it is folded. */
export function Navigation({ sections, groups, schemas }: Reference) {
  const isOpen = useSignal(false);
  const list = useRef<HTMLDivElement>(null);
  useSignalEffect(() => {
    const current = list.current?.querySelector<HTMLElement>(`a[href="#${inView.value}"]`);
    const box = list.current;
    if (!box || !current) return;
    // Within the list alone: scrollIntoView would move the page too.
    const { top, bottom } = current.getBoundingClientRect();
    const { top: from, bottom: to } = box.getBoundingClientRect();
    if (top < from) box.scrollTop -= from - top + 40;
    else if (bottom > to) box.scrollTop += bottom - to + 40;
  });
  return (
    <nav class="contents" aria-label="Contents">
      <button
        type="button"
        class="button contents-button"
        aria-expanded={isOpen.value}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      >
        Contents
      </button>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the click is that of a link, which a key makes too. */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: likewise. */}
      <div
        ref={list}
        class={isOpen.value ? "contents-list open" : "contents-list"}
        onClick={(event) => {
          if ((event.target as Element).closest("a")) isOpen.value = false;
        }}
      >
        <ul>
          <Entry id="introduction">Introduction</Entry>
          {sections.map(({ id, title }) => (
            <Entry key={id} id={id}>
              {title}
            </Entry>
          ))}
        </ul>
        {groups.map(({ id, title, operations }) => (
          <div key={id}>
            <p>
              <a href={`#${id}`}>{title}</a>
            </p>
            <ul>
              {operations.map((operation) => (
                <Entry key={operation.id} id={operation.id}>
                  <Method name={operation.method} /> <span>{operation.summary}</span>
                </Entry>
              ))}
            </ul>
          </div>
        ))}
        <div>
          <p>
            <a href="#schemas">Schemas</a>
          </p>
          <ul>
            {Object.keys(schemas).map((name) => (
              <Entry key={name} id={`schema-${name}`}>
                {name}
              </Entry>
            ))}
          </ul>
        </div>
      </div>
    </nav>
  );
}
