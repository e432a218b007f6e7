import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ApiKey } from "../../client/index.ts";
import { Dialog, open } from "../framework/dialog.tsx";
import { Connect } from "./connect.tsx";
import { CopyButton } from "./copy.tsx";

interface SecretProps {
  title: string;
  /** Names the secret in sentences: "key". */
  noun: string;
  secret: string;
  /** If the secret is a key: shows how to use it. */
  apiKey?: Pick<ApiKey, "key" | "isPublic">;
  text?: ComponentChildren;
}

/** Shows a new secret, which the console doesn't show again. */
export const showSecret = (props: SecretProps): Promise<void> => open((close) => <Secret {...props} onClose={close} />);

function Secret({ title, noun, secret, apiKey, text, onClose }: SecretProps & { onClose: () => void }) {
  const [isCopied, setCopied] = useState(false);
  const onCopied = () => setCopied(true);
  return (
    <Dialog title={title} class={apiKey ? "wide" : ""} onClose={onClose}>
      <div class="stack">
        <p>Copy this {noun} now. The console won't show it again.</p>
        <p class="secret">
          <code>{secret}</code>
          <CopyButton text={secret} label={noun} class={isCopied ? "" : "primary"} onCopied={onCopied} />
        </p>
        {text}
        {apiKey && <Connect apiKey={apiKey} onCopied={onCopied} />}
        <div class="actions">
          <button type="button" class={`button ${isCopied ? "primary" : ""}`} onClick={onClose}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  );
}
