import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { besideKey, parseObject } from "../files/beside.ts";
import { findLinked, transcriptName } from "../links/links.ts";
import { contentDisposition } from "../platform/byte-store.ts";
import { KIND, openText } from "./transcripts.ts";

/** @throws as `findLinked`, also if the file has no transcript */
export async function openLinkedTranscript(deps: Deps, token: string) {
  const { link, file, fileName } = await findLinked(deps, token);
  const transcript = parseObject(file.transcript);
  if (!transcript) throw new AppError("not_found");
  const { version, language } = transcript;
  return {
    language,
    tag: `${link.id}.${version}`,
    contentDisposition: contentDisposition("attachment", transcriptName(fileName)),
    read: () => openText(deps, besideKey(file, { kind: KIND, version })),
  };
}
