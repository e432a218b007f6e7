import { join } from "node:path";

/* The pictures of the README. `npm run pictures` takes each of them in light and dark. */

export const PICTURES = join(import.meta.dirname, "../../../src/console/pictures");
export const PICTURE_NAMES = ["files", "file", "upload"] as const;
