import { client } from "../session.ts";
import { waveformOf } from "./waveforms.ts";

/** Browsers send at most six requests to a host at a time, and the pages need some. */
const MAX_IN_FLIGHT = 3;

/** The requests that wait, the latest last. */
const waiting: { id: string; isWanted: () => boolean; done: () => void }[] = [];
let inFlight = 0;

function loadNext(): void {
  const next = inFlight < MAX_IN_FLIGHT ? waiting.pop() : undefined;
  if (!next) return;
  const { id, isWanted, done } = next;
  const known = waveformOf(id);
  if (known.peek() !== undefined || !isWanted()) {
    done();
    loadNext();
    return;
  }
  inFlight++;
  client
    .peek()
    .files.waveform(id)
    .then(
      (channels) => {
        known.value ??= channels;
      },
      // Without it, everything works except its drawing.
      () => {},
    )
    .finally(() => {
      inFlight--;
      done();
      loadNext();
    });
  loadNext();
}

/** Loads a stored waveform, unless `isWanted` is false when its turn comes. */
export function loadWaveform(id: string, isWanted: () => boolean = () => true): Promise<void> {
  if (waveformOf(id).peek() !== undefined) return Promise.resolve();
  return new Promise((resolve) => {
    waiting.push({ id, isWanted, done: resolve });
    loadNext();
  });
}
