import { useCallback, useState } from "preact/hooks";
import { noteFailure } from "../session.ts";

interface Task {
  /** Runs one piece of work at a time. It never rejects: what failed is `error`. */
  run(work: () => Promise<void>): Promise<void>;
  isRunning: boolean;
  error: unknown;
}

/** What a button or a form does: whether it is under way, and how it failed. */
export function useTask(): Task {
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = useCallback(async (work: () => Promise<void>) => {
    setRunning(true);
    setError(null);
    try {
      await work();
    } catch (failure) {
      noteFailure(failure);
      setError(failure);
    } finally {
      setRunning(false);
    }
  }, []);
  return { run, isRunning, error };
}
