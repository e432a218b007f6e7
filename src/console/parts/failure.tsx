import { StowageError } from "../../client/index.ts";
import { UserError } from "../user-error.ts";
import { CopyButton } from "./copy.tsx";

const DEFECT_MESSAGE = "Something went wrong on this page. Reload it and try again.";
/** Messages for errors that the console can explain better than the API. */
const MESSAGES: Partial<Record<string, string>> = {
  connection_failed: "Can't reach Stowage. Check your connection and try again.",
  token_invalid: "That key isn't valid. Check that you copied all of it.",
  email_not_configured: "This service sends no emails. Ask your admin for a link to set a new password.",
  unexpected_response: "Something between this page and Stowage failed. Try again.",
  login_failed: "Incorrect team ID, email or password.",
};

/** Whether an error is a bug in the console, whose message would help no user. */
export const isDefect = (error: unknown) => !(error instanceof StowageError || error instanceof UserError);

/** The error's message for the user. */
export function messageOf(error: unknown): string {
  if (isDefect(error)) return DEFECT_MESSAGE;
  return (error instanceof StowageError && MESSAGES[error.code]) || (error as Error).message;
}

/** The messages for one field of a form. */
export const fieldErrors = (error: unknown, name: string): string[] =>
  error instanceof StowageError ? error.errors.filter(({ path }) => path === name).map(({ message }) => message) : [];

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
