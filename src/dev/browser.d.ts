/* The types of browsers that the client mentions. The scripts that use it have the types of Workers, which lack these. */

type BlobPart = string | Blob | ArrayBuffer | ArrayBufferView;

declare var navigator: Navigator;

interface XMLHttpRequest {
  status: number;
  response: ArrayBuffer;
  responseType: string;
  upload: { onprogress: ((event: { loaded: number }) => void) | null };
  onload: (() => void) | null;
  onerror: (() => void) | null;
  onabort: (() => void) | null;
  open(method: string, url: string): void;
  setRequestHeader(name: string, value: string): void;
  getAllResponseHeaders(): string;
  send(body: unknown): void;
  abort(): void;
}
declare var XMLHttpRequest: { new (): XMLHttpRequest };
