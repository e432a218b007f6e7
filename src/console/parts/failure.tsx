import { StowageError } from "../../client/stowage.ts";

const DEFAULT = "Something went wrong in this page.";

/** What the service says, and what to name when asking for help. */
export function messageOf(error: unknown): string {
  if (error instanceof StowageError) return error.message;
  return error instanceof Error && error.message ? error.message : DEFAULT;
}

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
