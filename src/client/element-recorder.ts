import { create, createButton } from "./element-view.ts";
import { type Microphone, startRecording } from "./microphone.ts";
import { fileOf, type RecordingProperties } from "./recording-file.ts";
import { composeParts } from "./seekable.ts";

/* The recorder of an upload element, which the browser loads with the first recording. */

/** The part of the element that the recorder needs. */
interface Host {
  text(name: string): string;
  announce(name: string): void;
  /** Shows a message by its name, or none, and the new state. */
  show(message: string): void;
  /** Focuses the button for the next step. */
  focus(): void;
  /** Called every few seconds with the latest part of a recording, and the properties of the whole file. */
  onPart(key: string, properties: RecordingProperties, part: Blob): void;
  /** Called with the properties of a finished recording. Resolves once they are saved, and only then is it sent. */
  onFinish(key: string, properties: RecordingProperties): Promise<void>;
  /** Called with a recording that the user sends. */
  onSend(take: Take): void;
  /** Called with the key of a recording that the user cancels. */
  onDiscard(key: string): void;
}

/** A finished recording. */
export interface Take {
  /** Identifies the recording in the browser's storage. */
  key: string;
  file: File;
  properties: RecordingProperties;
}

/** A recording from the microphone. */
interface Recording extends Microphone {
  key: string;
  /** Resolves with the recording once it stops. */
  take: Promise<Take>;
}

const METER_MILLISECONDS = 100;

/** Time and level with Stop, and then the playback with Send. */
export class Recorder {
  /** Somebody returns to an interrupted interview. */
  readonly keptDays = 30;
  readonly #host: Host;
  readonly #time = create("span", "time");
  readonly #level = create("meter", "level");
  readonly #audio = create("audio", "audio");
  readonly #paused = create("span", "paused");
  readonly #pause = createButton("pause", () => this.#recording?.pause(!this.#recording.isPaused()));
  readonly #stop = createButton("stop", () => this.#recording?.stop());
  readonly #send = createButton("send", () => this.#sendTake());
  readonly #discardRecording = createButton("cancel", () => this.discard());
  readonly #discardTake = createButton("cancel", () => this.discard());
  readonly #recorder = create(
    "div",
    "recorder",
    ...[this.#time, this.#paused, this.#level],
    ...[this.#pause, this.#stop, this.#discardRecording],
  );
  readonly #playback = create("div", "playback", this.#audio, this.#send, this.#discardTake);
  readonly element = create("div", "recording", this.#recorder, this.#playback);
  #recording: Recording | undefined;
  /** The recordings that are neither sent nor discarded. The first one is shown. */
  readonly #takes: Take[] = [];
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(host: Host) {
    this.#host = host;
    this.#time.role = "timer";
    this.#audio.controls = true;
    // A policy of the page without `media-src blob:` forbids the playback.
    this.#audio.addEventListener("error", () => this.#audio.toggleAttribute("hidden", true));
  }

  /** Undefined unless there is a recording that is neither sent nor discarded. */
  get state(): "recording" | "recorded" | undefined {
    if (this.#recording) return "recording";
    return this.#takes.length > 0 ? "recorded" : undefined;
  }

  /** The button for the next step. Undefined without a recording. */
  get button(): HTMLButtonElement | undefined {
    return { recording: this.#stop, recorded: this.#send, none: undefined }[this.state ?? "none"];
  }

  update(isDisabled: boolean): void {
    this.#recorder.hidden = !this.#recording;
    this.#playback.hidden = this.state !== "recorded";
    for (const button of [this.#pause, this.#stop, this.#send, this.#discardRecording, this.#discardTake]) {
      button.textContent = this.#host.text(button.part.item(1) ?? "");
      button.disabled = isDisabled;
    }
    const isPaused = this.#recording?.isPaused() ?? false;
    if (isPaused) this.#pause.textContent = this.#host.text("continue");
    this.#paused.hidden = !isPaused;
    this.#paused.textContent = this.#host.text("paused");
    this.#level.ariaLabel = this.#host.text("level");
    this.#audio.ariaLabel = this.#host.text("playback");
  }

  /** Records until the user or the browser stops it. @throws DOMException if there is no microphone, or the user denies it */
  async start(bitrate: number): Promise<void> {
    const key = `recording ${crypto.getRandomValues(new Uint32Array(4)).join("")}`;
    // The last part of a discarded recording still arrives.
    const isShown = () => this.#recording?.key === key;
    let end: (take: Promise<Take>) => void = () => {};
    const take = new Promise<Take>((resolve) => {
      end = resolve;
    });
    const microphone = await startRecording(bitrate, {
      onPart: (part, properties) => isShown() && this.#host.onPart(key, properties, part),
      onChange: () => isShown() && this.#showChange(microphone),
      onEnd: (parts, properties) => end(this.#finish(key, parts, properties)),
    });
    const recording = { ...microphone, key, take };
    if (!this.element.isConnected) return recording.stop();
    this.#recording = recording;
    void this.#follow(recording);
  }

  /**
   * Offers a recording of an earlier visit.
   * @param isWanted whether the element still has it, once its file is composed
   */
  async offer(key: string, parts: Blob[], saved: RecordingProperties, isWanted: () => boolean): Promise<void> {
    const { name, type, part, index } = saved;
    // The browser may have had no space for a part that the index contains.
    const isComplete = part === parts.length - 1;
    const pieces = saved.pieces ?? (await composeParts(parts, isComplete ? index : undefined));
    const take = await this.#finish(key, parts, { name, type, pieces });
    if (!isWanted() || this.#takes.some(({ key }) => key === take.key)) return;
    this.#takes.push(take);
    this.#show("recovered");
  }

  /** Saves how the file is composed before any byte of it is sent, so that a resumed upload continues the same file. */
  async #finish(key: string, parts: Blob[], properties: RecordingProperties): Promise<Take> {
    await this.#host.onFinish(key, properties);
    return { key, file: fileOf(parts, properties), properties };
  }

  #showChange({ isPaused, problem }: Microphone): void {
    this.#show(problem());
    this.#host.announce(isPaused() ? "paused" : "announceRecording");
  }

  /** Ends the recording, or takes away the shown one, and deletes it. */
  discard(): void {
    const { key } = this.#recording ?? this.#takes[0] ?? {};
    this.#leave();
    if (key !== undefined) this.#host.onDiscard(key);
  }

  /** Stops recording, and waits for its last part. */
  async stop(): Promise<void> {
    this.#recording?.stop();
    await this.#recording?.take;
  }

  /** No longer offers the recordings, which stay saved. */
  forget(): void {
    this.#end();
    this.#takes.length = 0;
    this.#show();
  }

  /** Ends the shown recording, and shows the next one, or the button Record. @returns the ended recording */
  #leave(): Take | undefined {
    const recording = this.#recording;
    const hasFocus = this.element.matches(":focus-within");
    this.#end();
    recording?.stop();
    const take = recording ? undefined : this.#takes.shift();
    this.#show();
    if (hasFocus) this.#host.focus();
    return take;
  }

  #show(message = ""): void {
    const [take] = this.#recording ? [] : this.#takes;
    URL.revokeObjectURL(this.#audio.src);
    this.#audio.hidden = false;
    if (take) this.#audio.src = URL.createObjectURL(take.file);
    else this.#audio.removeAttribute("src");
    this.#host.show(message);
  }

  /** Shows time and level until the recording stops, and then its playback. */
  async #follow({ key, take: finished, seconds, level, problem }: Recording): Promise<void> {
    const showLevel = () => {
      const whole = Math.floor(seconds());
      this.#time.textContent = `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
      this.#level.value = level();
    };
    showLevel();
    this.#timer = setInterval(showLevel, METER_MILLISECONDS);
    this.#host.announce("announceRecording");
    const take = await finished;
    // It was discarded.
    if (this.#recording?.key !== key) return;
    const isStopFocused = this.#stop.matches(":focus");
    this.#end();
    this.#takes.unshift(take);
    this.#show(problem());
    if (isStopFocused) this.#send.focus();
    this.#host.announce("announceRecorded");
  }

  #end(): void {
    clearInterval(this.#timer);
    this.#recording = undefined;
  }

  #sendTake(): void {
    const take = this.#leave();
    if (take) this.#host.onSend(take);
  }
}
