import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure } from "../parts/failure.tsx";
import { Skeleton } from "../parts/page.tsx";
import type { Action } from "./action.tsx";

/** The lazy pages are loaded early, because after a deployment the server may no longer have their scripts. */
const PRELOAD_DELAY_MILLISECONDS = 1000;

/** A component that is a function. */
export type View<Props> = (props: Props) => ComponentChildren;

/** The properties that a page gets from its section. */
export interface PageProps {
  /** The record, on its page. */
  id: string;
  create?: Action | undefined;
}

let startPreload: () => void;
const preload = new Promise<void>((resolve) => {
  startPreload = resolve;
});

/** A component whose script is loaded when it is first shown, so that the first page loads fast. */
export function lazy<Props extends object>(load: () => Promise<View<Props>>): View<Props> {
  let Loaded: View<Props> | undefined;
  const loadPage = async () => {
    Loaded ??= await load();
  };
  // A failure shows when it is shown.
  preload.then(loadPage).catch(() => {});
  return function Lazy(props: Props) {
    const [error, setError] = useState<unknown>(null);
    const [, redraw] = useState({});
    useEffect(() => {
      if (!Loaded) loadPage().then(() => redraw({}), setError);
    }, []);
    if (Loaded) return <Loaded {...props} />;
    // Browsers keep the failure of an import, so only a reload helps.
    return error ? <Failure error={error} onRetry={() => location.reload()} /> : <Skeleton />;
  };
}

/** Loads the scripts of all pages soon, also those that these pages load later. */
export function preloadPages(): void {
  setTimeout(startPreload, PRELOAD_DELAY_MILLISECONDS);
}
