import type { TestProject } from "vitest/node";
import { freePort, Server } from "./server.ts";

/**
 * Starts the server that the tests of one project share, and provides its URL. The store has another host name, as in
 * production, so cross-origin rules apply.
 */
export default async function startSharedServer(project: TestProject): Promise<() => Promise<void>> {
  const port = await freePort();
  // The local store rejects every host name except those of this machine.
  const storeOrigin = `http://127.0.0.1:${port}`;
  const server = await Server.start(["--var", `S3_ENDPOINT:${storeOrigin}/cdn-cgi/local/r2/s3`], {}, port);
  project.provide("url", server.url);
  project.provide("storeOrigin", storeOrigin);
  project.provide("operatorToken", server.operatorToken);
  return () => server.remove();
}
