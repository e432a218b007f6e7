import type { RecordingProperties } from "./element-saved.ts";
import { create, createButton } from "./element-view.ts";

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
}

/** A recording from the microphone. */
interface Recording {
  key: string;
  /** Resolves with the file once the recording stops, also if the microphone is disconnected or the limit is reached. */
  file: Promise<File>;
  /** Seconds since the start. */
  seconds(): number;
  /** The current loudness, from 0 to 1. */
  level(): number;
  stop(): void;
}

/** A recording stops here, because a forgotten microphone would fill the device. */
const MAX_SECONDS = 4 * 3600;
/** A closed tab loses at most this. */
const PART_MILLISECONDS = 10_000;
const METER_MILLISECONDS = 100;
/** Browsers record one of these types, and name no extension. */
const EXTENSIONS: Record<string, string> = { "audio/webm": "webm", "audio/ogg": "ogg", "audio/mp4": "m4a" };

/** Asks for the microphone, and starts to record. @throws DOMException if there is none, or if the user denies it */
async function startRecording(onPart: Host["onPart"]): Promise<Recording> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const release = () => {
    for (const track of stream.getTracks()) track.stop();
  };
  try {
    return record(stream, release, onPart);
  } catch (error) {
    release();
    throw error;
  }
}

function record(stream: MediaStream, release: () => void, onPart: Host["onPart"]): Recording {
  const recorder = new MediaRecorder(stream);
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const key = `recording ${crypto.getRandomValues(new Uint32Array(4)).join("")}`;
  const time = new Date().toISOString().slice(0, 19).replaceAll(":", ".").replace("T", " ");
  const parts: Blob[] = [];
  const startedAt = performance.now();
  const stop = () => recorder.state !== "inactive" && recorder.stop();
  const limit = setTimeout(stop, MAX_SECONDS * 1000);
  const properties = (): RecordingProperties => {
    const type = recorder.mimeType;
    return { name: `Recording ${time}.${EXTENSIONS[type.split(";")[0] ?? ""] ?? "audio"}`, type };
  };
  // Another element at this place must find the recording before its first part is there.
  recorder.onstart = () => onPart(key, properties(), new Blob());
  const file = new Promise<File>((resolve) => {
    recorder.ondataavailable = ({ data }) => {
      parts.push(data);
      onPart(key, properties(), data);
    };
    recorder.onstop = () => {
      clearTimeout(limit);
      release();
      void context.close();
      const { name, type } = properties();
      resolve(new File(parts, name, { type }));
    };
  });
  recorder.start(PART_MILLISECONDS);
  return {
    key,
    file,
    seconds: () => (performance.now() - startedAt) / 1000,
    level: () => {
      analyser.getFloatTimeDomainData(samples);
      // The square root spreads the low levels of speech.
      return Math.sqrt(samples.reduce((loudest, sample) => Math.max(loudest, Math.abs(sample)), 0));
    },
    stop,
  };
}

/** Time and level with Stop, and then the playback with Send. */
export class Recorder {
  /** Somebody returns to an interrupted interview. */
  readonly keptDays = 30;
  readonly #host: Host;
  readonly #time = create("span", "time");
  readonly #level = create("meter", "level");
  readonly #audio = create("audio", "audio");
  readonly #stop = createButton("stop", () => this.#recording?.stop());
  readonly #send = createButton("send", () => this.#sendTake());
  readonly #discardRecording = createButton("cancel", () => this.discard());
  readonly #discardTake = createButton("cancel", () => this.discard());
  readonly #recorder = create("div", "recorder", this.#time, this.#level, this.#stop, this.#discardRecording);
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
    for (const button of [this.#stop, this.#send, this.#discardRecording, this.#discardTake]) {
      button.textContent = this.#host.text(button.part.item(1) ?? "");
      button.disabled = isDisabled;
    }
    this.#level.ariaLabel = this.#host.text("level");
    this.#audio.ariaLabel = this.#host.text("playback");
  }

  /** Records until the user or the browser stops it. @throws DOMException if there is no microphone, or the user denies it */
  async start(): Promise<void> {
    // The last part of a discarded recording still arrives.
    const recording = await startRecording((key, ...part) => {
      if (key === this.#recording?.key) this.#host.onPart(key, ...part);
    });
    if (!this.element.isConnected) return recording.stop();
    this.#recording = recording;
    void this.#follow(recording);
  }

  /** Offers a recording of an earlier visit. */
  offer(take: Take): void {
    if (this.#takes.some(({ key }) => key === take.key)) return;
    this.#takes.push(take);
    this.#show("recovered");
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
    await this.#recording?.file;
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
  async #follow({ key, file, seconds, level }: Recording): Promise<void> {
    const showLevel = () => {
      const whole = Math.floor(seconds());
      this.#time.textContent = `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
      this.#level.value = level();
    };
    showLevel();
    this.#timer = setInterval(showLevel, METER_MILLISECONDS);
    this.#host.announce("announceRecording");
    const take = await file;
    // It was discarded.
    if (this.#recording?.key !== key) return;
    const isStopFocused = this.#stop.matches(":focus");
    this.#end();
    this.#takes.unshift({ key, file: take });
    this.#show();
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
