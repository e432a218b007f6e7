import { signal } from "@preact/signals";
import { Icon } from "./icon.tsx";

interface Announcement {
  id: number;
  text: string;
  undo?: (() => void) | undefined;
}

const SHOWN_MILLISECONDS = 6000;
/** Time to read the result, and to reach the button by keyboard. */
const UNDO_MILLISECONDS = 30_000;
const announcements = signal<Announcement[]>([]);
/** How many modal dialogs are open. Everything outside them is inert, and screen readers ignore it. */
export const openDialogs = signal(0);
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

/**
 * The live region for announcements: one on the page, and one in each dialog, used while it is open. They exist before
 * their content, because screen readers ignore new regions.
 */
export function Announcements({ inDialog = false }: { inDialog?: boolean }) {
  const isUsed = inDialog === openDialogs.value > 0;
  return (
    <div class="announcements" role="status">
      {isUsed &&
        announcements.value.map(({ id, text, undo }) => (
          <p key={id} data-undo={undo !== undefined}>
            <span>{text}</span>
            {undo && (
              <button
                type="button"
                class="button"
                onClick={() => {
                  dismiss(id);
                  undo();
                }}
              >
                Undo
              </button>
            )}
            <button type="button" class="button ghost" aria-label="Dismiss" onClick={() => dismiss(id)}>
              <Icon name="close" />
            </button>
          </p>
        ))}
    </div>
  );
}
