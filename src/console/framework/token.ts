import type { Me } from "../../client/index.ts";
import { UserError } from "./errors.ts";
import { readStored, store } from "./storage.ts";

/** The session of a tab. */
export interface SavedSession {
  /** The team's id. */
  id: string;
  key: string;
  keyId: string;
  /** The name of the user, or of the key that created the session. */
  name: string;
  /** Identifies the user: a digest of the pasted key, or of team and email. */
  owner: string;
  /** By the browser's clock. */
  expiresAt: string;
  me: Me;
}

const STORAGE_KEY = "stowage.session";

/** Null while signed out, if the key has expired, and if the saved text is unreadable. */
export function readSession(): SavedSession | null {
  const saved = readStored<SavedSession>("sessionStorage", STORAGE_KEY);
  return saved?.me && Date.parse(saved.expiresAt) > Date.now() ? saved : null;
}

export const saveSession = (saved: SavedSession | null): void => store("sessionStorage", STORAGE_KEY, saved);

/** @throws UserError if the text can't be sent in a header, so that it can't be a token */
export function checkToken(token: string): void {
  if (!/^[!-~]+$/.test(token))
    throw new UserError("That doesn't look like a key. Keys contain no spaces or special characters.");
}

/** A page that "back" restores would still hold its token, even for another user: it is reloaded. */
export function reloadOnReturn(): void {
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}

const ASKING_MILLISECONDS = 250;
/** Tabs of this origin reach each other here. Nothing is stored. */
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("stowage.session");

/** Gives this tab's session to new tabs that ask for it. */
export function shareSession(current: () => SavedSession | null): void {
  channel?.addEventListener("message", ({ data }) => {
    const session = current();
    if (data === "ask" && session) channel.postMessage(session);
  });
}

/** Asks the other tabs for their session. @returns null if none of them answers soon */
export function sessionOfOtherTab(): Promise<SavedSession | null> {
  return new Promise((resolve) => {
    if (!channel) return resolve(null);
    const stop = new AbortController();
    const end = (session: SavedSession | null) => {
      stop.abort();
      resolve(session);
    };
    channel.addEventListener("message", ({ data }) => data !== "ask" && end(data as SavedSession), stop);
    channel.postMessage("ask");
    setTimeout(() => end(null), ASKING_MILLISECONDS);
  });
}
