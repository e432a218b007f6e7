import { newKey } from "./upload-runner.ts";

/**
 * Identifies an element of this tab, also after a reload. Another tab or a later visitor never gets its files.
 * @param name the element's name in the form, and the visitor
 */
export function placeOf(name: string): string {
  try {
    const tab = sessionStorage.getItem("stowage.upload") ?? newKey();
    sessionStorage.setItem("stowage.upload", tab);
    return `${tab} ${location.pathname} ${name}`;
  } catch {
    // The browser denies all storage.
    return "";
  }
}

/** Identifies an element in any tab: a recording must survive its tab. */
export const recordingPlaceOf = (name: string) => `recordings ${location.pathname} ${name}`;
