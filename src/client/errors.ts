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
  isTransient?: boolean;
  isTimeout?: boolean;
}

const TRANSIENT_STATUSES = [408, 423, 429, 502, 503, 504];
/** Transient errors whose status does not identify them. After an offset mismatch, an upload asks for its offset again. */
const TRANSIENT_CODES: ErrorCode[] = ["connection_failed", "offset_mismatch"];

/** Any failure except an abort, which rejects with the signal's reason. */
export class StowageError extends Error {
  override readonly name = "StowageError";
  /** Tells programs what failed. */
  declare readonly code: ErrorCode;
  /** The HTTP status; 0 without a response. */
  declare readonly status: number;
  /** Identifies the request in the service's logs; null without a response of the service. */
  declare readonly requestId: string | null;
  /** The fields of invalid input, with the reasons. */
  declare readonly errors: { path: string; message: string }[];
  /** Seconds to wait before a retry, from `Retry-After`. */
  declare readonly retryAfterSeconds: number | undefined;
  /** Whether the same call may succeed later: after a lost connection or an outage, or because the service says when. */
  declare readonly isTransient: boolean;
  /** Whether no response, or no bytes of it, came in time, or the upload was too slow for one request. */
  declare readonly isTimeout: boolean;

  constructor(code: ErrorCode, message: string, details: Details = {}) {
    super(message, details);
    const { status = 0, requestId = null, errors = [], retryAfterSeconds } = details;
    this.code = code;
    this.status = status;
    this.requestId = requestId;
    this.errors = errors;
    this.retryAfterSeconds = retryAfterSeconds;
    this.isTransient =
      details.isTransient ??
      (retryAfterSeconds !== undefined ||
        TRANSIENT_CODES.includes(code) ||
        TRANSIENT_STATUSES.includes(status) ||
        isServerError(this));
    this.isTimeout = details.isTimeout ?? code === "upload_timeout";
  }
}

/** Returns whether the service, or Cloudflare in front of it (52x, 530), failed in an unknown way. */
export const isServerError = ({ status }: StowageError): boolean => status === 500 || (status >= 520 && status <= 530);

/** Converts an error response. Without the body of the service's errors, it is from another server. */
export function errorOf({ status, headers }: Response, text = ""): StowageError {
  // Neither the service nor Cloudflare sends a date.
  const seconds = Number(headers.get("Retry-After") ?? Number.NaN);
  const retryAfterSeconds = seconds >= 0 ? seconds : undefined;
  const details = { status, requestId: headers.get("X-Request-Id"), retryAfterSeconds };
  try {
    const { code, message, errors } = JSON.parse(text) as Schemas["Error"];
    if (typeof code === "string" && typeof message === "string") {
      return new StowageError(code, message, { ...details, errors: Array.isArray(errors) ? errors : [] });
    }
  } catch {}
  return new StowageError(
    "unexpected_response",
    `Unexpected response with status ${status}. It is not from Stowage.`,
    details,
  );
}

/** Node's codes for a host name that does not exist and for TLS certificates that are rejected. */
const WRONG_URL = /^(ENOTFOUND|EPROTO|ERR_(TLS|SSL)_|CERT_|UNABLE_TO_|.*SELF_SIGNED_)/;

/** The name of the errors of `AbortSignal.timeout`. */
const TIMEOUT = "TimeoutError";

export const timeoutAfter = (milliseconds: number): Error =>
  Object.assign(new Error(`no response for ${milliseconds} ms`), { name: TIMEOUT });

/**
 * The request or its response was lost.
 * @param isKnownHost whether the host has responded before. If not, its name or certificate is wrong, which is permanent
 */
export function connectionError(url: string, cause: unknown, isKnownHost: boolean): StowageError {
  const {
    cause: inner,
    message,
    name,
  } = (cause ?? {}) as Partial<Error> & { cause?: { code?: string; message?: string } };
  const code = inner?.code ?? (cause as { code?: unknown })?.code;
  // The code of a DOMException is a number that says less than its message.
  const reason = (typeof code === "string" ? code : undefined) ?? inner?.message ?? (message || "unknown");
  // Browsers don't say why.
  const isTransient = !globalThis.process || isKnownHost || !WRONG_URL.test(reason);
  const { origin } = new URL(url);
  const details = { cause, isTransient, isTimeout: name === TIMEOUT };
  return new StowageError("connection_failed", `Can't reach ${origin} (${reason}).`, details);
}
