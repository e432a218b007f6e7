import { StowageError } from "../../client/index.ts";
import { messageOf } from "../framework/errors.ts";
import { CopyButton } from "./copy.tsx";

/** Errors that need no support: the user mistyped. */
const MISTAKES = new Set(["token_invalid", "login_failed"]);

/** The id to include in a support request; nothing if there is none. */
export function RequestId({ of }: { of: unknown }) {
  const { requestId: id, code = "" } = (of ?? {}) as { requestId?: string | null; code?: string };
  return id && !MISTAKES.has(code) ? (
    <p class="quiet">
      Request ID: <code>{id}</code> <CopyButton text={id} label="request ID" />
    </p>
  ) : null;
}

interface FailureProps {
  error: unknown;
  onRetry?: (() => void) | undefined;
  /** Whether it is inside of a live region, which reads it. */
  isInRegion?: boolean;
  /** The form that failed. Its fields show their own errors. */
  form?: HTMLFormElement | null;
}

/** Shows an error where it happened; nothing if there is none, or if the fields of the form show all of it. */
export function Failure({ error, onRetry, isInRegion = false, form }: FailureProps) {
  if (error === null || error === undefined) return null;
  const all = error instanceof StowageError ? error.errors : [];
  const others = all.filter(({ path }) => !form?.elements.namedItem(path));
  if (all.length > 0 && others.length === 0) return null;
  return (
    <div class="failure" role={isInRegion ? undefined : "alert"}>
      <p>{messageOf(error)}</p>
      {others.length > 0 && (
        <ul>
          {others.map(({ path, message }) => (
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
