import { signal } from "@preact/signals";

interface Announcement {
  id: number;
  text: string;
}

const SHOWN_MILLISECONDS = 6000;
const announcements = signal<Announcement[]>([]);
let latest = 0;

/** Says what was done, to eyes and to screen readers. What failed is said where it failed, by `Failure`. */
export function announce(text: string): void {
  const id = ++latest;
  announcements.value = [...announcements.value, { id, text }];
  setTimeout(() => {
    announcements.value = announcements.value.filter((one) => one.id !== id);
  }, SHOWN_MILLISECONDS);
}

/** Where announcements appear; there is one in the page, from its start. */
export function Announcements() {
  return (
    <div class="announcements" role="status">
      {announcements.value.map(({ id, text }) => (
        <p key={id}>{text}</p>
      ))}
    </div>
  );
}
