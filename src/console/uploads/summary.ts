import { StowageError } from "../../client/index.ts";
import { formatBytes, formatCount, formatPercent, formatRemaining } from "../parts/format.ts";
import type { Upload } from "./upload.ts";

/* The texts of the upload card. They are pure functions, so that they are tested without a browser. */

type Measured = Pick<Upload, "size" | "state" | "sentBytes" | "bytesPerSecond" | "error" | "stored">;

export const isProcessing = ({ stored }: Pick<Upload, "stored">) =>
  stored?.status === "pending" || stored?.status === "processing";

const hasFailed = ({ state, stored }: Pick<Upload, "state" | "stored">) =>
  state === "failed" || stored?.status === "failed";

/** Whether nothing is left to do, for the user and for the service. */
export const isSettled = (upload: Measured) => upload.state === "stored" && !isProcessing(upload);

const rate = (remainingBytes: number, bytesPerSecond: number) =>
  bytesPerSecond > 0 ? ` · ${formatBytes(bytesPerSecond)}/s · ${formatRemaining(remainingBytes / bytesPerSecond)}` : "";

/** The bytes of all uploads. Failed ones don't count. */
export function bytesOf(uploads: Measured[]): { sentBytes: number; totalBytes: number } {
  const counted = uploads.filter(({ state }) => state !== "failed" && state !== "canceling");
  return {
    sentBytes: counted.reduce((sum, upload) => sum + upload.sentBytes, 0),
    totalBytes: counted.reduce((sum, upload) => sum + upload.size, 0),
  };
}

/** One line for all uploads. */
export function summarize(uploads: Measured[]): string {
  const { sentBytes, totalBytes } = bytesOf(uploads);
  let [bytesPerSecond, stored, processing, interrupted, failed] = [0, 0, 0, 0, 0];
  for (const upload of uploads) {
    const { state } = upload;
    if (state === "stored") stored++;
    if (isProcessing(upload)) processing++;
    if (state === "interrupted") interrupted++;
    if (hasFailed(upload)) failed++;
    if (state === "sending") bytesPerSecond += upload.bytesPerSecond;
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
export const waitsForConnection = ({ state, error }: Pick<Upload, "state" | "error">): boolean =>
  state === "waiting" && error !== null && (!(error instanceof StowageError) || error.code === "connection_failed");

/** One line for an upload. */
export function describe(upload: Measured): string {
  const { size, state, sentBytes, bytesPerSecond, error } = upload;
  if (state === "sending" && sentBytes === size) return `${formatBytes(size)} · Finishing…`;
  if (state === "sending")
    return `${formatPercent(sentBytes, size)} of ${formatBytes(size)}${rate(size - sentBytes, bytesPerSecond)}`;
  if (state === "canceling") return "Canceling…";
  if (state === "interrupted") return `Interrupted at ${formatPercent(sentBytes, size)} of ${formatBytes(size)}`;
  if (waitsForConnection(upload)) return "Waiting for connection. Will resume automatically.";
  if (state === "waiting" && error !== null) return "Will resume automatically.";
  if (state === "waiting") return `${formatBytes(size)} · Waiting`;
  return formatBytes(size) + (isProcessing(upload) ? " · Processing…" : "");
}

/** The order in which uploads matter to the user. */
const PRIORITY = ["failed", "interrupted", "sending", "canceling", "waiting", "processing", "stored"];

/** The uploads to show: those that matter most first, and of the same state those that were added first. */
export function selectShown<U extends Pick<Upload, "state" | "stored">>(uploads: U[], max: number): U[] {
  const groups = new Map<string, U[]>(PRIORITY.map((state) => [state, []]));
  for (const upload of uploads) {
    const group = groups.get(hasFailed(upload) ? "failed" : isProcessing(upload) ? "processing" : upload.state);
    if (group && group.length < max) group.push(upload);
  }
  return [...groups.values()].flat().slice(0, max);
}
