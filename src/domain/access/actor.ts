/** An authenticated caller: a token of a team, or the operator, who manages teams and the keys of any team. */
export type Actor = Operator | TeamActor;

export interface Operator {
  kind: "operator";
  /** All scopes. */
  scopes: number;
}

export interface TeamActor {
  kind: "secret" | "public" | "session";
  teamId: string;
  /** The API key or session. */
  keyId: string;
  /** The user whose session it is, or whose session created the key. */
  userId: string | null;
  /** The mask of the scopes that the token has now. */
  scopes: number;
  /** Whose files the caller sees, see own-files.ts: its user's, or the key's. Null if it sees all files of its team. */
  ownerId: string | null;
}
