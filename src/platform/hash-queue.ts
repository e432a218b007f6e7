import { AppError } from "../errors.ts";
import type { System } from "./system.ts";

/** scrypt blocks the isolate's only thread for about 0.1 s: two hashes at once would finish no sooner than one by one. */
const HASHES_AT_ONCE = 1;
/** About three seconds of hashing, a wait that a login form can show. */
export const MAX_WAITING_HASHES = 32;
/** A quarter of the queue, so one team leaves room for others. */
export const MAX_WAITING_HASHES_PER_TEAM = 8;
/** The longest wait for a full queue to drain. */
const RETRY_AFTER_SECONDS = 4;
/** The pause after each hash, in which other requests run. It is short compared to a hash. */
const PAUSE_MILLISECONDS = 20;
const POLL_MILLISECONDS = 10;
/** After a disconnect, a request may never resume. Its ticket is dropped after this time: ten hashes. */
const ABANDONED_MILLISECONDS = 1000;

/** A request that waits, or hashes. */
interface Ticket {
  team: string;
  /** Tickets of lower turns go first. All teams' first tickets run before any second ticket. */
  turn: number;
  polledAt: number;
}

/**
 * Limits how many passwords an isolate hashes at once. Teams take turns, so a team that sends many passwords delays
 * another team by one hash. Requests poll for their turn: none depends on another request, which may be canceled.
 */
export class HashQueue {
  readonly #system: System;
  /** In the order of arrival. */
  readonly #tickets = new Set<Ticket>();
  #turn = 0;

  constructor(system: System) {
    this.#system = system;
  }

  /** Runs `hash` when it is the team's turn. @throws `rate_limited` if too many requests wait, in all or of the team */
  async run<T>(team: string, hash: () => Promise<T>): Promise<T> {
    const ticket = this.#join(team);
    try {
      // Even the first waits once: requests that arrive together would otherwise hash one after another, unqueued.
      do await this.#system.sleep(POLL_MILLISECONDS);
      while (!this.#isNext(ticket));
      this.#turn = Math.max(this.#turn, ticket.turn);
      const result = await hash();
      if (this.#tickets.size > HASHES_AT_ONCE) await this.#system.sleep(PAUSE_MILLISECONDS);
      return result;
    } finally {
      this.#tickets.delete(ticket);
    }
  }

  #join(team: string): Ticket {
    this.#removeAbandoned();
    const ofTeam = [...this.#tickets].filter((ticket) => ticket.team === team);
    const isFull = this.#tickets.size >= HASHES_AT_ONCE + MAX_WAITING_HASHES;
    if (isFull || ofTeam.length >= HASHES_AT_ONCE + MAX_WAITING_HASHES_PER_TEAM) {
      throw new AppError("rate_limited", { retryAfterSeconds: RETRY_AFTER_SECONDS });
    }
    const lastTurn = Math.max(this.#turn - 1, ...ofTeam.map(({ turn }) => turn));
    const ticket = { team, turn: lastTurn + 1, polledAt: this.#system.now() };
    this.#tickets.add(ticket);
    return ticket;
  }

  #isNext(ticket: Ticket): boolean {
    ticket.polledAt = this.#system.now();
    this.#removeAbandoned();
    this.#tickets.add(ticket);
    const inOrder = [...this.#tickets].sort((a, b) => a.turn - b.turn);
    return inOrder.slice(0, HASHES_AT_ONCE).includes(ticket);
  }

  #removeAbandoned(): void {
    const oldest = this.#system.now() - ABANDONED_MILLISECONDS;
    for (const ticket of this.#tickets) if (ticket.polledAt < oldest) this.#tickets.delete(ticket);
  }
}
