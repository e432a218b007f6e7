import { create, createButton } from "./element-view.ts";

/** The parts of its element that the recorder needs. */
interface Host {
  text(name: string): string;
  announce(name: string): void;
  onChange(): void;
  /** Called with a recording that the user sends. */
  onFile(file: File): void;
  onError(code: string, error: unknown): void;
}

/** A recording from the microphone. */
interface Recording {
  /** Resolves with the file once the recording stops, also if the microphone is disconnected or the limit is reached. */
  file: Promise<File>;
  /** Seconds since the start. */
  seconds(): number;
  /** The current loudness, from 0 to 1. */
  level(): number;
  stop(): void;
}

/** A recording stops here, because it stays in memory until it is sent. */
const MAX_SECONDS = 3600;
const METER_MILLISECONDS = 100;
/** Browsers record one of these types, and name no extension. */
const EXTENSIONS: Record<string, string> = { "audio/webm": "webm", "audio/ogg": "ogg", "audio/mp4": "m4a" };

const canRecord = () => globalThis.MediaRecorder !== undefined && navigator.mediaDevices?.getUserMedia !== undefined;

/** Asks for the microphone, and starts to record. @throws DOMException if there is none, or if the user denies it */
async function startRecording(): Promise<Recording> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const release = () => {
    for (const track of stream.getTracks()) track.stop();
  };
  try {
    return record(stream, release);
  } catch (error) {
    release();
    throw error;
  }
}

function record(stream: MediaStream, release: () => void): Recording {
  const recorder = new MediaRecorder(stream);
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const chunks: Blob[] = [];
  const startedAt = performance.now();
  const stop = () => recorder.state !== "inactive" && recorder.stop();
  const limit = setTimeout(stop, MAX_SECONDS * 1000);
  const file = new Promise<File>((resolve) => {
    recorder.ondataavailable = ({ data }) => chunks.push(data);
    recorder.onstop = () => {
      clearTimeout(limit);
      release();
      void context.close();
      const type = recorder.mimeType;
      const extension = EXTENSIONS[type.split(";")[0] ?? ""] ?? "audio";
      const time = new Date().toISOString().slice(0, 19).replaceAll(":", ".").replace("T", " ");
      resolve(new File(chunks, `Recording ${time}.${extension}`, { type }));
    };
  });
  recorder.start();
  return {
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

/** The button Record, which gives way to time and level with Stop, and then to the playback with Send. */
export class Recorder {
  readonly #host: Host;
  readonly #time = create("span", "time");
  readonly #level = create("meter", "level");
  readonly #audio = create("audio", "audio");
  readonly #start = createButton("record", () => this.#record());
  readonly #stop = createButton("stop", () => this.#recording?.stop());
  readonly #send = createButton("send", () => this.#sendTake());
  readonly #discardRecording = createButton("cancel", () => this.discard());
  readonly #discardTake = createButton("cancel", () => this.discard());
  readonly #recorder = create("div", "recorder", this.#time, this.#level, this.#stop, this.#discardRecording);
  readonly #playback = create("div", "playback", this.#audio, this.#send, this.#discardTake);
  readonly #message = create("p", "message");
  /** In the order in which they are shown. */
  readonly elements = [this.#start, this.#recorder, this.#playback, this.#message];
  #recording: Recording | undefined;
  #take: File | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** Whether the browser is asking for the microphone. */
  #isAsking = false;

  constructor(host: Host) {
    this.#host = host;
    this.#message.role = "alert";
    this.#time.role = "timer";
    this.#audio.controls = true;
    // A policy of the page without `media-src blob:` forbids the playback.
    this.#audio.addEventListener("error", () => this.#audio.toggleAttribute("hidden", true));
  }

  /** Undefined unless there is a recording that is neither sent nor discarded. */
  get state(): "recording" | "recorded" | undefined {
    if (this.#recording) return "recording";
    return this.#take && "recorded";
  }

  focus(): void {
    this.#start.focus();
  }

  update(isShown: boolean, isDisabled: boolean): void {
    this.#start.hidden = !isShown || !canRecord() || this.state !== undefined;
    this.#recorder.hidden = !this.#recording;
    this.#playback.hidden = !this.#take;
    this.#message.hidden = this.#message.textContent === "";
    for (const button of [this.#start, this.#stop, this.#send, this.#discardRecording, this.#discardTake]) {
      button.textContent = this.#host.text(button.part.item(1) ?? "");
      button.disabled = isDisabled || this.#isAsking;
    }
    this.#level.ariaLabel = this.#host.text("level");
    this.#audio.ariaLabel = this.#host.text("playback");
  }

  /** Ends the recording, deletes it, and returns to the button Record. */
  discard(): void {
    const recording = this.#recording;
    const hasFocus = this.elements.some((element) => element.contains(this.#focused));
    this.#end();
    recording?.stop();
    this.#take = undefined;
    URL.revokeObjectURL(this.#audio.src);
    this.#audio.removeAttribute("src");
    this.#host.onChange();
    if (hasFocus) this.focus();
  }

  get #focused(): Element | null {
    const root = this.#start.getRootNode();
    return root instanceof ShadowRoot ? root.activeElement : null;
  }

  async #record(): Promise<void> {
    const hasFocus = this.#focused === this.#start;
    this.#message.textContent = "";
    this.#isAsking = true;
    this.#host.onChange();
    try {
      const recording = await startRecording();
      if (!this.#start.isConnected) return recording.stop();
      this.#recording = recording;
    } catch (error) {
      const isDenied = error instanceof DOMException && ["NotAllowedError", "SecurityError"].includes(error.name);
      const code = isDenied ? "microphone_denied" : "microphone_missing";
      this.#message.textContent = this.#host.text(code);
      return this.#host.onError(code, error);
    } finally {
      this.#isAsking = false;
      this.#host.onChange();
      // A disabled button loses the focus.
      if (hasFocus) this.focus();
    }
    if (hasFocus) this.#stop.focus();
    await this.#follow(this.#recording);
  }

  /** Shows time and level until the recording stops, and then its playback. */
  async #follow({ file, seconds, level }: Recording): Promise<void> {
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
    if (this.#recording?.file !== file) return;
    const isStopFocused = this.#focused === this.#stop;
    this.#end();
    this.#take = take;
    this.#audio.hidden = false;
    this.#audio.src = URL.createObjectURL(take);
    this.#host.onChange();
    if (isStopFocused) this.#send.focus();
    this.#host.announce("announceRecorded");
  }

  #end(): void {
    clearInterval(this.#timer);
    this.#recording = undefined;
  }

  #sendTake(): void {
    const take = this.#take;
    this.discard();
    if (take) this.#host.onFile(take);
  }
}
