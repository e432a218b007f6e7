/** The table of all operations of the API. */
import { operations } from "../../../src/service.ts";

/** The table as `src/README.md` shows it. */
export function renderOperations(): string {
  const rows = Object.entries(operations).map(
    ([id, { route, access }]) => `| \`${id}\` | \`${route}\` | ${access === "public" ? "" : `\`${access}\``} |`,
  );
  return ["| Operation | Method and path | Access |", "|---|---|---|", ...rows].join("\n");
}
