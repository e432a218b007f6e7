import type { Piece, StreamIndex } from "./seekable-bytes.ts";

/* How a recording is saved, and the file that is made of it. */

/** How a recording is saved, besides its parts. */
export interface RecordingProperties {
  name: string;
  type: string;
  /** The index of the parts before the last one, while it is being recorded. */
  index?: StreamIndex;
  /** The number of the last part, from 0 on. */
  part?: number;
  /** How its file is composed of the parts, if it doesn't consist of them. */
  pieces?: Piece[] | undefined;
}

/** Composes the file of a recording. */
export function fileOf(parts: Blob[], { name, type, pieces }: RecordingProperties): File {
  const stream = new Blob(parts);
  const composed = pieces?.map((piece) => (Array.isArray(piece) ? stream.slice(...piece) : piece));
  return new File(composed ?? parts, name, { type });
}
