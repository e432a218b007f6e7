import type { RECORDER_TEXTS } from "./element-recorder-texts.ts";

/* The view of the upload element: its texts, styles and parts. */

/** Texts of the element. `{name}`, `{percent}` and `{message}` are replaced. */
export const TEXTS = {
  // "…File" without the attribute `multiple` of the input.
  choose: "Choose files",
  chooseFile: "Choose a file",
  drop: "or drop them here",
  dropFile: "or drop it here",
  cancel: "Cancel",
  remove: "Remove",
  retry: "Retry",
  record: "Record",

  waiting: "Waiting",
  interrupted: "{message}",
  sending: "{percent}%",
  stored: "Uploaded, processing…",
  completed: "Uploaded",
  failed: "{message}",

  announceSending: "Uploading {name}",
  announceWaiting: "{name} is waiting. {message}",
  announceStored: "{name} uploaded",
  announceFailed: "Couldn't upload {name}. {message}",
  announceCanceled: "{name} removed",
  used: "The team has already used this file. Ask it to delete the file.",
  notRemoved: "This file can't be deleted now. Retry later.",

  required: "Choose a file.",
  requiredEither: "Choose a file, or record something, then send it.",
  requiredRecording: "Record something, then send it.",
  busy: "Wait until all files are uploaded.",
  unresolved: "Retry or cancel the files that couldn't be uploaded.",
  refused: "Cancel the files that couldn't be uploaded.",
  submitting: "The form is sent once all files are uploaded. Keep this page open.",

  // Messages by error code. For other codes, the message of the service is shown.
  file_too_large: "This file is too large.",
  file_empty: "This file is empty.",
  file_unreadable: "This file can't be read. Choose it again.",
  file_changed: "This file has changed. Choose it again.",
  type_not_allowed: "Files of this type aren't accepted.",
  upload_limit_reached: "You can't upload more files here.",
  quota_exceeded: "There is no space left for this file.",
  file_limit_reached: "There is no space left for this file.",
  too_many_unfinished_uploads: "Too many uploads at once. The upload continues in a minute.",
  token_missing: "Waiting for permission to upload. Keep this page open.",
  token_invalid: "Your permission to upload has expired. Keep this page open.",
  forbidden: "You can't upload here.",
  team_suspended: "You can't upload here.",
  connection_failed: "No connection. The upload continues when there is one. Keep this page open.",
  rate_limited: "Too many uploads at once. The upload continues in a minute.",
  unavailable: "The service is unavailable. The upload continues in a minute.",
  internal: "Something went wrong. The upload continues in a minute.",
  unexpected_response: "Something went wrong. Retry, or choose the file again.",
  unexpected_error: "Something went wrong. Retry, or choose the file again.",
};

export type UploadTexts = typeof TEXTS & typeof RECORDER_TEXTS & Record<string, string>;

// Inherited properties of the page reach into a shadow root. Those that could make the text unreadable are reset.
export const STYLES = `
:host { display: block }
:host([hidden]), [hidden] { display: none !important }
[part=panel] { --line: color-mix(in srgb, currentColor 35%, transparent); --tint: color-mix(in srgb, currentColor 8%, transparent);
  visibility: visible; pointer-events: auto; cursor: auto; user-select: auto; text-align: start; line-height: 1.4;
  letter-spacing: normal; word-spacing: normal; text-indent: 0; text-transform: none; text-shadow: none; white-space: normal }
[part=chooser] { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin: 0 0 8px; padding: 12px;
  border: 1px dashed var(--line); border-radius: 8px }
:host([data-dragging]) [part=chooser] { border-style: solid; background: var(--tint) }
[part=list] { list-style: none; margin: 0; padding: 0 }
[part~=item] { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin: 8px 0 }
[part=name] { flex: 1 1 10em; overflow-wrap: anywhere }
[part=progress] { flex: 2 1 8em; min-width: 4em; accent-color: currentColor }
[part=status] { font-size: .875em; font-variant-numeric: tabular-nums }
[part=message] { margin: 8px 0 }
[part~=button] { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: 6px;
  padding: 2px 12px; min-width: 44px; min-height: 32px; cursor: pointer }
[part~=button]:hover:enabled { background: var(--tint) }
[part~=button]:disabled { opacity: .5; cursor: auto }
[part~=item] [part~=button] { font-size: .875em; border-color: transparent; padding: 0 8px; min-height: 24px; text-decoration: underline }
@media not (pointer: fine) { [part=chooser] { border: 0; padding: 0 } [part=drop] { display: none }
  [part=panel] [part~=button] { min-height: 44px } }
[role=status] { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
`;

export function create<K extends keyof HTMLElementTagNameMap>(tag: K, part: string, ...children: Node[]) {
  const element = document.createElement(tag);
  element.setAttribute("part", part);
  element.append(...children);
  return element;
}

export function createButton(name: string, onClick: () => unknown): HTMLButtonElement {
  const button = create("button", `button ${name}`);
  // Otherwise it would submit the form.
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

/** Messages that stay in the page, so that a screen reader also reads one that others follow at once. */
const MAX_MESSAGES = 20;

/** Tells screen readers what happens. A message does not replace the one before, which may not have been read yet. */
export class Announcer {
  readonly element = create("div", "announcement");

  constructor() {
    this.element.role = "status";
    // Only what is new is read.
    this.element.ariaAtomic = "false";
  }

  announce(message: string): void {
    this.element.append(create("p", "", new Text(message)));
    while (this.element.childElementCount > MAX_MESSAGES) this.element.firstElementChild?.remove();
  }
}
