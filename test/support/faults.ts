import { expect } from "vitest";
import { type Fault, MOMENTS, ProxiedBindings } from "./bindings.ts";
import type { Team } from "./client.ts";
import { expectErased, expectSettled, expectSound } from "./invariants.ts";
import type { Row } from "./queries.ts";
import { emptyStores } from "./stores.ts";
import { isExhaustive } from "./tiers.ts";
import { World } from "./world.ts";

/*
 * Crash points. A scenario first runs without a fault, which counts its calls to D1, R2 and the queues. Then it runs once
 * per fault, each time in a separate team: a call fails or the Worker dies, before or after the call takes effect. Then
 * the bindings work again, days pass, the recovery job runs, and the invariants of support/invariants.ts must hold.
 *
 * `npm run test:all` enumerates every fault of every call of every scenario. `ProxiedBindings.everyFault` omits only faults
 * with the same rows, objects and response as another one. `npm test` runs the representative scenarios: every death of the
 * Worker (a third of them in scenarios that are marked as long, and of the recovery job), and one error for each call that
 * changes something. The kind and moment of the errors alternate, so that six such calls in a row get every combination.
 * Pairs of faults are left to the random steps of all/model.
 */

const ERRORS = ["transient", "permanent", "outage"] as const;

/** One team's part of a scenario. */
export interface Place {
  world: World;
  team: Team;
}

export interface Run<S, R> extends Place {
  bindings: ProxiedBindings;
  state: S;
  result: R;
  fault: Fault | undefined;
  /** The name of the call that fails. */
  call: string;
  /** The rows of the team's files right after the run, hidden ones included. */
  rows: Row[];
}

export interface Scenario<S, R> {
  /** @returns the state that `act` and `verify` need */
  prepare(place: Place): Promise<S>;
  /** The invocation that gets the faults, and what the client does after it. */
  act(state: S, bindings: ProxiedBindings, place: Place): Promise<R>;
  /** Checks the rows of the end state in addition to the invariants. */
  verify?(rows: Row[], run: Run<S, R>): void | Promise<void>;
  /** A fault in every run. Only the calls after it get another fault. */
  firstFault?(calls: string[]): Fault;
  /** The recovery job runs, which changes rows of every team, so each run is settled before the next one starts. */
  isRecovery?: true;
  /** Calls that change nothing get no fault. Another scenario enumerates those. */
  onlyChanges?: true;
  /** Each run takes so long that `npm test` runs only every third death. */
  isLong?: true;
  /** The test itself deletes bytes. */
  bytesLost?: boolean;
  /** Nothing is left of the team in the end. */
  isTeamDeleted?: true;
  /** Stands for the others in `npm test`. `npm run test:all` runs all scenarios. */
  isRepresentative?: true;
}

/** The scenarios that this run includes. */
export const included = <S extends { isRepresentative?: true }>(scenarios: [string, S][]): [string, S][] =>
  scenarios.filter(([, { isRepresentative = false }]) => isExhaustive || isRepresentative);

async function runOnce<S, R>(scenario: Scenario<S, R>, world: World, faults: Fault[]): Promise<Run<S, R>> {
  const place = { world, team: await world.newTeam() };
  const bindings = new ProxiedBindings(...faults);
  const state = await scenario.prepare(place);
  const result = await scenario.act(state, bindings, place);
  const rows = scenario.isTeamDeleted ? [] : await expectSound(place.team.teamId, scenario);
  const fault = faults.at(-1);
  const call = fault ? (bindings.calls[fault.call - 1] ?? "") : "";
  return { ...place, bindings, state, result, fault, call, rows };
}

async function expectRecovered<S, R>(scenario: Scenario<S, R>, run: Run<S, R>): Promise<void> {
  const { world, team } = run;
  if (scenario.isTeamDeleted) await expectErased(team.teamId, world);
  const rows = scenario.isTeamDeleted ? [] : await expectSettled(team.teamId, { ...scenario, world });
  const deleted = run.rows.filter(({ status }) => status === "deleting").map(({ id }) => id);
  expect(
    rows.filter(({ id }) => deleted.includes(id)),
    "a deleted file stays deleted",
  ).toEqual([]);
  await scenario.verify?.(rows, run);
}

/** Names the fault if the work throws. */
async function describing<T>(fault: Fault | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const where = fault ? `${fault.failure} ${fault.moment} call ${fault.call}` : "without a fault";
    throw new Error(`${where}: ${(error as Error).message}`, { cause: error });
  }
}

/** Runs the scenario once for each list of faults, recovers, and checks the end states. */
async function runAll<S, R>(scenario: Scenario<S, R>, faultLists: Fault[][]): Promise<Run<S, R>[]> {
  const world = new World();
  const runs: Run<S, R>[] = [];
  try {
    for (const faults of faultLists) runs.push(await describing(faults.at(-1), () => runOnce(scenario, world, faults)));
    await world.recoverAll(runs.map(({ team }) => team.teamId));
    for (const run of runs) await describing(run.fault, () => expectRecovered(scenario, run));
  } finally {
    await emptyStores();
  }
  return runs;
}

/** @returns the names of the calls, the number of those that can fail and that change something, and the number of runs */
export async function runEveryFault<S, R>(scenario: Scenario<S, R>) {
  let [faultless] = await runAll(scenario, [[]]);
  const firstFaults = scenario.firstFault ? [scenario.firstFault(faultless!.bindings.calls)] : [];
  if (firstFaults.length > 0) [faultless] = await runAll(scenario, [firstFaults]);
  const { bindings } = faultless!;
  const from = (firstFaults[0]?.call ?? 0) + 1;
  // The recovery job has no response. So an outage is like a death, and a transient failure before a call like a permanent
  // one, or like none if the call is repeated.
  const isOmitted = ({ call, moment, failure }: Fault) =>
    (scenario.onlyChanges && bindings.idle.has(call)) ||
    (scenario.isRecovery && (failure === "outage" || (failure === "transient" && moment === "before")));
  const errors = scenario.isRecovery ? (["permanent", "transient"] as const) : ERRORS;
  const isThinned = !isExhaustive && (scenario.isLong || scenario.isRecovery);
  let deaths = 0;
  const isSelected = ({ call, moment, failure }: Fault) => {
    if (isExhaustive) return true;
    if (failure === "death") return !isThinned || deaths++ % 3 === 0;
    const [error, when] = [errors[call % errors.length], MOMENTS[call % MOMENTS.length]];
    return !bindings.idle.has(call) && failure === error && moment === when;
  };
  const faults = [...bindings.everyFault(from)].filter((fault) => !isOmitted(fault) && isSelected(fault));
  const lists = faults.map((fault) => [...firstFaults, fault]);
  const groups = scenario.isRecovery ? lists.map((list) => [list]) : [lists];
  for (const group of groups) {
    for (const { fault, call } of await runAll(scenario, group)) {
      expect(call, "the scenario makes the same calls again").toBe(bindings.calls[fault!.call - 1]);
    }
  }
  const points = bindings.calls.slice(from - 1);
  const changes = points.filter((_, at) => !bindings.idle.has(from + at)).length;
  expect(changes).toBeGreaterThan(0);
  // At least a death and an error for each.
  if (!isThinned) expect(faults.length).toBeGreaterThanOrEqual(2 * changes - 1);
  return { points: points.length, changes, runs: faults.length, calls: bindings.calls };
}
