/**
 * The requests of an isolate that are about to change something, by what that is: what they have not written yet, a read
 * that overtakes them does not find. (Other isolates know nothing of them.)
 */
export class Arrivals {
  readonly #counts = new Map<string, number>();

  /** @returns what ends it; once it has, nothing more happens */
  begin(subject: string): () => void {
    this.#counts.set(subject, this.#countOf(subject) + 1);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      const left = this.#countOf(subject) - 1;
      if (left > 0) this.#counts.set(subject, left);
      else this.#counts.delete(subject);
    };
  }

  has(subject: string): boolean {
    return this.#counts.has(subject);
  }

  #countOf(subject: string): number {
    return this.#counts.get(subject) ?? 0;
  }
}
