/** Kept, because a browser may forget an input that is not on the page before the user has chosen. */
let chooser: HTMLInputElement | undefined;

/** Opens the file chooser. Nothing happens if the user closes it. */
export function chooseFiles(
  options: { multiple?: boolean; webkitdirectory?: boolean },
  onFiles: (files: File[]) => void,
) {
  const input = Object.assign(document.createElement("input"), { type: "file", ...options });
  input.addEventListener("change", () => onFiles([...(input.files ?? [])]));
  chooser = input;
  chooser.click();
}
