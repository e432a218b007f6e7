import { StowageError } from "../../client/stowage.ts";
import { Refusal } from "../refusal.ts";

const DEFAULT = "Something went wrong in this page.";

/** Whether something failed by a mistake in the console, of whose words nobody can make anything. */
export const isDefect = (error: unknown) => !(error instanceof StowageError || error instanceof Refusal);

/** What the service says, or the console. */
export const messageOf = (error: unknown): string => (isDefect(error) ? DEFAULT : (error as Error).message);

/** What the service says of a field, by the field's name. */
export const problemsOf = (error: unknown, name: string): string[] =>
  error instanceof StowageError ? error.errors.filter(({ path }) => path === name).map(({ message }) => message) : [];

/** What to name when asking for help, of an error or an answer. Nothing where it has none. */
export function RequestId({ of }: { of: unknown }) {
  const id = (of as { requestId?: string | null } | null | undefined)?.requestId;
  return id ? (
    <p class="quiet">
      Request <code>{id}</code>
    </p>
  ) : null;
}

interface FailureProps {
  error: unknown;
  onRetry?: (() => void) | undefined;
  /** The form that failed: what its fields say is not said twice. */
  form?: HTMLFormElement | null;
}

/** A failure where it happened. Nothing while there is none. */
export function Failure({ error, onRetry, form }: FailureProps) {
  if (error === null || error === undefined) return null;
  const errors =
    error instanceof StowageError ? error.errors.filter(({ path }) => !form?.elements.namedItem(path)) : [];
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
