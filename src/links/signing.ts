import { type Credential, readAs } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { fileById } from "../files/files.ts";
import { objectKey } from "../files/names.ts";
import { contentDisposition } from "../platform/byte-store.ts";
import { type OpenableLink, signLink } from "./links.ts";

/**
 * Creates a signed URL of the store. If there are no S3 credentials, or if a deleted file may keep its bytes in the trash,
 * creates a signed link. Anyone who has it can download the file, in any processing status.
 * @throws `not_found`
 */
export async function signFile(
  deps: Deps,
  credential: Credential<"files:download">,
  id: string,
  expiresInSeconds: number,
): Promise<string | OpenableLink> {
  const { rows } = await readAs(deps, credential, (viewer) => fileById({ ...viewer, id }));
  const [row] = rows;
  if (!row) throw new AppError("not_found");
  if (deps.settings.trashDays > 0) return signLink(deps, row, expiresInSeconds);
  // The object itself keeps the name that it was uploaded with.
  const disposition = row.name === row.originalName ? undefined : contentDisposition("attachment", row.name);
  const url = await deps.signer.sign(objectKey(row), expiresInSeconds, disposition);
  return url ?? signLink(deps, row, expiresInSeconds);
}
