import type { ComponentChildren } from "preact";
import { Dialog } from "./dialog.tsx";
import { CopyButton } from "./values.tsx";

interface SecretProps {
  title: string;
  /** What it is, for the copy button: "key". */
  what: string;
  secret: string;
  onClose: () => void;
  children?: ComponentChildren;
}

/** Shows a secret the one time. */
export function Secret({ title, what, secret, onClose, children }: SecretProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <p>Copy the {what} now: the console shows it this once.</p>
        <p class="secret">
          <code>{secret}</code> <CopyButton text={secret} what={what} />
        </p>
        {children}
        <div class="actions">
          <button type="button" class="button primary" onClick={onClose}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  );
}
