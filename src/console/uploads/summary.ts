import { StowageError } from "../../client/stowage.ts";
import { formatBytes, formatCount, formatPercent, formatRemaining } from "../parts/format.ts";
import type { Progress, UploadState } from "./upload.ts";

/* The texts of the upload card. They are pure functions, so that they are tested without a browser. */

interface Measured {
  size: number;
  progress: Pick<Progress, "state" | "sentBytes" | "bytesPerSecond" | "error" | "file">;
}

export const isProcessing = ({ file }: Pick<Progress, "file">) =>
  file?.status === "pending" || file?.status === "processing";

const hasFailed = ({ state, file }: Pick<Progress, "state" | "file">) =>
  state === "failed" || file?.status === "failed";

/** Whether nothing is left to do, for the user and for the service. */
export const isSettled = ({ progress }: Measured) => progress.state === "stored" && !isProcessing(progress);

const rate = (remainingBytes: number, bytesPerSecond: number) =>
  bytesPerSecond > 0 ? ` · ${formatBytes(bytesPerSecond)}/s · ${formatRemaining(remainingBytes / bytesPerSecond)}` : "";

/** One line for all uploads. Failed ones do not count toward the bytes. */
export function summarize(uploads: Measured[]): string {
  let [sentBytes, totalBytes, bytesPerSecond, stored, processing, interrupted, failed] = [0, 0, 0, 0, 0, 0, 0];
  for (const { size, progress } of uploads) {
    const { state } = progress;
    if (state === "stored") stored++;
    if (isProcessing(progress)) processing++;
    if (state === "interrupted") interrupted++;
    if (hasFailed(progress)) failed++;
    if (state === "failed" || state === "canceling") continue;
    sentBytes += progress.sentBytes;
    totalBytes += size;
    if (state === "sending") bytesPerSecond += progress.bytesPerSecond;
  }
  const counts = { processing, interrupted, failed };
  const parts = [`${formatCount(stored)} of ${formatCount(uploads.length)} uploaded`];
  for (const [label, count] of Object.entries(counts)) if (count > 0) parts.push(`${formatCount(count)} ${label}`);
  const isSent = sentBytes === totalBytes;
  return (
    parts.join(" · ") +
    (isSent ? "" : ` · ${formatPercent(sentBytes, totalBytes)}`) +
    (isSent ? "" : rate(totalBytes - sentBytes, bytesPerSecond))
  );
}

/** Whether an upload waits because the service can't be reached. The line of the upload then says all there is to say. */
export const waitsForConnection = ({ state, error }: Pick<Progress, "state" | "error">): boolean =>
  state === "waiting" && error !== null && (!(error instanceof StowageError) || error.code === "connection_failed");

/** One line for an upload. */
export function describe({ size, progress }: Measured): string {
  const { state, sentBytes, bytesPerSecond, error } = progress;
  if (state === "sending" && sentBytes === size) return `${formatBytes(size)} · Finishing…`;
  if (state === "sending")
    return `${formatPercent(sentBytes, size)} of ${formatBytes(size)}${rate(size - sentBytes, bytesPerSecond)}`;
  if (state === "canceling") return "Canceling…";
  if (state === "interrupted") return `Interrupted at ${formatPercent(sentBytes, size)} of ${formatBytes(size)}`;
  if (waitsForConnection(progress)) return "Waiting for connection. Will resume automatically.";
  if (state === "waiting" && error !== null) return "Will resume automatically.";
  if (state === "waiting") return `${formatBytes(size)} · Waiting`;
  return formatBytes(size) + (isProcessing(progress) ? " · Processing…" : "");
}

/** The order in which uploads matter to the user if there are too many to show. */
const PRIORITY: UploadState[] = ["failed", "sending", "interrupted", "canceling", "waiting", "stored"];

/** The uploads to show: failed ones first. The others keep their order, or come by relevance if there are too many. */
export function selectShown<U extends { progress: { peek(): Pick<Progress, "state" | "file"> } }>(
  uploads: U[],
  max: number,
): U[] {
  const isFailed = ({ progress }: U) => hasFailed(progress.peek());
  if (uploads.length <= max) return [...uploads.filter(isFailed), ...uploads.filter((upload) => !isFailed(upload))];
  const groups = new Map<UploadState, U[]>(PRIORITY.map((state) => [state, []]));
  for (const upload of uploads) {
    const group = groups.get(isFailed(upload) ? "failed" : upload.progress.peek().state);
    if (group && group.length < max) group.push(upload);
  }
  return [...groups.values()].flat().slice(0, max);
}
