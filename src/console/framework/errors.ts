import { StowageError } from "../../client/index.ts";

/* Errors, as the user reads them. */

/** An error of the console whose message is written for the user. */
export class UserError extends Error {}

/** A script of the page that can't be loaded: without a connection, or after a deployment. */
export class ScriptError extends UserError {
  constructor(cause: unknown) {
    super("A part of this page couldn't be loaded. Try again. If that doesn't help, reload the page.", { cause });
  }
}

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
