import { computed, effect, signal } from "@preact/signals";
import { type ApiKey, Stowage, StowageError } from "../client/stowage.ts";
import { isDefect } from "./parts/failure.tsx";
import { checkToken, readSession, type SavedSession, saveSession } from "./token.ts";
import { UserError } from "./user-error.ts";

interface Session {
  client: Stowage;
  /** Null for the operator, who manages the keys of all teams and can read nothing else. */
  team: SavedSession | null;
}

const LIFETIME_MILLISECONDS = 12 * 3_600_000;
/** Clocks that are synchronized over a network differ by less. */
const CLOCK_SKEW_MILLISECONDS = 5 * 60_000;
/** The longest delay that browsers accept for a timer. */
const MAX_TIMER_MILLISECONDS = 2 ** 31 - 1;

const clientFor = (key?: string) => new Stowage({ url: location.origin, key });

/** Null while signed out. */
export const session = signal<Session | null>(restoreSession());
/** Whether the session's key was rejected: the user signs in again, and uploads in progress are kept. */
export const isExpired = signal(false);
/** The client of the current session. */
export const client = computed(() => session.value?.client ?? clientFor());

function restoreSession(): Session | null {
  const team = readSession();
  return team && { client: clientFor(team.key), team };
}

const lifetimeOf = ({ createdAt, expiresAt }: ApiKey) => Date.parse(expiresAt) - Date.parse(createdAt);

/** Creates a key that expires in 12 hours by the service's clock, even if the browser's clock is wrong. */
async function createSessionKey({ keys }: Stowage): Promise<ApiKey> {
  const name = "Console";
  const expiryFrom = (now: number) => new Date(now + LIFETIME_MILLISECONDS).toISOString();
  const created = await keys.create({ name, expiresAt: expiryFrom(Date.now()) }).catch((error) => {
    if (!(error instanceof StowageError && error.code === "invalid_input")) throw error;
    // By the service's clock this expiry is in the past or years ahead. The response contains the correct time.
    return keys.create({ name });
  });
  if (Math.abs(lifetimeOf(created) - LIFETIME_MILLISECONDS) < CLOCK_SKEW_MILLISECONDS) return created;
  await keys.delete(created.id);
  return keys.create({ name, expiresAt: expiryFrom(Date.parse(created.createdAt)) });
}

/** @param credential identifies the user across sign-ins, so that only the same user resumes the uploads */
async function startSession(created: ApiKey, credential: string): Promise<void> {
  const { id, key, teamId } = created;
  // Without a secure connection browsers provide no digest, and each session has its own uploads.
  const digest = await crypto.subtle?.digest("SHA-256", new TextEncoder().encode(credential));
  const owner = digest ? btoa(String.fromCharCode(...new Uint8Array(digest))) : id;
  const expiresAt = new Date(Date.now() + lifetimeOf(created)).toISOString();
  const team = { id: teamId, key, keyId: id, owner, expiresAt };
  saveSession(team);
  session.value = { client: clientFor(key), team };
  isExpired.value = false;
}

/** Signs in with a secret key or the operator token. They differ in form, so no request fails on purpose. */
export async function signInWithKey(token: string): Promise<void> {
  checkToken(token);
  if (token.startsWith("stow_pk_"))
    throw new UserError("Public keys can only upload files. Sign in with a secret key.");
  const client = clientFor(token);
  if (token.startsWith("stow_sk_")) return startSession(await createSessionKey(client), token);
  await client.keys.list({ limit: 1 }).page();
  session.value = { client, team: null };
  isExpired.value = false;
}

interface Credentials {
  teamId: string;
  email: string;
  password: string;
}

export async function signInWithPassword(credentials: Credentials): Promise<void> {
  const { teamId, email } = credentials;
  await startSession(await clientFor().logIn(credentials), `${teamId} ${email.normalize("NFKC").toLowerCase()}`);
}

/** Ends the session. @throws StowageError if that fails; the browser has deleted the key anyway */
export async function signOut(): Promise<void> {
  const ended = session.value;
  saveSession(null);
  session.value = null;
  isExpired.value = false;
  if (!ended?.team) return;
  const { client, team } = ended;
  await client.logOut().catch((error) => {
    // The console created an API key, because the user signed in with one.
    if (error instanceof StowageError && error.code === "forbidden") return client.keys.delete(team.keyId);
    throw error;
  });
}

/**
 * Handles the failure of a request. A rejected key expires the session, unless the request came from an earlier session.
 * A defect is reported to the browser's console.
 */
export function noteFailure(error: unknown, caller: Stowage): void {
  if (isDefect(error)) reportError(error);
  else if (caller === session.peek()?.client && error instanceof StowageError && error.status === 401)
    isExpired.value = true;
}

effect(() => {
  const team = session.value?.team;
  if (!team) return;
  const delay = Math.min(Date.parse(team.expiresAt) - Date.now(), MAX_TIMER_MILLISECONDS);
  const timer = setTimeout(() => {
    isExpired.value = true;
  }, delay);
  return () => clearTimeout(timer);
});
