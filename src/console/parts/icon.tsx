/** Strokes on a grid of 24 units, in the style of the logo: round ends, no fills. */
const PATHS = {
  activity: "M3 12h4l3-8 4 16 3-8h4",
  back: "m14 6-6 6 6 6",
  book: "M5 4h11a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3V4Zm0 13a3 3 0 0 1 3-3h11",
  check: "m5 12.5 4.5 4.5L19 7.5",
  chevron: "m7 10 5 5 5-5",
  close: "m6 6 12 12M18 6 6 18",
  code: "m8 7-5 5 5 5m8-10 5 5-5 5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  document: "M6 3h8l5 5v13H6V3Zm8 0v5h5",
  download: "M12 4v11m-5-4 5 5 5-5M5 20h14",
  edit: "m4 20 1-4L16 5l3 3L8 19l-4 1Z",
  external: "M8 6h10v10m0-10L6 18",
  filter: "M4 6h16M7 12h10m-7 6h4",
  folder: "M3 6h7l2 2h9v11H3V6Z",
  "folder-plus": "M3 6h7l2 2h9v11H3V6Zm9 5v5m-2.5-2.5h5",
  gauge: "M4 18a9 9 0 1 1 16 0M12 15l4-5",
  image: "M4 5h16v14H4zm0 11 5-5 4 4 3-3 4 4M15 9h.01",
  key: "M11 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0Zm0 0h10v4m-5-4v3",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.6l-1 1M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.6l1-1",
  lock: "M6 11h12v9H6zM9 11V8a3 3 0 0 1 6 0v3",
  loop: "M7 7h9a4 4 0 0 1 4 4m-3-7 3 3-3 3M17 17H8a4 4 0 0 1-4-4m3 7-3-3 3-3",
  menu: "M5 7h14M5 12h14M5 17h14",
  more: "M5 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M11 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M17 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0",
  move: "M3 6h7l2 2h9v11H3V6Zm6 7.5h6m-2.5-2.5 2.5 2.5-2.5 2.5",
  muted: "M4 9v6h4l5 4V5L8 9H4Zm12 0 5 6m0-6-5 6",
  next: "M6 5v14l10-7L6 5Zm12 0v14",
  play: "M7 4.5v15l12-7.5z",
  plus: "M12 5v14M5 12h14",
  previous: "M18 5v14L8 12l10-7ZM6 5v14",
  refresh: "M20 6v5h-5M4 18v-5h5M19 11a7.5 7.5 0 0 0-13-3m-1 5a7.5 7.5 0 0 0 13 3",
  search: "m20 20-4.5-4.5M17 10.5a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0Z",
  tag: "M4 4h8l8 8-8 8-8-8V4Zm4.5 4.5h.01",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  upload: "M12 16V5m-5 4 5-5 5 5M5 20h14",
  users: "M15 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0ZM3 21a8 8 0 0 1 16 0m-1.500-12.500a3 3 0 0 1 0 5M22 21a6 6 0 0 0-3-5",
  video: "M3 6h13v12H3zm13 4 5-3v10l-5-3",
  volume: "M4 9v6h4l5 4V5L8 9H4Zm12 0a4 4 0 0 1 0 6m2.500-8.500a8 8 0 0 1 0 11",
  webhook: "M12 9a4 4 0 1 1 3.500-2M9 11l-3 6m9-8 3 6m-9.500 2a3 3 0 1 1-3-3m12 0a3 3 0 1 1-3 3H9",
  "zoom-in": "m20 20-4.5-4.5M17 10.5a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0ZM10.5 8v5M8 10.5h5",
  "zoom-out": "m20 20-4.5-4.5M17 10.5a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0ZM8 10.5h5",
} as const;

export type IconName = keyof typeof PATHS;

/** A decorative icon of 16 px. The text or the label of its control names it. */
export const Icon = ({ name, size = 16 }: { name: IconName; size?: number }) => (
  <svg class="icon" viewBox="0 0 24 24" width={size} height={size} aria-hidden="true">
    <path d={PATHS[name]} />
  </svg>
);
