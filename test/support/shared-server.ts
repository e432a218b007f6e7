import type { TestProject } from "vitest/node";
import { freePort, Server } from "./server.ts";

/**
 * Starts the server that the tests of one project share, and tells them where it is. Its store has another host name, as
 * in production: what a page or a client may do there is really asked.
 */
export default async function startSharedServer(project: TestProject): Promise<() => Promise<void>> {
  const port = await freePort();
  // The local store refuses every host name but those of this machine.
  const storeOrigin = `http://127.0.0.1:${port}`;
  const server = await Server.start(["--var", `S3_ENDPOINT:${storeOrigin}/cdn-cgi/local/r2/s3`], {}, port);
  project.provide("url", server.url);
  project.provide("storeOrigin", storeOrigin);
  project.provide("operatorToken", server.operatorToken);
  return () => server.remove();
}
