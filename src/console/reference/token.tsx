import { signal } from "@preact/signals";
import { useId } from "preact/hooks";

/** Where the console keeps the key of its session, for this tab. */
const SESSION = "stowage.session";

/** What calls are tried with, for as long as the page is open: kept nowhere else. */
export const token = signal("");

function consoleKey(): string | null {
  const stored = sessionStorage.getItem(SESSION);
  if (stored === null) return null;
  const { key, expiresAt } = JSON.parse(stored) as { key: string; expiresAt: string };
  return Date.parse(expiresAt) > Date.now() ? key : null;
}

export function TokenField() {
  const id = useId();
  const key = consoleKey();
  return (
    <div class="field">
      <label for={id}>Token</label>
      <input
        id={id}
        type="password"
        autocomplete="off"
        spellcheck={false}
        required
        aria-describedby={`${id}-hint`}
        value={token.value}
        onInput={(event) => {
          token.value = event.currentTarget.value.trim();
        }}
      />
      <p class="hint" id={`${id}-hint`}>
        Kept in this page until you leave it, and sent to this service alone.
      </p>
      {key !== null && key !== token.value && (
        <p>
          <button
            type="button"
            class="button small"
            onClick={() => {
              token.value = key;
            }}
          >
            Use the console's key
          </button>
        </p>
      )}
    </div>
  );
}
