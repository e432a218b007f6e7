import { create, createButton } from "./element-view.ts";

/** The button that chooses files in place of the page's input, and a hint that they can be dropped. */
export class Chooser {
  readonly button: HTMLButtonElement;
  readonly #drop = create("span", "drop");
  readonly element: HTMLElement;

  constructor(onClick: () => void) {
    this.button = createButton("choose", onClick);
    this.element = create("div", "chooser", this.button, this.#drop);
  }

  /** Hides the input. The button has its name for screen readers. */
  update(input: HTMLInputElement | null, isDisabled: boolean, textOf: (name: string) => string): void {
    this.element.hidden = !input;
    if (!input) return;
    input.style.setProperty("display", "none", "important");
    const [text = "", drop = ""] = input.multiple ? ["choose", "drop"] : ["chooseFile", "dropFile"];
    this.button.textContent = textOf(text);
    this.#drop.textContent = textOf(drop);
    const names = [input.ariaLabel, ...[...(input.labels ?? [])].map(({ textContent }) => textContent?.trim())];
    this.button.ariaLabel = [textOf(text), names.find(Boolean)].filter(Boolean).join(": ");
    this.button.disabled = isDisabled;
  }
}
