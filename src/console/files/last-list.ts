import { href } from "../framework/router.ts";

/** The last list of files and the file that was opened from it, to return to. */
export const lastList = { url: href("/files"), id: "" };
