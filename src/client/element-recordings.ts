import { loadSound } from "./element-load.ts";
import type { Recorder, Take } from "./element-recorder.ts";
import { lock, recordingPlaceOf, savedUploads } from "./element-saved.ts";
import { create, createButton } from "./element-view.ts";
import { fileOf } from "./recording-file.ts";
import type { SavedUpload } from "./upload.ts";

/*
 * The recordings of an upload element: the button that starts one, where they are saved, and which tab has them. The
 * recorder itself is loaded with the first recording.
 */

/** The parts of its element that the recordings need. */
interface Host {
  /** The name of the element in the form. */
  name(): string;
  serviceUrl(): string;
  /** The bits per second of a recording. */
  bitrate(): number;
  text(name: string): string;
  announce(name: string): void;
  onChange(): void;
  /** Called with a recording that the user sends. */
  onSend(take: Take): void;
  /** Called with a recording that an earlier page was sending. */
  onResume(take: Pick<Take, "key" | "file">, saved: SavedUpload | undefined): void;
  onError(code: string, error: unknown): void;
}

const canRecord = () => globalThis.MediaRecorder !== undefined && navigator.mediaDevices?.getUserMedia !== undefined;

export class Recordings {
  readonly #host: Host;
  readonly #start = createButton("record", () => void this.#record());
  readonly #message = create("p", "message");
  readonly element = create("div", "recordings", this.#start, this.#message);
  #loading: Promise<Recorder> | undefined;
  #recorder: Recorder | undefined;
  /** Whether the browser is asking for the microphone. */
  #isAsking = false;
  /** Functions that unlock recordings, by their keys. No other tab can take a recording before. */
  readonly #locks = new Map<string, Promise<() => void>>();
  /** Resolves once the latest part of a recording is saved. */
  #lastPart: Promise<void> = Promise.resolve();

  constructor(host: Host) {
    this.#host = host;
    this.#message.role = "alert";
  }

  /** Undefined unless there is a recording that is neither sent nor discarded. */
  get state(): "recording" | "recorded" | undefined {
    return this.#recorder?.state;
  }

  /** The button for the next step. Undefined if nothing can be recorded. */
  get button(): HTMLButtonElement | undefined {
    return this.#recorder?.button ?? (this.#start.hidden ? undefined : this.#start);
  }

  update(isShown: boolean, isDisabled: boolean): void {
    this.#start.hidden = !isShown || !canRecord() || this.state !== undefined;
    this.#start.textContent = this.#host.text("record");
    this.#start.disabled = isDisabled || this.#isAsking;
    this.#message.hidden = this.#message.textContent === "";
    this.#recorder?.update(isDisabled);
  }

  /** Ends the recording, or takes away the shown one, and deletes it. */
  discard(): void {
    this.#recorder?.discard();
  }

  /** Offers the recordings that were not sent, and sends those that were being sent. */
  async restore(): Promise<void> {
    const place = recordingPlaceOf(this.#host.name());
    for (const { key, ...record } of await savedUploads.list()) if (record.place === place) void this.#restore(key);
  }

  /** Leaves the recordings, which stay saved, to the next element at this place. @param isGone whether it still has to */
  async leave(isGone: () => boolean): Promise<void> {
    await this.#recorder?.stop();
    await this.#lastPart;
    if (!isGone()) return;
    this.#recorder?.forget();
    for (const key of this.#locks.keys()) this.unlock(key);
  }

  unlock(key: string): void {
    void this.#locks.get(key)?.then((unlock) => unlock());
    this.#locks.delete(key);
  }

  #lock(key: string): Promise<() => void> {
    const locking = lock(key);
    this.#locks.set(key, locking);
    return locking;
  }

  #show(message: string): void {
    this.#message.textContent = message && this.#host.text(message);
    this.#host.onChange();
  }

  #load(): Promise<Recorder> {
    this.#loading ??= this.#loadOnce().catch((error) => {
      // The next attempt loads it again.
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }

  async #loadOnce(): Promise<Recorder> {
    const { Recorder } = await loadSound(this.#host.serviceUrl());
    const recorder = new Recorder({
      text: (name) => this.#host.text(name),
      announce: (name) => this.#host.announce(name),
      show: (message) => this.#show(message),
      focus: () => this.button?.focus(),
      onPart: (key, recording, part) => {
        if (!this.#locks.has(key)) void this.#lock(key);
        const place = recordingPlaceOf(this.#host.name());
        const record = { key, place, at: Date.now(), keptDays: recorder.keptDays, recording };
        this.#lastPart = savedUploads.append(record, part);
      },
      onFinish: async (key, recording) => {
        await this.#lastPart;
        await savedUploads.update([key], { recording });
      },
      onSend: (take) => {
        void savedUploads.update([take.key], { recording: { ...take.properties, isSent: true } });
        this.#host.onSend(take);
      },
      onDiscard: (key) => {
        void savedUploads.delete([key]);
        this.unlock(key);
      },
    });
    this.#message.before(recorder.element);
    this.#recorder = recorder;
    return recorder;
  }

  async #record(): Promise<void> {
    const hasFocus = this.#start.matches(":focus");
    this.#isAsking = true;
    this.#show("");
    try {
      await (await this.#load().catch((error) => this.#fail("connection_failed", error)))?.start(this.#host.bitrate());
    } catch (error) {
      const isDenied = error instanceof DOMException && ["NotAllowedError", "SecurityError"].includes(error.name);
      this.#fail(isDenied ? "microphone_denied" : "microphone_missing", error);
    } finally {
      this.#isAsking = false;
      this.#host.onChange();
      // A disabled button loses the focus.
      if (hasFocus) this.button?.focus();
    }
  }

  #fail(code: string, error: unknown): undefined {
    this.#show(code);
    this.#host.onError(code, error);
  }

  async #restore(key: string): Promise<void> {
    const locking = this.#lock(key);
    await locking;
    const { recording, saved } = (await savedUploads.get(key)) ?? {};
    // The element was removed in the meantime.
    if (this.#locks.get(key) !== locking) return;
    if (!recording) return this.unlock(key);
    const { isSent, ...properties } = recording;
    const parts = await savedUploads.parts(key);
    const file = fileOf(parts, properties);
    // Its page was closed before the first part was there.
    if (file.size === 0) {
      void savedUploads.delete([key]);
      return this.unlock(key);
    }
    // What is being sent stays as it is.
    if (isSent) return this.#host.onResume({ key, file }, saved);
    const recorder = await this.#load().catch(() => undefined);
    // Without a connection, it stays saved for the next page.
    if (!recorder) return this.unlock(key);
    await recorder.offer(key, parts, properties, () => this.#locks.get(key) === locking);
  }
}
