/* The parts that the CLI uses of the client besides its public exports. */
export { isServerError } from "./errors.ts";
export { MAX_BATCH_FILES } from "./files.ts";
export { formatAge, formatBytes, formatDuration } from "./format.ts";
export { asSent } from "./ids.ts";
export { RESUMABLE_BYTES } from "./upload.ts";
