import { StowageError } from "../client/index.ts";

/** An error that the user can fix, shown without a stack trace. */
export class Refusal extends Error {}

/** Returns the message of an error, with the status of the service if that responded. */
export function messageOf(error: unknown): string {
  const { message } = error as Error;
  return error instanceof StowageError && error.status > 0 ? `${message} It responded ${error.status}.` : message;
}
