/* Where the client runs. console/build.js replaces this file for browsers, so that their scripts lack what only Node needs. */

/** The runtime of Workers calls itself Node, and has an empty version of undici. */
export const isWorker = globalThis.navigator?.userAgent === "Cloudflare-Workers";

/**
 * Node sends a stream, so that it reports its progress, and reads ahead of the connection no more than a few chunks: it
 * keeps a whole Blob in memory, to send it again after a redirect.
 */
export const isNode = !isWorker && Boolean(globalThis.process?.versions?.undici);
