import type { TestProject } from "vitest/node";
import { Server } from "./server.ts";

const TRASH_DAYS = 7;

/** Starts a server that has a trash, for the tests of the pages. */
export default async function startTrashServer(project: TestProject): Promise<() => Promise<void>> {
  const server = await Server.start(["--var", `TRASH_DAYS:${TRASH_DAYS}`]);
  project.provide("trash", { url: server.url, operatorToken: server.operatorToken, days: TRASH_DAYS });
  return () => server.remove();
}
