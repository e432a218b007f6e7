import type { ObjectClass } from "./objects.ts";

/** A rule that always holds for the records of a capability. `results` are the rows of each of its queries. */
export interface Invariant {
  /** Their parameter is the team. */
  queries: readonly string[];
  /** At any moment. `countOf` returns how many events of the type a subject has. */
  expectSound(results: unknown[][], countOf: (subjectId: string, type: string) => number): void;
  /** Once nothing is left to do. */
  expectFinished(teamId: string, results: unknown[][]): Promise<void>;
  /** Whether nothing is left to do in these teams, at most 90. */
  isFinished(teamIds: string[]): Promise<boolean>;
  /** Once nothing is left to do, of the objects of a world. */
  expectSettled(
    teamId: string,
    objects: { objectClass: ObjectClass; name: string; at: number | null }[],
  ): Promise<void>;
}
