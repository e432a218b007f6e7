import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { newSecrets } from "../../src/dev/first-start.ts";
import { clonePreparedProject, replaceIn } from "./project.ts";
import { freePort, Server } from "./server.ts";
import { markWhenReady } from "./starting.ts";

const TRASH_DAYS = 7;

interface Starting {
  server: Promise<Server>;
  port: string;
  operatorToken: string;
}

/** Vitest loads this module once for each project, but all in one process. */
const shelf = globalThis as { stowageServers?: { plain: Starting; trash: Starting; projects: number } | undefined };

/** Starts a server, whose URL and token are known at once. */
async function start(argsOf: (port: string) => string[]): Promise<Starting> {
  const port = await freePort();
  const secrets = newSecrets();
  const begin = async () => {
    const folder = await clonePreparedProject();
    const lines = Object.entries(secrets).map(([name, value]) => `${name}="${value}"\n`);
    writeFileSync(join(folder, ".dev.vars"), lines.join(""));
    // Tests of all projects come from one IP address, and must not share its rate limits.
    replaceIn(folder, "wrangler.toml", /limit = \d+/g, "limit = 1_000_000");
    return Server.start(argsOf(port), {}, { port, folder });
  };
  return { server: begin(), port, operatorToken: secrets.OPERATOR_TOKEN };
}

/** Another host name than the service's, as in production. The local store accepts only names of this machine. */
const storeOriginOf = (port: string) => `http://127.0.0.1:${port}`;

/**
 * Starts the servers of all projects that ask for them, one of which has a trash, and stops them with the last of these
 * projects. Doesn't wait for them.
 */
export default async function startSharedServers(project: TestProject): Promise<() => Promise<void>> {
  shelf.stowageServers ??= {
    plain: await start((port) => ["--var", `S3_ENDPOINT:${storeOriginOf(port)}/cdn-cgi/local/r2/s3`]),
    trash: await start(() => ["--var", `TRASH_DAYS:${TRASH_DAYS}`]),
    projects: 0,
  };
  const shared = shelf.stowageServers;
  const { plain, trash } = shared;
  shared.projects += 1;
  const urlOf = ({ port }: Starting) => `http://localhost:${port}`;
  project.provide("url", urlOf(plain));
  project.provide("storeOrigin", storeOriginOf(plain.port));
  project.provide("operatorToken", plain.operatorToken);
  project.provide("trash", { url: urlOf(trash), operatorToken: trash.operatorToken, days: TRASH_DAYS });
  project.provide(
    "serverMarks",
    [plain, trash].map(({ server }) => markWhenReady(server)),
  );
  return async () => {
    shared.projects -= 1;
    if (shared.projects > 0) return;
    shelf.stowageServers = undefined;
    const ended = await Promise.allSettled([plain, trash].map(async ({ server }) => (await server).remove()));
    for (const one of ended) if (one.status === "rejected") throw one.reason;
  };
}
