import type { Api } from "./api.ts";
import type { Access } from "./element-access.ts";
import { type ErrorCode, StowageError } from "./errors.ts";
import { sleep } from "./retrying.ts";

const FIRST_POLL_MILLISECONDS = 300;

type Status = Api["GET /docs/v1/uploads/{id}/status"]["response"];

const readStatus = async (response: Response) => ((await response.json()) as Status).data;

/**
 * Waits until the service has processed a file, or the signal aborts. It asks with backoff, because processing takes
 * seconds, and only its result is unknown in the meantime.
 * @returns why it failed, or null
 */
export async function followProcessing(access: Access, id: string, signal: AbortSignal): Promise<unknown> {
  for (let delay = FIRST_POLL_MILLISECONDS; !signal.aborted; delay *= 1.3) {
    const found = await access
      .call((sender) => sender.stream(`/docs/v1/uploads/${id}/status`, { signal }, readStatus))
      .catch(() => undefined);
    const { code = "unexpected_error", message = "" } = found?.failure ?? {};
    if (found?.status === "failed") return new StowageError(code as ErrorCode, message);
    if (found?.status === "completed") return null;
    await sleep(delay, signal).catch(() => {});
  }
  return null;
}
