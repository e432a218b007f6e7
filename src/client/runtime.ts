/* Where the client runs. Scripts for browsers have no `process`, and are built without what only Node needs. */

/** The runtime of Workers calls itself Node, and has an empty version of undici. */
export const isWorker = () => globalThis.navigator?.userAgent === "Cloudflare-Workers";

/**
 * Node sends a stream, so that it reports its progress, and reads ahead of the connection no more than a few chunks: it
 * keeps a whole Blob in memory, to send it again after a redirect.
 */
export const isNode = Boolean(globalThis.process?.versions?.undici) && !isWorker();
