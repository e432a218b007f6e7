import type * as Sound from "./element-sound.ts";

/**
 * Loads the recorder, and what measures waveforms: bundlers make a chunk of it. In the script that the service serves,
 * console/build.js loads it from the service instead.
 */
export const loadSound = (_serviceUrl: string): Promise<typeof Sound> => import("./element-sound.ts");
