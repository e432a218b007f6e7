/** The table of all operations of the API. */
import type { Access } from "../../../src/access/authorization.ts";
import { operations } from "../../../src/service.ts";

function renderAccess(access: Access | null): string {
  if (access === null) return "";
  return typeof access === "object" ? `\`${access.scope}\` or ${access.also}` : `\`${access}\``;
}

/** The table as `src/README.md` shows it. */
export function renderOperations(): string {
  const rows = Object.entries(operations).map(
    ([id, { route, access }]) => `| \`${id}\` | \`${route}\` | ${renderAccess(access)} |`,
  );
  return ["| Operation | Method and path | Access |", "|---|---|---|", ...rows].join("\n");
}
