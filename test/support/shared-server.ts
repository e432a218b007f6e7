import type { TestProject } from "vitest/node";
import { Server } from "./server.ts";

/** Starts the server that all tests of the client and the command share, and tells them where it is. */
export default async function startSharedServer(project: TestProject): Promise<() => Promise<void>> {
  const server = await Server.start();
  project.provide("url", server.url);
  project.provide("operatorToken", server.operatorToken);
  return () => server.remove();
}
