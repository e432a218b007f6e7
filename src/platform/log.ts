type Level = "info" | "warn" | "error";

/**
 * The fields of a log line. The list is closed, so there is no field for a token, password, email, body or signed URL.
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
  /** The number of a database. */
  database?: number;
  bytes?: number;
  outcome?: string;
  attempts?: number;
  counts?: Record<string, number>;
  /** The cause of a failure: an error of our code or of the platform. */
  cause?: unknown;
}

export type Log = (level: Level, event: string, fields: LogFields) => void;

const REDACTED = [
  /stow_[a-z]{2}_[\w.-]+/g, // tokens
  /whsec_[\w+/=]+/g, // signing secrets
  /Bearer\s+\S+/gi,
  /X-Amz-[\w-]+=[^&\s"]+/g, // signed URLs
  /[0-9a-f]{24}\.[0-9a-f]{32}[^\s"]*/g, // links, upload URLs and what follows, by the form of `secret-url.ts`
  /[^\s"'<>@]+@[^\s"'<>@]+\.[^\s"'<>@]+/g, // emails
];

/** The message and the stack, because workerd's stack may lack the message. */
function describeError(e: Error): string {
  // Drizzle's message of a failed query contains SQL and values. The reason is in its cause.
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

/** Prints one JSON line, whose fields Workers Logs indexes. */
export const consoleLog: Log = (level, event, { cause, ...fields }) => {
  console[level](JSON.stringify({ level, event, ...fields, cause: describeCause(cause) }));
};
