import { client } from "../framework/session.ts";
import { waveformOf } from "./waveforms.ts";

const loading = new Map<string, Promise<void>>();

/** Loads the waveform of a file that has one, unless this tab knows it. Without it, everything works except its drawing. */
export function loadWaveform(id: string): Promise<void> {
  const known = waveformOf(id);
  if (known.peek() !== undefined) return Promise.resolve();
  const load = async () => {
    try {
      const channels = await client.peek().files.waveform(id);
      // The file may have been deleted in the meantime.
      if (channels) known.value ??= channels;
    } catch {
      // The next attempt may succeed.
    }
    loading.delete(id);
  };
  const loaded = loading.get(id) ?? load();
  loading.set(id, loaded);
  return loaded;
}
