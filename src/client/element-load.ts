import type { Recorder } from "./element-recorder.ts";

/**
 * Loads the recorder: bundlers make a chunk of it. In the script that the service serves, console/build.js loads it from
 * the service instead.
 */
export const loadRecorder = (_serviceUrl: string): Promise<{ Recorder: typeof Recorder }> =>
  import("./element-recorder.ts");
