import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { describe, expect, test } from "vitest";
import * as view from "../../src/client/element-state.ts";
import * as state from "../../src/client/upload-state.ts";
import { isExhaustive } from "../support/tiers.ts";

const real = { ...state, ...view };
type Core = typeof real;
type Effect = state.UploadEffect;
type Event = state.UploadEvent<null>;
type Item = state.Item<null>;

/*
 * All that two tabs can do with the uploads of a page: every order in which users act, and in which effects end. The world
 * around the function is a model of the browser and of the service.
 */

/** A record of the browser's storage. */
interface Record_ {
  lock: string;
  state: "take" | "file" | "stored" | "completed";
  isRecording: boolean;
  hasBytes: boolean;
  /** Parts of a recording. */
  parts: number;
  hasUrl: boolean;
}

interface Tab {
  uploads: state.Uploads<null>;
  /** Effects that run. Those of the storage end in their order. */
  running: ((Effect | { type: "late"; key: string }) & { isStopped?: boolean; isOn?: boolean })[];
  /** The keys of the files whose bytes the page has, and the parts of its recordings. */
  bytes: Record<string, number>;
}

interface World {
  tabs: Tab[];
  records: Record<string, Record_>;
  /** Who waits for a lock, the holder first. */
  locks: Record<string, number[]>;
  /** The parts that the microphone has recorded, until the recording is stored or the user cancels it. */
  recorded: Record<string, number>;
  /** The files that the user has added, and has not canceled or replaced. */
  chosen: Record<string, true>;
  /** What may still happen, and how often. */
  left: Record<string, number>;
}

interface Setting {
  isForm: boolean;
  isSingle?: boolean;
  /** Whether the browser denies all storage. */
  isDenied?: boolean;
  /** Every order of so many events is tried, of one more in `npm run test:all`. */
  steps?: number;
  left: Record<string, number>;
}

const STORAGE = new Set(["list", "load", "write", "erase", "append"]);
const isStorage = (effect: { type: string }): effect is Effect => STORAGE.has(effect.type);
const LARGE = 9_000_000;

class Model {
  readonly #core: Core;
  readonly #setting: Setting;
  readonly #texts = new WeakMap<object, string>();

  constructor(core: Core, setting: Setting) {
    this.#core = core;
    this.#setting = setting;
  }

  /** One tab shows the page. */
  begin(): World {
    const tabs = [this.#openTab("0"), this.#openTab("1")];
    const world = { tabs, records: {}, locks: {}, recorded: {}, chosen: {}, left: this.#setting.left };
    return this.drain(this.#send(world, 0, { type: "open" }));
  }

  #openTab(own: string): Tab {
    const { isForm, isSingle = false } = this.#setting;
    const uploads = { ...this.#core.createUploads<null>(own, isForm), isReady: true, isSingle };
    return { uploads, running: [], bytes: {} };
  }

  text(world: World): string {
    const uploads = world.tabs.map((tab) => {
      const known = this.#texts.get(tab.uploads);
      if (known !== undefined) return known;
      const { items, locks, ...others } = tab.uploads;
      const text = JSON.stringify([others, [...items.values()], [...locks]]);
      this.#texts.set(tab.uploads, text);
      return text;
    });
    return (
      uploads.join() +
      JSON.stringify([
        world.tabs.map(({ running, bytes }) => [running, bytes]),
        world.records,
        world.locks,
        world.recorded,
        world.chosen,
        world.left,
      ])
    );
  }

  /** @returns what may happen next, by its name: first what users do, then how effects end */
  next(world: World): { users: Map<string, () => World>; effects: Map<string, () => World> } {
    const users = new Map<string, () => World>();
    const effects = new Map<string, () => World>();
    for (const [place, tab] of world.tabs.entries()) {
      const user = (name: string, kind: string, event: Event, change?: (world: World) => void) => {
        if ((world.left[kind] ?? 0) === 0) return;
        users.set(`${place}: ${name}`, () => {
          const next = this.#copy(world);
          next.left = { ...next.left, [kind]: (next.left[kind] ?? 0) - 1 };
          change?.(next);
          return this.#send(next, place, event);
        });
      };
      this.#addUsers(world, place, tab, user);
      this.#addEffects(world, place, tab, effects);
    }
    if ((world.left.kill ?? 0) > 0)
      for (const place of world.tabs.keys()) users.set(`${place}: dies`, () => this.#kill(world, place));
    return { users, effects };
  }

  #addUsers(
    world: World,
    place: number,
    tab: Tab,
    user: (name: string, kind: string, event: Event, change?: (world: World) => void) => void,
  ) {
    const { uploads } = tab;
    if (!uploads.isOpen) user("opens", "open", { type: "open" });
    else user("closes", "close", { type: "close" });
    user("is disabled or enabled", "disable", { type: "set", isDisabled: !uploads.isDisabled });
    user("is ready or not", "ready", { type: "set", isReady: !uploads.isReady });
    user("submits", "submit", { type: "submit" }, (next) => {
      for (const { key, id } of uploads.items.values()) if (id !== undefined) delete next.chosen[key];
    });
    user("wakes", "wake", { type: "wake" });
    const count = this.#setting.left.add ?? 0;
    const number = count - (world.left.add ?? 0);
    for (const source of ["a", "b"].slice(0, number + 1)) {
      const key = this.#core.findAgain(uploads, source)?.key ?? `${source}${number}`;
      const item = { key, source, name: source, size: source === "a" ? LARGE : 1, details: null };
      user(`adds ${source}`, "add", { type: "add", items: [item] }, (next) => {
        if (uploads.isDisabled) return;
        (next.tabs[place] as Tab).bytes[key] = 1;
        this.#replace(next, uploads);
        next.chosen[key] = true;
      });
    }
    user("records", "record", { type: "record", key: `r${place}` });
    for (const item of uploads.items.values()) {
      const { key, state } = item;
      if (state === "recording" || uploads.asking === key) user(`stops ${key}`, "stop", { type: "stop", key });
      if (state === "recorded")
        user(`sends ${key}`, "send", { type: "send", key }, (next) => this.#replace(next, uploads));
      if (state === "failed" || item.runs === "sleep") user(`retries ${key}`, "retry", { type: "retry", keys: [key] });
      if (!this.#core.isLeaving(item))
        user(`cancels ${key}`, "cancel", { type: "cancel", keys: [key] }, (next) => {
          delete next.recorded[key];
          delete next.chosen[key];
        });
    }
  }

  /** The user replaces what is in the list. */
  #replace(next: World, { isSingle, items }: state.Uploads<null>): void {
    if (!isSingle) return;
    for (const item of items.values()) if (!this.#core.isTake(item)) delete next.recorded[item.key];
    next.chosen = {};
  }

  #addEffects(world: World, place: number, tab: Tab, steps: Map<string, () => World>): void {
    let isStorageFree = true;
    for (const [index, effect] of tab.running.entries()) {
      const { type } = effect;
      const key = "key" in effect ? effect.key : "";
      if (type === "late") {
        steps.set(`${place}: ${key} has its URL too late`, () => {
          const next = this.#copy(world);
          const own = next.tabs[place] as Tab;
          own.running = own.running.filter((_, at) => at !== index);
          return this.#send(next, place, { type: "saved", key, saved: { idempotencyKey: "late", url: "late" } });
        });
        continue;
      }
      const name = `${place}: ${type} ${"keys" in effect ? effect.keys : "lock" in effect ? effect.lock : key}`;
      /** The effect ends, or reports something. */
      const step = (outcome: string, event: Event, change?: (next: World, own: Tab) => void, goesOn = false) =>
        steps.set(`${name} ${outcome}`, () => {
          const next = this.#copy(world);
          const own = next.tabs[place] as Tab;
          if (!goesOn) own.running = own.running.filter((_, at) => at !== index);
          change?.(next, own);
          return this.#send(next, place, event);
        });
      const limited = (kind: string, work: () => void) => {
        if ((world.left[kind] ?? 0) > 0) work();
      };
      const spend = (kind: string) => (next: World) => {
        next.left = { ...next.left, [kind]: (next.left[kind] ?? 0) - 1 };
      };
      if (isStorage(effect)) {
        if (isStorageFree) this.#addStorage(world, place, effect, step);
        isStorageFree = false;
      }
      const isStopped = effect.isStopped ?? false;
      switch (type) {
        case "lock":
          if (world.locks[effect.lock]?.[0] === place) step("gets it", { type: "locked", lock: effect.lock });
          break;
        case "record": {
          const isOn = effect.isOn ?? false;
          const recording = { key, name: key, size: 0, details: null };
          if (!isOn) {
            step(
              "starts",
              { type: "started", item: recording },
              (next, own) => {
                own.running = own.running.map((one, at) => (at === index ? { ...one, isOn: true } : one));
                own.bytes[key] = 0;
                next.recorded[key] = 0;
              },
              true,
            );
            step("is denied", { type: "unrecorded", key });
            break;
          }
          const parts = tab.bytes[key] ?? 0;
          const hasPart = (next: World, own: Tab) => {
            own.bytes[key] = parts + 1;
            if (key in next.recorded) next.recorded[key] = parts + 1;
          };
          limited("part", () =>
            step(
              "has a part",
              { type: "part", key },
              (next, own) => {
                spend("part")(next);
                hasPart(next, own);
              },
              true,
            ),
          );
          // The last part comes before the end.
          if (isStopped) step("ends", { type: "recorded", key, size: parts });
          break;
        }
        case "send": {
          const item = tab.uploads.items.get(key);
          const size = item?.size ?? 0;
          const saved = { idempotencyKey: "k", url: "u" };
          if (size >= LARGE && item?.saved?.url === undefined)
            step("has its URL", { type: "saved", key, saved }, undefined, true);
          step("succeeds", { type: "sent", key, id: `id ${key}` }, (next) => void delete next.recorded[key]);
          const fail = (state: "waiting" | "failed" | "interrupted", error: unknown) =>
            limited("fail", () =>
              step(`fails: ${state}`, { type: "unsent", key, state, error, hasAdvanced: false }, spend("fail")),
            );
          if (isStopped) {
            step("stops", { type: "stopped", key });
            limited("saved", () =>
              step("stops and reports its URL later", { type: "stopped", key }, (next, own) => {
                spend("saved")(next);
                own.running.push({ type: "late", key });
              }),
            );
          } else {
            fail("waiting", "full");
            fail("failed", { code: "refused" });
            if (!item?.isRecording) fail("interrupted", "unreadable");
          }
          break;
        }
        case "sleep":
          step("ends", { type: "awake", key });
          break;
        case "discard":
          step("succeeds", { type: "gone", key });
          limited("late", () => step("comes too late", { type: "sent", key, id: `id ${key}` }, spend("late")));
          limited("late", () => step("fails", { type: "gone", key, error: "error" }, spend("late")));
          break;
        case "follow":
          if (isStopped) step("stops", { type: "stopped", key });
          step("succeeds", { type: "processed", key, error: null });
          break;
      }
    }
  }

  #addStorage(
    world: World,
    place: number,
    effect: Effect,
    step: (outcome: string, event: Event, change?: (next: World, own: Tab) => void) => void,
  ): void {
    const { isDenied = false } = this.#setting;
    const { records } = world;
    const own = (world.tabs[place] as Tab).uploads;
    /** Nobody but the holder of its lock changes a record. */
    const isOwner = (key: string) => {
      const lock = records[key]?.lock ?? own.items.get(key)?.lock ?? own.own;
      expect(world.locks[lock]?.[0], `a change of ${key}, whose lock another tab has, or nobody`).toBe(place);
    };
    switch (effect.type) {
      case "list":
        return void step("ends", {
          type: "listed",
          locks: [...new Set(Object.values(records).map(({ lock }) => lock))],
        });
      case "load": {
        const found = Object.entries(records).filter(([, { lock }]) => lock === effect.lock);
        const items = found.map(([key, { state, isRecording, hasBytes, parts, hasUrl }]) => ({
          key,
          source: isRecording ? undefined : (key[0] as string),
          name: key,
          size: isRecording ? parts : key[0] === "a" ? LARGE : 1,
          details: null,
          isRecording,
          saved: hasUrl ? { idempotencyKey: "k", url: "u" } : undefined,
          ...(state === "stored" || state === "completed"
            ? { state, id: `id ${key}` }
            : {
                state:
                  state === "take"
                    ? ("recorded" as const)
                    : hasBytes || isRecording
                      ? ("waiting" as const)
                      : ("interrupted" as const),
              }),
        }));
        return void step(
          "ends",
          { type: "loaded", lock: effect.lock, items: isDenied ? undefined : items } as Event,
          (_, tab) => {
            for (const { key, isRecording, size } of items) tab.bytes[key] = isRecording ? size : 1;
          },
        );
      }
      case "write": {
        effect.keys.forEach(isOwner);
        if (isDenied) return void step("ends", { type: "written", keys: effect.keys, isSaved: false });
        const write = (hasBytes: boolean) => {
          const saved = effect.keys.filter((key) => hasBytes || own.items.get(key)?.isRecording || records[key]);
          step(hasBytes ? "ends" : "has no space", { type: "written", keys: saved }, (next) => {
            for (const key of effect.keys)
              next.records[key] = this.#recordOf(own.items.get(key), records[key], hasBytes, own.own);
          });
        };
        write(true);
        if ((world.left.small ?? 0) > 0 && effect.keys.some((key) => !own.items.get(key)?.isRecording && !records[key]))
          write(false);
        return;
      }
      case "append": {
        const { key, part } = effect;
        isOwner(key);
        if (isDenied) return void step("ends", { type: "written", keys: [key], isSaved: false });
        return void step("ends", { type: "written" }, (next) => {
          const record = next.records[key];
          if (record) next.records[key] = { ...record, parts: part + 1 };
        });
      }
      case "erase": {
        for (const key of effect.keys) {
          isOwner(key);
          for (const { uploads } of world.tabs) {
            const item = uploads.items.get(key);
            const isWritten = world.tabs[place]?.running.some((one) => one.type === "write" && one.keys.includes(key));
            if (item && !isWritten && !this.#mayForget(item))
              throw new Error(`The storage forgets ${key}, which a tab has.`);
          }
        }
        return void step("ends", { type: "written" }, (next) => {
          for (const key of effect.keys) delete next.records[key];
        });
      }
    }
  }

  /** Whether nothing of an item has to stay in the storage. */
  #mayForget(item: Item): boolean {
    if (this.#core.isLeaving(item) || item.isSubmitted) return true;
    if (this.#core.isStored(item)) return !this.#setting.isForm;
    return item.state === "failed" && !item.isRecording && this.#core.isFinal(item);
  }

  #recordOf(item: Item | undefined, earlier: Record_ | undefined, hasBytes: boolean, own: string): Record_ {
    const { state = "waiting", isRecording = false, saved, lock = own } = item ?? {};
    const kind =
      state === "stored" || state === "completed"
        ? state
        : state === "recording" || state === "recorded"
          ? "take"
          : "file";
    const bytes = earlier?.hasBytes ?? (hasBytes && !isRecording);
    return {
      lock,
      state: kind,
      isRecording,
      hasBytes: bytes,
      parts: earlier?.parts ?? 0,
      hasUrl: saved?.url !== undefined,
    };
  }

  #copy(world: World): World {
    const tabs = world.tabs.map((tab) => ({ ...tab, bytes: { ...tab.bytes } }));
    return {
      ...world,
      tabs,
      records: { ...world.records },
      locks: { ...world.locks },
      recorded: { ...world.recorded },
      chosen: { ...world.chosen },
    };
  }

  #send(next: World, place: number, event: Event): World {
    const tab = next.tabs[place] as Tab;
    const { state, effects } = this.#core.reduce(tab.uploads, event);
    tab.uploads = state;
    for (const effect of effects) {
      if (effect.type === "unlock") {
        next.locks[effect.lock] = (next.locks[effect.lock] ?? []).filter((one) => one !== place);
        tab.running = tab.running.filter((one) => one.type !== "lock" || one.lock !== effect.lock);
        continue;
      }
      if (effect.type === "stop") {
        // The runner ends what has not begun without an event.
        tab.running = tab.running
          .filter((one) => !(one.type === "record" && one.key === effect.key && !one.isOn))
          .map((one) =>
            "key" in one && one.key === effect.key && ["record", "send", "follow"].includes(one.type)
              ? { ...one, isStopped: true }
              : one,
          );
        continue;
      }
      if (effect.type === "lock") next.locks[effect.lock] = [...(next.locks[effect.lock] ?? []), place];
      tab.running = [...tab.running, effect];
    }
    for (const key of Object.keys(tab.bytes)) if (!state.items.has(key)) delete tab.bytes[key];
    this.#check(next);
    return next;
  }

  #kill(world: World, place: number): World {
    const next = this.#copy(world);
    next.left = { ...next.left, kill: (next.left.kill ?? 0) - 1 };
    const generation = `${place}${next.left.kill}`;
    next.tabs[place] = this.#openTab(generation);
    for (const [lock, queue] of Object.entries(next.locks)) next.locks[lock] = queue.filter((one) => one !== place);
    // What was not saved is lost with the tab.
    for (const key of Object.keys(next.recorded)) {
      const inOther = next.tabs.some(({ bytes }) => bytes[key] === next.recorded[key]);
      if (!inOther) next.recorded[key] = next.records[key]?.parts ?? 0;
    }
    for (const key of Object.keys(next.chosen)) if (!next.records[key]) delete next.chosen[key];
    return next;
  }

  /** Holds in each state. */
  #check(world: World): void {
    for (const [key, parts] of Object.entries(world.recorded)) {
      const inTab = world.tabs.some(({ bytes, uploads }) => bytes[key] === parts && uploads.items.has(key));
      if (!inTab && parts > 0 && world.records[key]?.parts !== parts)
        throw new Error(`Parts of the recording ${key} are lost.`);
    }
    for (const key of Object.keys(world.chosen)) {
      // Two pages may have the same file, of which one stays, and of single files the last one.
      const isThere = world.tabs.some(({ uploads: { items } }) =>
        [...items.values()].some((item) => item.key[0] === key[0] && !this.#core.isLeaving(item)),
      );
      if (!isThere && !world.records[key] && !this.#setting.isSingle) throw new Error(`The file ${key} is lost.`);
    }
    if (this.#setting.isForm) for (const { uploads } of world.tabs) this.#checkAnchors(uploads);
    const sending = world.tabs.flatMap(({ running }) =>
      running.flatMap((one) => (one.type === "send" ? [one.key] : [])),
    );
    if (new Set(sending).size < sending.length) throw new Error("The same file is sent twice.");
    for (const [lock, [holder]] of Object.entries(world.locks))
      if (holder !== undefined && !world.tabs[holder]?.uploads.locks.has(lock))
        throw new Error(`Nobody releases the lock ${lock}.`);
  }

  /** The browser shows why a form is invalid at something that is there, whatever the element offers. */
  #checkAnchors(uploads: state.Uploads<null>): void {
    for (const [hasChooser, hasRecorder] of [
      [true, true],
      [true, false],
      [false, true],
      [false, false],
    ] as const) {
      const { anchor = "panel" } = this.#core.blockerOf(uploads, { hasChooser, hasRecorder, isRequired: true }) ?? {};
      const parts = { chooser: hasChooser, recorder: hasRecorder, panel: true } as Record<string, boolean>;
      const item = anchor === "take" ? this.#core.takeOf(uploads.items.values()) : uploads.items.get(anchor);
      if (!parts[anchor] && (!item || this.#core.isLeaving(item)))
        throw new Error(`Nothing shows why the form is invalid.`);
    }
  }

  /** Holds once no effect runs that ends by itself. */
  checkQuiet(world: World): void {
    const { isDenied = false, isSingle = false } = this.#setting;
    for (const [place, { uploads, running, bytes }] of world.tabs.entries()) {
      const held = [...uploads.locks].filter(([lock]) => world.locks[lock]?.[0] === place).map(([lock]) => lock);
      if (uploads.writing !== 0) throw new Error("The storage counts wrong.");
      for (const item of uploads.items.values()) {
        const { key, lock, state, runs } = item;
        if (this.#core.isLeaving(item) && uploads.isOpen && uploads.isReady && held.includes(lock))
          throw new Error(`${key} never goes.`);
        if (uploads.isOpen && uploads.isReady && held.includes(lock) && state === "waiting" && runs === undefined)
          throw new Error(`${key} is never sent.`);
        if (held.includes(lock) && !isDenied && !this.#mayForget(item) && !world.records[key])
          throw new Error(`${key} is not saved.`);
        if (["waiting", "sending", "recorded"].includes(state) && bytes[key] === undefined)
          throw new Error(`${key} has no bytes.`);
      }
      if (!uploads.isOpen) {
        if (held.length > 0 || running.length > 0) throw new Error("A removed element never ends.");
        continue;
      }
      for (const lock of held)
        if (lock !== uploads.own && ![...uploads.items.values()].some((item) => item.lock === lock))
          throw new Error(`Nobody needs the lock ${lock}.`);
      for (const [key, record] of Object.entries(world.records)) {
        if (!held.includes(record.lock) || uploads.items.has(key)) continue;
        if (isSingle && record.isRecording && record.state !== "take") continue;
        throw new Error(`${key} stays saved, and nobody has it.`);
      }
    }
    // Whoever opens a page finds what nobody else has.
    const found = world.tabs.flatMap(({ uploads }) => (uploads.isOpen ? [...uploads.items.keys()] : []));
    const isLooking = world.tabs.some(({ uploads }) => uploads.isOpen);
    for (const [key, { lock, isRecording, state }] of Object.entries(world.records)) {
      if (!isLooking || found.includes(key) || (world.locks[lock]?.length ?? 0) > 0) continue;
      if (isSingle && isRecording && state !== "take") continue;
      // A page that looked before may find it when it looks again.
      const looks = world.tabs.flatMap(({ uploads }, place) => (uploads.isOpen ? [place] : []));
      for (const place of looks) {
        const after = this.drain(this.#send(this.#copy(world), place, { type: "wake" }));
        if (!after.records[key] || after.tabs[place]?.uploads.items.has(key)) continue;
        throw new Error(`${key} is not restored.`);
      }
    }
  }

  /** Lets all effects end, each in its first way. */
  drain(world: World): World {
    for (let steps = 0; ; steps++) {
      const [step] = this.next(world).effects.values();
      if (!step) return world;
      if (steps > 100) throw new Error("Effects never end.");
      world = step();
    }
  }
}

/** Visits each state that is reached in this many steps. @returns how many there are. @throws if one breaks a rule */
function explore(core: Core, setting: Setting, maxSteps: number): number {
  const model = new Model(core, setting);
  const first = model.begin();
  const seen = new Map([[model.text(first), { from: "", step: "" }]]);
  let level = [first];
  for (let steps = 0; steps <= maxSteps && level.length > 0; steps++) {
    const following: World[] = [];
    for (const world of level) {
      const from = model.text(world);
      let last = "";
      try {
        const { users, effects } = model.next(world);
        if (effects.size === 0) model.checkQuiet(world);
        // In the last states, only what runs may end.
        if (steps === maxSteps) {
          model.checkQuiet(model.drain(world));
          continue;
        }
        for (const [step, take] of [...effects, ...users]) {
          last = step;
          const next = take();
          const text = model.text(next);
          if (seen.has(text)) continue;
          seen.set(text, { from, step });
          following.push(next);
        }
      } catch (error) {
        const history = [last];
        for (let at = seen.get(from); at?.step; at = seen.get(at.from)) history.unshift(at.step);
        throw new Error(`${(error as Error).message} After: ${history.join(", ")}`);
      }
    }
    level = following;
  }
  return seen.size;
}

/** What may happen in a test, and how often. The tabs have two items and one recorder. */
const SETTINGS: Record<string, Setting> = {
  "two files": { isForm: true, left: { open: 1, close: 1, add: 2, cancel: 1, fail: 1, retry: 1, saved: 1 } },
  "a file of a list": { isForm: false, left: { open: 1, add: 1, cancel: 1, late: 1, fail: 1, small: 1, kill: 1 } },
  "a file, settings of the page": {
    isForm: true,
    left: { open: 1, add: 1, disable: 2, ready: 2, kill: 1, fail: 1, wake: 1 },
  },
  "a file of an element that is disabled": { isForm: true, steps: 7, left: { open: 1, add: 1, disable: 1, kill: 1 } },
  "a recording": { isForm: true, steps: 8, left: { open: 2, close: 1, record: 1, part: 2, stop: 1, cancel: 1 } },
  "a recording that is sent": {
    isForm: true,
    steps: 7,
    left: { open: 1, close: 1, record: 1, part: 1, stop: 1, send: 1, cancel: 1, kill: 1 },
  },
  "a recording and a file without storage": {
    isForm: true,
    isDenied: true,
    left: { open: 2, close: 1, record: 1, part: 1, stop: 1, send: 1, add: 1 },
  },
  "one file at a time": {
    isForm: true,
    isSingle: true,
    left: { open: 1, add: 2, record: 1, part: 1, stop: 1, send: 1, kill: 1, cancel: 1 },
  },
  "a form that is submitted": {
    isForm: true,
    steps: 7,
    left: { open: 2, close: 1, add: 1, cancel: 1, submit: 1, small: 1 },
  },
};
const STEPS = 5;
const MORE_STEPS = isExhaustive ? 1 : 0;

/** A mistake, as text that replaces that of a file. Each is a bug that the upload element or the console once had. */
interface Mistake {
  setting: string;
  steps: number;
  changes: [file: "upload-state" | "element-state", from: string, to: string][];
  breaks: RegExp;
}

const MISTAKES: [string, Mistake][] = [
  [
    "the lock of a recording is released before its last part is there, and taken again with it",
    {
      setting: "a recording",
      steps: 6,
      changes: [
        ["upload-state", 'if (this.#runs("record", "send", "follow", "stop") || this.state.writing) return;', ""],
        [
          "upload-state",
          'if (state === "recording") this.#change',
          'this.#ask(item.lock); if (state === "recording") this.#change',
        ],
      ],
      breaks: /lost|never ends|lock/,
    },
  ],
  [
    "a file that is chosen again gets the key of the one that is being canceled",
    {
      setting: "two files",
      steps: 7,
      changes: [
        ["upload-state", '(item.state === "interrupted" || (isForm && isFile(item)))', "isForm"],
        [
          "upload-state",
          "if (!this.#items.has(key)) this.#create(",
          'if (!isFile(this.#items.get(key) ?? { state: "canceling" })) this.#create(',
        ],
      ],
      breaks: /sent twice/,
    },
  ],
  [
    "what is saved is lost if the element is disabled when it is loaded",
    {
      setting: "a file of an element that is disabled",
      steps: 6,
      changes: [
        [
          "upload-state",
          "this.#load(event.lock, event.items)",
          "this.#load(event.lock, state.isDisabled ? [] : event.items)",
        ],
      ],
      breaks: /not restored/,
    },
  ],
  [
    "a form with a recorder only has no button that shows why it is invalid",
    {
      setting: "a recording",
      steps: 1,
      changes: [
        ["element-state", 'offered.hasChooser ? "chooser" : offered.hasRecorder ? "recorder" : "panel"', '"chooser"'],
      ],
      breaks: /Nothing shows why/,
    },
  ],
  [
    "an upload saves what resumes it after it was stopped and forgotten",
    {
      setting: "two files",
      steps: 7,
      changes: [
        [
          "upload-state",
          "if (item) this.#applyTo(item, event);",
          'if (item) this.#applyTo(item, event); else if (event.type === "saved") { state.writing++; this.#start({ type: "write", keys: [event.key] }); }',
        ],
      ],
      breaks: /whose lock another tab has, or nobody/,
    },
  ],
];

/** The code with other text in some places. */
async function mistaken(changes: Mistake["changes"]): Promise<Core> {
  const folder = join(import.meta.dirname, "../../src/client");
  const change = (path: string) => {
    let text = readFileSync(path, "utf8");
    for (const [file, from, to] of changes) {
      if (!path.endsWith(`${file}.ts`)) continue;
      expect(text.split(from), `"${from}" is once in ${file}.ts`).toHaveLength(2);
      text = text.replace(from, () => to);
    }
    return text;
  };
  const { outputFiles } = await build({
    stdin: { contents: 'export * from "./upload-state.ts"; export * from "./element-state.ts";', resolveDir: folder },
    bundle: true,
    write: false,
    format: "esm",
    plugins: [
      {
        name: "mistakes",
        setup: ({ onLoad }) =>
          onLoad({ filter: /-state\.ts$/ }, ({ path }) => ({ contents: change(path), loader: "ts" })),
      },
    ],
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0]?.contents ?? []).toString("base64")}`);
}

/** The uploads of an open page after some events, and the effects that they have started. */
function play(events: Event[], { isForm = true, isSingle = false, accept = "" } = {}) {
  const opened: Event[] = [
    { type: "open" },
    { type: "set", isReady: true, isSingle, accept },
    { type: "locked", lock: "own" },
    { type: "loaded", lock: "own", items: [] },
  ];
  let uploads = state.createUploads<null>("own", isForm);
  const effects: string[] = [];
  for (const event of [...opened, ...events]) {
    const step = state.reduce(uploads, event);
    uploads = step.state;
    effects.push(...step.effects.map((one) => `${one.type} ${"key" in one ? one.key : "keys" in one ? one.keys : ""}`));
  }
  return { uploads, effects, states: [...uploads.items.values()].map((item) => item.state).join(" ") };
}

const add = (...keys: string[]): Event => ({
  type: "add",
  items: keys.map((key) => ({ key, name: key, source: key, size: key.startsWith("large") ? LARGE : 1 })),
});
const fail = (key: string, to: "waiting" | "interrupted" | "failed", error: unknown = "error"): Event => ({
  type: "unsent",
  key,
  state: to,
  error,
  hasAdvanced: false,
});
const saved = (key: string): Event => ({ type: "saved", key, saved: { idempotencyKey: "k", url: "u" } });
const cancel = (...keys: string[]): Event => ({ type: "cancel", keys });
const sent = (key: string): Event => ({ type: "sent", key, id: `id ${key}` });

describe("Sending", () => {
  test("takes three files at a time, in their order, and the next one when one ends", () => {
    expect(play([add("a", "b", "c", "d", "e")]).states).toBe("sending sending sending waiting waiting");
    const ended = play([add("a", "b", "c", "d", "e"), sent("b"), fail("c", "failed")]);
    expect(ended.states).toBe("sending stored failed sending sending");
  });

  test("tries again later what failed for a while, such as without space at the moment, and at once if woken", () => {
    const full = { code: "upload_limit_reached" };
    const waiting = play([add("a"), fail("a", "waiting", full)]);
    expect([waiting.states, waiting.effects.at(-1)]).toEqual(["waiting", "sleep a"]);
    expect(waiting.uploads.items.get("a")).toMatchObject({ error: full, failures: 1 });
    for (const event of [{ type: "awake", key: "a" }, { type: "wake" }, { type: "retry", keys: ["a"] }] as Event[])
      expect(play([add("a"), fail("a", "waiting"), event]).states).toBe("sending");
  });

  test("waits without a token, and asks for a file that can't be read", () => {
    const stopped: Event[] = [
      { type: "set", isReady: false },
      { type: "stopped", key: "a" },
    ];
    expect(play([add("a"), ...stopped]).states).toBe("waiting");
    expect(play([add("a"), ...stopped, { type: "set", isReady: true }]).states).toBe("sending");
    expect(play([add("a"), fail("a", "interrupted")]).states).toBe("interrupted");
    expect(play([add("a"), fail("a", "interrupted"), add("a")]).states).toBe("sending");
  });

  test("keeps a refused file until the user cancels it, unless it would be refused again", () => {
    for (const [code, isKept] of [
      ["forbidden", true],
      ["event_over", true],
      ["file_too_large", false],
    ] as const) {
      const { states, uploads } = play([add("a"), fail("a", "failed", { code })]);
      expect([states, uploads.items.get("a")?.kept !== undefined]).toEqual(["failed", isKept]);
    }
  });

  const recording: Event[] = [
    { type: "record", key: "r" },
    { type: "started", item: { key: "r", name: "r", size: 0 } },
    { type: "part", key: "r" },
    { type: "stop", key: "r" },
    { type: "recorded", key: "r", size: 5 },
    { type: "send", key: "r" },
  ];

  test("of a recording begins once the storage has all that was said of it", () => {
    const begun = play(recording);
    expect([begun.states, begun.effects.includes("send r")]).toEqual(["waiting", false]);
    const written: Event[] = Array.from({ length: begun.uploads.writing }, () => ({ type: "written", keys: [] }));
    expect(play([...recording, ...written.slice(1)]).effects).not.toContain("send r");
    expect(play([...recording, ...written]).effects).toContain("send r");
  });

  test("keeps a refused recording, which exists nowhere else", () => {
    const { states, uploads } = play([...recording, fail("r", "failed", { code: "file_too_large" })]);
    expect([states, uploads.items.get("r")?.kept !== undefined]).toEqual(["failed", true]);
  });

  test("leaves a stored file to the next page, which asks for the result of its processing", () => {
    const left: Event[] = [
      add("a"),
      { type: "written", keys: ["a"] },
      sent("a"),
      { type: "written", keys: ["a"] },
      { type: "close" },
      { type: "stopped", key: "a" },
    ];
    const { states, effects } = play(left);
    expect([states, effects.slice(-2)]).toEqual(["", ["stop a", "unlock "]]);
    const stored = { key: "a", name: "a", size: 1, state: "stored" as const, id: "id a" };
    const back = play([
      ...left,
      { type: "open" },
      { type: "locked", lock: "own" },
      { type: "loaded", lock: "own", items: [stored] },
    ]);
    expect(back.effects.at(-1)).toBe("follow a");
  });

  test("replaces a single file, and continues one that is chosen again", () => {
    const { states, effects } = play([add("a"), add("b")], { isSingle: true });
    expect([states, effects.includes("stop a")]).toEqual(["canceling sending", true]);
    expect(play([add("a"), fail("a", "failed"), add("a")]).states).toBe("sending");
    const again = play([add("a")]);
    expect(state.findAgain(again.uploads, "a")?.key).toBe("a");
    expect(state.findAgain(play([add("a"), cancel("a")]).uploads, "a")).toBeUndefined();
  });
});

describe("Adding", () => {
  const codesOf = (items: [name: string, type: string, size?: number][], accept: string) => {
    const event: Event = {
      type: "add",
      items: items.map(([name, type, size = 1]) => ({ key: name, name, type, size, source: name })),
    };
    const { uploads } = play([event, event], { accept });
    return [...uploads.items.values()].map(({ error }) => (error as { code: string } | null)?.code ?? "sent");
  };

  test.each([
    ["a.TXT", "text/plain", ".txt, audio/*", "sent"],
    ["a.mp3", "audio/mpeg", ".txt, audio/*", "sent"],
    ["a.pdf", "application/pdf", ".txt, audio/*", "type_not_allowed"],
    ["a.mp3", "audio/mpeg", "audio/wav", "type_not_allowed"],
    // Browsers don't know the type of every sound.
    ["a.unknown", "", "audio/*", "sent"],
    ["a.pdf", "application/pdf", " , ", "sent"],
  ])("takes %s of type %j only if %j accepts it", (name, type, accept, expected) => {
    // A refused file that is added again is refused again.
    expect(codesOf([[name, type]], accept)).toEqual([expected]);
  });

  test("refuses an empty file, and sends the others", () => {
    const files: [name: string, type: string, size?: number][] = [
      ["empty", "", 0],
      ["a", ""],
    ];
    expect(codesOf(files, "")).toEqual(["file_empty", "sent"]);
  });
});

describe("Canceling", () => {
  test("waits for the URL of a large file, and deletes its bytes on the service", () => {
    const begun = play([add("large"), cancel("large")]);
    expect([begun.states, begun.effects.includes("stop large")]).toEqual(["canceling", false]);
    const stopped = play([add("large"), cancel("large"), saved("large"), { type: "stopped", key: "large" }]);
    expect(stopped.effects.slice(-2)).toEqual(["stop large", "discard large"]);
    const gone: Event = { type: "gone", key: "large" };
    expect(play([add("large"), cancel("large"), saved("large"), { type: "stopped", key: "large" }, gone]).states).toBe(
      "",
    );
  });

  test("stops a small file at once, and one that waits or failed ends at once", () => {
    expect(play([add("a"), cancel("a")]).effects).toContain("stop a");
    expect(play([add("a"), fail("a", "waiting"), cancel("a")]).states).toBe("");
    expect(play([add("a"), fail("a", "failed"), cancel("a")]).states).toBe("");
  });

  test("keeps in a list a file that was complete before, and one that could not be canceled", () => {
    const late = [add("large"), saved("large"), cancel("large"), { type: "stopped", key: "large" }] as Event[];
    expect(play([...late, sent("large")], { isForm: false }).states).toBe("stored");
    const failed: Event = { type: "gone", key: "large", error: "error" };
    expect(play([...late, failed], { isForm: false }).states).toBe("failed");
    expect(play([...late, sent("large")]).states).toBe("");
  });

  test("takes a stored file out of the form", () => {
    const { states, effects } = play([add("a"), sent("a"), cancel("a"), { type: "stopped", key: "a" }]);
    expect([states, effects.includes("discard a")]).toEqual(["", false]);
  });
});

test("A form keeps what is stored until it is submitted, and a list does not", () => {
  expect(play([add("a"), sent("a")]).uploads.items.get("a")?.kept).toBe("stored id a");
  expect(play([add("a"), sent("a"), { type: "submit" }]).effects.at(-1)).toBe("erase a");
  expect(play([add("a"), sent("a")], { isForm: false }).effects.at(-1)).toBe("erase a");
});

describe("The uploads of a page", () => {
  test.for(Object.entries(SETTINGS))("lose and lock nothing, in any order of events: %s", ([, setting]) => {
    expect(explore(real, setting, (setting.steps ?? STEPS) + MORE_STEPS)).toBeGreaterThan(100);
  });

  test.for(MISTAKES)("would break a rule if %s", async ([, { setting, steps, changes, breaks }]) => {
    const core = await mistaken(changes);
    expect(() => explore(core, SETTINGS[setting] as Setting, steps)).toThrow(breaks);
  });
});
