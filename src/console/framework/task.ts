import { useCallback, useRef, useState } from "preact/hooks";
import { client, noteFailure } from "./session.ts";

interface Task {
  /** Runs one action at a time and ignores further calls while it runs. Never rejects: a failure becomes `error`. */
  run(work: () => Promise<void>): Promise<void>;
  /** For `aria-disabled`, because a disabled button would lose the focus. */
  isRunning: boolean;
  error: unknown;
}

/** The state of an action behind a button or a form. */
export function useTask(): Task {
  const isBusy = useRef(false);
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = useCallback(async (work: () => Promise<void>) => {
    if (isBusy.current) return;
    isBusy.current = true;
    setRunning(true);
    setError(null);
    const caller = client.peek();
    try {
      await work();
    } catch (failure) {
      noteFailure(failure, caller);
      setError(failure);
    } finally {
      isBusy.current = false;
      setRunning(false);
    }
  }, []);
  return { run, isRunning, error };
}
