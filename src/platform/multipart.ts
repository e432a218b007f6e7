import { Buffer } from "node:buffer";
import { Dicer } from "@fastify/busboy";
import { AppError } from "../errors.ts";

export interface MultipartLimits {
  maxFileBytes: number;
  /** How long the client may send nothing while its bytes are awaited. */
  idleMilliseconds: number;
}

/** What a form may hold beside its file: boundaries, headers, text parts, preamble and epilogue. */
const MAX_OVERHEAD_BYTES = 64 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;
const HEADERS_TOO_LARGE = `The headers of a part are larger than ${MAX_HEADER_BYTES} bytes.`;
const MAX_TEXT_PARTS = 10;
const MAX_TEXT_BYTES = 1024;
/** RFC 2046, 5.1.1. */
const MAX_BOUNDARY_CHARACTERS = 70;
const READ_BYTES = 256 * 1024;

/**
 * Reads the one file of a multipart/form-data body as it arrives, holding no more of it than one read (256 KiB).
 *
 * `take` is called once, when the first byte of the part `file` is there, with the name as the client sent it (any
 * script, path and control characters included, possibly empty) and the file's bytes. The body is read only when
 * `take` asks for bytes, and the bytes end only after the whole form was read and found right: a `take` that has seen
 * their end may commit. Otherwise they throw the `AppError` with which the call then rejects, once `take` has settled.
 * What `take` itself throws comes through. A body that is refused is neither read on nor cancelled.
 *
 * @throws AppError `malformed_multipart`, `file_missing`, `file_empty`, `too_many_files`, `file_too_large`,
 * `body_too_large` (64 KiB over `maxFileBytes`), `upload_timeout`
 */
export async function readMultipartFile<T>(
  body: ReadableStream<Uint8Array> | null,
  contentType: string,
  limits: MultipartLimits,
  take: (name: string, bytes: AsyncIterable<Uint8Array>) => Promise<T>,
): Promise<T> {
  const form = new FormParser(boundaryOf(contentType), limits.maxFileBytes);
  if (body === null) throw malformed("The body is empty.");
  const reader = openReader(body);
  let ended = false;
  let failure: unknown;

  const pull = async () => {
    try {
      const chunk = await readInTime(reader, limits.idleMilliseconds);
      if (chunk) form.write(chunk);
      else form.end();
      ended = chunk === undefined;
    } catch (error) {
      failure = error;
      throw error;
    }
  };
  async function* fileBytes() {
    for (;;) {
      const piece = form.pieces.shift();
      if (piece) yield piece;
      else if (ended) return;
      else await pull();
    }
  }

  try {
    while (form.pieces.length === 0) await pull();
    const bytes = fileBytes();
    const result = await take(form.fileName, bytes);
    // Waits for a read that `take` left behind: the body can't be asked twice at a time.
    await bytes.return();
    while (!ended && failure === undefined) {
      form.pieces.length = 0;
      await pull();
    }
    if (failure !== undefined) throw failure;
    return result;
  } catch (error) {
    throw failure ?? error;
  } finally {
    try {
      reader.releaseLock();
    } catch {
      // workerd doesn't release a reader that still waits for bytes, as it does after a timeout.
    }
  }
}

/** Takes the form chunk by chunk, leaves the file's bytes of each in `pieces`, and throws at the first thing wrong. */
class FormParser {
  readonly pieces: Uint8Array[] = [];
  fileName = "";
  readonly #dicer: Dicer;
  readonly #maxFileBytes: number;
  #chunk: Buffer = Buffer.alloc(0);
  #bodyBytes = 0;
  #fileBytes = 0;
  #hasFile = false;
  #textParts = 0;
  #closed = false;
  #headerText = "";

  constructor(boundary: string, maxFileBytes: number) {
    this.#maxFileBytes = maxFileBytes;
    // Dicer is busboy's tokenizer. Busboy itself passes over what it can't read, and this has to refuse it.
    this.#dicer = new Dicer({ boundary });
    this.#dicer.on("finish", () => {
      this.#closed = true;
    });
    this.#recordHeaders();
    this.#dicer.on("part", (part) => {
      this.#headerText = "";
      let sink: ((bytes: Buffer | null) => void) | undefined;
      part.on("header", () => {
        sink = this.#openPart();
      });
      // Dicer hands bytes over by push(). Taken there they come at once, in order and uncopied, and nothing piles up
      // in a stream; its own count of parts waits for the "end" that the stream would emit.
      part.push = (bytes: Buffer | null) => {
        if (!sink) throw malformed("A part of the form ends within its headers.");
        sink(bytes);
        if (bytes === null) part.emit("end");
        return true;
      };
    });
  }

  write(chunk: Buffer): void {
    this.#chunk = chunk;
    this.#bodyBytes += chunk.length;
    this.#dicer.write(chunk);
    const maxBodyBytes = this.#maxFileBytes + MAX_OVERHEAD_BYTES;
    if (this.#bodyBytes > maxBodyBytes) {
      throw new AppError("body_too_large", { message: `The body is larger than ${maxBodyBytes} bytes.` });
    }
  }

  end(): void {
    if (!this.#closed) throw malformed("The body ends before its closing boundary.");
    if (!this.#hasFile) throw new AppError("file_missing");
  }

  /**
   * Dicer cuts long headers and drops broken lines without a word, so they are read on their way into its header
   * parser: a private part of it, in the version that package.json pins.
   */
  #recordHeaders(): void {
    const parser = (this.#dicer as unknown as { _hparser: { push(data: Buffer): number | undefined } })._hparser;
    const push = parser.push.bind(parser);
    parser.push = (data) => {
      const room = MAX_HEADER_BYTES - this.#headerText.length;
      if (room === 0) throw malformed(HEADERS_TOO_LARGE);
      this.#headerText += data.toString("latin1", 0, room);
      return push(data);
    };
  }

  /** Decides on a part by its headers. Gives what takes its bytes, and null at its end. */
  #openPart(): (bytes: Buffer | null) => void {
    const end = this.#headerText.indexOf("\r\n\r\n");
    if (end === -1) throw malformed(HEADERS_TOO_LARGE);
    const headers = Buffer.from(this.#headerText.slice(0, end), "latin1").toString("utf8");
    const parameters = parametersOf(dispositionOf(headers));
    const fileName = fileNameOf(parameters);
    const isFile = fileName !== undefined;
    if (this.#hasFile && isFile) throw new AppError("too_many_files");
    if (!this.#hasFile && isFile !== (parameters.get("name") === "file")) throw new AppError("file_missing");
    if (!isFile) return this.#openText();
    this.#hasFile = true;
    this.fileName = fileName;
    return (bytes) => this.#takeFileBytes(bytes);
  }

  #openText(): (bytes: Buffer | null) => void {
    this.#textParts += 1;
    if (this.#textParts > MAX_TEXT_PARTS) throw malformed(`The form has more than ${MAX_TEXT_PARTS} text parts.`);
    let textBytes = 0;
    return (bytes) => {
      textBytes += bytes?.length ?? 0;
      if (textBytes > MAX_TEXT_BYTES) throw malformed(`A text part is larger than ${MAX_TEXT_BYTES} bytes.`);
    };
  }

  #takeFileBytes(bytes: Buffer | null): void {
    if (bytes === null) {
      if (this.#fileBytes > 0) return;
      // A browser sends an empty name and no bytes where no file was chosen.
      throw new AppError(this.fileName === "" ? "file_missing" : "file_empty");
    }
    this.#fileBytes += bytes.length;
    if (this.#fileBytes > this.#maxFileBytes) {
      throw new AppError("file_too_large", { message: `The file is larger than ${this.#maxFileBytes} bytes.` });
    }
    // Bytes that looked like a boundary come from Dicer's own memory, which must not leave here.
    this.pieces.push(bytes.buffer === this.#chunk.buffer ? bytes : Uint8Array.from(bytes));
  }
}

/** The part's Content-Disposition. `headers` begins with what follows the boundary on its line: at most white space. */
function dispositionOf(headers: string): string {
  const [padding, ...lines] = headers.replace(/\r\n(?=[ \t])/g, "").split("\r\n");
  const broken = padding?.trim() !== "" || lines.some((line) => !/^[^\s:]+:[^\r\n]*$/.test(line));
  if (broken) throw malformed("A part of the form has a broken header.");
  const [disposition, another] = lines.filter((line) => /^content-disposition:/i.test(line));
  if (!disposition || another || !/^[^:]+:\s*form-data\s*(;|$)/i.test(disposition)) {
    throw malformed("Each part of the form needs one header `Content-Disposition: form-data`.");
  }
  return disposition;
}

/**
 * The parameters of a header value by lower-case name, unquoted. In quotes `\"` and `\\` are escapes and every other
 * backslash stands for itself (`C:\dir\a.mp3`); a last backslash that would eat the closing quote does so too.
 */
function parametersOf(header: string): Map<string, string> {
  const pattern = /;\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\["\\]|\\(?!["\\]))*)"|"([^"]*)"|([^;]*))/g;
  const parameters = new Map<string, string>();
  for (const [, name = "", quoted, verbatim, bare = ""] of header.matchAll(pattern)) {
    parameters.set(name.toLowerCase(), quoted?.replace(/\\(["\\])/g, "$1") ?? verbatim ?? bare.trim());
  }
  return parameters;
}

/** The file name, by preference from `filename*` (RFC 5987); undefined where there is none. */
function fileNameOf(parameters: Map<string, string>): string | undefined {
  const extended = parameters.get("filename*");
  const [, charset, encoded] = extended?.match(/^([^']*)'[^']*'(.*)$/) ?? [];
  if (encoded !== undefined) {
    const raw = Buffer.from(encoded).toString("latin1");
    const bytes = raw.replace(/%([0-9a-f]{2})/gi, (_: string, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
    return charset?.toLowerCase() === "iso-8859-1" ? bytes : Buffer.from(bytes, "latin1").toString("utf8");
  }
  // Forms encode these three and no other (WHATWG HTML, multipart/form-data), so `100%.mp3` and `%41` stay.
  return (parameters.get("filename") ?? extended)?.replace(/%(?:22|0D|0A)/gi, decodeURIComponent);
}

function boundaryOf(contentType: string): string {
  const boundary = parametersOf(contentType).get("boundary") ?? "";
  if (boundary === "") throw malformed("The Content-Type has no boundary.");
  if (boundary.length > MAX_BOUNDARY_CHARACTERS) {
    throw malformed(`The boundary is longer than ${MAX_BOUNDARY_CHARACTERS} characters.`);
  }
  return boundary;
}

interface BodyReader {
  /** The next bytes, undefined at the end. */
  read(): Promise<Buffer | undefined>;
  releaseLock(): void;
}

/** A request's body is read into a buffer of ours: by default workerd gives 4 KiB at a time, at three times the cost. */
function openReader(body: ReadableStream<Uint8Array>): BodyReader {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    const plain = body.getReader();
    return {
      read: async () => {
        const { value } = await plain.read();
        return value && Buffer.from(value.buffer, value.byteOffset, value.byteLength);
      },
      releaseLock: () => plain.releaseLock(),
    };
  }
  let buffer = new Uint8Array(READ_BYTES);
  return {
    read: async () => {
      const { done, value } = await reader.read(buffer);
      if (done) return undefined;
      buffer = new Uint8Array(value.buffer);
      return Buffer.from(value.slice().buffer);
    },
    releaseLock: () => reader.releaseLock(),
  };
}

async function readInTime(reader: BodyReader, idleMilliseconds: number): Promise<Buffer | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new AppError("upload_timeout")), idleMilliseconds);
  });
  const chunk = reader.read().catch((cause: unknown) => {
    throw malformed("The body broke off.", cause);
  });
  return Promise.race([chunk, timeout]).finally(() => clearTimeout(timer));
}

function malformed(message: string, cause?: unknown): AppError {
  return new AppError("malformed_multipart", { message, cause });
}
