import { type Signal, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { nameOfUser, useUsers } from "./accounts/user-choice.tsx";
import { useKeys, useWebhooks } from "./data.ts";
import { recordingOf } from "./files/file-rows.ts";
import { type Match, missingOf, playMatch, Sentence, urlOfMatch, useSpoken } from "./files/spoken.tsx";
import { useAllFolders } from "./folders/folder-data.ts";
import { newFolder } from "./folders/folders.tsx";
import { type Actions, allowed, perform } from "./framework/action.tsx";
import { hasCharacterKeys } from "./framework/keys.ts";
import { href, navigate } from "./framework/router.ts";
import { can, client, session } from "./framework/session.ts";
import { useList } from "./framework/store.ts";
import { leave } from "./leaving.tsx";
import { NOUNS } from "./nouns.ts";
import { copy } from "./parts/copy.tsx";
import { formatDuration } from "./parts/format.ts";
import { Icon, type IconName } from "./parts/icon.tsx";
import { hasWords, Marked, quoted } from "./parts/words.tsx";
import { visibleSections } from "./sections.ts";
import { nameOfWebhook } from "./webhooks/webhook-name.ts";

/* The results of the palette. They are loaded after its field, which keeps what is typed in the meantime. */

const TYPING_MILLISECONDS = 250;
const MAX_FILES = 8;
const MAX_FOLDERS = 5;
const MAX_RECENT_FILES = 5;
/** Users, keys and webhooks, of each kind. */
const MAX_RECORDS = 3;
/** The recordings in which words are said, and the matches in each. */
const [MAX_SPOKEN_FILES, MAX_SPOKEN] = [4, 2];

interface Result {
  key: string;
  label: string;
  /** A second text that may match. */
  detail?: string;
  /** What is said, in place of the label. */
  match?: Match;
  language?: string | null;
  note: string;
  /** The keys that do the same, and take the place of the note. */
  keys?: string | undefined;
  icon: IconName;
  run: () => void;
}

/** Pages and actions, which need no request. @param openHelp shows the sheet of shortcuts */
function commands(openHelp: () => void): Result[] {
  const team = session.value?.team;
  const sections = visibleSections();
  const actions: Actions = [
    ...sections.map(([, { create }]) => create),
    team && newFolder,
    team && { label: "Copy team ID", icon: "copy", run: () => copy(team.id, "team ID") },
  ];
  return [
    ...sections.map(([step, { label, icon, key }]) => ({
      key: step,
      label,
      keys: key && `G ${key.toUpperCase()}`,
      note: "Page",
      icon,
      run: () => navigate(href(`/${step}`)),
    })),
    ...allowed(actions).map((action) => ({
      key: action.label,
      label: action.label,
      keys: action.keys?.[0]?.toUpperCase(),
      note: "Action",
      icon: action.icon ?? "menu",
      run: () => void perform(action),
    })),
    {
      key: "reference",
      label: "API reference",
      note: "Opens a new tab",
      icon: "book",
      run: () => void window.open("/reference", "_blank", "noopener"),
    },
    { key: "help", label: "Keyboard shortcuts", keys: "?", note: "", icon: "menu", run: openHelp },
    { key: "leave", label: "Sign out", note: "Action", icon: "back", run: () => leave() },
  ];
}

const RECORDS = { user: "User", apikey: "Key", webhook: "Webhook" };

/** The users, keys and webhooks with the words in their names, which lead to their pages. */
function useRecords(typed: string): Result[] {
  const words = typed.trim();
  const isUsed = words !== "" && session.value?.team != null;
  const users = useUsers(words, isUsed);
  const keys = useKeys(undefined, isUsed && can("keys:read"));
  const webhooks = useWebhooks(isUsed && can("webhooks:read"));
  const found = (kind: keyof typeof RECORDS, all: { id: string; name: string; detail?: string }[] = []) =>
    all
      .filter(({ name, detail = "" }) => isUsed && hasWords(`${name} ${detail}`, words))
      .slice(0, MAX_RECORDS)
      .map(({ id, name, detail }) => {
        const place = NOUNS[kind].page?.({ id, name, fileId: "" }) ?? ["/"];
        return {
          key: id,
          label: name,
          ...(detail && { detail }),
          note: RECORDS[kind],
          icon: NOUNS[kind].icon,
          run: () => navigate(href(...place)),
        };
      });
  return [
    ...found(
      "user",
      users.items?.map((user) => ({ id: user._id, name: nameOfUser(user), detail: user.email })),
    ),
    ...found("apikey", keys.items),
    ...found(
      "webhook",
      webhooks.items?.map((webhook) => ({ id: webhook._id, name: nameOfWebhook(webhook) })),
    ),
  ];
}

interface Matches {
  matches: Result[];
  spoken: Result[];
  status: string;
  isLoading: boolean;
  isSaidLoading: boolean;
}

/** Folders, files and other records that match, and what is said in transcripts; without a search, the newest files. */
function useMatches(typed: string): Matches {
  const [search, setSearch] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSearch(typed.trim()), TYPING_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [typed]);
  const isUsed = can("files:read") && session.value?.team != null;
  const folders = useAllFolders(isUsed);
  const files = useList(
    ["palette", search],
    isUsed
      ? (signal) =>
          client.value.files.list(
            search ? { limit: MAX_FILES, search, sort: "name" } : { limit: MAX_RECENT_FILES, sort: "-createdAt" },
            { signal },
          )
      : null,
  );
  const records = useRecords(typed);
  const said = useSpoken(isUsed ? search : "", { limit: MAX_SPOKEN_FILES });
  const isTyping = typed.trim() !== search;
  const isLoading = files.isLoading || isTyping;
  // While it loads, these are the files of an earlier search.
  const found = files.items?.filter(
    (file) => !isLoading || hasWords(`${file.name} ${file.folder} ${recordingOf(file)}`, typed),
  );
  const matches = [
    ...(folders.items ?? [])
      .filter((folder) => typed.trim() !== "" && hasWords(folder, typed))
      .slice(0, MAX_FOLDERS)
      .map((folder) => ({
        key: `folder ${folder}`,
        label: folder,
        note: "Folder",
        icon: "folder" as const,
        run: () => navigate(href("/files", { folder })),
      })),
    ...(found ?? []).map((file) => ({
      key: file._id,
      label: file.name,
      detail: recordingOf(file),
      note: file.folder || (search ? "File" : "Recent file"),
      icon: "document" as const,
      run: () => navigate(href(`/files/${file._id}`)),
    })),
    ...records,
  ];
  const isSaidLoading = said.isSearching || isTyping;
  const spoken = (isSaidLoading ? [] : (said.items ?? [])).flatMap(({ file, language, matches: found, matchCount }) => [
    ...found.slice(0, MAX_SPOKEN).map((match) => ({
      key: `${file._id} ${match.startSeconds} ${match.turns[0]?.text}`,
      label: file.name,
      match,
      language,
      note: formatDuration(Math.floor(match.startSeconds)),
      icon: "play" as const,
      run: () => {
        playMatch(file, match);
        navigate(urlOfMatch(file, match, search));
      },
    })),
    ...(matchCount > MAX_SPOKEN
      ? [
          {
            key: `${file._id} more`,
            label: "More in this recording",
            detail: file.name,
            note: "",
            icon: "search" as const,
            run: () => navigate(href(`/files/${file._id}`, { q: search })),
          },
        ]
      : []),
  ]);
  const status =
    typed.trim() === "" || !isUsed
      ? ""
      : said.error
        ? "Transcripts can't be searched right now."
        : isSaidLoading
          ? "Searching transcripts…"
          : missingOf(said);
  return { matches, spoken, status, isLoading, isSaidLoading };
}

export interface PaletteResultsProps {
  /** The id of the list. */
  id: string;
  typed: string;
  /** The keys that were pressed in the field and that nothing has handled yet. */
  pressed: Signal<string[]>;
  /** The id of the selected result. */
  active: Signal<string | undefined>;
  openHelp: () => void;
  onClose: () => void;
}

/** The results that match. Arrow keys select a result, and Enter or a click chooses it. */
export function PaletteResults({ id, typed, pressed, active, openHelp, onClose }: PaletteResultsProps) {
  const list = useRef<HTMLDivElement>(null);
  const place = useSignal(0);
  const { matches, spoken, status, isLoading, isSaidLoading } = useMatches(typed);
  const named = [...commands(openHelp).filter(({ label }) => hasWords(label, typed)), ...matches];
  const results = [...named, ...spoken];
  const isWaiting = isLoading || isSaidLoading;
  const latest = useRef({ results, isWaiting });
  latest.current = { results, isWaiting };
  const placeIn = ({ length }: Result[]) => Math.max(0, Math.min(place.value, length - 1));
  const at = placeIn(results);
  /** Whether Enter was pressed before anything is found. */
  const isEntered = useRef(false);
  const choose = (result: Result | undefined) => {
    isEntered.current = !result && latest.current.isWaiting;
    if (!result) return;
    onClose();
    result.run();
  };
  // The first result is selected again for another text.
  useLayoutEffect(() => {
    place.value = 0;
    isEntered.current = false;
  }, [typed]);
  useSignalEffect(() => {
    const keys = pressed.value;
    if (keys.length === 0) return;
    pressed.value = [];
    for (const key of keys) {
      const now = latest.current.results;
      if (key === "Enter") choose(now[placeIn(now)]);
      else place.value = (placeIn(now) + (key === "ArrowDown" ? 1 : -1) + now.length) % (now.length || 1);
    }
  });
  // Files come before what is said, so it waits for them.
  useEffect(() => {
    if (!isEntered.current || isLoading) return;
    if (results[at]) choose(results[at]);
    else isEntered.current = isSaidLoading;
  });
  useLayoutEffect(() => {
    active.value = results[at] ? `${id}-${at}` : undefined;
  });
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);
  const option = (result: Result, index: number) => (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the field handles the keys.
    <div
      key={result.key}
      id={`${id}-${index}`}
      role="option"
      tabIndex={-1}
      aria-selected={index === at}
      onClick={() => choose(result)}
    >
      <Icon name={result.icon} />
      <span class="two-lines">
        {result.match && <Sentence match={result.match} language={result.language ?? null} />}
        <bdi class={result.match && "quiet"}>
          {result.match ? result.label : <Marked text={result.label} search={typed} />}
        </bdi>
        {result.detail && (
          <bdi class="quiet">
            <Marked text={result.detail} search={typed} />
          </bdi>
        )}
      </span>
      {result.keys && hasCharacterKeys.value ? <kbd>{result.keys}</kbd> : <span class="quiet">{result.note}</span>}
    </div>
  );
  return (
    <>
      <div ref={list} id={id} role="listbox" aria-label="Results" class="palette-results">
        {named.map(option)}
        {spoken.length > 0 && (
          // biome-ignore lint/a11y/useSemanticElements: a group of options.
          <div role="group" aria-labelledby={`${id}-spoken`}>
            <p id={`${id}-spoken`} class="quiet" role="presentation">
              In transcripts
            </p>
            {spoken.map((result, index) => option(result, named.length + index))}
          </div>
        )}
      </div>
      <p role="status" class="quiet">
        {status}
      </p>
      {results.length === 0 && status === "" && (
        <p class="quiet">{isLoading ? "Searching…" : `Nothing found for ${quoted(typed)}`}</p>
      )}
    </>
  );
}
