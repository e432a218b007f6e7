import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { cloneProject, freePort, Server } from "./server.ts";

interface Shared {
  server: Server;
  storeOrigin: string;
}

/** Vitest loads this module once for each project, but all in one process. */
const shelf = globalThis as { stowageServer?: { starting: Promise<Shared>; projects: number } | undefined };

/** Tests of all projects come from one IP address, and must not share its rate limits. */
function liftRateLimits(folder: string): void {
  const file = join(folder, "wrangler.toml");
  writeFileSync(file, readFileSync(file, "utf8").replaceAll(/limit = \d+/g, "limit = 1_000_000"));
}

async function share(): Promise<Shared> {
  const port = await freePort();
  // Another host name than the service's, as in production. The local store accepts only names of this machine.
  const storeOrigin = `http://127.0.0.1:${port}`;
  const folder = cloneProject();
  liftRateLimits(folder);
  const args = ["--var", `S3_ENDPOINT:${storeOrigin}/cdn-cgi/local/r2/s3`];
  return { server: await Server.start(args, {}, { port, folder }), storeOrigin };
}

/** Starts one server for all projects that ask for it, and stops it with the last of them. */
export default async function startSharedServer(project: TestProject): Promise<() => Promise<void>> {
  shelf.stowageServer ??= { starting: share(), projects: 0 };
  const shared = shelf.stowageServer;
  shared.projects += 1;
  const { server, storeOrigin } = await shared.starting;
  project.provide("url", server.url);
  project.provide("storeOrigin", storeOrigin);
  project.provide("operatorToken", server.operatorToken);
  return async () => {
    shared.projects -= 1;
    if (shared.projects > 0) return;
    shelf.stowageServer = undefined;
    await server.remove();
  };
}
