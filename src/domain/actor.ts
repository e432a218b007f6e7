/**
 * Who calls. A secret key acts for its team; a public key may ship in a web page and only uploads; the operator
 * creates, lists, fetches and deletes keys of any team, and nothing else.
 */
export type Actor = { kind: "operator" } | { kind: "secret" | "public"; teamId: string; keyId: string };

/** One that belongs to a team. */
export type TeamActor = Extract<Actor, { teamId: string }>;

/** What an operation needs of its caller: to manage keys, to act for a team, or to upload for it. */
export type Right = "keys" | "team" | "upload";

/** Who may have a right: the operator manages keys only. */
export type ActorWith<R extends Right> = R extends "keys" ? Actor : TeamActor;

const RIGHTS: Record<Actor["kind"], readonly Right[]> = {
  operator: ["keys"],
  secret: ["keys", "team", "upload"],
  public: ["upload"],
};

export function may(actor: Actor, right: Right): boolean {
  return RIGHTS[actor.kind].includes(right);
}
