import type { RequestSpec, Sender } from "./connection.ts";
import type { ErrorCode } from "./errors.ts";

/* The URLs of resumable uploads (tus 1.0.0), and how an upload is canceled by its URL. */

export const UPLOADS = "/docs/v1/uploads";
export const TUS = { "Tus-Resumable": "1.0.0" };

/** Returns the path of an upload. The token must never go to another host, and behind a proxy the host may differ. */
export const pathOf = (uploadUrl: string) => `${UPLOADS}/resumable/${uploadUrl.slice(uploadUrl.lastIndexOf("/") + 1)}`;

export const GONE: ErrorCode[] = ["not_found", "upload_expired"];

/** Cancels an upload by its URL. Does nothing if it no longer exists. */
export const cancelUpload = (connection: Sender, uploadUrl: string, options?: RequestSpec): Promise<void> => {
  const headers = { ...TUS, ...options?.headers };
  return connection.stream(pathOf(uploadUrl), { nullCodes: GONE, ...options, method: "DELETE", headers }, () => {});
};
