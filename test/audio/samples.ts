import { type Fact, facts } from "./facts.ts";

export interface Sample extends Fact {
  bytes: Uint8Array<ArrayBuffer>;
}

// workerd has no file system, so Vite bundles each file as a data: URL.
const urls = import.meta.glob<string>("./*.{mp3,wav,flac,ogg,oga,opus,spx,m4a,mp4,mov,aiff,webm,aac,wma,wv,mpc,png}", {
  query: "?url&inline",
  import: "default",
  eager: true,
});

/** Every file of `facts` with its bytes, for tests that run in workerd. */
export const samples: Sample[] = facts.map((fact) => {
  const base64 = urls[`./${fact.file}`]?.split(",")[1];
  if (base64 === undefined) throw new Error(`no such sample: ${fact.file}`);
  return { ...fact, bytes: Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) };
});

export function sample(file: string): Sample {
  const found = samples.find((one) => one.file === file);
  if (!found) throw new Error(`no such sample: ${file}`);
  return found;
}
