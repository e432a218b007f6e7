import { type RequestSpec, Sender } from "./connection.ts";
import { type ErrorCode, StowageError } from "./errors.ts";
import { hasStatus } from "./upload.ts";
import { UPLOADS } from "./upload-url.ts";

/** The attributes of a page that lead to the service. */
export interface Settings {
  url: string;
  token: string | null;
  getToken: (() => string | Promise<string>) | undefined;
}

/** The user waits for it, and may repeat it. */
const REMOVAL: RequestSpec = { method: "DELETE", maxRetries: 0, nullCodes: ["not_found", "insufficient_scope"] };

/** Calls the service with the token of a page, and after 401 with a new one. */
export class Access {
  readonly #settings: () => Settings;
  #connecting: Promise<Sender> | undefined;
  #token: string | null = null;

  constructor(settings: () => Settings) {
    this.#settings = settings;
  }

  /** Whether the page has set what leads to the service. */
  get isSet(): boolean {
    const { url, token, getToken } = this.#settings();
    return Boolean(url && (token || getToken));
  }

  /** The settings have changed. */
  reset(): void {
    this.#connecting = undefined;
  }

  /** @param progress bytes sent so far: an upload that advances may outlive several tokens */
  async call<T>(work: (connection: Sender) => Promise<T>, progress = () => 0): Promise<T> {
    for (let before = -1; ; before = progress()) {
      this.#connecting ??= this.#connect();
      const connecting = this.#connecting;
      try {
        return await work(await connecting);
      } catch (error) {
        const isRejected = hasStatus(error, 401);
        // Another file may already have asked for a new token.
        const isCurrent = this.#connecting === connecting;
        if (isCurrent && isRejected) this.reset();
        if (!isRejected || !this.#settings().getToken || progress() <= before) throw error;
      }
    }
  }

  /**
   * Deletes a file, if the token is an upload token that may. Any other may delete far more than what the user uploaded.
   * @throws if the service keeps the file although the token may delete files: `forbidden` if the team has used it
   */
  async remove(id: string): Promise<void> {
    await this.call(async (sender) => {
      if (this.#token?.startsWith("stow_ut_")) await sender.stream(`${UPLOADS}/${id}`, REMOVAL, () => {});
    });
  }

  async #connect(): Promise<Sender> {
    const { url, token, getToken } = this.#settings();
    if (!this.isSet) {
      const message = "<stowage-upload> waits for its `url`, and for a `token` or `getToken`.";
      // biome-ignore lint/suspicious/noConsole: The developer of the page has to read it.
      console.warn(message);
      throw new StowageError("token_missing", message, { isTransient: true });
    }
    // A wrong URL of the page is its own error, and not one of the token.
    new Sender({ url });
    try {
      this.#token = (await getToken?.()) ?? token;
      return new Sender({ url, key: this.#token });
    } catch (cause) {
      // The next attempt asks again.
      this.reset();
      // The page refuses by an error with a code, unless that is of a lost connection.
      const refusal = (cause ?? {}) as Partial<StowageError>;
      // Codes of Node and axios, such as ERR_NETWORK, name a failed connection, too.
      if (/^[a-z_]+$/.test(refusal.code ?? "") && !refusal.isTransient)
        throw new StowageError(refusal.code as ErrorCode, refusal.message ?? "", { cause });
      const code = navigator.onLine ? "unavailable" : "connection_failed";
      throw new StowageError(code, "There is no token.", { cause, isTransient: true });
    }
  }
}
