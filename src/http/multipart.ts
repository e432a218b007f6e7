import { Buffer, isUtf8 } from "node:buffer";
import { AppError, type CommonCode, invalidField } from "../errors.ts";
import { type BodyMemory, BodyReader, type DigestCheck } from "./body-reader.ts";

interface MultipartLimits {
  maxFileBytes: number;
  /** The longest pause of a client, and the longest delay behind a rate of 8 KiB a second. */
  idleMilliseconds: number;
  /** Returns the memory of the body, see `beginBody`. */
  begin(): BodyMemory;
  /** The digests of the body and of the file. */
  digests?: { body: DigestCheck; file: DigestCheck };
}

/** The bytes of a body besides the file: its boundaries, headers, text parts, preamble and epilogue. */
export const MAX_OVERHEAD_BYTES = 64 * 1024;
/** The header block of one part, from its boundary to the empty line. */
export const MAX_HEADER_BYTES = 16 * 1024;
const MAX_TEXT_PARTS = 10;
const MAX_TEXT_BYTES = 1024;
/** The shown length of a part's name, in an error. */
const MAX_SHOWN_CHARACTERS = 40;
/** Metadata of 4 KiB, and the other properties. */
export const MAX_PROPERTIES_BYTES = 8 * 1024;
/** RFC 2046, section 5.1.1. */
const MAX_BOUNDARY_CHARACTERS = 70;

/**
 * Reads the file of a multipart/form-data body (RFC 7578, with the framing of RFC 2046, section 5.1.1) as it arrives.
 * Buffers at most one read (256 KiB).
 *
 * Calls `consume` once, when the first byte of the part `file` has arrived. Its arguments are the name as the client sent
 * it, which may be empty or contain any character, the file's bytes in chunks, and the text of the form. The memory of a chunk is reused when the next one is requested. The body is read only when `consume`
 * requests bytes.
 *
 * The bytes end only after the complete form was read and is valid, so a `consume` that has seen their end may commit.
 * If the form is invalid, the bytes throw an `AppError`. Once `consume` has settled, this function throws the same error.
 * It also throws the errors of `consume`.
 *
 * A client often misses a response that arrives while it sends. So before this function throws, it reads and discards
 * the rest, up to the size limit of a body, as long as no pause exceeds `idleMilliseconds`. It never cancels the body,
 * and does not read it after `upload_timeout`.
 *
 * @throws AppError `malformed_multipart`, `invalid_input` for `properties`, `file_missing`, `file_empty`, `too_many_files`,
 * `file_too_large`, `body_too_large` (64 KiB over `maxFileBytes`), `upload_timeout`, `digest_mismatch`
 */
export async function readMultipartFile<T>(
  body: ReadableStream<Uint8Array> | null,
  contentType: string,
  limits: MultipartLimits,
  consume: (name: string, bytes: AsyncIterable<Uint8Array>, form: FormText) => Promise<T>,
): Promise<T> {
  if (body === null) throw malformed("The body is empty.");
  const reader = new BodyReader(body, limits.begin(), limits.idleMilliseconds, (cause) =>
    malformed("The body ended early. Send it again.", cause),
  );
  const { digests } = limits;
  let failure: unknown;
  try {
    const form = new FormParser(boundaryOf(contentType), limits.maxFileBytes);
    const pull = async () => {
      const chunk = await reader.read();
      if (!chunk) return form.end();
      digests?.body.update(chunk);
      form.write(chunk);
    };
    async function* fileBytes() {
      try {
        for (; !form.hasEnded; await pull()) {
          for (const chunk of form.chunks.splice(0)) {
            digests?.file.update(chunk);
            yield chunk;
          }
        }
        digests?.body.end();
        digests?.file.end();
      } catch (error) {
        failure = error;
        throw error;
      }
    }

    while (form.chunks.length === 0) await pull();
    const bytes = fileBytes();
    // return() waits for a read that `consume` left unfinished, because the body allows one read at a time.
    const result = await consume(form.fileName ?? "", bytes, form).finally(() => bytes.return());
    if (failure) throw failure;
    for (; !form.hasEnded; await pull()) form.chunks.length = 0;
    return result;
  } catch (error) {
    await reader.drain(limits.maxFileBytes + MAX_OVERHEAD_BYTES);
    throw failure ?? error;
  } finally {
    reader.release();
  }
}

/** Text of a form. Parts after the file are missing until the bytes of the file have ended. */
export interface FormText {
  /** The text of the part `properties`. */
  readonly properties: string | undefined;
}

/** Parses the form chunk by chunk, collects the file's bytes in `chunks`, and throws at the first error. */
class FormParser implements FormText {
  readonly chunks: Uint8Array[] = [];
  fileName: string | undefined;
  properties: string | undefined;
  hasEnded = false;
  readonly #delimiter: Buffer;
  readonly #maxFileBytes: number;
  #state: "preamble" | "headers" | "text" | "properties" | "file" | "epilogue" = "preamble";
  /** The name of the last part with a file name that is not `file`. */
  #blobName: string | undefined;
  /** The last bytes if they may begin a delimiter. Initially the line break, which the first delimiter may omit. */
  #carry = Buffer.from("\r\n");
  /** The bytes since the boundary, one character per byte. */
  #headers = "";
  #bodyBytes = 0;
  #partBytes = 0;
  #textParts = 0;
  /** The text of the part `properties`. A copy of each read would take more memory than its bytes. */
  #properties = Buffer.alloc(0);

  constructor(boundary: string, maxFileBytes: number) {
    this.#delimiter = Buffer.from(`\r\n--${boundary}`);
    this.#maxFileBytes = maxFileBytes;
  }

  write(chunk: Buffer): void {
    if (this.#state !== "epilogue") this.#split(chunk);
    this.#bodyBytes += chunk.length;
    assertAtMost(this.#bodyBytes, this.#maxFileBytes + MAX_OVERHEAD_BYTES, "The body", "body_too_large");
  }

  end(): void {
    if (this.#state !== "epilogue") throw malformed("The body ends before its closing boundary.");
    if (this.fileName === undefined) throw this.#fileMissing();
    this.hasEnded = true;
  }

  /** A line that begins with the boundary ends a part, whatever else is on it (RFC 2046, section 5.1.1). */
  #split(chunk: Buffer): void {
    let rest = this.#carry.length === 0 ? chunk : Buffer.concat([this.#carry, chunk]);
    for (let end = rest.indexOf(this.#delimiter); end !== -1; end = rest.indexOf(this.#delimiter)) {
      this.#parse(rest.subarray(0, end));
      if (this.#state === "epilogue") return;
      this.#endPart();
      rest = rest.subarray(end + this.#delimiter.length);
    }
    // The only CR of a delimiter is its first byte, so only the last CR can begin one here.
    const last = rest.lastIndexOf("\r");
    const mayBegin = last !== -1 && this.#delimiter.indexOf(rest.subarray(last)) === 0;
    const end = mayBegin ? last : rest.length;
    this.#parse(rest.subarray(0, end));
    this.#carry = Buffer.from(rest.subarray(end));
  }

  #parse(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#partBytes += bytes.length;
    if (this.#state === "headers") this.#parseHeaders(bytes);
    else if (this.#state === "text") this.#checkText();
    else if (this.#state === "properties") {
      if (this.#partBytes > MAX_PROPERTIES_BYTES)
        throw propertiesError(`Must have at most ${MAX_PROPERTIES_BYTES} bytes.`);
      this.#properties.set(bytes, this.#partBytes - bytes.length);
    } else if (this.#state === "file") {
      assertAtMost(this.#partBytes, this.#maxFileBytes, "The file", "file_too_large");
      this.chunks.push(bytes);
    }
  }

  #parseHeaders(bytes: Buffer): void {
    const before = this.#headers.length;
    this.#headers += bytes.toString("latin1", 0, MAX_HEADER_BYTES - before);
    const end = this.#headers.indexOf("\r\n\r\n", before - 3);
    if (this.#headers.startsWith("--")) {
      this.#state = "epilogue";
    } else if (end !== -1) {
      this.#beginPart(Buffer.from(this.#headers.slice(0, end), "latin1").toString());
      this.#parse(bytes.subarray(end + 4 - before));
    } else if (this.#headers.length === MAX_HEADER_BYTES) {
      throw malformed(`The headers of a part are larger than ${MAX_HEADER_BYTES} bytes.`);
    }
  }

  #beginPart(headers: string): void {
    const parameters = parametersOf(dispositionOf(headers));
    const fileName = fileNameOf(parameters);
    const name = parameters.get("name");
    const isFile = name === "file" && fileName !== undefined;
    const isFirst = this.fileName === undefined;
    if (isFile && !isFirst) throw new AppError("too_many_files");
    if (isFirst && name === "file" && !isFile) throw new AppError("file_missing");
    const isProperties = name === "properties";
    this.#blobName = isFile || isProperties || fileName === undefined ? undefined : (name ?? "");
    if (this.#blobName !== undefined && !FIELD_TYPE.test(typeOf(headers))) throw this.#otherFile();
    if (isProperties && this.properties !== undefined) throw propertiesError("Send this part once.");
    this.#state = isFile ? "file" : isProperties ? "properties" : "text";
    this.#partBytes = 0;
    if (isProperties) this.#properties = Buffer.alloc(MAX_PROPERTIES_BYTES);
    if (isFile) this.fileName = fileName;
    else this.#textParts += 1;
    if (this.#textParts > MAX_TEXT_PARTS) throw malformed(`The form has more than ${MAX_TEXT_PARTS} text parts.`);
  }

  /** A part with a file name that is too large for a field was meant as a file. */
  #checkText(): void {
    if (this.#blobName === undefined) assertAtMost(this.#partBytes, MAX_TEXT_BYTES, "A text part");
    else if (this.#partBytes > MAX_TEXT_BYTES) throw this.#otherFile();
  }

  #otherFile(): AppError {
    return this.fileName === undefined ? this.#fileMissing() : new AppError("too_many_files");
  }

  #fileMissing(): AppError {
    if (this.#blobName === undefined) return new AppError("file_missing");
    const name = JSON.stringify(this.#blobName.slice(0, MAX_SHOWN_CHARACTERS));
    const message = `The form has a file in the part ${name}. Send it in a part named \`file\`.`;
    return new AppError("file_missing", { message });
  }

  #endPart(): void {
    if (this.#state === "headers") throw malformed("A part of the form ends within its headers.");
    if (this.#state === "file" && this.#partBytes === 0) {
      // A browser sends an empty name and no bytes if no file was chosen.
      throw new AppError(this.fileName === "" ? "file_missing" : "file_empty");
    }
    if (this.#state === "properties") {
      const bytes = this.#properties.subarray(0, this.#partBytes);
      if (!isUtf8(bytes)) throw propertiesError("Must be UTF-8.");
      this.properties = bytes.toString();
    }
    this.#state = "headers";
    this.#headers = "";
  }
}

const propertiesError = (message: string) => invalidField("properties", message);

/** Returns the part's Content-Disposition. `headers` begins after the boundary, whose line can only have padding. */
function dispositionOf(headers: string): string {
  const [padding = "", ...lines] = headers.replace(/\r\n(?=[ \t])/g, "").split("\r\n");
  const isBroken = /[^ \t]/.test(padding) || lines.some((line) => !/^[^\s:]+:[^\r\n]*$/.test(line));
  if (isBroken) throw malformed("A part of the form has a broken header.");
  const [disposition, another] = lines.filter((line) => /^content-disposition:/i.test(line));
  if (!disposition || another || !/^[^:]+:\s*form-data\s*(;|$)/i.test(disposition)) {
    throw malformed("Each part of the form needs one header `Content-Disposition: form-data`.");
  }
  return disposition;
}

/** The type of a field that a client sends as a Blob, and so with a file name: text, JSON, or none stated. */
const FIELD_TYPE = /^($|text\/|application\/(octet-stream|([^/]*\+)?json)$)/i;

const typeOf = (headers: string): string => /^content-type:[ \t]*([^\s;]*)/im.exec(headers)?.[1] ?? "";

/**
 * Returns the parameters of a header value by lower-case name, unquoted. In quotes, `\"` and `\\` are escapes, and every
 * other backslash is literal (`C:\dir\a.mp3`), even a last one that would otherwise escape the closing quote.
 */
function parametersOf(header: string): Map<string, string> {
  const pattern = /;\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\["\\]|\\(?!["\\]))*)"|"([^"]*)"|([^;]*))/g;
  const parameters = new Map<string, string>();
  for (const [, name = "", quoted, verbatim, bare = ""] of header.matchAll(pattern)) {
    parameters.set(name.toLowerCase(), quoted?.replace(/\\(["\\])/g, "$1") ?? verbatim ?? bare.trim());
  }
  return parameters;
}

/** Returns the file name, preferably from `filename*` (RFC 5987). Undefined if there is none. */
function fileNameOf(parameters: Map<string, string>): string | undefined {
  const extended = parameters.get("filename*");
  const [, charset, encoded] = extended?.match(/^([^']*)'[^']*'(.*)$/) ?? [];
  if (encoded !== undefined) {
    const raw = Buffer.from(encoded).toString("latin1");
    const bytes = raw.replace(/%[0-9a-f]{2}/gi, (code: string) => String.fromCharCode(Number(`0x${code.slice(1)}`)));
    return charset?.toLowerCase() === "iso-8859-1" ? bytes : Buffer.from(bytes, "latin1").toString("utf8");
  }
  // Forms encode only these three (WHATWG HTML, multipart/form-data), so `100%.mp3` and `%41` are literal.
  return (parameters.get("filename") ?? extended)?.replace(/%(?:22|0D|0A)/gi, decodeURIComponent);
}

function boundaryOf(contentType: string): string {
  const boundary = parametersOf(contentType).get("boundary") ?? "";
  if (boundary.length > 0 && boundary.length <= MAX_BOUNDARY_CHARACTERS) return boundary;
  throw malformed(`The Content-Type needs a boundary of 1 to ${MAX_BOUNDARY_CHARACTERS} characters.`);
}

function assertAtMost(
  bytes: number,
  maxBytes: number,
  subject: string,
  code: CommonCode = "malformed_multipart",
): void {
  if (bytes > maxBytes) throw new AppError(code, { message: `${subject} is larger than ${maxBytes} bytes.` });
}

function malformed(message: string, cause?: unknown): AppError {
  return new AppError("malformed_multipart", { message, cause });
}
