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

const LIFE_MILLISECONDS = 12 * 3_600_000;
/** Clocks that are set by a network differ by less. */
const SKEW_MILLISECONDS = 5 * 60_000;
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

const lifeOf = ({ createdAt, expiresAt }: ApiKey) => Date.parse(expiresAt) - Date.parse(createdAt);

/** A key of the console's own for 12 hours by the service's clock, however wrong the browser's is. */
async function makeKey({ keys }: Stowage): Promise<ApiKey> {
  const name = "Console";
  const until = (now: number) => new Date(now + LIFE_MILLISECONDS).toISOString();
  const made = await keys.create({ name, expiresAt: until(Date.now()) }).catch((error) => {
    if (!(error instanceof StowageError && error.code === "invalid_input")) throw error;
    // What ends 12 hours from now has ended already, or lies years ahead: any key tells what time it is.
    return keys.create({ name });
  });
  if (Math.abs(lifeOf(made) - LIFE_MILLISECONDS) < SKEW_MILLISECONDS) return made;
  await keys.delete(made.id);
  return keys.create({ name, expiresAt: until(Date.parse(made.createdAt)) });
}

/** @param proof what its person signed in with */
async function begin(made: ApiKey, proof: string): Promise<void> {
  const { id, key, teamId } = made;
  // Browsers digest only where the connection is secure: elsewhere nobody is known again.
  const digest = await crypto.subtle?.digest("SHA-256", new TextEncoder().encode(proof));
  const owner = digest ? btoa(String.fromCharCode(...new Uint8Array(digest))) : id;
  const team = { id: teamId, key, keyId: id, owner, expiresAt: new Date(Date.now() + lifeOf(made)).toISOString() };
  keepSession(team);
  session.value = { client: clientOf(key), team };
  hasEnded.value = false;
}

/** With a secret key, or the operator's token. @throws StowageError; `forbidden` for a public key */
export async function signInWithKey(pasted: string): Promise<void> {
  checkToken(pasted);
  const client = clientOf(pasted);
  if (await isAllowed(client.usage())) {
    await begin(await makeKey(client), pasted);
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
  const { teamId, email } = credentials;
  await begin(await clientOf().logIn(credentials), `${teamId} ${email.normalize("NFKC").toLowerCase()}`);
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
