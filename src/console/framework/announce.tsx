import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Icon } from "../parts/icon.tsx";

/** The button of a result, which undoes or shows it. */
interface FollowUp {
  label: "Undo" | "Show";
  run: () => void;
}

interface Announcement {
  id: number;
  content: ComponentChildren;
  follow?: FollowUp | undefined;
  /** Whether the page shows the result elsewhere, so that only screen readers need it. */
  isSpoken?: boolean;
}

const SHOWN_MILLISECONDS = 6000;
/** Time to read the result, and to reach the button by keyboard. */
const FOLLOW_UP_MILLISECONDS = 30_000;
const announcements = signal<Announcement[]>([]);
/** How many modal dialogs are open. Everything outside them is inert, and screen readers ignore it. */
export const openDialogs = signal(0);
let latestId = 0;

const dismiss = (id: number) => {
  announcements.value = announcements.value.filter((announcement) => announcement.id !== id);
};

function show(content: ComponentChildren, follow?: FollowUp, isSpoken = false): number {
  announcements.value = [...announcements.value, { id: ++latestId, content, follow, isSpoken }];
  return latestId;
}

/** Shows the result of an action briefly, and reads it to screen readers. */
export function announce(text: string, follow?: FollowUp): void {
  const id = show(<span>{text}</span>, follow);
  setTimeout(() => dismiss(id), follow ? FOLLOW_UP_MILLISECONDS : SHOWN_MILLISECONDS);
}

/** Reads a result to screen readers alone, because the page shows it elsewhere. */
export function speak(text: string): void {
  const id = show(text, undefined, true);
  setTimeout(() => dismiss(id), SHOWN_MILLISECONDS);
}

/**
 * Shows why an action failed, until the user dismisses it. Forms and pages show their errors themselves.
 * @returns a function that dismisses it
 */
export function showFailure(failure: ComponentChildren): () => void {
  const id = show(failure);
  return () => dismiss(id);
}

/**
 * The live region for announcements: one on the page, and one in each dialog, used while it is open. They exist before
 * their content, because screen readers ignore new regions.
 */
export function Announcements({ inDialog = false }: { inDialog?: boolean }) {
  const isUsed = inDialog === openDialogs.value > 0;
  return (
    <div class="announcements" role="status">
      {isUsed &&
        announcements.value.map(({ id, content, follow, isSpoken }) =>
          isSpoken ? (
            <span key={id} class="visually-hidden">
              {content}
            </span>
          ) : (
            <div key={id} data-undo={follow?.label === "Undo"}>
              {content}
              {follow && (
                <button
                  type="button"
                  class="button"
                  onClick={() => {
                    dismiss(id);
                    follow.run();
                  }}
                >
                  {follow.label}
                </button>
              )}
              <button type="button" class="button ghost" aria-label="Dismiss" onClick={() => dismiss(id)}>
                <Icon name="close" />
              </button>
            </div>
          ),
        )}
    </div>
  );
}
