import { AppError } from "../errors.ts";
import type { Operation } from "../http/operation.ts";
import { isKnown, linksTag, openCounted } from "../links/links.routes.ts";
import { openLinkedTranscript } from "./linked.ts";
import { VTT, VTT_EXAMPLE } from "./transcripts.routes.ts";

const open: Operation = {
  access: null,
  route: "GET /docs/v1/links/{link}/transcript/{name}",
  hasSecretPath: true,
  sendsFile: true,
  tag: linksTag,
  summary: "Download a transcript by the link of its file",
  description:
    "Needs no token. The same 404 as downloading by the link, also if the file has no transcript. The name is not checked.",
  success: {
    statuses: [200, 304],
    description: "The transcript as WebVTT.",
    mediaType: VTT,
    example: VTT_EXAMPLE,
    headers: { ETag: "A validator.", "Content-Language": "The language, if it was given." },
  },
  errors: ["not_found", "rate_limited"],
  answer: async (c) => {
    const { language, ...transcript } = await openCounted(c, openLinkedTranscript);
    const tag = `"${transcript.tag}"`;
    c.header("ETag", tag);
    if (isKnown(c, tag)) return c.body(null, 304);
    const text = await transcript.read();
    if (!text) throw new AppError("not_found");
    if (language !== null) c.header("Content-Language", language);
    c.header("Content-Disposition", transcript.contentDisposition);
    return c.body(text, 200, { "Content-Type": `${VTT}; charset=utf-8` });
  },
};

export const operations = { openTranscript: open };
