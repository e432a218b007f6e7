import { StowageError } from "../stowage.ts";

/** Exit codes, for scripts: a table of `stowage --help`. */
export const EXIT_CODES = {
  failed: 1,
  usage: 2,
  refused: 3,
  not_found: 4,
  unreachable: 5,
  altered: 6,
  interrupted: 130,
} as const;

export type FailureKind = keyof typeof EXIT_CODES;

/** What ends a command, in words for whoever called it. */
export class Failure extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

const FILE_PROBLEMS: Record<string, string> = {
  ENOENT: "is not there",
  EACCES: "may not be opened",
  EPERM: "may not be opened",
  EISDIR: "is a folder",
  ENOTDIR: "is below something that is no folder",
  ENOSPC: "has no room: the disk is full",
  EDQUOT: "has no room: the quota is used up",
  EFBIG: "is larger than files may be here",
  EROFS: "can't be written: the disk is read-only",
  ENAMETOOLONG: "has too long a name",
  ELOOP: "is a link where none is followed",
};

function kindOf({ status, code }: StowageError): FailureKind {
  if (status === 401 || status === 403) return "refused";
  if (code === "not_found") return "not_found";
  if (code === "connection_failed" || status === 429 || status >= 500) return "unreachable";
  return "failed";
}

function messageOf({ message, errors, code, requestId }: StowageError): string {
  const fields = errors.map(({ path, message }) => `${path}: ${message}`).join(" ");
  const hint = code === "token_invalid" ? " Run `stowage login`, or set STOWAGE_KEY." : "";
  const id = requestId !== null && code === "internal" ? ` (request ${requestId})` : "";
  return `${message}${fields && ` ${fields}`}${hint}${id}`;
}

/** What a failure is called, in one line. `subject` is the path or id that it befell. */
export function failureOf(error: unknown, subject?: string): Failure {
  const about = (text: string) => (subject === undefined ? text : `${subject}: ${text}`);
  if (error instanceof Failure) return error;
  if (error instanceof StowageError) return new Failure(kindOf(error), about(messageOf(error)));
  const { code = "", path, message, name } = (error ?? {}) as NodeJS.ErrnoException;
  if (name === "NotReadableError") return new Failure("failed", about("can't be read, or was changed meanwhile."));
  if (code in FILE_PROBLEMS) return new Failure("failed", `${path ?? subject ?? "A file"} ${FILE_PROBLEMS[code]}.`);
  if (code.startsWith("ERR_PARSE_ARGS")) return new Failure("usage", message.split(". To specify")[0] ?? message);
  return new Failure("failed", about(message || String(error)));
}

/** For `catch`: throws the failure, told of its subject. */
export const failureAbout =
  (subject: string) =>
  (error: unknown): never => {
    throw failureOf(error, subject);
  };
