import type { Host } from "./element-files.ts";
import { loadSound } from "./element-load.ts";
import type { Recorder } from "./element-recorder.ts";
import { takeOf } from "./element-state.ts";
import { create, createButton } from "./element-view.ts";
import { type Bytes, newKey } from "./upload-runner.ts";
import type { NewItem } from "./upload-state.ts";

/* The recordings of an upload element that are not sent: the button that starts one, and the recorder, loaded with the first. */

const canRecord = () => globalThis.MediaRecorder !== undefined && navigator.mediaDevices?.getUserMedia !== undefined;

export class Recordings {
  readonly #host: Host;
  readonly #start = createButton("record", () => {
    this.#show("");
    this.#host.uploads.send({ type: "record", key: newKey() });
  });
  readonly #message = create("p", "message");
  readonly element = create("div", "recordings", this.#start, this.#message);
  #loading: Promise<Recorder> | undefined;
  #recorder: Recorder | undefined;
  /** The key of the recording that is shown, and of the last one that this page has made. */
  #shown: string | undefined;
  #own: string | undefined;
  #wasAsking = false;

  constructor(host: Host) {
    this.#host = host;
    this.#message.role = "alert";
    this.#message.hidden = true;
  }

  /** The button for the next step. Undefined if nothing can be recorded. */
  get button(): HTMLButtonElement | undefined {
    return this.#recorder?.button ?? (this.#start.hidden ? undefined : this.#start);
  }

  update(isShown: boolean, isDisabled: boolean): void {
    const { items, uploads } = this.#host.uploads;
    const isAsking = uploads.asking !== undefined;
    const take = takeOf(items);
    const before = this.button;
    const hadFocus = this.element.matches(":focus-within");
    if (take?.state === "recording") this.#own = take.key;
    if (take?.key !== this.#shown && (take || this.#shown)) {
      this.#show(take && take.key !== this.#own ? "recovered" : "");
      this.#shown = take?.key;
    }
    this.#recorder?.update(take, take && this.#host.uploads.fileOf(take.key), isDisabled);
    this.#start.hidden = !isShown || !canRecord() || take !== undefined;
    this.#start.textContent = this.#host.text("record");
    this.#start.disabled = isDisabled || isAsking;
    // A hidden or disabled button loses the focus, which goes to the next step.
    if ((hadFocus && this.button !== before) || (this.#wasAsking && !isAsking)) this.button?.focus();
    this.#wasAsking = isAsking && (hadFocus || this.#wasAsking);
  }

  /** Shows a message by its name, or none. */
  #show(message: string): void {
    this.#message.textContent = message && this.#host.text(message);
    this.#message.hidden = message === "";
  }

  /** Records from the microphone. */
  async record(key: string, bytes: Bytes): Promise<void> {
    const failed = await this.#load().then(
      (recorder) => recorder.record(key, bytes),
      (error) => ({ code: "connection_failed", error }),
    );
    if (!failed) return;
    this.#show(failed.code);
    this.#host.dispatch("failed", { sentBytes: 0, ...failed });
    this.#host.uploads.send({ type: "unrecorded", key });
  }

  /** Makes the file of a saved recording. Without a connection, it stays saved. */
  async compose(item: NewItem<null>, parts: Blob[]) {
    const recorder = await this.#load().catch(() => undefined);
    return recorder?.compose(item, parts);
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
    const { Recorder, RECORDER_TEXTS } = await loadSound(this.#host.serviceUrl());
    this.#host.addTexts(RECORDER_TEXTS);
    this.#recorder = new Recorder(this.#host, this.#message, (message) => this.#show(message));
    return this.#recorder;
  }
}
