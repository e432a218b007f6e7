import type { TestProject } from "vitest/node";
import { clonePreparedProject, replaceIn } from "./project.ts";
import { freePort, Server } from "./server.ts";

interface Shared {
  server: Server;
  storeOrigin: string;
}

/** Vitest loads this module once for each project, but all in one process. */
const shelf = globalThis as { stowageServer?: { starting: Promise<Shared>; projects: number } | undefined };

async function share(): Promise<Shared> {
  const port = await freePort();
  // Another host name than the service's, as in production. The local store accepts only names of this machine.
  const storeOrigin = `http://127.0.0.1:${port}`;
  const folder = await clonePreparedProject();
  // Tests of all projects come from one IP address, and must not share its rate limits.
  replaceIn(folder, "wrangler.toml", /limit = \d+/g, "limit = 1_000_000");
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
