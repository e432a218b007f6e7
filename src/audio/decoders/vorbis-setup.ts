import { byte, UnreadableAudio } from "../range-source.ts";

/*
 * The cost of a packet of Vorbis follows from the setup header (Vorbis I specification, 4.2.4), not from its bytes: a header of a
 * few bytes describes tables of millions of values, and sums of them for each sample.
 */

/** The work for one value of a spectrum: the transform, the floor, and the window. */
const VALUE_WORK = 24;
/** The work to add one value of a table. */
const ADDITION_WORK = 2;
/** The work to decouple one pair of values. */
const COUPLING_WORK = 5;
/** The work to decode one code word, of a bit or more. */
const CODE_WORK = 10;
/** The work for a channel of a packet, besides its values. */
const CHANNEL_WORK = 3000;
/** The work to prepare an entry of a codebook, and one of its values. */
const ENTRY_WORK = 300;
const ENTRY_VALUE_WORK = 20;
/** Entries and values of all tables. libvorbis writes fewer than 10,000 entries. More might not fit into the decoder's memory. */
const MAX_ENTRIES = 100_000;
const MAX_VALUES = 500_000;
/** Smaller values would be denormal numbers in the end, with which a processor takes many times as long. */
const MIN_VALUE = 1e-12;
const SYNC = 0x564342;

const damaged = () => new UnreadableAudio("The setup of the sound is damaged.");

/** Reads numbers that begin with their lowest bit. */
class Bits {
  #at: number;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array, start: number) {
    this.#bytes = bytes;
    this.#at = start * 8;
  }

  read(count: number): number {
    let value = 0;
    for (let bit = 0; bit < count; bit++, this.#at++) {
      value += ((byte(this.#bytes, this.#at >> 3) >> (this.#at & 7)) & 1) * 2 ** bit;
    }
    this.skip(0);
    return value;
  }

  skip(count: number): void {
    this.#at += count;
    if (this.#at > this.#bytes.length * 8) throw damaged();
  }

  /** Reads a list whose length is stored as one less. */
  list<T>(countBits: number, read: () => T): T[] {
    return Array.from({ length: this.read(countBits) + 1 }, read);
  }

  /** A float: a mantissa of 21 bits, an exponent, and a sign. */
  float(): number {
    const [mantissa, exponent, sign] = [this.read(21), this.read(10), this.read(1)];
    return mantissa * 2 ** (exponent - 788) * (1 - 2 * sign);
  }
}

/** The bits of a number. */
const bitsOf = (value: number): number => 32 - Math.clz32(value);

/** Reads the dimensions and the entries of a codebook. */
function readCodebook(bits: Bits) {
  if (bits.read(24) !== SYNC) throw damaged();
  const [dimensions, entries] = [bits.read(16), bits.read(24)];
  const isOrdered = bits.read(1) === 1;
  const isSparse = !isOrdered && bits.read(1) === 1;
  if (isOrdered) {
    bits.skip(5);
    for (let from = 0; from < entries; ) from += bits.read(bitsOf(entries - from));
  } else if (isSparse) {
    for (let entry = 0; entry < entries; entry++) if (bits.read(1) === 1) bits.skip(5);
  } else {
    bits.skip(5 * entries);
  }
  const lookup = bits.read(4);
  if (dimensions === 0 || lookup > 2) throw damaged();
  if (lookup > 0) {
    const [least, step, valueBits] = [bits.float(), bits.float(), bits.read(4) + 1];
    if ([least, step].some((value) => value !== 0 && Math.abs(value) < MIN_VALUE)) throw damaged();
    const perDimension = Math.floor(entries ** (1 / dimensions) + 1e-9);
    bits.skip(1 + valueBits * (lookup === 1 ? perDimension : entries * dimensions));
  }
  return { dimensions, entries };
}

function skipFloor(bits: Bits): void {
  // Encoders wrote type 0 before version 1.0 of libvorbis. It takes hundreds of operations for each sample.
  if (bits.read(16) !== 1) throw new UnreadableAudio("The sound has an outdated format.");
  const classes = Array.from({ length: bits.read(5) }, () => bits.read(4));
  const dimensions = Array.from({ length: Math.max(-1, ...classes) + 1 }, () => {
    const [count, subclassBits] = [bits.read(3) + 1, bits.read(2)];
    bits.skip((subclassBits > 0 ? 8 : 0) + 8 * 2 ** subclassBits);
    return count;
  });
  bits.skip(2);
  const rangeBits = bits.read(4);
  for (const one of classes) bits.skip(rangeBits * (dimensions[one] ?? 0));
}

type Codebook = ReturnType<typeof readCodebook>;

/** Reads how many code words and additions a value of the spectrum takes at most, and the values that it prepares. */
function readResidue(bits: Bits, books: Codebook[]) {
  bits.skip(16 + 24 + 24);
  const partition = bits.read(24) + 1;
  const classes = bits.read(6) + 1;
  const classBook = books[bits.read(8)];
  const cascades = Array.from({ length: classes }, () => bits.read(3) + (bits.read(1) === 1 ? 8 * bits.read(5) : 0));
  let [codes, additions] = [0, 0];
  for (const cascade of cascades) {
    let sum = 0;
    for (let stage = 0; stage < 8; stage++) {
      const book = (cascade >> stage) & 1 ? books[bits.read(8)] : null;
      if (book === undefined) throw damaged();
      if (book) sum += 1 / Math.min(book.dimensions, partition);
    }
    codes = Math.max(codes, sum);
    additions = Math.max(additions, bitCount(cascade));
  }
  if (!classBook) throw damaged();
  const values = classes ** classBook.dimensions * (classBook.dimensions + 1);
  return { codes: codes + 1 / partition, additions, values };
}

const bitCount = (value: number): number => value.toString(2).replaceAll("0", "").length;

/**
 * Reads the setup header of a sound with this number of channels, whose short and long blocks have these lengths.
 * @returns the work to prepare the decoder, and a function that returns the most that decoding a packet takes
 * @throws `UnreadableAudio` if it is damaged, or describes more than encoders do
 */
export function readVorbisSetup(setup: Uint8Array, channels: number, blockSamples: [number, number]) {
  const bits = new Bits(setup, 7);
  let [entries, values] = [0, 0];
  const count = (moreEntries: number, moreValues: number) => {
    entries += moreEntries;
    values += moreValues;
    if (entries > MAX_ENTRIES || values > MAX_VALUES) throw new UnreadableAudio("The sound is too complex to decode.");
  };
  const books = bits.list(8, () => {
    const book = readCodebook(bits);
    count(book.entries, book.entries * book.dimensions);
    return book;
  });
  bits.list(6, () => bits.skip(16));
  bits.list(6, () => skipFloor(bits));
  const residues = bits.list(6, () => {
    const residue = readResidue(bits, books);
    count(0, residue.values);
    return residue;
  });
  const mappings = bits.list(6, () => {
    bits.skip(16);
    const submaps = bits.read(1) === 1 ? bits.read(4) + 1 : 1;
    const couplings = bits.read(1) === 1 ? bits.read(8) + 1 : 0;
    bits.skip(2 * couplings * bitsOf(channels - 1) + 2 + (submaps > 1 ? 4 * channels : 0));
    const used = Array.from({ length: submaps }, () => {
      bits.skip(16);
      return residues[bits.read(8)];
    });
    const most = (field: "codes" | "additions") => Math.max(...used.map((residue) => residue?.[field] ?? 0));
    return { couplings, codes: most("codes"), additions: most("additions") };
  });
  const modes = bits.list(6, () => {
    const spectrum = (blockSamples[bits.read(1)] ?? 0) / 2;
    bits.skip(32);
    const { couplings = 0, codes = 0, additions = 0 } = mappings[bits.read(8)] ?? {};
    const sums = channels * (VALUE_WORK + additions * ADDITION_WORK) + couplings * COUPLING_WORK;
    return { codes: codes * spectrum * channels, work: channels * CHANNEL_WORK + spectrum * sums };
  });
  const modeBits = bitsOf(modes.length - 1);
  // The decoder repeats the last block for a packet without sound.
  const repetition = { codes: 0, work: Math.max(...modes.map(({ work }) => work)) };
  const packetWork = (packet: Uint8Array): number => {
    const mode = (byte(packet, 0) & 1) === 0 ? modes[(byte(packet, 0) >> 1) & (2 ** modeBits - 1)] : undefined;
    const { codes, work } = mode ?? repetition;
    return work + Math.min(codes, 8 * packet.length) * CODE_WORK;
  };
  return { work: entries * ENTRY_WORK + values * ENTRY_VALUE_WORK, packetWork };
}
