import type { RecordingProperties } from "./recording-file.ts";
import { addBytes, composeParts, createIndex } from "./seekable.ts";

/* Recording from the microphone, with pauses. */

/** A recording in progress. */
export interface Microphone {
  /** Seconds without pauses. */
  seconds(): number;
  /** The current loudness, from 0 to 1. */
  level(): number;
  /** Whether nothing is recorded now, because of the user or because something else has the microphone. */
  isPaused(): boolean;
  /** Pauses, or continues even without a sign that the microphone is back. */
  pause(isPaused: boolean): void;
  /** Why the recording was paused or stopped: the name of a message, or none. */
  problem(): string;
  stop(): void;
}

/** What a recording reports. */
interface Report {
  /** Called at the start with an empty part, and then every few seconds with the latest one. */
  onPart(part: Blob, properties: RecordingProperties): void;
  /** Called when the recording is paused or continues. */
  onChange(): void;
  /** Called at the end, also if the microphone is disconnected or the limit is reached. */
  onEnd(parts: Blob[], properties: RecordingProperties): void;
}

/** A recording stops here, because a forgotten microphone would fill the device. */
const MAX_SECONDS = 4 * 3600;
/** A closed tab loses at most this. */
const PART_MILLISECONDS = 10_000;
/** Browsers record one of these types, and name no extension. */
const EXTENSIONS: Record<string, string> = { "audio/webm": "webm", "audio/ogg": "ogg", "audio/mp4": "m4a" };

/**
 * Asks for the microphone, and starts to record.
 * @param label begins the name of the file
 * @throws DOMException if there is none, or if the user denies it
 */
export async function startRecording(audioBitsPerSecond: number, label: string, report: Report): Promise<Microphone> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const release = () => {
    for (const track of stream.getTracks()) track.stop();
  };
  try {
    return record(stream, release, { audioBitsPerSecond, label }, report);
  } catch (error) {
    release();
    throw error;
  }
}

function record(
  stream: MediaStream,
  release: () => void,
  { audioBitsPerSecond, label }: { audioBitsPerSecond: number; label: string },
  report: Report,
): Microphone {
  const recorder = new MediaRecorder(stream, { audioBitsPerSecond });
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const time = new Date().toISOString().slice(0, 19).replaceAll(":", ".").replace("T", " ");
  const parts: Blob[] = [];
  const index = createIndex();
  let bytes = 0;
  let reading: Promise<unknown> = Promise.resolve();
  let type = "";
  const properties = (): RecordingProperties => {
    // Firefox has no type before the start, and none after the end.
    type = recorder.mimeType || type;
    return { name: `${label} ${time}.${EXTENSIONS[type.split(";")[0] ?? ""] ?? "audio"}`, type };
  };
  const addPart = (part: Blob) => {
    report.onPart(part, { ...properties(), index: structuredClone(index), part: parts.length });
    parts.push(part);
  };
  let seconds = 0;
  let startedAt = performance.now();
  /** Whether the user has paused, or something else has the microphone. */
  let isHeld = false;
  let isMuted = false;
  let problem = "";
  const isPaused = () => recorder.state === "paused";
  const secondsNow = () => seconds + (isPaused() ? 0 : (performance.now() - startedAt) / 1000);
  const stop = () => recorder.state !== "inactive" && recorder.stop();
  let limit: ReturnType<typeof setTimeout>;
  // A pause moves the limit.
  const checkLimit = () => {
    const rest = MAX_SECONDS - secondsNow();
    if (rest <= 0) stop();
    else limit = setTimeout(checkLimit, rest * 1000);
  };
  const change = () => {
    const isHolding = isHeld || isMuted;
    if (isHolding && recorder.state === "recording") {
      seconds = secondsNow();
      recorder.pause();
      // A phone may end a page that is not used.
      recorder.requestData();
    } else if (!isHolding && isPaused()) {
      recorder.resume();
      startedAt = performance.now();
    }
    report.onChange();
  };
  for (const track of stream.getTracks()) {
    // Such as during a call. The user need not be there when it ends.
    track.onmute = track.onunmute = ({ type }) => {
      isMuted = type === "mute";
      // WebKit mutes what the user has paused.
      problem = isMuted && !isHeld ? "microphone_muted" : "";
      change();
    };
    track.onended = () => {
      problem = "microphone_lost";
      stop();
    };
  }
  // Another element at this place must find the recording before its first part is there.
  recorder.onstart = () => addPart(new Blob());
  recorder.ondataavailable = ({ data }) => {
    const start = bytes;
    bytes += data.size;
    addPart(data);
    // If a part can't be read now, the rest is read at the end.
    const read = async () => {
      if (index.readBytes === start) addBytes(index, new Uint8Array(await data.arrayBuffer()));
    };
    reading = reading.then(read).catch(() => {});
  };
  recorder.onstop = async () => {
    clearTimeout(limit);
    // The recorder may stop before the track reports its end.
    if (stream.getTracks().some(({ readyState }) => readyState === "ended")) problem = "microphone_lost";
    endWakeLock();
    release();
    void context.close();
    await reading;
    report.onEnd(parts, { ...properties(), pieces: await composeParts(parts, index) });
  };
  recorder.start(PART_MILLISECONDS);
  checkLimit();
  const endWakeLock = keepAwake();
  return {
    seconds: secondsNow,
    level: () => {
      analyser.getFloatTimeDomainData(samples);
      // The square root spreads the low levels of speech.
      return isPaused() ? 0 : Math.sqrt(samples.reduce((loudest, sample) => Math.max(loudest, Math.abs(sample)), 0));
    },
    isPaused,
    pause: (isPausedNow) => {
      isHeld = isPausedNow;
      isMuted &&= isPausedNow;
      problem = "";
      change();
    },
    problem: () => problem,
    stop,
  };
}

/** Keeps the screen on, because a phone that locks stops the microphone. @returns a function that ends this */
function keepAwake(): () => void {
  let isEnded = false;
  let sentinel: WakeLockSentinel | undefined;
  // A page that is not shown loses it.
  const request = async () => {
    if (document.visibilityState !== "visible") return;
    // The browser may have none, and refuses it to save energy.
    sentinel = await navigator.wakeLock?.request("screen").catch(() => undefined);
    if (isEnded) void sentinel?.release();
  };
  document.addEventListener("visibilitychange", request);
  void request();
  return () => {
    isEnded = true;
    document.removeEventListener("visibilitychange", request);
    void sentinel?.release();
  };
}
