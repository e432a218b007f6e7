type Level = "info" | "warn" | "error";

/**
 * What a log line may hold. It is a closed list: a token, a password, an email, a body or a signed address has no
 * field to go to.
 */
export interface LogFields {
  requestId?: string;
  method?: string;
  /** The route's pattern, never the path: a path may hold anything. */
  route?: string;
  status?: number;
  code?: string;
  durationMilliseconds?: number;
  keyId?: string;
  teamId?: string;
  fileId?: string;
  webhookId?: string;
  outcome?: string;
  attempts?: number;
  counts?: Record<string, number>;
  /** The cause of a failure, as told by code of ours or by the platform. */
  cause?: unknown;
}

export type Log = (level: Level, event: string, fields: LogFields) => void;

const REDACTED = [
  /stow_(?:[sp]k|op)_[\w-]+/g, // tokens
  /whsec_[\w+/=]+/g, // secrets of webhooks
  /Bearer\s+\S+/gi,
  /X-Amz-[\w-]+=[^&\s"]+/g, // signed addresses
  /[^\s"'<>@]+@[^\s"'<>@]+\.[^\s"'<>@]+/g, // emails
];

/** The message and where it came from: workerd's stack may lack the message. */
function describeError(e: Error): string {
  // Of a failed query Drizzle's message shows SQL and values; what went wrong is in its cause.
  if (e.message.startsWith("Failed query")) return e.name;
  const stack = e.stack ?? "";
  return stack.includes(e.message) ? stack : `${e.name}: ${e.message}\n${stack}`;
}

function describeCause(cause: unknown): string | undefined {
  if (cause === undefined) return undefined;
  const parts: string[] = [];
  for (let e: unknown = cause; e !== undefined && parts.length < 5; e = e instanceof Error ? e.cause : undefined) {
    parts.push(e instanceof Error ? describeError(e) : String(e));
  }
  return REDACTED.reduce((text, pattern) => text.replace(pattern, "[redacted]"), parts.join("\ncaused by "));
}

/** One JSON line on the console, where Workers Logs indexes its fields. */
export const consoleLog: Log = (level, event, { cause, ...fields }) => {
  console[level](JSON.stringify({ level, event, ...fields, cause: describeCause(cause) }));
};
