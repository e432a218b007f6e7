import type { FormItem, Host } from "./element-files.ts";
import { create, createButton } from "./element-view.ts";
import { type Microphone, startRecording } from "./microphone.ts";
import { fileOf, type RecordingProperties } from "./recording-file.ts";
import { composeParts } from "./seekable.ts";
import type { Bytes } from "./upload-runner.ts";
import type { NewItem } from "./upload-state.ts";

/* The recorder of an upload element, which the browser loads with the first recording. */

const METER_MILLISECONDS = 100;
const STYLES = `
[part=recorder], [part=playback] { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin: 8px 0 }
[part=time], [part=paused] { font-size: .875em; font-variant-numeric: tabular-nums }
[part=level] { flex: 1 1 6em; max-width: 16em; min-width: 4em; height: 8px; border-radius: 4px }
[part=audio] { flex: 1 1 14em; min-width: 0; max-width: 100% }
`;

/** Time and level with Stop, and then the playback with Send. */
export class Recorder {
  readonly #host: Host;
  readonly #showMessage: (message: string) => void;
  readonly #time = create("span", "time");
  readonly #level = create("meter", "level");
  readonly #audio = create("audio", "audio");
  readonly #paused = create("span", "paused");
  readonly #pause = createButton("pause", () => this.#microphone?.pause(!this.#microphone.isPaused()));
  readonly #stop = createButton("stop", () => this.#tell("stop"));
  readonly #send = createButton("send", () => this.#tell("send"));
  readonly #discard = createButton("cancel", () => this.#tell("cancel"));
  // A tap must not discard what is being recorded: it is stopped first.
  readonly #recorder = create("div", "recorder", this.#time, this.#paused, this.#level, this.#pause, this.#stop);
  readonly #playback = create("div", "playback", this.#audio, this.#send, this.#discard);
  readonly element = create("div", "recording", this.#recorder, this.#playback);
  #shown: FormItem | undefined;
  #microphone: Microphone | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;

  /**
   * @param message the element before which it is shown
   * @param showMessage shows a message by its name, or none
   */
  constructor(host: Host, message: HTMLElement, showMessage: (message: string) => void) {
    message.before(this.element);
    const styles = new CSSStyleSheet();
    styles.replaceSync(STYLES);
    (message.getRootNode() as ShadowRoot).adoptedStyleSheets.push(styles);
    this.#host = host;
    this.#showMessage = showMessage;
    this.#time.role = "timer";
    this.#audio.controls = true;
    // A policy of the page without `media-src blob:` forbids the playback.
    this.#audio.addEventListener("error", () => this.#audio.toggleAttribute("hidden", true));
  }

  /** The button for the next step. Undefined without a recording. */
  get button(): HTMLButtonElement | undefined {
    if (!this.#shown) return undefined;
    return this.#shown.state === "recording" ? this.#stop : this.#send;
  }

  /** Shows a recording that is neither sent nor canceled, or none. @param file its bytes, once it has stopped */
  update(take: FormItem | undefined, file: File | undefined, isDisabled: boolean): void {
    const isRecording = take?.state === "recording";
    if (take?.key !== this.#shown?.key || take?.state !== this.#shown?.state) {
      clearInterval(this.#timer);
      if (isRecording) this.#timer = setInterval(() => this.#showLevel(), METER_MILLISECONDS);
      URL.revokeObjectURL(this.#audio.src);
      this.#audio.hidden = false;
      if (file && !isRecording) this.#audio.src = URL.createObjectURL(file);
      else this.#audio.removeAttribute("src");
    }
    this.#shown = take;
    this.#recorder.hidden = !isRecording;
    this.#playback.hidden = !take || isRecording;
    for (const button of [this.#pause, this.#stop, this.#send, this.#discard]) {
      button.textContent = this.#host.text(button.part.item(1) ?? "");
      button.disabled = isDisabled;
    }
    this.#showPause();
    this.#paused.textContent = this.#host.text("paused");
    this.#level.ariaLabel = this.#host.text("level");
    this.#audio.ariaLabel = this.#host.text("playback");
  }

  /** Asks for the microphone, and records. @returns an error and its code, if it can't */
  async record(key: string, bytes: Bytes): Promise<{ code: string; error: unknown } | undefined> {
    const { uploads } = this.#host;
    let isStopped = false;
    let microphone: Microphone | undefined;
    bytes.stop = () => {
      isStopped = true;
      microphone?.stop();
    };
    try {
      microphone = await startRecording(this.#host.bitrate(), this.#host.text("recording"), {
        onPart: (part, { name, type, ...properties }) => {
          bytes.parts.push(part);
          // The first one is empty.
          if (bytes.parts.length === 1) uploads.send({ type: "started", item: { key, name, type, size: 0 } });
          uploads.send({ type: "part", key, properties });
        },
        onChange: () => this.#showChange(),
        onEnd: (parts, properties) => {
          bytes.file = fileOf(parts, properties);
          uploads.send({ type: "recorded", key, size: bytes.file.size, properties });
          if (this.#shown?.key === key) this.#showMessage(microphone?.problem() ?? "");
        },
      });
      // It was canceled while the browser asked for the microphone.
      if (isStopped) microphone.stop();
      this.#microphone = microphone;
      this.#showLevel();
      return undefined;
    } catch (error) {
      const isDenied = error instanceof DOMException && ["NotAllowedError", "SecurityError"].includes(error.name);
      return { code: isDenied ? "microphone_denied" : "microphone_missing", error };
    }
  }

  /** Makes the file of a saved recording. One that is being sent stays as it is. */
  async compose({ name, type = "", properties, state }: NewItem<null>, parts: Blob[]) {
    const { part, index, pieces } = (properties ?? {}) as Partial<RecordingProperties>;
    // The browser may have had no space for a part that the index contains.
    const isComplete = part === parts.length - 1;
    const isTaken = state === "recording" || state === "recorded";
    const composed = pieces ?? (isTaken ? await composeParts(parts, isComplete ? index : undefined) : undefined);
    return { file: fileOf(parts, { name, type, pieces: composed }), properties: { pieces: composed } };
  }

  #showChange(): void {
    this.#showMessage(this.#microphone?.problem() ?? "");
    this.#showPause();
    if (this.#shown) this.#host.announce(this.#microphone?.isPaused() ? "paused" : "announceRecording", this.#shown);
  }

  #showPause(): void {
    const isPaused = this.#shown?.state === "recording" && (this.#microphone?.isPaused() ?? false);
    this.#pause.textContent = this.#host.text(isPaused ? "continue" : "pause");
    this.#paused.hidden = !isPaused;
  }

  #tell(type: "stop" | "send" | "cancel"): void {
    const { key = "" } = this.#shown ?? {};
    this.#host.uploads.send(type === "cancel" ? { type, keys: [key] } : { type, key });
  }

  #showLevel(): void {
    const whole = Math.floor(this.#microphone?.seconds() ?? 0);
    this.#time.textContent = `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
    this.#level.value = this.#microphone?.level() ?? 0;
  }
}
