import { useCallback, useRef, useState } from "preact/hooks";
import { client, noteFailure } from "../session.ts";

interface Task {
  /** Runs one piece of work at a time: a second one is ignored. It never rejects: what failed is `error`. */
  run(work: () => Promise<void>): Promise<void>;
  /** For `aria-disabled`: a button that were disabled would lose the focus. */
  isRunning: boolean;
  error: unknown;
}

/** What a button or a form does: whether it is under way, and how it failed. */
export function useTask(): Task {
  const isBusy = useRef(false);
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = useCallback(async (work: () => Promise<void>) => {
    if (isBusy.current) return;
    isBusy.current = true;
    setRunning(true);
    setError(null);
    const asked = client.peek();
    try {
      await work();
    } catch (failure) {
      noteFailure(failure, asked);
      setError(failure);
    } finally {
      isBusy.current = false;
      setRunning(false);
    }
  }, []);
  return { run, isRunning, error };
}
