import type { Schemas } from "./api.ts";

/** Error codes of the service and of the client. */
export type ErrorCode =
  | Schemas["Error"]["code"]
  | "connection_failed"
  | "file_changed"
  | "file_unreadable"
  | "unexpected_response";

interface Details {
  status?: number;
  requestId?: string | null;
  errors?: Schemas["Error"]["errors"];
  retryAfterSeconds?: number | undefined;
  cause?: unknown;
}

/** Any failure except an abort, which rejects with the signal's reason. */
export class StowageError extends Error {
  override readonly name = "StowageError";
  readonly code: ErrorCode;
  /** The HTTP status; 0 without a response. */
  readonly status: number;
  /** Identifies the request in the service's logs; null without a response of the service. */
  readonly requestId: string | null;
  /** The fields of invalid input, with the reasons. */
  readonly errors: { path: string; message: string }[];
  /** Seconds to wait before a retry, from `Retry-After`. */
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

/** Parses `Retry-After`, which is a number of seconds or a date. */
function parseRetryAfter(retryAfter: string | null): number | undefined {
  if (retryAfter === null) return undefined;
  const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}

/** Converts an error response. `header` returns a header by name. */
export function errorOf(status: number, text: string, header: (name: string) => string | null): StowageError {
  const details = {
    status,
    requestId: header("X-Request-Id"),
    retryAfterSeconds: parseRetryAfter(header("Retry-After")),
  };
  try {
    const { code, message, errors } = JSON.parse(text) as Schemas["Error"];
    if (typeof code === "string" && typeof message === "string") {
      return new StowageError(code, message, Array.isArray(errors) ? { ...details, errors } : details);
    }
  } catch {}
  return new StowageError(
    "unexpected_response",
    `Unexpected response with status ${status}. It is not from Stowage.`,
    details,
  );
}

/** The request or its response was lost. */
export function connectionError(url: string, cause: unknown): StowageError {
  const { cause: inner, message } = (cause ?? {}) as { cause?: { code?: string; message?: string }; message?: string };
  const reason = inner?.code ?? inner?.message ?? (cause as { code?: string })?.code ?? message ?? "no reason given";
  return new StowageError("connection_failed", `Can't reach ${new URL(url).origin} (${reason}).`, { cause });
}
