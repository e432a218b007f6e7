import { signal } from "@preact/signals";
import { useId } from "preact/hooks";
import { readKeptSession } from "../token.ts";

/** What calls are tried with, for as long as the page is open: kept nowhere else. */
export const token = signal("");

export function TokenField() {
  const id = useId();
  const key = readKeptSession()?.key;
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
      {key && key !== token.value && (
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
