import type * as German from "./element-german.ts";
import type * as Sound from "./element-sound.ts";

/*
 * The modules that the element loads later: bundlers make chunks of it. In the script that the service serves, console/build.js loads it from
 * the service instead.
 */

/** Loads the recorder, and what measures waveforms. */
export const loadSound = (_serviceUrl: string): Promise<typeof Sound> => import("./element-sound.ts");

/** Loads the texts in German. */
export const loadGerman = (_serviceUrl: string): Promise<typeof German> => import("./element-german.ts");
