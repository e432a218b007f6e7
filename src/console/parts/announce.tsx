import { signal } from "@preact/signals";

interface Announcement {
  id: number;
  text: string;
  undo?: (() => void) | undefined;
}

const SHOWN_MILLISECONDS = 6000;
/** Time to read the result, and to reach the button by keyboard. */
const UNDO_MILLISECONDS = 30_000;
const announcements = signal<Announcement[]>([]);
let latestId = 0;

const dismiss = (id: number) => {
  announcements.value = announcements.value.filter((announcement) => announcement.id !== id);
};

/**
 * Shows the result of an action briefly, and reads it to screen readers. Errors use `Failure` instead.
 * @param undo adds a button that undoes the action
 */
export function announce(text: string, undo?: () => void): void {
  const id = ++latestId;
  announcements.value = [...announcements.value, { id, text, undo }];
  setTimeout(() => dismiss(id), undo ? UNDO_MILLISECONDS : SHOWN_MILLISECONDS);
}

/** The live region for announcements. It exists from the start, because screen readers ignore new regions. */
export function Announcements() {
  return (
    <div class="announcements" role="status">
      {announcements.value.map(({ id, text, undo }) => (
        <p key={id}>
          {text}
          {undo && (
            <button
              type="button"
              class="button small"
              onClick={() => {
                dismiss(id);
                undo();
              }}
            >
              Undo
            </button>
          )}
        </p>
      ))}
    </div>
  );
}
