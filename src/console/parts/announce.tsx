import { signal } from "@preact/signals";

interface Announcement {
  id: number;
  text: string;
}

const SHOWN_MILLISECONDS = 6000;
const announcements = signal<Announcement[]>([]);
let latestId = 0;

/** Shows the result of an action briefly, and reads it to screen readers. Errors use `Failure` instead. */
export function announce(text: string): void {
  const id = ++latestId;
  announcements.value = [...announcements.value, { id, text }];
  setTimeout(() => {
    announcements.value = announcements.value.filter((announcement) => announcement.id !== id);
  }, SHOWN_MILLISECONDS);
}

/** The live region for announcements. It exists from the start, because screen readers ignore new regions. */
export function Announcements() {
  return (
    <div class="announcements" role="status">
      {announcements.value.map(({ id, text }) => (
        <p key={id}>{text}</p>
      ))}
    </div>
  );
}
