import { type ReadonlySignal, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure } from "../parts/failure.tsx";
import { Skeleton } from "../parts/page.tsx";
import { type Action, perform } from "./action.tsx";
import { ScriptError } from "./errors.ts";

/** All scripts are loaded early, because after a deployment the server may no longer have them. */
const PRELOAD_DELAY_MILLISECONDS = 1000;

/** A component that is a function. */
export type View<Props> = (props: Props) => ComponentChildren;

/** The properties that a page gets from its section. */
export interface PageProps {
  /** The record, on its page. */
  id: string;
  create?: Action | undefined;
}

/** A part of the console that is not in its first script. */
export interface Script<Exports> {
  /** Its exports, once it is loaded. */
  readonly loaded: ReadonlySignal<Exports | null>;
  /** Loads it. @throws ScriptError if that fails. The next call tries again */
  load(): Promise<Exports>;
  /**
   * Calls `work`: at once if the script is loaded, otherwise as soon as it is, in the order of the calls. A failure is shown
   * above the page, with a button that tries again.
   */
  use(work: (exports: Exports) => unknown): void;
  /**
   * A component of it, which loads it when it is first shown.
   * @param Pending stands in its place until then, and gets the failure to show
   */
  view<Props extends object>(
    choose: (exports: Exports) => View<Props>,
    Pending?: View<{ failure: ComponentChildren }>,
  ): View<Props>;
}

let startPreload: () => void;
const preload = new Promise<void>((resolve) => {
  startPreload = resolve;
});

/** Loads all scripts soon. */
export function preloadScripts(): void {
  setTimeout(startPreload, PRELOAD_DELAY_MILLISECONDS);
}

const Loading = ({ failure }: { failure: ComponentChildren }) => failure || <Skeleton />;

/** Declares a script, once for all that use it: `script(() => import("./users.tsx"))`. */
export function script<Exports>(imported: () => Promise<Exports>): Script<Exports> {
  const loaded = signal<Exports | null>(null);
  let loading: Promise<Exports> | undefined;
  let failures = 0;
  /**
   * Many browsers keep the failure of an import, so it is repeated by another URL. Only the built function has the URL. What
   * the script imports itself keeps its URL, and so is not loaded twice.
   */
  const importAgain = (error: unknown): Promise<Exports> => {
    const [, path] = /import\("(\.[^"]+)"\)/.exec(String(imported)) ?? [];
    if (failures === 0 || path === undefined) throw error;
    return import(/* @vite-ignore */ `${path}?${failures}`);
  };
  const load = () => {
    loading ??= imported()
      .catch(importAgain)
      .then(
        (exports) => {
          loaded.value = exports;
          return exports;
        },
        (cause) => {
          failures++;
          loading = undefined;
          throw new ScriptError(cause);
        },
      );
    return loading;
  };
  // A failure is shown once the script is needed.
  preload.then(load).catch(() => {});
  return {
    loaded,
    load,
    use(work) {
      const exports = loaded.peek();
      void perform({ run: () => (exports ? work(exports) : load().then(work)) });
    },
    view(choose, Pending = Loading) {
      return function ViewOfScript(props) {
        const [error, setError] = useState<unknown>(null);
        const exports = loaded.value;
        const show = () => {
          setError(null);
          load().catch(setError);
        };
        useEffect(() => {
          if (!loaded.peek()) show();
        }, []);
        if (!exports) return <Pending failure={error !== null && <Failure error={error} onRetry={show} />} />;
        const View = choose(exports);
        return <View {...props} />;
      };
    },
  };
}
