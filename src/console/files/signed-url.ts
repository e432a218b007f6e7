import { call } from "../framework/session.ts";

/** Signed URLs expire after an hour. One that is about to expire is not used for a new request. */
const URL_REUSE_MILLISECONDS = 50 * 60_000;
/** The latest one. */
let signed: { fileId: string; url: string; at: number } | undefined;

/** A signed URL of a file. It is reused while the same file is played and measured, unless it has failed. */
export async function signedUrl(fileId: string, isNew = false): Promise<string> {
  const isReusable = signed?.fileId === fileId && Date.now() - signed.at <= URL_REUSE_MILLISECONDS && !isNew;
  if (signed && isReusable) return signed.url;
  const url = await call(({ files }) => files.createSignedUrl(fileId));
  signed = { fileId, url, at: Date.now() };
  return url;
}

/** Forgets the URL of a file that was deleted. If the file is restored, the URL stays revoked. */
export function forgetSignedUrl(fileIds: string[]): void {
  if (signed && fileIds.includes(signed.fileId)) signed = undefined;
}
