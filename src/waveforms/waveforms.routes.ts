import * as z from "zod";
import { TOKEN_GRACE_MILLISECONDS } from "../access/upload-tokens.ts";
import { filesTag } from "../files/files.routes.ts";
import { readOperation, writeOperation } from "../http/operation.ts";
import { lazy } from "../lazy.ts";
import { fetchWaveform, setWaveform as storeWaveform } from "./waveforms.ts";

const MAX_CHANNELS = 2;
/** Fewer peaks draw no useful curve. */
const MIN_PEAKS = 16;
/** One peak per pixel of a wide screen. */
const MAX_PEAKS = 2000;
/** Fits two channels of the longest numbers that JavaScript writes, 25 characters each, with commas. */
const MAX_WAVEFORM_BYTES = 128 * 1024;

const peaks = `Must have ${MIN_PEAKS} to ${MAX_PEAKS} peaks.`;
const bounds = "Must be from -1 to 1.";
const channels = "Must have one or two channels.";

const waveformSchema = lazy(() =>
  z
    .strictObject({
      channels: z
        .array(z.array(z.number().min(-1, bounds).max(1, bounds)).min(MIN_PEAKS, peaks).max(MAX_PEAKS, peaks))
        .min(1, channels)
        .max(MAX_CHANNELS, channels)
        .refine(([first, second]) => !second || second.length === first?.length, {
          path: [1],
          error: "Must have as many peaks as the first.",
        })
        .meta({ description: "One or two of equal length." }),
    })
    .meta({ id: "Waveform" }),
);

const exampleWaveform = {
  channels: [
    [0, 0.118, 0.394, 0.803, 1, 0.748, 0.331, 0.055, -0.087, -0.402, -0.78, -1, -0.661, -0.346, -0.157, -0.024],
  ],
};

const get = readOperation(
  "files:read",
  {
    route: "GET /docs/v1/uploads/{id}/waveform",
    tag: filesTag,
    summary: "Get a file's waveform",
    sample: "const channels = await stowage.files.waveform(id);",
    description:
      "Returns the peaks that the service has measured, or those that a client has set, each rounded to the precision of a byte. " +
      "The service measures MP3, FLAC, Vorbis, Opus, WAV and AIFF soon after the file is `completed`.",
    success: {
      description: "The waveform.",
      message: "Waveform found.",
      schema: waveformSchema,
      example: exampleWaveform,
    },
  },
  async ({ deps, credential, id }) => ({ channels: await fetchWaveform(deps, credential, id) }),
);

const set = writeOperation(
  { scope: "files:write", also: "uploader" },
  {
    route: "PUT /docs/v1/uploads/{id}/waveform",
    tag: filesTag,
    summary: "Set a file's waveform",
    graceMilliseconds: TOKEN_GRACE_MILLISECONDS,
    sample: "await stowage.files.setWaveform(id, channels);",
    description:
      "For a format that the service does not decode, such as AAC, or for other peaks than its own, which never replace them. " +
      `Takes one or two channels of ${MIN_PEAKS} to ${MAX_PEAKS} peaks from -1 to 1, from any client that has decoded the ` +
      "audio, and replaces the previous waveform. Each peak is stored as a byte, with an error of at most 0.0045; -1, 0, and 1 " +
      "are exact. The file's `peaks` show it in small, and the event is `file.updated` with the field `waveform`. " +
      "Deleting the file deletes the waveform. " +
      "The public key or upload token that uploaded the file can set a waveform until a day after its expiry if the file has none, and gets 403 if it has one. " +
      "The service's own measurement replaces it, if it decodes the format. " +
      `The body may have ${MAX_WAVEFORM_BYTES / 1024} KiB.`,
    body: waveformSchema,
    maxBodyBytes: MAX_WAVEFORM_BYTES,
    bodyExample: {
      channels: [[0, 0.12, 0.39, 0.8, 1, 0.75, 0.33, 0.055, -0.09, -0.4, -0.78, -1, -0.66, -0.35, -0.16, -0.02]],
    },
    success: {
      description: "The stored waveform.",
      message: "Waveform set.",
      schema: waveformSchema,
      example: exampleWaveform,
    },
  },
  async ({ deps, actor, id, body }) => ({ channels: await storeWaveform(deps, actor, id, body.channels) }),
);

export const operations = {
  getWaveform: get,
  setWaveform: set,
};
