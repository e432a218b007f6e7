import type { Writable } from "node:stream";
import { StowageError } from "../index.ts";
import { complain } from "./output.ts";

/** Exit codes for scripts. `stowage --help` lists them. */
export const EXIT_CODES = {
  failed: 1,
  usage: 2,
  rejected: 3,
  not_found: 4,
  unreachable: 5,
  altered: 6,
  interrupted: 130,
} as const;

export type FailureKind = keyof typeof EXIT_CODES;

interface FailureOptions extends ErrorOptions {
  subject?: string | undefined;
}

/** An error with a message for the user. */
export class Failure extends Error {
  readonly kind: FailureKind;
  /** The path or ID that the error is about, for scripts. */
  subject: string | undefined;

  constructor(kind: FailureKind, message: string, { subject, ...options }: FailureOptions = {}) {
    super(message, options);
    this.kind = kind;
    this.subject = subject;
  }
}

const FILE_PROBLEMS: Record<string, string> = {
  ENOENT: "does not exist",
  EACCES: "can't be opened: permission denied",
  EPERM: "can't be opened: permission denied",
  EISDIR: "is a folder",
  ENOTDIR: "is inside something that is not a folder",
  ENOSPC: "can't be written: the disk is full",
  EDQUOT: "can't be written: the disk quota is used up",
  EFBIG: "exceeds the file size limit of this system",
  EROFS: "can't be written: the disk is read-only",
  ENAMETOOLONG: "has a name that is too long",
  ELOOP: "is a link, which is not followed",
};

function kindOf({ status, code, isTransient }: StowageError): FailureKind {
  if (code === "digest_mismatch") return "altered";
  if (status === 401 || status === 403) return "rejected";
  if (code === "not_found") return "not_found";
  if (code === "connection_failed" || (isTransient && (status === 429 || status > 500))) return "unreachable";
  return "failed";
}

/** Fields whose own names read oddly in a sentence. */
const FIELD_NAMES: Record<string, string> = {
  expiresAt: "expiry date",
  expiresIn: "lifetime",
  fileType: "type",
  fileTypes: "type",
  overlapSeconds: "overlap",
  scopes: "scope",
  tags: "tag",
  teamId: "team ID",
  types: "type",
  url: "URL",
};

/** Turns `expiresAt` and "Must be in the future." into "The expiry date must be in the future." */
function sentenceOf({ path, message }: StowageError["errors"][number]): string {
  // The whole body is wrong.
  if (path === "") return message;
  // A list's items have numbers.
  const field = path.split(".").findLast((part) => !/^\d+$/.test(part)) ?? path;
  const name = FIELD_NAMES[field] ?? field.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const allowed = message.startsWith("Invalid option") ? [...message.matchAll(/"([^"]*)"/g)].map(([, one]) => one) : [];
  if (allowed.length > 0) return `The ${name} must be one of ${allowed.join(", ")}.`;
  if (message.startsWith("Must ")) return `The ${name} must ${message.slice("Must ".length)}`;
  if (message.startsWith("Required")) return `The ${name} is required${message.slice("Required".length)}`;
  return `${name}: ${message}`;
}

function messageOf({ message, errors, code, requestId }: StowageError): string {
  if (errors.length > 0) return errors.map(sentenceOf).join(" ");
  if (code === "digest_mismatch") return "Checksum mismatch. Upload it again.";
  if (code === "token_invalid") return `${message} Run \`stowage login\`, or set STOWAGE_KEY.`;
  return requestId !== null && code === "internal" ? `${message} (request ${requestId})` : message;
}

/** Describes an error in one line. `subject` is the path or id that the error is about. */
export function failureOf(error: unknown, subject?: string): Failure {
  const about = (text: string) => (subject === undefined ? text : `${subject}: ${text}`);
  if (error instanceof Failure) {
    error.subject ??= subject;
    return error;
  }
  const options = { cause: error, subject };
  if (error instanceof StowageError) return new Failure(kindOf(error), about(messageOf(error)), options);
  const { code = "", path, message, name } = (error ?? {}) as NodeJS.ErrnoException;
  if (name === "NotReadableError") return new Failure("failed", about("The file changed during the upload."), options);
  if (code in FILE_PROBLEMS) {
    const named = subject ?? path;
    return new Failure("failed", `${named ?? "A file"} ${FILE_PROBLEMS[code]}.`, { cause: error, subject: named });
  }
  return new Failure("failed", about(message || String(error)), options);
}

/** Prints a failure to stderr, with --json as an object. @returns the exit code */
export function complainOf(stderr: Writable, failure: Failure, isJson: boolean | undefined): number {
  const { kind, message, cause, subject } = failure;
  const exitCode = EXIT_CODES[kind];
  const { status, requestId, errors } = cause instanceof StowageError ? cause : ({} as Partial<StowageError>);
  const about = subject !== undefined && { [isId(subject) ? "id" : "path"]: subject };
  const details = { kind, exitCode, code: codeOf(failure), message, ...about, status, requestId, errors };
  complain(stderr, message, isJson ? { error: details } : undefined);
  return exitCode;
}

/** A code for scripts: the service's, the system's such as ENOENT, or else the kind. */
function codeOf({ kind, cause }: Failure): string {
  const { code } = (cause ?? {}) as Partial<NodeJS.ErrnoException>;
  return typeof code === "string" ? code : kind;
}

/** Whether the token is valid, but lacks the scope. */
export const isForbidden = (error: unknown): boolean =>
  error instanceof StowageError && (error.code === "forbidden" || error.code === "insufficient_scope");

export const isId = (text: string): boolean => /^[0-9a-f]{24}$/.test(text);

/** Whether no other file could be written, either. */
export const isDiskFull = ({ cause }: Failure): boolean =>
  ["ENOSPC", "EDQUOT", "EROFS"].includes((cause as NodeJS.ErrnoException | undefined)?.code ?? "");

/** For `catch`: rethrows the error as a failure about its subject. */
export const failureAbout =
  (subject: string) =>
  (error: unknown): never => {
    throw failureOf(error, subject);
  };
