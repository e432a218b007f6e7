import { StowageError } from "../../client/stowage.ts";
import { Refusal } from "../refusal.ts";

const DEFAULT = "Something went wrong in this page.";

/** Whether something failed by a mistake in the console, of whose words nobody can make anything. */
export const isDefect = (error: unknown) => !(error instanceof StowageError || error instanceof Refusal);

/** What the service says, or the console. */
export const messageOf = (error: unknown): string => (isDefect(error) ? DEFAULT : (error as Error).message);

/** What to name when asking for help, of an error or an answer. Nothing where it has none. */
export function RequestId({ of }: { of: unknown }) {
  const id = (of as { requestId?: string | null } | null | undefined)?.requestId;
  return id ? (
    <p class="quiet">
      Request <code>{id}</code>
    </p>
  ) : null;
}

/** A failure where it happened. Nothing while there is none. */
export function Failure({ error, onRetry }: { error: unknown; onRetry?: (() => void) | undefined }) {
  if (error === null || error === undefined) return null;
  const errors = error instanceof StowageError ? error.errors : [];
  return (
    <div class="failure" role="alert">
      <p>{messageOf(error)}</p>
      {errors.length > 0 && (
        <ul>
          {errors.map(({ path, message }) => (
            <li key={path}>
              <code>{path}</code>: {message}
            </li>
          ))}
        </ul>
      )}
      <RequestId of={error} />
      {onRetry && (
        <button type="button" class="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}
