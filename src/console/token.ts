/* What the console and the reference know of tokens, each being a page of its own. */

import { Refusal } from "./refusal.ts";

/** The key of a tab in which somebody is signed in. It is one that the console made for itself, and ends by itself. */
export interface KeptSession {
  /** The team's. */
  id: string;
  key: string;
  keyId: string;
  /** Stands for whoever signed in: a digest of the pasted key, or of team and email. */
  owner: string;
  /** By the browser's clock. */
  expiresAt: string;
}

const KEPT = "stowage.session";

/** Null where nobody is signed in, where the key has ended, and where what is kept can't be read. */
export function readKeptSession(): KeptSession | null {
  try {
    const kept: KeptSession | null = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
    return kept?.owner && Date.parse(kept.expiresAt) > Date.now() ? kept : null;
  } catch {
    return null;
  }
}

export function keepSession(kept: KeptSession | null): void {
  if (kept) sessionStorage.setItem(KEPT, JSON.stringify(kept));
  else sessionStorage.removeItem(KEPT);
}

/** @throws Refusal where no header may hold the token, so that it is none */
export function checkToken(token: string): void {
  if (!/^[!-~]+$/.test(token)) throw new Refusal("This is no key: a key has no spaces and no such letters.");
}

/** A page that "back" brings to life again would have its token still, whoever is there by now: it is loaded anew. */
export function reloadOnReturn(): void {
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}
