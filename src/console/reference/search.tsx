import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Reference } from "./document.ts";
import { goTo } from "./place.ts";
import { type Entry, find, indexOf, wordsOf } from "./search-index.ts";

function Marked({ text, words }: { text: string; words: string[] }) {
  const escaped = words.map((word) => word.replaceAll(/[^\w\s]/g, "\\$&"));
  return (
    <>
      {text
        .split(new RegExp(`(${escaped.join("|")})`, "i"))
        .map((piece, place) => (place % 2 ? <mark key={place}>{piece}</mark> : piece))}
    </>
  );
}

const isTyping = (target: EventTarget | null) =>
  target instanceof Element && target.closest("input, textarea, select") !== null;

/** One field over everything: `/` leads to it, arrows choose, Enter goes there, Escape ends it. */
export function Search({ reference }: { reference: Reference }) {
  const index = useMemo(() => indexOf(reference), [reference]);
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const query = useSignal("");
  const isOpen = useSignal(false);
  const active = useSignal(0);
  const found = find(index, query.value);
  const isShown = isOpen.value && query.value.trim() !== "";

  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      event.preventDefault();
      field.current?.focus({ preventScroll: true });
      field.current?.select();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);

  const move = (by: number) => {
    if (found.length === 0) return;
    active.value = (active.value + by + found.length) % found.length;
    list.current?.children[active.value]?.scrollIntoView({ block: "nearest" });
  };
  const follow = (entry: Entry | undefined) => {
    if (!entry) return;
    query.value = "";
    isOpen.value = false;
    goTo(entry.id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter") follow(found[active.value]);
    else if (event.key === "Escape" && query.value !== "") query.value = "";
    else if (event.key === "Escape") field.current?.blur();
    else return;
    event.preventDefault();
  };

  return (
    <search class="field">
      <input
        ref={field}
        type="search"
        // biome-ignore lint/a11y/noRedundantRoles: without a datalist it is none by itself.
        role="combobox"
        list={undefined}
        aria-label="Search the reference"
        aria-expanded={isShown}
        aria-controls="search-results"
        aria-autocomplete="list"
        aria-activedescendant={isShown && found.length > 0 ? `result-${active.value}` : undefined}
        aria-keyshortcuts="/"
        placeholder="Search"
        autocomplete="off"
        spellcheck={false}
        value={query.value}
        onInput={(event) => {
          query.value = event.currentTarget.value;
          active.value = 0;
          isOpen.value = true;
        }}
        onKeyDown={onKeyDown}
        onBlur={() => {
          isOpen.value = false;
        }}
        onFocus={() => {
          isOpen.value = true;
        }}
      />
      <span class="key" aria-hidden="true">
        /
      </span>
      <div ref={list} id="search-results" role="listbox" aria-label="Results" hidden={!isShown || found.length === 0}>
        {isShown &&
          found.map((entry, place) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the field's, where the focus stays.
            // biome-ignore lint/a11y/useFocusableInteractive: likewise.
            <div
              key={entry.id}
              id={`result-${place}`}
              role="option"
              aria-selected={place === active.value}
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => follow(entry)}
            >
              <span class="kind">{entry.kind}</span>
              <span class="found">
                <Marked text={entry.title} words={wordsOf(query.value)} />
              </span>
              <span class="detail">
                <Marked text={entry.detail} words={wordsOf(query.value)} />
              </span>
            </div>
          ))}
      </div>
      <p role="status" class="visually-hidden">
        {isShown && (found.length === 0 ? "Nothing found." : `${found.length} found.`)}
      </p>
      {isShown && found.length === 0 && <p class="nothing">Nothing found.</p>}
    </search>
  );
}
