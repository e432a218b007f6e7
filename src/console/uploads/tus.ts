import type { HttpRequest, HttpResponse, Upload as Library, UploadOptions } from "tus-js-client";

const base64 = (text: string) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

/**
 * What the client asks of tus-js-client, for this service and today's browsers: build.js puts it in its place, since
 * that has 8 kB more, compressed. One file, sent chunk after chunk; trying again is the client's.
 */
export class Upload implements Pick<Library, "url" | "start" | "abort"> {
  url: string | null;
  readonly #file: Blob;
  readonly #options: UploadOptions;
  #request = new XMLHttpRequest();
  /** Of another, nobody waits for an answer any more. */
  #round = 0;

  constructor(file: Blob, options: UploadOptions) {
    this.#file = file;
    this.#options = options;
    this.url = options.uploadUrl ?? null;
  }

  start(): void {
    this.#send(++this.#round).catch((error) => this.#options.onError?.(error));
  }

  async abort(): Promise<void> {
    this.#round++;
    this.#request.abort();
  }

  async #send(round: number): Promise<void> {
    const { onProgress, onUploadUrlAvailable, onSuccess, chunkSize = Number.POSITIVE_INFINITY } = this.#options;
    const { size } = this.#file;
    let offset = this.url === null ? null : await this.#storedBytes(round, this.url);
    if (offset === null) {
      await this.#create(round);
      offset = 0;
    }
    if (round !== this.#round) return;
    onUploadUrlAvailable?.();
    while (offset < size) {
      const from: number = offset;
      onProgress?.(from, size);
      const headers = { "Upload-Offset": `${from}`, "Content-Type": "application/offset+octet-stream" };
      const body = this.#file.slice(from, from + chunkSize);
      const response = await this.#ask(round, "PATCH", this.url ?? "", headers, body, (sent) =>
        onProgress?.(from + sent, size),
      );
      offset = offsetIn(response);
      if (round !== this.#round) return;
    }
    onProgress?.(size, size);
    (onSuccess as (() => void) | undefined)?.();
  }

  /** Null where the upload is gone. */
  async #storedBytes(round: number, url: string): Promise<number | null> {
    const response = await this.#ask(round, "HEAD", url);
    return [404, 410].includes(response.getStatus()) ? null : offsetIn(response);
  }

  async #create(round: number): Promise<void> {
    const { endpoint, metadata = {} } = this.#options;
    const response = await this.#ask(round, "POST", endpoint ?? "", {
      "Upload-Length": `${this.#file.size}`,
      "Upload-Metadata": Object.entries(metadata)
        .map(([name, value]) => `${name} ${base64(value)}`)
        .join(),
    });
    const location = isGood(response) && response.getHeader("Location");
    if (!location) throw { originalResponse: response };
    this.url = new URL(location, endpoint ?? "").href;
  }

  #ask(
    round: number,
    method: string,
    url: string,
    headers: Record<string, string> = {},
    body: Blob | null = null,
    onSent: (bytes: number) => void = () => {},
  ): Promise<HttpResponse> {
    return new Promise((resolve, reject) => {
      if (round !== this.#round) return;
      const request = new XMLHttpRequest();
      this.#request = request;
      const asked = { getMethod: () => method } as HttpRequest;
      const response = {
        getStatus: () => request.status,
        getHeader: (name) => request.getResponseHeader(name) ?? undefined,
        getBody: () => request.responseText,
      } as HttpResponse;
      request.open(method, url);
      const all = { "Tus-Resumable": "1.0.0", ...this.#options.headers, ...headers };
      for (const [name, value] of Object.entries(all)) request.setRequestHeader(name, value);
      request.upload.onprogress = ({ loaded }) => onSent(loaded);
      request.onload = () => {
        try {
          this.#options.onAfterResponse?.(asked, response);
          resolve(response);
        } catch (causingError) {
          reject({ causingError });
        }
      };
      request.onerror = (causingError) => reject({ originalRequest: asked, causingError });
      request.send(body);
    });
  }
}

const isGood = (response: HttpResponse) => response.getStatus() >= 200 && response.getStatus() < 300;

function offsetIn(response: HttpResponse): number {
  const offset = Number.parseInt((isGood(response) && response.getHeader("Upload-Offset")) || "", 10);
  if (Number.isNaN(offset)) throw { originalResponse: response };
  return offset;
}
