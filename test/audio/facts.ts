/** The facts of each sample, as reported by the tools in README.md. Plain data, so that Node can import it too. */
export interface Fact {
  file: string;
  mimeType: string;
  fileType: "audio file" | "video file" | "image file";
  /** The service's `audio`, or null if the file is not audio. */
  audio: {
    container: string;
    codec: string;
    durationSeconds: number;
    sampleRate: number;
    channels: number;
    lossless: boolean | null;
  } | null;
  /** The title tag, if there is one. */
  title?: string;
}

const TITLE = "Übergröße·日本";

function fact(
  file: string,
  mimeType: string,
  [container, codec, durationSeconds, sampleRate, channels]: [string, string, number, number, number],
  lossless: boolean | null = false,
): Fact {
  const audio = { container, codec, durationSeconds, sampleRate, channels, lossless };
  return { file, mimeType, fileType: "audio file", audio };
}

export const facts: Fact[] = [
  { ...fact("tone-vbr.mp3", "audio/mpeg", ["MPEG", "MPEG 1 Layer 3", 2, 44100, 1]), title: TITLE },
  fact("tone-cbr.mp3", "audio/mpeg", ["MPEG", "MPEG 1 Layer 3", 2.0375, 44100, 1]),
  fact("tone-vbr-headerless.mp3", "audio/mpeg", ["MPEG", "MPEG 1 Layer 3", 2.0376, 44100, 1]),
  fact("tone.wav", "audio/wav", ["WAVE", "PCM", 1.5, 16000, 1], true),
  { ...fact("tone.flac", "audio/flac", ["FLAC", "FLAC", 1.5, 16000, 1], true), title: "Übergröße" },
  { ...fact("tone.ogg", "audio/ogg", ["Ogg", "Vorbis I", 2, 44100, 1]), title: TITLE },
  { ...fact("tone.opus", "audio/ogg", ["Ogg", "Opus", 1.5, 16000, 1]), title: "Übergröße" },
  { ...fact("tone.m4a", "audio/mp4", ["M4A/isom/iso2", "MPEG-4/AAC", 2, 44100, 2]), title: TITLE },
  {
    ...fact("tone-audio-only.mp4", "audio/mp4", ["isom/iso2/mp41", "MPEG-4/AAC", 2, 44100, 2]),
  },
  fact("tone.aiff", "audio/aiff", ["AIFF", "PCM", 1.5, 16000, 1], true),
  { ...fact("tone.webm", "audio/webm", ["EBML/webm", "OPUS", 2.008, 48000, 1]), title: TITLE },
  fact("tone-live.webm", "audio/webm", ["EBML/webm", "OPUS", 2.008, 48000, 1]),
  fact("tone.aac", "audio/aac", ["ADTS/MPEG-4", "AAC", 2.0433, 44100, 1]),
  {
    ...fact("tone.wma", "audio/x-ms-wma", ["ASF/audio", "Windows Media Audio V8", 2.042, 44100, 1], null),
    title: TITLE,
  },
  { ...fact("mono.m4a", "audio/mp4", ["M4A/isom/iso2", "MPEG-4/AAC", 2, 16000, 1]), title: TITLE },
  { ...fact("fragmented.m4a", "audio/mp4", ["M4A/iso6/isom/iso2", "MPEG-4/AAC", 4.032, 16000, 1]), title: TITLE },
  { ...fact("opus.mp4", "audio/mp4", ["isom/iso2/mp41", "Opus", 2, 48000, 1]), title: TITLE },
  {
    ...fact("flac.mp4", "audio/mp4", ["isom/iso2/mp41", "FLAC", 2, 16000, 1], true),
    title: TITLE,
  },
  {
    ...fact("mp3.mp4", "audio/mp4", ["isom/iso2/mp41", "MPEG 2 Layer 3", 2, 16000, 1]),
    title: TITLE,
  },
  {
    ...fact("audio-only.mov", "audio/mp4", ["qt", "MPEG-4/AAC", 2, 16000, 1]),
    title: TITLE,
  },
  { ...fact("flac.oga", "audio/ogg", ["Ogg", "FLAC", 2, 8000, 1], true), title: TITLE },
  { ...fact("tone.spx", "audio/ogg", ["Ogg", "Speex 1.2.1", 2, 16000, 1]), title: TITLE },
  { ...fact("tone.wv", "audio/wavpack", ["WavPack", "PCM", 2, 8000, 1], true), title: TITLE },
  { ...fact("tone.mpc", "audio/x-musepack", ["Musepack, SV8", "Musepack", 2, 44100, 1]), title: "Title" },
  { file: "silent.mp4", mimeType: "video/mp4", fileType: "video file", audio: null },
  { file: "video.webm", mimeType: "video/webm", fileType: "video file", audio: null },
  { file: "pixel.png", mimeType: "image/png", fileType: "image file", audio: null },
];
