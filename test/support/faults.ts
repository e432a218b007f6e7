import { expect } from "vitest";
import { type Fault, type InjectedFault, MOMENTS, ProxiedBindings } from "./bindings.ts";
import type { Team } from "./client.ts";
import { expectErased, expectSettled, expectSound } from "./invariants.ts";
import type { Row } from "./queries.ts";
import { snapshot } from "./rows.ts";
import { emptyStores } from "./stores.ts";
import { isExhaustive } from "./tiers.ts";
import { World } from "./world.ts";

/*
 * Crash points. A scenario first runs without a fault, which counts its calls to D1, R2 and the queues. Then it runs once
 * per fault, each time in a separate team: a call fails or the Worker dies, before or after the call takes effect. Then
 * the bindings work again, days pass, the recovery job runs, and the invariants of support/invariants.ts must hold.
 *
 * `npm run test:all` enumerates every fault of every call of every scenario. `ProxiedBindings.everyFault` omits only faults
 * with the same rows, objects and response as another one, which `expectSameAsOthers` shows. `npm test` runs the representative scenarios: every death of the
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

/** Runs the scenario without a fault besides the first one. */
async function runFaultless<S, R>(scenario: Scenario<S, R>) {
  const [faultless] = await runAll(scenario, [[]]);
  if (!scenario.firstFault) return { bindings: faultless!.bindings, firstFaults: [], from: 1 };
  const first = scenario.firstFault(faultless!.bindings.calls);
  const [failed] = await runAll(scenario, [[first]]);
  return { bindings: failed!.bindings, firstFaults: [first], from: first.call + 1 };
}

/** A value as text, without what differs in each run: ids, keys, hashes and times. */
const shapeOf = (value: unknown): string =>
  JSON.stringify(value, (_, one) => {
    if (one instanceof Headers) return undefined;
    if (typeof one === "number" && one > 1e12) return "time";
    return typeof one === "string"
      ? one.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "time").replace(/[\w-]{16,}/g, "id")
      : one;
  });

/**
 * Runs the scenario once for every fault, also for those that `everyFault` omits, and compares each of these with those
 * that stand for it: in its rows and objects, and in its response. @returns the number of runs, and of the compared ones
 */
export async function expectSameAsOthers<S, R>(scenario: Scenario<S, R>) {
  const { bindings, firstFaults, from } = await runFaultless(scenario);
  const nameOf = ({ failure, moment, call }: InjectedFault) =>
    `${failure} ${moment} ${call} ${bindings.calls[call - 1]}`;
  const faults = [...bindings.allFaults(from)];
  const seen = new Map<string, { state: string; response: string }>();
  const withShapes: Scenario<S, R> = {
    ...scenario,
    async act(state, injected, place) {
      const result = await scenario.act(state, injected, place);
      const rows = Object.entries(await snapshot(place.team.teamId)).map(([table, found]) =>
        [table, ...(found ?? []).map(shapeOf).sort()].join("\n"),
      );
      const name = nameOf(faults[seen.size] as InjectedFault);
      seen.set(name, { state: rows.join("\n"), response: shapeOf(injected.outcome ?? null) });
      return result;
    },
  };
  await runAll(
    withShapes,
    faults.map((fault) => [...firstFaults, fault]),
  );
  const omitted = faults.filter((fault) => bindings.equalsOf(fault, from));
  for (const fault of omitted) {
    const { state, response } = bindings.equalsOf(fault, from)!;
    const found = seen.get(nameOf(fault));
    const [stateName, responseName] = [nameOf(state), nameOf(response)];
    expect(found?.state, `${nameOf(fault)} leaves the rows of ${stateName}`).toBe(seen.get(stateName)?.state);
    expect(found?.response, `${nameOf(fault)} responds as ${responseName}`).toBe(seen.get(responseName)?.response);
  }
  return { runs: faults.length, compared: omitted.length };
}

/** @returns the names of the calls, the number of those that can fail and that change something, and the number of runs */
export async function runEveryFault<S, R>(scenario: Scenario<S, R>) {
  const { bindings, firstFaults, from } = await runFaultless(scenario);
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
