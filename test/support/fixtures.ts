import { test as base } from "vitest";
import { newTeam } from "./harness.ts";
import { World } from "./world.ts";

/*
 * The fixtures that most tests begin with. A test gets only what it names: `test("…", async ({ team }) => …)`. A file whose
 * teams need another Worker replaces the fixture: `apiTest.extend("team", () => newTeam(worker))`.
 */

/** `team`: a separate team, whose calls go to a Worker in this process. */
export const apiTest = base.extend("team", () => newTeam());

/** `world`: a separate clock and queues. `team`: a team whose calls go through that world. */
export const worldTest = base.extend("world", () => new World()).extend("team", ({ world }) => world.newTeam());
