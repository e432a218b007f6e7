import { batch, computed, effect, signal } from "@preact/signals";
import {
  type ApiKey,
  type ForgottenPassword,
  type InvitationDescription,
  type Me,
  Stowage,
  StowageError,
} from "../../client/index.ts";
import { isDefect, UserError } from "./errors.ts";
import { linkedTeam } from "./router.ts";
import { readStored, store } from "./storage.ts";
import { checkToken, readSession, type SavedSession, saveSession, sessionOfOtherTab } from "./token.ts";

export type Scope = NonNullable<Me["scopes"]>[number];

interface Session {
  client: Stowage;
  /** Null for the operator, who manages all teams and their keys, and can read nothing else. */
  team: SavedSession | null;
}

/** Without a network, a sign-out takes at most this long. */
const SIGN_OUT_MILLISECONDS = 5000;
/** The longest delay that browsers accept for a timer. */
const MAX_TIMER_MILLISECONDS = 2 ** 31 - 1;

/** Until when the service rejects requests because there were too many, as a time. The client repeats them then. */
export const limitedUntil = signal(0);
/** The route of the latest call that succeeded, such as `DELETE /auth/v1/users/{id}`. A new object for each call. */
export const latestCall = signal({ route: "" });

const clientFor = (key: string | null = null) =>
  new Stowage({
    url: location.origin,
    key,
    onRetry: ({ status, retryAfterSeconds = 0 }) => {
      if (status === 429) limitedUntil.value = Date.now() + retryAfterSeconds * 1000;
    },
    onSuccess: (route) => {
      latestCall.value = { route };
    },
  });

/** Null while signed out. */
export const session = signal<Session | null>(restore(readSession()));
/** Whether there is no telling yet who is signed in: a new tab asks the others for their session. */
export const isAsking = signal(session.peek() === null);
/** Whether a session is being ended, after which the page is loaded again. */
export const isLeaving = signal(false);
/** Whether the session's token was rejected: the user signs in again, and uploads in progress are kept. */
export const isExpired = signal(false);
/** The client of the current session. */
export const client = computed(() => session.value?.client ?? clientFor());

/** The session's user, role, and scopes. An admin may change the role. Null for the operator, and while signed out. */
export const me = signal<Me | null>(session.peek()?.team?.me ?? null);
/** How many days the trash keeps deleted files. 0: there is no trash. Undefined until the team has loaded. */
export const trashDays = signal<number | undefined>(undefined);
/** Whether the service sends emails. False until the team has loaded. */
export const sendsEmail = signal(false);
/** Whether the session may use operations that need the scope. The API decides; this only hides what it would reject. */
export const can = (scope: Scope): boolean =>
  session.value?.team === null || (me.value?.scopes?.includes(scope) ?? false);

/** The scope that a deletion needs: without a trash, it erases. */
export const deletionScope = (): Scope => (trashDays.value ? "files:delete" : "files:erase");

/** Whether deleted files go to a trash that the session may see. */
export const hasTrash = (): boolean => (trashDays.value ?? 0) > 0 && can("files:delete");

/** Whether the user is a contributor, who sees only their own files. */
export const seesOwnFilesOnly = (): boolean => me.value?.role === "contributor";

function restore(team: SavedSession | null): Session | null {
  return team && { client: clientFor(team.key), team };
}

/** Takes over the session of another tab, so that a link opens in a new tab without signing in again. */
export async function adoptSession(): Promise<void> {
  if (!isAsking.peek()) return;
  const team = await sessionOfOtherTab();
  // A link to another team asks for a session of that team.
  const isWanted = team !== null && (linkedTeam === null || linkedTeam === team.id);
  batch(() => {
    if (isWanted && !session.peek()) {
      saveSession(team);
      me.value = team.me;
      session.value = restore(team);
    }
    isAsking.value = false;
  });
}

/** Reads again what the session may do. */
export async function refreshMe(): Promise<void> {
  const current = session.peek();
  if (!current?.team) return;
  const refreshed = await current.client.me();
  if (session.peek() !== current) return;
  me.value = refreshed;
  saveSession({ ...current.team, me: refreshed });
}

const lifetimeOf = ({ createdAt, expiresAt }: ApiKey) => Date.parse(expiresAt) - Date.parse(createdAt);

/**
 * @param credential identifies the user across sign-ins, so that only the same user resumes the uploads
 * @param onReady is called when nothing can fail any more, before the session begins
 */
async function startSession(created: ApiKey, credential: string, onReady = () => {}): Promise<void> {
  const { id, key, name, teamId } = created;
  const client = clientFor(key);
  // Without a secure connection browsers provide no digest, and each session has its own uploads.
  const digest = await crypto.subtle?.digest("SHA-256", new TextEncoder().encode(credential));
  const owner = digest ? btoa(String.fromCharCode(...new Uint8Array(digest))) : id;
  const expiresAt = new Date(Date.now() + lifetimeOf(created)).toISOString();
  const team = { id: teamId, key, keyId: id, name, owner, expiresAt, me: await client.me() };
  const before = session.peek();
  saveSession(team);
  onReady();
  // Nothing that the last user has loaded stays for another one.
  if (before && before.team?.owner !== owner) return location.reload();
  batch(() => {
    me.value = team.me;
    session.value = { client, team };
    isExpired.value = false;
  });
}

/** Signs in with a secret key, which makes a session, or with the operator token. They differ in form. */
export async function signInWithKey(token: string): Promise<void> {
  checkToken(token);
  if (token.startsWith("stow_pk_"))
    throw new UserError("Public keys can only upload files. Sign in with a secret key.");
  const client = clientFor(token);
  if (token.startsWith("stow_sk_")) return startSession(await client.sessions.create(), token);
  await client.me();
  batch(() => {
    me.value = null;
    session.value = { client, team: null };
    isExpired.value = false;
  });
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

/** The team that somebody last signed in to on this device by email. It isn't secret. */
interface LastTeam {
  id: string;
  /** Undefined until the team has loaded. */
  name?: string;
}

const LAST_TEAM = "stowage.team";

export const rememberTeam = (team: LastTeam): void => store("localStorage", LAST_TEAM, team);
export const lastTeam = (): LastTeam | null => readStored("localStorage", LAST_TEAM);

/** Sends a link to set a new password, if there is such a user. @throws StowageError if the service sends no emails */
export const requestReset = (user: ForgottenPassword): Promise<void> => clientFor().forgotPassword(user);

/** Returns whom the token of an invitation invites. */
export const describeInvitation = (token: string): Promise<InvitationDescription> =>
  clientFor().describeInvitation({ token });

/** Sets the password of an invited user. @returns the token of a session, which `startInvited` begins */
export const acceptInvitation = (acceptance: { token: string; password: string }): Promise<ApiKey> =>
  clientFor().acceptInvitation(acceptance);

/** Signs in as a user who has accepted an invitation. @param leavePage replaces the URL, which contains the used token */
export function startInvited(created: ApiKey, leavePage: () => void): Promise<void> {
  rememberTeam({ id: created.teamId });
  return startSession(created, created.id, leavePage);
}

/** Ends the session. The page has to be reloaded afterwards. @throws StowageError if that fails; the browser has deleted the key anyway */
export async function signOut(): Promise<void> {
  const ended = session.value;
  saveSession(null);
  batch(() => {
    // Nobody signs in to a page that is about to be reloaded.
    isLeaving.value = true;
    session.value = null;
    isExpired.value = false;
  });
  if (ended?.team) await ended.client.logOut({ timeout: SIGN_OUT_MILLISECONDS, maxRetries: 0 });
}

/**
 * Handles the failure of a request. A rejected key expires the session, unless the request came from an earlier session.
 * After a missing scope, the session's scopes are read again. A defect is reported to the browser's console.
 */
export function noteFailure(error: unknown, caller: Stowage): void {
  if (isDefect(error)) reportError(error);
  else if (caller !== session.peek()?.client || !(error instanceof StowageError)) return;
  else if (error.status === 401) isExpired.value = true;
  else if (error.code === "insufficient_scope") void refreshMe().catch(() => {});
}

/** Calls the service. If the session has ended, the user signs in again. */
export async function call<T>(work: (caller: Stowage) => Promise<T>): Promise<T> {
  const caller = client.peek();
  try {
    return await work(caller);
  } catch (error) {
    // The browser's own errors: the call was aborted, or a file can't be read.
    if (!(error instanceof DOMException)) noteFailure(error, caller);
    throw error;
  }
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
