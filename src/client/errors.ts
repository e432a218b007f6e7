import type { Schemas } from "./api.ts";

/** A code of the service, or of what happens on the way to it. */
export type ErrorCode = Schemas["Error"]["code"] | "connection_failed" | "file_changed" | "unexpected_answer";

interface Details {
  status?: number;
  requestId?: string | null;
  errors?: Schemas["Error"]["errors"];
  retryAfterSeconds?: number | undefined;
  cause?: unknown;
}

/** Every failure but an abort, which rejects with the signal's own reason. */
export class StowageError extends Error {
  override readonly name = "StowageError";
  readonly code: ErrorCode;
  /** The HTTP status; 0 where no answer came. */
  readonly status: number;
  /** Under which the service's log has the request; null where it gave none. */
  readonly requestId: string | null;
  /** Of invalid input: each field and what is wrong with it. */
  readonly errors: { path: string; message: string }[];
  /** When the service says that a retry makes sense. */
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message: string, details: Details = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.status = details.status ?? 0;
    this.requestId = details.requestId ?? null;
    this.errors = details.errors ?? [];
    this.retryAfterSeconds = details.retryAfterSeconds;
  }
}

/** Returns whether the service, or Cloudflare in front of it (52x, 530), failed in an unknown way. */
export const isServerError = ({ status }: StowageError): boolean => status === 500 || (status >= 520 && status <= 530);

/** Seconds that a `Retry-After` asks for, as a number or as a date. */
function secondsOf(retryAfter: string | null): number | undefined {
  if (retryAfter === null) return undefined;
  const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}

/** The error that an answer stands for. `header` gives a header's value by its name. */
export function errorOf(status: number, text: string, header: (name: string) => string | null): StowageError {
  const details = { status, requestId: header("X-Request-Id"), retryAfterSeconds: secondsOf(header("Retry-After")) };
  try {
    const { code, message, errors } = JSON.parse(text) as Schemas["Error"];
    if (typeof code === "string" && typeof message === "string") {
      return new StowageError(code, message, Array.isArray(errors) ? { ...details, errors } : details);
    }
  } catch {}
  return new StowageError("unexpected_answer", `The answer has status ${status} and is not the service's.`, details);
}

/** What never reached the service, or whose answer never came back. */
export function connectionError(url: string, cause: unknown): StowageError {
  const { cause: inner, message } = (cause ?? {}) as { cause?: { code?: string; message?: string }; message?: string };
  const reason = inner?.code ?? inner?.message ?? (cause as { code?: string })?.code ?? message ?? "no reason given";
  return new StowageError("connection_failed", `${new URL(url).origin} can't be reached (${reason}).`, { cause });
}
