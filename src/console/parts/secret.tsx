import type { ComponentChildren } from "preact";
import { Dialog } from "./dialog.tsx";
import { CopyButton } from "./values.tsx";

interface SecretProps {
  title: string;
  /** Names the secret in sentences: "key". */
  noun: string;
  secret: string;
  onClose: () => void;
  children?: ComponentChildren;
}

/** Shows a secret that can't be shown again. */
export function Secret({ title, noun, secret, onClose, children }: SecretProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <p>Copy this {noun} now. You won't be able to see it again.</p>
        <p class="secret">
          <code>{secret}</code> <CopyButton text={secret} label={noun} />
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
