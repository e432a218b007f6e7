import type fc from "fast-check";
import { expect } from "vitest";
import { type PendingCall, ProxiedBindings } from "./bindings.ts";
import type { Place } from "./faults.ts";
import { expectErased, expectSettled, expectSound } from "./invariants.ts";
import type { Row } from "./queries.ts";
import { emptyStores } from "./stores.ts";
import { isExhaustive } from "./tiers.ts";
import { World } from "./world.ts";

/*
 * Orders of calls. Several invocations run at once, and each of their calls to D1, R2, queues and objects waits until it is
 * chosen. Only one call is in flight at a time, so the order of the calls decides everything: each batch of D1 is atomic.
 * Calls that one invocation sends at once keep their order.
 *
 * `everyOrder` enumerates the orders in which an invocation is left only so often before it ends. Of a race that goes wrong,
 * one or two such switches usually suffice, and all orders would be too many. A message is sent at once, because no call
 * reads a queue.
 */

/** A call that waits for its turn. `by` is the number of its invocation. */
export interface Turn extends PendingCall {
  by: number;
}
/** @returns which of the calls is next. There is at most one of each invocation. */
export type Choose = (waiting: Turn[]) => Turn | Promise<Turn>;
export type Invoke<R> = (bindings: ProxiedBindings) => Promise<R>;

/** Runs the invocations at once, with their calls in the order that `choose` determines. */
export async function interleave<R>(
  invocations: Invoke<R>[],
  choose: Choose,
): Promise<{ results: R[]; order: Turn[] }> {
  const waiting: { turn: Turn; go: () => Promise<unknown> }[] = [];
  const order: Turn[] = [];
  const hasEnded = invocations.map(() => false);
  let changed = Promise.withResolvers<void>();
  const isQuiet = (by: number) => hasEnded[by] || waiting.some(({ turn }) => turn.by === by);
  const notify = () => {
    changed.resolve();
    changed = Promise.withResolvers();
  };
  const untilQuiet = async (by: number) => {
    while (!isQuiet(by)) await changed.promise;
  };
  const results: Promise<R>[] = [];
  for (const [by, invoke] of invocations.entries()) {
    const bindings = new ProxiedBindings();
    bindings.sendInTurn = (call, send) =>
      new Promise((resolve, reject) => {
        const go = () => {
          const sent = send();
          sent.then(resolve, reject);
          return sent.catch(() => undefined);
        };
        waiting.push({ turn: { ...call, by }, go });
        notify();
      });
    const result = invoke(bindings).finally(() => {
      hasEnded[by] = true;
      notify();
    });
    // A failure is thrown below, when all have ended.
    result.catch(() => undefined);
    results.push(result);
    await untilQuiet(by);
  }
  while (waiting.length > 0) {
    const first = waiting.filter(({ turn: { by } }, i) => waiting.findIndex(({ turn }) => turn.by === by) === i);
    const turn = await choose(first.map(({ turn }) => turn).sort((a, b) => a.by - b.by));
    const [next] = waiting.splice(
      waiting.findIndex((one) => one.turn === turn),
      1,
    );
    order.push(turn);
    await next?.go();
    // An invocation that already waits with another call may send a further one, for which `untilQuiet` would not wait.
    await new Promise((resolve) => setTimeout(resolve));
    await untilQuiet(turn.by);
  }
  return { results: await Promise.all(results), order };
}

/** An order is shown by the invocation and name of each call. */
export const describeOrder = (order: Turn[]) => order.map(({ by, name }) => `${by + 1} ${name}`).join(", ");

/**
 * Calls `run` once for each order that at most `maxSwitches` times leaves an invocation whose next call waits. If the
 * invocations are the same, only for those that the first one begins. @returns the number of runs
 *
 * For example, each of two invocations makes the calls a and b. With one switch, the orders are, as they run:
 *
 *   1a 1b 2a 2b   no switch: the first invocation has ended before the second one goes
 *   1a 2a 2b 1b   one switch after 1a: the second invocation ends, and so the return to 1b is none
 *   2a 1a 1b 2b   one switch after 2a
 *   2a 2b 1a 1b   no switch
 *
 * Two switches add 1a 2a 1b 2b, which leaves the first invocation and then the second one, and 2a 1a 2b 1b.
 */
export async function everyOrder(
  run: (choose: Choose) => Promise<{ order: Turn[] }>,
  maxSwitches: number,
  isSymmetric = false,
): Promise<number> {
  /** The chosen invocation of each step, and those that are still to be chosen there. */
  const path: { by: number; others: number[] }[] = [];
  for (let runs = 1; ; runs++) {
    let [step, switches] = [0, 0];
    let before: Turn | undefined;
    const choose = (waiting: Turn[]): Turn => {
      const of = (by: number) => waiting.find((turn) => turn.by === by);
      const isSwitch = ({ by }: Turn) => before !== undefined && by !== before.by && of(before.by) !== undefined;
      if (step === path.length) {
        const message = waiting.find(({ binding }) => binding === "Queue");
        const allowed = waiting.filter((turn) => !isSwitch(turn) || switches < maxSwitches);
        const [by, ...others] = (message ? [message] : allowed.length > 0 ? allowed : waiting).map((turn) => turn.by);
        path.push({ by: by as number, others: isSymmetric && path.length === 0 ? [] : others });
      }
      const turn = of(path[step++]?.by as number);
      if (!turn) throw new Error("The invocations made other calls in the same order.");
      if (isSwitch(turn) && turn.binding !== "Queue") switches++;
      before = turn;
      return turn;
    };
    const { order } = await run(choose);
    if (order.length !== path.length) throw new Error("The invocations made fewer calls in the same order.");
    while (path.at(-1)?.others.length === 0) path.pop();
    const last = path.at(-1);
    if (!last) return runs;
    last.by = last.others.shift() as number;
  }
}

/** Lets the scheduler of fast-check choose, which reports the order of a failure. */
export function chooseBy(scheduler: fc.Scheduler): Choose {
  const known = new Set<Turn>();
  let next: Turn | undefined;
  return async (waiting) => {
    for (const turn of waiting) {
      if (known.has(turn)) continue;
      known.add(turn);
      scheduler.schedule(Promise.resolve(), `${turn.by + 1} ${turn.name}`).then(() => {
        next = turn;
      });
    }
    await scheduler.waitNext(1);
    return next as Turn;
  };
}

/** The result of one act, such as `200` or an error code. */
export type ActOutcome = string | number;

export interface Raced<S> extends Place {
  state: S;
  outcomes: ActOutcome[];
  order: Turn[];
  /** The rows of the team's files right after the acts, hidden ones included. */
  rows: Row[];
}

/** Acts that happen at once, and what must hold after every order of their calls. */
export interface Race<S> {
  /** @returns the state that the acts need */
  prepare(place: Place): Promise<S>;
  acts: ((state: S, bindings: ProxiedBindings, place: Place) => Promise<ActOutcome>)[];
  /** Exactly the combinations of outcomes to which orders lead, such as `200 not_found`. */
  outcomes?: string[];
  /** Checks the state right after the acts, besides the invariants of support/invariants.ts. */
  verify?(raced: Raced<S>): void | Promise<void>;
  /** Checks the state once the recovery job has run. */
  verifySettled?(rows: Row[], raced: Raced<S>): void | Promise<void>;
  /** Nothing is left of the team in the end. */
  isTeamDeleted?: true;
  /** The acts are the same up to the names, and so are an order and its mirror image. Only those that the first one begins run. */
  isSymmetric?: true;
  /** The recovery job is an act, which changes rows of every team, so each order is settled before the next one runs. */
  isRecovery?: true;
  /** Another race of similar writes stands for it in `npm test`. */
  isLikeAnother?: true;
}

async function describing<T>(order: Turn[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new Error(`in the order ${describeOrder(order)}: ${(error as Error).message}`, { cause: error });
  }
}

/** Runs the acts once, in a separate team. */
async function runRace<S>(race: Race<S>, world: World, choose: Choose): Promise<Raced<S>> {
  const place = { world, team: await world.newTeam() };
  const state = await race.prepare(place);
  const seen: Turn[] = [];
  const noting: Choose = async (waiting) => {
    const turn = await choose(waiting);
    seen.push(turn);
    return turn;
  };
  const invocations = race.acts.map((act) => (bindings: ProxiedBindings) => act(state, bindings, place));
  return describing(seen, async () => {
    const { results: outcomes, order } = await interleave(invocations, noting);
    if (race.outcomes) expect(race.outcomes).toContain(outcomes.join(" "));
    const rows = race.isTeamDeleted ? [] : await expectSound(place.team.teamId);
    const raced = { ...place, state, outcomes, order, rows };
    await race.verify?.(raced);
    return raced;
  });
}

/** Lets days pass, runs the recovery job, and checks the end states. */
async function expectRacesSettled<S>(race: Race<S>, world: World, all: Raced<S>[]): Promise<void> {
  await world.recoverAll(all.map(({ team }) => team.teamId));
  for (const raced of all) {
    const { teamId } = raced.team;
    await describing(raced.order, async () => {
      if (race.isTeamDeleted) await expectErased(teamId, world);
      const rows = race.isTeamDeleted ? [] : await expectSettled(teamId, { world });
      await race.verifySettled?.(rows, raced);
    });
  }
}

/** Runs the acts once, in a separate world, and settles them. */
export async function raceAlone<S>(race: Race<S>, choose: Choose): Promise<Raced<S>> {
  const world = new World();
  try {
    const raced = await runRace(race, world, choose);
    await expectRacesSettled(race, world, [raced]);
    return raced;
  } finally {
    await emptyStores();
  }
}

/**
 * `npm test` runs the orders in which an invocation is left at most once before it ends, and `npm run test:all` those with at
 * most two such switches. The recovery job makes many calls, so its races always have one.
 */
const maxSwitches = ({ isRecovery }: { isRecovery?: true }) => (isExhaustive && !isRecovery ? 2 : 1);

/** Runs the race in every order with few switches. @returns the number of orders and of those with each outcome */
export async function runEveryOrder<S>(race: Race<S>) {
  const world = new World();
  const all: Raced<S>[] = [];
  try {
    await everyOrder(
      async (choose) => {
        const raced = race.isRecovery ? await raceAlone(race, choose) : await runRace(race, world, choose);
        all.push(raced);
        return raced;
      },
      maxSwitches(race),
      race.isSymmetric,
    );
    if (!race.isRecovery) await expectRacesSettled(race, world, all);
  } finally {
    await emptyStores();
  }
  const outcomes: Record<string, number> = {};
  for (const raced of all) {
    const name = raced.outcomes.join(" ");
    outcomes[name] = (outcomes[name] ?? 0) + 1;
  }
  const mirrored = race.isSymmetric ? all.map((raced) => raced.outcomes.toReversed().join(" ")) : [];
  const found = new Set([...Object.keys(outcomes), ...mirrored]);
  if (race.outcomes)
    expect([...found].sort(), "each outcome has an order that leads to it").toEqual(race.outcomes.toSorted());
  return { orders: all.length, calls: all[0]?.order.length, outcomes };
}
