import { readAs, type TeamActor, type Viewer } from "../../src/access/authorization.ts";
import type { Deps } from "../../src/deps.ts";
import type { Query } from "../../src/platform/db.ts";

const rowsOf = (_: Viewer): Query<string[]> => {
  throw new Error("Only types.");
};

/** Nothing but `readAs` has whose rows a caller sees before the caller is authorized. `tsc` checks that each line marked below is an error. */
export const viewersOf = (deps: Deps, actor: TeamActor, credential: Parameters<typeof readAs>[1]) => [
  readAs(deps, credential, rowsOf),
  // @ts-expect-error: a rule can't name a team.
  rowsOf({ teamId: "team", ownerId: null }),
  // @ts-expect-error: neither can it pass the caller of another read.
  rowsOf(actor),
  // @ts-expect-error: what is remembered is no result.
  readAs(deps, credential, (viewer) => viewer),
];
