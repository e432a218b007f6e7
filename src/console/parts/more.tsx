import { Failure } from "./failure.tsx";
import { useTask } from "./task.ts";

/** The button below a list that has further pages, and what is said while its first one is loading. */
export function More({
  of,
}: {
  of: { items: unknown[] | undefined; isLoading: boolean; more?: (() => Promise<void>) | undefined };
}) {
  const { run, isRunning, error } = useTask();
  if (of.items === undefined) return of.isLoading ? <p role="status">Loading …</p> : null;
  const { more } = of;
  return (
    <>
      <Failure error={error} />
      {more && (
        <p>
          <button type="button" class="button" disabled={isRunning} onClick={() => run(more)}>
            Show more
          </button>
        </p>
      )}
    </>
  );
}
