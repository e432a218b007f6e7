import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure } from "./failure.tsx";
import { Skeleton } from "./page.tsx";

/** The lazy pages are loaded early, because after a deployment the server may no longer have their scripts. */
const PRELOAD_DELAY_MILLISECONDS = 1000;

const loaders: (() => Promise<unknown>)[] = [];

/** A component whose script is loaded when it is first shown, so that the first page loads fast. */
export function lazy<Name extends string>(
  load: () => Promise<Record<Name, ComponentType<{ id: string }>>>,
  name: Name,
): ComponentType<{ id: string }> {
  let Loaded: ComponentType<{ id: string }> | undefined;
  const loadPage = async () => {
    Loaded ??= (await load())[name];
  };
  loaders.push(loadPage);
  return function Lazy(props) {
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

/** Loads the scripts of all pages soon. A failure shows when the page is opened. */
export function preloadPages(): void {
  setTimeout(() => {
    for (const load of loaders) load().catch(() => {});
  }, PRELOAD_DELAY_MILLISECONDS);
}
