import { AAC_CHANNELS, AAC_RATES_HZ } from "./frames.ts";
import { byte } from "./range-source.ts";

/* The configuration of AAC and MPEG decoders inside MP4. */

/** The configuration bytes that are parsed: far behind the last field that matters. */
const MAX_CONFIG_BYTES = 64;

/** 0 means not stated here. */
interface DecoderOutput {
  channels: number;
  sampleRate: number;
}

export function isAac(objectType: number): boolean {
  return objectType === 0x40 || (objectType >= 0x66 && objectType <= 0x68);
}

/** Reads the object type from an ES descriptor (ISO/IEC 14496-1, 7.2.6), and for AAC what its decoder outputs. */
export function readDecoderConfig(descriptor: Uint8Array): { objectType: number } & DecoderOutput {
  let objectType = 0;
  for (let at = 0; at < descriptor.length; ) {
    const tag = byte(descriptor, at++);
    while (byte(descriptor, at) >= 128) at++;
    const length = byte(descriptor, at++);
    if (tag === 5 && !isAac(objectType)) break;
    if (tag === 5)
      return { objectType, ...readAacOutput(descriptor.subarray(at, at + Math.min(length, MAX_CONFIG_BYTES))) };
    if (tag === 4) objectType = byte(descriptor, at);
    // MP4 omits the optional fields of an ES descriptor (14496-14, 3.1.2).
    at += tag === 3 ? 3 : tag === 4 ? 13 : length;
  }
  return { objectType, channels: 0, sampleRate: 0 };
}

/**
 * Reads an AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1). Spectral band replication changes the coded rate. Parametric
 * stereo makes two channels out of one.
 */
function readAacOutput(config: Uint8Array): DecoderOutput {
  const all = Array.from(config, (b) => b.toString(2).padStart(8, "0")).join("");
  let at = 0;
  const bits = (count: number) => {
    at += count;
    return Number.parseInt(all.slice(at - count, at), 2) || 0;
  };
  const objectType = () => {
    const type = bits(5);
    return type === 31 ? 32 + bits(6) : type;
  };
  const rate = () => {
    const index = bits(4);
    return index === 15 ? bits(24) : (AAC_RATES_HZ[index] ?? 0);
  };
  const type = objectType();
  let sampleRate = rate();
  const channels = AAC_CHANNELS[bits(4)] ?? 0;
  let hasParametricStereo = type === 29;
  // Older decoders read a plain stream here, newer ones also the extensions behind it.
  const sync = all.indexOf("01010110111", at + 3);
  if (type === 5 || type === 29) sampleRate = rate();
  else if (sync >= 0) {
    at = sync + 11;
    if (objectType() === 5 && bits(1) === 1) sampleRate = rate();
    hasParametricStereo = bits(11) === 0x548 && bits(1) === 1;
  }
  return { channels: hasParametricStereo && channels === 1 ? 2 : channels, sampleRate };
}
