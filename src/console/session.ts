import { computed, effect, signal } from "@preact/signals";
import { type ApiKey, Stowage, StowageError } from "../client/stowage.ts";
import { isDefect } from "./parts/failure.tsx";
import { checkToken, type KeptSession, keepSession, readKeptSession } from "./token.ts";

/** Who looks at the console, and with which key it asks. */
interface Session {
  client: Stowage;
  /** Null for the operator, who manages the keys of all teams and sees nothing else of them. */
  team: KeptSession | null;
}

const HOURS = 12;
const LONGEST_TIMER_MILLISECONDS = 2 ** 31 - 1;

const clientOf = (key?: string) => new Stowage({ url: location.origin, key });

/** Null while nobody is signed in. */
export const session = signal<Session | null>(restore());
/** True when the session's key is refused: its person signs in again, and what is under way is kept. */
export const hasEnded = signal(false);
/** The client of whoever is signed in: pages that show nothing to others use it. */
export const client = computed(() => session.value?.client ?? clientOf());

function restore(): Session | null {
  const team = readKeptSession();
  return team && { client: clientOf(team.key), team };
}

function begin({ id, key, teamId, expiresAt }: ApiKey): void {
  const team = { id: teamId, key, keyId: id, expiresAt };
  keepSession(team);
  session.value = { client: clientOf(key), team };
  hasEnded.value = false;
}

/** With a secret key, or the operator's token. @throws StowageError; `forbidden` for a public key */
export async function signInWithKey(pasted: string): Promise<void> {
  checkToken(pasted);
  const client = clientOf(pasted);
  if (await isAllowed(client.usage())) {
    const expiresAt = new Date(Date.now() + HOURS * 3_600_000).toISOString();
    begin(await client.keys.create({ name: "Console", expiresAt }));
  } else if (await isAllowed(client.keys.list({ limit: 1 }).page())) {
    session.value = { client, team: null };
    hasEnded.value = false;
  } else {
    throw new StowageError("forbidden", "This is a public key: it can upload files, and nothing else.");
  }
}

export async function signInWithPassword(credentials: {
  teamId: string;
  email: string;
  password: string;
}): Promise<void> {
  begin(await clientOf().logIn(credentials));
}

/** Revokes the session's key. @throws StowageError where that failed; the browser has forgotten the key all the same */
export async function signOut(): Promise<void> {
  const ended = session.value;
  keepSession(null);
  session.value = null;
  hasEnded.value = false;
  if (ended?.team) await ended.client.keys.delete(ended.team.keyId);
}

/**
 * Whatever asks the service says here what failed, and which client asked: a refused key ends the session, unless it is
 * that of one before. A defect is told to the browser's console.
 */
export function noteFailure(error: unknown, asked: Stowage): void {
  if (isDefect(error)) reportError(error);
  else if (asked === session.peek()?.client && error instanceof StowageError && error.status === 401)
    hasEnded.value = true;
}

async function isAllowed(call: Promise<unknown>): Promise<boolean> {
  try {
    await call;
    return true;
  } catch (error) {
    if (error instanceof StowageError && error.code === "forbidden") return false;
    throw error;
  }
}

effect(() => {
  const team = session.value?.team;
  if (!team) return;
  const left = Math.min(Date.parse(team.expiresAt) - Date.now(), LONGEST_TIMER_MILLISECONDS);
  const timer = setTimeout(() => {
    hasEnded.value = true;
  }, left);
  return () => clearTimeout(timer);
});
