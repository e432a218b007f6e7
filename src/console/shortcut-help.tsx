import { Dialog } from "./framework/dialog.tsx";
import { hasCharacterKeys } from "./framework/keys.ts";
import { help } from "./help.ts";

/** The sheet that `?` opens. */
export const ShortcutHelp = ({ onClose }: { onClose: () => void }) => (
  <Dialog title="Keyboard shortcuts" class="wide" onClose={onClose}>
    <div class="columns">
      {Object.entries(help()).map(([title, keys]) => (
        <section key={title} class="stack">
          <h3>{title}</h3>
          <dl class="facts">
            {Object.entries(keys).map(([key, text]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
    <label>
      <input
        type="checkbox"
        checked={hasCharacterKeys.value}
        onChange={({ currentTarget }) => {
          hasCharacterKeys.value = currentTarget.checked;
        }}
      />{" "}
      Use letters and signs as shortcuts
    </label>
    <div class="actions">
      <button type="button" class="button primary" onClick={onClose}>
        Close
      </button>
    </div>
  </Dialog>
);
