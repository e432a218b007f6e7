import { AppError } from "../errors.ts";

/*
 * The bodies that an isolate is receiving, however slowly. Each holds up to `BODY_BYTES` that nothing else counts: the first bytes of
 * a JSON body, or a read buffer, the texts of a form and the first bytes of a part. What a body holds beyond that comes from the
 * memory budget (part.ts).
 */

export const BODY_BYTES = 64 * 1024;
/** 32 MiB. With the 48 MiB of the memory budget, the code and its other data, that is less than the isolate's 128 MB. */
export const MAX_BODIES = 512;
/** Bodies of visitors and of callers without a token, which anybody can send: 20 MiB, a quarter of both. */
export const MAX_VISITOR_BODIES = 320;
/** Bodies of a team's visitors, and of its other callers. Leaves some to other teams. */
export const MAX_BODIES_PER_TEAM = 300;
/** Leaves some to other clients. An office, or a backend that forwards what its users send, has one client IP. */
export const MAX_BODIES_PER_CLIENT_IP = 300;
/** A client must average at least this rate, plus one idle period of slack. */
export const MIN_BYTES_PER_SECOND = 8 * 1024;
/** A fast body ends within seconds, and a slow one may take hours. */
const RETRY_SECONDS = 5;

/** The owner of a body. A part is null if it is unknown or has no limit. */
export interface BodySender {
  /** A visitor, or a caller without a token. */
  isVisitor: boolean;
  /** Null for a caller without a token. */
  teamId: string | null;
  clientIp: string | null;
}

/** A body that is being received. It counts until it is released, or collected because its invocation was killed. */
export interface BodySlot {
  release(): void;
}

/** Counts the bodies in progress of an isolate. */
export class Bodies {
  readonly #counts = new Map<string, number>();
  readonly #collected = new FinalizationRegistry<() => void>((leave) => leave());

  /** @throws `unavailable` with `Retry-After` if too many bodies are in progress */
  enter({ isVisitor, teamId, clientIp }: BodySender): BodySlot {
    const limits: [name: string | false, limit: number][] = [
      ["all", MAX_BODIES],
      [isVisitor && "visitors", MAX_VISITOR_BODIES],
      [teamId !== null && `${isVisitor ? "visitors of " : ""}team ${teamId}`, MAX_BODIES_PER_TEAM],
      [clientIp !== null && `client ${clientIp}`, MAX_BODIES_PER_CLIENT_IP],
    ];
    const names = limits.flatMap(([name]) => name || []);
    const isFull = limits.some(([name, limit]) => name && (this.#counts.get(name) ?? 0) >= limit);
    if (isFull) {
      const message = "Too many requests are sending a body at the same time. Retry shortly.";
      throw new AppError("unavailable", { message, retryAfterSeconds: RETRY_SECONDS });
    }
    for (const name of names) this.#add(name, 1);
    let hasLeft = false;
    const leave = () => {
      if (hasLeft) return;
      hasLeft = true;
      for (const name of names) this.#add(name, -1);
    };
    const slot = { release: () => leave() };
    this.#collected.register(slot, leave);
    return slot;
  }

  #add(name: string, by: number): void {
    const count = (this.#counts.get(name) ?? 0) + by;
    if (count === 0) this.#counts.delete(name);
    else this.#counts.set(name, count);
  }
}
